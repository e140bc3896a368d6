//! The two lanes of background work: flushing never waits for a merge.
//!
//! Threads: one a lane. Work that fails, or panics, is logged and tried again at the next round; what it was to replace stays.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::context::Interrupt;
use crate::error::{Error, Result};
use crate::ranking::Ranking;
use crate::store::Store;

/// How often the flush lane looks at the clock and at the heads' memory.
const FLUSH_CHECK: Duration = Duration::from_secs(1);
/// How long after a flush a log that cannot be written, because the disk is full, is reason for another: it makes room.
const BLOCKED_CHECK: Duration = Duration::from_secs(10);
/// How often the merge lane looks for work.
const MERGE_CHECK: Duration = Duration::from_secs(10);

/// How long a lane that panicked rests.
const PANIC_PAUSE: Duration = Duration::from_secs(10);

/// The running lanes; they end when this is dropped.
#[derive(Debug)]
pub(crate) struct Lanes {
    stop: Arc<Stop>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Stop {
    flag: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Lanes {
    /// Starts both.
    ///
    /// # Errors
    /// If the operating system gives no thread.
    pub(crate) fn start(store: &Arc<Store>) -> io::Result<Self> {
        let mut lanes = Self { stop: Arc::default(), threads: Vec::new() };
        lanes.spawn("flush", store, flush_lane)?;
        lanes.spawn("merge", store, merge_lane)?;
        Ok(lanes)
    }

    fn spawn(&mut self, name: &str, store: &Arc<Store>, lane: fn(&Store, &Stop)) -> io::Result<()> {
        let (store, stop, name) = (Arc::clone(store), Arc::clone(&self.stop), name.to_owned());
        let builder = thread::Builder::new().name(name.clone());
        let run = move || again_after_panics(&name, &store.n_lane_panics, &stop, PANIC_PAUSE, || lane(&store, &stop));
        self.threads.push(builder.spawn(run)?);
        Ok(())
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        self.stop.flag.store(true, Ordering::Relaxed);
        // Under the lock, so that no lane is between its look at the flag and its sleep.
        drop(self.stop.lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.stop.wake.notify_all();
        for thread in self.threads.drain(..) {
            // Its panics were caught.
            let _ended = thread.join();
        }
    }
}

impl Stop {
    /// Sleeps; returns whether to go on.
    fn sleep(&self, time: Duration) -> bool {
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_set() {
            drop(self.wake.wait_timeout(guard, time));
        }
        !self.is_set()
    }

    fn is_set(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }
}

/// Runs a lane to its end. One that panics is counted and begins anew: what it was at is as after an error, and without it
/// the log would grow for ever.
fn again_after_panics(name: &str, n_panics: &AtomicU64, stop: &Stop, pause: Duration, lane: impl Fn()) {
    while catch_unwind(AssertUnwindSafe(&lane)).is_err() {
        n_panics.fetch_add(1, Ordering::Relaxed);
        tracing::error!(lane = name, "the background work panicked; it begins anew");
        if !stop.sleep(pause) {
            return;
        }
    }
}

fn flush_lane(store: &Store, stop: &Stop) {
    let options = &store.options;
    let (mut last, mut ranking) = (Instant::now(), Ranking::default());
    report("take the reserve", store.reserve.fill());
    while stop.sleep(FLUSH_CHECK.min(options.flush_interval)) {
        let is_due = last.elapsed() >= options.flush_interval
            || store.samples_size() >= options.flush_size_bytes
            || last.elapsed() >= BLOCKED_CHECK && store.is_blocked();
        // A flush would wait for the replay, and who stops the lane for both.
        if !store.replaying.is_done() {
            continue;
        }
        if !is_due {
            store.evict_late();
            report("rank series", ranking.look(store));
            continue;
        }
        report("flush the heads", flush(store));
        last = Instant::now();
    }
}

/// Flushes; on a full disk, with the room that was kept for that.
fn flush(store: &Store) -> Result<()> {
    let mut flushed = store.flush();
    if matches!(&flushed, Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::StorageFull) {
        store.reserve.release()?;
        flushed = store.flush();
    }
    flushed?;
    store.reserve.fill()
}

fn merge_lane(store: &Store, stop: &Stop) {
    while stop.sleep(MERGE_CHECK.min(store.options.flush_interval)) {
        report("merge blocks", store.compact(&stop.flag));
    }
}

fn report(what: &str, result: Result<()>) {
    match result {
        Ok(()) | Err(Error::Interrupted(Interrupt::Shutdown)) => {}
        Err(error) => tracing::error!(%error, "could not {what}; it will be tried again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_that_panics_is_counted_and_begins_anew_until_it_is_stopped() {
        let (n_panics, stop, n_runs) = (AtomicU64::new(0), Stop::default(), AtomicU64::new(0));
        let lane = || assert!(n_runs.fetch_add(1, Ordering::Relaxed) == 2, "a panic of this test");
        again_after_panics("test", &n_panics, &stop, Duration::ZERO, lane);
        assert_eq!((n_runs.load(Ordering::Relaxed), n_panics.load(Ordering::Relaxed)), (3, 2));
        stop.flag.store(true, Ordering::Relaxed);
        again_after_panics("test", &n_panics, &stop, Duration::from_secs(3600), || panic!("a panic of this test"));
        assert_eq!(n_panics.load(Ordering::Relaxed), 3);
    }
}
