//! `rate`, `increase`, `delta`, `irate`, `idelta`: the change of a series over a range.
//!
//! `rate`, `increase` and `delta` extrapolate from the first and last sample to the ends of the
//! range; with `anchored` and `smoothed` they use samples around the ends instead.

use std::ops::Range;

use super::window::{SampleTimes, Window};

/// The variant of a rate function.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RateKind {
    /// The series is a counter, which decreases only by a reset.
    pub(super) is_counter: bool,
    /// The result is per second.
    pub(super) is_rate: bool,
}

pub(super) const RATE: RateKind = RateKind {
    is_counter: true,
    is_rate: true,
};
pub(super) const INCREASE: RateKind = RateKind {
    is_counter: true,
    is_rate: false,
};
pub(super) const DELTA: RateKind = RateKind {
    is_counter: false,
    is_rate: false,
};

/// Returns the change per second between the last two samples. After a reset, a counter starts at 0.
pub(super) fn irate(window: &Window<'_>, _: &[f64]) -> Option<f64> {
    let [before, last] = window.values.last_chunk()?;
    let interval_ms = last_interval_ms(window)?;
    let n = window.values.len();
    let change = if is_reset(window, n - 1) {
        *last
    } else {
        instant_change(*before, *last, true)
    };
    Some(change / (interval_ms as f64 / 1000.0))
}

/// Returns the difference of the last two samples.
pub(super) fn idelta(window: &Window<'_>, _: &[f64]) -> Option<f64> {
    let [before, last] = window.values.last_chunk()?;
    last_interval_ms(window).map(|_| last - before)
}

/// Returns the difference of two samples. After a reset, a counter starts at 0.
pub(super) fn instant_change(before: f64, last: f64, is_counter: bool) -> f64 {
    if is_counter && last < before {
        last
    } else {
        last - before
    }
}

fn last_interval_ms(window: &Window<'_>) -> Option<i64> {
    let [before, last] = window.timestamps_ms.last_chunk()?;
    (last != before).then_some(last - before)
}

/// Returns the change from the first to the last sample, extrapolated to the ends of the range.
pub(super) fn extrapolated(window: &Window<'_>, kind: RateKind) -> Option<f64> {
    let n_intervals = window.values.len() - 1;
    let (first_value, last_value) = window.end_values();
    let mut change = last_value - first_value;
    if kind.is_counter {
        change = add_resets(change, window);
        if let Some(factor) = factor_from_start(
            window,
            kind,
            window.times(0),
            window.ends_ms().1,
            n_intervals,
        ) {
            return Some((change + first_value) * factor);
        }
    }
    if n_intervals == 0 {
        return None;
    }
    Some(
        change
            * extrapolation_factor(
                window,
                kind,
                window.ends_ms(),
                n_intervals,
                first_value,
                change,
            ),
    )
}

/// Returns the factor that extrapolates the change between the samples to the ends of the range.
/// For rates, the factor includes the division by the seconds of the range.
pub(super) fn extrapolation_factor(
    window: &Window<'_>,
    kind: RateKind,
    ends_ms: (i64, i64),
    n_intervals: usize,
    first_value: f64,
    change: f64,
) -> f64 {
    let (first_ms, last_ms) = ends_ms;
    let extrapolation = Extrapolation::new(
        last_ms - first_ms,
        first_ms - window.start_ms,
        window.end_ms - last_ms,
        n_intervals,
    );
    extrapolation.factor(
        kind,
        window.range_seconds,
        extrapolation.limited_to_start(kind, first_value, change),
    )
}

/// The time between the first and last sample, and the time added by extrapolation at each end, in
/// seconds.
///
/// If the distance from a sample to the end of the range is at least 1.1 average sample intervals,
/// the series is assumed to start or end within the range. Extrapolation then adds half an
/// interval.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extrapolation {
    sampled: f64,
    to_start: f64,
    to_end: f64,
}

impl Extrapolation {
    /// Creates an extrapolation. The times are the milliseconds between the first and last sample,
    /// from the start of the range to the first sample, and from the last sample to the end of the
    /// range.
    pub(super) fn new(
        sampled_ms: i64,
        to_start_ms: i64,
        to_end_ms: i64,
        n_intervals: usize,
    ) -> Self {
        let sampled = sampled_ms as f64 / 1000.0;
        let average = sampled / n_intervals as f64;
        let threshold = average * 1.1;
        let mut to_start = to_start_ms as f64 / 1000.0;
        if to_start >= threshold {
            to_start = average / 2.0;
        }
        let mut to_end = to_end_ms as f64 / 1000.0;
        if to_end >= threshold {
            to_end = average / 2.0;
        }
        Self {
            sampled,
            to_start,
            to_end,
        }
    }

    /// Returns the time added at the start, in seconds. A counter with this first value and change
    /// is not extrapolated below 0.
    #[inline]
    pub(super) fn limited_to_start(self, kind: RateKind, first_value: f64, change: f64) -> f64 {
        if kind.is_counter && change > 0.0 && first_value >= 0.0 {
            let to_zero = self.sampled * (first_value / change);
            if to_zero < self.to_start {
                return to_zero;
            }
        }
        self.to_start
    }

    /// Returns `true` if `to_start` is not limited by the value of a counter.
    #[inline]
    pub(super) fn is_full_start(&self, to_start: f64) -> bool {
        to_start == self.to_start
    }

    /// Returns the factor if extrapolation adds `to_start` seconds at the start.
    #[inline]
    pub(super) fn factor(&self, kind: RateKind, range_seconds: f64, to_start: f64) -> f64 {
        let factor = (self.sampled + to_start + self.to_end) / self.sampled;
        if kind.is_rate {
            factor / range_seconds
        } else {
            factor
        }
    }
}

/// Returns the factor for a change since the start timestamp of a counter, if the start timestamp
/// is in the range. The counter was 0 at that time, so there is no extrapolation to the left. With
/// a single sample, no interval is known, so there is none to the right either.
pub(super) fn factor_from_start(
    window: &Window<'_>,
    kind: RateKind,
    first: SampleTimes,
    last_ms: i64,
    n_intervals: usize,
) -> Option<f64> {
    if first.start_ms == 0
        || first.start_ms <= window.start_ms
        || first.start_ms >= first.timestamp_ms
    {
        return None;
    }
    let average = match n_intervals {
        0 => 0.0,
        n => (last_ms - first.timestamp_ms) as f64 / 1000.0 / n as f64,
    };
    let mut to_end = (window.end_ms - last_ms) as f64 / 1000.0;
    if to_end >= average * 1.1 {
        to_end = average / 2.0;
    }
    let sampled = (last_ms - first.start_ms) as f64 / 1000.0;
    let mut factor = (sampled + to_end) / sampled;
    if kind.is_rate {
        factor /= window.range_seconds;
    }
    Some(factor)
}

/// Adds the value before each counter reset to `change`, in order of time.
pub(super) fn add_resets(change: f64, window: &Window<'_>) -> f64 {
    let values = window.values;
    // Fast path: no start timestamps.
    if window.starts_ms.is_empty() {
        if !window.may_decrease {
            return change;
        }
        return values
            .windows(2)
            .filter(|pair| pair[1] < pair[0])
            .fold(change, |change, pair| change + pair[0]);
    }
    let resets =
        (1..values.len()).filter(|&at| values[at] < values[at - 1] || is_reset(window, at));
    resets.fold(change, |change, at| change + values[at - 1])
}

/// Returns `true` if start timestamps show a counter reset before a float.
pub(super) fn is_reset(window: &Window<'_>, at: usize) -> bool {
    !window.starts_ms.is_empty() && window.times(at - 1).is_reset_before(window.times(at))
}

/// Returns `true` if the start timestamps of floats overlap.
pub(crate) fn starts_overlap(window: &Window<'_>) -> bool {
    !window.starts_ms.is_empty()
        && (1..window.values.len()).any(|at| window.times(at - 1).overlaps(window.times(at)))
}

/// Returns the change between the ends of an `anchored` or `smoothed` range. The values at the ends
/// are derived from the samples around them.
pub(super) fn extended(window: &Window<'_>, kind: RateKind, smoothed: bool) -> Option<f64> {
    let Boundaries { left, inner, right } = boundaries(window, smoothed, kind.is_counter)?;
    let mut change = right.value - left.value;
    if kind.is_counter {
        let inner = inner.map(|at| RangePoint {
            times: window.times(at),
            value: window.values[at],
        });
        let mut lost = 0.0;
        let mut before = left;
        for point in inner.chain([right]) {
            if point.value < before.value || before.times.is_reset_before(point.times) {
                lost += before.value;
            }
            before = point;
        }
        change += lost;
    }
    if kind.is_rate {
        change /= window.range_seconds;
    }
    Some(change)
}

/// The ends of an `anchored` or `smoothed` range, and the indexes of the floats between them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Boundaries {
    pub(crate) left: RangePoint,
    pub(crate) inner: Range<usize>,
    pub(crate) right: RangePoint,
}

/// A sample, or a value at an end of a range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RangePoint {
    times: SampleTimes,
    pub(crate) value: f64,
}

/// Returns the boundaries of a range; `None` if no sample is in it.
///
/// In an anchored range, the left end has the value of the last sample at or before the start, and
/// the right end has the value of the last sample. In a smoothed range, both values are
/// interpolated between the samples around the end. A counter is 0 at its start timestamp.
pub(crate) fn boundaries(
    window: &Window<'_>,
    smoothed: bool,
    is_counter: bool,
) -> Option<Boundaries> {
    let Window {
        timestamps_ms,
        values,
        start_ms,
        end_ms,
        ..
    } = *window;
    let last = timestamps_ms.len() - 1;
    let first = timestamps_ms[..last]
        .partition_point(|&t| t <= start_ms)
        .saturating_sub(1);
    let last = if smoothed {
        timestamps_ms[..last].partition_point(|&t| t < end_ms)
    } else {
        last
    };
    if timestamps_ms[last] <= start_ms {
        return None;
    }
    let first_times = window.times(first);
    let starts_in = first_times.starts_after(window.first_ms) && !first_times.starts_after(end_ms);
    // All samples are after the range, and no counter starts in it.
    if smoothed && timestamps_ms[first] > end_ms && !(is_counter && starts_in) {
        return None;
    }
    let end = End {
        window,
        smoothed,
        is_counter,
    };
    let left = match timestamps_ms[first] {
        at_ms if at_ms == start_ms => RangePoint {
            times: first_times,
            value: values[first],
        },
        at_ms if at_ms > start_ms => end.before_first(first, start_ms),
        _ => end.between(first, start_ms, first),
    };
    let right = match timestamps_ms[last] {
        at_ms if at_ms <= end_ms => RangePoint {
            times: start_known_at(end_ms, window.times(last)),
            value: values[last],
        },
        _ if last == 0 => end.before_first(0, end_ms),
        _ => end.between(last - 1, end_ms, last),
    };
    let inner_first = first + usize::from(timestamps_ms[first] <= start_ms);
    let inner_end = last + usize::from(timestamps_ms[last] < end_ms);
    Some(Boundaries {
        left,
        inner: inner_first..inner_end.max(inner_first),
        right,
    })
}

/// Derives the value at an end of a range.
struct End<'a> {
    window: &'a Window<'a>,
    smoothed: bool,
    is_counter: bool,
}

impl End<'_> {
    /// Returns the value at `time_ms`, before the first sample of the window, which has the index
    /// `first`.
    fn before_first(&self, first: usize, time_ms: i64) -> RangePoint {
        let sample = self.sample(first);
        let times = start_known_at(time_ms, sample.times);
        let value = if !self.is_counter || !sample.times.starts_after(self.window.first_ms) {
            sample.value
        } else if self.smoothed && !sample.times.starts_after(time_ms) {
            self.interpolate(started(sample.times.start_ms), sample, time_ms)
        } else {
            0.0
        };
        RangePoint { times, value }
    }

    /// Returns the value at `time_ms`, between the sample at index `from` and the next one. It has
    /// the start timestamp of the sample at index `source`, if no reset is between the samples.
    fn between(&self, from: usize, time_ms: i64, source: usize) -> RangePoint {
        let mut before = self.sample(from);
        let mut after = self.sample(from + 1);
        let mut times = self.window.times(source);
        if self.is_counter && after.times.starts_after(time_ms) {
            times = before.times;
            after = started(after.times.start_ms);
        } else if self.is_counter && before.times.is_reset_before(after.times) {
            times = after.times;
            before = started(after.times.start_ms);
        }
        let value = if self.smoothed {
            self.interpolate(before, after, time_ms)
        } else {
            before.value
        };
        RangePoint {
            times: start_known_at(time_ms, times),
            value,
        }
    }

    fn sample(&self, at: usize) -> RangePoint {
        RangePoint {
            times: self.window.times(at),
            value: self.window.values[at],
        }
    }

    /// Returns the value at `time_ms` on the line between two points. If a counter was reset
    /// between them, it starts at 0.
    fn interpolate(&self, from: RangePoint, to: RangePoint, time_ms: i64) -> f64 {
        let from_ms = from.times.timestamp_ms;
        let to_ms = to.times.timestamp_ms;
        let y1 = if self.is_counter && to.value < from.value {
            0.0
        } else {
            from.value
        };
        y1 + (to.value - y1) * (time_ms - from_ms) as f64 / (to_ms - from_ms) as f64
    }
}

/// Returns a counter at its start timestamp.
fn started(start_ms: i64) -> RangePoint {
    RangePoint {
        times: SampleTimes {
            timestamp_ms: start_ms,
            start_ms,
        },
        value: 0.0,
    }
}

/// Returns the times of a value at the end of a range that has the start timestamp of a sample. A
/// start timestamp after the end is unknown there.
fn start_known_at(timestamp_ms: i64, SampleTimes { start_ms, .. }: SampleTimes) -> SampleTimes {
    SampleTimes {
        timestamp_ms,
        start_ms: if start_ms > timestamp_ms { 0 } else { start_ms },
    }
}

#[cfg(test)]
mod tests {
    use super::super::window::on_window;
    use super::*;

    fn increase(window: &Window<'_>, _: &[f64]) -> Option<f64> {
        extrapolated(window, INCREASE)
    }

    fn check(kernel: super::super::RangeKernel, values: &[f64], expect: Option<f64>) {
        assert_eq!(
            on_window(10_000, values, |window| kernel(window, &[])),
            expect
        );
    }

    #[test]
    fn counters_are_extrapolated_to_the_start() {
        check(increase, &[10.0, 20.0, 30.0], Some(30.0));
        check(
            |window, _| extrapolated(window, RATE),
            &[10.0, 20.0, 30.0],
            Some(1.0),
        );
        // The counter was 0 five seconds before the first sample.
        check(increase, &[5.0, 15.0, 25.0], Some(25.0));
    }

    #[test]
    fn only_counters_restart_at_zero_after_a_reset() {
        // The change is 2, plus 10 before the reset, in 20 s. Extrapolated by 10 s: 12 * 1.5.
        check(increase, &[10.0, 2.0, 12.0], Some(18.0));
        check(
            |window, _| extrapolated(window, DELTA),
            &[10.0, 2.0, 12.0],
            Some(3.0),
        );
        check(irate, &[10.0, 2.0], Some(0.2));
        check(idelta, &[10.0, 2.0], Some(-8.0));
    }

    #[test]
    fn one_sample_has_no_rate() {
        for kernel in [increase, irate, idelta] {
            check(kernel, &[1.0], None);
        }
    }

    /// Checks the increase over the range (0, 10 s] of samples at -5 s, 5 s and 15 s with the
    /// values 0, 10 and 20.
    fn check_extended(starts_ms: [i64; 3], anchored: f64, smoothed: f64) {
        let window = Window {
            timestamps_ms: &[-5000, 5000, 15_000],
            values: &[0.0, 10.0, 20.0],
            starts_ms: &starts_ms,
            histograms: &[],
            first_ms: -60_000,
            start_ms: 0,
            end_ms: 10_000,
            eval_ms: 10_000,
            range_seconds: 10.0,
            may_decrease: true,
        };
        let until_end = Window {
            timestamps_ms: &window.timestamps_ms[..2],
            values: &window.values[..2],
            ..window
        };
        assert_eq!(
            extended(&until_end, INCREASE, false),
            Some(anchored),
            "{starts_ms:?}"
        );
        assert_eq!(
            extended(&window, INCREASE, true),
            Some(smoothed),
            "{starts_ms:?}"
        );
        assert_eq!(extended(&window, DELTA, true), Some(10.0), "{starts_ms:?}");
    }

    #[test]
    fn smoothed_ends_are_interpolated_between_samples_and_start_timestamps() {
        check_extended([0, 0, 0], 10.0, 10.0);
        // The counter is 0 at 1 s, so it increases to 10 at 5 s and to 15 at 10 s.
        check_extended([0, 1000, 1000], 10.0, 15.0);
        // It is 0 again at 6 s and is 20 * 4 / 9 at 10 s.
        check_extended([0, 0, 6000], 10.0, 20.0 * 4000.0 / 9000.0 - 5.0 + 10.0);
    }
}
