//! What an engine takes and returns: a query with its settings, its parsed form, and its result.

use std::sync::Arc;

use varve_context::Charge;
use varve_promql::ast::{Expr, ValueType};

use crate::annotations::Annotations;
use crate::error::{Error, Result};
use crate::eval::select::SharedScans;
use crate::stats::{QueryStats, StatsMode, Timings};
use crate::steps::Steps;
use crate::value::Value;

/// Maximum number of steps of a range query. The HTTP API has a lower limit: 11,000, as in
/// Prometheus.
pub const STEPS_MAX: usize = 1 << 20;

/// A query and the settings of its evaluation.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// The query text.
    pub query: &'a str,
    /// The evaluation times.
    pub steps: Steps,
    /// Lookback delta in milliseconds; overrides that of the engine if positive.
    pub lookback_delta_ms: Option<i64>,
    /// The statistics to collect.
    pub stats: StatsMode,
    /// Overrides the feature `use-start-timestamps` of the engine.
    pub use_start_timestamps: Option<bool>,
    /// Labels that all series have in addition to their own, for matchers and results. They replace
    /// labels of the same name.
    pub external_labels: Arc<[(String, String)]>,
    /// Scans that the query shares with others at the same time.
    pub scans: Option<&'a SharedScans>,
    /// Uses the result cache, unless the request has external labels, shared scans, or limits of
    /// the samples that it reads. All such requests to an engine must be to one store.
    pub use_cache: bool,
}

impl<'a> Request<'a> {
    /// Creates a request without statistics and cache, with the lookback delta of the engine.
    #[must_use]
    pub fn new(query: &'a str, steps: Steps) -> Self {
        Self {
            query,
            steps,
            lookback_delta_ms: None,
            stats: StatsMode::Off,
            use_start_timestamps: None,
            external_labels: Arc::default(),
            scans: None,
            use_cache: false,
        }
    }
}

/// A parsed query.
#[derive(Debug)]
pub struct ParsedQuery {
    pub(super) expr: Expr,
    /// Charge for the memory of the tree and of the plan.
    pub(super) charge: Charge,
    pub(super) timings: Timings,
}

impl ParsedQuery {
    /// Returns the syntax tree.
    #[must_use]
    pub fn expr(&self) -> &Expr {
        &self.expr
    }
}

/// The result of a query.
#[derive(Debug)]
pub struct QueryResult {
    /// The value. The order of a vector depends on the expression. The series of a matrix ascend by
    /// labels.
    pub value: Value,
    /// Warnings and infos.
    pub annotations: Annotations,
    /// Statistics, if they were requested.
    pub stats: Option<Box<QueryStats>>,
    /// Charge for the memory of the value. Drop it after the value.
    pub charge: Charge,
}

/// Checks the steps of a query, and that its expression may be evaluated at several steps.
pub(super) fn check_steps(expr: &Expr, steps: Steps) -> Result<()> {
    if steps.is_instant() {
        return Ok(());
    }
    check_range_type(expr)?;
    if steps.step_ms <= 0 {
        return Err(Error::Invalid(format!(
            "step of {} ms is not positive",
            steps.step_ms
        )));
    }
    if steps.end_ms < steps.start_ms {
        return Err(Error::Invalid(
            "end timestamp must not be before start time".into(),
        ));
    }
    if steps.n_steps > STEPS_MAX {
        return Err(Error::Invalid(format!(
            "{} steps exceed the limit of {STEPS_MAX}",
            steps.n_steps
        )));
    }
    Ok(())
}

/// Fails unless the expression is a scalar or an instant vector.
fn check_range_type(expr: &Expr) -> Result<()> {
    let value_type = expr.value_type();
    if matches!(value_type, ValueType::Scalar | ValueType::Vector) {
        return Ok(());
    }
    let documented = value_type.documented();
    Err(Error::Invalid(format!(
        "invalid expression type {documented:?} for range query, must be Scalar or instant Vector"
    )))
}
