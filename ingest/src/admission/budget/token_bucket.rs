//! A token bucket.
//!
//! The bucket holds the tokens of one second. If it has at least one token, a request may take any
//! number of tokens and leave a debt, for which later requests wait. So a request of any size is
//! admitted, and the average rate is bounded.

use std::time::Duration;

/// One token in the unit of `balance`, tokens per second times microseconds, in which refills are
/// exact.
const TOKEN: i128 = 1_000_000;

/// See the module documentation.
#[derive(Debug, Clone)]
pub(super) struct TokenBucket {
    rate: u64,
    balance: i128,
    filled_at: Duration,
}

impl TokenBucket {
    /// Creates a full bucket of `rate` tokens per second.
    pub(super) fn new(rate: u64, now: Duration) -> Self {
        Self {
            rate,
            balance: i128::from(rate) * TOKEN,
            filled_at: now,
        }
    }

    /// Returns the time until the bucket has a whole token; zero if it has one.
    pub(super) fn wait(&mut self, now: Duration) -> Duration {
        self.fill(now);
        let missing = (TOKEN - self.balance).max(0);
        let micros = missing.div_euclid(i128::from(self.rate))
            + i128::from(missing % i128::from(self.rate) != 0);
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// Takes tokens. The balance may become negative.
    pub(super) fn take(&mut self, n: u64) {
        self.balance -= i128::from(n) * TOKEN;
    }

    fn fill(&mut self, now: Duration) {
        let micros = now.saturating_sub(self.filled_at).as_micros();
        let full = i128::from(self.rate) * TOKEN;
        let gained = i128::try_from(micros)
            .unwrap_or(i128::MAX)
            .saturating_mul(i128::from(self.rate));
        self.balance = self.balance.saturating_add(gained).min(full);
        self.filled_at = self.filled_at.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_full_bucket_holds_a_second_and_debts_are_refilled() {
        let mut bucket = TokenBucket::new(10, SECOND);
        bucket.take(9);
        assert_eq!(bucket.wait(SECOND), Duration::ZERO);
        bucket.take(21);
        // A debt of twenty, and a whole token.
        assert_eq!(bucket.wait(SECOND), Duration::from_millis(2_100));
        assert_eq!(bucket.wait(SECOND * 2), Duration::from_millis(1_100));
        // A clock that goes back adds nothing.
        assert_eq!(bucket.wait(SECOND), Duration::from_millis(1_100));
        assert_eq!(bucket.wait(Duration::from_millis(3_100)), Duration::ZERO);
        bucket.take(1);
        assert!(bucket.wait(Duration::from_millis(3_100)) > Duration::ZERO);
    }

    #[test]
    fn a_bucket_overflows_at_one_second() {
        let mut bucket = TokenBucket::new(3, Duration::ZERO);
        assert_eq!(bucket.wait(SECOND * 1000), Duration::ZERO);
        bucket.take(3);
        assert_eq!(bucket.wait(SECOND * 1000), Duration::from_micros(333_334));
    }
}
