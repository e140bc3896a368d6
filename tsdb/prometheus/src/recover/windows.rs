//! Time windows of blocks.

use std::collections::BTreeSet;

use varve_context::Limit;
use varve_model::TimeRange;
use varve_tsdb::{Error, Result};

/// Milliseconds of a window. Prometheus' own blocks begin at multiples of it.
pub const WINDOW_MS: i64 = 2 * 60 * 60 * 1000;
/// Maximum number of blocks of a recovery or an import: more than two years. More than that means
/// wrong timestamps.
pub const WINDOWS_MAX: usize = 10_000;

/// The windows that have samples, by number since the epoch.
#[derive(Debug, Default)]
pub(super) struct Windows {
    numbers: BTreeSet<i64>,
    /// Number of windows of a time range that has too many.
    n_too_many: Option<u64>,
}

/// A set of windows in 32 bits, one for every 32nd window: may report windows that were not added,
/// but never misses one.
#[derive(Debug, Clone, Copy)]
pub(super) struct WindowSet(u32);

impl WindowSet {
    pub(super) const EMPTY: Self = Self(0);

    /// Returns `true` if a window may be in the set.
    pub(super) fn may_have_samples(self, window: i64) -> bool {
        self.0 & Self::bit(window) != 0
    }

    fn bit(window: i64) -> u32 {
        1 << window.rem_euclid(i64::from(u32::BITS))
    }
}

/// Returns the window of a timestamp.
#[inline]
pub(super) fn window_of(timestamp_ms: i64) -> i64 {
    timestamp_ms.div_euclid(WINDOW_MS)
}

/// Returns the time range of a window, given by its number since the epoch.
#[must_use]
pub fn range_of(window: i64) -> TimeRange {
    let start_ms = window.saturating_mul(WINDOW_MS);
    let end_ms = window.saturating_add(1).saturating_mul(WINDOW_MS);
    TimeRange {
        start_ms,
        end_ms: if end_ms == i64::MAX {
            end_ms
        } else {
            end_ms - 1
        },
    }
}

impl Windows {
    /// Adds the windows of a time range, also to the set of its series.
    pub(super) fn add(&mut self, min_ms: i64, max_ms: i64, series: &mut WindowSet) {
        let first = window_of(min_ms);
        let last = window_of(max_ms);
        if last - first >= WINDOWS_MAX as i64 {
            self.n_too_many = Some(last.abs_diff(first));
            return;
        }
        for window in first..=last {
            series.0 |= WindowSet::bit(window);
            if self.numbers.len() <= WINDOWS_MAX {
                self.numbers.insert(window);
            }
        }
    }

    /// Adds the windows of `other`.
    pub(super) fn append(&mut self, mut other: Self) {
        self.numbers.append(&mut other.numbers);
        self.n_too_many = self.n_too_many.max(other.n_too_many);
    }

    /// Returns the windows in ascending order.
    pub(super) fn sorted(self) -> Result<BTreeSet<i64>> {
        let n_windows = self.n_too_many.unwrap_or(self.numbers.len() as u64);
        if n_windows > WINDOWS_MAX as u64 || self.n_too_many.is_some() {
            let what = "two-hour blocks needed for the samples; check for wrong timestamps";
            return Err(Error::Limit {
                what: Limit::Other(what),
                used: n_windows,
                limit: WINDOWS_MAX as u64,
            });
        }
        Ok(self.numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(times: &[(i64, i64)]) -> (Result<Vec<i64>>, WindowSet) {
        let mut windows = Windows::default();
        let mut series = WindowSet::EMPTY;
        for &(min, max) in times.iter() {
            windows.add(min * WINDOW_MS, max * WINDOW_MS, &mut series);
        }
        (
            windows
                .sorted()
                .map(|windows| windows.into_iter().collect()),
            series,
        )
    }

    #[test]
    fn windows_are_counted_once_and_tracked_per_series() {
        let (found, series) = windows(&[(3, 5), (5, 5), (-1, -1), (36, 36)]);
        assert_eq!(found.unwrap(), [-1, 3, 4, 5, 36]);
        for (window, expect) in [
            (-1, true),
            (0, false),
            (3, true),
            (4, true),
            (6, false),
            (31, true),
            (36, true),
        ] {
            assert_eq!(series.may_have_samples(window), expect, "{window}");
        }
    }

    #[test]
    fn too_many_windows_are_rejected() {
        let most = WINDOWS_MAX as i64;
        assert_eq!(windows(&[(0, most - 1)]).0.unwrap().len(), WINDOWS_MAX);
        for times in [
            &[(0, most)][..],
            &[(0, most - 1), (most, most)],
            &[(i64::MIN / WINDOW_MS, i64::MAX / WINDOW_MS)],
        ] {
            assert!(
                matches!(windows(times).0, Err(Error::Limit { .. })),
                "{times:?}"
            );
        }
    }
}
