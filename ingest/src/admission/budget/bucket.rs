//! A rate, kept by a bucket of tokens.
//!
//! The bucket holds a second's worth. Who finds a whole token in it may take as many as it needs and leaves a debt, which
//! the next one waits for: a request of any size goes through at some time, and on average the rate is kept.

use std::time::Duration;

/// One token in the unit that balances are kept in: a rate in tokens a second times microseconds gives exact ones.
const TOKEN: i128 = 1_000_000;

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Bucket {
    rate: u64,
    balance: i128,
    filled_at: Duration,
}

impl Bucket {
    /// Makes a full bucket for `rate` tokens a second.
    pub(super) fn new(rate: u64, now: Duration) -> Self {
        Self { rate, balance: i128::from(rate) * TOKEN, filled_at: now }
    }

    /// Returns how long it takes until there is a whole token; nothing if there is one.
    pub(super) fn wait(&mut self, now: Duration) -> Duration {
        self.fill(now);
        let missing = (TOKEN - self.balance).max(0);
        let micros = missing.div_euclid(i128::from(self.rate)) + i128::from(missing % i128::from(self.rate) != 0);
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// Takes tokens, whether they are there or not.
    pub(super) fn take(&mut self, n: u64) {
        self.balance -= i128::from(n) * TOKEN;
    }

    fn fill(&mut self, now: Duration) {
        let micros = now.saturating_sub(self.filled_at).as_micros();
        let full = i128::from(self.rate) * TOKEN;
        let gained = i128::try_from(micros).unwrap_or(i128::MAX).saturating_mul(i128::from(self.rate));
        self.balance = self.balance.saturating_add(gained).min(full);
        self.filled_at = self.filled_at.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_second_is_there_at_once_and_debts_are_paid_off() {
        let mut bucket = Bucket::new(10, SECOND);
        bucket.take(9);
        assert_eq!(bucket.wait(SECOND), Duration::ZERO);
        bucket.take(21);
        // Twenty are owed, and one must be there.
        assert_eq!(bucket.wait(SECOND), Duration::from_millis(2_100));
        assert_eq!(bucket.wait(SECOND * 2), Duration::from_millis(1_100));
        // Time that goes back is no time.
        assert_eq!(bucket.wait(SECOND), Duration::from_millis(1_100));
        assert_eq!(bucket.wait(Duration::from_millis(3_100)), Duration::ZERO);
        bucket.take(1);
        assert!(bucket.wait(Duration::from_millis(3_100)) > Duration::ZERO);
    }

    #[test]
    fn no_more_than_a_second_is_kept() {
        let mut bucket = Bucket::new(3, Duration::ZERO);
        assert_eq!(bucket.wait(SECOND * 1000), Duration::ZERO);
        bucket.take(3);
        assert_eq!(bucket.wait(SECOND * 1000), Duration::from_micros(333_334));
    }
}
