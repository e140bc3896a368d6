//! What a server runs with; docs/config.md describes the flags that these values come from.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::StatusCode;
use varve_query::promql::Features;
use varve_tsdb::labels::regexp::Regexp;

/// Checked flags of a server.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) read_timeout: Duration,
    /// Minimum rate of request bodies in bytes per second; 0: no limit.
    pub(crate) body_rate_min: usize,
    pub(crate) max_connections: usize,
    pub(crate) response: ResponseLimits,
    pub(crate) query_timeout: Duration,
    pub(crate) query_partial_during_replay: bool,
    pub(crate) query_max_concurrency: usize,
    pub(crate) metadata_concurrency: usize,
    pub(crate) queued_max: usize,
    pub(crate) queue_timeout: Duration,
    /// Series that a metadata request may read; `None`: no limit.
    pub(crate) metadata_series_max: Option<u64>,
    pub(crate) write_concurrency: usize,
    pub(crate) query_max_memory: usize,
    pub(crate) query_max_memory_total: usize,
    pub(crate) write_body_size_max: usize,
    pub(crate) write_bytes_in_flight_max: usize,
    /// Status of the response to a write that timed out in a queue.
    pub(crate) queue_timeout_status: StatusCode,
    pub(crate) features: Features,
    pub(crate) auto_reload: bool,
    pub(crate) admin_api: bool,
    pub(crate) lifecycle: bool,
    /// The experimental search endpoints.
    pub(crate) search: bool,
    /// Maximum number of results of a search; 0: no limit.
    pub(crate) search_limit_max: usize,
    /// Origins whose pages may read responses.
    pub(crate) cors_origin: Regexp,
    /// Names that `Host` may have, besides IP addresses and localhost; empty: any.
    pub(crate) allowed_hosts: Vec<String>,
    pub(crate) notifications_subscribers_max: usize,
    pub(crate) lookback_delta_ms: i64,
    /// Steps between the first and the last one of a range query.
    pub(crate) points_max: usize,
    pub(crate) remote_read_concurrency: usize,
    /// Samples per query in a response of remote read; 0: no limit.
    pub(crate) remote_read_samples_max: usize,
    pub(crate) remote_read_frame_size_max: usize,
    /// Retention in words, for /api/v1/status/runtimeinfo.
    pub(crate) retention: String,
    /// Every flag with its value, for /api/v1/status/flags.
    pub(crate) flags: BTreeMap<String, String>,
}

/// Limits of a response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResponseLimits {
    /// Bytes that are buffered before the first one is sent.
    pub(crate) buffer_size: usize,
    pub(crate) size_max: usize,
    /// How long a client may read nothing.
    pub(crate) stall_timeout: Duration,
}
