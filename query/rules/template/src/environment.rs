//! What an execution knows besides the sample of the alert.

use std::collections::BTreeMap;

use varve_context::QueryContext;
use varve_query::VectorSample;

/// Context of an execution, besides the sample of the alert.
#[derive(Clone, Copy)]
pub struct Environment<'a> {
    /// Deadline and memory limit of the execution.
    pub ctx: &'a QueryContext,
    /// The time of the evaluation, in milliseconds.
    pub timestamp_ms: i64,
    /// `global.external_labels`.
    pub external_labels: &'a BTreeMap<String, String>,
    /// `--web.external-url`.
    pub external_url: &'a str,
    /// Evaluates an expression at the time of the evaluation, for the function `query`.
    pub query: &'a dyn Fn(&str) -> Result<Vec<VectorSample>, String>,
}
