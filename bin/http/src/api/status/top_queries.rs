//! /api/v1/status/top_queries: what queries cost in the last hour or day, by the shape of their
//! expression.

use std::sync::Arc;

use axum::extract::State;
use varve_env::{Clock, SystemClock};
use varve_server::queries::top_queries::QueryCost;

use crate::error::{ApiError, Result};
use crate::params::Form;
use crate::response::success;
use crate::serving::app::App;
use varve_wire::schema;

/// The ranges of the endpoint.
pub(crate) const RANGES: [&str; 2] = ["hour", "day"];
const HOUR_MS: i64 = 3_600_000;
const LISTED_MAX: usize = 100;

schema! {
    /// The shapes of queries that took the most time.
    pub(crate) struct TopQueries {
        queries: Vec<TopQuery>,
    }
}

schema! {
    /// Queries of one shape.
    pub(crate) struct TopQuery {
        /// The text without the contents of strings.
        shape: String,
        /// The latest of the queries, truncated.
        example: String,
        user_agent: String,
        queries: u64,
        failed: u64,
        /// Time of all queries together, without the queue.
        seconds: f64,
        seconds_max: f64,
        samples: u64,
        /// The maximum of their peaks of memory.
        memory_peak_bytes: u64,
    }
}

/// GET /api/v1/status/top_queries.
pub(crate) async fn status(State(app): State<Arc<App>>, form: Form) -> Result {
    let range_ms = match form.first("range") {
        "" | "hour" => HOUR_MS,
        "day" => 24 * HOUR_MS,
        other => {
            return Err(ApiError::invalid_parameter(
                "range",
                format!("{other:?} is neither hour nor day"),
            ));
        }
    };
    let list = app
        .requests
        .top_queries
        .list(SystemClock.now_ms() - range_ms);
    Ok(success(&TopQueries {
        queries: list
            .into_iter()
            .take(LISTED_MAX)
            .map(|(shape, cost)| TopQuery::new(shape, cost))
            .collect(),
    }))
}

impl TopQuery {
    fn new(shape: String, cost: QueryCost) -> Self {
        let QueryCost {
            n_queries,
            n_failed,
            seconds,
            seconds_max,
            n_samples,
            memory_peak_max,
            example,
            user_agent,
        } = cost;
        Self {
            shape,
            example,
            user_agent,
            queries: n_queries,
            failed: n_failed,
            seconds,
            seconds_max,
            samples: n_samples,
            memory_peak_bytes: memory_peak_max as u64,
        }
    }
}
