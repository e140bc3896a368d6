//! How close the process is to the memory that it may take.
//!
//! Budgets say what requests may hold; what they do not know of (the allocator, other processes in the same cgroup, a figure
//! that is off) shows here. Above the mark work is refused before the kernel ends the process: queries at the mark, writes
//! half way between the mark and the limit, so that what is known goes on being taken in for as long as it can be.
//!
//! Used by the server: a thread looks a few times a second, requests ask what it saw.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::machine::Memory;

/// What was seen last.
#[derive(Debug)]
pub(crate) struct Pressure {
    memory: Memory,
    /// Bytes of the limit above which queries are refused, in percent; 100 and more: never.
    refuse_at_percent: u64,
    used: AtomicU64,
    limit: AtomicU64,
}

impl Pressure {
    /// Watches `memory`.
    pub(crate) fn new(memory: Memory, refuse_at_percent: u64) -> Self {
        let limit = AtomicU64::new(memory.limit_bytes());
        Self { memory, refuse_at_percent, used: AtomicU64::new(0), limit }
    }

    /// Looks, and returns whether the mark is passed. Reads files of /proc and /sys.
    pub(crate) fn look(&self) -> bool {
        if let Some(usage) = self.memory.usage() {
            self.used.store(usage.used_bytes, Ordering::Relaxed);
            self.limit.store(usage.limit_bytes, Ordering::Relaxed);
        }
        self.check_queries().is_err()
    }

    /// Returns the bytes in use and the limit that they are closest to, as seen last.
    pub(crate) fn figures(&self) -> (u64, u64) {
        (self.used.load(Ordering::Relaxed), self.limit.load(Ordering::Relaxed))
    }

    /// Tells whether queries are let in.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn check_queries(&self) -> Result<(), String> {
        self.check(self.refuse_at_percent)
    }

    /// Tells whether writes are let in.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn check_writes(&self) -> Result<(), String> {
        self.check(self.refuse_at_percent.midpoint(100))
    }

    fn check(&self, percent: u64) -> Result<(), String> {
        let (used, limit) = self.figures();
        if percent >= 100 || used <= limit / 100 * percent {
            return Ok(());
        }
        Err(format!("memory is short: {used} bytes of {limit} are in use, see --memory.refuse-at"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(used: u64, refuse_at_percent: u64, queries: bool, writes: bool) {
        let pressure = Pressure::new(Memory::given(1000), refuse_at_percent);
        pressure.used.store(used, Ordering::Relaxed);
        assert_eq!((pressure.check_queries().is_ok(), pressure.check_writes().is_ok()), (queries, writes), "{used}");
    }

    #[test]
    fn queries_are_refused_before_writes() {
        check(900, 90, true, true);
        check(901, 90, false, true);
        check(950, 90, false, true);
        check(951, 90, false, false);
        check(5000, 100, true, true);
    }

    #[test]
    fn what_the_process_takes_is_seen() {
        let pressure = Pressure::new(Memory::given(1), 90);
        assert!(pressure.look() && pressure.figures().0 > 0 && pressure.figures().1 == 1);
        assert!(pressure.check_queries().unwrap_err().contains("--memory.refuse-at"));
    }
}
