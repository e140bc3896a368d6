//! Quantiles of recent durations, in constant memory.

use std::time::Duration;

use crate::time::Time;

/// Number of bounds. They grow by a tenth, from 10 ms to more than five minutes.
const BUCKETS: usize = 110;
const FIRST_BOUND_MS: f64 = 10.0;
const GROWTH: f64 = 1.1;
/// Durations are forgotten after one to two windows.
const WINDOW: Duration = Duration::from_secs(300);

/// Weights of durations in exponential buckets, over the last one to two windows.
#[derive(Debug, Clone)]
pub(super) struct Quantiles {
    current: [u64; BUCKETS],
    previous: [u64; BUCKETS],
    since: Time,
}

impl Quantiles {
    pub(super) fn new(now: Time) -> Self {
        Self {
            current: [0; BUCKETS],
            previous: [0; BUCKETS],
            since: now,
        }
    }

    /// Adds a duration with a weight.
    pub(super) fn add(&mut self, now: Time, duration: Duration, weight: u64) {
        if now.since(self.since) > WINDOW {
            self.previous = self.current;
            self.current = [0; BUCKETS];
            self.since = now;
        }
        self.current[bucket(duration)] += weight;
    }

    /// Returns the `q`-quantile, which is at most a tenth too long, or `None` if nothing was added.
    pub(super) fn get(&self, q: f64) -> Option<Duration> {
        let weight = |i: usize| self.current[i] + self.previous[i];
        let total: u64 = (0..BUCKETS).map(weight).sum();
        let rank = (total as f64 * q).ceil() as u64;
        let mut sum = 0;
        let found = (0..BUCKETS).find(|&i| {
            sum += weight(i);
            sum >= rank && sum > 0
        });
        found.map(|i| Duration::from_secs_f64(FIRST_BOUND_MS * GROWTH.powi(i as i32) / 1000.0))
    }
}

fn bucket(duration: Duration) -> usize {
    let ratio = duration.as_secs_f64() * 1000.0 / FIRST_BOUND_MS;
    if ratio <= 1.0 {
        0
    } else {
        (ratio.ln() / GROWTH.ln()).ceil().min(BUCKETS as f64 - 1.0) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_at_most_a_tenth_too_long_and_forget() {
        let at = |seconds| Time::from_seconds(seconds);
        let mut lags = Quantiles::new(at(0));
        assert_eq!(lags.get(0.99), None);
        (0..98).for_each(|_| lags.add(at(1), Duration::from_millis(500), 1));
        (0..2).for_each(|_| lags.add(at(1), Duration::from_secs(20), 1));
        let near = |q: Duration, expect: f64| {
            assert!((expect..=expect * 1.1).contains(&q.as_secs_f64()), "{q:?}")
        };
        near(lags.get(0.5).unwrap(), 0.5);
        near(lags.get(0.99).unwrap(), 20.0);
        lags.add(at(302), Duration::from_secs(1), 1);
        near(lags.get(0.99).unwrap(), 20.0);
        lags.add(at(603), Duration::from_secs(1), 1);
        near(lags.get(0.99).unwrap(), 1.0);
        lags.add(at(604), Duration::from_secs(9999), 1000);
        near(lags.get(1.0).unwrap(), 320.0);
    }
}
