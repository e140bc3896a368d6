//! A clock that stands still, for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::Clock;

/// A clock that shows what it was set to.
#[derive(Debug, Clone, Default)]
pub struct ManualClock {
    now_ms: Arc<AtomicI64>,
}

impl ManualClock {
    /// Makes a clock that shows `now_ms`.
    #[must_use]
    pub fn at(now_ms: i64) -> Self {
        Self { now_ms: Arc::new(AtomicI64::new(now_ms)) }
    }

    /// Sets the time, also of all clones.
    pub fn set(&self, now_ms: i64) {
        self.now_ms.store(now_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::SeqCst)
    }
}
