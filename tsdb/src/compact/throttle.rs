//! Keeping background writes from taking the disk for themselves.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// Allows so many bytes a second on average.
#[derive(Debug)]
pub(crate) struct Throttle {
    bytes_per_second: u64,
    state: Mutex<Spent>,
}

#[derive(Debug)]
struct Spent {
    since: Instant,
    /// Bytes that the current file had at the last call.
    size: u64,
    /// Bytes of this second.
    bytes: u64,
}

impl Throttle {
    /// Allows `bytes_per_second`; 0 for no bound.
    pub(crate) fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second, state: Mutex::new(Spent { since: Instant::now(), size: 0, bytes: 0 }) }
    }

    /// Says that the file being written has `size` bytes now, and sleeps if that is more than is allowed.
    pub(crate) fn spend(&self, size: u64) {
        if self.bytes_per_second == 0 {
            return;
        }
        let wait = {
            let mut spent = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            // A smaller size means that a new file was begun.
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

/// What was not used in a period is not saved up for the next one.
const PERIOD: Duration = Duration::from_secs(1);
