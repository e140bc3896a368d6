//! A shard: one head behind one lock. The hash of a label set selects the shard. Several shards
//! share a log ([`SharedLog`]).
//!
//! Lock order: exemplar ring, log batch, head, sample buffer, log. A commit takes only the locks of
//! the log. `last_order` is locked before the head, and never together with any other lock.
//!
//! After creating a series, a thread passes the head lock to the longest waiter (`unlock_fair`). So
//! a request that creates thousands of series does not starve appends to known ones.

mod shard;

mod append;
mod buffer;
mod checkpoint;
mod evict;
pub(crate) mod exemplars;
mod log;
mod order;
mod sample_buffer;

pub(crate) use append::{AppendContext, ShardAppend};
pub(crate) use evict::EvictionLimits;
pub(crate) use log::SharedLog;
pub(crate) use sample_buffer::BUFFERED_SAMPLE_SIZE;
pub(crate) use shard::{Shard, shard_of};
