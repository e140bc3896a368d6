//! `rate`, `increase` and `delta` for windows that slide along one series.
//!
//! Steps have even intervals, and so do most samples. The times of a window are then the shifted
//! times of the previous window, and results that depend only on these times are cached. Cached
//! values are computed with the operations of [`super::rate`], so results have the same bits.

use super::rate::{Extrapolation, RateKind, add_resets, extrapolated};
use super::window::Window;

/// Computes one of these functions for the windows of one or more series.
#[derive(Debug)]
pub(crate) struct SlidingRate {
    kind: RateKind,
    range_seconds: f64,
    cached: Option<Cached>,
}

/// Cached values that depend only on the times of a window.
#[derive(Debug)]
struct Cached {
    times: RelativeTimes,
    extrapolation: Extrapolation,
    /// The factor if the value of a counter does not limit the extrapolation.
    factor: f64,
}

/// The times of the samples in a window, in milliseconds, relative to each other and to the ends of
/// the range.
#[derive(Debug, PartialEq)]
struct RelativeTimes {
    n_intervals: usize,
    sampled_ms: i64,
    to_start_ms: i64,
    to_end_ms: i64,
}

impl SlidingRate {
    /// Creates a state without cached values.
    pub(crate) fn new(kind: RateKind, range_seconds: f64) -> Self {
        Self {
            kind,
            range_seconds,
            cached: None,
        }
    }

    /// Returns the result for a window that has floats and no histograms.
    #[inline]
    pub(crate) fn value(&mut self, window: &Window<'_>) -> Option<f64> {
        let n_intervals = window.values.len() - 1;
        if n_intervals == 0 || !window.starts_ms.is_empty() {
            return extrapolated(window, self.kind);
        }
        let (first_ms, last_ms) = window.ends_ms();
        let times = RelativeTimes {
            n_intervals,
            sampled_ms: last_ms - first_ms,
            to_start_ms: first_ms - window.start_ms,
            to_end_ms: window.end_ms - last_ms,
        };
        let Self {
            kind,
            range_seconds,
            ..
        } = *self;
        let cached = match &mut self.cached {
            Some(cached) if cached.times == times => cached,
            cached => cached.insert(Cached::new(times, kind, range_seconds)),
        };
        let (first_value, last_value) = window.end_values();
        let mut change = last_value - first_value;
        if kind.is_counter {
            change = add_resets(change, window);
        }
        let to_start = cached
            .extrapolation
            .limited_to_start(kind, first_value, change);
        // Fast path: the counter is not near 0, so its value does not limit the extrapolation.
        let factor = if cached.extrapolation.is_full_start(to_start) {
            cached.factor
        } else {
            cached.extrapolation.factor(kind, range_seconds, to_start)
        };
        Some(change * factor)
    }
}

impl Cached {
    fn new(times: RelativeTimes, kind: RateKind, range_seconds: f64) -> Self {
        let RelativeTimes {
            n_intervals,
            sampled_ms,
            to_start_ms,
            to_end_ms,
        } = times;
        let extrapolation = Extrapolation::new(sampled_ms, to_start_ms, to_end_ms, n_intervals);
        // A change of 0 does not limit the extrapolation.
        let factor = extrapolation.factor(
            kind,
            range_seconds,
            extrapolation.limited_to_start(kind, 0.0, 0.0),
        );
        Self {
            times,
            extrapolation,
            factor,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rate::{DELTA, INCREASE, RATE};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn cached_factors_give_the_same_bits(
            samples in proptest::collection::vec((prop_oneof![8 => Just(15_000_i64), 1 => 1..60_000_i64],
                prop_oneof![8 => 0.0..3.0_f64, 1 => -9.0..-1.0_f64, 1 => Just(f64::NAN), 1 => Just(0.0), 1 => Just(1e300)]), 1..60),
            step_ms in prop_oneof![Just(15_000_i64), Just(30_000), 1..50_000_i64],
            range_ms in 1..200_000_i64,
        ) {
            let mut timestamps_ms = vec![0];
            let mut values = vec![5.0];
            for (distance_ms, growth) in samples {
                timestamps_ms.push(timestamps_ms[timestamps_ms.len() - 1] + distance_ms);
                values.push(values[values.len() - 1] + growth);
            }
            let range_seconds = range_ms as f64 / 1000.0;
            let last_ms = timestamps_ms[timestamps_ms.len() - 1];
            for kind in [RATE, INCREASE, DELTA] {
                let mut sliding = SlidingRate::new(kind, range_seconds);
                for end_ms in (0..last_ms + range_ms).step_by(step_ms as usize) {
                    let from = timestamps_ms.partition_point(|&t| t <= end_ms - range_ms);
                    let to = timestamps_ms.partition_point(|&t| t <= end_ms);
                    if from == to {
                        continue;
                    }
                    let values = &values[from..to];
                    let window = Window {
                        timestamps_ms: &timestamps_ms[from..to],
                        values,
                        starts_ms: &[],
                        histograms: &[],
                        first_ms: end_ms - range_ms,
                        start_ms: end_ms - range_ms,
                        end_ms,
                        eval_ms: end_ms,
                        range_seconds,
                        may_decrease: values.windows(2).any(|pair| pair[1] < pair[0]),
                    };
                    let alone = extrapolated(&Window { may_decrease: true, ..window }, kind);
                    prop_assert_eq!(sliding.value(&window).map(f64::to_bits), alone.map(f64::to_bits), "{:?}", window);
                }
            }
        }
    }
}
