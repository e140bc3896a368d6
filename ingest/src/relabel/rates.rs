//! Samples per second of each rule, between two looks at its counts.

use std::time::Duration;

/// The least time that a rate is taken over, but for the first.
const INTERVAL_MIN: Duration = Duration::from_secs(10);

/// Earlier looks.
#[derive(Debug, Default)]
pub(super) struct Rates {
    before: Look,
    last: Look,
}

/// What the counts were, and when.
#[derive(Debug, Clone, Default)]
struct Look {
    at: Duration,
    counts: Vec<u64>,
}

impl Rates {
    /// Returns the rates since the look before, which is at least [`INTERVAL_MIN`] ago, or since the start. `now` is the time
    /// since the start.
    pub(super) fn look(&mut self, now: Duration, counts: Vec<u64>) -> Vec<f64> {
        if now.saturating_sub(self.last.at) >= INTERVAL_MIN {
            self.before = std::mem::replace(&mut self.last, Look { at: now, counts: counts.clone() });
        }
        let seconds = now.saturating_sub(self.before.at).as_secs_f64();
        let before = self.before.counts.iter().copied().chain(std::iter::repeat(0));
        let rate = |(count, before): (u64, u64)| {
            if seconds > 0.0 { count.saturating_sub(before) as f64 / seconds } else { 0.0 }
        };
        counts.into_iter().zip(before).map(rate).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_taken_over_ten_seconds_at_least() {
        let mut rates = Rates::default();
        for (now_s, counts, expect) in [
            (0, [0, 5], [0.0, 0.0]),
            (5, [10, 0], [2.0, 0.0]),
            (10, [20, 10], [2.0, 1.0]),
            // Since 10 s, as the look at 20 s is the last one from then on.
            (20, [120, 10], [10.0, 0.0]),
            (25, [135, 10], [(135.0 - 20.0) / 15.0, 0.0]),
            (30, [220, 10], [10.0, 0.0]),
        ] {
            assert_eq!(rates.look(Duration::from_secs(now_s), counts.to_vec()), expect, "at {now_s} s");
        }
    }
}
