//! Runs the replay of a store: definitions, samples, then the samples that were buffered during the
//! replay.
//!
//! Threads: runs in the thread of `Db::open`, or in a separate one ([`Replayer`]).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Sender};
use std::thread::{Builder, JoinHandle};

use rayon::ThreadPool;
use rayon::prelude::*;
use varve_context::{Interrupt, Limit};

use crate::error::{Error, Result};
use crate::head::{Bounds, Replayed};
use crate::replay::{
    Replay, ReplayContext, ReplayStats, apply_start_timestamp, log_floor, replay_share,
    replay_workers, sample_bins_bytes,
};
use crate::shard::Shard;
use crate::store::Store;
use crate::wal::reader::LargeFrameLock;
use crate::wal::{Epoch, StartTimestamp};

/// Series refs skipped before the first series created during a replay. A sample whose definition
/// was lost may have one of them, which is known only when the sample is read: the next replay
/// would assign it to the new series.
const REFS_SKIPPED: u64 = 1 << 32;
/// The highest valid series ref: there is always a next one.
const REF_MAX: u64 = u64::MAX / 2;
/// More exemplars than fit into a file of the WAL.
const EXEMPLARS_OF_FILE: u64 = 1 << 32;
/// Maximum number of files that are counted, so that exemplar ids never overflow.
const EXEMPLARS_FILES_MAX: u64 = 1 << 30;
/// Maximum passes over the buffered samples while appends continue.
const PASSES_MAX: usize = 16;
/// After a pass over at most this many batches, the rest is applied while appends wait, which takes
/// a few milliseconds. After [`PASSES_MAX`] passes it is, whatever its number.
const LAST_PASS_BATCHES: usize = 16;

/// The WAL to replay.
#[derive(Debug)]
pub(crate) struct ReplaySource {
    pub(crate) wal_dir: PathBuf,
    /// Oldest first.
    pub(crate) epochs: Vec<Epoch>,
    /// Number of missing directories of logs and epochs.
    pub(crate) n_missing_directories: u64,
    /// The directory for damaged bytes.
    pub(crate) quarantine: PathBuf,
}

/// Replays the WAL of a store. No other thread uses the store until `defined` is called. From then
/// on, the store accepts writes.
///
/// # Errors
/// The errors of [`Replay::load_definitions`]; [`Error::Interrupted`] if the store is closed during
/// the replay. Buffered samples are in the WAL then, and the next replay restores them.
pub(crate) fn replay(store: &Store, source: &ReplaySource, defined: impl FnOnce()) -> Result<()> {
    let share = replay_share(&store.options);
    let n_workers = replay_workers(store.options.wal_replay_concurrency, share);
    let context = ReplayContext {
        shards: &store.shards,
        metadata: &store.metadata,
        exemplars: &store.exemplars,
        quarantine: &source.quarantine,
        fs: &*store.options.fs,
        on_corruption: store.options.wal_on_corruption,
        sample_bins_bytes: sample_bins_bytes(n_workers, share),
        progress: &store.replay.progress,
        newest_ms: &store.newest.found_ms,
        stop: &store.replay.stop,
        large_frames: LargeFrameLock::default(),
    };
    let pool = pool(n_workers)?;
    let replay =
        pool.install(|| Replay::load_definitions(&source.wal_dir, &source.epochs, &context))?;
    let first_free = check_next_ref(replay.next_ref())?;
    let first_new = first_free.saturating_add(REFS_SKIPPED);
    store.next_ref.store(first_new, Ordering::SeqCst);
    init_newest_ms(store);
    if store.options.wal_replay_in_background {
        store.exemplars.skip_to(first_exemplar_id(&replay));
    }
    defined();
    let (mut stats, next_ref) = pool.install(|| replay.replay_samples())?;
    stats.n_file_gaps += source.n_missing_directories;
    let next_ref = check_next_ref(next_ref)?;
    // If no series was created during the replay, no refs need to be skipped.
    let unused =
        store
            .next_ref
            .compare_exchange(first_new, next_ref, Ordering::SeqCst, Ordering::SeqCst);
    if unused.is_err() {
        store.next_ref.fetch_max(next_ref, Ordering::SeqCst);
    }
    pool.install(|| apply_buffered(store, stats));
    store.evict_deleted_before()
}

/// Rejects a WAL that leaves no refs for new series: they would wrap around and be assigned twice.
fn check_next_ref(next_ref: u64) -> Result<u64> {
    let what = "series refs in the WAL";
    if next_ref > REF_MAX {
        Err(Error::Limit {
            what: Limit::Other(what),
            used: next_ref,
            limit: REF_MAX,
        })
    } else {
        Ok(next_ref)
    }
}

/// Returns an id for the next exemplar that no exemplar of the WAL has, though the WAL has not been
/// read yet.
///
/// Exemplar ids stay below the number of files that have ever existed times [`EXEMPLARS_OF_FILE`]:
/// a process continues where its predecessor stopped, or starts here; a file has fewer exemplars
/// than that; and every process that assigned an id left a file. Files of an earlier epoch count
/// until they are removed; by then checkpoints have the newest exemplars.
fn first_exemplar_id(replay: &Replay<'_>) -> u64 {
    replay.n_samples_segments_created().min(EXEMPLARS_FILES_MAX) * EXEMPLARS_OF_FILE
}

fn pool(n_threads: usize) -> Result<ThreadPool> {
    let built = rayon::ThreadPoolBuilder::new()
        .num_threads(n_threads)
        .thread_name(|i| format!("replay-{i}"))
        .build();
    built.map_err(|e| Error::Options(format!("{n_threads} replay threads: {e}")))
}

/// Initializes the newest timestamp of the store, and which samples are in no log, from checkpoints
/// and blocks.
fn init_newest_ms(store: &Store) {
    let in_checkpoints_ms = store.heads_newest_ms();
    let in_blocks_ms = store
        .blocks
        .metas()
        .iter()
        .map(|meta| meta.range.end_ms)
        .max();
    if let Some(newest_ms) = in_checkpoints_ms.max(in_blocks_ms) {
        store.newest.opened_at(newest_ms);
    }
    if !store.newest.is_unbounded() {
        store
            .replay
            .set_floor(log_floor(&store.options, in_blocks_ms, in_checkpoints_ms));
    }
}

/// Applies the buffered samples to the heads and ends the replay. Appends continue until few
/// samples are left; those are applied while appends wait.
fn apply_buffered(store: &Store, mut stats: ReplayStats) {
    // Buffered samples have raised the newest timestamp of the store. The newest timestamp of the
    // WAL is in the heads.
    let in_blocks_ms = store
        .blocks
        .metas()
        .iter()
        .map(|meta| meta.range.end_ms)
        .max();
    let bounds = Bounds {
        newest_ms: store.heads_newest_ms().max(in_blocks_ms),
        ..store.age_bounds()
    };
    if let Some(newest_ms) = bounds.newest_ms {
        store.newest.opened_at(newest_ms);
    }
    let buffer = |shard| ShardBuffer {
        shard,
        bounds,
        start_ms: 0,
        stats: ReplayStats::default(),
    };
    let mut buffers: Vec<ShardBuffer<'_>> = store.shards.iter().map(buffer).collect();
    for _ in 0..PASSES_MAX {
        let n_batches: usize = buffers.par_iter_mut().map(ShardBuffer::apply).sum();
        if n_batches <= LAST_PASS_BATCHES {
            break;
        }
    }
    let _pause = store.isolation.pause();
    buffers.par_iter_mut().for_each(|buffer| {
        buffer.apply();
    });
    for buffer in &buffers {
        stats.add(buffer.stats);
    }
    store.replay.finish(stats);
}

/// The buffered samples of a shard.
struct ShardBuffer<'a> {
    shard: &'a Shard,
    bounds: Bounds,
    /// The start timestamp of the next sample.
    start_ms: i64,
    stats: ReplayStats,
}

impl ShardBuffer<'_> {
    /// Applies the samples that are buffered now. Returns the number of their batches.
    fn apply(&mut self) -> usize {
        let n_batches = self.shard.buffer.lock().n_batches();
        for _ in 0..n_batches {
            let batch = self.shard.buffer.lock().pop();
            let mut head = self.shard.head_mut();
            for buffered in batch.into_iter().flatten() {
                let (slot, sample) = match buffered.sample() {
                    Ok(sample) => sample,
                    Err(start_ms) => {
                        self.start_ms = start_ms;
                        continue;
                    }
                };
                let timestamp_ms = sample.timestamp_ms();
                let is_out_of_bounds = head.rejects_timestamp(&self.bounds, slot, timestamp_ms);
                self.stats.n_buffered += 1;
                let replayed = head.replay(slot, sample);
                let start = StartTimestamp::buffered(std::mem::take(&mut self.start_ms));
                apply_start_timestamp(start, &mut head, slot, timestamp_ms, replayed);
                match replayed {
                    Replayed::New(_) => {
                        self.stats.n_buffered_out_of_bounds += u64::from(is_out_of_bounds)
                    }
                    Replayed::Repeated => self.stats.n_buffered_repeated += 1,
                    Replayed::Conflicting => self.stats.n_buffered_conflicting += 1,
                }
                self.bounds.newest_ms = self.bounds.newest_ms.max(Some(timestamp_ms));
            }
        }
        n_batches
    }
}

/// The thread that replays. Dropping it interrupts the replay and waits for the thread.
#[derive(Debug)]
pub(crate) struct Replayer {
    store: Arc<Store>,
    thread: Option<JoinHandle<()>>,
}

impl Replayer {
    /// Starts the thread. Returns once the store accepts writes.
    ///
    /// # Errors
    /// The errors of [`replay`] up to that point.
    pub(crate) fn start(store: &Arc<Store>, source: ReplaySource) -> Result<Self> {
        let (sender, defined) = mpsc::channel();
        let thread_store = Arc::clone(store);
        let spawned = Builder::new()
            .name("replay".into())
            .spawn(move || run(&thread_store, &source, &sender));
        let thread =
            spawned.map_err(|e| Error::Options(format!("a thread for the replay: {e}")))?;
        let replayer = Self {
            store: Arc::clone(store),
            thread: Some(thread),
        };
        match defined.recv() {
            Ok(Ok(())) => Ok(replayer),
            Ok(Err(failed)) => Err(failed),
            Err(_panicked) => Err(Error::ReplayFailed {
                reason: PANICKED.to_owned(),
            }),
        }
    }
}

impl Drop for Replayer {
    fn drop(&mut self) {
        self.store.replay.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread catches panics, so joining cannot fail.
            let _joined = thread.join();
        }
    }
}

/// The reason of a failure without an error.
const PANICKED: &str = "it panicked";

fn run(store: &Store, source: &ReplaySource, defined: &Sender<Result<()>>) {
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
        Err(_panicked) => Error::ReplayFailed {
            reason: PANICKED.to_owned(),
        },
    };
    let reason = match &failed {
        Error::ReplayFailed { reason } => reason.clone(),
        Error::Interrupted(Interrupt::Shutdown) => "the store is being closed".to_owned(),
        failed => failed.to_string(),
    };
    store.replay.fail(reason);
    if !is_defined {
        let _received = defined.send(Err(failed));
    }
}
