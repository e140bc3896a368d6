//! Targets, scrape pools and Alertmanagers. Varve does not scrape, so all lists but the last are
//! empty. Parameters are checked as in Prometheus.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use varve_server::requests::record::RequestRecord;
use varve_system::excerpt::quotable;

use crate::error::{ApiError, Result};
use crate::openapi::Untyped;
use crate::params::{Form, parse_int, parse_selector};
use crate::response::success;
use crate::serving::app::App;
use crate::serving::run::{RequestClass, job_fn, run};
use crate::serving::state::HttpState;
use varve_wire::schema;

/// Maximum size of `labels` in bytes.
const LABELS_SIZE_MAX: usize = 1 << 20;

schema! {
    /// All targets.
    pub(crate) struct Targets {
        active_targets: Vec<Untyped>,
        dropped_targets: Vec<Untyped>,
        /// Dropped targets by scrape pool, unless only active ones are requested.
        dropped_target_counts: Option<BTreeMap<String, u64>>,
    }
}

schema! {
    /// All scrape pools.
    pub(crate) struct ScrapePools {
        scrape_pools: Vec<String>,
    }
}

schema! {
    /// All Alertmanagers.
    pub(crate) struct Alertmanagers {
        active_alertmanagers: Vec<Alertmanager>,
        /// Targets that a relabel rule dropped.
        dropped_alertmanagers: Vec<Alertmanager>,
    }
}

schema! {
    /// An Alertmanager.
    pub(crate) struct Alertmanager {
        /// The URL to which alerts are sent.
        url: String,
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
pub(crate) async fn metadata(
    State(state): State<HttpState>,
    Extension(record): Extension<Arc<RequestRecord>>,
    form: Form,
) -> Result {
    let job = job_fn(move |work| {
        if !form.first("limit").is_empty() && parse_int(form.first("limit")).is_err() {
            return Err(ApiError::bad_data("limit must be a number"));
        }
        let selector = form.first("match_target");
        if !selector.is_empty() {
            parse_selector(&work.ctx, selector, |reason| {
                ApiError::invalid_parameter("match_target", reason)
            })?;
        }
        let none: [Untyped; 0] = [];
        work.respond_json(&none)
    });
    run(&state, &record, RequestClass::Metadata, None, job).await
}

/// GET /api/v1/targets/relabel_steps.
pub(crate) async fn relabel_steps(form: Form) -> ApiError {
    let pool = form.first("scrapePool");
    let labels = form.first("labels");
    if !pool.is_empty() {
        if labels.is_empty() {
            return ApiError::bad_data("no labels parameter provided");
        }
        if labels.len() > LABELS_SIZE_MAX {
            let size = labels.len();
            return ApiError::bad_data(format!(
                "labels of {size} bytes exceed the limit of {LABELS_SIZE_MAX}"
            ))
            .with_limit("labels size");
        }
        if let Err(error) = serde_json::from_str::<BTreeMap<String, String>>(labels) {
            return ApiError::bad_data(format!("error parsing labels: {error}"));
        }
    }
    no_such_pool(pool)
}

/// GET /api/v1/scrape_pools.
pub(crate) async fn scrape_pools() -> Response {
    success(&ScrapePools {
        scrape_pools: Vec::new(),
    })
}

/// GET /api/v1/scrape_pools/config.
pub(crate) async fn scrape_pool_config(form: Form) -> ApiError {
    no_such_pool(form.first("scrapePool"))
}

fn no_such_pool(pool: &str) -> ApiError {
    if pool.is_empty() {
        return ApiError::bad_data("no scrapePool parameter provided");
    }
    ApiError::bad_data(format!(
        "error retrieving scrape config: scrape pool {:?} not found",
        quotable(pool)
    ))
}

/// GET /api/v1/alertmanagers.
pub(crate) async fn alertmanagers(State(app): State<Arc<App>>) -> Response {
    let (active, dropped) = app.notifier.alertmanagers();
    success(&Alertmanagers {
        active_alertmanagers: alertmanager_list(active),
        dropped_alertmanagers: alertmanager_list(dropped),
    })
}

fn alertmanager_list(urls: Vec<String>) -> Vec<Alertmanager> {
    urls.into_iter().map(|url| Alertmanager { url }).collect()
}
