//! /api/v1/status/advice: unused metrics, buckets and labels of this server, and the rules that
//! drop them.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use varve_advise::Advice;
use varve_advise::findings;
use varve_advise::inventory::Stored;
use varve_advise::keep::Keep;
use varve_advise::needs::{Nameless, Needs};
use varve_advise::relabel_rules::{self, Dialect};
use varve_advise::usage::{Entry, Snapshot};
use varve_context::Charge;
use varve_env::{Clock, SystemClock};
use varve_model::TimeRange;
use varve_rules::RuleSet;
use varve_server::requests::record::RequestRecord;
use varve_system::metrics::OWN_JOB;

use crate::error::{ApiError, Result};
use crate::params::Form;
use crate::serving::run::{RequestClass, Work, job_fn, run_shared};
use crate::serving::state::HttpState;
use varve_wire::api::advice::{AdviceReport, BYTES_PER_SAMPLE};

/// The retention that sizes assume while samples have no maximum age: the default.
const RETENTION_ASSUMED: Duration = Duration::from_secs(15 * 86_400);
/// Bytes of a need per byte of the entry of the usage record, or of the rule, that it is made of.
const NEED_COPIES: usize = 4;
/// Estimated bytes of a rule without its expression.
const RULE_SIZE: usize = 256;
/// The formats of the rules.
pub(crate) const FORMATS: [&str; 2] = ["varve", "prometheus"];

/// GET /api/v1/status/advice. `since` limits the usage record, `labels=true` also finds unused
/// labels, `count_exploration=true` counts recorded queries without a metric name as uses.
pub(crate) async fn status(
    State(state): State<HttpState>,
    Extension(record): Extension<Arc<RequestRecord>>,
    form: Form,
) -> Result {
    form.check_encoding()?;
    let timeout = form.timeout()?;
    let limit = form.limit()?.unwrap_or(usize::MAX);
    let labels = form.boolean("labels")?;
    let nameless = nameless(&form)?;
    let keep = KeepParameters::of(&form)?;
    let used_since_ms = form.optional_time_ms("since")?.unwrap_or(i64::MIN);
    let dialect = match form.first("format") {
        "" | "varve" => Dialect::Varve,
        "prometheus" => Dialect::Prometheus,
        other => {
            return Err(ApiError::invalid_parameter(
                "format",
                format!("{other:?} is none of {FORMATS:?}"),
            ));
        }
    };
    let now_ms = SystemClock.now_ms();
    let settings = &state.app.settings;
    let range = TimeRange {
        start_ms: now_ms - settings.query.lookback_delta_ms + 1,
        end_ms: now_ms,
    };
    let config = state.app.config.current();
    let retention = match settings.retention(&config).time {
        Duration::ZERO => RETENTION_ASSUMED,
        time => time,
    };
    let request = Request {
        used_since_ms,
        nameless,
        keep,
        labels,
        limit,
        dialect,
        scrape_interval: config.global.scrape_interval,
    };
    let app = state.app.clone();
    let parameters = Arc::new(request.clone());
    let job = job_fn(move |work| {
        let mut charge = work.ctx.charge();
        let usage = work.store.usage.snapshot(&mut charge)?;
        let (advice, _charge) = request.advice(work, &usage, &app.rules.set(), range, retention)?;
        work.respond_json(&AdviceReport::of(Some(usage.since_ms), advice, limit))
    });
    run_shared(
        &state,
        &record,
        RequestClass::Query,
        timeout,
        parameters,
        job,
    )
    .await
}

/// Returns which selectors without a metric name count as uses.
fn nameless(form: &Form) -> Result<Nameless> {
    Ok(if form.boolean("count_exploration")? {
        Nameless::All
    } else {
        Nameless::default()
    })
}

/// What the keep list has.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct KeepParameters {
    is_without_presets: bool,
    /// A further regular expression of metric names, or empty.
    pattern: String,
}

impl KeepParameters {
    fn of(form: &Form) -> Result<Self> {
        let keep = Self {
            is_without_presets: form.boolean("no_keep")?,
            pattern: form.first("keep").to_owned(),
        };
        // An invalid regular expression is an error of the parameter.
        keep.list()?;
        Ok(keep)
    }

    fn list(&self) -> Result<Keep> {
        let mut keep = if self.is_without_presets {
            Keep::default()
        } else {
            Keep::presets()
        };
        if !self.pattern.is_empty() {
            keep.add(&self.pattern)
                .map_err(|error| ApiError::invalid_parameter("keep", error))?;
        }
        Ok(keep)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Request {
    used_since_ms: i64,
    nameless: Nameless,
    keep: KeepParameters,
    labels: bool,
    /// Maximum number of elements of a list.
    limit: usize,
    dialect: Dialect,
    /// That of jobs for which it cannot be measured.
    scrape_interval: Duration,
}

impl Request {
    /// Compares the series of the store with its usage record and the rules of its server.
    /// Dashboards are known only as far as their queries are in the usage record. Series with a
    /// sample in `range` exist. The charge covers the result.
    fn advice(
        &self,
        work: &Work,
        usage: &Snapshot,
        rules: &RuleSet,
        range: TimeRange,
        retention: Duration,
    ) -> Result<(Advice, Charge)> {
        let mut charge = work.ctx.charge();
        let entries = usage.metrics.iter().chain(&usage.selectors);
        charge.grow(NEED_COPIES * entries.map(Entry::size).sum::<usize>())?;
        let rules_size = rules
            .groups()
            .flat_map(|group| &group.rules)
            .map(|rule| RULE_SIZE + rule.definition.expr.text.len());
        charge.grow(NEED_COPIES * rules_size.sum::<usize>())?;
        let mut needs = Needs::default();
        needs.add_usage_record(&"usage record".into(), usage, self.used_since_ms);
        needs.add_rule_set(rules);
        let mut inventory = Stored::new(&work.store.db, &work.ctx, range, self.scrape_interval);
        let keep = self.keep.list()?;
        // The regular expression of the request is compiled within its limits.
        for matcher in keep.matchers() {
            matcher.compile(&work.ctx)?;
        }
        let options = findings::Options {
            keep,
            own_job: OWN_JOB,
            by_job: false,
            nameless: self.nameless,
            labels: self.labels,
            bytes_per_sample: inventory.bytes_per_sample().unwrap_or(BYTES_PER_SAMPLE),
            retention,
        };
        let rules = relabel_rules::Options {
            dialect: self.dialect,
            enforce: false,
            labels: self.labels,
        };
        let advice = Advice::find(&needs, &mut inventory, options, rules)?;
        Ok((advice, inventory.into_charge()))
    }
}
