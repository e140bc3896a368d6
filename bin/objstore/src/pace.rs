//! The bandwidth of a client, and the end of its work.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use parking_lot::{Condvar, Mutex};

/// A request to end the work of a thread.
#[derive(Debug, Default)]
pub struct Stop {
    is_stopped: Mutex<bool>,
    changed: Condvar,
}

/// Spreads requests over time, so that they stay below a bandwidth.
#[derive(Debug)]
pub struct Pace {
    stop: Arc<Stop>,
    /// 0 for no limit.
    bytes_per_second: u64,
    /// When the bytes so far have been sent at that bandwidth.
    free_at: Instant,
}

impl Stop {
    /// Requests the end.
    pub fn stop(&self) {
        *self.is_stopped.lock() = true;
        self.changed.notify_all();
    }

    /// Waits for a duration.
    ///
    /// # Errors
    /// If the work is to end, also during the wait.
    pub fn wait(&self, duration: Duration) -> Result<()> {
        let mut is_stopped = self.is_stopped.lock();
        let _timeout =
            self.changed
                .wait_while_for(&mut is_stopped, |is_stopped| !*is_stopped, duration);
        if *is_stopped {
            bail!("the process is stopping")
        } else {
            Ok(())
        }
    }
}

impl Pace {
    pub(crate) fn new(stop: Arc<Stop>, bytes_per_second: u64) -> Self {
        Self {
            stop,
            bytes_per_second,
            free_at: Instant::now(),
        }
    }

    /// Returns a pace without a limit, for a tool, which only a signal ends.
    pub fn unlimited() -> Self {
        Self::new(Arc::default(), 0)
    }

    pub(super) fn stop(&self) -> &Arc<Stop> {
        &self.stop
    }

    /// Waits until the bytes before have been sent, and adds `size` bytes.
    ///
    /// # Errors
    /// If the work is to end.
    pub(super) fn wait_for(&mut self, size: u64) -> Result<()> {
        if self.bytes_per_second == 0 {
            return self.check();
        }
        let now = Instant::now();
        self.stop
            .wait(self.free_at.saturating_duration_since(now))?;
        self.free_at = self.free_at.max(now)
            + Duration::from_secs_f64(size as f64 / self.bytes_per_second as f64);
        Ok(())
    }

    /// # Errors
    /// If the work is to end.
    pub(super) fn check(&self) -> Result<()> {
        self.stop.wait(Duration::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_spread_over_time_until_the_work_ends() {
        let stop = Arc::new(Stop::default());
        let mut pace = Pace::new(Arc::clone(&stop), 1000);
        let started = Instant::now();
        (0..3).for_each(|_| pace.wait_for(20).unwrap());
        assert!(
            started.elapsed() >= Duration::from_millis(40),
            "{:?}",
            started.elapsed()
        );
        stop.stop();
        assert!(pace.wait_for(1_000_000).is_err() && Pace::new(stop, 0).wait_for(1).is_err());
    }
}
