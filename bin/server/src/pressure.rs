//! Memory pressure: how close the memory use of the process is to its limit.
//!
//! Budgets bound what requests allocate. Memory outside of them (the allocator, other processes in
//! the same cgroup, estimates) shows here. Work is rejected before the kernel kills the process,
//! samples of known series last. With R for `--memory.refuse-at`, in percent of the limit:
//!
//! | state | above | with R = 90 | rejected |
//! | --- | --- | --- | --- |
//! | 1 | R - (100 - R) / 2, at least R - 5 and R / 2 | 85 | new series; caches are cleared |
//! | 2 | R | 90 | and queries, of which the heaviest is canceled |
//! | 3 | R + 3/4 (100 - R) | 97 | and writes |
//!
//! Queries alone do not lead to these states. Their shared budget shrinks to the memory that the
//! rest of the process leaves below state 1 ([`Pressure::query_memory_max`]).
//!
//! The next flush and merge need memory that grows with the series and label values in the heads. It
//! is reserved: new series are rejected, and the budget of queries shrinks, as if it were in use.
//! While a flush or a merge runs, its memory counts twice.
//!
//! A state ends with the first measurement that is not above its threshold. Nothing has to be
//! reset.
//!
//! Threads: the housekeeping thread updates it a few times per second. Requests read the last
//! value.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus::proto::MetricFamily;
use varve_system::machine::Memory;
use varve_system::metrics::counts;

/// Queries may always hold this part of their memory.
const QUERY_MEMORY_MIN_PART: usize = 8;
/// Maximum distance of the threshold of new series from that of queries, in percent of the limit.
/// With a low `--memory.refuse-at`, a larger one would be below the memory that heads may use.
const NEW_SERIES_MARGIN_MAX: u64 = 5;

/// The last measurement.
#[derive(Debug)]
pub struct Pressure {
    memory: Memory,
    /// Percentage of the limit above which queries are rejected. At 100 they are never rejected.
    refuse_at_percent: u64,
    used: AtomicU64,
    limit: AtomicU64,
    /// Memory that the next flush and merge will need.
    reserved: AtomicU64,
}

impl Pressure {
    /// Creates a monitor of `memory`.
    pub fn new(memory: Memory, refuse_at_percent: u64) -> Self {
        let limit = AtomicU64::new(memory.limit_bytes());
        Self {
            memory,
            refuse_at_percent,
            used: AtomicU64::new(0),
            limit,
            reserved: AtomicU64::new(0),
        }
    }

    /// Measures memory use, and returns `true` if queries are rejected. Reads files of /proc and
    /// /sys.
    pub fn check(&self) -> bool {
        if let Some(usage) = self.memory.usage() {
            self.used.store(usage.used_bytes, Ordering::Relaxed);
            self.limit.store(usage.limit_bytes, Ordering::Relaxed);
        }
        self.check_queries().is_err()
    }

    /// Reserves memory for the next flush and merge. Replaces the last reservation.
    pub fn reserve(&self, bytes: u64) {
        self.reserved.store(bytes, Ordering::Relaxed);
    }

    /// Collects the metrics of the last measurement.
    pub fn collect(&self) -> Vec<MetricFamily> {
        let (used_bytes, limit_bytes) = self.stats();
        counts([
            ("varve_memory_used_bytes", used_bytes),
            ("varve_memory_limit_bytes", limit_bytes),
            (
                "varve_memory_reserved_bytes",
                self.reserved.load(Ordering::Relaxed),
            ),
        ])
    }

    /// Returns the bytes in use and the limit that they are closest to.
    fn stats(&self) -> (u64, u64) {
        (
            self.used.load(Ordering::Relaxed),
            self.limit.load(Ordering::Relaxed),
        )
    }

    /// Checks whether queries are admitted.
    ///
    /// # Errors
    /// The reason of the rejection.
    pub fn check_queries(&self) -> Result<(), String> {
        self.check_at(self.refuse_at_percent, 0)
    }

    /// Checks whether writes are admitted.
    ///
    /// # Errors
    /// The reason of the rejection.
    pub fn check_writes(&self) -> Result<(), String> {
        self.check_at((self.refuse_at_percent + 3 * 100) / 4, 0)
    }

    /// Returns `true` if new series are rejected.
    pub fn refuses_new_series(&self) -> bool {
        let reserved = self.reserved.load(Ordering::Relaxed);
        self.check_at(self.new_series_percent(), reserved).is_err()
    }

    /// Returns `true` if caches should be cleared: the memory in use alone, without what is reserved,
    /// is above the threshold of new series.
    pub fn needs_cached_memory(&self) -> bool {
        self.check_at(self.new_series_percent(), 0).is_err()
    }

    /// Returns the bytes that all queries together may hold, at most `max` and at least an eighth
    /// of it. `held` is the number of bytes that they hold now.
    pub fn query_memory_max(&self, max: usize, held: usize) -> usize {
        let percent = self.new_series_percent();
        if percent >= 100 {
            return max;
        }
        let (used, limit) = self.stats();
        let reserved = self.reserved.load(Ordering::Relaxed);
        let others = used.saturating_sub(held as u64).saturating_add(reserved);
        let left = (limit / 100 * percent).saturating_sub(others);
        usize::try_from(left)
            .unwrap_or(usize::MAX)
            .clamp(max / QUERY_MEMORY_MIN_PART, max)
    }

    fn new_series_percent(&self) -> u64 {
        let refuse_at = self.refuse_at_percent;
        let margin = (100_u64.saturating_sub(refuse_at) / 2).min(NEW_SERIES_MARGIN_MAX);
        refuse_at.saturating_sub(margin).max(refuse_at / 2)
    }

    fn check_at(&self, percent: u64, reserved: u64) -> Result<(), String> {
        let (used, limit) = self.stats();
        if percent >= 100 || used.saturating_add(reserved) <= limit / 100 * percent {
            return Ok(());
        }
        Err(format!(
            "out of memory: {used} of {limit} bytes are in use (--memory.refuse-at)"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_series_are_rejected_last_and_every_state_ends() {
        let pressure = |refuse_at_percent| Pressure::new(Memory::given(1000), refuse_at_percent);
        let of_90 = pressure(90);
        let of_20 = pressure(20);
        let off = pressure(100);
        // Use rises, then falls.
        for (pressure, used, state) in [
            (&of_90, 850, 0),
            (&of_90, 851, 1),
            (&of_90, 901, 2),
            (&of_90, 970, 2),
            (&of_90, 971, 3),
            (&of_90, 960, 2),
            (&of_90, 890, 1),
            (&of_90, 800, 0),
            (&of_20, 150, 0),
            (&of_20, 151, 1),
            (&off, 5000, 0),
        ] {
            pressure.used.store(used, Ordering::Relaxed);
            let rejects = [
                pressure.refuses_new_series(),
                pressure.check_queries().is_err(),
                pressure.check_writes().is_err(),
            ];
            assert_eq!(rejects, [state >= 1, state >= 2, state >= 3], "{used}");
        }
    }

    #[test]
    fn queries_get_what_the_rest_of_the_process_leaves() {
        let pressure = Pressure::new(Memory::given(1000), 90);
        for (used, held, expect) in [
            (100, 0, 400),
            (600, 100, 350),
            (800, 0, 50),
            (990, 400, 260),
            (990, 0, 50),
        ] {
            pressure.used.store(used, Ordering::Relaxed);
            assert_eq!(
                pressure.query_memory_max(400, held),
                expect,
                "{used} {held}"
            );
        }
        let off = Pressure::new(Memory::given(1000), 100);
        off.used.store(990, Ordering::Relaxed);
        assert_eq!(off.query_memory_max(400, 0), 400);
    }

    #[test]
    fn reserved_memory_is_not_for_new_series_and_queries() {
        let pressure = Pressure::new(Memory::given(1000), 90);
        pressure.used.store(700, Ordering::Relaxed);
        for (reserved, refuses_new_series, query_memory) in
            [(0, false, 150), (150, false, 50), (151, true, 50)]
        {
            pressure.reserve(reserved);
            assert_eq!(pressure.refuses_new_series(), refuses_new_series);
            assert!(!pressure.needs_cached_memory());
            assert_eq!(pressure.query_memory_max(400, 0), query_memory);
            assert!(pressure.check_queries().is_ok() && pressure.check_writes().is_ok());
        }
    }

    #[test]
    fn memory_use_of_the_process_is_measured() {
        let pressure = Pressure::new(Memory::given(1), 90);
        assert!(pressure.check() && pressure.stats().0 > 0 && pressure.stats().1 == 1);
        assert!(
            pressure
                .check_queries()
                .unwrap_err()
                .contains("--memory.refuse-at")
        );
    }
}
