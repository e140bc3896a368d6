//! What a replay reads with, and what it restores.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64};

use super::progress::ReplayProgress;
use crate::fs::Fs;
use crate::labels::Metadata;
use crate::options::WalOnCorruption;
use crate::shard::Shard;
use crate::shard::exemplars::Exemplars;
use crate::wal::reader::LargeFrameLock;

/// The destination of a replay, shared by its workers.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    /// The shards of the store that is being opened. No series may leave them during the replay.
    pub(crate) shards: &'a [Shard],
    /// Metadata by metric family.
    pub(crate) metadata: &'a Mutex<BTreeMap<String, Metadata>>,
    /// The exemplars.
    pub(crate) exemplars: &'a Exemplars,
    /// The folder for damaged bytes.
    pub(crate) quarantine: &'a Path,
    /// The disk.
    pub(crate) fs: &'a dyn Fs,
    /// What to do about damage.
    pub(crate) on_corruption: WalOnCorruption,
    /// Maximum memory of the sample bins of a worker.
    pub(crate) sample_bins_bytes: usize,
    /// Updated during the replay.
    pub(crate) progress: &'a ReplayProgress,
    /// The newest timestamp of the store; raised during the replay.
    pub(crate) newest_ms: &'a AtomicI64,
    /// Interrupts the replay.
    pub(crate) stop: &'a AtomicBool,
    /// Lets one worker at a time read a large frame.
    pub(crate) large_frames: LargeFrameLock,
}
