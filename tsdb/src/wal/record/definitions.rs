//! The series and metadata records, and strings in all records: a size as varint and UTF-8.
//!
//! ```text
//! 1 series    repeated: ref, number of labels, then name and value of each in ascending order of names
//! 3 metadata  repeated: metric family, type, help, unit
//! ```

use varve_codec::varint::{VARINT_SIZE_MAX, put_u64, take_bytes, take_u64};
use varve_model::Labels;
use varve_model::labels::LabelsBuilder;
use varve_model::metadata::Metadata;

use crate::batch::SeriesRef;

/// Record number of series definitions.
pub(crate) const SERIES: u8 = 1;
/// Record number of metadata.
pub(crate) const METADATA: u8 = 3;

/// Appends a series definition.
pub(in crate::wal) fn encode_series(dst: &mut Vec<u8>, series: SeriesRef, labels: &Labels) {
    // Approximate size: the packed form, and two varints.
    dst.reserve(labels.as_packed().len() + 2 * VARINT_SIZE_MAX);
    put_u64(dst, series.0);
    put_labels(dst, labels);
}

/// A label of a series definition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DefinedLabel<'a> {
    /// The encoded label.
    bytes: &'a [u8],
    /// The name.
    pub(crate) name: &'a str,
    /// The value; not empty.
    pub(crate) value: &'a str,
    /// The part that repeats the label at the same position in the previous series of this record.
    pub(crate) repeats: Repeats,
}

/// The part of a label that repeats the label at the same position in the previous series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeats {
    /// Name and value.
    Label,
    /// The name.
    Name,
    /// Neither, as far as was compared.
    Nothing,
}

/// Decodes series definitions one by one, with their labels in ascending order of names. Returns
/// `None` if the record is damaged.
///
/// Most labels of a series repeat the previous series. Repeated labels are compared as bytes, and
/// neither decoded nor checked again.
pub(crate) fn decode_series<'a>(
    mut src: &'a [u8],
    mut each: impl FnMut(SeriesRef, &[DefinedLabel<'a>]),
) -> Option<()> {
    let mut labels = Vec::<DefinedLabel<'a>>::new();
    let src = &mut src;
    while !src.is_empty() {
        let series = SeriesRef(take_u64(src)?);
        let n_labels = usize::try_from(take_u64(src)?).ok()?;
        labels.truncate(n_labels);
        let mut ascend = true;
        for i in 0..n_labels {
            match labels.get_mut(i) {
                Some(label) => label.advance(src)?,
                None => labels.push(DefinedLabel::take(src)?),
            }
            ascend &= labels[i].repeats != Repeats::Nothing;
        }
        if !ascend && !labels.is_sorted_by(|a, b| a.name < b.name) {
            return None;
        }
        each(series, &labels);
    }
    Some(())
}

/// Returns labels in ascending order of names as a label set.
pub(crate) fn to_labels(labels: &[DefinedLabel<'_>]) -> Labels {
    let mut builder =
        LabelsBuilder::with_capacity(labels.iter().map(|label| label.bytes.len() + 2).sum());
    for label in labels {
        builder.push(label.name, label.value);
    }
    builder.finish()
}

impl<'a> DefinedLabel<'a> {
    /// Decodes a label from the front of `src`.
    fn take(src: &mut &'a [u8]) -> Option<Self> {
        let bytes = *src;
        let name = take_string(src)?;
        let value = take_string(src)?;
        let bytes = &bytes[..bytes.len() - src.len()];
        (!name.is_empty() && !value.is_empty()).then_some(Self {
            bytes,
            name,
            value,
            repeats: Repeats::Nothing,
        })
    }

    /// Replaces the label with the next label of `src`.
    #[inline]
    fn advance(&mut self, src: &mut &'a [u8]) -> Option<()> {
        // Fast path: the label is repeated.
        if let Some(rest) = src.strip_prefix(self.bytes) {
            *src = rest;
            self.repeats = Repeats::Label;
            return Some(());
        }
        let before = std::mem::replace(self, Self::take(src)?);
        if before.name == self.name {
            self.repeats = Repeats::Name;
        }
        Some(())
    }
}

/// Appends the metadata of a metric family.
pub(in crate::wal) fn encode_metadata(dst: &mut Vec<u8>, family: &str, metadata: &Metadata) {
    for string in [family, &metadata.kind, &metadata.help, &metadata.unit] {
        put_string(dst, string);
    }
}

/// Decodes metadata by metric family. Returns `None` if the record is damaged.
pub(crate) fn decode_metadata(mut src: &[u8], mut each: impl FnMut(&str, Metadata)) -> Option<()> {
    while !src.is_empty() {
        let family = take_string(&mut src)?;
        let mut string = || take_string(&mut src).map(str::to_owned);
        each(
            family,
            Metadata {
                kind: string()?,
                help: string()?,
                unit: string()?,
            },
        );
    }
    Some(())
}

/// Appends the number of labels, names and values.
pub(in crate::wal) fn put_labels(dst: &mut Vec<u8>, labels: &Labels) {
    put_u64(dst, labels.len() as u64);
    // Fast path: no long names and values.
    if let Some(strings) = labels.as_varint_packed() {
        return dst.extend_from_slice(strings.as_bytes());
    }
    for (name, value) in labels {
        put_string(dst, name);
        put_string(dst, value);
    }
}

/// Appends the size of a string and the string.
pub(in crate::wal) fn put_string(dst: &mut Vec<u8>, string: &str) {
    put_u64(dst, string.len() as u64);
    dst.extend_from_slice(string.as_bytes());
}

/// Decodes a string from the front of `src`.
pub(in crate::wal) fn take_string<'a>(src: &mut &'a [u8]) -> Option<&'a str> {
    let size = usize::try_from(take_u64(src)?).ok()?;
    std::str::from_utf8(take_bytes(src, size)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn labels_that_are_not_a_label_set_are_rejected() {
        let rejected = |labels: &[(&str, &str)]| {
            let mut dst = Vec::new();
            encode_series(
                &mut dst,
                SeriesRef(1),
                &Labels::from_pairs([("a", "1"), ("b", "2")]).unwrap(),
            );
            put_u64(&mut dst, 2);
            put_u64(&mut dst, labels.len() as u64);
            labels
                .iter()
                .flat_map(|&(name, value)| [name, value])
                .for_each(|string| put_string(&mut dst, string));
            decode_series(&dst, |_, _| {}).is_none()
        };
        for labels in [
            &[("b", "1"), ("a", "2")],
            &[("a", "1"), ("a", "2")],
            &[("b", "1"), ("b", "2")],
            &[("a", "1"), ("", "2")],
        ] {
            assert!(rejected(labels), "{labels:?}");
        }
        assert!(
            rejected(&[("a", "")]) && rejected(&[("", "x")]) && rejected(&[("a", "1"), ("b", "")])
        );
        assert!(!rejected(&[]) && !rejected(&[("a", "2"), ("b", "2"), ("c", "3")]));
    }

    #[test]
    fn labels_of_any_length_are_encoded_as_varints_and_texts() {
        for (name_len, value_len) in [1, 63, 64, 127, 128]
            .into_iter()
            .flat_map(|n| [0, 63, 64, 127, 128].map(|v| (n, v)))
        {
            let name = "n".repeat(name_len);
            let value = "v".repeat(value_len);
            let labels = Labels::from_pairs([("a", "1"), (&*name, &*value)]).unwrap();
            let is_short = value_len == 0 || name_len.max(value_len) < 64;
            assert_eq!(
                labels.as_varint_packed().is_some(),
                is_short,
                "{name_len} {value_len}"
            );
            // An empty value is an absent label.
            let n_labels = 1 + usize::from(value_len > 0);
            let mut expect = Vec::new();
            put_u64(&mut expect, n_labels as u64);
            for string in ["a", "1", &name, &value].into_iter().take(2 * n_labels) {
                put_string(&mut expect, string);
            }
            let mut encoded = Vec::new();
            put_labels(&mut encoded, &labels);
            assert_eq!(encoded, expect, "{name_len} {value_len}");
        }
        let mut encoded = Vec::new();
        put_labels(&mut encoded, &Labels::empty());
        assert_eq!(encoded, [0]);
    }

    #[test]
    fn series_and_metadata_come_back() {
        let labels =
            |i: usize| Labels::from_pairs([("__name__", "up"), ("i", &*i.to_string())]).unwrap();
        let mut dst = Vec::new();
        let mut seen = Vec::new();
        (0..3).for_each(|i| encode_series(&mut dst, SeriesRef(1 << (20 * i)), &labels(i)));
        decode_series(&dst, |series, labels| {
            seen.push((series.0, to_labels(labels)))
        })
        .unwrap();
        assert_eq!(
            seen,
            [(1, labels(0)), (1 << 20, labels(1)), (1 << 40, labels(2))]
        );
        assert_eq!(decode_series(&dst[..dst.len() - 1], |_, _| {}), None);

        let metadata = Metadata {
            kind: "counter".into(),
            help: "Ü".into(),
            unit: String::new(),
        };
        let mut dst = Vec::new();
        let mut seen = Vec::new();
        encode_metadata(&mut dst, "up", &metadata);
        decode_metadata(&dst, |family, metadata| {
            seen.push((family.to_owned(), metadata))
        })
        .unwrap();
        assert_eq!(seen, [("up".to_owned(), metadata)]);
        assert_eq!(decode_metadata(&dst[..dst.len() - 1], |_, _| {}), None);
    }

    proptest! {
        #[test]
        fn repeated_labels_are_recognized(
            sets in proptest::collection::vec(proptest::collection::btree_map("[ab]{1,2}", "[xy]{1,2}", 0..5), 0..20),
        ) {
            let sets: Vec<_> = sets.iter().map(|set| Labels::from_pairs(set.iter().map(|(n, v)| (&**n, &**v))).unwrap()).collect();
            let mut dst = Vec::new();
            let mut seen = Vec::new();
            for set in sets.iter() { encode_series(&mut dst, SeriesRef(7), set); }
            let mut before = Vec::<(&str, &str)>::new();
            decode_series(&dst, |_, labels| {
                for (at, label) in labels.iter().enumerate() {
                    let before = before.get(at);
                    let is_right = match label.repeats {
                        Repeats::Label => before == Some(&(label.name, label.value)),
                        Repeats::Name => before.is_some_and(|&(name, _)| name == label.name),
                        Repeats::Nothing => before.is_none_or(|&(name, _)| name != label.name),
                    };
                    assert!(is_right, "{label:?} after {before:?}");
                }
                before = labels.iter().map(|label| (label.name, label.value)).collect();
                seen.push(to_labels(labels));
            }).unwrap();
            prop_assert_eq!(seen, sets);
        }
    }
}
