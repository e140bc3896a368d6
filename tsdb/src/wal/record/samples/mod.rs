//! The samples record: the samples of one request that belong to one log, in request order, as
//! columns.
//!
//! ```text
//! varint   n, the number of samples, from 1 to 65,536
//! byte     bits 0-4: K of the refs; bits 5-6: how the timestamps are written ([`timestamps`]); bit 7: 0
//! varint   first ref
//! zigzag   first timestamp
//!          a table of timestamps, or steps
//! bits     n - 1 refs ([`refs`]), runs of timestamps if there is a table, n values ([`values`])
//! ```

mod refs;
mod runs;
mod timestamps;
mod values;

use varve_codec::bits::{BitReader, BitWriter};
use varve_codec::varint::{put_i64, put_u64, take_bytes, take_i64, take_u64};
use varve_model::Sample;

use self::refs::{K_MAX, choose_k, decode_refs, encode_refs};
use self::timestamps::{
    TimeRuns, TimestampEncoding, decode_runs, decode_steps, decode_table, encode_steps,
};
use self::values::{Seen, decode_values, encode_values};
use super::start_timestamps::{RECORD_SAMPLES_MAX, StartTimestamps};
use crate::batch::SeriesRef;

/// Record number of samples.
pub(crate) const SAMPLES: u8 = 2;

const K_MASK: u8 = 0x1f;
const TIMES_SHIFT: u32 = 5;

/// Samples and their series.
#[derive(Debug, Default)]
pub(crate) struct SampleColumn {
    /// The series of each sample.
    pub(crate) refs: Vec<SeriesRef>,
    /// The samples.
    pub(crate) samples: Vec<Sample>,
    /// Start timestamps of the samples; a separate record.
    pub(crate) start_timestamps: StartTimestamps,
}

impl SampleColumn {
    /// Appends a sample.
    pub(crate) fn push(&mut self, series: SeriesRef, sample: Sample) {
        self.refs.push(series);
        self.samples.push(sample);
    }

    /// Returns the number of samples.
    pub(crate) fn len(&self) -> usize {
        self.samples.len()
    }

    /// Returns `true` if there are no samples.
    pub(crate) fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Clears the column. Its memory is reused.
    pub(crate) fn clear(&mut self) {
        self.refs.clear();
        self.samples.clear();
        self.start_timestamps.clear();
    }
}

/// Buffers that are reused for encoding.
#[derive(Debug, Default)]
pub(in crate::wal) struct Scratch {
    times: TimeRuns,
    seen: Seen,
}

/// Appends 1 to [`RECORD_SAMPLES_MAX`] samples.
pub(in crate::wal) fn encode_samples(
    dst: &mut Vec<u8>,
    refs: &[SeriesRef],
    samples: &[Sample],
    scratch: &mut Scratch,
) {
    debug_assert!(
        refs.len() == samples.len() && samples.len() <= RECORD_SAMPLES_MAX,
        "one ref per sample, bounded"
    );
    let (Some(first_ref), Some(first)) = (refs.first(), samples.first()) else {
        return;
    };
    let Scratch { times: runs, seen } = scratch;
    let k = choose_k(refs);
    let times = runs.choose(samples);
    put_u64(dst, samples.len() as u64);
    dst.push(k as u8 | (times as u8) << TIMES_SHIFT);
    put_u64(dst, first_ref.0);
    put_i64(dst, first.timestamp_ms);
    match times {
        TimestampEncoding::Equal => {}
        TimestampEncoding::Table => runs.encode_table(dst),
        TimestampEncoding::Steps => encode_steps(dst, samples),
    }
    let mut writer = BitWriter::new(dst);
    encode_refs(&mut writer, k, refs);
    if times == TimestampEncoding::Table {
        runs.encode_runs(&mut writer);
    }
    encode_values(&mut writer, samples, seen);
    writer.finish();
}

/// The sizes of the parts of a samples record, in bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SampleSizes {
    /// The number of samples, flags, the first ref and the first timestamp.
    pub head: u64,
    /// The refs except the first.
    pub refs: u64,
    /// The timestamps except the first.
    pub times: u64,
    /// The values, and padding of the last byte.
    pub values: u64,
}

/// Decodes samples into `out` and replaces its contents. Returns `None` if the record is damaged.
pub(crate) fn decode_samples(src: &[u8], out: &mut SampleColumn) -> Option<()> {
    decode_sized(src, out).map(|_sizes| ())
}

/// Like [`decode_samples`], but returns the sizes of the parts.
pub(in crate::wal) fn decode_sized(mut src: &[u8], out: &mut SampleColumn) -> Option<SampleSizes> {
    let size = src.len();
    let src = &mut src;
    out.clear();
    let n_samples = usize::try_from(take_u64(src)?)
        .ok()
        .filter(|n| (1..=RECORD_SAMPLES_MAX).contains(n))?;
    let flags = take_bytes(src, 1)?[0];
    let k = u32::from(flags & K_MASK);
    let times = TimestampEncoding::from_bits(flags >> TIMES_SHIFT)?;
    if k > K_MAX {
        return None;
    }
    out.refs.push(SeriesRef(take_u64(src)?));
    let first = Sample {
        timestamp_ms: take_i64(src)?,
        value: 0.0,
    };
    let head = size - src.len();
    let mut table = Vec::new();
    match times {
        TimestampEncoding::Equal => out.samples.resize(n_samples, first),
        TimestampEncoding::Table => table = decode_table(src, first.timestamp_ms)?,
        TimestampEncoding::Steps => {
            out.samples.push(first);
            decode_steps(src, n_samples, &mut out.samples)?;
        }
    }
    let mut reader = BitReader::new(src);
    decode_refs(&mut reader, k, n_samples, &mut out.refs)?;
    let refs_end = reader.position();
    if times == TimestampEncoding::Table {
        decode_runs(&mut reader, &table, n_samples, &mut out.samples)?;
    }
    let times_end = reader.position();
    decode_values(&mut reader, &mut out.samples)?;
    reader.finish()?;
    let in_bytes = 8 * (size - head - src.len());
    let in_bits = times_end - refs_end;
    Some(SampleSizes {
        head: 8 * head as u64,
        refs: refs_end as u64,
        times: (in_bytes + in_bits) as u64,
        values: (8 * src.len() - times_end) as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encode(column: &SampleColumn) -> Vec<u8> {
        let mut dst = Vec::new();
        encode_samples(
            &mut dst,
            &column.refs,
            &column.samples,
            &mut Scratch::default(),
        );
        dst
    }

    fn column(samples: impl IntoIterator<Item = (u64, i64, f64)>) -> SampleColumn {
        let mut column = SampleColumn::default();
        samples.into_iter().for_each(|(s, timestamp_ms, value)| {
            column.push(
                SeriesRef(s),
                Sample {
                    timestamp_ms,
                    value,
                },
            )
        });
        column
    }

    /// Asserts that a column round-trips. Returns its encoded size.
    fn check(samples: impl IntoIterator<Item = (u64, i64, f64)>) -> usize {
        let column = column(samples);
        let bytes = encode(&column);
        let mut back = SampleColumn::default();
        let SampleSizes {
            head,
            refs,
            times,
            values,
        } = decode_sized(&bytes, &mut back).unwrap();
        assert_eq!(
            head + refs + times + values,
            8 * bytes.len() as u64,
            "parts add up to the record"
        );
        assert_eq!(back.refs, column.refs);
        let bits = |c: &SampleColumn| {
            c.samples
                .iter()
                .map(|s| (s.timestamp_ms, s.value.to_bits()))
                .collect::<Vec<_>>()
        };
        assert_eq!(bits(&back), bits(&column));
        bytes.len()
    }

    #[test]
    fn typical_requests_are_small() {
        let t = 1_700_000_000_000;
        assert!(
            check((0..1000).map(|i| (i, t, 0.0))) <= 12 + 3 + 125,
            "refs in a row, one time"
        );
        assert!(
            check((0..1000).map(|i| (i * 64 + i * i % 61, t, 0.0))) <= 12 + 125 + 1250,
            "one of 64 logs"
        );
        assert!(
            check((0..1000).map(|i| (i, t + i as i64 / 100 * 7, 0.0))) <= 50 + 125,
            "ten targets"
        );
        assert!(
            check((0..1000).map(|i| (1, t + i as i64 * 15_000, 0.0))) <= 20 + 10 + 125,
            "a back-fill"
        );
    }

    #[test]
    fn extremes_round_trip() {
        check([
            (u64::MAX, i64::MIN, 1.0),
            (0, i64::MAX, 2.0),
            (u64::MAX / 2, 0, 3.0),
            (u64::MAX / 2, -1, f64::NAN),
        ]);
        check([(7, 7, 7.0)]);
        for bits in 0..64 {
            check([
                (1 << bits, 0, 0.0),
                (0, 1, 0.0),
                (1 << bits, 2, 0.0),
                ((1 << bits) + 1, 3, 0.0),
            ]);
        }
    }

    #[test]
    fn every_cut_is_detected() {
        let bytes = encode(&column(
            (0..40).map(|i| (i * 3, 1_000 + i as i64 % 2, i as f64 * 0.5)),
        ));
        for size in 0..bytes.len() {
            assert_eq!(
                decode_samples(&bytes[..size], &mut SampleColumn::default()),
                None,
                "cut to {size}"
            );
        }
    }

    proptest! {
        #[test]
        fn samples_round_trip_bit_for_bit(
            wild in proptest::collection::vec((any::<u64>(), prop_oneof![any::<i64>(), Just(5)], any::<u64>()), 1..50),
            steps in proptest::collection::vec((0..200_u64, 0..3_i64, -1000..1000_i64), 0..100),
            equal: bool,
        ) {
            let mut samples: Vec<_> =
                wild.into_iter().map(|(s, t, bits)| (s, if equal { 7 } else { t }, f64::from_bits(bits))).collect();
            let mut series = 0;
            let mut time = 7;
            for (ref_step, time_step, value) in steps {
                series += ref_step;
                time += if equal { 0 } else { time_step };
                samples.push((series, time, value as f64 / 10.0));
            }
            check(samples);
        }
    }
}
