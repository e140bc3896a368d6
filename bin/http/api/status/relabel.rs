//! /api/v1/status/relabel: what each rule of `ingest.metric_relabel_configs` and of presets does.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use varve_ingest::relabel::{Fallen, RuleStats};

use crate::http::openapi::described;
use crate::http::response::success;
use crate::server::app::App;

described! {
    /// The rules in their order, those of presets last.
    pub(crate) struct RelabelStatus {
        rules: Vec<RelabelRule>,
    }
}

described! {
    /// A rule, and what it has done since the rules were loaded.
    pub(crate) struct RelabelRule {
        name: String,
        /// `enforce`, or `shadow`: the rule only counts.
        state: String,
        /// Whether the rule falls back to shadow when somebody asks for what it drops.
        armed: bool,
        /// That it has.
        fallen_back: Option<FallenBack>,
        /// Label sets that it dropped or changed, or would have, when they were first seen.
        series: u64,
        /// Their samples.
        samples: u64,
        /// Likewise per second, of late.
        samples_per_second: f64,
    }
}

described! {
    /// Why a rule has fallen back to shadow.
    pub(crate) struct FallenBack {
        /// When, in milliseconds since the epoch.
        at_ms: i64,
        /// What was asked for.
        selector: String,
        /// Who asked.
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
        let RuleStats { name, state, armed, fallen, series, samples, samples_per_second } = stats;
        let fallen_back = fallen.map(|Fallen { at_ms, selector, who }| FallenBack { at_ms, selector, who });
        Self { name, state: state.name().to_owned(), armed, fallen_back, series, samples, samples_per_second }
    }
}
