//! Batches of samples to append, what they refer to, and what of them was rejected.

mod exemplar;
mod series_ref;
mod write_batch;

pub(crate) use exemplar::NumberedExemplars;
pub use exemplar::{RejectExemplar, RejectedExemplar};
pub(crate) use series_ref::SeriesRef;
pub(crate) use write_batch::{Append, AppendExemplar, AppendHistogram, HistogramQueue, ShardBatch};
pub use write_batch::{RejectReason, Rejected, SeriesHandle, WriteBatch};
