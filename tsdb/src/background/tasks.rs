//! The background tasks of a store: flushing, merging and syncing the WAL. A flush never waits for
//! a merge.
//!
//! Threads: one per task, and one for each flush and each round of merges. Work that fails or
//! panics is logged and retried in the next round; the files it was to replace remain.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use varve_context::Interrupt;

use super::label_order::LabelOrder;
use crate::error::{Error, Result};
use crate::store::Store;

/// Interval at which the flush task checks the clock, the memory of the heads, and whether to rank
/// series.
const FLUSH_CHECK: Duration = Duration::from_millis(100);
/// Minimum time between flushes because of the memory of the heads: a flush may fail at once.
const SIZE_FLUSH_INTERVAL: Duration = Duration::from_secs(1);
/// Number of flush intervals by which senders may move forward in the time of their samples before
/// the heads are flushed. A sender of live samples stays below it.
const SENT_INTERVALS_MAX: i64 = 2;
/// Minimum size of samples in the heads that are flushed because senders moved forward in time.
const SENT_FLUSH_SIZE_MIN: usize = 32 << 20;
/// Minimum time between flushes while a full disk blocks the WAL. A flush frees space.
const BLOCKED_CHECK: Duration = Duration::from_secs(10);
/// Interval at which the merge task checks for due merges.
const MERGE_CHECK: Duration = Duration::from_secs(10);
/// Pause before a task that panicked restarts.
const PANIC_PAUSE: Duration = Duration::from_secs(10);

/// Interval between syncs. A power cut loses at most the samples of one interval under
/// [`WalSync::Interval`](crate::WalSync::Interval).
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// The running tasks. Dropping it stops them and waits for their threads.
#[derive(Debug, Default)]
pub(crate) struct BackgroundTasks {
    stop: Arc<Stop>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
pub(super) struct Stop {
    flag: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

impl BackgroundTasks {
    /// Starts the tasks that flush and merge.
    ///
    /// # Errors
    /// If the operating system cannot create a thread.
    pub(crate) fn start(store: &Arc<Store>) -> io::Result<Self> {
        let mut tasks = Self::default();
        tasks.spawn("flush", store, flush_task)?;
        tasks.spawn("merge", store, merge_task)?;
        Ok(tasks)
    }

    /// Starts the task that syncs the WAL. It is stopped after the other tasks.
    ///
    /// # Errors
    /// If the operating system cannot create a thread.
    pub(crate) fn start_wal_sync(store: &Arc<Store>) -> io::Result<Self> {
        let mut tasks = Self::default();
        tasks.spawn("sync", store, wal_sync_task)?;
        Ok(tasks)
    }

    fn spawn(&mut self, name: &str, store: &Arc<Store>, task: fn(&Store, &Stop)) -> io::Result<()> {
        let store = Arc::clone(store);
        let stop = Arc::clone(&self.stop);
        let name = name.to_owned();
        let builder = thread::Builder::new().name(name.clone());
        let run = move || {
            restart_after_panics(
                &name,
                &store.n_background_panics,
                &stop,
                PANIC_PAUSE,
                || task(&store, &stop),
            )
        };
        self.threads.push(builder.spawn(run)?);
        Ok(())
    }
}

impl Drop for BackgroundTasks {
    fn drop(&mut self) {
        self.stop.flag.store(true, Ordering::Relaxed);
        // Acquires the lock, so that no task is between its check of the flag and its sleep.
        drop(self.stop.lock.lock());
        self.stop.wake.notify_all();
        for thread in self.threads.drain(..) {
            // Panics of the task were caught.
            let _joined = thread.join();
        }
    }
}

impl Stop {
    /// Sleeps. Returns `true` if the task must continue.
    pub(super) fn sleep(&self, time: Duration) -> bool {
        let mut guard = self.lock.lock();
        if !self.is_set() {
            self.wake.wait_for(&mut guard, time);
        }
        !self.is_set()
    }

    fn is_set(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }
}

/// Runs a task until it is stopped. Counts a panic and restarts the task. The state is the same as
/// after an error, and without the task the WAL would grow without bound.
fn restart_after_panics(
    name: &str,
    n_panics: &AtomicU64,
    stop: &Stop,
    pause: Duration,
    task: impl Fn(),
) {
    while catch_unwind(AssertUnwindSafe(&task)).is_err() {
        n_panics.fetch_add(1, Ordering::Relaxed);
        tracing::error!(task = name, "a background task panicked; restarting it");
        if stop.is_set() {
            return;
        }
        // A task that is stopped during the pause runs once more, for the last sync of the WAL.
        stop.sleep(pause);
    }
}

fn flush_task(store: &Store, stop: &Stop) {
    let options = &store.options;
    let mut last = Instant::now();
    let mut backfill = Backfill::default();
    let mut label_order = LabelOrder::default();
    report("allocate the disk reserve", store.reserve.fill());
    while stop.sleep(FLUSH_CHECK.min(options.flush_interval)) {
        backfill.observe(store);
        let is_due = last.elapsed() >= options.flush_interval
            || last.elapsed() >= SIZE_FLUSH_INTERVAL
                && (store.samples_size() >= options.flush_size_bytes || backfill.is_due(store))
            || last.elapsed() >= BLOCKED_CHECK && store.is_blocked();
        // A flush would wait for the replay, and stopping the task for both.
        if !store.replay.is_done() {
            continue;
        }
        if !is_due {
            store.evict_deferred();
            report("rank series", label_order.update(store));
            continue;
        }
        backfill.begin_flush(store);
        let flushed = on_new_thread(|| store.flush_with_reserve());
        if flushed
            .as_ref()
            .is_err_and(|error| !matches!(error, Error::Interrupted(_)))
        {
            store.compaction_stats.lock().n_failed += 1;
        }
        report("flush the heads", flushed);
        last = Instant::now();
    }
}

/// Detects senders that write the past faster than time passes. Without a flush, the heads would
/// keep all they send within an interval of the clock: days of samples.
#[derive(Debug, Default)]
struct Backfill {
    /// The newest timestamp of senders at the last flush, or when it was first known.
    flushed_ms: Option<i64>,
}

impl Backfill {
    /// Records the first samples of senders.
    fn observe(&mut self, store: &Store) {
        self.flushed_ms = self.flushed_ms.or_else(|| store.newest.sent());
    }

    /// Returns `true` if senders have moved by [`SENT_INTERVALS_MAX`] since the last flush.
    fn is_due(&self, store: &Store) -> bool {
        let Some(flushed_ms) = self.flushed_ms else {
            return false;
        };
        let sent_ms = store.newest.sent().unwrap_or(flushed_ms);
        let interval_ms = store.options.flush_interval.as_millis();
        let interval_ms = i64::try_from(interval_ms).unwrap_or(i64::MAX);
        sent_ms.saturating_sub(flushed_ms) >= interval_ms.saturating_mul(SENT_INTERVALS_MAX)
            && store.samples_size() >= SENT_FLUSH_SIZE_MIN
    }

    /// Records the start of a flush.
    fn begin_flush(&mut self, store: &Store) {
        self.flushed_ms = store.newest.sent();
    }
}

fn merge_task(store: &Store, stop: &Stop) {
    while stop.sleep(MERGE_CHECK.min(store.options.flush_interval)) {
        report("merge blocks", on_new_thread(|| store.compact(&stop.flag)));
    }
}

/// Runs work on a thread that ends with it. The allocator then returns the thread's empty pages,
/// and other threads fill the rest. A thread that lives on would keep them until its next work.
fn on_new_thread<T: Send>(work: impl Fn() -> T + Sync) -> T {
    let name = thread::current().name().unwrap_or_default().to_owned();
    thread::scope(
        |scope| match thread::Builder::new().name(name).spawn_scoped(scope, &work) {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            // The operating system cannot create a thread.
            Err(_) => work(),
        },
    )
}

fn report(what: &str, result: Result<()>) {
    match result {
        Ok(()) | Err(Error::Interrupted(Interrupt::Shutdown)) => {}
        Err(error) => tracing::error!(%error, "could not {what}; retrying in the next round"),
    }
}

/// Syncs all logs at intervals, and a last time when the task is stopped. Also commits records left
/// behind by requests that failed halfway.
fn wal_sync_task(store: &Store, stop: &Stop) {
    while stop.sleep(SYNC_INTERVAL) {
        sync_all(store);
    }
    sync_all(store);
}

fn sync_all(store: &Store) {
    for shared_log in &store.logs {
        let log = shared_log.log();
        // Requests report failures: the next append retries on a full disk, and a failed sync has
        // been logged and fails every later append.
        let _reported = log.commit(log.end()).and_then(|()| log.sync());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_runs_on_a_new_thread_of_the_same_name_and_its_panic_returns() {
        let task = || {
            let before = thread::current().id();
            let (name, id) = on_new_thread(|| {
                (
                    thread::current().name().map(str::to_owned),
                    thread::current().id(),
                )
            });
            assert!(name.as_deref() == Some("task") && id != before);
            let failed = catch_unwind(|| on_new_thread(|| panic!("a panic of this test")));
            assert_eq!(
                failed.unwrap_err().downcast_ref(),
                Some(&"a panic of this test")
            );
        };
        thread::Builder::new()
            .name("task".to_owned())
            .spawn(task)
            .unwrap()
            .join()
            .unwrap();
    }

    #[test]
    fn a_task_that_panics_is_counted_and_restarted_until_it_is_stopped() {
        let n_panics = AtomicU64::new(0);
        let stop = Stop::default();
        let n_runs = AtomicU64::new(0);
        let task = || {
            assert!(
                n_runs.fetch_add(1, Ordering::Relaxed) == 2,
                "a panic of this test"
            )
        };
        restart_after_panics("test", &n_panics, &stop, Duration::ZERO, task);
        assert_eq!(
            (
                n_runs.load(Ordering::Relaxed),
                n_panics.load(Ordering::Relaxed)
            ),
            (3, 2)
        );
        stop.flag.store(true, Ordering::Relaxed);
        restart_after_panics("test", &n_panics, &stop, Duration::from_secs(3600), || {
            panic!("a panic of this test")
        });
        assert_eq!(n_panics.load(Ordering::Relaxed), 3);
    }
}
