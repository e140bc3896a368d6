//! A shard: one head and its log, chosen by the hash of a label set. Shards share nothing.
//!
//! Lock order: head, then the log's pending records. Commits take neither.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use xxhash_rust::xxh3::xxh3_64;

use crate::batch::{Append, Rejected, SeriesHandle};
use crate::error::{Error, Result};
use crate::head::{Appended, Bounds, Head, NewSeries, SeriesRef};
use crate::labels::Labels;
use crate::wal::{Position, SampleColumn, Wal};

/// Returns the shard that a label set belongs to. The same for every process: logs are laid out by it.
pub(crate) fn shard_of(labels: &Labels, n_shards: usize) -> usize {
    debug_assert!(n_shards.is_power_of_two(), "Options are checked");
    xxh3_64(labels.as_packed().as_bytes()) as usize & (n_shards - 1)
}

/// One shard of a store.
#[derive(Debug)]
pub(crate) struct Shard {
    idx: u16,
    head: RwLock<Head>,
    wal: Wal,
    head_size_max: usize,
}

/// What one append to a shard did.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShardAppend {
    /// What must be committed before the append may be acknowledged.
    pub(crate) position: Position,
    /// Samples that are new.
    pub(crate) n_new: usize,
    /// The newest of them.
    pub(crate) newest_ms: i64,
}

impl Shard {
    /// Makes an empty shard whose series and samples may take `head_size_max` bytes.
    pub(crate) fn new(idx: u16, seed: u64, wal: Wal, head_size_max: usize) -> Self {
        Self { idx, head: RwLock::new(Head::new(seed)), wal, head_size_max }
    }

    /// Returns the shard's log.
    pub(crate) fn wal(&self) -> &Wal {
        &self.wal
    }

    // A panic under the lock can leave a series half made or a sample half written. Nothing under it is meant to panic;
    // if it does, going on with what is there beats refusing all of the shard's series.

    /// Locks the head for reading.
    pub(crate) fn head(&self) -> RwLockReadGuard<'_, Head> {
        self.head.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the head for writing.
    pub(crate) fn head_mut(&self) -> RwLockWriteGuard<'_, Head> {
        self.head.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns where a series lives, and makes it under the next free number if it is new.
    ///
    /// # Errors
    /// As [`Db::series`](crate::Db::series).
    pub(crate) fn series(&self, labels: &Labels, next_ref: &AtomicU64) -> Result<SeriesHandle> {
        if let Some(handle) = self.find(labels) {
            return Ok(handle);
        }
        self.wal.ready()?;
        let mut head = self.head_mut();
        self.check_size(&head)?;
        let new_ref = SeriesRef(next_ref.fetch_add(1, Ordering::Relaxed));
        let (slot, new) = head.find_or_create(labels, new_ref)?;
        if new == NewSeries::Yes {
            self.wal.append_series(new_ref, labels);
        }
        Ok(SeriesHandle { shard: self.idx, generation: head.generation(slot), slot })
    }

    fn find(&self, labels: &Labels) -> Option<SeriesHandle> {
        let head = self.head();
        let slot = head.find(labels)?;
        Some(SeriesHandle { shard: self.idx, generation: head.generation(slot), slot })
    }

    /// Appends samples to the head and, uncommitted, to the log.
    ///
    /// # Errors
    /// As [`Db::append`](crate::Db::append); nothing was appended then.
    pub(crate) fn append(
        &self,
        bounds: Bounds,
        appends: &[Append],
        column: &mut SampleColumn,
        rejected: &mut Vec<Rejected>,
    ) -> Result<ShardAppend> {
        self.wal.ready()?;
        column.clear();
        let mut newest_ms = i64::MIN;
        let mut head = self.head_mut();
        self.check_size(&head)?;
        for append in appends {
            match head.append(bounds, append) {
                Ok(Appended::New(series)) => {
                    newest_ms = newest_ms.max(append.sample.timestamp_ms);
                    column.push(series, append.sample);
                }
                Ok(Appended::Repeated) => {}
                Err(reason) => rejected.push(Rejected { tag: append.tag, sample: append.sample, reason }),
            }
        }
        if !column.is_empty() {
            self.wal.append_samples(column);
        }
        // What was only repeated may still wait for its first commit: the position covers that as well.
        Ok(ShardAppend { position: self.wal.end(), n_new: column.len(), newest_ms })
    }

    fn check_size(&self, head: &Head) -> Result<()> {
        let used = head.size();
        if used > self.head_size_max {
            let (used, limit) = (used as u64, self.head_size_max as u64);
            return Err(Error::Limit { what: "bytes of a shard's series and samples in memory", used, limit });
        }
        Ok(())
    }
}
