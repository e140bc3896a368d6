//! Decodes records: series, samples, histograms, exemplars, metadata, tombstones.
//!
//! A decoder appends items as it reads them. After an error, the items before the damage have been appended. Source:
//! Prometheus `tsdb/record/record.go`, types 1 to 14 as of version 3.16.

use std::sync::Arc;

use varve_tsdb::histogram::{
    BucketSpan, CUSTOM_BUCKETS_SCHEMA, HISTOGRAM_BUCKETS_MAX, Histogram, HistogramCounts, ResetHint,
};
use varve_tsdb::varint::{VARINT_SIZE_MAX, short_u64, unzigzag};

use crate::cursor::Cursor;

/// Type of a record. The discriminants are the codes of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RecordType {
    /// Series definitions.
    Series = 1,
    /// Float samples.
    Samples = 2,
    /// Tombstones.
    Tombstones = 3,
    /// Exemplars.
    Exemplars = 4,
    /// In the WBL: which out-of-order samples are in head chunks.
    MmapMarkers = 5,
    /// Metadata: types, units and help texts.
    Metadata = 6,
    /// Histograms with integer counts.
    Histograms = 7,
    /// Histograms with float counts.
    FloatHistograms = 8,
    /// Like type 7, with custom buckets.
    CustomHistograms = 9,
    /// Like type 8, with custom buckets.
    CustomFloatHistograms = 10,
    /// Float samples with start timestamps.
    SamplesV2 = 11,
    /// Histograms with integer counts and start timestamps.
    HistogramsV2 = 12,
    /// Histograms with float counts and start timestamps.
    FloatHistogramsV2 = 13,
    /// First in a checkpoint: the timestamp before which the WAL was truncated.
    MinValidTime = 14,
}

impl RecordType {
    /// All types, in the order of their codes.
    pub const ALL: [Self; 14] = [
        Self::Series,
        Self::Samples,
        Self::Tombstones,
        Self::Exemplars,
        Self::MmapMarkers,
        Self::Metadata,
        Self::Histograms,
        Self::FloatHistograms,
        Self::CustomHistograms,
        Self::CustomFloatHistograms,
        Self::SamplesV2,
        Self::HistogramsV2,
        Self::FloatHistogramsV2,
        Self::MinValidTime,
    ];
    /// Prometheus' names of the types.
    const NAMES: [&str; Self::ALL.len()] = [
        "series",
        "samples",
        "tombstones",
        "exemplars",
        "mmapmarkers",
        "metadata",
        "histogram_samples",
        "float_histogram_samples",
        "custom_buckets_histogram_samples",
        "custom_buckets_float_histogram_samples",
        "samples_v2",
        "histogram_samples_v2",
        "float_histogram_samples_v2",
        "min_valid_time",
    ];

    /// Returns the type of a record, or `None` if it is empty or unknown.
    #[must_use]
    pub fn of(record: &[u8]) -> Option<Self> {
        let code = *record.first()?;
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }

    /// Describes a record without a known type.
    pub(crate) fn unknown_reason(record: &[u8]) -> String {
        match record.first() {
            Some(code) => format!("unknown record type {code}"),
            None => "empty record".to_owned(),
        }
    }

    /// Returns Prometheus' name for the type.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize - 1]
    }
}

/// A record with a valid checksum and invalid content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("record of type {record_type} is invalid at byte {at}")]
pub struct RecordError {
    /// Offset in the decompressed record.
    pub at: usize,
    /// First byte of the record.
    pub record_type: u8,
}

/// Definition of a series: its ref, by which other records refer to it, and its labels.
#[derive(Debug, Clone)]
pub struct SeriesDefinition<'a> {
    /// Series ref.
    pub series: u64,
    labels: Cursor<'a>,
    n_labels: usize,
}

impl<'a> SeriesDefinition<'a> {
    /// Iterates over names and values as written, normally in ascending order of names.
    pub fn labels(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let mut labels = self.labels;
        (0..self.n_labels).map_while(move |_| Some((labels.string()?, labels.string()?)))
    }
}

/// A float sample.
#[derive(Debug, Clone, Copy)]
pub struct RefSample {
    /// Series ref.
    pub series: u64,
    /// Milliseconds since the Unix epoch.
    pub timestamp_ms: i64,
    /// Start timestamp, or 0 if it is unknown.
    pub start_ms: i64,
    /// Value.
    pub value: f64,
}

/// A histogram sample.
#[derive(Debug, Clone)]
pub struct RefHistogram {
    /// Series ref.
    pub series: u64,
    /// Milliseconds since the Unix epoch.
    pub timestamp_ms: i64,
    /// Start timestamp, or 0 if it is unknown.
    pub start_ms: i64,
    /// Histogram.
    pub histogram: Arc<Histogram>,
}

/// A tombstone: a time range, ends included, in which samples of a series are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefTombstone {
    /// Series ref.
    pub series: u64,
    /// First timestamp.
    pub min_ms: i64,
    /// Last timestamp.
    pub max_ms: i64,
}

/// An exemplar.
#[derive(Debug, Clone)]
pub struct RefExemplar<'a> {
    /// Series ref.
    pub series: u64,
    /// Milliseconds since the Unix epoch.
    pub timestamp_ms: i64,
    /// Value.
    pub value: f64,
    /// Names and values.
    pub labels: Vec<(&'a str, &'a str)>,
}

/// Metadata of a series.
#[derive(Debug, Clone, Copy)]
pub struct RefMetadata<'a> {
    /// Series ref.
    pub series: u64,
    /// Code of the type: see [`RefMetadata::type_name`].
    pub metric_type: u8,
    /// Unit.
    pub unit: &'a str,
    /// Help text.
    pub help: &'a str,
}

impl RefMetadata<'_> {
    /// Returns the OpenMetrics name of the type.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        let names = ["unknown", "counter", "gauge", "histogram", "gaugehistogram", "summary", "info", "stateset"];
        names.get(usize::from(self.metric_type)).copied().unwrap_or("unknown")
    }
}

/// Content of a record.
#[derive(Debug, Clone)]
pub enum RecordContent<'a> {
    /// Type 1.
    Series(Vec<SeriesDefinition<'a>>),
    /// Types 2 and 11.
    Samples(Vec<RefSample>),
    /// Types 7 to 10, 12 and 13, without histograms of an unknown schema.
    Histograms(Vec<RefHistogram>),
    /// Type 3.
    Tombstones(Vec<RefTombstone>),
    /// Type 4.
    Exemplars(Vec<RefExemplar<'a>>),
    /// Type 6.
    Metadata(Vec<RefMetadata<'a>>),
    /// Type 5, which is not decoded.
    MmapMarkers,
    /// Type 14, one item.
    MinValidTime(Vec<i64>),
}

impl<'a> RecordContent<'a> {
    /// Decodes a record of type `record_type`. Returns an error at invalid bytes, for example a string that is not
    /// UTF-8, along with what precedes them.
    #[must_use]
    pub fn decode(record_type: RecordType, record: &'a [u8]) -> (Self, Option<RecordError>) {
        fn collect<'a, T>(
            wrap: fn(Vec<T>) -> RecordContent<'a>,
            decode: impl FnOnce(&mut Vec<T>) -> Result<(), RecordError>,
        ) -> (RecordContent<'a>, Option<RecordError>) {
            let mut items = Vec::new();
            let error = decode(&mut items).err();
            (wrap(items), error)
        }
        match record_type {
            RecordType::Series => collect(Self::Series, |dst| decode_definitions(record, dst)),
            RecordType::Samples | RecordType::SamplesV2 => {
                collect(Self::Samples, |dst| for_each_sample(record, |sample| dst.push(sample)))
            }
            RecordType::Tombstones => collect(Self::Tombstones, |dst| decode_tombstones(record, dst)),
            RecordType::Exemplars => collect(Self::Exemplars, |dst| decode_exemplars(record, dst)),
            RecordType::Metadata => collect(Self::Metadata, |dst| decode_metadata(record, dst)),
            RecordType::MmapMarkers => (Self::MmapMarkers, None),
            RecordType::MinValidTime => collect(Self::MinValidTime, |dst| decode_min_valid_time(record, dst)),
            RecordType::Histograms
            | RecordType::FloatHistograms
            | RecordType::CustomHistograms
            | RecordType::CustomFloatHistograms
            | RecordType::HistogramsV2
            | RecordType::FloatHistogramsV2 => {
                collect(Self::Histograms, |dst| decode_histograms(record, dst).map(|_| ()))
            }
        }
    }
}

/// Decodes the items of a record up to its end.
fn decode<'a>(record: &'a [u8], item: impl FnMut(&mut Cursor<'a>) -> Option<()>) -> Result<(), RecordError> {
    decode_rest(record, Cursor::new(record.get(1..).unwrap_or_default()), item)
}

/// Decodes the items of a record from a position on.
fn decode_rest<'a>(
    record: &'a [u8],
    mut src: Cursor<'a>,
    mut item: impl FnMut(&mut Cursor<'a>) -> Option<()>,
) -> Result<(), RecordError> {
    let record_type = record.first().copied().unwrap_or(0);
    while !src.is_empty() {
        let left = src.len();
        item(&mut src).ok_or(RecordError { at: record.len() - left, record_type })?;
    }
    Ok(())
}

fn decode_definitions<'a>(record: &'a [u8], dst: &mut Vec<SeriesDefinition<'a>>) -> Result<(), RecordError> {
    decode(record, |src| {
        let series = src.be_u64()?;
        let n_labels = src.n_items()?;
        let labels = *src;
        for _ in 0..n_labels {
            src.string()?;
            src.string()?;
        }
        dst.push(SeriesDefinition { series, labels, n_labels });
        Some(())
    })
}

/// A label of a series definition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DefinedLabel<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: &'a str,
    /// The series before has the same label at the same position.
    pub(crate) is_same: bool,
}

/// Decodes a record of type 1 and calls `each` with ref and labels of each series.
///
/// Consecutive series have most labels in common. These are recognized by their bytes and not decoded again.
pub(crate) fn for_each_definition<'a>(
    record: &'a [u8],
    mut each: impl FnMut(u64, &[DefinedLabel<'a>]),
) -> Result<(), RecordError> {
    // Bytes and strings of the labels of the series before.
    let (mut encoded, mut labels) = (Vec::<&[u8]>::new(), Vec::<DefinedLabel<'_>>::new());
    decode(record, |src| {
        let series = src.be_u64()?;
        let n_labels = src.n_items()?;
        encoded.truncate(n_labels);
        labels.truncate(n_labels);
        for index in 0..n_labels {
            // Length prefixes make an equal prefix an equal label.
            if let Some(rest) = encoded.get(index).and_then(|&before| src.rest.strip_prefix(before)) {
                src.rest = rest;
                labels[index].is_same = true;
                continue;
            }
            let start = src.rest;
            let label = DefinedLabel { name: src.string()?, value: src.string()?, is_same: false };
            let bytes = &start[..start.len() - src.len()];
            match labels.get_mut(index) {
                Some(before) => (*before, encoded[index]) = (label, bytes),
                None => {
                    labels.push(label);
                    encoded.push(bytes);
                }
            }
        }
        each(series, &labels);
        Some(())
    })
}

/// Decodes a record of type 2 or 11 and calls `each` with each sample.
#[inline]
pub(crate) fn for_each_sample(record: &[u8], mut each: impl FnMut(RefSample)) -> Result<(), RecordError> {
    let mut series = RefDecoder::of(record);
    let mut src = Cursor::new(record.get(1..).unwrap_or_default());
    if let (RefDecoder::FromFirst(first), true) = (&mut series, src.len() > FIRST_SIZE + SAMPLE_SIZE_MAX) {
        *first = src.be_u64().zip(src.be_u64().map(u64::cast_signed));
        first.iter().for_each(|&first| for_each_short(&mut src, first, &mut each));
    }
    decode_rest(record, src, |src| {
        let (series, timestamp_ms, start_ms) = series.take(src)?;
        each(RefSample { series, timestamp_ms, start_ms, value: src.f64()? });
        Some(())
    })
}

/// Size of the base ref and timestamp of a record, and maximum size of a sample of type 2.
const FIRST_SIZE: usize = 16;
const SAMPLE_SIZE_MAX: usize = 2 * VARINT_SIZE_MAX + 8;

/// Decodes samples of type 2 whose varints have at most eight bytes, while at least the maximum size of a sample is
/// left.
#[inline]
fn for_each_short(src: &mut Cursor<'_>, (series, first_ms): (u64, i64), each: &mut impl FnMut(RefSample)) {
    let word = |bytes: &[u8; SAMPLE_SIZE_MAX], at: usize| -> [u8; 8] {
        bytes[at..at + 8].try_into().expect("a slice of eight bytes")
    };
    while let Some(bytes) = src.rest.first_chunk::<SAMPLE_SIZE_MAX>() {
        let Some((series_step, at)) = short_u64(u64::from_le_bytes(word(bytes, 0))) else { return };
        let Some((time_step, size)) = short_u64(u64::from_le_bytes(word(bytes, at))) else { return };
        let at = at + size;
        each(RefSample {
            series: series.wrapping_add_signed(unzigzag(series_step)),
            timestamp_ms: first_ms.wrapping_add(unzigzag(time_step)),
            start_ms: 0,
            value: f64::from_be_bytes(word(bytes, at)),
        });
        src.rest = &src.rest[at + 8..];
    }
}

/// Decodes a record of histograms. Skips histograms with an unknown schema and returns their number.
pub(crate) fn decode_histograms(record: &[u8], dst: &mut Vec<RefHistogram>) -> Result<u64, RecordError> {
    let is_float = matches!(
        RecordType::of(record),
        Some(RecordType::FloatHistograms | RecordType::CustomFloatHistograms | RecordType::FloatHistogramsV2)
    );
    let (mut series, mut n_unknown) = (RefDecoder::of(record), 0);
    decode(record, |src| {
        let (series, timestamp_ms, start_ms) = series.take(src)?;
        match take_histogram(src, is_float)? {
            Some(histogram) => {
                dst.push(RefHistogram { series, timestamp_ms, start_ms, histogram: Arc::new(histogram) });
            }
            None => n_unknown += 1,
        }
        Some(())
    })?;
    Ok(n_unknown)
}

fn decode_min_valid_time(record: &[u8], dst: &mut Vec<i64>) -> Result<(), RecordError> {
    decode(record, |src| {
        (dst.is_empty() && src.len() == size_of::<i64>()).then(|| dst.extend(src.be_u64().map(u64::cast_signed)))
    })
}

pub(crate) fn decode_tombstones(record: &[u8], dst: &mut Vec<RefTombstone>) -> Result<(), RecordError> {
    decode(record, |src| {
        dst.push(RefTombstone { series: src.be_u64()?, min_ms: src.varint()?, max_ms: src.varint()? });
        Some(())
    })
}

fn decode_exemplars<'a>(record: &'a [u8], dst: &mut Vec<RefExemplar<'a>>) -> Result<(), RecordError> {
    let mut series = RefDecoder::of(record);
    decode(record, |src| {
        let (series, timestamp_ms, _) = series.take(src)?;
        let value = src.f64()?;
        let mut labels = Vec::new();
        for _ in 0..src.n_items()? {
            labels.push((src.string()?, src.string()?));
        }
        dst.push(RefExemplar { series, timestamp_ms, value, labels });
        Some(())
    })
}

fn decode_metadata<'a>(record: &'a [u8], dst: &mut Vec<RefMetadata<'a>>) -> Result<(), RecordError> {
    decode(record, |src| {
        let mut metadata = RefMetadata { series: src.uvarint()?, metric_type: src.u8()?, unit: "", help: "" };
        for _ in 0..src.n_items()? {
            match (src.string()?, src.string()?) {
                ("UNIT", unit) => metadata.unit = unit,
                ("HELP", help) => metadata.help = help,
                _ => {}
            }
        }
        dst.push(metadata);
        Some(())
    })
}

/// Decoder of the refs and timestamps of a record.
enum RefDecoder {
    /// Relative to a base.
    FromFirst(Option<(u64, i64)>),
    /// Relative to the item before (ref, start timestamp) and to the first item (timestamp).
    FromLast(Option<LastItem>),
}

struct LastItem {
    first_ms: i64,
    first_start_ms: i64,
    series: u64,
    start_ms: i64,
}

/// Flags: no start timestamp, or the same as the item before.
const NO_START: u8 = 0;
const SAME_START: u8 = 1;

impl RefDecoder {
    fn of(record: &[u8]) -> Self {
        match RecordType::of(record) {
            Some(RecordType::SamplesV2 | RecordType::HistogramsV2 | RecordType::FloatHistogramsV2) => {
                Self::FromLast(None)
            }
            _ => Self::FromFirst(None),
        }
    }

    #[inline]
    fn take(&mut self, src: &mut Cursor<'_>) -> Option<(u64, i64, i64)> {
        match self {
            Self::FromFirst(first) => {
                let (series, time) = match *first {
                    Some(first) => first,
                    None => *first.insert((src.be_u64()?, src.be_u64()?.cast_signed())),
                };
                let (series_step, time_step) = (src.varint()?, src.varint()?);
                Some((series.wrapping_add_signed(series_step), time.wrapping_add(time_step), 0))
            }
            Self::FromLast(Some(last)) => {
                last.series = last.series.wrapping_add_signed(src.varint()?);
                let timestamp_ms = last.first_ms.wrapping_add(src.varint()?);
                last.start_ms = match src.u8()? {
                    NO_START => 0,
                    SAME_START => last.start_ms,
                    _ => last.first_start_ms.wrapping_add(src.varint()?),
                };
                Some((last.series, timestamp_ms, last.start_ms))
            }
            Self::FromLast(none) => {
                let (series, first_ms, start_ms) = (src.varint()?.cast_unsigned(), src.varint()?, src.varint()?);
                *none = Some(LastItem { first_ms, first_start_ms: start_ms, series, start_ms });
                Some((series, first_ms, start_ms))
            }
        }
    }
}

/// Reads a histogram. The inner option is `None` if its schema is unknown.
fn take_histogram(src: &mut Cursor<'_>, is_float: bool) -> Option<Option<Histogram>> {
    let reset_hint = ResetHint::from_code(src.u8()?).unwrap_or_default();
    let schema = src.varint()?;
    let zero_threshold = src.f64()?;
    let (zero_count, count) = if is_float { (src.be_u64()?, src.be_u64()?) } else { (src.uvarint()?, src.uvarint()?) };
    let sum = src.f64()?;
    let (positive_spans, negative_spans) = (take_spans(src)?, take_spans(src)?);
    let counts = if is_float {
        HistogramCounts::Float {
            count: f64::from_bits(count),
            zero_count: f64::from_bits(zero_count),
            positive: take_doubles(src)?,
            negative: take_doubles(src)?,
        }
    } else {
        HistogramCounts::Integer { count, zero_count, positive: take_counts(src)?, negative: take_counts(src)? }
    };
    let custom_bounds = if schema == i64::from(CUSTOM_BUCKETS_SCHEMA) { take_doubles(src)? } else { Vec::new() };
    let is_known = schema == i64::from(CUSTOM_BUCKETS_SCHEMA) || (-4..=8).contains(&schema);
    let Some(schema) = i8::try_from(schema).ok().filter(|_| is_known) else { return Some(None) };
    Some(Some(Histogram {
        reset_hint,
        schema,
        zero_threshold,
        sum,
        counts,
        positive_spans,
        negative_spans,
        custom_bounds,
    }))
}

fn take_len(src: &mut Cursor<'_>) -> Option<usize> {
    src.n_items().filter(|&n| n <= HISTOGRAM_BUCKETS_MAX)
}

fn take_spans(src: &mut Cursor<'_>) -> Option<Vec<BucketSpan>> {
    let mut spans = Vec::new();
    for _ in 0..take_len(src)? {
        let (offset, length) = (i32::try_from(src.varint()?).ok()?, u32::try_from(src.uvarint()?).ok()?);
        spans.push(BucketSpan { offset, length });
    }
    Some(spans)
}

/// Reads counts, which are stored as deltas.
fn take_counts(src: &mut Cursor<'_>) -> Option<Vec<u64>> {
    let (mut counts, mut count) = (Vec::new(), 0_u64);
    for _ in 0..take_len(src)? {
        count = count.wrapping_add_signed(src.varint()?);
        counts.push(count);
    }
    Some(counts)
}

fn take_doubles(src: &mut Cursor<'_>) -> Option<Vec<f64>> {
    let mut doubles = Vec::new();
    for _ in 0..take_len(src)? {
        doubles.push(src.f64()?);
    }
    Some(doubles)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use varve_tsdb::varint::put_i64;

    #[test]
    fn records_of_all_types_are_decoded() {
        let mut definitions = Vec::new();
        let record = [&[1, 0, 0, 0, 0, 0, 0, 0, 7, 1, 1][..], b"a", &[1], b"b"].concat();
        decode_definitions(&record, &mut definitions).unwrap();
        assert_eq!(definitions[0].series, 7);
        assert_eq!(definitions[0].labels().collect::<Vec<_>>(), [("a", "b")]);

        let one = 1.0_f64.to_bits().to_be_bytes();
        let base = [&[2][..], &9_u64.to_be_bytes(), &1000_i64.to_be_bytes()].concat();
        let record = [&base[..], &[0, 0], &one, &[2, 20], &one].concat();
        let mut samples = Vec::new();
        for_each_sample(&record, |it| samples.push(it)).unwrap();
        let plain = |samples: &[RefSample]| {
            samples.iter().map(|s| (s.series, s.timestamp_ms, s.start_ms, s.value)).collect::<Vec<_>>()
        };
        assert_eq!(plain(&samples), [(9, 1000, 0, 1.0), (10, 1010, 0, 1.0)]);

        // Series 9 at 100, started at 50; series 10 at 105, same start; 11 at 105 without a start; 12 at 105, started
        // at 51.
        let next = [&[2, 10, 1][..], &one, &[2, 10, 0], &one, &[2, 10, 2, 2], &one].concat();
        let record = [&[11, 18, 200, 1, 100][..], &one, &next].concat();
        samples.clear();
        for_each_sample(&record, |it| samples.push(it)).unwrap();
        assert_eq!(plain(&samples), [(9, 100, 50, 1.0), (10, 105, 50, 1.0), (11, 105, 0, 1.0), (12, 105, 51, 1.0)]);

        let mut tombstones = Vec::new();
        let record = [&[3][..], &5_u64.to_be_bytes(), &[2, 4]].concat();
        decode_tombstones(&record, &mut tombstones).unwrap();
        assert_eq!(tombstones, [RefTombstone { series: 5, min_ms: 1, max_ms: 2 }]);

        let mut metadata = Vec::new();
        let record = [&[6, 5, 1, 2, 4][..], b"UNIT", &[1], b"s", &[4], b"HELP", &[2], b"hi"].concat();
        decode_metadata(&record, &mut metadata).unwrap();
        assert_eq!((metadata[0].type_name(), metadata[0].unit, metadata[0].help), ("counter", "s", "hi"));

        // One timestamp of eight bytes, and nothing else.
        for (size, expect) in [(8, Some(-2)), (7, None), (9, None), (16, None)] {
            let record = [&[14][..], &(-2_i64).to_be_bytes(), &[0; 8]].concat();
            let (content, error) = RecordContent::decode(RecordType::MinValidTime, &record[..1 + size]);
            let RecordContent::MinValidTime(times) = content else { panic!("{content:?}") };
            assert_eq!((times.first().copied(), error.is_none()), (expect, expect.is_some()), "{size}");
        }
    }

    /// Types 12 and 13, which Prometheus 3.5 does not write, as `histogramSamplesV2` and `floatHistogramSamplesV2` of
    /// 3.16 encode them.
    #[test]
    fn histograms_with_start_timestamps_are_decoded() {
        // A histogram of schema 0: threshold 0.5, zero count 1, count 4, sum 8, buckets 1 and 2 from index -1.
        let double = |value: f64| value.to_bits().to_be_bytes();
        let spans = [1, 1, 2, 0];
        let integer = [&[1, 0][..], &double(0.5), &[1, 4], &double(8.0), &spans, &[2, 2, 2, 0]].concat();
        let counts = [double(1.0), double(4.0), double(8.0)].concat();
        let float = [&[1, 0][..], &double(0.5), &counts, &spans, &[2], &double(1.0), &double(2.0), &[0]].concat();
        // Custom buckets: schema -53, one bound.
        let custom =
            [&[0, 105][..], &double(0.0), &[0, 3], &double(1.5), &[1, 0, 1, 0, 1, 6, 0, 1], &double(2.5)].concat();
        for (code, histogram, last) in [(12, &integer, &custom), (13, &float, &float)] {
            // Series 9 at 100, started at 50; 10 at 105, same start; 8 at 99 without a start; 8 at 99, same; 11 at
            // 100, started at 40.
            let heads: [&[u8]; 5] = [&[18, 200, 1, 100], &[2, 10, 1], &[3, 1, 0], &[0, 1, 1], &[6, 0, 2, 19]];
            let mut record = vec![code];
            for (i, head) in heads.iter().enumerate() {
                record.extend_from_slice(head);
                record.extend_from_slice(if i == 4 { last } else { histogram });
            }
            let mut found = Vec::new();
            assert_eq!(decode_histograms(&record, &mut found), Ok(0), "{code}");
            let heads: Vec<_> = found.iter().map(|it| (it.series, it.timestamp_ms, it.start_ms)).collect();
            assert_eq!(heads, [(9, 100, 50), (10, 105, 50), (8, 99, 0), (8, 99, 0), (11, 100, 40)], "{code}");
            let first = &found[0].histogram;
            assert_eq!((first.schema, first.zero_threshold, first.sum), (0, 0.5, 8.0));
            assert_eq!(first.positive_spans, [BucketSpan { offset: -1, length: 2 }]);
            match &first.counts {
                HistogramCounts::Integer { count, zero_count, positive, negative } => {
                    assert_eq!((code, *count, *zero_count, &positive[..], negative.len()), (12, 4, 1, &[1, 2][..], 0));
                    assert_eq!((found[4].histogram.schema, &found[4].histogram.custom_bounds[..]), (-53, &[2.5][..]));
                }
                HistogramCounts::Float { count, zero_count, positive, negative } => {
                    let found = (code, *count, *zero_count, &positive[..], negative.len());
                    assert_eq!(found, (13, 4.0, 1.0, &[1.0, 2.0][..], 0));
                }
            }
            for size in 1..record.len() {
                let mut found = Vec::new();
                let _ = decode_histograms(&record[..size], &mut found);
                assert!(found.len() < 5);
            }
        }
    }

    #[test]
    fn a_truncated_record_gives_the_items_before_the_cut() {
        let one = 1.0_f64.to_bits().to_be_bytes();
        let record = [&[2][..], &9_u64.to_be_bytes(), &1000_i64.to_be_bytes(), &[0, 0], &one, &[2, 20], &one].concat();
        let mut samples = Vec::new();
        let error = for_each_sample(&record[..record.len() - 1], |it| samples.push(it)).unwrap_err();
        assert_eq!((error, samples.len()), (RecordError { at: 27, record_type: 2 }, 1));
    }

    proptest! {
        #[test]
        fn samples_round_trip(
            first in (any::<u64>(), any::<i64>()),
            steps in proptest::collection::vec((any::<i64>(), any::<i64>(), 0..64_u32, 0..64_u32, any::<u64>()), 0..40),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut record = [&[2][..], &first.0.to_be_bytes(), &first.1.to_be_bytes()].concat();
            let (mut expected, mut ends) = (Vec::new(), vec![record.len()]);
            for (series, time, series_shift, time_shift, bits) in steps {
                let (series, time) = (series >> series_shift, time >> time_shift);
                put_i64(&mut record, series);
                put_i64(&mut record, time);
                record.extend_from_slice(&bits.to_be_bytes());
                expected.push((first.0.wrapping_add_signed(series), first.1.wrapping_add(time), bits));
                ends.push(record.len());
            }
            let size = 17 + cut.index(record.len() - 16);
            for size in [record.len(), size] {
                let mut found = Vec::new();
                let decoded = for_each_sample(&record[..size], |it| {
                    found.push((it.series, it.timestamp_ms, it.value.to_bits()));
                });
                let n_whole = ends.iter().filter(|&&end| end <= size).count() - 1;
                prop_assert_eq!(&found[..], &expected[..n_whole]);
                prop_assert_eq!(decoded.is_err(), ends[n_whole] < size || n_whole == 0);
            }
        }

        #[test]
        fn no_record_panics(code in 0..16_u8, mut bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            bytes.insert(0, code);
            for record_type in RecordType::ALL {
                let _ = RecordContent::decode(record_type, &bytes);
            }
        }
    }
}
