//! The result of a replay, from which blocks are written.

use hashbrown::HashMap;
use varve_model::TimeRange;

use super::exemplars_and_metadata::ExemplarsAndMetadata;
use super::input::Input;
use super::series::{SeriesIdx, SeriesTable};
use super::shard::{Shard, ShardLayout};

/// The result of a replay.
#[derive(Debug)]
pub(crate) struct Replayed {
    pub(crate) table: SeriesTable,
    pub(crate) shards: Vec<Shard>,
    pub(super) layout: ShardLayout,
    pub(crate) tombstones: HashMap<SeriesIdx, Vec<TimeRange>>,
    pub(super) input: Input,
    /// Empty unless blocks of the store are written.
    pub(super) exemplars_and_metadata: ExemplarsAndMetadata,
}

impl Replayed {
    /// Returns the shard of a series and its slot there.
    #[inline]
    pub(crate) fn locate(&self, series: SeriesIdx) -> (&Shard, u32) {
        let (shard, slot) = self.layout.locate(series);
        (&self.shards[shard], slot)
    }
}
