//! /api/v1/status/rejects: rejected samples by reason, each with its last example.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use varve_promql::decimal::Json;
use varve_server::rejections::RejectionStats;

use crate::response::success;
use crate::serving::app::App;
use varve_wire::schema;

schema! {
    /// Rejections since the start, the most recent reason first.
    pub(crate) struct Rejects {
        rejects: Vec<Rejected>,
    }
}

schema! {
    /// Rejections of one reason.
    pub(crate) struct Rejected {
        /// The reason, as in `varve_ingest_rejected_total`. `malformed`, `too_large`, `busy` and
        /// `failed` are rejected requests.
        reason: String,
        /// The reason in words.
        message: String,
        /// Requests with at least one such rejection.
        requests: u64,
        /// Rejected samples, series, histograms, exemplars or metric families, by reason.
        count: u64,
        /// Rejected samples.
        samples: u64,
        /// Time of the last one, in milliseconds since the epoch.
        last_ms: i64,
        /// An example from the last request.
        example: RejectedExample,
        /// The sender of the last request.
        sender: Sender,
    }
}

schema! {
    /// An example of a rejection.
    pub(crate) struct RejectedExample {
        /// The error that the sender got.
        text: String,
        /// The labels as they were sent, before relabeling, truncated. Empty if the rejection
        /// is not of a series.
        labels: String,
        /// The timestamp of the sample, if it is one.
        timestamp_ms: Option<i64>,
        /// The value of the sample. The sum, if it is a histogram.
        value: Option<String>,
    }
}

schema! {
    /// The sender of a request.
    pub(crate) struct Sender {
        /// Address and port. Empty if unknown.
        address: String,
        user_agent: String,
        /// The authenticated user. Empty without authentication.
        user: String,
        /// The path of the request.
        path: String,
    }
}

/// GET /api/v1/status/rejects.
pub(crate) async fn status(State(app): State<Arc<App>>) -> Response {
    success(&Rejects {
        rejects: app
            .rejections
            .list()
            .into_iter()
            .map(Rejected::of)
            .collect(),
    })
}

impl Rejected {
    fn of(stats: RejectionStats) -> Self {
        let RejectionStats {
            reason,
            message,
            n_requests,
            count,
            n_samples,
            last,
            example,
            sender,
        } = stats;
        Self {
            reason: reason.to_owned(),
            message,
            requests: n_requests,
            count,
            samples: n_samples,
            last_ms: last.as_millisecond(),
            example: RejectedExample {
                text: example.text,
                labels: example.labels,
                timestamp_ms: example.timestamp_ms,
                value: example.value.map(|value| Json(value).to_string()),
            },
            sender: Sender {
                address: sender
                    .address
                    .map(|address| address.to_string())
                    .unwrap_or_default(),
                user_agent: sender.user_agent,
                user: sender.user.to_string(),
                path: sender.path,
            },
        }
    }
}
