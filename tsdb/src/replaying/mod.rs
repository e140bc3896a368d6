//! A store whose log is still being replayed: what may be done with it meanwhile, and the end of it.
//!
//! Once all series are known, writes are taken: samples are logged and acknowledged as always and *held* beside the heads,
//! as nobody can say yet what is older than they. When the log is through they join the heads, in the order of the log.
//! Reads of a range that the log may have samples of wait; all older ones are answered at once. Flushes wait. A start
//! timestamp is held with its sample; in which order that stands to others is left to the joining, and the log says so
//! (`wal::starts`). Exemplars need no heads: they go to their ring at once.
//!
//! Used by `Db`: [`Replaying`] is a part of the store, [`Replayer`] the thread that `run` works in.
//!
//! Invariants
//! 1. What joins the heads is what the next replay would make of the same log: joining and replaying are one function,
//!    [`Head::replay`](crate::head::Head::replay) and [`Start::replay`](crate::wal::Start::replay), and samples are held in
//!    the order in which they are logged.
//! 2. What was acknowledged is kept: only another value for a time that an earlier sample has gives way to it.
//! 3. Between two requests, and nowhere else, the store goes from holding samples to appending them.
//! 4. No sample in the log that is in no block is older than [`Replaying::floor_ms`]; see [`log_floor`].
//!
//! Threads: the replay runs in the thread of `Db::open` or in one of its own; when it has ended, all that is left of it is
//! one atomic that is read. Crash: the log is what it was, and what was held is in it.

mod held;
mod run;

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::context::{Charge, MemoryBudget, QueryContext};
use crate::error::{Error, Interrupt, Result};
use crate::options::Options;
use crate::sample::TimeRange;
use crate::wal::{ReplayProgress, ReplayStats, replay_share};

pub(crate) use held::{HELD_SIZE, Held, HeldSample};
pub(crate) use run::{Replayer, Source, replay};

/// How long a wait for the end sleeps before it looks whether its request has ended.
const WAIT: Duration = Duration::from_millis(20);

/// Where the replay of a store stands; see the module.
#[derive(Debug)]
pub(crate) struct Replaying {
    pub(crate) progress: ReplayProgress,
    /// All that the log held is in the heads, and what came meanwhile as well.
    is_done: AtomicBool,
    /// The store is being closed.
    stop: AtomicBool,
    floor_ms: AtomicI64,
    /// What the held samples may take.
    memory: MemoryBudget,
    /// A request was refused for want of that memory.
    is_full: AtomicBool,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug)]
struct State {
    replay: ReplayState,
    stats: ReplayStats,
    /// What the held samples take.
    held: Charge,
}

/// Whether the log is replayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplayState {
    /// Not yet: reads of what it may hold wait for it.
    Running,
    /// All that it held is there.
    Done,
    /// It could not be; nothing is read or written any more, for this reason.
    Failed(String),
}

/// How far the replay of a store's log is; from [`Db::replay_status`](crate::Db::replay_status).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayStatus {
    /// Whether it has ended, and how.
    pub state: ReplayState,
    /// Files of the log that were read to their end.
    pub n_files: u64,
    /// Files of the log.
    pub n_files_total: u64,
    /// Bytes of them that were read.
    pub n_bytes: u64,
    /// Bytes of them.
    pub n_bytes_total: u64,
    /// Samples that were decoded.
    pub n_samples: u64,
    /// Memory of the samples that came meanwhile.
    pub held_bytes: u64,
    /// What they may take.
    pub held_max_bytes: u64,
    /// The same for a reader, with shares and units.
    pub text: String,
}

impl Replaying {
    /// Starts a replay that knows nothing yet.
    pub(crate) fn new(options: &Options) -> Self {
        let memory_max = options.wal_replay_memory_bytes - replay_share(options);
        let memory = MemoryBudget::new("bytes of samples that wait for the end of the replay of the log", memory_max);
        let state = State { replay: ReplayState::Running, stats: ReplayStats::default(), held: memory.charge() };
        Self {
            progress: ReplayProgress::default(),
            is_done: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            floor_ms: AtomicI64::new(i64::MIN),
            memory,
            is_full: AtomicBool::new(false),
            state: Mutex::new(state),
            ended: Condvar::new(),
        }
    }

    /// Tells whether the heads have all that they should have.
    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Acquire)
    }

    /// Waits until a range of time can be read. A request that takes what is there goes on at once, and its context says
    /// so.
    ///
    /// # Errors
    /// [`Error::Replaying`] when the request's time is over before that, [`Error::ReplayFailed`],
    /// [`Error::Interrupted`] when the request is ended.
    pub(crate) fn wait_for(&self, ctx: &QueryContext, range: TimeRange) -> Result<()> {
        // Fast path: the store has been open for a while.
        if self.is_done() {
            return Ok(());
        }
        self.check()?;
        if range.end_ms < self.floor_ms.load(Ordering::Relaxed) {
            return Ok(());
        }
        if ctx.note_partial(|| format!("the log is being replayed, samples may be missing: {}", self.progress)) {
            return Ok(());
        }
        self.wait(ctx)
    }

    /// Waits until the replay has ended well.
    ///
    /// # Errors
    /// As [`Replaying::wait_for`].
    pub(crate) fn wait(&self, ctx: &QueryContext) -> Result<()> {
        let mut state = self.state();
        loop {
            state.check()?;
            if state.replay == ReplayState::Done {
                return Ok(());
            }
            match ctx.interrupted() {
                None => {}
                Some(Interrupt::Deadline) => return Err(Error::Replaying { progress: self.progress.to_string() }),
                Some(reason) => return Err(Error::Interrupted(reason)),
            }
            let time = ctx.remaining().map_or(WAIT, |left| left.min(WAIT));
            state = self.ended.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Fails if the replay has.
    ///
    /// # Errors
    /// [`Error::ReplayFailed`].
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_done() { Ok(()) } else { self.state().check() }
    }

    /// Decides what becomes of the samples of a request: `None` if they are appended, memory for them if they are held.
    /// Asked within the request, so that the answer holds until its end.
    ///
    /// # Errors
    /// [`Error::Limit`] if there is no memory for them, [`Error::ReplayFailed`].
    pub(crate) fn hold(&self, n_samples: usize, histograms_size: usize) -> Result<Option<Charge>> {
        if self.is_done() {
            return Ok(None);
        }
        self.check()?;
        let mut charge = self.memory.charge();
        charge
            .grow(n_samples.saturating_mul(HELD_SIZE).saturating_add(histograms_size))
            .inspect_err(|_| self.is_full.store(true, Ordering::Relaxed))?;
        Ok(Some(charge))
    }

    /// Keeps the memory of samples that are held now, but for the places of those that were refused.
    pub(crate) fn keep(&self, mut charge: Charge, n_refused: usize) {
        charge.shrink(n_refused * HELD_SIZE);
        self.state().held.absorb(charge);
    }

    /// Returns why writes are refused; `None` while all is well.
    pub(crate) fn write_refusal(&self) -> Option<String> {
        if self.is_done() {
            return None;
        }
        if let ReplayState::Failed(reason) = &self.state().replay {
            return Some(format!("the log could not be replayed: {reason}"));
        }
        let full = || format!("the memory for samples that wait for the replay of the log is full; {}", self.progress);
        self.is_full.load(Ordering::Relaxed).then(full)
    }

    /// Returns what the replay found; nothing before its end.
    pub(crate) fn stats(&self) -> ReplayStats {
        self.state().stats
    }

    /// Returns how far it is.
    pub(crate) fn status(&self) -> ReplayStatus {
        ReplayStatus {
            state: self.state().replay.clone(),
            n_files: self.progress.n_files(),
            n_files_total: self.progress.n_files_total(),
            n_bytes: self.progress.n_bytes(),
            n_bytes_total: self.progress.n_bytes_total(),
            n_samples: self.progress.n_samples(),
            held_bytes: self.memory.used() as u64,
            held_max_bytes: self.memory.limit() as u64,
            text: self.progress.to_string(),
        }
    }

    /// Lets reads of older samples through, from when all series are known.
    fn set_floor(&self, floor_ms: i64) {
        self.floor_ms.store(floor_ms, Ordering::Relaxed);
    }

    /// Ends the replay well. No request is in flight.
    fn finish(&self, stats: ReplayStats) {
        let mut state = self.state();
        state.stats = stats;
        state.replay = ReplayState::Done;
        state.held = self.memory.charge();
        self.is_done.store(true, Ordering::Release);
        self.ended.notify_all();
    }

    fn fail(&self, reason: String) {
        self.state().replay = ReplayState::Failed(reason);
        self.ended.notify_all();
    }

    // Under the lock fields are replaced by whole values: they are sound after a panic.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn check(&self) -> Result<()> {
        match &self.replay {
            ReplayState::Failed(reason) => Err(Error::ReplayFailed { reason: reason.clone() }),
            ReplayState::Running | ReplayState::Done => Ok(()),
        }
    }
}

/// Returns a time such that all older samples of the log are in blocks as well; `i64::MIN` if nothing can be said.
///
/// A sample is accepted if it is at most so much older than the newest one. The log goes back to the last flush, and the
/// newest time *then* is what counts: that of the blocks would be it, had no import brought newer samples; that of the
/// checkpoints would be it, were it not written a little later. The lesser of the two is never too new.
fn log_floor(options: &Options, in_blocks_ms: Option<i64>, in_checkpoints_ms: Option<i64>) -> i64 {
    let newest_ms = in_blocks_ms.zip(in_checkpoints_ms).map(|(a, b)| a.min(b));
    newest_ms.map_or(i64::MIN, |newest_ms| newest_ms.saturating_sub(options.age_max_ms()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_is_as_old_as_anything_that_may_be_in_the_log() {
        let hour = 3_600_000;
        let of = |in_order_max_age_ms, out_of_order_window_ms| Options {
            in_order_max_age_ms,
            out_of_order_window_ms,
            ..Options::default()
        };
        for (options, age_ms) in [(of(3 * hour, hour), 3 * hour), (of(0, 2 * hour), 2 * hour), (of(0, 0), hour)] {
            for (in_blocks, in_checkpoints, newest) in [
                (Some(10 * hour), Some(10 * hour), Some(10 * hour)),
                (Some(10 * hour), Some(11 * hour), Some(10 * hour)),
                (Some(20 * hour), Some(11 * hour), Some(11 * hour)),
                (None, Some(11 * hour), None),
                (Some(11 * hour), None, None),
                (None, None, None),
            ] {
                let expected = newest.map_or(i64::MIN, |newest| newest - age_ms);
                assert_eq!(
                    log_floor(&options, in_blocks, in_checkpoints),
                    expected,
                    "{in_blocks:?} {in_checkpoints:?}"
                );
            }
        }
    }
}
