//! Running the replay of a store: definitions, samples, then what came meanwhile.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use rayon::ThreadPool;
use rayon::prelude::*;

use super::log_floor;
use crate::error::{Error, Interrupt, Result};
use crate::head::{Bounds, Replayed};
use crate::shard::Shard;
use crate::store::Store;
use crate::wal::{Epoch, Replay, ReplayStats, Start, Target, gathered_bytes, replay_share, replay_workers};

/// Numbers that are left out before the first series that is made during a replay. A sample whose definition was lost may
/// name one of them, which is known only when the sample is read: another series with its number would take it over at
/// the next replay.
const REFS_LEFT_OUT: u64 = 1 << 32;
/// The highest number of a series that is believed: there is always a next one.
const REF_MAX: u64 = u64::MAX / 2;
/// More exemplars than fit into a file of the log.
const EXEMPLARS_OF_FILE: u64 = 1 << 32;
/// Numbers of files that are counted, so that numbers of exemplars stay far from their end.
const EXEMPLARS_FILES_MAX: u64 = 1 << 30;
/// Times that what is held is moved to the heads while more comes, at most.
const ROUNDS_MAX: usize = 16;
/// Pieces that are few enough to be moved while appends wait: some milliseconds.
const PIECES_LAST: usize = 16;

/// Where the log to replay is.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) wal_dir: PathBuf,
    /// Oldest first.
    pub(crate) epochs: Vec<Epoch>,
    /// The folder for damaged bytes.
    pub(crate) quarantine: PathBuf,
}

/// Replays the log of a store that nobody else uses until `defined` is called; from then on it takes writes.
///
/// # Errors
/// As [`Replay::definitions`]; [`Error::Interrupted`] if the store is closed meanwhile. Samples that are held then are
/// in the log and come with the next replay.
pub(crate) fn replay(store: &Store, source: &Source, defined: impl FnOnce()) -> Result<()> {
    let metadata = Mutex::default();
    let share = replay_share(&store.options);
    let n_workers = replay_workers(store.options.wal_replay_concurrency, share);
    let target = Target {
        shards: &store.shards,
        metadata: &metadata,
        exemplars: &store.exemplars,
        quarantine: &source.quarantine,
        fs: &*store.options.fs,
        on_corruption: store.options.wal_on_corruption,
        gathered_bytes: gathered_bytes(n_workers, share),
        progress: &store.replaying.progress,
        newest_ms: &store.newest_ms,
        stop: &store.replaying.stop,
    };
    let pool = pool(n_workers)?;
    let replay = pool.install(|| Replay::definitions(&source.wal_dir, &source.epochs, &target))?;
    let first_free = check_next_ref(replay.next_ref())?;
    let first_new = first_free.saturating_add(REFS_LEFT_OUT);
    *store.known_metadata() = Arc::new(std::mem::take(&mut *metadata.lock().unwrap_or_else(PoisonError::into_inner)));
    store.next_ref.store(first_new, Ordering::SeqCst);
    note_times(store);
    if store.options.wal_replay_in_background {
        store.exemplars.skip_to(first_exemplar(&replay));
    }
    defined();
    let (stats, next_ref) = pool.install(|| replay.samples())?;
    let next_ref = check_next_ref(next_ref)?;
    // As long as no series was made, no number need be left out.
    let unused = store.next_ref.compare_exchange(first_new, next_ref, Ordering::SeqCst, Ordering::SeqCst);
    if unused.is_err() {
        store.next_ref.fetch_max(next_ref, Ordering::SeqCst);
    }
    pool.install(|| join(store, stats));
    Ok(())
}

/// Refuses logs that leave no numbers for new series: those would wrap, and be given twice.
fn check_next_ref(next_ref: u64) -> Result<u64> {
    let what = "numbers of series that the log names";
    if next_ref > REF_MAX { Err(Error::Limit { what, used: next_ref, limit: REF_MAX }) } else { Ok(next_ref) }
}

/// Returns a number for the next exemplar that no exemplar of the log has, though that has not been read yet.
///
/// The numbers of exemplars stay below that of the files that there ever were times [`EXEMPLARS_OF_FILE`]: a process
/// begins where the one before it left off, or here; a file has fewer exemplars than that; and whoever took one has left a
/// file. Those of an earlier number of shards count until they go; by then checkpoints have the newest exemplars.
fn first_exemplar(replay: &Replay<'_>) -> u64 {
    replay.n_samples_files_ever().min(EXEMPLARS_FILES_MAX) * EXEMPLARS_OF_FILE
}

fn pool(n_threads: usize) -> Result<ThreadPool> {
    let built = rayon::ThreadPoolBuilder::new().num_threads(n_threads).thread_name(|i| format!("replay-{i}")).build();
    built.map_err(|e| Error::Options(format!("{n_threads} replay threads: {e}")))
}

/// Takes from checkpoints and blocks how new the store's samples are at least, and which are in no log.
fn note_times(store: &Store) {
    let in_checkpoints_ms = store.heads_newest_ms();
    let in_blocks_ms = store.blocks.metas().iter().map(|meta| meta.range.end_ms).max();
    in_checkpoints_ms.into_iter().chain(in_blocks_ms).for_each(|newest_ms| store.raise_newest(newest_ms));
    store.replaying.set_floor(log_floor(&store.options, in_blocks_ms, in_checkpoints_ms));
}

/// Moves what was held into the heads and ends the replay. Appends go on meanwhile; what is left then moves while they
/// wait.
fn join(store: &Store, mut stats: ReplayStats) {
    // What was held has raised the newest time of the store: what the log says is to be seen in the heads.
    let in_blocks_ms = store.blocks.metas().iter().map(|meta| meta.range.end_ms).max();
    let bounds = Bounds { newest_ms: store.heads_newest_ms().max(in_blocks_ms), ..store.bounds() };
    let join = |shard| Join { shard, bounds, start_ms: 0, stats: ReplayStats::default() };
    let mut joins: Vec<Join<'_>> = store.shards.iter().map(join).collect();
    for _ in 0..ROUNDS_MAX {
        let n_pieces: usize = joins.par_iter_mut().map(Join::round).sum();
        if n_pieces <= PIECES_LAST {
            break;
        }
    }
    let _pause = store.isolation.pause();
    joins.par_iter_mut().for_each(|join| {
        join.round();
    });
    joins.iter().for_each(|join| stats.add(join.stats));
    store.replaying.finish(stats);
}

/// What was held beside a shard on its way into the head.
struct Join<'a> {
    shard: &'a Shard,
    bounds: Bounds,
    /// The start timestamp of the next sample.
    start_ms: i64,
    stats: ReplayStats,
}

impl Join<'_> {
    /// Moves what is there now; returns how many pieces that were.
    fn round(&mut self) -> usize {
        let n_pieces = self.shard.held().n_pieces();
        for _ in 0..n_pieces {
            let piece = self.shard.held().pop();
            let mut head = self.shard.head_mut();
            for held in piece.into_iter().flatten() {
                let (slot, sample) = match held.sample() {
                    Ok(held) => held,
                    Err(start_ms) => {
                        self.start_ms = start_ms;
                        continue;
                    }
                };
                let is_refused = head.rejects_timestamp(&self.bounds, slot, sample.timestamp_ms());
                self.stats.n_held += 1;
                let replayed = head.replay(slot, sample);
                Start::held(std::mem::take(&mut self.start_ms)).replay(
                    &mut head,
                    slot,
                    sample.timestamp_ms(),
                    replayed,
                );
                match replayed {
                    Replayed::New(_) => self.stats.n_held_refusable += u64::from(is_refused),
                    Replayed::Repeated => self.stats.n_held_repeated += 1,
                    Replayed::Conflicting => self.stats.n_held_conflicting += 1,
                }
                self.bounds.newest_ms = self.bounds.newest_ms.max(Some(sample.timestamp_ms()));
            }
        }
        n_pieces
    }
}

/// The thread that replays; it ends early when this is dropped.
#[derive(Debug)]
pub(crate) struct Replayer {
    store: Arc<Store>,
    thread: Option<JoinHandle<()>>,
}

impl Replayer {
    /// Starts the thread; returns once the store takes writes.
    ///
    /// # Errors
    /// As [`replay`], until then.
    pub(crate) fn start(store: &Arc<Store>, source: Source) -> Result<Self> {
        let (sender, defined) = mpsc::channel();
        let of_thread = Arc::clone(store);
        let spawned = Builder::new().name("replay".into()).spawn(move || run(&of_thread, &source, &sender));
        let thread = spawned.map_err(|e| Error::Options(format!("a thread for the replay: {e}")))?;
        let replayer = Self { store: Arc::clone(store), thread: Some(thread) };
        match defined.recv() {
            Ok(Ok(())) => Ok(replayer),
            Ok(Err(refused)) => Err(refused),
            Err(_panicked) => Err(Error::ReplayFailed { reason: PANICKED.to_owned() }),
        }
    }
}

impl Drop for Replayer {
    fn drop(&mut self) {
        self.store.replaying.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic was caught in the thread.
            let _ended = thread.join();
        }
    }
}

/// Why the replay failed if it did not say so itself.
const PANICKED: &str = "it ended in a panic";

fn run(store: &Store, source: &Source, defined: &Sender<Result<()>>) {
    let mut is_defined = false;
    let replayed = catch_unwind(AssertUnwindSafe(|| {
        replay(store, source, || {
            is_defined = true;
            // The receiver waits for this.
            let _received = defined.send(Ok(()));
        })
    }));
    let failed = match replayed {
        Ok(Ok(())) => return,
        Ok(Err(failed)) => failed,
        Err(_panicked) => Error::ReplayFailed { reason: PANICKED.to_owned() },
    };
    let reason = match &failed {
        Error::ReplayFailed { reason } => reason.clone(),
        Error::Interrupted(Interrupt::Shutdown) => "the store is being closed".to_owned(),
        failed => failed.to_string(),
    };
    store.replaying.fail(reason);
    if !is_defined {
        let _received = defined.send(Err(failed));
    }
}
