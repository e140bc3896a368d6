//! What all steps of a recovery share.

use std::path::Path;
use std::sync::Arc;

use rayon::ThreadPool;
use varve_env::Fs;

use super::options::RecoverOptions;
use super::report::Progress;
use super::shard::SpillDir;

/// A recovery in progress.
pub(crate) struct Recovery<'a> {
    pub(super) fs: &'a Arc<dyn Fs>,
    /// The directory for blocks, and for what does not fit in memory.
    pub(super) out: &'a Path,
    pub(super) target: Target,
    pub(super) options: &'a RecoverOptions,
    pub(super) pool: &'a ThreadPool,
    pub(super) spill: &'a SpillDir,
    pub(super) progress: &'a (dyn Fn(Progress) + Sync),
}

impl Recovery<'_> {
    /// Returns the external labels that series get. Blocks of Prometheus have them in `meta.json`.
    pub(super) fn labels_of_series(&self) -> &[(String, String)] {
        match self.target {
            Target::Prometheus => &[],
            Target::Store { .. } => &self.options.external_labels,
        }
    }
}

/// The blocks that a recovery writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// Blocks of Prometheus, which store neither exemplars nor metadata.
    Prometheus,
    /// Blocks of the store, which gets the metadata and the newest `exemplars_max` exemplars apart
    /// from them.
    Store { exemplars_max: usize },
}
