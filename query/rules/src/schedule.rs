//! The evaluation times of a group: aligned to its interval, shifted by a hash of its file and
//! name.
//!
//! The shift equals `Group.EvalTimestamp` of Prometheus 3.16, so that both evaluate a group at the
//! same timestamps.

use std::time::Duration;

use varve_model::labels::prometheus_hash;

use crate::time::{Time, as_ns};

/// The evaluation times of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    interval: Duration,
    interval_ns: i64,
    offset_ns: i64,
}

/// The next evaluation of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// The timestamp of the evaluation.
    pub tick: Time,
    /// Number of evaluations that are missed because the previous one took too long.
    pub n_missed: u64,
}

impl Schedule {
    /// Creates the schedule of the group `name` of `file`.
    ///
    /// # Panics
    /// If `interval` is zero.
    #[must_use]
    pub fn new(file: &str, name: &str, interval: Duration) -> Self {
        assert!(!interval.is_zero(), "the interval of a group is positive");
        let interval_ns = as_ns(interval);
        let offset_ns =
            (prometheus_hash([("file", file), ("name", name)]) % interval_ns as u64) as i64;
        Self {
            interval,
            interval_ns,
            offset_ns,
        }
    }

    /// Returns the interval.
    #[must_use]
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// Returns the last evaluation time at or before `now`.
    #[must_use]
    pub fn at_or_before(&self, now: Time) -> Time {
        let shifted = now.ns().saturating_sub(self.offset_ns);
        Time::from_ns((shifted - shifted % self.interval_ns).saturating_add(self.offset_ns))
    }

    /// Returns the evaluation time after `tick`.
    #[must_use]
    pub fn after(&self, tick: Time) -> Time {
        tick + self.interval
    }

    /// Returns the evaluation that follows `last`, or `None` if it is later than `now`. If several
    /// are due, returns the newest one, and the number of the others.
    #[must_use]
    pub fn due(&self, last: Time, now: Time) -> Option<Due> {
        let n_due = (now.ns() - last.ns()) / self.interval_ns;
        if n_due <= 0 {
            return None;
        }
        Some(Due {
            tick: Time::from_ns(last.ns() + n_due * self.interval_ns),
            n_missed: n_due as u64 - 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected offsets come from Prometheus 3.16:
    /// `labels.FromStrings("file", file, "name", name).Hash() % interval`.
    #[test]
    fn offsets_are_those_of_prometheus() {
        for (file, name, interval_s, expect_ns) in OFFSETS {
            let schedule = Schedule::new(file, name, Duration::from_secs(interval_s));
            assert_eq!(schedule.offset_ns, expect_ns, "{file} {name}");
        }
        let long = "x".repeat(300);
        assert_eq!(
            Schedule::new(&long, "g", Duration::from_secs(60)).offset_ns,
            LONG_OFFSET
        );
    }

    const OFFSETS: [(&str, &str, u64, i64); 4] = [
        ("/etc/rules.yml", "node", 30, 14_885_950_639),
        ("/etc/rules.yml", "node", 60, 14_885_950_639),
        ("rules/a.yaml", "kubernetes-apps", 30, 20_746_697_334),
        ("", "x", 60, 6_537_756_623),
    ];
    const LONG_OFFSET: i64 = 32_680_515_156;

    #[test]
    fn times_are_aligned_and_late_ones_are_missed() {
        let schedule = Schedule {
            interval: Duration::from_secs(10),
            interval_ns: 10_000_000_000,
            offset_ns: 3,
        };
        let at = |ns| Time::from_ns(ns);
        assert_eq!(
            schedule.at_or_before(at(20_000_000_002)),
            at(10_000_000_003)
        );
        assert_eq!(
            schedule.at_or_before(at(20_000_000_003)),
            at(20_000_000_003)
        );
        assert_eq!(schedule.after(at(20_000_000_003)), at(30_000_000_003));
        let last = at(10_000_000_003);
        assert_eq!(schedule.due(last, at(20_000_000_002)), None);
        assert_eq!(
            schedule.due(last, at(20_000_000_003)),
            Some(Due {
                tick: at(20_000_000_003),
                n_missed: 0
            })
        );
        assert_eq!(
            schedule.due(last, at(45_000_000_000)),
            Some(Due {
                tick: at(40_000_000_003),
                n_missed: 2
            })
        );
    }
}
