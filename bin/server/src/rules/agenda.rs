//! The agenda: groups with their plans, which evaluations are due, and in which order.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use varve_rules::plan::{Next, Plan, Waiting};
use varve_rules::{Group, Mode, RemovedGroup, RuleSet, Time};

/// Maximum time until the next check. It is short because the wall clock may be set meanwhile.
pub(super) const SLEEP_MAX: Duration = Duration::from_secs(1);

/// Groups with their plans, and the evaluations that wait for a thread.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    is_loaded: bool,
    /// Groups by file and name.
    by_key: BTreeMap<(Arc<str>, String), PlannedGroup>,
    /// Series of removed groups that still need staleness markers.
    removed: Vec<RemovedGroup>,
    /// At most one per group.
    pub(super) queue: VecDeque<Job>,
}

/// A group with its plan.
#[derive(Debug)]
pub(super) struct PlannedGroup {
    group: Arc<Group>,
    pub(super) plan: Plan,
    /// `true` while an evaluation is queued or running.
    is_busy: bool,
    /// `true` until the loop has looked for missed evaluations of an outage.
    pub(super) is_new: bool,
}

/// An evaluation to run.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) group: Arc<Group>,
    pub(super) tick: Time,
    pub(super) mode: Mode,
    pub(super) is_incomplete: bool,
}

impl Agenda {
    pub(super) fn is_loaded(&self) -> bool {
        self.is_loaded
    }

    /// Replaces the groups. Plans of groups that stay the same, or only change their rules,
    /// continue.
    pub(super) fn replace(&mut self, set: &RuleSet, removed: Vec<RemovedGroup>, now: Time) {
        let mut old = std::mem::take(&mut self.by_key);
        for group in set.groups() {
            let key = (Arc::clone(&group.file), group.name().to_owned());
            let planned = match old.remove(&key) {
                Some(same) if Arc::ptr_eq(&same.group, group) => same,
                Some(changed) => PlannedGroup {
                    plan: changed.plan.succeed(
                        *group.schedule(),
                        changed.group.status().last_tick,
                        now,
                    ),
                    group: Arc::clone(group),
                    is_busy: false,
                    is_new: changed.is_new,
                },
                None => PlannedGroup {
                    plan: Plan::new(*group.schedule(), now),
                    group: Arc::clone(group),
                    is_busy: false,
                    is_new: !self.is_loaded,
                },
            };
            self.by_key.insert(key, planned);
        }
        self.queue.retain(|job| !job.group.is_stopped());
        self.removed.extend(removed);
        self.is_loaded = true;
    }

    /// Queues all evaluations that are due. Returns the time of the next check.
    ///
    /// A rule may read what a rule of another group has recorded. So groups that catch up run in
    /// the order of their evaluation times, whatever their intervals are.
    pub(super) fn enqueue_due(&mut self, waiting: Waiting<'_>, now: Time) -> Time {
        let mut next_at = now + SLEEP_MAX;
        let mut groups: Vec<_> = self
            .by_key
            .values_mut()
            .filter(|planned| !planned.is_new && !planned.group.is_stopped())
            .collect();
        groups.sort_by_key(|planned| planned.plan.catch_up_tick());
        // The first evaluation that later ones wait for.
        let mut first = None;
        for planned in groups {
            let tick = planned.plan.catch_up_tick();
            if first.is_some() && tick > first {
                break;
            }
            if !planned.is_busy {
                next_at = next_at.min(planned.enqueue_due(&mut self.queue, waiting, now));
            }
            if planned.is_busy || planned.plan.catch_up_tick().is_some() {
                first = tick;
            }
        }
        next_at
    }

    /// Notes the end of an evaluation. If the group was stopped, it is unknown whether it ran, and
    /// [`Plan::succeed`] decides.
    pub(super) fn done(&mut self, job: &Job) {
        if let Some(planned) = self
            .planned(&job.group)
            .filter(|planned| !planned.group.is_stopped())
        {
            planned.plan.done(job.tick);
            planned.is_busy = false;
        }
    }

    /// Returns a group with its plan, unless a reload has replaced it.
    pub(super) fn planned(&mut self, group: &Arc<Group>) -> Option<&mut PlannedGroup> {
        let key = (Arc::clone(&group.file), group.name().to_owned());
        self.by_key
            .get_mut(&key)
            .filter(|planned| Arc::ptr_eq(&planned.group, group))
    }

    /// Returns the groups that still have to catch up evaluations.
    pub(super) fn catching_up(&self) -> Vec<Arc<Group>> {
        let catching_up = self
            .by_key
            .values()
            .filter(|planned| planned.plan.catch_up_tick().is_some());
        catching_up
            .map(|planned| Arc::clone(&planned.group))
            .collect()
    }

    /// Returns the groups for which the loop has not looked for missed evaluations yet.
    pub(super) fn new_groups(&self) -> Vec<Arc<Group>> {
        let new = self.by_key.values().filter(|planned| planned.is_new);
        new.map(|planned| Arc::clone(&planned.group)).collect()
    }

    /// Takes the removed groups whose staleness markers are due.
    pub(super) fn take_removed(&mut self, now: Time) -> Vec<RemovedGroup> {
        let (due, later) = std::mem::take(&mut self.removed)
            .into_iter()
            .partition(|group| group.due <= now);
        self.removed = later;
        due
    }

    /// Keeps removed groups whose staleness markers could not be written.
    pub(super) fn retry_removed(&mut self, groups: Vec<RemovedGroup>) {
        self.removed.extend(groups);
    }
}

impl PlannedGroup {
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

#[cfg(test)]
mod tests {
    use varve_rules::arrival::Lags;
    use varve_rules::file::{self, Options};
    use varve_rules::{AlertsMax, GroupSettings, RestoreOptions};

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

    /// Reads a group into the agenda, as a reload does. Returns the new set.
    fn reload(agenda: &mut Agenda, old: &RuleSet, group: &str, now: Time) -> RuleSet {
        let (set, removed) = apply(old, group, now);
        agenda.replace(&set, removed, now);
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
        let settings = GroupSettings {
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

    /// Queues what is due at `now`, and takes the first evaluation.
    fn due(agenda: &mut Agenda, now: Time) -> Option<Job> {
        agenda.enqueue_due(
            Waiting {
                lags: &Lags::default(),
                max_wait: None,
            },
            now,
        );
        agenda.queue.pop_front()
    }

    /// Returns an agenda with a group that has nothing to catch up.
    fn loaded(group: &str, now: Time) -> (Agenda, RuleSet) {
        let mut agenda = Agenda {
            is_loaded: true,
            ..Agenda::default()
        };
        let set = reload(&mut agenda, &RuleSet::default(), group, now);
        (agenda, set)
    }

    #[test]
    fn groups_catch_up_in_the_order_of_their_evaluations() {
        let groups = "{name: slow, interval: 10s, rules: [{record: b, expr: a}]}, \
                      {name: fast, interval: 1s, rules: [{record: a, expr: m}]}";
        let (mut agenda, _set) = loaded(groups, at(1000));
        for planned in agenda.by_key.values_mut() {
            let schedule = *planned.group.schedule();
            planned.plan = Plan::catch_up(schedule, schedule.at_or_before(at(1000)), at(1060));
        }
        let mut ticks = Vec::new();
        let now = at(1080);
        while let Some(job) = due(&mut agenda, now) {
            // Both may run at the same time only if their evaluations have one timestamp.
            assert!(agenda.queue.iter().all(|other| other.tick == job.tick));
            ticks.push(job.tick);
            ticks.extend(agenda.queue.iter().map(|other| other.tick));
            for job in [job].into_iter().chain(std::mem::take(&mut agenda.queue)) {
                agenda.done(&job);
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
        let (mut agenda, _set) = loaded(&groups.join(", "), at(1000));
        for planned in agenda.by_key.values_mut() {
            let schedule = *planned.group.schedule();
            planned.plan = Plan::catch_up(schedule, schedule.at_or_before(at(1000)), at(1000));
        }
        assert!(due(&mut agenda, at(1000)).is_none());
        assert!(agenda.catching_up().is_empty());
    }

    #[test]
    fn the_successor_repeats_an_evaluation_that_a_reload_prevents() {
        let [group, changed, slower] = GROUPS;
        for (successor, repeats) in [(changed, true), (slower, false)] {
            let (mut agenda, set) = loaded(group, at(1000));
            let job = due(&mut agenda, at(1030)).unwrap();
            let (set, removed) = apply(&set, successor, at(1030));
            agenda.done(&job);
            assert!(due(&mut agenda, at(1065)).is_none(), "the group is stopped");
            agenda.replace(&set, removed, at(1030));
            let next = due(&mut agenda, at(1031)).map(|job| job.tick);
            assert_eq!(next, repeats.then_some(job.tick));
            if !repeats {
                let schedule = *set.groups().next().unwrap().schedule();
                let next = due(&mut agenda, at(1101)).unwrap().tick;
                assert_eq!(next, schedule.at_or_before(at(1101)), "aligned");
            }
        }
    }
}
