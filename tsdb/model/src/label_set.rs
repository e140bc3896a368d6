//! Label sets: the identities of series.
//!
//! A [`Labels`] is one shared, immutable string of all names and values, each preceded by its
//! length, sorted by name. Equal label sets have equal bytes, so they are compared and hashed as
//! strings.
//!
//! ```text
//! {__name__="up", job="node"}  =  8 __name__ 2 up 3 job 4 node
//! ```
//!
//! Lengths are written in base 64, lowest digit first, one ASCII character per digit, with bit 6
//! set on every digit but the last. Therefore the whole string is valid UTF-8, and names and values
//! need no check.
//!
//! Invariants
//! 1. Names are unique, non-empty and in ascending byte order.
//! 2. No value is empty: in Prometheus' data model an empty value is an absent label.

use std::cmp::Ordering;
use std::fmt;
use std::hash::Hash;
use std::ops::Range;
use std::sync::Arc;

use xxhash_rust::xxh64::xxh64;

/// The name of the label that holds the metric name.
pub const METRIC_NAME: &str = "__name__";

/// Labels that PromQL removes with the metric name.
pub const NAME_LABELS: [&str; 2] = ["__type__", "__unit__"];

/// Maximum size of a label set, in bytes of names and values.
pub const LABELS_SIZE_MAX: usize = 1 << 20;

/// A sorted set of label names and values. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Labels {
    /// The canonical string, never empty. `None` for the empty set: many threads clone that, and
    /// would contend for its reference count.
    packed: Option<Arc<str>>,
}

/// The reason why a list of pairs is not a valid label set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LabelsError {
    /// A pair has no name.
    #[error("label name is empty")]
    EmptyName,
    /// A name occurs twice, with any values.
    #[error("duplicate label name {0:?}")]
    DuplicateName(String),
}

impl Labels {
    /// Returns the empty label set.
    #[must_use]
    pub fn empty() -> Self {
        Self { packed: None }
    }

    /// Builds a set from pairs in any order. Pairs with an empty value are skipped.
    ///
    /// # Errors
    /// [`LabelsError`] if a name is empty, or occurs twice even with an empty value.
    pub fn from_pairs<'a>(
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, LabelsError> {
        let mut pairs: Vec<_> = pairs.into_iter().collect();
        Self::from_unsorted(&mut pairs)
    }

    /// Builds a set as [`Labels::from_pairs`] does, sorting the pairs in place.
    ///
    /// # Errors
    /// The errors of [`Labels::from_pairs`].
    pub fn from_unsorted(pairs: &mut [(&str, &str)]) -> Result<Self, LabelsError> {
        // Fast path: senders sort labels, and sorted names are unique.
        let ascends = pairs.windows(2).all(|w| w[0].0 < w[1].0);
        if !ascends {
            pairs.sort_unstable_by_key(|&(name, _)| name);
        }
        if pairs.first().is_some_and(|&(name, _)| name.is_empty()) {
            return Err(LabelsError::EmptyName);
        }
        if !ascends && let Some(twice) = pairs.windows(2).find(|w| w[0].0 == w[1].0) {
            return Err(LabelsError::DuplicateName(twice[0].0.to_owned()));
        }
        let mut builder =
            LabelsBuilder::with_capacity(pairs.iter().map(|(n, v)| n.len() + v.len() + 2).sum());
        for &(name, value) in pairs.iter() {
            builder.push(name, value);
        }
        Ok(builder.finish())
    }

    /// Returns the value of a label. Returns `None` if the set does not have the label.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter()
            .take_while(|&(n, _)| n <= name)
            .find(|&(n, _)| n == name)
            .map(|(_, v)| v)
    }

    /// Returns the metric name. Returns an empty string if there is none.
    #[must_use]
    pub fn metric_name(&self) -> &str {
        self.get(METRIC_NAME).unwrap_or("")
    }

    /// Iterates over names and values in ascending order of names.
    #[must_use]
    pub fn iter(&self) -> LabelsIter<'_> {
        LabelsIter {
            rest: self.as_packed(),
        }
    }

    /// Returns the number of labels.
    #[must_use]
    pub fn len(&self) -> usize {
        let packed = self.as_packed().as_bytes();
        let mut n_texts = 0;
        let mut at = 0;
        while at < packed.len() {
            let (len, start) = unpack_len(packed, at);
            at = start + len;
            n_texts += 1;
        }
        n_texts / 2
    }

    /// Returns `true` if the set has no labels.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packed.is_none()
    }

    /// Returns the bytes that the set takes on the heap, for memory accounting.
    #[must_use]
    pub fn size(&self) -> usize {
        self.packed
            .as_ref()
            .map_or(0, |packed| packed.len() + 2 * size_of::<usize>())
    }

    /// Returns the canonical string of the set: equal sets have equal strings.
    #[must_use]
    #[inline]
    pub fn as_packed(&self) -> &str {
        self.packed.as_deref().unwrap_or_default()
    }

    /// Returns the canonical string if each length in it has one digit. Then it is also a list of
    /// lengths as varints, each followed by its text.
    pub fn as_varint_packed(&self) -> Option<&str> {
        let packed = self.as_packed();
        let mut at = 0;
        while let Some(&len) = packed.as_bytes().get(at) {
            if len & 0x40 != 0 {
                return None;
            }
            at += 1 + usize::from(len);
        }
        Some(packed)
    }

    /// Creates a set from its canonical string.
    pub fn from_packed(packed: &str) -> Self {
        Self {
            packed: (!packed.is_empty()).then(|| Arc::from(packed)),
        }
    }

    /// Returns `true` if both share one string in memory, or are empty. Other sets may be equal
    /// too.
    #[must_use]
    pub fn is_shared_with(&self, other: &Self) -> bool {
        match (&self.packed, &other.packed) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        }
    }

    /// Returns the set of the labels for which `keep` is true.
    #[must_use]
    pub fn filter(&self, mut keep: impl FnMut(&str) -> bool) -> Self {
        let packed = self.as_packed();
        let mut kept = String::with_capacity(packed.len());
        for (name, pair) in self.packed_pairs() {
            if keep(name) {
                kept.push_str(&packed[pair]);
            }
        }
        // Fast path: all labels are kept.
        if kept.len() == packed.len() {
            self.clone()
        } else {
            Self::from_packed(&kept)
        }
    }

    /// Iterates over names, in ascending order, and where their pairs of name and value are in the
    /// canonical string. The pairs of some labels, one after another, are the canonical string of
    /// the set of these labels.
    #[inline]
    pub fn packed_pairs(&self) -> impl Iterator<Item = (&str, Range<usize>)> {
        let packed = self.as_packed();
        let mut at = 0;
        std::iter::from_fn(move || {
            if at == packed.len() {
                return None;
            }
            let start = at;
            let (name_len, name_start) = unpack_len(packed.as_bytes(), start);
            let name_end = name_start + name_len;
            let (value_len, value_start) = unpack_len(packed.as_bytes(), name_end);
            at = value_start + value_len;
            Some((&packed[name_start..name_end], start..at))
        })
    }

    /// Returns the set with one label set to `value`, or removed if `value` is empty.
    #[must_use]
    pub fn with(&self, name: &str, value: &str) -> Self {
        let size_max = self.as_packed().len() + name.len() + value.len() + 2 * LEN_SIZE_MAX;
        let mut builder = LabelsBuilder::with_capacity(size_max);
        let mut pending = Some((name, value));
        for (n, v) in self.iter() {
            if let Some((name, value)) = pending.take_if(|(name, _)| *name <= n) {
                builder.push(name, value);
            }
            if n != name {
                builder.push(n, v);
            }
        }
        if let Some((name, value)) = pending {
            builder.push(name, value);
        }
        builder.finish()
    }
}

impl Ord for Labels {
    /// Compares pair by pair, name before value. A proper prefix is smaller. This is Prometheus'
    /// order of series.
    fn cmp(&self, other: &Self) -> Ordering {
        compare_packed(self.as_packed(), other.as_packed())
    }
}

/// Compares the canonical strings of two sets in the order of [`Labels`].
///
/// The first differing byte lies in the first name or value that differs. Only this name or value
/// is compared. The ones before it are skipped by their lengths.
pub fn compare_packed(a: &str, b: &str) -> Ordering {
    let a = a.as_bytes();
    let b = b.as_bytes();
    let Some(differs) = first_difference(a, b) else {
        return a.len().cmp(&b.len());
    };
    let mut at = 0;
    loop {
        let (len, start) = unpack_len(a, at);
        if start + len > differs {
            let (other_len, other_start) = unpack_len(b, at);
            return a[start..start + len].cmp(&b[other_start..other_start + other_len]);
        }
        at = start + len;
    }
}

impl PartialOrd for Labels {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Labels {
    /// Writes `{name="value", other="value"}` as Prometheus prints label sets in messages, except
    /// for the escapes of control characters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (i, (name, value)) in self.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            if is_legacy_name(name) {
                write!(f, "{comma}{name}={value:?}")?;
            } else {
                write!(f, "{comma}{name:?}={value:?}")?;
            }
        }
        f.write_str("}")
    }
}

impl Default for Labels {
    fn default() -> Self {
        Self::empty()
    }
}

impl<'a> IntoIterator for &'a Labels {
    type Item = (&'a str, &'a str);
    type IntoIter = LabelsIter<'a>;
    fn into_iter(self) -> LabelsIter<'a> {
        self.iter()
    }
}

/// Returns `true` if a label name needs no quotes in PromQL: `[a-zA-Z_][a-zA-Z0-9_]*`.
#[must_use]
pub fn is_legacy_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes
        .next()
        .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Hashes labels, ascending by name, as Prometheus does (`model/labels`, stringlabels): XXH64 of
/// names and values, each after its size in one byte, or 255 and three bytes.
#[must_use]
pub fn prometheus_hash<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> u64 {
    let mut bytes = Vec::new();
    for text in labels.into_iter().flat_map(|(name, value)| [name, value]) {
        match u8::try_from(text.len()) {
            Ok(size) if size < u8::MAX => bytes.push(size),
            _ => {
                bytes.push(u8::MAX);
                bytes.extend_from_slice(&(text.len() as u32).to_le_bytes()[..3]);
            }
        }
        bytes.extend_from_slice(text.as_bytes());
    }
    xxh64(&bytes, 0)
}

/// Iterator over the names and values of a [`Labels`].
#[derive(Debug, Clone)]
pub struct LabelsIter<'a> {
    rest: &'a str,
}

impl<'a> Iterator for LabelsIter<'a> {
    type Item = (&'a str, &'a str);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        Some((self.text(), self.text()))
    }
}

impl<'a> LabelsIter<'a> {
    #[inline]
    fn text(&mut self) -> &'a str {
        let (len, start) = unpack_len(self.rest.as_bytes(), 0);
        let (text, rest) = self.rest[start..].split_at(len);
        self.rest = rest;
        text
    }
}

/// Returns the length at `at`, and the position after it.
#[inline]
fn unpack_len(packed: &[u8], mut at: usize) -> (usize, usize) {
    // Fast path: one digit.
    let first = packed[at];
    if first & 0x40 == 0 {
        return (usize::from(first), at + 1);
    }
    let mut len = 0;
    let mut shift = 0;
    loop {
        let digit = packed[at];
        at += 1;
        len |= usize::from(digit & 0x3f) << shift;
        shift += 6;
        if digit & 0x40 == 0 {
            return (len, at);
        }
    }
}

/// Returns the first position at which two strings differ. Returns `None` if one is a prefix of the
/// other.
fn first_difference(a: &[u8], b: &[u8]) -> Option<usize> {
    const STEP: usize = 16;
    // Skips equal pieces quickly: neighbors share most of their labels.
    let n_equal = a
        .chunks_exact(STEP)
        .zip(b.chunks_exact(STEP))
        .take_while(|(a, b)| a == b)
        .count()
        * STEP;
    let rest = a[n_equal..]
        .iter()
        .zip(&b[n_equal..])
        .position(|(a, b)| a != b)?;
    Some(n_equal + rest)
}

/// Maximum size of a packed length, which has 6 bits per byte.
const LEN_SIZE_MAX: usize = usize::BITS.div_ceil(6) as usize;

/// Appends a string preceded by its length.
pub(crate) fn push_text(packed: &mut String, text: &str) {
    let mut len = text.len();
    while len >= 0x40 {
        packed.push(char::from(0x40 | (len & 0x3f) as u8));
        len >>= 6;
    }
    packed.push(char::from(len as u8));
    packed.push_str(text);
}

/// Builds a [`Labels`] from pairs in ascending order of names.
#[derive(Debug, Default)]
pub struct LabelsBuilder {
    text: String,
    /// The range of the last name in the text.
    last_name: Range<usize>,
}

impl LabelsBuilder {
    /// Creates a builder for a set of about `size` bytes.
    #[must_use]
    pub fn with_capacity(size: usize) -> Self {
        Self {
            text: String::with_capacity(size),
            last_name: 0..0,
        }
    }

    /// Appends a label. A label with an empty value is skipped. Names must ascend.
    pub fn push(&mut self, name: &str, value: &str) {
        debug_assert!(
            self.text.is_empty() || self.text[self.last_name.clone()] < *name,
            "label names must ascend: {name:?}"
        );
        if !value.is_empty() {
            push_text(&mut self.text, name);
            self.last_name = self.text.len() - name.len()..self.text.len();
            push_text(&mut self.text, value);
        }
    }

    /// Returns the set.
    #[must_use]
    pub fn finish(self) -> Labels {
        Labels::from_packed(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        Labels::from_pairs(pairs.iter().copied()).unwrap()
    }

    #[test]
    fn order_of_pairs_does_not_matter_and_empty_values_are_absent() {
        let a = labels(&[("job", "node"), ("__name__", "up"), ("gone", "")]);
        assert_eq!(a, labels(&[("__name__", "up"), ("job", "node")]));
        assert_eq!(
            a.iter().collect::<Vec<_>>(),
            [("__name__", "up"), ("job", "node")]
        );
        assert_eq!((a.metric_name(), a.get("gone"), a.len()), ("up", None, 2));
    }

    /// XXH64 of the bytes that Prometheus hashes, by the reference implementation.
    #[test]
    fn the_hash_is_that_of_prometheus() {
        assert_eq!(prometheus_hash(&Labels::empty()), 0xef46_db37_51d8_e999);
        let long = "x".repeat(300);
        let mut bytes = vec![1, b'a', 255, 44, 1, 0];
        bytes.extend_from_slice(long.as_bytes());
        assert_eq!(prometheus_hash(&labels(&[("a", &long)])), xxh64(&bytes, 0));
    }

    #[test]
    fn duplicate_and_empty_names_are_rejected_even_with_empty_values() {
        let twice = Labels::from_pairs([("a", "1"), ("b", "2"), ("a", "")]);
        assert_eq!(twice, Err(LabelsError::DuplicateName("a".into())));
        assert_eq!(Labels::from_pairs([("", "x")]), Err(LabelsError::EmptyName));
    }

    #[test]
    fn sets_order_pair_by_pair() {
        assert!(labels(&[("a", "1")]) < labels(&[("a", "1"), ("b", "1")]));
        assert!(labels(&[("a", "10")]) < labels(&[("a", "9")]));
        assert!(labels(&[("a", "z"), ("b", "1")]) < labels(&[("b", "0")]));
    }

    #[test]
    fn packed_pairs_of_some_labels_are_the_string_of_their_set() {
        let long = "x".repeat(100);
        let set = labels(&[("a", "1"), (&*long, "2"), ("y", &*long), ("z", "3")]);
        assert_eq!(
            set.packed_pairs().map(|(name, _)| name).collect::<Vec<_>>(),
            ["a", &*long, "y", "z"]
        );
        let text = |(_, pair): (&str, Range<usize>)| set.as_packed()[pair].to_owned();
        assert_eq!(
            set.packed_pairs().map(text).collect::<String>(),
            set.as_packed()
        );
        let some = set.filter(|name| name != "a" && name != "y");
        assert_eq!(some, labels(&[(&*long, "2"), ("z", "3")]));
        let pairs = set
            .packed_pairs()
            .filter(|(name, _)| some.get(name).is_some());
        assert_eq!(pairs.map(text).collect::<String>(), some.as_packed());
        assert!(set.filter(|_| true).is_shared_with(&set) && set.filter(|_| false).is_empty());
    }

    #[test]
    fn with_replaces_inserts_and_removes() {
        let set = labels(&[("b", "1"), ("d", "2")]);
        assert_eq!(
            set.with("a", "0"),
            labels(&[("a", "0"), ("b", "1"), ("d", "2")])
        );
        assert_eq!(
            set.with("c", "0"),
            labels(&[("b", "1"), ("c", "0"), ("d", "2")])
        );
        assert_eq!(
            set.with("e", "0"),
            labels(&[("b", "1"), ("d", "2"), ("e", "0")])
        );
        assert_eq!(set.with("b", "x"), labels(&[("b", "x"), ("d", "2")]));
        assert_eq!(set.with("b", ""), labels(&[("d", "2")]));
    }

    #[test]
    fn prints_as_prometheus_does() {
        assert_eq!(
            labels(&[("a", "x\"y"), ("b.c", "z")]).to_string(),
            r#"{a="x\"y", "b.c"="z"}"#
        );
    }

    proptest! {
        #[test]
        fn sets_are_ordered_like_their_lists_of_pairs(
            a in proptest::collection::btree_map("[ab]{1,2}", "[ab\u{1}]{1,3}|x{60,70}", 0..4),
            b in proptest::collection::btree_map("[ab]{1,2}", "[ab\u{1}]{1,3}|x{60,70}", 0..4),
        ) {
            let set = |map: &std::collections::BTreeMap<String, String>| {
                Labels::from_pairs(map.iter().map(|(n, v)| (n.as_str(), v.as_str()))).unwrap()
            };
            prop_assert_eq!(set(&a).cmp(&set(&b)), a.iter().cmp(b.iter()));
        }

        #[test]
        fn any_map_round_trips(map in proptest::collection::btree_map("[a-z_é]{1,70}", "\\PC{1,5000}", 0..8)) {
            let set = Labels::from_pairs(map.iter().map(|(n, v)| (n.as_str(), v.as_str()))).unwrap();
            prop_assert!(set.iter().eq(map.iter().map(|(n, v)| (n.as_str(), v.as_str()))));
            for (name, value) in &map {
                prop_assert_eq!(set.get(name), Some(value.as_str()));
            }
        }
    }
}
