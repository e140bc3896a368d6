//! The records of the log but for samples ([`super::samples`]). Integers are varints, texts a size and UTF-8.
//!
//! ```text
//! 1 series    repeated: ref, number of labels, then name and value of each in ascending order of names
//! 2 samples   see `samples`
//! 3 metadata  repeated: metric family, type, help, unit
//! 4 histograms see `histograms`
//! 6 exemplars see `exemplars`
//! 7 starts    see `starts`
//! ```
//! A record decodes by itself: nothing in it refers to another, but starts are of samples of the record behind. Records
//! 5 and 8 to 15 are kept for later, those from 16 on are the checkpoint's ([`super::checkpoint`]).

use super::starts::ToldStarts;
use crate::chunk::varint::{VARINT_SIZE_MAX, put_u64, take_bytes, take_u64};
use crate::head::SeriesRef;
use crate::labels::{Labels, LabelsBuilder, Metadata};
use crate::sample::Sample;

pub(super) const SERIES: u8 = 1;
pub(super) const SAMPLES: u8 = 2;
pub(super) const METADATA: u8 = 3;
pub(super) const HISTOGRAMS: u8 = 4;

/// Samples and the series that they belong to.
#[derive(Debug, Default)]
pub(crate) struct SampleColumn {
    /// The series of each sample.
    pub(crate) refs: Vec<SeriesRef>,
    /// The samples.
    pub(crate) samples: Vec<Sample>,
    /// What is to be told of their starts, in a record of its own.
    pub(crate) starts: ToldStarts,
}

impl SampleColumn {
    /// Adds a sample.
    pub(crate) fn push(&mut self, series: SeriesRef, sample: Sample) {
        self.refs.push(series);
        self.samples.push(sample);
    }

    /// Counts the samples.
    pub(crate) fn len(&self) -> usize {
        self.samples.len()
    }

    /// Tells whether there are no samples.
    pub(crate) fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Empties the column and keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.refs.clear();
        self.samples.clear();
        self.starts.clear();
    }
}

/// Appends a series definition.
pub(super) fn encode_series(dst: &mut Vec<u8>, series: SeriesRef, labels: &Labels) {
    // StringSet, their sizes, and the two numbers before them: about as much as the packed form.
    dst.reserve(labels.as_packed().len() + 2 * VARINT_SIZE_MAX);
    put_u64(dst, series.0);
    put_u64(dst, labels.len() as u64);
    for (name, value) in labels {
        put_text(dst, name);
        put_text(dst, value);
    }
}

/// A label of a series definition.
#[derive(Debug, Clone, Copy)]
pub(super) struct DefinedLabel<'a> {
    /// Its bytes in the record.
    bytes: &'a [u8],
    /// Its name.
    pub(super) name: &'a str,
    /// Its value, which is not empty.
    pub(super) value: &'a str,
    /// What it has in common with the label at its place in the series before, in this record.
    pub(super) common: Common,
}

/// What two labels have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Common {
    /// Both name and value.
    All,
    /// The name.
    Name,
    /// Nothing, as far as was looked.
    Nothing,
}

/// Decodes series definitions one by one, with their labels in ascending order of names; `None` if the record is damaged.
///
/// Most labels of a series are those of the one before: these are compared as bytes, and neither taken apart nor checked
/// again.
pub(super) fn decode_series<'a>(mut src: &'a [u8], mut each: impl FnMut(SeriesRef, &[DefinedLabel<'a>])) -> Option<()> {
    let (mut labels, src) = (Vec::<DefinedLabel<'a>>::new(), &mut src);
    while !src.is_empty() {
        let series = SeriesRef(take_u64(src)?);
        let n_labels = usize::try_from(take_u64(src)?).ok()?;
        labels.truncate(n_labels);
        let mut ascend = true;
        for at in 0..n_labels {
            match labels.get_mut(at) {
                Some(label) => label.follow(src)?,
                None => labels.push(DefinedLabel::take(src)?),
            }
            ascend &= labels[at].common != Common::Nothing;
        }
        if !ascend && !labels.is_sorted_by(|a, b| a.name < b.name) {
            return None;
        }
        each(series, &labels);
    }
    Some(())
}

/// Returns labels that ascend by their names as a set.
pub(super) fn set_of(labels: &[DefinedLabel<'_>]) -> Labels {
    let mut builder = LabelsBuilder::with_capacity(labels.iter().map(|label| label.bytes.len() + 2).sum());
    labels.iter().for_each(|label| builder.push(label.name, label.value));
    builder.finish()
}

impl<'a> DefinedLabel<'a> {
    /// Takes a label off the front of `src`.
    fn take(src: &mut &'a [u8]) -> Option<Self> {
        let bytes = *src;
        let (name, value) = (take_text(src)?, take_text(src)?);
        let bytes = &bytes[..bytes.len() - src.len()];
        (!name.is_empty() && !value.is_empty()).then_some(Self { bytes, name, value, common: Common::Nothing })
    }

    /// Becomes the next label.
    #[inline]
    fn follow(&mut self, src: &mut &'a [u8]) -> Option<()> {
        // Fast path: the same once more.
        if let Some(rest) = src.strip_prefix(self.bytes) {
            *src = rest;
            self.common = Common::All;
            return Some(());
        }
        let before = std::mem::replace(self, Self::take(src)?);
        if before.name == self.name {
            self.common = Common::Name;
        }
        Some(())
    }
}

/// Appends the metadata of a metric family.
pub(super) fn encode_metadata(dst: &mut Vec<u8>, family: &str, metadata: &Metadata) {
    for text in [family, &metadata.kind, &metadata.help, &metadata.unit] {
        put_text(dst, text);
    }
}

/// Decodes metadata family by family; `None` if the record is damaged.
pub(super) fn decode_metadata(mut src: &[u8], mut each: impl FnMut(&str, Metadata)) -> Option<()> {
    while !src.is_empty() {
        let family = take_text(&mut src)?;
        let mut text = || take_text(&mut src).map(str::to_owned);
        each(family, Metadata { kind: text()?, help: text()?, unit: text()? });
    }
    Some(())
}

/// Appends a text behind its size.
pub(super) fn put_text(dst: &mut Vec<u8>, text: &str) {
    put_u64(dst, text.len() as u64);
    dst.extend_from_slice(text.as_bytes());
}

/// Takes a text off the front of `src`.
pub(super) fn take_text<'a>(src: &mut &'a [u8]) -> Option<&'a str> {
    let size = usize::try_from(take_u64(src)?).ok()?;
    std::str::from_utf8(take_bytes(src, size)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn labels_that_are_no_set_are_refused() {
        let refused = |labels: &[(&str, &str)]| {
            let mut dst = Vec::new();
            encode_series(&mut dst, SeriesRef(1), &Labels::from_pairs([("a", "1"), ("b", "2")]).unwrap());
            put_u64(&mut dst, 2);
            put_u64(&mut dst, labels.len() as u64);
            labels.iter().flat_map(|&(name, value)| [name, value]).for_each(|text| put_text(&mut dst, text));
            decode_series(&dst, |_, _| {}).is_none()
        };
        for labels in
            [&[("b", "1"), ("a", "2")], &[("a", "1"), ("a", "2")], &[("b", "1"), ("b", "2")], &[("a", "1"), ("", "2")]]
        {
            assert!(refused(labels), "{labels:?}");
        }
        assert!(refused(&[("a", "")]) && refused(&[("", "x")]) && refused(&[("a", "1"), ("b", "")]));
        assert!(!refused(&[]) && !refused(&[("a", "2"), ("b", "2"), ("c", "3")]));
    }

    #[test]
    fn series_and_metadata_come_back() {
        let labels = |i: usize| Labels::from_pairs([("__name__", "up"), ("i", &*i.to_string())]).unwrap();
        let (mut dst, mut seen) = (Vec::new(), Vec::new());
        (0..3).for_each(|i| encode_series(&mut dst, SeriesRef(1 << (20 * i)), &labels(i)));
        decode_series(&dst, |series, labels| seen.push((series.0, set_of(labels)))).unwrap();
        assert_eq!(seen, [(1, labels(0)), (1 << 20, labels(1)), (1 << 40, labels(2))]);
        assert_eq!(decode_series(&dst[..dst.len() - 1], |_, _| {}), None);

        let metadata = Metadata { kind: "counter".into(), help: "Ü".into(), unit: String::new() };
        let (mut dst, mut seen) = (Vec::new(), Vec::new());
        encode_metadata(&mut dst, "up", &metadata);
        decode_metadata(&dst, |family, metadata| seen.push((family.to_owned(), metadata))).unwrap();
        assert_eq!(seen, [("up".to_owned(), metadata)]);
        assert_eq!(decode_metadata(&dst[..dst.len() - 1], |_, _| {}), None);
    }

    proptest! {
        #[test]
        fn what_a_label_has_in_common_with_the_one_before_is_so(
            sets in proptest::collection::vec(proptest::collection::btree_map("[ab]{1,2}", "[xy]{1,2}", 0..5), 0..20),
        ) {
            let sets: Vec<_> = sets.iter().map(|set| Labels::from_pairs(set.iter().map(|(n, v)| (&**n, &**v))).unwrap()).collect();
            let (mut dst, mut seen) = (Vec::new(), Vec::new());
            sets.iter().for_each(|set| encode_series(&mut dst, SeriesRef(7), set));
            let mut before = Vec::<(&str, &str)>::new();
            decode_series(&dst, |_, labels| {
                for (at, label) in labels.iter().enumerate() {
                    let before = before.get(at);
                    let is_so = match label.common {
                        Common::All => before == Some(&(label.name, label.value)),
                        Common::Name => before.is_some_and(|&(name, _)| name == label.name),
                        Common::Nothing => before.is_none_or(|&(name, _)| name != label.name),
                    };
                    assert!(is_so, "{label:?} behind {before:?}");
                }
                before = labels.iter().map(|label| (label.name, label.value)).collect();
                seen.push(set_of(labels));
            }).unwrap();
            prop_assert_eq!(seen, sets);
        }

        #[test]
        fn damaged_records_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = decode_series(&bytes, |_, _| {});
            let _ = decode_metadata(&bytes, |_, _| {});
        }
    }
}
