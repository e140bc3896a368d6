//! Rates: token buckets that bound them, and a meter of the recent rate.

use std::time::Duration;

use super::super::token_bucket::TokenBucket;

/// A rate: its bounds and its meter.
#[derive(Debug)]
pub(super) struct Rate {
    pub(super) guaranteed: Option<TokenBucket>,
    pub(super) maximum: Option<TokenBucket>,
    pub(super) meter: Meter,
}

/// Counts events and computes their recent rate.
#[derive(Debug, Default)]
pub(super) struct Meter {
    pub(super) n_total: u64,
    /// The number of the current interval.
    interval: u64,
    n_interval: u64,
    n_previous_interval: u64,
}

/// The empty bucket, and the time until it has a token.
pub(super) enum Empty {
    Team(Duration),
    Total(Duration),
}

impl Rate {
    pub(super) fn new(guaranteed: Option<u64>, maximum: Option<u64>, now: Duration) -> Self {
        Self {
            guaranteed: guaranteed.map(|rate| TokenBucket::new(rate, now)),
            maximum: maximum.map(|rate| TokenBucket::new(rate, now)),
            meter: Meter::default(),
        }
    }

    pub(super) fn is_bounded(&self) -> bool {
        self.maximum.is_some()
    }

    /// Takes and counts `n`.
    pub(super) fn admit(&mut self, total: &mut Self, n: u64, now: Duration) -> Result<(), Empty> {
        self.take(total, n, now)?;
        self.meter.count(n, now);
        total.meter.count(n, now);
        Ok(())
    }

    /// Takes `n` tokens: under the guarantee while its bucket has a token, otherwise as a borrower
    /// if the total bucket has one.
    pub(super) fn take(&mut self, total: &mut Self, n: u64, now: Duration) -> Result<(), Empty> {
        let team_wait = wait_of(&mut self.maximum, now);
        if !team_wait.is_zero() {
            return Err(Empty::Team(team_wait));
        }
        let guarantee_wait = self.guaranteed.as_mut().map(|bucket| bucket.wait(now));
        let is_guaranteed = guarantee_wait.is_some_and(|wait| wait.is_zero());
        let total_wait = wait_of(&mut total.maximum, now);
        if !is_guaranteed && !total_wait.is_zero() {
            return Err(Empty::Total(
                guarantee_wait.map_or(total_wait, |wait| wait.min(total_wait)),
            ));
        }
        if is_guaranteed {
            take_from(&mut self.guaranteed, n);
        }
        take_from(&mut self.maximum, n);
        take_from(&mut total.maximum, n);
        Ok(())
    }
}

/// Returns the time until a bucket has a token.
fn wait_of(bucket: &mut Option<TokenBucket>, now: Duration) -> Duration {
    match bucket {
        Some(bucket) => bucket.wait(now),
        None => Duration::ZERO,
    }
}

pub(super) fn take_from(bucket: &mut Option<TokenBucket>, n: u64) {
    if let Some(bucket) = bucket {
        bucket.take(n);
    }
}

impl Meter {
    pub(super) fn count(&mut self, n: u64, now: Duration) {
        self.advance(now);
        self.n_total = self.n_total.saturating_add(n);
        self.n_interval = self.n_interval.saturating_add(n);
    }

    /// Returns the rate per second in the last complete interval.
    pub(super) fn per_second(&mut self, now: Duration) -> u64 {
        self.advance(now);
        self.n_previous_interval / INTERVAL_S
    }

    fn advance(&mut self, now: Duration) {
        let interval = now.as_secs() / INTERVAL_S;
        if interval > self.interval {
            self.n_previous_interval = if interval == self.interval + 1 {
                self.n_interval
            } else {
                0
            };
            self.interval = interval;
            self.n_interval = 0;
        }
    }
}

/// Length of an interval of [`Meter`] in seconds.
const INTERVAL_S: u64 = 10;
