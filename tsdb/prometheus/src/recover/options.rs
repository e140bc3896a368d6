//! Options of a recovery.

use crate::chunk::StartTimestamps;

/// Maximum number of threads.
pub const CONCURRENCY_MAX: usize = 256;

/// Options of a recovery.
#[derive(Debug, Clone)]
pub struct RecoverOptions {
    /// Target for the memory in use, in bytes.
    pub memory_bytes: usize,
    /// Number of threads, 1 to [`CONCURRENCY_MAX`].
    pub concurrency: usize,
    /// Whether chunks keep start timestamps.
    pub start_timestamps: StartTimestamps,
    /// External labels. Blocks of Prometheus have them in the Thanos section of `meta.json`. In
    /// blocks of the store, each series has those for which it has no label of that name.
    pub external_labels: Vec<(String, String)>,
}

impl Default for RecoverOptions {
    fn default() -> Self {
        Self {
            memory_bytes: 1 << 30,
            concurrency: 1,
            start_timestamps: StartTimestamps::Drop,
            external_labels: Vec::new(),
        }
    }
}
