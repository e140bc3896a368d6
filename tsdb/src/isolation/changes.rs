//! Change log: which samples changed since a [`ReadVersion`].
//!
//! The result cache of `query` uses it to validate its entries. A change is an append, or a change
//! of the block list that reads can see: a deletion, retention, an import. Flushes, merges and
//! evictions change no answer and are not recorded. Every change has an id of
//! [`Isolation`](super::Isolation) and is recorded while it is in flight: before any read sees it.
//! Appends are recorded per minute and per group of metric names, other changes per range of time.
//! The proof that a cached result is never stale is in docs/decisions/query/0022-result-cache.md.
//!
//! Invariants
//! 1. A read that sees a change began after the change was recorded.
//! 2. A change that had not ended when a [`ReadVersion`] was taken is newer than that version.
//! 3. [`ChangeLog::since`] returns every recorded change that is newer than a version. It may
//!    return more.
//!
//! Threads: any; one lock, held for a few hundred stores by most appends, and for at most one store
//! per row and group. Bounds: [`MINUTES_MAX`] rows of 520 bytes, [`RANGES_MAX`] ranges.

use std::collections::VecDeque;

use parking_lot::Mutex;
use varve_model::labels::METRIC_NAME;
use varve_model::{MatchOp, Matcher, TimeRange};
use xxhash_rust::xxh3::xxh3_64;

/// Number of groups of metric names. A set of groups is a bit set of 64 bits.
const GROUPS: usize = 64;
const MINUTE_MS: i64 = 60_000;
/// Number of minutes for which appends are recorded separately. Appends to earlier minutes are
/// recorded together.
const MINUTES_MAX: usize = 2048;
/// Number of changes of the block list that are recorded separately. Earlier ones count as changes
/// of all times.
const RANGES_MAX: usize = 64;
/// Maximum number of runs of minutes per batch. The next run merges all of them into one.
const RUNS_MAX: usize = 32;

/// A set of metric names, by their hashes: it contains all names of a group or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct NameGroups(u64);

impl NameGroups {
    /// All metric names.
    pub const ALL: Self = Self(u64::MAX);

    /// Returns the group of a metric name. A series without one has the name `""`.
    #[must_use]
    pub fn of_name(name: &str) -> Self {
        Self(1 << name_group_of(name))
    }

    /// Returns the groups of the series that pass all matchers.
    #[must_use]
    pub fn of_matchers(matchers: &[Matcher]) -> Self {
        let name = matchers
            .iter()
            .find(|matcher| matcher.name() == METRIC_NAME && matcher.op() == MatchOp::Equal);
        name.map_or(Self::ALL, |name| Self::of_name(name.value()))
    }
}

/// Returns the index of the group of a metric name.
pub(crate) fn name_group_of(name: &str) -> u8 {
    xxh3_64(name.as_bytes()) as u8 % GROUPS as u8
}

/// A point in the order of changes. A read that begins after the version was taken sees every
/// change before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadVersion(pub(crate) u64);

/// The minutes and metric names of the samples of a batch.
#[derive(Debug)]
pub(crate) struct TouchedMinutes {
    runs: Vec<MinuteRun>,
    /// The run of the last sample, not in `runs` yet.
    last: MinuteRun,
}

/// Minutes, both ends included, and the groups of the samples in them.
#[derive(Debug, Clone, Copy)]
struct MinuteRun {
    first: i64,
    last: i64,
    groups: u64,
}

impl MinuteRun {
    const EMPTY: Self = Self {
        first: i64::MAX,
        last: i64::MIN,
        groups: 0,
    };
}

impl Default for TouchedMinutes {
    fn default() -> Self {
        Self {
            runs: Vec::new(),
            last: MinuteRun::EMPTY,
        }
    }
}

impl TouchedMinutes {
    /// Adds a sample of a series whose metric name is in `group`.
    #[inline]
    pub(crate) fn add(&mut self, timestamp_ms: i64, group: u8) {
        let minute = timestamp_ms.div_euclid(MINUTE_MS);
        // Fast path: samples of a batch are mostly of one minute.
        if minute != self.last.first {
            self.change_run(minute);
        }
        self.last.groups |= 1 << group;
    }

    #[cold]
    fn change_run(&mut self, minute: i64) {
        let last = std::mem::replace(
            &mut self.last,
            MinuteRun {
                first: minute,
                last: minute,
                groups: 0,
            },
        );
        let Self { runs, .. } = self;
        if last.groups == 0 {
            return;
        }
        if let Some(known) = runs
            .iter_mut()
            .find(|run| run.first <= last.first && last.last <= run.last)
        {
            known.groups |= last.groups;
        } else if runs.len() < RUNS_MAX {
            runs.push(last);
        } else {
            let mut all = last;
            for run in &*runs {
                all.first = all.first.min(run.first);
                all.last = all.last.max(run.last);
                all.groups |= run.groups;
            }
            *runs = vec![all];
        }
    }

    pub(crate) fn clear(&mut self) {
        self.runs.clear();
        self.last = MinuteRun::EMPTY;
    }

    fn runs(&self) -> impl Iterator<Item = &MinuteRun> {
        self.runs
            .iter()
            .chain([&self.last])
            .filter(|run| run.groups != 0)
    }
}

/// The changes of a store.
#[derive(Debug, Default)]
pub(crate) struct ChangeLog(Mutex<Changes>);

#[derive(Debug)]
struct Changes {
    /// The number of the first minute of `minutes`.
    first: i64,
    minutes: VecDeque<Row>,
    /// The newest appends to minutes before `first`.
    older: Row,
    /// Changes of the block list, in the order in which they were recorded.
    ranges: VecDeque<(u64, TimeRange)>,
    /// The newest change that is no longer in `ranges`.
    forgotten: u64,
}

/// The newest append to the series of each group in one minute.
#[derive(Debug, Clone)]
struct Row {
    newest: u64,
    groups: [u64; GROUPS],
}

impl Row {
    const NONE: Self = Self {
        newest: 0,
        groups: [0; GROUPS],
    };

    fn raise(&mut self, groups: u64, id: u64) {
        self.newest = self.newest.max(id);
        let mut left = groups;
        while left != 0 {
            let group = &mut self.groups[left.trailing_zeros() as usize];
            *group = (*group).max(id);
            left &= left - 1;
        }
    }

    fn merge(&mut self, other: &Self) {
        self.newest = self.newest.max(other.newest);
        for (group, other) in self.groups.iter_mut().zip(other.groups) {
            *group = (*group).max(other);
        }
    }

    /// Returns `true` if a group has a change that is not older than `version`.
    fn has_since(&self, version: u64, groups: u64) -> bool {
        self.newest >= version
            && (0..GROUPS).any(|group| groups >> group & 1 == 1 && self.groups[group] >= version)
    }
}

impl Default for Changes {
    fn default() -> Self {
        Self {
            first: 0,
            minutes: VecDeque::new(),
            older: Row::NONE,
            ranges: VecDeque::new(),
            forgotten: 0,
        }
    }
}

impl ChangeLog {
    /// Records an append that is in flight. Samples newer than `future_max_ms` are rejected, and
    /// not recorded.
    pub(crate) fn note_append(&self, id: u64, touched: &TouchedMinutes, future_max_ms: i64) {
        let last = future_max_ms.div_euclid(MINUTE_MS);
        let mut changes = self.0.lock();
        for &MinuteRun {
            first,
            last: run_last,
            groups,
        } in touched.runs()
        {
            changes.note_minutes(id, first, run_last.min(last), groups);
        }
    }

    /// Records a change of all series in a range that is in flight.
    pub(crate) fn note_range(&self, id: u64, range: TimeRange) {
        let mut changes = self.0.lock();
        changes.ranges.push_back((id, range));
        if changes.ranges.len() > RANGES_MAX {
            let oldest = changes.ranges.pop_front().map_or(0, |(id, _)| id);
            changes.forgotten = changes.forgotten.max(oldest);
        }
    }

    /// Returns the parts of a range in which samples of metrics in `names` may have changed since
    /// `version`.
    pub(crate) fn since(
        &self,
        version: ReadVersion,
        names: NameGroups,
        range: TimeRange,
    ) -> Vec<TimeRange> {
        self.0.lock().since(version.0, names.0, range)
    }
}

impl Changes {
    fn note_minutes(&mut self, id: u64, first: i64, last: i64, groups: u64) {
        if first > last {
            return;
        }
        self.extend_to(last);
        self.extend_back_to(first);
        if first < self.first {
            self.older.raise(groups, id);
        }
        let start = (first.max(self.first) - self.first) as usize;
        // The last minute is in the rows, or before all of them.
        let n_rows = usize::try_from(last - self.first + 1).unwrap_or(0);
        for row in self.minutes.range_mut(start.min(n_rows)..n_rows) {
            row.raise(groups, id);
        }
    }

    /// Appends rows up to `minute`.
    fn extend_to(&mut self, minute: i64) {
        let n_rows = self.minutes.len() as i64;
        let n_missing = minute.saturating_sub(self.first.saturating_add(n_rows - 1));
        if n_rows == 0 || n_missing >= MINUTES_MAX as i64 {
            // All rows become older ones.
            for row in self.minutes.drain(..) {
                self.older.merge(&row);
            }
            self.first = minute;
            self.minutes.push_back(Row::NONE);
            return;
        }
        for _ in 0..n_missing.max(0) {
            if self.minutes.len() >= MINUTES_MAX
                && let Some(row) = self.minutes.pop_front()
            {
                self.older.merge(&row);
                self.first += 1;
            }
            self.minutes.push_back(Row::NONE);
        }
    }

    /// Prepends rows from `minute` on, unless there would be more than [`MINUTES_MAX`].
    fn extend_back_to(&mut self, minute: i64) {
        let n_missing = self.first.saturating_sub(minute);
        if n_missing > 0 && n_missing <= (MINUTES_MAX - self.minutes.len()) as i64 {
            // `older` has the changes of these minutes.
            for _ in 0..n_missing {
                self.minutes.push_front(self.older.clone());
            }
            self.first = minute;
        }
    }

    fn since(&self, version: u64, groups: u64, range: TimeRange) -> Vec<TimeRange> {
        if self.forgotten >= version {
            return vec![range];
        }
        let mut found = Vec::new();
        for &(id, changed) in &self.ranges {
            if id >= version && changed.overlaps(range) {
                found.push(changed);
            }
        }

        let minute_of = |timestamp_ms: i64| timestamp_ms.div_euclid(MINUTE_MS);
        let first_ms = self.first.saturating_mul(MINUTE_MS);
        if (self.minutes.is_empty() || range.start_ms < first_ms)
            && self.older.has_since(version, groups)
        {
            found.push(TimeRange {
                start_ms: range.start_ms,
                end_ms: first_ms.saturating_sub(1).min(range.end_ms),
            });
        }
        let start = minute_of(range.start_ms).saturating_sub(self.first).max(0);
        let end = minute_of(range.end_ms)
            .saturating_sub(self.first)
            .saturating_add(1)
            .min(self.minutes.len() as i64);
        for row_idx in start..end {
            if !self.minutes[row_idx as usize].has_since(version, groups) {
                continue;
            }
            let start_ms = (self.first + row_idx).saturating_mul(MINUTE_MS);
            let end_ms = start_ms.saturating_add(MINUTE_MS - 1);
            match found.last_mut() {
                Some(last) if last.end_ms.saturating_add(1) == start_ms => last.end_ms = end_ms,
                _ => found.push(TimeRange { start_ms, end_ms }),
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: u8 = 3;
    const B: u8 = 9;

    fn append(log: &ChangeLog, id: u64, samples: &[(i64, u8)]) {
        let mut touched = TouchedMinutes::default();
        for &(minute, group) in samples.iter() {
            touched.add(minute * MINUTE_MS + 7, group);
        }
        log.note_append(id, &touched, 1_000_000 * MINUTE_MS);
    }

    /// Checks the changed minutes since a version in the minutes 0 to 9999, as first and last
    /// minute.
    #[track_caller]
    fn check(log: &ChangeLog, version: u64, group: u8, expect: &[(i64, i64)]) {
        let range = TimeRange {
            start_ms: 0,
            end_ms: 10_000 * MINUTE_MS - 1,
        };
        let found = log.since(ReadVersion(version), NameGroups(1 << group), range);
        let minutes = |r: TimeRange| {
            (
                r.start_ms.div_euclid(MINUTE_MS),
                r.end_ms.div_euclid(MINUTE_MS),
            )
        };
        assert_eq!(
            found.into_iter().map(minutes).collect::<Vec<_>>(),
            expect,
            "{group} since {version}"
        );
    }

    #[test]
    fn changes_are_found_by_minute_and_name() {
        let log = ChangeLog::default();
        append(&log, 1, &[(5000, A), (5001, A), (5001, B)]);
        append(&log, 3, &[(5003, A)]);
        // Appends are recorded in any order of their ids.
        append(&log, 2, &[(5003, A), (4999, B)]);
        check(&log, 1, A, &[(5000, 5001), (5003, 5003)]);
        check(&log, 2, A, &[(5003, 5003)]);
        check(&log, 3, A, &[(5003, 5003)]);
        check(&log, 4, A, &[]);
        check(&log, 2, B, &[(4999, 4999)]);
    }

    #[test]
    fn minutes_before_the_rows_are_recorded_together() {
        let log = ChangeLog::default();
        append(&log, 1, &[(5000, A)]);
        append(&log, 2, &[(9000, B)]);
        // The row of minute 5000 has become an older one.
        check(&log, 1, A, &[(0, 8999)]);
        check(&log, 2, A, &[]);
        append(&log, 3, &[(8000, B)]);
        check(&log, 2, B, &[(8000, 8000), (9000, 9000)]);
        check(&log, 1, A, &[(0, 8999)]);
        append(&log, 4, &[(10, A)]);
        check(&log, 4, A, &[(0, 7999)]);
        // A gap in the rows.
        append(&log, 5, &[(9000 + MINUTES_MAX as i64 - 1, A)]);
        check(&log, 5, B, &[]);
        check(&log, 3, B, &[(0, 8999)]);
    }

    #[test]
    fn samples_in_the_far_future_move_no_rows() {
        let log = ChangeLog::default();
        append(&log, 1, &[(5000, A)]);
        append(
            &log,
            2,
            &[(5000, B), (1_000_001, A), (i64::MAX / MINUTE_MS - 1, A)],
        );
        check(&log, 1, A, &[(5000, 5000)]);
        check(&log, 2, A, &[]);
        check(&log, 2, B, &[(5000, 5000)]);
    }

    #[test]
    fn many_minutes_of_a_batch_are_recorded_as_one_run() {
        let log = ChangeLog::default();
        let samples: Vec<_> = (0..2 * RUNS_MAX as i64 + 5)
            .map(|i| (1000 + 2 * i, A))
            .collect();
        append(&log, 1, &samples);
        let range = TimeRange {
            start_ms: 0,
            end_ms: 9999 * MINUTE_MS,
        };
        let found = log.since(ReadVersion(1), NameGroups(1 << A), range);
        for (minute, _) in samples {
            assert!(
                found
                    .iter()
                    .any(|found| found.contains(minute * MINUTE_MS + 7)),
                "{minute}"
            );
        }
        assert!(
            log.since(ReadVersion(1), NameGroups(1 << B), range)
                .is_empty()
        );
    }

    #[test]
    fn changes_of_blocks_affect_all_names_and_are_bounded() {
        let log = ChangeLog::default();
        let minute = |at: i64| TimeRange {
            start_ms: at * MINUTE_MS,
            end_ms: at * MINUTE_MS + 1,
        };
        log.note_range(1, minute(3));
        check(&log, 1, A, &[(3, 3)]);
        check(&log, 2, A, &[]);
        (2..2 + RANGES_MAX as u64).for_each(|id| log.note_range(id, minute(20_000)));
        check(&log, 1, A, &[(0, 9999)]);
        check(&log, 2, A, &[]);
    }

    #[test]
    fn matchers_name_a_group_if_they_fix_the_name() {
        let named = |name: &str| {
            NameGroups::of_matchers(&[Matcher::equal("job", "x"), Matcher::equal("__name__", name)])
        };
        assert_eq!(named("up"), NameGroups::of_name("up"));
        assert_eq!(
            NameGroups::of_matchers(&[Matcher::equal("job", "x")]),
            NameGroups::ALL
        );
    }
}
