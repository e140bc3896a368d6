//! A manual clock for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::Clock;

/// A clock that returns the time that was set.
#[derive(Debug, Clone, Default)]
pub struct ManualClock {
    now_ms: Arc<AtomicI64>,
}

impl ManualClock {
    /// Creates a clock at `now_ms`.
    #[must_use]
    pub fn at(now_ms: i64) -> Self {
        Self { now_ms: Arc::new(AtomicI64::new(now_ms)) }
    }

    /// Sets the time of this clock and all its clones.
    pub fn set(&self, now_ms: i64) {
        self.now_ms.store(now_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::SeqCst)
    }
}
