//! Batches of samples to append, what they refer to, and what of them was rejected.

mod exemplar;
mod write_batch;

pub(crate) use exemplar::NumberedExemplars;
pub use exemplar::{RejectExemplar, RejectedExemplar};
pub(crate) use write_batch::{
    AppendExemplar, HistogramQueue, NewFloat, NewHistogram, SampleSource, ShardBatch,
};
pub use write_batch::{SeriesHandle, WriteBatch};

/// A series ref, as stored on disk: unique over all shards and never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SeriesRef(pub(crate) u64);
