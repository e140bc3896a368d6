//! Replay: from the WAL to the heads, and what a store does meanwhile.
//!
//! [`Replay`] works in two steps. [`Replay::definitions`] loads the checkpoints and then the series segments of all epochs,
//! and builds the index of each head at once. From then on every series is known and the store accepts writes: they are
//! logged and buffered beside the heads ([`ReplayGate`]). [`Replay::samples`] replays the samples segments, epoch by epoch,
//! and groups samples by series ([`sample_bins`]) before it applies them.
//!
//! Used by `background::replay`, which runs a replay for a store and then applies the buffered samples.
//!
//! Invariants
//! 1. Until the end the replay changes nothing in the WAL's folder and only adds files to the quarantine. Writes during the
//!    replay go to new segments, which it does not read. Torn tails are cut last. Under
//!    [`WalOnCorruption::Refuse`](crate::WalOnCorruption::Refuse) the first damage ends the replay, so nothing is changed
//!    at all.
//! 2. A replay that did not end is repeated by the next start.
//!
//! Threads: the workers of the thread pool that it is called in read the logs of an epoch in parallel. Each holds a window
//! of one file, the columns of one record, and its sample bins. If the number of logs is that of the shards, each log has
//! shards of its own and workers share nothing; otherwise the locks of the shards serialize them.

mod definitions;
mod gate;
mod locations;
mod log;
mod progress;
mod sample_bins;
mod start_timestamps;
mod stats;
mod target;
#[cfg(test)]
mod tests;
mod wal;

pub(crate) use gate::{ReplayGate, log_floor};
pub use gate::{ReplayState, ReplayStatus};
pub(crate) use progress::{replay_share, replay_workers, sample_bins_bytes};
pub(crate) use start_timestamps::apply_start_timestamp;
pub use stats::ReplayStats;
pub(crate) use target::Target;
pub(crate) use wal::{Replay, check_versions};
