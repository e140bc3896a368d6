//! /api/v1/status/rejects: what of writes was not stored, by reason, with the last case of each.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use varve_query::decimal::Json;

use super::runtime::success;
use crate::http::App;
use crate::http::openapi::described;
use crate::server::rejects::Seen;

described! {
    /// What was not stored since the start, the last reason first.
    pub(crate) struct Rejects {
        rejects: Vec<Rejected>,
    }
}

described! {
    /// A reason, and its last case.
    pub(crate) struct Rejected {
        /// As `varve_ingest_rejected_total` has it; `malformed`, `too_large`, `busy`, `failed` are of whole requests.
        reason: String,
        /// The reason in words.
        message: String,
        /// Requests that lost something for it.
        requests: u64,
        /// Samples, series, histograms, exemplars or metric families, by what the reason is about.
        count: u64,
        /// Samples that were not stored for it.
        samples: u64,
        /// When it last came up, in milliseconds since the epoch.
        last_ms: i64,
        /// One of the things of the last request.
        example: RejectedExample,
        /// Who sent that.
        sender: Sender,
    }
}

described! {
    /// Something that was not stored.
    pub(crate) struct RejectedExample {
        /// What the sender was told of it.
        text: String,
        /// The labels as they were sent, before any rule, cut if they are long; empty if it is not about a series.
        labels: String,
        /// The time of the sample, if it is about one.
        timestamp_ms: Option<i64>,
        /// Its value; of a histogram, the sum.
        value: Option<String>,
    }
}

described! {
    /// Who sent a request.
    pub(crate) struct Sender {
        /// Address and port; empty if they are not known.
        address: String,
        user_agent: String,
        /// The name under which it was let in; empty where names are not asked for.
        user: String,
        /// Where it was sent to.
        path: String,
    }
}

/// GET /api/v1/status/rejects.
pub(crate) async fn status(State(app): State<Arc<App>>) -> Response {
    success(&Rejects { rejects: app.rejects.list().into_iter().map(Rejected::of).collect() })
}

impl Rejected {
    fn of(seen: Seen) -> Self {
        let Seen { reason, message, n_requests, count, n_samples, last, example, sender } = seen;
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
                address: sender.address.map(|address| address.to_string()).unwrap_or_default(),
                user_agent: sender.user_agent,
                user: sender.user.to_string(),
                path: sender.path,
            },
        }
    }
}
