//! The timestamps of a samples record.
//!
//! ```text
//! equal   nothing: all samples have the timestamp of the first
//! table   before the bits: m, the number of distinct timestamps, from 2 to 64 (varint), and all but the first of them, in
//!         order of first occurrence, each as the difference to the previous one (zigzag, wrapping). In the bits: runs until
//!         there are n: the index in the table, in as many bits as m - 1 has, and the length of the run, as a count
//! steps   before the bits: the steps between timestamps as runs until there are n - 1: step (zigzag, wrapping), length of
//!         the run less one (varint)
//! ```
//! A table suits a request from a few scrape targets, steps suit a backfill with many timestamps.

use varve_codec::bits::{BitReader, BitWriter};
use varve_codec::varint::{put_i64, put_u64, take_i64, take_u64};
use varve_model::Sample;

use super::runs::runs;

/// Maximum number of timestamps in a table.
const TABLE_MAX: usize = 64;

/// The encoding of the timestamps of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimestampEncoding {
    /// One timestamp.
    Equal = 0,
    /// A table of few distinct timestamps.
    Table = 1,
    /// Runs of equal steps.
    Steps = 2,
}

/// Buffers that are reused for encoding.
#[derive(Debug, Default)]
pub(super) struct TimeRuns {
    /// Distinct timestamps in order of first occurrence.
    table: Vec<i64>,
    /// Runs: index in the table, and number of consecutive samples with this timestamp.
    runs: Vec<(u8, usize)>,
}

impl TimestampEncoding {
    /// Returns the encoding for the flag bits of a record.
    pub(super) fn from_bits(bits: u8) -> Option<Self> {
        [Self::Equal, Self::Table, Self::Steps]
            .into_iter()
            .find(|times| *times as u8 == bits)
    }
}

impl TimeRuns {
    /// Chooses the encoding of the timestamps.
    pub(super) fn choose(&mut self, samples: &[Sample]) -> TimestampEncoding {
        let is_few = self.collect(samples);
        if is_few && self.runs.len() <= 1 {
            return TimestampEncoding::Equal;
        }
        // Approximate sizes in bytes: three per step and per entry of the table, two per run of it.
        let n_table = if is_few {
            3 * self.table.len() + 2 * self.runs.len()
        } else {
            usize::MAX
        };
        let n_steps = 4 * step_runs(samples).count();
        if n_table < n_steps {
            TimestampEncoding::Table
        } else {
            TimestampEncoding::Steps
        }
    }

    /// Collects the runs. Returns `false` if there are too many distinct timestamps.
    fn collect(&mut self, samples: &[Sample]) -> bool {
        self.table.clear();
        self.runs.clear();
        for run in samples.chunk_by(|a, b| a.timestamp_ms == b.timestamp_ms) {
            let timestamp_ms = run[0].timestamp_ms;
            let number = self
                .table
                .iter()
                .position(|&known| known == timestamp_ms)
                .unwrap_or(self.table.len());
            if number == TABLE_MAX {
                return false;
            }
            if number == self.table.len() {
                self.table.push(timestamp_ms);
            }
            self.runs.push((number as u8, run.len()));
        }
        true
    }

    /// Appends the table without its first timestamp.
    pub(super) fn encode_table(&self, dst: &mut Vec<u8>) {
        put_u64(dst, self.table.len() as u64);
        for pair in self.table.windows(2) {
            put_i64(dst, pair[1].wrapping_sub(pair[0]));
        }
    }

    /// Appends the runs.
    pub(super) fn encode_runs(&self, writer: &mut BitWriter<'_>) {
        let width = width(self.table.len());
        for &(number, count) in &self.runs {
            writer.put(number.into(), width);
            writer.put_count(count);
        }
    }
}

/// Returns the number of bits of an index in a table of `n_timestamps`.
fn width(n_timestamps: usize) -> u32 {
    usize::BITS - (n_timestamps - 1).leading_zeros()
}

/// Decodes a table whose first timestamp is `first`.
pub(super) fn decode_table(src: &mut &[u8], first: i64) -> Option<Vec<i64>> {
    let n = usize::try_from(take_u64(src)?)
        .ok()
        .filter(|n| (2..=TABLE_MAX).contains(n))?;
    let mut table = Vec::with_capacity(n);
    table.push(first);
    while let (true, Some(&before)) = (table.len() < n, table.last()) {
        table.push(take_i64(src)?.wrapping_add(before));
    }
    Some(table)
}

/// Appends samples to the empty `out` until there are `n`.
pub(super) fn decode_runs(
    reader: &mut BitReader<'_>,
    table: &[i64],
    n: usize,
    out: &mut Vec<Sample>,
) -> Option<()> {
    let width = width(table.len());
    while out.len() < n {
        let &timestamp_ms = table.get(reader.take(width) as usize)?;
        let count = reader
            .take_count()
            .filter(|&count| count <= n - out.len())?;
        out.resize(
            out.len() + count,
            Sample {
                timestamp_ms,
                value: 0.0,
            },
        );
    }
    Some(())
}

/// Iterates over runs of equal steps between samples.
fn step_runs(samples: &[Sample]) -> impl Iterator<Item = (i64, usize)> {
    runs(samples.len(), |i| {
        samples[i]
            .timestamp_ms
            .wrapping_sub(samples[i - 1].timestamp_ms)
    })
}

/// Appends the steps.
pub(super) fn encode_steps(dst: &mut Vec<u8>, samples: &[Sample]) {
    for (step, count) in step_runs(samples) {
        put_i64(dst, step);
        put_u64(dst, count as u64 - 1);
    }
}

/// Appends samples to `out`, which contains the first one, until there are `n`.
pub(super) fn decode_steps(src: &mut &[u8], n: usize, out: &mut Vec<Sample>) -> Option<()> {
    let mut timestamp_ms = out.last()?.timestamp_ms;
    while out.len() < n {
        let step = take_i64(src)?;
        let more = usize::try_from(take_u64(src)?).ok()?;
        let times = more
            .checked_add(1)
            .filter(|&times| times <= n - out.len())?;
        for _ in 0..times {
            timestamp_ms = timestamp_ms.wrapping_add(step);
            out.push(Sample {
                timestamp_ms,
                value: 0.0,
            });
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(times: impl IntoIterator<Item = i64>) -> TimestampEncoding {
        let samples: Vec<_> = times
            .into_iter()
            .map(|timestamp_ms| Sample {
                timestamp_ms,
                value: 0.0,
            })
            .collect();
        TimeRuns::default().choose(&samples)
    }

    #[test]
    fn the_smaller_encoding_is_chosen() {
        assert_eq!(chosen([5; 100]), TimestampEncoding::Equal);
        assert_eq!(
            chosen((0..1000).map(|i| i / 50 % 7 * 1234)),
            TimestampEncoding::Table
        );
        assert_eq!(
            chosen((0..64).map(|i| i * 15_000)),
            TimestampEncoding::Steps
        );
        let scattered = |n: i64| (0..5000).map(move |i| i * i % 10_007 % n);
        assert_eq!(
            chosen(scattered(TABLE_MAX as i64)),
            TimestampEncoding::Table
        );
        assert_eq!(
            chosen(scattered(TABLE_MAX as i64 + 1)),
            TimestampEncoding::Steps,
            "too many for a table"
        );
    }
}
