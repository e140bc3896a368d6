//! Writes the points of the series of a range query.
//!
//! The series of a result have the same times, and a value often equals the one before it. So the text of each time is
//! formatted once per result, and the text of a repeated value is copied.

use std::ops::Range;

use varve_promql::decimal;
use varve_query::Point;

use crate::json;

/// Maximum number of times whose texts are stored: 40 bytes each. Other times, and times before the newest stored one,
/// are formatted for each point.
const TIMES_MAX: usize = 1024;

/// Size of the longest start of a point: `[-9223372036854775.808,"`.
const TEXT_SIZE: usize = 24;

/// A time and the start of its points: `[1435781451.781,"`.
#[derive(Debug, Clone, Copy)]
struct TimeText {
    timestamp_ms: i64,
    text: [u8; TEXT_SIZE],
    len: usize,
}

/// Writes points as [`json::write_point`] does.
#[derive(Debug, Default)]
pub(super) struct PointWriter {
    /// Ascending by time.
    times: Vec<TimeText>,
    /// The index of the time that is expected next.
    next: usize,
    /// The start of a point whose time is not in `times`.
    start: Vec<u8>,
}

impl PointWriter {
    /// Appends points with a comma between two of them. Fast if they ascend in time.
    pub(super) fn write(&mut self, out: &mut Vec<u8>, points: &[Point]) {
        let mut last: Option<(u64, Range<usize>)> = None;
        for (i, point) in points.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            self.write_start(out, point.timestamp_ms);
            let bits = point.value.to_bits();
            match &last {
                Some((last_bits, text)) if *last_bits == bits => out.extend_from_within(text.clone()),
                _ => {
                    let at = out.len();
                    decimal::write_json(out, point.value);
                    out.extend_from_slice(b"\"]");
                    last = Some((bits, at..out.len()));
                }
            }
        }
    }

    /// Appends the start of a point at a time.
    fn write_start(&mut self, out: &mut Vec<u8>, timestamp_ms: i64) {
        // Fast path: the series has the same times as the one before.
        let is_next = self.times.get(self.next).is_some_and(|time| time.timestamp_ms == timestamp_ms);
        if !is_next {
            match self.times.binary_search_by_key(&timestamp_ms, |time| time.timestamp_ms) {
                Ok(idx) => self.next = idx,
                Err(idx) => {
                    self.format(timestamp_ms);
                    // Series whose times differ, as those of an instant range selector, would insert each time.
                    if idx < self.times.len() || idx == TIMES_MAX {
                        out.extend_from_slice(&self.start);
                        return;
                    }
                    self.next = idx;
                    self.times.push(TimeText::new(timestamp_ms, &self.start));
                }
            }
        }
        let time = &self.times[self.next];
        // A copy of a fixed size takes less time than one of an exact size.
        let end = out.len() + time.len;
        out.extend_from_slice(&time.text);
        out.truncate(end);
        self.next += 1;
    }

    fn format(&mut self, timestamp_ms: i64) {
        self.start.clear();
        self.start.push(b'[');
        json::write_timestamp(&mut self.start, timestamp_ms);
        self.start.extend_from_slice(b",\"");
    }
}

impl TimeText {
    fn new(timestamp_ms: i64, start: &[u8]) -> Self {
        let mut text = [0; TEXT_SIZE];
        text[..start.len()].copy_from_slice(start);
        Self { timestamp_ms, text, len: start.len() }
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
        assert_eq!(String::from_utf8(out[6..].to_vec()), String::from_utf8(expected(points)));
    }

    #[test]
    fn the_longest_time_fits() {
        let points = [i64::MIN, -1, 0, i64::MAX].map(|timestamp_ms| Point { timestamp_ms, value: f64::NAN });
        check(&mut PointWriter::default(), &points);
    }

    #[test]
    fn more_times_than_are_stored_are_written() {
        let mut writer = PointWriter::default();
        let point = |i: usize| Point { timestamp_ms: i as i64 * 30_000, value: (i / 3) as f64 };
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
