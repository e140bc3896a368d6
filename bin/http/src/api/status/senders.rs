//! /api/v1/status/senders: who writes, how much, and their last error.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use varve_env::{Clock, SystemClock};
use varve_server::sender_stats::{
    NewestSample, SenderId, SenderStats, SharedSeries, shared_series,
};

use crate::response::success;
use crate::serving::app::App;
use varve_wire::schema;

schema! {
    /// Senders since the start, the most recent first.
    pub(crate) struct SenderList {
        senders: Vec<WriteSender>,
    }
}

schema! {
    /// A sender of write requests.
    pub(crate) struct WriteSender {
        /// The sender for rules and metrics: the user, or else the address, and the replica labels
        /// of its HA pair.
        name: String,
        /// IP address. Empty if unknown.
        address: String,
        /// The authenticated user. Empty without authentication.
        user: String,
        user_agent: String,
        path: String,
        first_ms: i64,
        last_ms: i64,
        requests: u64,
        /// Samples received: stored, dropped by relabel rules, or deduplicated.
        samples: u64,
        /// Samples of a standby replica of an HA pair.
        deduplicated: u64,
        /// Averaged over the previous and the current minute, or since the first request.
        samples_per_second: f64,
        /// Series with a sample in the last ten minutes. From 64 on estimated, with a standard error
        /// of 13 %.
        series: u64,
        /// Requests of which not everything was stored.
        failed: u64,
        /// Empty if there was none.
        last_error: String,
        last_error_ms: i64,
        /// The newest timestamp of the latest request with floats.
        newest_sample_ms: Option<i64>,
        /// Age of this sample when it was stored.
        lag_ms: Option<u64>,
        /// Other senders of most of its series: the samples are stored twice.
        same_series: Vec<SameSeries>,
    }
}

schema! {
    /// Another sender of the same series.
    pub(crate) struct SameSeries {
        /// Address, user agent, user and path.
        sender: String,
        /// The share of the series that it sends, too, from 0 to 1, estimated.
        share: f64,
    }
}

/// GET /api/v1/status/senders.
pub(crate) async fn status(State(app): State<Arc<App>>) -> Response {
    let now_ms = SystemClock.now_ms();
    let all = app.senders.list();
    let shared = shared_series(&all, now_ms);
    let mut senders = Vec::new();
    for ((id, stats), shared) in all.into_iter().zip(shared) {
        senders.push(WriteSender::new(id, stats, shared, now_ms));
    }
    success(&SenderList { senders })
}

impl WriteSender {
    fn new(id: SenderId, stats: SenderStats, shared: Vec<SharedSeries>, now_ms: i64) -> Self {
        let same_series = shared.into_iter().map(|shared| SameSeries {
            sender: shared.other.to_string(),
            share: shared.share,
        });
        Self {
            name: stats.name.clone(),
            address: id
                .address
                .map(|address| address.to_string())
                .unwrap_or_default(),
            user: id.user.to_string(),
            user_agent: id.user_agent,
            path: id.path,
            samples_per_second: stats.samples_per_second(now_ms),
            series: stats.n_series(now_ms),
            first_ms: stats.first_ms,
            last_ms: stats.last_ms,
            requests: stats.n_requests,
            samples: stats.n_samples,
            deduplicated: stats.n_deduplicated,
            failed: stats.n_failed,
            last_error: stats.last_error,
            last_error_ms: stats.last_error_ms,
            newest_sample_ms: stats.newest_sample.map(|newest| newest.timestamp_ms),
            lag_ms: stats.newest_sample.map(NewestSample::lag_ms),
            same_series: same_series.collect(),
        }
    }
}
