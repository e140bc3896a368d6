//! Memory pressure: how close the memory use of the process is to its limit.
//!
//! Budgets bound what requests allocate; memory outside of them (the allocator, other processes in the same cgroup, estimates)
//! shows here. Work is rejected before the kernel kills the process: queries at `--memory.refuse-at`, writes halfway between
//! that and the limit, so that samples are accepted for as long as possible.
//!
//! Threads: the housekeeping thread updates it a few times per second. Requests read the last value.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::machine::Memory;

/// The last measurement.
#[derive(Debug)]
pub(crate) struct Pressure {
    memory: Memory,
    /// Percentage of the limit above which queries are rejected. At 100 they are never rejected.
    refuse_at_percent: u64,
    used: AtomicU64,
    limit: AtomicU64,
}

impl Pressure {
    /// Creates a monitor of `memory`.
    pub(crate) fn new(memory: Memory, refuse_at_percent: u64) -> Self {
        let limit = AtomicU64::new(memory.limit_bytes());
        Self { memory, refuse_at_percent, used: AtomicU64::new(0), limit }
    }

    /// Measures memory use, and returns `true` if queries are rejected. Reads files of /proc and /sys.
    pub(crate) fn check(&self) -> bool {
        if let Some(usage) = self.memory.usage() {
            self.used.store(usage.used_bytes, Ordering::Relaxed);
            self.limit.store(usage.limit_bytes, Ordering::Relaxed);
        }
        self.check_queries().is_err()
    }

    /// Returns the bytes in use and the limit that they are closest to.
    pub(crate) fn stats(&self) -> (u64, u64) {
        (self.used.load(Ordering::Relaxed), self.limit.load(Ordering::Relaxed))
    }

    /// Checks whether queries are admitted.
    ///
    /// # Errors
    /// The reason of the rejection.
    pub(crate) fn check_queries(&self) -> Result<(), String> {
        self.check_at(self.refuse_at_percent)
    }

    /// Checks whether writes are admitted.
    ///
    /// # Errors
    /// The reason of the rejection.
    pub(crate) fn check_writes(&self) -> Result<(), String> {
        self.check_at(self.refuse_at_percent.midpoint(100))
    }

    fn check_at(&self, percent: u64) -> Result<(), String> {
        let (used, limit) = self.stats();
        if percent >= 100 || used <= limit / 100 * percent {
            return Ok(());
        }
        Err(format!("out of memory: {used} of {limit} bytes are in use (--memory.refuse-at)"))
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
    fn queries_are_rejected_before_writes() {
        check(900, 90, true, true);
        check(901, 90, false, true);
        check(950, 90, false, true);
        check(951, 90, false, false);
        check(5000, 100, true, true);
    }

    #[test]
    fn memory_use_of_the_process_is_measured() {
        let pressure = Pressure::new(Memory::given(1), 90);
        assert!(pressure.check() && pressure.stats().0 > 0 && pressure.stats().1 == 1);
        assert!(pressure.check_queries().unwrap_err().contains("--memory.refuse-at"));
    }
}
