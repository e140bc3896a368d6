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
use crate::head::SeriesRef;
use crate::labels::Labels;
use crate::metadata::Metadata;
use crate::sample::Sample;
use crate::varint::{VARINT_SIZE_MAX, put_u64, take_bytes, take_u64};

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
    // Texts, their sizes, and the two numbers before them: about as much as the packed form.
    dst.reserve(labels.as_packed().len() + 2 * VARINT_SIZE_MAX);
    put_u64(dst, series.0);
    put_u64(dst, labels.len() as u64);
    for (name, value) in labels {
        put_text(dst, name);
        put_text(dst, value);
    }
}

/// Decodes series definitions one by one; `None` if the record is damaged.
pub(super) fn decode_series(mut src: &[u8], mut each: impl FnMut(SeriesRef, Labels)) -> Option<()> {
    let mut pairs = Vec::new();
    while !src.is_empty() {
        let series = SeriesRef(take_u64(&mut src)?);
        pairs.clear();
        for _ in 0..take_u64(&mut src)? {
            pairs.push((take_text(&mut src)?, take_text(&mut src)?));
        }
        each(series, Labels::from_unsorted(&mut pairs).ok()?);
    }
    Some(())
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
    fn series_and_metadata_come_back() {
        let labels = |i: usize| Labels::from_pairs([("__name__", "up"), ("i", &*i.to_string())]).unwrap();
        let (mut dst, mut seen) = (Vec::new(), Vec::new());
        (0..3).for_each(|i| encode_series(&mut dst, SeriesRef(1 << (20 * i)), &labels(i)));
        decode_series(&dst, |series, labels| seen.push((series.0, labels))).unwrap();
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
        fn damaged_records_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = decode_series(&bytes, |_, _| {});
            let _ = decode_metadata(&bytes, |_, _| {});
        }
    }
}
