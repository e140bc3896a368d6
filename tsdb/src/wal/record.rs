//! The records of the log. All integers are varints (`varint`), all texts are a size and UTF-8.
//!
//! ```text
//! 1 series    repeated: ref, number of labels, then name and value of each in ascending order of names
//! 2 samples   n, then three columns of n:
//!             refs        each less the one before, zigzag
//!             timestamps  0 and the one that all have, zigzag; or 1 and each less the one before, zigzag
//!             values      an even number: an integer, zigzag, times 2; or 1 and the double's 8 bytes
//! 3 metadata  repeated: metric family, type, help, unit
//! ```
//! A record decodes by itself: nothing in it refers to another.

use crate::head::SeriesRef;
use crate::labels::Labels;
use crate::metadata::Metadata;
use crate::sample::Sample;
use crate::varint::{put_i64, put_u64, take_bytes, take_i64, take_u64, unzigzag, zigzag};

pub(super) const SERIES: u8 = 1;
pub(super) const SAMPLES: u8 = 2;
pub(super) const METADATA: u8 = 3;

/// Most samples of one record.
pub(super) const RECORD_SAMPLES_MAX: usize = 1 << 16;

const TIMESTAMPS_EQUAL: u64 = 0;
const TIMESTAMPS_EACH: u64 = 1;
const VALUE_RAW: u64 = 1;

/// Integers up to this magnitude are written as such.
const INTEGER_MAX: f64 = (1_u64 << 53) as f64;

/// Samples and the series that they belong to.
#[derive(Debug, Default)]
pub(crate) struct SampleColumn {
    /// The series of each sample.
    pub(crate) refs: Vec<SeriesRef>,
    /// The samples.
    pub(crate) samples: Vec<Sample>,
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
    }
}

/// Appends a series definition.
pub(super) fn encode_series(dst: &mut Vec<u8>, series: SeriesRef, labels: &Labels) {
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

/// Appends samples, at most [`RECORD_SAMPLES_MAX`].
pub(super) fn encode_samples(dst: &mut Vec<u8>, refs: &[SeriesRef], samples: &[Sample]) {
    debug_assert!(refs.len() == samples.len() && samples.len() <= RECORD_SAMPLES_MAX, "one ref a sample, bounded");
    put_u64(dst, samples.len() as u64);
    let mut last = 0;
    for series in refs {
        put_i64(dst, (series.0 as i64).wrapping_sub(last));
        last = series.0 as i64;
    }
    encode_timestamps(dst, samples);
    for sample in samples {
        encode_value(dst, sample.value);
    }
}

fn encode_timestamps(dst: &mut Vec<u8>, samples: &[Sample]) {
    let first = samples.first().map_or(0, |sample| sample.timestamp_ms);
    if samples.iter().all(|sample| sample.timestamp_ms == first) {
        put_u64(dst, TIMESTAMPS_EQUAL);
        put_i64(dst, first);
        return;
    }
    put_u64(dst, TIMESTAMPS_EACH);
    let mut last = 0;
    for sample in samples {
        put_i64(dst, sample.timestamp_ms.wrapping_sub(last));
        last = sample.timestamp_ms;
    }
}

#[inline]
fn encode_value(dst: &mut Vec<u8>, value: f64) {
    let integer = value as i64;
    if value.abs() <= INTEGER_MAX && (integer as f64).to_bits() == value.to_bits() {
        put_u64(dst, zigzag(integer) << 1);
    } else {
        put_u64(dst, VALUE_RAW);
        dst.extend_from_slice(&value.to_bits().to_le_bytes());
    }
}

/// Decodes samples into `out`, which is emptied first; `None` if the record is damaged.
pub(super) fn decode_samples(mut src: &[u8], out: &mut SampleColumn) -> Option<()> {
    let src = &mut src;
    out.clear();
    let n_samples = usize::try_from(take_u64(src)?).ok().filter(|&n| n <= RECORD_SAMPLES_MAX)?;
    let mut series = 0_i64;
    for _ in 0..n_samples {
        series = series.wrapping_add(take_i64(src)?);
        out.refs.push(SeriesRef(series as u64));
    }
    decode_timestamps(src, n_samples, &mut out.samples)?;
    for sample in &mut out.samples {
        sample.value = decode_value(src)?;
    }
    src.is_empty().then_some(())
}

fn decode_timestamps(src: &mut &[u8], n_samples: usize, out: &mut Vec<Sample>) -> Option<()> {
    match take_u64(src)? {
        TIMESTAMPS_EQUAL => {
            let timestamp_ms = take_i64(src)?;
            out.resize(n_samples, Sample { timestamp_ms, value: 0.0 });
        }
        TIMESTAMPS_EACH => {
            let mut timestamp_ms = 0_i64;
            for _ in 0..n_samples {
                timestamp_ms = timestamp_ms.wrapping_add(take_i64(src)?);
                out.push(Sample { timestamp_ms, value: 0.0 });
            }
        }
        _ => return None,
    }
    Some(())
}

#[inline]
fn decode_value(src: &mut &[u8]) -> Option<f64> {
    match take_u64(src)? {
        even if even % 2 == 0 => Some(unzigzag(even >> 1) as f64),
        VALUE_RAW => Some(f64::from_bits(u64::from_le_bytes(take_bytes(src, 8)?.try_into().ok()?))),
        _ => None,
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

fn put_text(dst: &mut Vec<u8>, text: &str) {
    put_u64(dst, text.len() as u64);
    dst.extend_from_slice(text.as_bytes());
}

fn take_text<'a>(src: &mut &'a [u8]) -> Option<&'a str> {
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
        fn samples_come_back_bit_for_bit(
            samples in proptest::collection::vec((any::<u64>(), prop_oneof![any::<i64>(), Just(5)], any::<u64>()), 0..50),
            integers in proptest::collection::vec(-(1_i64 << 54)..(1_i64 << 54), 0..50),
            equal: bool,
        ) {
            let mut column = SampleColumn::default();
            for &(series, timestamp_ms, bits) in &samples {
                let timestamp_ms = if equal { 7 } else { timestamp_ms };
                column.push(SeriesRef(series), Sample { timestamp_ms, value: f64::from_bits(bits) });
            }
            for &i in &integers {
                column.push(SeriesRef(i as u64), Sample { timestamp_ms: 7, value: i as f64 });
            }
            let mut dst = Vec::new();
            encode_samples(&mut dst, &column.refs, &column.samples);
            let mut back = SampleColumn::default();
            decode_samples(&dst, &mut back).unwrap();
            prop_assert_eq!(&back.refs, &column.refs);
            let bits = |c: &SampleColumn| c.samples.iter().map(|s| (s.timestamp_ms, s.value.to_bits())).collect::<Vec<_>>();
            prop_assert_eq!(bits(&back), bits(&column));
        }

        #[test]
        fn damaged_records_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = decode_samples(&bytes, &mut SampleColumn::default());
            let _ = decode_series(&bytes, |_, _| {});
            let _ = decode_metadata(&bytes, |_, _| {});
        }
    }
}
