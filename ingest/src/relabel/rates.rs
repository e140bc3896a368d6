//! Samples per second of each rule, between two reads of its counts.

use std::time::Duration;

/// Minimum interval that a rate covers, except for the first rate. It contains at least one request
/// of a sender that sends once a minute.
const INTERVAL_MIN: Duration = Duration::from_secs(120);

/// The last two reads that are at least [`INTERVAL_MIN`] apart.
#[derive(Debug, Default)]
pub(super) struct Rates {
    previous: Read,
    last: Read,
}

/// The counts at one time.
#[derive(Debug, Clone, Default)]
struct Read {
    at: Duration,
    counts: Vec<u64>,
}

impl Rates {
    /// Returns the rates since an earlier read at least [`INTERVAL_MIN`] ago, or since the start.
    /// `now` is the time since the start.
    pub(super) fn read(&mut self, now: Duration, counts: Vec<u64>) -> Vec<f64> {
        if now.saturating_sub(self.last.at) >= INTERVAL_MIN {
            self.previous = std::mem::replace(
                &mut self.last,
                Read {
                    at: now,
                    counts: counts.clone(),
                },
            );
        }
        let seconds = now.saturating_sub(self.previous.at).as_secs_f64();
        if seconds <= 0.0 {
            return vec![0.0; counts.len()];
        }
        let mut rates = Vec::with_capacity(counts.len());
        for (idx, count) in counts.into_iter().enumerate() {
            let previous = self.previous.counts.get(idx).copied().unwrap_or(0);
            rates.push(count.saturating_sub(previous) as f64 / seconds);
        }
        rates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_covers_at_least_two_minutes() {
        let mut rates = Rates::default();
        for (now_s, counts, expect) in [
            (0, [0, 5], [0.0, 0.0]),
            (60, [120, 0], [2.0, 0.0]),
            (120, [240, 120], [2.0, 1.0]),
            // The rate since 120 s. The read at 240 s becomes the last one.
            (240, [1440, 120], [10.0, 0.0]),
            (300, [1500, 120], [(1500.0 - 240.0) / 180.0, 0.0]),
            (360, [2640, 120], [10.0, 0.0]),
        ] {
            assert_eq!(
                rates.read(Duration::from_secs(now_s), counts.to_vec()),
                expect,
                "at {now_s} s"
            );
        }
    }

    #[test]
    fn a_rule_of_a_sender_that_sends_once_a_minute_always_has_a_rate() {
        let mut rates = Rates::default();
        for now_s in (61..3600).step_by(15) {
            let rate = rates.read(Duration::from_secs(now_s), vec![now_s / 60 * 600])[0];
            assert!((5.0..20.0).contains(&rate), "{rate} at {now_s} s");
        }
    }
}
