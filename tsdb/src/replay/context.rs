//! The context of a replay: the stores it fills, the file system, the corruption policy and the
//! stop flag.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64};

use parking_lot::Mutex;
use varve_env::Fs;

use super::progress::ReplayProgress;
use crate::options::WalOnCorruption;
use crate::shard::Shard;
use crate::shard::exemplars::Exemplars;
use crate::store::family_table::FamilyTable;
use crate::wal::reader::LargeFrameLock;

/// Context of a replay, shared by its workers.
#[derive(Debug)]
pub(crate) struct ReplayContext<'a> {
    /// The shards of the store that is being opened. Series must not be evicted during the replay.
    pub(crate) shards: &'a [Shard],
    pub(crate) metadata: &'a Mutex<FamilyTable>,
    /// Receives the replayed exemplars.
    pub(crate) exemplars: &'a Exemplars,
    /// Directory for damaged bytes.
    pub(crate) quarantine: &'a Path,
    /// File system of the data directory.
    pub(crate) fs: &'a dyn Fs,
    /// What to do with corrupt records.
    pub(crate) on_corruption: WalOnCorruption,
    /// Maximum memory of the sample bins of a worker.
    pub(crate) sample_bins_bytes: usize,
    /// Updated during the replay.
    pub(crate) progress: &'a ReplayProgress,
    /// The newest timestamp of the store; raised during the replay.
    pub(crate) newest_ms: &'a AtomicI64,
    /// Interrupts the replay.
    pub(crate) stop: &'a AtomicBool,
    /// Allows one worker at a time to read a large frame, to bound memory.
    pub(crate) large_frames: LargeFrameLock,
}
