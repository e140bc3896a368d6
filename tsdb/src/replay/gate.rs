//! The gate that requests pass while the WAL of a store is replayed.
//!
//! Writes are accepted once all series are known. Their samples are logged and acknowledged as
//! usual, but buffered beside the heads: a head cannot yet decide which samples are out of order.
//! After the replay, the buffered samples are applied to the heads in WAL order. Reads wait if the
//! WAL may contain samples of their range; reads of older ranges do not. Flushes wait. A start
//! timestamp is buffered with its sample. Its scope is decided when it is applied, and the WAL
//! marks it as buffered (`wal::record::start_timestamps`). Exemplars go to their ring at once.
//!
//! Used by `Store`, which owns the [`ReplayGate`], and by `background::replay`.
//!
//! Invariants
//! 1. Applying buffered samples has the same result as the next replay of the same WAL: both use
//!    [`Head::replay`](crate::head::Head::replay) and
//!    [`apply_start_timestamp`](super::apply_start_timestamp), and samples are buffered in the
//!    order in which they are logged.
//! 2. Acknowledged samples are stored, unless an earlier sample has another value for the same
//!    timestamp.
//! 3. The store switches from buffering to appending between two requests, never within one.
//! 4. No sample that is only in the WAL is older than [`ReplayGate::floor_ms`]; see [`log_floor`].
//!
//! Threads: any. After the replay, requests only read one atomic. Crash: the WAL is unchanged and
//! contains the buffered samples.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use varve_context::{Charge, Interrupt, Limit, MemoryBudget, QueryContext};
use varve_model::TimeRange;

use super::progress::{ReplayProgress, count, replay_share};
use super::stats::ReplayStats;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::shard::BUFFERED_SAMPLE_SIZE;

/// A waiting request checks its deadline and cancellation at this interval.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The replay state of a store.
#[derive(Debug)]
pub(crate) struct ReplayGate {
    pub(crate) progress: ReplayProgress,
    /// The heads contain all samples of the WAL and all buffered samples.
    is_done: AtomicBool,
    /// The store is being closed.
    pub(crate) stop: AtomicBool,
    floor_ms: AtomicI64,
    /// Memory budget of the buffered samples.
    memory: MemoryBudget,
    /// A request was rejected because `memory` is exhausted.
    is_full: AtomicBool,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug)]
struct State {
    replay: ReplayState,
    stats: ReplayStats,
    /// Memory of the buffered samples.
    buffered: Charge,
}

/// State of the replay of a WAL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplayState {
    /// The replay is running. Reads wait if the WAL may contain samples of their range.
    Running,
    /// All samples of the WAL are in the heads.
    Done,
    /// The replay failed for this reason. Reads and writes are rejected.
    Failed(String),
}

/// Progress of the replay of a store's WAL; from [`Db::replay_status`](crate::Db::replay_status).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayStatus {
    /// Whether the replay is running, done or failed.
    pub state: ReplayState,
    /// Number of files read completely.
    pub n_files: u64,
    /// Number of files of the WAL.
    pub n_files_total: u64,
    /// Bytes read.
    pub n_bytes: u64,
    /// Size of the WAL in bytes.
    pub n_bytes_total: u64,
    /// Number of samples decoded.
    pub n_samples: u64,
    /// Memory of buffered samples, in bytes.
    pub buffered_bytes: u64,
    /// Limit of [`buffered_bytes`](Self::buffered_bytes).
    pub buffered_bytes_max: u64,
    /// The progress as text, with percentages and units.
    pub text: String,
}

impl ReplayGate {
    /// Creates the gate of a replay that has not started.
    pub(crate) fn new(options: &Options) -> Self {
        let memory_max = options.wal_replay_memory_bytes - replay_share(options);
        let memory = MemoryBudget::new(
            Limit::Other("bytes of samples buffered until the WAL is replayed"),
            memory_max,
        );
        let state = State {
            replay: ReplayState::Running,
            stats: ReplayStats::default(),
            buffered: memory.charge(),
        };
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

    /// Returns `true` if the heads are complete.
    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Acquire)
    }

    /// Waits until a time range can be read. A request that accepts partial results does not wait;
    /// its context records that the result is partial.
    ///
    /// # Errors
    /// [`Error::Replaying`] if the request's deadline passes first, [`Error::ReplayFailed`] if the
    /// replay failed, [`Error::Interrupted`] if the request is canceled.
    pub(crate) fn wait_for(&self, ctx: &QueryContext, range: TimeRange) -> Result<()> {
        // Fast path: the replay has ended.
        if self.is_done() {
            return Ok(());
        }
        self.check()?;
        if range.end_ms < self.floor_ms.load(Ordering::Relaxed) {
            return Ok(());
        }
        if ctx.note_partial(|| {
            format!(
                "the WAL is being replayed, samples may be missing: {}",
                self.progress
            )
        }) {
            return Ok(());
        }
        self.wait(ctx)
    }

    /// Waits until the replay has succeeded.
    ///
    /// # Errors
    /// The errors of [`ReplayGate::wait_for`].
    pub(crate) fn wait(&self, ctx: &QueryContext) -> Result<()> {
        let mut state = self.state.lock();
        loop {
            state.check()?;
            if state.replay == ReplayState::Done {
                return Ok(());
            }
            match ctx.interrupted() {
                None => {}
                Some(Interrupt::Deadline) => {
                    return Err(Error::Replaying {
                        progress: self.progress.to_string(),
                    });
                }
                Some(reason) => return Err(Error::Interrupted(reason)),
            }
            let time = ctx
                .remaining()
                .map_or(CHECK_INTERVAL, |left| left.min(CHECK_INTERVAL));
            self.ended.wait_for(&mut state, time);
        }
    }

    /// Fails if the replay has failed.
    ///
    /// # Errors
    /// [`Error::ReplayFailed`].
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_done() {
            Ok(())
        } else {
            self.state.lock().check()
        }
    }

    /// Decides whether the samples of a request are appended or buffered. Returns `None` if they
    /// are appended, or a charge for their memory if they are buffered. Must be called within the
    /// request, so that the decision holds until the request ends.
    ///
    /// # Errors
    /// [`Error::Limit`] if the budget of buffered samples is exhausted, [`Error::ReplayFailed`].
    pub(crate) fn reserve_buffer(
        &self,
        n_samples: usize,
        histograms_size: usize,
    ) -> Result<Option<Charge>> {
        if self.is_done() {
            return Ok(None);
        }
        self.check()?;
        let mut charge = self.memory.charge();
        charge
            .grow(
                n_samples
                    .saturating_mul(BUFFERED_SAMPLE_SIZE)
                    .saturating_add(histograms_size),
            )
            .inspect_err(|_| self.is_full.store(true, Ordering::Relaxed))?;
        Ok(Some(charge))
    }

    /// Keeps the charge of samples that were buffered, except the share of `n_rejected` samples.
    pub(crate) fn retain_buffer(&self, mut charge: Charge, n_rejected: usize) {
        charge.shrink(n_rejected * BUFFERED_SAMPLE_SIZE);
        self.state.lock().buffered.absorb(charge);
    }

    /// Returns the reason why writes are rejected, or `None` if they are accepted.
    pub(crate) fn write_rejection(&self) -> Option<String> {
        if self.is_done() {
            return None;
        }
        if let ReplayState::Failed(reason) = &self.state.lock().replay {
            return Some(format!("replay of the WAL failed: {reason}"));
        }
        if !self.is_full.load(Ordering::Relaxed) {
            return None;
        }
        Some(format!(
            "the buffer for samples written during the WAL replay is full; {}",
            self.progress
        ))
    }

    /// Returns the statistics of the replay. All are zero until it ends.
    pub(crate) fn stats(&self) -> ReplayStats {
        self.state.lock().stats
    }

    /// Returns the progress.
    pub(crate) fn status(&self) -> ReplayStatus {
        ReplayStatus {
            state: self.state.lock().replay.clone(),
            n_files: count(&self.progress.n_files),
            n_files_total: count(&self.progress.n_files_total),
            n_bytes: count(&self.progress.n_bytes),
            n_bytes_total: count(&self.progress.n_bytes_total),
            n_samples: count(&self.progress.n_samples),
            buffered_bytes: self.memory.used() as u64,
            buffered_bytes_max: self.memory.limit() as u64,
            text: self.progress.to_string(),
        }
    }

    /// Admits reads of samples older than `floor_ms`. Called once all series are known.
    pub(crate) fn set_floor(&self, floor_ms: i64) {
        self.floor_ms.store(floor_ms, Ordering::Relaxed);
    }

    /// Ends a successful replay. The caller ensures that no request is in flight.
    pub(crate) fn finish(&self, stats: ReplayStats) {
        let mut state = self.state.lock();
        state.stats = stats;
        state.replay = ReplayState::Done;
        state.buffered = self.memory.charge();
        self.is_done.store(true, Ordering::Release);
        self.ended.notify_all();
    }

    /// Ends a replay that failed.
    pub(crate) fn fail(&self, reason: String) {
        self.state.lock().replay = ReplayState::Failed(reason);
        self.ended.notify_all();
    }
}

impl State {
    fn check(&self) -> Result<()> {
        match &self.replay {
            ReplayState::Failed(reason) => Err(Error::ReplayFailed {
                reason: reason.clone(),
            }),
            ReplayState::Running | ReplayState::Done => Ok(()),
        }
    }
}

/// Returns a time below which blocks contain all samples of the WAL, or `i64::MIN` if there is no
/// such bound.
///
/// The maximum age of an accepted sample is relative to the newest sample. The WAL begins at the
/// last flush, so the newest time *at that flush* counts. The newest time of the blocks may be
/// later because of an import; the newest time of the checkpoints may be later because they are
/// written shortly after the flush. The minimum of the two is never too new. New samples are
/// compared with a time up to [`Options::ahead_max_ms`] before the newest sample.
pub(crate) fn log_floor(
    options: &Options,
    in_blocks_ms: Option<i64>,
    in_checkpoints_ms: Option<i64>,
) -> i64 {
    let newest_ms = in_blocks_ms.zip(in_checkpoints_ms).map(|(a, b)| a.min(b));
    newest_ms.map_or(i64::MIN, |newest_ms| {
        newest_ms.saturating_sub(options.age_max_ms() + options.ahead_max_ms)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_is_not_above_any_sample_that_only_the_wal_contains() {
        let hour = 3_600_000;
        let options_with = |in_order_max_age_ms, out_of_order_window_ms| Options {
            in_order_max_age_ms,
            out_of_order_window_ms,
            ..Options::default()
        };
        for (options, age_ms) in [
            (options_with(3 * hour, hour), 3 * hour),
            (options_with(0, 2 * hour), 2 * hour),
            (options_with(0, 0), hour),
        ] {
            for (in_blocks, in_checkpoints, newest) in [
                (Some(10 * hour), Some(10 * hour), Some(10 * hour)),
                (Some(10 * hour), Some(11 * hour), Some(10 * hour)),
                (Some(20 * hour), Some(11 * hour), Some(11 * hour)),
                (None, Some(11 * hour), None),
                (Some(11 * hour), None, None),
                (None, None, None),
            ] {
                let expected =
                    newest.map_or(i64::MIN, |newest| newest - age_ms - options.ahead_max_ms);
                assert_eq!(
                    log_floor(&options, in_blocks, in_checkpoints),
                    expected,
                    "{in_blocks:?} {in_checkpoints:?}"
                );
            }
        }
    }
}
