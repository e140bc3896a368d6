//! The evaluation loop: one thread decides which groups are due, a bounded number of threads
//! evaluates them.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::MutexGuard;
use varve_rules::plan::{Plan, Waiting};
use varve_rules::{Group, Time};

use super::agenda::{Agenda, Job, SLEEP_MAX};
use super::state::{Live, Rules, now};
use super::storage::RuleStorage;
use crate::store::Store;

/// Pause before staleness markers of removed groups are written again after a failure.
const REMOVAL_RETRY: Duration = Duration::from_secs(10);
/// Deadline of a query while the series of removed groups are ended.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(1);

/// Starts the threads of the loop.
///
/// # Errors
/// The system cannot start a thread.
pub fn start(rules: &Arc<Rules>, store: &Arc<Store>) -> io::Result<()> {
    let spawn = |name: &str, work: fn(&Rules, &Store)| {
        let rules = Arc::clone(rules);
        let store = Arc::clone(store);
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || work(&rules, &store))
    };
    let mut threads = vec![spawn("rules", schedule)?];
    for _ in 0..rules.options.concurrency.get() {
        threads.push(spawn("rule-group", work)?);
    }
    *rules.threads.lock() = threads;
    Ok(())
}

/// Decides which groups are due, until the rules are stopped.
fn schedule(rules: &Rules, store: &Store) {
    while !rules.is_stopping() {
        let checked = unless_panicked(|| check_groups(rules, store));
        let (mut agenda, sleep) = checked.unwrap_or_else(|| (rules.agenda.lock(), SLEEP_MAX));
        rules.changed.wait_for(&mut agenda, sleep);
    }
}

/// One round of the scheduler: plans the catch-up of new groups, ends removed groups, resends the
/// alerts of groups that catch up, and queues what is due. Returns the locked agenda, and the time
/// until the next round.
fn check_groups<'a>(rules: &'a Rules, store: &Store) -> (MutexGuard<'a, Agenda>, Duration) {
    let live = rules.live();
    plan_catch_up(rules, store, &live);
    let now = now();
    end_removed_groups(rules, store, now);
    resend_while_catching_up(rules, store, &live, now);

    let mut agenda = rules.agenda.lock();
    let next_at = agenda.enqueue_due(
        Waiting {
            lags: &rules.lags,
            max_wait: live.max_wait,
        },
        now,
    );
    if !agenda.queue.is_empty() {
        rules.changed.notify_all();
    }
    (agenda, next_at.since(now).max(Duration::from_millis(1)))
}

/// Sends the firing alerts of groups that catch up again: their evaluations are of past times.
fn resend_while_catching_up(rules: &Rules, store: &Store, live: &Live, now: Time) {
    let catching_up = rules.agenda.lock().catching_up();
    for group in catching_up {
        let storage = RuleStorage::new(rules, store, group.schedule().interval());
        group.resend(now, &storage, &live.settings);
    }
}

/// Returns the value of `run`, or `None` if it panics. A panic outside a rule, which the hook logs,
/// must not end a thread.
fn unless_panicked<T>(run: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(run)).ok()
}

/// Lets new groups begin with the evaluations that they missed during an outage.
fn plan_catch_up(rules: &Rules, store: &Store, live: &Live) {
    let new_groups = rules.agenda.lock().new_groups();
    for group in new_groups {
        if rules.is_stopping() {
            return;
        }
        let last = continue_group(rules, store, live, &group, now());
        let mut agenda = rules.agenda.lock();
        let Some(planned) = agenda.planned(&group) else {
            continue;
        };
        planned.is_new = false;
        if let Some(last) = last {
            // Reading the store may have taken long.
            planned.plan = Plan::catch_up(*group.schedule(), last, now());
        }
    }
}

/// Loads the alerts that were active before an outage into a group. Returns the evaluation after
/// which the group continues, or `None` if there is nothing to catch up.
fn continue_group(
    rules: &Rules,
    store: &Store,
    live: &Live,
    group: &Group,
    now: Time,
) -> Option<Time> {
    let longest = rules.options.catch_up;
    if longest.is_zero() {
        return None;
    }
    let storage = RuleStorage::new(rules, store, group.schedule().interval());
    let found = group.last_stored(now, longest, &storage, &live.settings);
    let result = found.and_then(|newest| {
        // If there is a gap, the newest evaluation before it may be incomplete, so it is repeated.
        let schedule = group.schedule();
        let Some(newest) = newest else {
            return Ok(None);
        };
        let last = if schedule.after(newest) <= now {
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

fn end_removed_groups(rules: &Rules, store: &Store, now: Time) {
    let due = rules.agenda.lock().take_removed(now);
    let storage = RuleStorage::new(rules, store, REMOVAL_TIMEOUT);
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
        rules.agenda.lock().retry_removed(failed);
    }
}

/// Runs evaluations, until the rules are stopped.
fn work(rules: &Rules, store: &Store) {
    while let Some(job) = take(rules) {
        let live = rules.live();
        let _permit = rules.evaluation_threads.acquire();
        rules
            .metrics
            .note_start(job.mode, job.is_incomplete, now().since(job.tick));
        let storage = RuleStorage::new(rules, store, job.group.schedule().interval());
        let iteration = unless_panicked(|| {
            job.group
                .evaluate(job.tick, job.mode, &storage, &live.settings)
        });
        if let Some(iteration) = iteration {
            rules.metrics.note_end(&iteration);
        }
        rules.agenda.lock().done(&job);
        rules.changed.notify_all();
    }
}

/// Takes the next evaluation from the queue. Returns `None` when the rules are stopped.
fn take(rules: &Rules) -> Option<Job> {
    let mut agenda = rules.agenda.lock();
    loop {
        if rules.is_stopping() {
            return None;
        }
        if let Some(job) = agenda.queue.pop_front() {
            return Some(job);
        }
        rules.changed.wait_for(&mut agenda, SLEEP_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_does_not_end_the_loop() {
        assert_eq!(unless_panicked(|| 1), Some(1));
        assert_eq!(
            unless_panicked(|| -> i32 { panic!("as the test wants") }),
            None
        );
    }
}
