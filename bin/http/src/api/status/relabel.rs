//! /api/v1/status/relabel: statistics of the rules in `ingest.metric_relabel_configs` and in
//! presets.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use varve_ingest::relabel::{self, RelabelRuleStats};

use crate::response::success;
use crate::serving::app::App;
use varve_wire::schema;

schema! {
    /// The rules in order. Rules of presets come last.
    pub(crate) struct RelabelStatus {
        rules: Vec<RelabelRule>,
    }
}

schema! {
    /// A rule, and its statistics since the rules last changed.
    pub(crate) struct RelabelRule {
        name: String,
        /// `enforce`, or `dry_run`: the rule only counts.
        state: String,
        /// Whether the rule is disabled when a query uses series that it drops.
        disable_on_use: bool,
        /// The query that disabled it.
        disabled_by_use: Option<DisabledByUse>,
        /// The first query that would have disabled it, if it is in a dry run.
        would_be_disabled_by: Option<DisabledByUse>,
        /// Label sets that it dropped or changed, or would have in a dry run.
        series: u64,
        /// Their samples.
        samples: u64,
        /// Current rate of these samples.
        samples_per_second: f64,
    }
}

schema! {
    /// A query for series that a rule drops.
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
    let rules = app
        .store()
        .map(|store| store.receiver.relabel_rule_stats())
        .unwrap_or_default();
    success(&RelabelStatus {
        rules: rules.into_iter().map(RelabelRule::of).collect(),
    })
}

impl DisabledByUse {
    fn of(disabled: relabel::DisabledByUse) -> Self {
        Self {
            at_ms: disabled.at_ms,
            selector: disabled.selector,
            who: disabled.who,
        }
    }
}

impl RelabelRule {
    fn of(stats: RelabelRuleStats) -> Self {
        Self {
            name: stats.name,
            state: stats.state.name().to_owned(),
            disable_on_use: stats.disable_on_use,
            disabled_by_use: stats.disabled_by_use.map(DisabledByUse::of),
            would_be_disabled_by: stats.would_be_disabled_by.map(DisabledByUse::of),
            series: stats.series,
            samples: stats.samples,
            samples_per_second: stats.samples_per_second,
        }
    }
}
