//! /api/v1/status/relabel: statistics of the rules in `ingest.metric_relabel_configs` and in presets.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use varve_ingest::relabel::{self, RuleStats};

use crate::http::openapi::described;
use crate::http::response::success;
use crate::server::app::App;

described! {
    /// The rules in order. Rules of presets come last.
    pub(crate) struct RelabelStatus {
        rules: Vec<RelabelRule>,
    }
}

described! {
    /// A rule, and its statistics since the rules were loaded.
    pub(crate) struct RelabelRule {
        name: String,
        /// `enforce`, or `dry_run`: the rule only counts.
        state: String,
        /// Whether the rule is disabled when a query uses series that it drops.
        disable_on_use: bool,
        /// The query that disabled it.
        disabled_by_use: Option<DisabledByUse>,
        /// Label sets that it dropped or changed, or would have in a dry run.
        series: u64,
        /// Their samples.
        samples: u64,
        /// Current rate of these samples.
        samples_per_second: f64,
    }
}

described! {
    /// The reason why a rule is disabled.
    pub(crate) struct DisabledByUse {
        /// When, in milliseconds since the epoch.
        at_ms: i64,
        /// The selector of the query.
        selector: String,
        /// The requester of the query.
        who: String,
    }
}

/// GET /api/v1/status/relabel.
pub(crate) async fn status(State(app): State<Arc<App>>) -> Response {
    let rules = app.store().map(|store| store.receiver.rule_stats()).unwrap_or_default();
    success(&RelabelStatus { rules: rules.into_iter().map(RelabelRule::of).collect() })
}

impl RelabelRule {
    fn of(stats: RuleStats) -> Self {
        let RuleStats { name, state, disable_on_use, disabled_by_use, series, samples, samples_per_second } = stats;
        let disabled_by_use = disabled_by_use.map(|relabel::DisabledByUse { at_ms, selector, who }| DisabledByUse {
            at_ms,
            selector,
            who,
        });
        let state = state.name().to_owned();
        Self { name, state, disable_on_use, disabled_by_use, series, samples, samples_per_second }
    }
}
