//! The evaluation loop: one thread decides which groups are due, a bounded number of threads
//! evaluates them.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::MutexGuard;
use varve_rules::plan::{Next, Plan, Waiting};
use varve_rules::{Group, Mode, RemovedGroup, RuleSet, Time};

use super::storage::RuleStorage;
use super::{Live, Rules, now};
use crate::app::App;
use crate::store::Store;

/// Maximum time that the scheduler sleeps. It is short because the wall clock may be set meanwhile.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// Pause before staleness markers of removed groups are written again after a failure.
const REMOVAL_RETRY: Duration = Duration::from_secs(10);

/// Groups with their plans, and the evaluations that wait for a thread.
#[derive(Debug, Default)]
pub(super) struct Entries {
    is_loaded: bool,
    /// Groups by file and name.
    by_key: BTreeMap<(Arc<str>, String), Entry>,
    /// Series of removed groups that still need staleness markers.
    removed: Vec<RemovedGroup>,
    /// At most one per group.
    queue: VecDeque<Job>,
}

#[derive(Debug)]
struct Entry {
    group: Arc<Group>,
    plan: Plan,
    /// `true` while an evaluation is queued or running.
    is_busy: bool,
    /// `true` until the loop has looked for missed evaluations of an outage.
    is_new: bool,
}

/// An evaluation to run.
#[derive(Debug, Clone)]
struct Job {
    group: Arc<Group>,
    tick: Time,
    mode: Mode,
    is_incomplete: bool,
}

/// The threads of the loop.
#[derive(Debug)]
pub(crate) struct RuleThreads(Vec<JoinHandle<()>>);

impl RuleThreads {
    /// Waits until all threads have ended, after [`Rules::stop`].
    pub(crate) fn join(self) {
        for thread in self.0 {
            let _panic_is_logged = thread.join();
        }
    }
}

impl Entries {
    pub(super) fn is_loaded(&self) -> bool {
        self.is_loaded
    }

    /// Replaces the groups. Plans of groups that stay the same, or only change their rules,
    /// continue.
    pub(super) fn replace(&mut self, set: &RuleSet, removed: Vec<RemovedGroup>, now: Time) {
        let mut old = std::mem::take(&mut self.by_key);
        for group in set.groups() {
            let key = (Arc::clone(&group.file), group.name().to_owned());
            let entry = match old.remove(&key) {
                Some(entry) if Arc::ptr_eq(&entry.group, group) => entry,
                Some(entry) => Entry {
                    plan: entry.plan.succeed(
                        *group.schedule(),
                        entry.group.status().last_tick,
                        now,
                    ),
                    group: Arc::clone(group),
                    is_busy: false,
                    is_new: entry.is_new,
                },
                None => Entry {
                    plan: Plan::new(*group.schedule(), now),
                    group: Arc::clone(group),
                    is_busy: false,
                    is_new: !self.is_loaded,
                },
            };
            self.by_key.insert(key, entry);
        }
        self.queue.retain(|job| !job.group.is_stopped());
        self.removed.extend(removed);
        self.is_loaded = true;
    }

    /// Queues all evaluations that are due. Returns the time of the next check.
    ///
    /// A rule may read what a rule of another group has recorded. So groups that catch up run in
    /// the order of their evaluation times, whatever their intervals are.
    fn enqueue_due(&mut self, waiting: Waiting<'_>, now: Time) -> Time {
        let mut next_at = now + SLEEP_MAX;
        let is_running = |entry: &&mut Entry| !entry.is_new && !entry.group.is_stopped();
        let mut entries: Vec<_> = self.by_key.values_mut().filter(is_running).collect();
        entries.sort_by_key(|entry| entry.plan.catch_up_tick());
        // The first evaluation that later ones wait for.
        let mut first = None;
        for entry in entries {
            let tick = entry.plan.catch_up_tick();
            if first.is_some() && tick > first {
                break;
            }
            if !entry.is_busy {
                next_at = next_at.min(entry.enqueue_due(&mut self.queue, waiting, now));
            }
            if entry.is_busy || entry.plan.catch_up_tick().is_some() {
                first = tick;
            }
        }
        next_at
    }

    /// Notes the end of an evaluation. If the group was stopped, it is unknown whether it ran, and
    /// [`Plan::succeed`] decides.
    fn done(&mut self, job: &Job) {
        if let Some(entry) = self
            .entry(&job.group)
            .filter(|entry| !entry.group.is_stopped())
        {
            entry.plan.done(job.tick);
            entry.is_busy = false;
        }
    }

    /// Returns the entry of a group, unless a reload has replaced it.
    fn entry(&mut self, group: &Arc<Group>) -> Option<&mut Entry> {
        let key = (Arc::clone(&group.file), group.name().to_owned());
        self.by_key
            .get_mut(&key)
            .filter(|entry| Arc::ptr_eq(&entry.group, group))
    }

    /// Returns the groups that still have to catch up evaluations.
    fn catching_up(&self) -> Vec<Arc<Group>> {
        let entries = self
            .by_key
            .values()
            .filter(|entry| entry.plan.catch_up_tick().is_some());
        entries.map(|entry| Arc::clone(&entry.group)).collect()
    }

    /// Takes the removed groups whose staleness markers are due.
    fn take_removed(&mut self, now: Time) -> Vec<RemovedGroup> {
        let (due, later) = std::mem::take(&mut self.removed)
            .into_iter()
            .partition(|group| group.due <= now);
        self.removed = later;
        due
    }
}

impl Entry {
    /// Queues the evaluation of an idle group if it is due. Returns the time of the next check.
    fn enqueue_due(&mut self, queue: &mut VecDeque<Job>, waiting: Waiting<'_>, now: Time) -> Time {
        // A group with an offset of its own waits for no sender.
        let max_wait = if self.group.definition.query_offset_ms.is_none() {
            waiting.max_wait
        } else {
            None
        };
        let (next, n_missed) = self.plan.next(
            now,
            Waiting {
                max_wait,
                ..waiting
            },
        );
        if n_missed > 0 {
            self.group.note_missed(n_missed);
        }
        match next {
            Next::Wait(time) => time,
            Next::Evaluate {
                tick,
                mode,
                is_incomplete,
            } => {
                queue.push_back(Job {
                    group: Arc::clone(&self.group),
                    tick,
                    mode,
                    is_incomplete,
                });
                self.is_busy = true;
                now + SLEEP_MAX
            }
        }
    }
}

/// Starts the threads of the loop.
///
/// # Errors
/// The system cannot start a thread.
pub fn start(app: &Arc<App>, store: &Arc<Store>) -> io::Result<()> {
    let n_workers = app.rules.options.concurrency.get();
    let spawn = |name: &str, work: fn(&App, &Store)| {
        let app = Arc::clone(app);
        let store = Arc::clone(store);
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || work(&app, &store))
    };
    let mut threads = vec![spawn("rules", schedule)?];
    for _ in 0..n_workers {
        threads.push(spawn("rule-group", work)?);
    }
    *app.rules.running.lock() = Some(RuleThreads(threads));
    Ok(())
}

/// Decides which groups are due, until the rules are stopped.
fn schedule(app: &App, store: &Store) {
    let rules = &app.rules;
    while !rules.is_stopping() {
        let enqueued = unless_panicked(|| enqueue(app, store));
        let (mut entries, sleep) = enqueued.unwrap_or_else(|| (rules.entries.lock(), SLEEP_MAX));
        rules.changed.wait_for(&mut entries, sleep);
    }
}

/// Queues all evaluations that are due. Returns the time until the next check.
fn enqueue<'a>(app: &'a App, store: &Store) -> (MutexGuard<'a, Entries>, Duration) {
    let rules = &app.rules;
    let live = app.rules.live();
    plan_catch_up(app, store, &live);
    let now = now();
    end_removed_groups(app, store, now);
    let catching_up = rules.entries.lock().catching_up();
    for group in catching_up {
        group.resend(
            now,
            &RuleStorage::new(app, store, group.schedule().interval()),
            &live.settings,
        );
    }
    let mut entries = rules.entries.lock();
    let next_at = entries.enqueue_due(
        Waiting {
            lags: &rules.lags,
            max_wait: live.max_wait,
        },
        now,
    );
    if !entries.queue.is_empty() {
        rules.changed.notify_all();
    }
    (entries, next_at.since(now).max(Duration::from_millis(1)))
}

/// Returns the value of `run`, or `None` if it panics. A panic outside a rule, which the hook logs,
/// must not end a thread.
fn unless_panicked<T>(run: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(run)).ok()
}

/// Lets new groups begin with the evaluations that they missed during an outage.
fn plan_catch_up(app: &App, store: &Store, live: &Live) {
    let rules = &app.rules;
    let new: Vec<Arc<Group>> = {
        let entries = rules.entries.lock();
        entries
            .by_key
            .values()
            .filter(|entry| entry.is_new)
            .map(|entry| Arc::clone(&entry.group))
            .collect()
    };
    for group in new {
        if rules.is_stopping() {
            return;
        }
        let last = caught_up_from(app, store, live, &group, now());
        let mut entries = rules.entries.lock();
        let Some(entry) = entries.entry(&group) else {
            continue;
        };
        entry.is_new = false;
        if let Some(last) = last {
            // Reading the store may have taken long.
            entry.plan = Plan::catch_up(*group.schedule(), last, now());
        }
    }
}

/// Loads the alerts of a group, and returns the evaluation after which it continues. Returns `None`
/// if there is nothing to catch up.
fn caught_up_from(app: &App, store: &Store, live: &Live, group: &Group, now: Time) -> Option<Time> {
    let longest = app.rules.options.catch_up;
    if longest.is_zero() {
        return None;
    }
    let storage = RuleStorage::new(app, store, group.schedule().interval());
    let found = group.last_stored(now, longest, &storage, &live.settings);
    let result = found.and_then(|newest| {
        // If there is a gap, the newest evaluation before it may be incomplete, so it is repeated.
        let schedule = group.schedule();
        let has_gap = |newest| schedule.after(newest) <= now;
        let Some(newest) = newest else {
            return Ok(None);
        };
        let last = if has_gap(newest) {
            newest - schedule.interval()
        } else {
            newest
        };
        group
            .continue_from(last, newest, &storage, &live.settings)
            .map(|()| Some(last))
    });
    match result {
        Ok(last) => last,
        Err(failure) => {
            let group = group.key();
            let reason = failure.message;
            tracing::warn!(
                group,
                reason,
                "Cannot catch up the evaluations that an outage has prevented"
            );
            None
        }
    }
}

fn end_removed_groups(app: &App, store: &Store, now: Time) {
    let due = app.rules.entries.lock().take_removed(now);
    let storage = RuleStorage::new(app, store, SLEEP_MAX);
    let mut failed = Vec::new();
    for mut group in due {
        let ended = unless_panicked(|| group.end_series(&storage));
        if let Some(Err(failure)) = &ended {
            tracing::warn!(
                reason = failure.message,
                "Cannot end the series of removed rules; retrying later"
            );
        }
        if !matches!(ended, Some(Ok(()))) {
            group.due = now + REMOVAL_RETRY;
            failed.push(group);
        }
    }
    if !failed.is_empty() {
        app.rules.entries.lock().removed.extend(failed);
    }
}

/// Runs evaluations, until the rules are stopped.
fn work(app: &App, store: &Store) {
    let rules = &app.rules;
    while let Some(job) = take(rules) {
        let live = rules.live();
        let _permit = rules.threads.acquire();
        app.metrics
            .rules
            .note_start(job.mode, job.is_incomplete, now().since(job.tick));
        let storage = RuleStorage::new(app, store, job.group.schedule().interval());
        let evaluate = || {
            job.group
                .evaluate(job.tick, job.mode, &storage, &live.settings)
        };
        if let Some(iteration) = unless_panicked(evaluate) {
            app.metrics.rules.note_end(&iteration);
        }
        rules.entries.lock().done(&job);
        rules.changed.notify_all();
    }
}

/// Takes the next evaluation from the queue. Returns `None` when the rules are stopped.
fn take(rules: &Rules) -> Option<Job> {
    let mut entries = rules.entries.lock();
    loop {
        if rules.is_stopping() {
            return None;
        }
        if let Some(job) = entries.queue.pop_front() {
            return Some(job);
        }
        rules.changed.wait_for(&mut entries, SLEEP_MAX);
    }
}

#[cfg(test)]
mod tests {
    use varve_rules::arrival::Lags;
    use varve_rules::file::{self, Options};
    use varve_rules::{AlertsMax, RestoreOptions, Settings};

    use super::*;

    const S: Duration = Duration::from_secs(1);
    /// A group, its successor with another rule, and its successor with another interval.
    const GROUPS: [&str; 3] = [
        "{name: g, interval: 30s, rules: [{record: a, expr: b}]}",
        "{name: g, interval: 30s, rules: [{record: a, expr: c}]}",
        "{name: g, interval: 70s, rules: [{record: a, expr: b}]}",
    ];

    fn at(seconds: i64) -> Time {
        Time::from_seconds(seconds)
    }

    /// Reads a group into the entries, as a reload does. Returns the new set.
    fn reload(entries: &mut Entries, old: &RuleSet, group: &str, now: Time) -> RuleSet {
        let (set, removed) = apply(old, group, now);
        entries.replace(&set, removed, now);
        set
    }

    /// Stops the groups that have changed, which is the first half of a reload.
    fn apply(old: &RuleSet, group: &str, now: Time) -> (RuleSet, Vec<RemovedGroup>) {
        let parsed = file::parse(&format!("groups: [{group}]"), &Options::default()).unwrap();
        let files = parsed
            .files
            .into_iter()
            .map(|file| ("f".into(), file))
            .collect();
        let change = old.change_to(files, 60 * S, false, &Arc::new(AlertsMax::new(10)));
        let settings = Settings {
            query_offset: Duration::ZERO,
            resend_delay: 60 * S,
            restore: RestoreOptions {
                outage_tolerance: Duration::ZERO,
                grace_period: Duration::ZERO,
            },
            external_labels: file::Texts::new(),
            external_url: String::new(),
            threads: None,
        };
        change.apply(now, &settings)
    }

    /// Returns the timestamp of the evaluation that is due.
    fn due(entries: &mut Entries, now: Time) -> Option<Job> {
        entries.enqueue_due(
            Waiting {
                lags: &Lags::default(),
                max_wait: None,
            },
            now,
        );
        entries.queue.pop_front()
    }

    /// Returns entries with a group that has nothing to catch up.
    fn loaded(group: &str, now: Time) -> (Entries, RuleSet) {
        let mut entries = Entries {
            is_loaded: true,
            ..Entries::default()
        };
        let set = reload(&mut entries, &RuleSet::default(), group, now);
        (entries, set)
    }

    #[test]
    fn a_panic_does_not_end_the_loop() {
        assert_eq!(unless_panicked(|| 1), Some(1));
        assert_eq!(
            unless_panicked(|| -> i32 { panic!("as the test wants") }),
            None
        );
    }

    #[test]
    fn groups_catch_up_in_the_order_of_their_evaluations() {
        let groups = "{name: slow, interval: 10s, rules: [{record: b, expr: a}]}, \
                      {name: fast, interval: 1s, rules: [{record: a, expr: m}]}";
        let (mut entries, _set) = loaded(groups, at(1000));
        for entry in entries.by_key.values_mut() {
            let schedule = *entry.group.schedule();
            entry.plan = Plan::catch_up(schedule, schedule.at_or_before(at(1000)), at(1060));
        }
        let mut ticks = Vec::new();
        let now = at(1080);
        while let Some(job) = due(&mut entries, now) {
            // Both may run at the same time only if their evaluations have one timestamp.
            assert!(entries.queue.iter().all(|other| other.tick == job.tick));
            ticks.push(job.tick);
            entries
                .queue
                .iter()
                .for_each(|other| ticks.push(other.tick));
            for job in [job].into_iter().chain(std::mem::take(&mut entries.queue)) {
                entries.done(&job);
            }
        }
        assert!(ticks.is_sorted(), "{ticks:?}");
        assert!(ticks.len() >= 80 + 7, "{}", ticks.len());
    }

    #[test]
    fn groups_with_nothing_to_catch_up_are_live_at_once() {
        let group = |i: u64| {
            format!(
                "{{name: g{i}, interval: {}s, rules: [{{record: a, expr: m}}]}}",
                20 + i
            )
        };
        let groups: Vec<_> = (0..9).map(group).collect();
        let (mut entries, _set) = loaded(&groups.join(", "), at(1000));
        for entry in entries.by_key.values_mut() {
            let schedule = *entry.group.schedule();
            entry.plan = Plan::catch_up(schedule, schedule.at_or_before(at(1000)), at(1000));
        }
        assert!(due(&mut entries, at(1000)).is_none());
        assert!(entries.catching_up().is_empty());
    }

    #[test]
    fn the_successor_repeats_an_evaluation_that_a_reload_prevents() {
        let [group, changed, slower] = GROUPS;
        for (successor, repeats) in [(changed, true), (slower, false)] {
            let (mut entries, set) = loaded(group, at(1000));
            let job = due(&mut entries, at(1030)).unwrap();
            let (set, removed) = apply(&set, successor, at(1030));
            entries.done(&job);
            assert!(
                due(&mut entries, at(1065)).is_none(),
                "the group is stopped"
            );
            entries.replace(&set, removed, at(1030));
            let next = due(&mut entries, at(1031)).map(|job| job.tick);
            assert_eq!(next, repeats.then_some(job.tick));
            if !repeats {
                let schedule = *set.groups().next().unwrap().schedule();
                let next = due(&mut entries, at(1101)).unwrap().tick;
                assert_eq!(next, schedule.at_or_before(at(1101)), "aligned");
            }
        }
    }
}
