//! Settings of queries, metadata requests and remote reads.

use std::time::Duration;

use varve_promql::Features;
use varve_query::EngineOptions;
use varve_system::machine::{self, Memory};
use varve_system::quantity::millis;

use super::automatic::or_default;
use crate::file::Config;
use crate::flags::ServeArgs;

/// Number of times in a row that a query may exceed a memory limit before it is rejected without
/// evaluation.
const BREAKER_FAILURES: u32 = 3;
/// Maximum number of threads that queries share.
const PARALLELISM_MAX: usize = 256;

/// Settings of queries and metadata requests.
#[derive(Debug, Clone)]
pub struct QuerySettings {
    /// Maximum time of a query or metadata request.
    pub timeout: Duration,
    /// Maximum number of queries that run at a time.
    pub concurrency_max: usize,
    /// Maximum number of metadata requests that run at a time.
    pub metadata_concurrency_max: usize,
    /// Maximum number of queued queries, and of queued metadata requests.
    pub queued_max: usize,
    /// Maximum time in the queue.
    pub queue_timeout: Duration,
    /// Series that a metadata request may read. `None`: no limit.
    pub metadata_series_max: Option<u64>,
    /// Number of times in a row that a query may exceed a memory limit before it is
    /// rejected without evaluation.
    pub breaker_failures: u32,
    /// Time for which such a query is rejected.
    pub breaker_timeout: Duration,
    /// Maximum number of points per series of a range query.
    pub points_max: usize,
    /// Whether queries return partial results while the WAL is being replayed.
    pub partial_during_replay: bool,
    /// How far back an instant selector looks.
    pub lookback_delta_ms: i64,
    /// Maximum memory of a query in bytes.
    pub memory_max: usize,
    /// Maximum memory of all queries in bytes.
    pub memory_total_max: usize,
    /// The optional parts of PromQL.
    pub features: Features,
}

/// Settings of remote reads.
#[derive(Debug, Clone, Copy)]
pub struct RemoteReadSettings {
    /// Maximum number of remote reads that run at a time.
    pub concurrency_max: usize,
    /// Maximum number of samples of a response in one message. 0 is no limit.
    pub samples_max: usize,
    /// Approximate maximum size of a frame in bytes.
    pub frame_size_max: usize,
}

/// Returns the settings of queries in a process that may use `memory`.
pub(super) fn query(args: &ServeArgs, memory: &Memory, features: Features) -> QuerySettings {
    // By default, all queries together use at most 40 % of the memory, and a single one a quarter
    // of that.
    let memory_total_max = or_default(args.query_max_memory_total, || memory.share(2, 5));
    QuerySettings {
        timeout: args.query_timeout,
        concurrency_max: args.query_max_concurrency,
        // These requests are CPU bound: more concurrency only needs more memory.
        metadata_concurrency_max: or_default(args.query_metadata_concurrency, || {
            (2 * machine::cores()).max(4)
        }),
        queued_max: args.query_max_queued,
        queue_timeout: args.query_queue_timeout,
        metadata_series_max: match args.query_max_metadata_series {
            0 => None,
            series_max => Some(series_max),
        },
        breaker_failures: BREAKER_FAILURES,
        breaker_timeout: args.query_breaker_timeout,
        points_max: args.query_max_points,
        partial_during_replay: args.query_partial_during_replay,
        lookback_delta_ms: millis(args.query_lookback_delta),
        memory_max: or_default(args.query_max_memory, || memory_total_max / 4)
            .min(memory_total_max),
        memory_total_max,
        features,
    }
}

/// Returns the settings of remote reads.
pub(super) fn remote_read(args: &ServeArgs) -> RemoteReadSettings {
    RemoteReadSettings {
        concurrency_max: or_default(args.remote_read_concurrent_limit, || usize::MAX),
        samples_max: args.remote_read_sample_limit,
        frame_size_max: args.remote_read_frame_size,
    }
}

/// Returns the options of the query engine.
pub(super) fn engine(args: &ServeArgs, config: &Config, features: Features) -> EngineOptions {
    EngineOptions {
        lookback_delta_ms: millis(args.query_lookback_delta),
        samples_max: args.query_max_samples,
        parallelism: or_default(args.query_parallelism, machine::cores).min(PARALLELISM_MAX),
        subquery_step_ms: millis(config.global.evaluation_interval),
        cache_size: args.query_cache_size,
        features,
    }
}
