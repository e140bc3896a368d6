//! Replay: restores the heads from the WAL, and admits requests while this runs.
//!
//! [`Replay`] works in two steps. [`Replay::load_definitions`] loads the checkpoints and then the
//! series segments of all epochs, and builds the index of each head at once. From then on every
//! series is known and the store accepts writes: they are logged and buffered beside the heads
//! ([`ReplayGate`]). [`Replay::replay_samples`] replays the samples segments, epoch by epoch, and
//! groups samples by series ([`sample_bins`]) before it applies them.
//!
//! Used by `background::replay`, which runs a replay for a store and then applies the buffered
//! samples.
//!
//! Invariants
//! 1. Until it ends, the replay changes no bytes in the WAL directory, and only adds files to the
//!    quarantine. It syncs the segments of the previous process before writes are accepted. Writes
//!    during the replay go to new segments, which the replay does not read. Torn tails are
//!    truncated last. Under [`WalOnCorruption::Refuse`](crate::WalOnCorruption::Refuse) the first
//!    damage ends the replay, so no file changes.
//! 2. The next start repeats a replay that did not end.
//!
//! Threads: the workers of the caller's thread pool read the logs of an epoch in parallel. Each
//! worker holds a window of one file, the columns of one record, and its sample bins. If there are
//! as many logs as shards, each log has its own shard, and workers share nothing. Otherwise the
//! shard locks serialize the workers.

mod context;
mod gate;
mod locations;
mod log;
mod log_definitions;
mod log_samples;
mod progress;
mod replay;
mod sample_bins;
mod series_loader;
mod start_timestamps;
mod stats;
#[cfg(test)]
mod tests;

pub(crate) use context::ReplayContext;
pub(crate) use gate::{ReplayGate, log_floor};
pub use gate::{ReplayState, ReplayStatus};
pub(crate) use progress::{replay_share, replay_workers, sample_bins_bytes};
pub(crate) use replay::{Replay, check_directories, check_versions};
pub(crate) use start_timestamps::apply_start_timestamp;
pub use stats::ReplayStats;
