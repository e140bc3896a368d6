//! Writes the points of a matrix.
//!
//! The series of a range query have the same times, and a value often equals the one before it. So
//! the text of each time is formatted once per result, and the text of a repeated value is copied.

use std::ops::Range;

use varve_promql::decimal;
use varve_query::Point;

use crate::json;

/// Maximum number of times whose texts are stored. Other times, and times before the newest stored
/// one, are formatted for each point.
const TIMES_MAX: usize = 1024;

/// Size of the longest prefix of a point: `[-9223372036854775.808,"`.
const PREFIX_SIZE: usize = 24;

/// A time, and the prefix of its points: `[1435781451.781,"`.
#[derive(Debug, Clone, Copy)]
struct TimeText {
    timestamp_ms: i64,
    prefix: [u8; PREFIX_SIZE],
    len: usize,
}

/// Writes points as [`json::write_point`] does.
#[derive(Debug, Default)]
pub(super) struct PointWriter {
    /// Ascending by time.
    times: Vec<TimeText>,
    /// Index of the next expected time in `times`.
    next_idx: usize,
}

impl PointWriter {
    /// Maximum size of the stored texts in bytes.
    pub(super) const SIZE_MAX: usize = TIMES_MAX * size_of::<TimeText>();

    /// Appends points, separated by commas. Fastest if all series have the same ascending times.
    pub(super) fn write(&mut self, out: &mut Vec<u8>, points: &[Point]) {
        let mut last: Option<(u64, Range<usize>)> = None;
        for (i, point) in points.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            self.write_prefix(out, point.timestamp_ms);
            let bits = point.value.to_bits();
            match &last {
                Some((last_bits, text)) if *last_bits == bits => {
                    out.extend_from_within(text.clone())
                }
                _ => {
                    let start = out.len();
                    decimal::write_json(out, point.value);
                    out.extend_from_slice(b"\"]");
                    last = Some((bits, start..out.len()));
                }
            }
        }
    }

    fn write_prefix(&mut self, out: &mut Vec<u8>, timestamp_ms: i64) {
        // Fast path: the series has the same times as the one before.
        let is_next = self
            .times
            .get(self.next_idx)
            .is_some_and(|time| time.timestamp_ms == timestamp_ms);
        if !is_next {
            match self
                .times
                .binary_search_by_key(&timestamp_ms, |time| time.timestamp_ms)
            {
                Ok(idx) => self.next_idx = idx,
                Err(idx) => return self.format_prefix(out, timestamp_ms, idx),
            }
        }
        let TimeText { prefix, len, .. } = &self.times[self.next_idx];
        self.next_idx += 1;
        // A copy of constant size needs no call of `memcpy`.
        let end = out.len() + len;
        out.extend_from_slice(prefix);
        out.truncate(end);
    }

    /// Appends the prefix of a time that belongs at `idx` of `times`. Stores it if it is the newest
    /// one: inserting the times of an instant range selector, which differ between series, would
    /// move the others each time.
    fn format_prefix(&mut self, out: &mut Vec<u8>, timestamp_ms: i64, idx: usize) {
        let start = out.len();
        out.push(b'[');
        json::write_timestamp(out, timestamp_ms);
        out.extend_from_slice(b",\"");
        if idx == self.times.len() && idx < TIMES_MAX {
            let mut prefix = [0; PREFIX_SIZE];
            let len = out.len() - start;
            prefix[..len].copy_from_slice(&out[start..]);
            self.times.push(TimeText {
                timestamp_ms,
                prefix,
                len,
            });
            self.next_idx = idx + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn expected(points: &[Point]) -> Vec<u8> {
        let mut out = Vec::new();
        for (i, point) in points.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            json::write_point(&mut out, point.timestamp_ms, point.value);
        }
        out
    }

    fn check(writer: &mut PointWriter, points: &[Point]) {
        let mut out = b"before".to_vec();
        writer.write(&mut out, points);
        assert_eq!(
            String::from_utf8(out[6..].to_vec()),
            String::from_utf8(expected(points))
        );
    }

    #[test]
    fn the_longest_time_fits() {
        let points = [i64::MIN, -1, 0, i64::MAX].map(|timestamp_ms| Point {
            timestamp_ms,
            value: f64::NAN,
        });
        check(&mut PointWriter::default(), &points);
    }

    #[test]
    fn more_times_than_are_stored_are_written() {
        let mut writer = PointWriter::default();
        let point = |i: usize| Point {
            timestamp_ms: i as i64 * 30_000,
            value: (i / 3) as f64,
        };
        let points: Vec<_> = (0..2 * TIMES_MAX).map(point).collect();
        check(&mut writer, &points);
        assert_eq!(writer.times.len(), TIMES_MAX);
        check(&mut writer, &points);
    }

    proptest! {
        /// Series with gaps, of any order, are written like single points.
        #[test]
        fn points_are_written_like_single_ones(
            series in prop::collection::vec(
                prop::collection::vec((0i64..40, prop_oneof![Just(1.5), Just(-0.0), Just(0.0), any::<f64>()]), 0..40),
                1..8,
            ),
        ) {
            let mut writer = PointWriter::default();
            for points in series {
                let point = |(step, value)| Point { timestamp_ms: 1_435_781_451_781 + step * 15_500, value };
                check(&mut writer, &points.into_iter().map(point).collect::<Vec<_>>());
            }
        }
    }
}
