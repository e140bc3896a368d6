//! Targets, scrape pools and Alertmanagers: Varve scrapes nothing and alerts nobody, so that all lists are empty. The
//! parameters are checked as Prometheus checks them.

use std::collections::BTreeMap;

use axum::response::{IntoResponse, Response};
use varve_query::promql;

use crate::http::api::status::runtime::success;
use crate::http::error::ApiError;
use crate::http::openapi::{Untyped, described};
use crate::http::params::{Form, parse_int};

/// An entry of a list that is always empty.
#[derive(Debug, serde::Serialize)]
pub(crate) enum Nothing {}

impl crate::http::openapi::Described for Nothing {
    fn schema(schemas: &mut crate::http::openapi::Schemas) -> serde_json::Value {
        Untyped::schema(schemas)
    }
}

described! {
    /// All targets.
    pub(crate) struct Targets {
        active_targets: Vec<Nothing>,
        dropped_targets: Vec<Nothing>,
        /// Dropped targets by scrape pool, unless only active ones are asked for.
        dropped_target_counts: Option<BTreeMap<String, u64>>,
    }
}

described! {
    /// All scrape pools.
    pub(crate) struct ScrapePools {
        scrape_pools: Vec<String>,
    }
}

described! {
    /// All Alertmanagers.
    pub(crate) struct Alertmanagers {
        active_alertmanagers: Vec<Nothing>,
        dropped_alertmanagers: Vec<Nothing>,
    }
}

/// GET /api/v1/targets.
pub(crate) async fn targets(form: Form) -> Response {
    let has_dropped = matches!(&*form.first("state").to_lowercase(), "" | "any" | "dropped");
    success(&Targets {
        active_targets: Vec::new(),
        dropped_targets: Vec::new(),
        dropped_target_counts: has_dropped.then(BTreeMap::new),
    })
}

/// GET /api/v1/targets/metadata.
pub(crate) async fn metadata(form: Form) -> Response {
    if !form.first("limit").is_empty() && parse_int(form.first("limit")).is_err() {
        return ApiError::bad_data("limit must be a number").into_response();
    }
    let selector = form.first("match_target");
    if !selector.is_empty()
        && let Err(refused) = promql::parse_selector(selector)
    {
        return ApiError::invalid_parameter("match_target", refused).into_response();
    }
    success::<[Nothing]>(&[])
}

/// GET /api/v1/targets/relabel_steps.
pub(crate) async fn relabel_steps(form: Form) -> Response {
    let pool = match scrape_pool(&form) {
        Ok(pool) => pool,
        Err(refused) => return refused.into_response(),
    };
    match form.first("labels") {
        "" => ApiError::bad_data("no labels parameter provided").into_response(),
        labels => match serde_json::from_str::<BTreeMap<String, String>>(labels) {
            Err(refused) => ApiError::bad_data(format!("error parsing labels: {refused}")).into_response(),
            Ok(_) => no_such_pool(pool).into_response(),
        },
    }
}

/// GET /api/v1/scrape_pools.
pub(crate) async fn scrape_pools() -> Response {
    success(&ScrapePools { scrape_pools: Vec::new() })
}

/// GET /api/v1/scrape_pools/config.
pub(crate) async fn scrape_pool_config(form: Form) -> Response {
    match scrape_pool(&form) {
        Ok(pool) => no_such_pool(pool).into_response(),
        Err(refused) => refused.into_response(),
    }
}

fn scrape_pool(form: &Form) -> Result<&str, ApiError> {
    match form.first("scrapePool") {
        "" => Err(ApiError::bad_data("no scrapePool parameter provided")),
        pool => Ok(pool),
    }
}

fn no_such_pool(pool: &str) -> ApiError {
    ApiError::bad_data(format!("error retrieving scrape config: scrape pool {pool:?} not found"))
}

/// GET /api/v1/alertmanagers.
pub(crate) async fn alertmanagers() -> Response {
    success(&Alertmanagers { active_alertmanagers: Vec::new(), dropped_alertmanagers: Vec::new() })
}
