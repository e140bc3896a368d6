//! /api/v1/status/top_queries: what queries cost in the last hour or day, by the shape of their
//! expression or by a part of their requester.

use std::sync::Arc;

use axum::extract::State;
use varve_env::{Clock, SystemClock};
use varve_server::queries::top_queries::{GroupBy, QueryCost, QueryGroup};
use varve_server::requests::requester::QueryRequester;

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
    /// The groups of queries that took the most time.
    pub(crate) struct TopQueries {
        queries: Vec<TopQuery>,
    }
}

schema! {
    /// The queries of a group.
    pub(crate) struct TopQuery {
        /// The text without the contents of strings; empty if queries are not grouped by it.
        shape: String,
        /// The latest of the queries, truncated.
        example: String,
        /// The requester of the group; of the latest query, if queries are grouped by their shape.
        user: String,
        user_agent: String,
        dashboard: String,
        panel: String,
        grafana_rule: String,
        grafana_user: String,
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
    let wanted = Some(form.first("by")).filter(|by| !by.is_empty());
    let wanted = wanted.unwrap_or(GroupBy::Shape.name());
    let by = GroupBy::ALL.into_iter().find(|by| by.name() == wanted);
    let by = by.ok_or_else(|| {
        let reason = format!("{wanted:?} is none of {}", GroupBy::NAMES.join(", "));
        ApiError::invalid_parameter("by", reason)
    })?;
    let since_ms = SystemClock.now_ms() - range_ms;
    let list = app.requests.top_queries.list(since_ms, by);
    Ok(success(&TopQueries {
        queries: list
            .into_iter()
            .take(LISTED_MAX)
            .map(|(group, cost)| TopQuery::new(by, group, cost))
            .collect(),
    }))
}

impl TopQuery {
    fn new(by: GroupBy, group: QueryGroup, cost: QueryCost) -> Self {
        let QueryCost {
            n_queries,
            n_failed,
            seconds,
            seconds_max,
            n_samples,
            memory_peak_max,
            example,
            requester,
        } = cost;
        let QueryRequester {
            user,
            user_agent,
            grafana,
        } = match by {
            GroupBy::Shape => requester,
            _ => group.requester,
        };
        Self {
            shape: group.shape,
            example,
            user: user.to_string(),
            user_agent,
            dashboard: grafana.dashboard,
            panel: grafana.panel,
            grafana_rule: grafana.rule,
            grafana_user: grafana.user,
            queries: n_queries,
            failed: n_failed,
            seconds,
            seconds_max,
            samples: n_samples,
            memory_peak_bytes: memory_peak_max as u64,
        }
    }
}
