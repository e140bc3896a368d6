//! Decoder of `prometheus.Histogram` of remote write 1.0, and of 2.0, which has one more field.

mod check;

use varve_model::histogram::{BucketSpan, Histogram, HistogramCounts, InvalidHistogram, ResetHint};
use varve_protobuf::{Key, Kind, Reader, Schema, fixed64_key, len_key, varint_key};

pub(crate) use self::check::check;

use crate::batch::Version;

/// A decoded histogram before its checks.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Sent {
    pub(crate) timestamp_ms: i64,
    /// 0 if unknown; version 1.0 has none.
    pub(crate) start_ms: i64,
    count: Count,
    zero_count: Count,
    sum: f64,
    schema: i32,
    zero_threshold: f64,
    negative: Buckets,
    positive: Buckets,
    reset_hint: i32,
    custom_values: Vec<f64>,
}

/// A member of a `oneof`. The last member in the message wins.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Count {
    Integer(u64),
    Float(f64),
}

impl Default for Count {
    fn default() -> Self {
        Self::Integer(0)
    }
}

/// The buckets on one side of zero.
#[derive(Debug, Clone, Default, PartialEq)]
struct Buckets {
    spans: Vec<BucketSpan>,
    /// Integer counts, each as the difference to the previous one.
    deltas: Vec<i64>,
    counts: Vec<f64>,
}

/// Decodes a histogram that has passed the schema of its version.
pub(crate) fn decode(
    mut reader: Reader<'_>,
    version: Version,
) -> Result<Sent, varve_protobuf::Error> {
    let mut sent = Sent::default();
    while let Some(key) = reader.key()? {
        match key {
            COUNT_INT => sent.count = Count::Integer(reader.varint()?),
            COUNT_FLOAT => sent.count = Count::Float(take_double(&mut reader)?),
            SUM => sent.sum = take_double(&mut reader)?,
            SCHEMA_FIELD => sent.schema = zigzag32(reader.varint()?),
            ZERO_THRESHOLD => sent.zero_threshold = take_double(&mut reader)?,
            ZERO_COUNT_INT => sent.zero_count = Count::Integer(reader.varint()?),
            ZERO_COUNT_FLOAT => sent.zero_count = Count::Float(take_double(&mut reader)?),
            NEGATIVE_SPANS => sent.negative.spans.push(decode_span(reader.message()?)?),
            POSITIVE_SPANS => sent.positive.spans.push(decode_span(reader.message()?)?),
            // An enum is an int32: wider values are truncated, as in all protobuf decoders.
            RESET_HINT => sent.reset_hint = reader.varint()? as i32,
            TIMESTAMP => sent.timestamp_ms = reader.varint()? as i64,
            START if version == Version::V2 => sent.start_ms = reader.varint()? as i64,
            _ => decode_repeated(key, &mut reader, &mut sent)?,
        }
    }
    Ok(sent)
}

/// Decodes a repeated field, packed or not.
fn decode_repeated(
    key: Key,
    reader: &mut Reader<'_>,
    sent: &mut Sent,
) -> Result<(), varve_protobuf::Error> {
    match key >> 3 {
        NEGATIVE_DELTAS => each(key, reader, |r| {
            push(&mut sent.negative.deltas, zigzag64(r.varint()?))
        }),
        POSITIVE_DELTAS => each(key, reader, |r| {
            push(&mut sent.positive.deltas, zigzag64(r.varint()?))
        }),
        NEGATIVE_COUNTS => each(key, reader, |r| {
            push(&mut sent.negative.counts, take_double(r)?)
        }),
        POSITIVE_COUNTS => each(key, reader, |r| {
            push(&mut sent.positive.counts, take_double(r)?)
        }),
        CUSTOM_VALUES => each(key, reader, |r| {
            push(&mut sent.custom_values, take_double(r)?)
        }),
        _ => reader.skip_unknown(key, 0),
    }
}

fn push<T>(numbers: &mut Vec<T>, number: T) -> Result<(), varve_protobuf::Error> {
    numbers.push(number);
    Ok(())
}

/// Calls `take` for each number of a field: any count if the field is packed, otherwise one.
fn each<'a>(
    key: Key,
    reader: &mut Reader<'a>,
    mut take: impl FnMut(&mut Reader<'a>) -> Result<(), varve_protobuf::Error>,
) -> Result<(), varve_protobuf::Error> {
    if key != len_key(key >> 3) {
        return take(reader);
    }
    let mut packed = reader.message()?;
    while !packed.rest().is_empty() {
        take(&mut packed)?;
    }
    Ok(())
}

fn decode_span(mut reader: Reader<'_>) -> Result<BucketSpan, varve_protobuf::Error> {
    let mut span = BucketSpan {
        offset: 0,
        length: 0,
    };
    while let Some(key) = reader.key()? {
        match key {
            SPAN_OFFSET => span.offset = zigzag32(reader.varint()?),
            SPAN_LENGTH => span.length = reader.varint()? as u32,
            _ => reader.skip_unknown(key, 0)?,
        }
    }
    Ok(span)
}

fn take_double(reader: &mut Reader<'_>) -> Result<f64, varve_protobuf::Error> {
    Ok(f64::from_bits(reader.fixed64()?))
}

fn zigzag32(value: u64) -> i32 {
    let value = value as u32;
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

fn zigzag64(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

impl Sent {
    /// Returns the histogram.
    ///
    /// # Errors
    /// The reason for which Prometheus would reject the histogram.
    pub(crate) fn check(mut self) -> Result<Histogram, InvalidHistogram> {
        let schema = self.schema;
        let histogram = Histogram {
            reset_hint: u8::try_from(self.reset_hint)
                .ok()
                .and_then(ResetHint::from_code)
                .unwrap_or_default(),
            schema: 0,
            zero_threshold: self.zero_threshold,
            sum: self.sum,
            counts: self.counts(),
            positive_spans: self.positive.spans,
            negative_spans: self.negative.spans,
            custom_bounds: self.custom_values,
        };
        check(histogram, schema)
    }

    /// Moves the counts out of `self`. If the total count is a float, returns float counts and
    /// ignores integers. Otherwise returns integer counts.
    fn counts(&mut self) -> HistogramCounts {
        match self.count {
            Count::Integer(count) => HistogramCounts::Integer {
                count,
                zero_count: if let Count::Integer(zero_count) = self.zero_count {
                    zero_count
                } else {
                    0
                },
                positive: summed(&self.positive.deltas),
                negative: summed(&self.negative.deltas),
            },
            Count::Float(count) => HistogramCounts::Float {
                count,
                zero_count: if let Count::Float(zero_count) = self.zero_count {
                    zero_count
                } else {
                    0.0
                },
                positive: std::mem::take(&mut self.positive.counts),
                negative: std::mem::take(&mut self.negative.counts),
            },
        }
    }
}

/// Returns counts computed from their differences. A negative count wraps to a value above
/// `i64::MAX`.
fn summed(deltas: &[i64]) -> Vec<u64> {
    let mut count = 0_i64;
    let mut counts = Vec::with_capacity(deltas.len());
    for delta in deltas {
        count = count.wrapping_add(*delta);
        counts.push(count.cast_unsigned());
    }
    counts
}

const COUNT_INT: Key = varint_key(1);
const COUNT_FLOAT: Key = fixed64_key(2);
const SUM: Key = fixed64_key(3);
const SCHEMA_FIELD: Key = varint_key(4);
const ZERO_THRESHOLD: Key = fixed64_key(5);
const ZERO_COUNT_INT: Key = varint_key(6);
const ZERO_COUNT_FLOAT: Key = fixed64_key(7);
const NEGATIVE_SPANS: Key = len_key(8);
const NEGATIVE_DELTAS: u32 = 9;
const NEGATIVE_COUNTS: u32 = 10;
const POSITIVE_SPANS: Key = len_key(11);
const POSITIVE_DELTAS: u32 = 12;
const POSITIVE_COUNTS: u32 = 13;
const RESET_HINT: Key = varint_key(14);
const TIMESTAMP: Key = varint_key(15);
const CUSTOM_VALUES: u32 = 16;
const START: Key = varint_key(17);

const SPAN_OFFSET: Key = varint_key(1);
const SPAN_LENGTH: Key = varint_key(2);

static BUCKET_SPAN: Schema = Schema(&[(1, Kind::Varint), (2, Kind::Varint)]);
/// A histogram of version 1.0.
pub(crate) static SCHEMA: Schema = Schema(FIELDS.split_at(FIELDS.len() - 1).0);
/// A histogram of version 2.0.
pub(crate) static SCHEMA_V2: Schema = Schema(FIELDS);
/// The last field exists only in version 2.0.
static FIELDS: &[(u32, Kind)] = &[
    (1, Kind::Varint),
    (2, Kind::Fixed64),
    (3, Kind::Fixed64),
    (4, Kind::Varint),
    (5, Kind::Fixed64),
    (6, Kind::Varint),
    (7, Kind::Fixed64),
    (8, Kind::Message(&BUCKET_SPAN)),
    (9, Kind::Varints),
    (10, Kind::Fixed64s),
    (11, Kind::Message(&BUCKET_SPAN)),
    (12, Kind::Varints),
    (13, Kind::Fixed64s),
    (14, Kind::Varint),
    (15, Kind::Varint),
    (16, Kind::Fixed64s),
    (17, Kind::Varint),
];

#[cfg(test)]
impl Sent {
    /// Returns all numbers except those of a `oneof`.
    pub(crate) fn numbers(&self) -> Vec<Vec<u64>> {
        let signed = |numbers: &[i64]| {
            numbers
                .iter()
                .map(|n| n.cast_unsigned())
                .collect::<Vec<_>>()
        };
        let doubles = |numbers: &[f64]| numbers.iter().map(|n| n.to_bits()).collect::<Vec<_>>();
        let spans = |spans: &[BucketSpan]| {
            spans
                .iter()
                .flat_map(|span| [u64::from(span.offset.cast_unsigned()), span.length.into()])
                .collect()
        };
        let side = |buckets: &Buckets| {
            [
                spans(&buckets.spans),
                signed(&buckets.deltas),
                doubles(&buckets.counts),
            ]
        };
        let enums = [self.schema, self.reset_hint].map(|n| u64::from(n.cast_unsigned()));
        let sum = self.sum.to_bits();
        let threshold = self.zero_threshold.to_bits();
        let one = vec![
            self.timestamp_ms.cast_unsigned(),
            sum,
            threshold,
            enums[0],
            enums[1],
        ];
        let [negative, positive] = [side(&self.negative), side(&self.positive)];
        [
            vec![one],
            negative.to_vec(),
            positive.to_vec(),
            vec![doubles(&self.custom_values)],
        ]
        .concat()
    }
}
