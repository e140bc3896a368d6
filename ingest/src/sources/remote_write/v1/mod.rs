//! `prometheus.WriteRequest` of remote write 1.0 (`prompb/remote.proto`, `prompb/types.proto`),
//! decoded in place.
//!
//! Follows proto3: an absent field is zero, the last value of a repeated scalar wins, and fields
//! may have any order. The whole message is checked, so that a body that other protobuf decoders
//! reject is rejected completely. Histograms and exemplars are decoded only when they are stored,
//! since they take many times their encoded size.

use varve_model::Sample;
use varve_model::metadata::MetricType;
use varve_protobuf::{Key, Kind, Reader, Schema, Span, fixed64_key, len_key, varint_key};

use super::histogram;
use crate::batch::{DecodedBatch, FamilyEntry, HistogramEntry, RouteHasher};
use crate::error::WriteError;
use crate::limits::Limits;

/// Decodes a decompressed `prometheus.WriteRequest` in place, replacing the contents of `batch`.
///
/// Unknown fields are skipped. The contents of label entries are not checked: a label set in the
/// route cache was well-formed when it was cached, and all other label sets are checked before
/// anything is stored.
///
/// # Errors
/// [`WriteError::Malformed`], and [`WriteError::TooLarge`] if the message exceeds `limits`. The
/// batch must not be used then.
pub fn decode(
    message: &[u8],
    hasher: &RouteHasher,
    limits: &Limits,
    batch: &mut DecodedBatch,
) -> Result<(), WriteError> {
    decode_fields(message, WRITE_REQUEST_FIELDS, hasher, limits, batch)
}

/// Decodes a decompressed `thanos.WriteRequest` as [`decode`] does: its series are encoded as in
/// `prometheus.WriteRequest`, and its other fields are skipped.
///
/// # Errors
/// As [`decode`].
pub(crate) fn decode_routed(
    message: &[u8],
    hasher: &RouteHasher,
    limits: &Limits,
    batch: &mut DecodedBatch,
) -> Result<(), WriteError> {
    decode_fields(message, ROUTED_REQUEST_FIELDS, hasher, limits, batch)
}

/// Returns the tenant of a `thanos.WriteRequest`; empty if it has none.
///
/// # Errors
/// If the message is not a sequence of fields, or the tenant is not UTF-8.
pub(crate) fn tenant(message: &[u8]) -> Result<&str, varve_protobuf::Error> {
    let mut tenant = Reader::new(b"");
    let mut reader = Reader::new(message);
    while let Some(key) = reader.key()? {
        match key {
            TENANT => tenant = reader.message()?,
            _ => reader.skip_unknown(key, 0)?,
        }
    }
    std::str::from_utf8(tenant.rest()).map_err(|_| varve_protobuf::Error {
        offset: tenant.at(),
        reason: "tenant is not UTF-8",
    })
}

/// Decodes the fields whose bits are set in `known_fields`, and skips the others.
#[inline]
fn decode_fields(
    message: &[u8],
    known_fields: u32,
    hasher: &RouteHasher,
    limits: &Limits,
    batch: &mut DecodedBatch,
) -> Result<(), WriteError> {
    limits.check_decompressed(message.len() as u64)?;
    batch.clear();
    let mut reader = Reader::new(message);
    while let Some(key) = reader.key()? {
        match key {
            TIMESERIES => {
                let (labels, contiguous) = decode_series(reader.message()?, limits, batch)?;
                batch.push_series(
                    labels,
                    contiguous.then(|| hasher.hash(labels.slice(message))),
                );
                limits.check_series(batch.series.len())?;
            }
            METADATA if known_fields == WRITE_REQUEST_FIELDS => {
                batch.families.push(decode_family(reader.message()?)?);
                limits.check_families(batch.families.len())?;
            }
            _ => reader.skip_unknown(key, known_fields)?,
        }
    }
    Ok(())
}

/// Checks the labels of an unknown series.
pub(crate) fn check_labels(message: &[u8], labels: Span) -> Result<(), varve_protobuf::Error> {
    // Fast path: labels as senders encode them.
    let mut reader = Reader::over(message, labels);
    loop {
        match reader.key()? {
            None => return Ok(()),
            Some(LABELS) if plain_label(reader.message()?.rest()).is_some() => {}
            Some(_) => return LABELS_OF_SERIES.check(Reader::over(message, labels)),
        }
    }
}

/// Iterates over the label pairs in `labels`, whose bytes must have passed [`check_labels`] in this
/// or an earlier request.
pub(crate) fn label_pairs(message: &[u8], labels: Span) -> LabelPairs<'_> {
    LabelPairs {
        reader: Reader::over(message, labels),
    }
}

/// Fills `strings` with the label pairs in `labels`. Returns `false` unless all labels are ASCII
/// and [`plain_label`]s.
///
/// The bytes between the strings are then also ASCII, so one UTF-8 check covers all names and
/// values.
pub(crate) fn plain_strings<'a>(
    message: &'a [u8],
    labels: Span,
    strings: &mut Vec<(&'a str, &'a str)>,
) -> bool {
    strings.clear();
    let bytes = labels.slice(message);
    let Some(all) = std::str::from_utf8(bytes).ok().filter(|all| all.is_ascii()) else {
        return false;
    };
    let mut at = 0;
    while let [LABEL_KEY, size @ ..0x80, rest @ ..] = &bytes[at..] {
        let size = usize::from(*size);
        let Some((name, value)) = rest.get(..size).and_then(plain_label) else {
            return false;
        };
        // Four bytes precede the name: key and size of the label, key and size of the name. The
        // value ends the label.
        let name_start = at + 4;
        let end = at + 2 + size;
        strings.push((
            &all[name_start..name_start + name.len()],
            &all[end - value.len()..end],
        ));
        at = end;
    }
    at == bytes.len()
}

/// Label names and values in the order of the message.
#[derive(Debug)]
pub(crate) struct LabelPairs<'a> {
    reader: Reader<'a>,
}

impl<'a> Iterator for LabelPairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        // Checked bytes have no errors; unchecked bytes end the iteration.
        while let Some(key) = self.reader.key().ok()? {
            if key == LABELS {
                return self.reader.message().and_then(decode_label).ok();
            }
            self.reader.skip_unknown(key, 0).ok()?;
        }
        None
    }
}

/// Returns value and timestamp of an exemplar with checked `fields`. The field numbers are the same
/// in both versions.
pub(crate) fn exemplar_sample(message: &[u8], fields: Span) -> Sample {
    let mut reader = Reader::over(message, fields);
    let mut sample = Sample {
        timestamp_ms: 0,
        value: 0.0,
    };
    // Checked bytes have no errors.
    while let Ok(Some(key)) = reader.key() {
        let read = match key {
            EXEMPLAR_VALUE => reader
                .fixed64()
                .map(|bits| sample.value = f64::from_bits(bits)),
            EXEMPLAR_TIMESTAMP => reader
                .varint()
                .map(|time| sample.timestamp_ms = time as i64),
            _ => reader.skip_unknown(key, 0),
        };
        if read.is_err() {
            break;
        }
    }
    sample
}

/// Decodes the samples of a series. Returns its labels and `true` if they are contiguous, else the
/// whole series and `false`.
fn decode_series(
    mut reader: Reader<'_>,
    limits: &Limits,
    batch: &mut DecodedBatch,
) -> Result<(Span, bool), WriteError> {
    let whole = reader.span();
    // Fast path: a series as most senders encode it.
    if let Some((labels_size, sample)) = plain_series(reader.rest()) {
        batch.samples.push(sample);
        limits.check_samples(batch.n_all_samples())?;
        return Ok((Span::new(reader.at(), reader.at() + labels_size), true));
    }
    let mut labels = Span::default();
    let mut contiguous = true;
    loop {
        let field_start = reader.at();
        let Some(key) = reader.key()? else { break };
        match key {
            LABELS => {
                reader.message()?;
                let field = Span::new(field_start, reader.at());
                contiguous &= labels.is_empty() || labels.end == field.start;
                labels = if labels.is_empty() {
                    field
                } else {
                    Span {
                        end: field.end,
                        ..labels
                    }
                };
            }
            SAMPLES => {
                batch.samples.push(decode_sample(reader.message()?)?);
                limits.check_samples(batch.n_all_samples())?;
            }
            EXEMPLARS => {
                let fields = reader.message()?;
                batch.push_exemplar(fields.span());
                EXEMPLAR.check(fields)?;
                limits.check_exemplars(batch.exemplars.len())?;
            }
            HISTOGRAMS => {
                let histogram = reader.message()?;
                batch
                    .histograms
                    .push(HistogramEntry::Encoded(histogram.span()));
                limits.check_samples(batch.n_all_samples())?;
                histogram::SCHEMA.check(histogram)?;
            }
            _ => reader.skip_unknown(key, TIME_SERIES_FIELDS)?,
        }
    }
    Ok((if contiguous { labels } else { whole }, contiguous))
}

#[inline]
fn decode_sample(mut reader: Reader<'_>) -> Result<Sample, varve_protobuf::Error> {
    let mut sample = Sample {
        timestamp_ms: 0,
        value: 0.0,
    };
    while let Some(key) = reader.key()? {
        match key {
            SAMPLE_VALUE => sample.value = f64::from_bits(reader.fixed64()?),
            SAMPLE_TIMESTAMP => sample.timestamp_ms = reader.varint()? as i64,
            _ => reader.skip_unknown(key, SAMPLE_FIELDS)?,
        }
    }
    Ok(sample)
}

/// Reads a series that consists of labels followed by one sample. Returns the size of the labels,
/// and the sample.
#[inline]
fn plain_series(series: &[u8]) -> Option<(usize, Sample)> {
    let mut left = series;
    while let [LABEL_KEY, low, rest @ ..] = left {
        left = match rest {
            _ if *low < 0x80 => rest.get(usize::from(*low)..)?,
            [high @ ..0x80, rest @ ..] => {
                rest.get(usize::from(*low & 0x7f) | usize::from(*high) << 7..)?
            }
            _ => return None,
        };
    }
    let [SAMPLE_KEY, size @ ..0x80, sample @ ..] = left else {
        return None;
    };
    if sample.len() != usize::from(*size) {
        return None;
    }
    Some((series.len() - left.len(), plain_sample(sample)?))
}

/// Reads a sample that consists of an optional value and a timestamp from 1971 to 2109. The field
/// numbers are the same in both versions.
#[inline]
pub(super) fn plain_sample(sample: &[u8]) -> Option<Sample> {
    let (value, time) = match sample {
        [SAMPLE_VALUE_KEY, rest @ ..] => rest.split_first_chunk()?,
        rest => (&[0; 8], rest),
    };
    let [SAMPLE_TIMESTAMP_KEY, time @ ..] = time else {
        return None;
    };
    let timestamp_ms = varint_of_6(*<&[u8; 6]>::try_from(time).ok()?)?;
    Some(Sample {
        timestamp_ms,
        value: f64::from_bits(u64::from_le_bytes(*value)),
    })
}

/// Reads a varint of six bytes, the size of a timestamp from 1971 to 2109.
#[inline]
fn varint_of_6([a, b, c, d, e, f]: [u8; 6]) -> Option<i64> {
    let bytes = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
    if bytes & 0x8080_8080_8080 != 0x0080_8080_8080 {
        return None;
    }
    // Joins the seven low bits of the bytes: first in pairs, then the three pairs.
    let pairs = (bytes & 0x007f_007f_007f) | (bytes & 0x7f00_7f00_7f00) >> 1;
    Some(((pairs & 0x3fff) | (pairs >> 2 & 0x3fff << 14) | (pairs >> 4 & 0x3fff << 28)) as i64)
}

/// Returns the name and value of a label that consists of both, in this order, each shorter than
/// 128 bytes.
#[inline]
fn plain_label(label: &[u8]) -> Option<(&[u8], &[u8])> {
    let [LABEL_NAME_KEY, name_size @ ..0x80, rest @ ..] = label else {
        return None;
    };
    let (name, rest) = rest.split_at_checked(usize::from(*name_size))?;
    let [LABEL_VALUE_KEY, value_size @ ..0x80, value @ ..] = rest else {
        return None;
    };
    (usize::from(*value_size) == value.len()).then_some((name, value))
}

fn decode_label(mut reader: Reader<'_>) -> Result<(&[u8], &[u8]), varve_protobuf::Error> {
    if let Some(plain) = plain_label(reader.rest()) {
        return Ok(plain);
    }
    let (mut name, mut value): (&[u8], &[u8]) = (b"", b"");
    while let Some(key) = reader.key()? {
        match key {
            LABEL_NAME => name = reader.message()?.rest(),
            LABEL_VALUE => value = reader.message()?.rest(),
            _ => reader.skip_unknown(key, LABEL_FIELDS)?,
        }
    }
    Ok((name, value))
}

fn decode_family(mut reader: Reader<'_>) -> Result<FamilyEntry, varve_protobuf::Error> {
    let mut family = FamilyEntry::default();
    while let Some(key) = reader.key()? {
        match key {
            // An enum is an int32: wider values are truncated, as in all protobuf decoders.
            FAMILY_TYPE => family.kind = MetricType::from_number(reader.varint()? as i32),
            FAMILY_NAME => family.name = reader.message()?.span(),
            FAMILY_HELP => family.help = reader.message()?.span(),
            FAMILY_UNIT => family.unit = reader.message()?.span(),
            _ => reader.skip_unknown(key, METRIC_METADATA_FIELDS)?,
        }
    }
    Ok(family)
}

const TIMESERIES: Key = len_key(1);
const METADATA: Key = len_key(3);
const WRITE_REQUEST_FIELDS: u32 = 1 << 1 | 1 << 3;
const TENANT: Key = len_key(2);
const ROUTED_REQUEST_FIELDS: u32 = 1 << 1;

const LABELS: Key = len_key(1);
const SAMPLES: Key = len_key(2);
const EXEMPLARS: Key = len_key(3);
const HISTOGRAMS: Key = len_key(4);
const TIME_SERIES_FIELDS: u32 = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4;

const LABEL_NAME: Key = len_key(1);
const LABEL_VALUE: Key = len_key(2);
const LABEL_FIELDS: u32 = 1 << 1 | 1 << 2;
/// Keys as single bytes: their varints have one byte.
pub(crate) const LABEL_KEY: u8 = LABELS as u8;
pub(crate) const LABEL_NAME_KEY: u8 = LABEL_NAME as u8;
pub(crate) const LABEL_VALUE_KEY: u8 = LABEL_VALUE as u8;
const SAMPLE_KEY: u8 = SAMPLES as u8;
const SAMPLE_VALUE_KEY: u8 = SAMPLE_VALUE as u8;
const SAMPLE_TIMESTAMP_KEY: u8 = SAMPLE_TIMESTAMP as u8;

const SAMPLE_VALUE: Key = fixed64_key(1);
const SAMPLE_TIMESTAMP: Key = varint_key(2);
const SAMPLE_FIELDS: u32 = 1 << 1 | 1 << 2;

pub(crate) const EXEMPLAR_VALUE: Key = fixed64_key(2);
pub(crate) const EXEMPLAR_TIMESTAMP: Key = varint_key(3);

const FAMILY_TYPE: Key = varint_key(1);
const FAMILY_NAME: Key = len_key(2);
const FAMILY_HELP: Key = len_key(4);
const FAMILY_UNIT: Key = len_key(5);
const METRIC_METADATA_FIELDS: u32 = 1 << 1 | 1 << 2 | 1 << 4 | 1 << 5;

static LABELS_OF_SERIES: Schema = Schema(&[(1, Kind::Message(&LABEL))]);
static LABEL: Schema = Schema(&[(1, Kind::Bytes), (2, Kind::Bytes)]);
static EXEMPLAR: Schema = Schema(&[
    (1, Kind::Message(&LABEL)),
    (2, Kind::Fixed64),
    (3, Kind::Varint),
]);
#[cfg(test)]
pub(crate) mod tests;
