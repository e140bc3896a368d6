//! Limits the rate of background writes.

use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Limits the average rate in bytes per second.
#[derive(Debug)]
pub(crate) struct Throttle {
    bytes_per_second: u64,
    state: Mutex<Spent>,
}

#[derive(Debug)]
struct Spent {
    since: Instant,
    /// Size of the current file at the last call.
    size: u64,
    /// Bytes written in this period.
    bytes: u64,
}

impl Throttle {
    /// Creates a limit of `bytes_per_second`; 0 is unlimited.
    pub(crate) fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second, state: Mutex::new(Spent { since: Instant::now(), size: 0, bytes: 0 }) }
    }

    /// Records that the current file has `size` bytes now, and sleeps if the rate is exceeded.
    pub(crate) fn spend(&self, size: u64) {
        if self.bytes_per_second == 0 {
            return;
        }
        let wait = {
            let mut spent = self.state.lock();
            // A smaller size means a new file.
            spent.bytes += if size >= spent.size { size - spent.size } else { size };
            spent.size = size;
            let due = Duration::from_secs_f64(spent.bytes as f64 / self.bytes_per_second as f64);
            let elapsed = spent.since.elapsed();
            if elapsed > PERIOD {
                *spent = Spent { since: Instant::now(), size, bytes: 0 };
            }
            due.saturating_sub(elapsed)
        };
        if wait > Duration::from_millis(10) {
            thread::sleep(wait.min(PERIOD));
        }
    }
}

/// Unused bytes of a period are not carried over to the next one.
const PERIOD: Duration = Duration::from_secs(1);
