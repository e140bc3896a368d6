//! [`SeriesSketch`]: which series a sender sends, for the comparison of senders, and how many.
//!
//! Two senders of series with the same labels store each sample twice, unless they are an HA pair. The
//! sketch of a sender has the series with the smallest hashes of the requests of the last minutes,
//! so the sketches of two senders of the same series have the same hashes.
//!
//! Source: E. Cohen and H. Kaplan, *Summarizing data using bottom-k sketches*, 2007.

use varve_ingest::{SeriesHash, SeriesSample};

/// Maximum number of series of a sketch.
const LEN_MAX: usize = 64;
/// Time after its last sample at which a series is removed: more than any common scrape interval.
const SILENT_MAX_MS: i64 = 600_000;
/// Minimum number of equal series from which two senders are compared: fewer may be a coincidence.
const EQUAL_MIN: usize = 8;
/// Minimum share of equal series from which two senders send the same series.
const SHARE_MIN: f64 = 0.5;

/// Series of a sender with the smallest hashes.
#[derive(Debug, Clone, Default)]
pub(super) struct SeriesSketch {
    /// Ascending, with the time of the last request.
    series: Vec<(SeriesHash, i64)>,
    swept_ms: i64,
    /// The largest hash before silent series were removed from a full sketch: up to it, all series
    /// are known until the next removal. Larger ones come with the next requests.
    max_before_sweep: Option<SeriesHash>,
}

impl SeriesSketch {
    /// Adds the series of a request.
    pub(super) fn add(&mut self, now_ms: i64, sample: &SeriesSample) {
        if now_ms - self.swept_ms > SILENT_MAX_MS / 10 {
            self.max_before_sweep = self.max();
            self.series
                .retain(|(_, last_ms)| now_ms - last_ms <= SILENT_MAX_MS);
            self.swept_ms = now_ms;
        }
        for hash in sample.iter() {
            match self.series.binary_search_by_key(&hash, |(hash, _)| *hash) {
                Ok(idx) => self.series[idx].1 = now_ms,
                // The sample ascends, so nothing after this hash has a place either.
                Err(LEN_MAX) => break,
                Err(idx) => {
                    self.series.insert(idx, (hash, now_ms));
                    self.series.truncate(LEN_MAX);
                }
            }
        }
    }

    /// Returns the number of series with a sample in the last minutes: below [`LEN_MAX`] the exact one,
    /// else an estimate with a standard error of `1 / sqrt(LEN_MAX - 2)`.
    pub(super) fn n_series(&self, now_ms: i64) -> u64 {
        let max = self.max().or(self.max_before_sweep);
        let n_known = self.up_to(max, now_ms).len();
        match max {
            None => n_known as u64,
            // The largest hash sets the share, so it does not count.
            Some(max) => (n_known.saturating_sub(1) as f64 / max.share()).round() as u64,
        }
    }

    /// Iterates over the series.
    pub(super) fn iter(&self) -> impl Iterator<Item = SeriesHash> {
        self.series.iter().map(|(hash, _)| *hash)
    }

    /// Returns the share of this sender's series that the other sends, too. `None` if fewer than
    /// [`EQUAL_MIN`] series, or less than [`SHARE_MIN`] of them, are equal.
    pub(super) fn share_of(&self, other: &Self, now_ms: i64) -> Option<f64> {
        let max = self.max().into_iter().chain(other.max()).min();
        let own = self.up_to(max, now_ms);
        let others = other.up_to(max, now_ms);
        let equal = own.iter().filter(|hash| others.binary_search(hash).is_ok());
        let n_equal = equal.count();
        let share = n_equal as f64 / own.len().max(1) as f64;
        (n_equal >= EQUAL_MIN && share >= SHARE_MIN).then_some(share)
    }

    /// Returns the series with a sample in the last minutes and a hash of at most `max`, ascending.
    fn up_to(&self, max: Option<SeriesHash>, now_ms: i64) -> Vec<SeriesHash> {
        self.series
            .iter()
            .filter(|(_, last_ms)| now_ms - last_ms <= SILENT_MAX_MS)
            .map(|(hash, _)| *hash)
            .filter(|hash| max.is_none_or(|max| *hash <= max))
            .collect()
    }

    /// Returns the largest hash up to which all series are known. `None`: all series are known. Right
    /// after silent series were removed from a full sketch, series with larger hashes may be unknown
    /// until the next requests.
    fn max(&self) -> Option<SeriesHash> {
        if self.series.len() < LEN_MAX {
            return None;
        }
        self.series.last().map(|(hash, _)| *hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spreads small numbers over all hashes.
    fn hash(number: u64) -> SeriesHash {
        SeriesHash::for_tests(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn sample(numbers: std::ops::Range<u64>) -> SeriesSample {
        let mut hashes: Vec<_> = numbers.map(hash).collect();
        hashes.sort_unstable();
        hashes.into_iter().collect()
    }

    fn sketch(numbers: std::ops::Range<u64>) -> SeriesSketch {
        let mut sketch = SeriesSketch::default();
        for start in numbers.clone().step_by(100) {
            sketch.add(0, &sample(start..numbers.end.min(start + 100)));
        }
        sketch
    }

    #[test]
    fn senders_of_the_same_series_are_found() {
        let share =
            |a: std::ops::Range<u64>, b: std::ops::Range<u64>| sketch(a).share_of(&sketch(b), 0);
        assert_eq!(share(0..10_000, 0..10_000), Some(1.0));
        assert_eq!(share(0..20, 0..20), Some(1.0));
        assert_eq!(share(0..5, 0..5), None, "few series");
        assert_eq!(share(0..10_000, 10_000..20_000), None);
        assert_eq!(share(0..10_000, 8_000..18_000), None, "a fifth");
        // A small sender whose series a large one sends, too, but not the other way around.
        assert_eq!(share(0..10_000, 0..30_000), Some(1.0));
        assert_eq!(share(0..30_000, 0..10_000), None);
        let most = share(0..10_000, 2_000..10_000).unwrap();
        assert!((0.6..0.95).contains(&most), "{most}");
    }

    #[test]
    fn the_number_of_series_is_estimated() {
        assert_eq!(SeriesSketch::default().n_series(0), 0);
        assert_eq!(sketch(0..63).n_series(0), 63, "exact");
        for n in [100, 1_000, 10_000, 100_000] {
            let estimate = sketch(0..n).n_series(0);
            assert!(
                estimate.abs_diff(n) < n * 3 / 8,
                "{n} series, estimated {estimate}"
            );
        }
        let mut churning = sketch(0..10_000);
        assert_eq!(churning.n_series(SILENT_MAX_MS + 1), 0);
        // A fifth is silent. The first request after their removal does not have all others.
        churning.add(SILENT_MAX_MS / 2, &sample(2_000..10_000));
        let before = churning.n_series(SILENT_MAX_MS + 1);
        assert!((5_000..11_000).contains(&before), "{before}");
        churning.add(SILENT_MAX_MS + 1, &sample(2_000..2_010));
        assert!(churning.series.len() < LEN_MAX);
        assert!(churning.n_series(SILENT_MAX_MS + 1).abs_diff(before) < before / 20);
    }

    #[test]
    fn silent_series_are_removed_and_the_size_is_bounded() {
        let mut sketch = sketch(0..100_000);
        assert_eq!(sketch.series.len(), LEN_MAX);
        let other = sketch.clone();
        assert!(sketch.share_of(&other, SILENT_MAX_MS).is_some());
        assert!(sketch.share_of(&other, SILENT_MAX_MS + 1).is_none());
        sketch.add(SILENT_MAX_MS + 1, &sample(0..10));
        assert_eq!(sketch.series.len(), 10);
    }
}
