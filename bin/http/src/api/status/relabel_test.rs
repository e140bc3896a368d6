//! /api/v1/status/relabel/test: the effect of the relabel rules in force, or of given rules, on a
//! series.

use std::sync::Arc;

use std::collections::BTreeMap;

use axum::Extension;
use axum::extract::State;
use varve_config::file as config;
use varve_ingest::relabel::{RelabelPreview, RelabelStep, Relabeling};
use varve_model::{Labels, MatchOp};
use varve_rules::file::CanonicalYaml;
use varve_server::requests::record::RequestRecord;

use crate::error::{ApiError, Result};
use crate::params::{Form, parse_selector};
use crate::serving::run::{RequestClass, Work, job_fn, run};
use crate::serving::state::HttpState;
use varve_wire::schema;

schema! {
    /// The effect of relabel rules on a series.
    pub(crate) struct RelabelTest {
        /// The rules that have an effect, or would have, in order.
        steps: Vec<TestStep>,
        /// The resulting labels; null if a rule drops the series.
        result: Option<BTreeMap<String, String>>,
        /// Why the result is not a valid label set, or empty.
        error: String,
    }
}

schema! {
    /// The effect of a relabel rule.
    pub(crate) struct TestStep {
        name: String,
        /// `enforce`, or `dry_run`: the rule changes nothing.
        state: String,
        /// Whether the rule drops the series, or would.
        drops: bool,
        /// Labels that the rule sets, or would set.
        set: BTreeMap<String, String>,
        /// Labels that the rule deletes, or would delete.
        deleted: Vec<String>,
    }
}

/// GET and POST /api/v1/status/relabel/test.
pub(crate) async fn test(
    State(state): State<HttpState>,
    Extension(record): Extension<Arc<RequestRecord>>,
    form: Form,
) -> Result {
    form.check_encoding()?;
    let timeout = form.timeout()?;
    let job = job_fn(move |work| respond(work, &form));
    run(&state, &record, RequestClass::Metadata, timeout, job).await
}

fn respond(work: &mut Work, form: &Form) -> Result<()> {
    let labels = read_series(work, form.first("series"))?;
    let mut charge = work.ctx.charge();
    let rules = form.yaml("rules", &mut charge)?;
    let RelabelPreview { steps, result } = match rules {
        "" => {
            let receiver = &work.store.receiver;
            receiver.preview_relabeling(&work.ctx, &labels, &mut charge)?
        }
        text => read_rules(work, text)?.preview(&work.ctx, &labels, &mut charge)?,
    };
    let (result, error) = match result {
        Ok(labels) => (labels, String::new()),
        Err(invalid) => (None, invalid.to_string()),
    };
    work.respond_json(&RelabelTest {
        steps: steps.into_iter().map(TestStep::of).collect(),
        result: result.map(|labels| to_map(&labels)),
        error,
    })
}

fn to_map(labels: &Labels) -> BTreeMap<String, String> {
    labels
        .iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn read_series(work: &Work, text: &str) -> Result<Labels> {
    let matchers = parse_selector(&work.ctx, text, invalid_series)?;
    if matchers
        .iter()
        .any(|matcher| matcher.op() != MatchOp::Equal)
    {
        let reason = "expected label=\"value\" matchers only";
        return Err(invalid_series(reason.to_owned()));
    }
    let mut pairs: Vec<_> = matchers
        .iter()
        .map(|matcher| (matcher.name(), matcher.value()))
        .collect();
    Labels::from_unsorted(&mut pairs).map_err(|error| invalid_series(error.to_string()))
}

fn invalid_series(reason: String) -> ApiError {
    ApiError::invalid_parameter("series", reason)
}

fn read_rules(work: &Work, text: &str) -> Result<Relabeling> {
    let rewritten = CanonicalYaml::new(&work.ctx, text);
    // An error may be the deadline.
    work.ctx.check()?;
    let rewritten = rewritten.map_err(|error| invalid_rules(error.to_string()))?;
    config::parse_relabeling(rewritten.text())
        .map_err(|error| invalid_rules(rewritten.with_original_position(&format!("{error:#}"))))
}

fn invalid_rules(reason: String) -> ApiError {
    ApiError::invalid_parameter("rules", reason)
}

impl TestStep {
    fn of(
        RelabelStep {
            name,
            state,
            drops,
            set,
            deleted,
        }: RelabelStep,
    ) -> Self {
        Self {
            name,
            state: state.name().to_owned(),
            drops,
            set: set.into_iter().collect(),
            deleted,
        }
    }
}
