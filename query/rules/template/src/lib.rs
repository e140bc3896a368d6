//! Templates in labels and annotations of alerts: Go's `text/template` with the functions and
//! variables of Prometheus.
//!
//! ```text
//! text -> lex -> parse (node) -> execute (functions, builtins, print, time: over values) -> text
//! ```
//!
//! Invariants
//! 1. Output and error messages equal those of Prometheus. docs/decisions/rules/0018-templates.md
//!    lists the differences.
//! 2. Nesting, steps, output, errors and the memory of values are bounded. Long texts count as
//!    several steps. Steps check the deadline of the request, and values are charged to it.
//!
//! Used by `varve-rules`. The crate knows no rules, no HTTP and no clock: the caller passes the
//! sample, the time and the function that evaluates queries.
#![forbid(unsafe_code)]

mod builtins;
mod environment;
mod execute;
mod format;
mod functions;
mod lex;
mod limits;
mod methods;
mod node;
mod parse;
mod print;
mod time;
mod value;

use std::collections::BTreeMap;
use std::rc::Rc;

use varve_model::Labels;
use varve_query::VectorSample;

pub use builtins::query_escaped;
pub use environment::Environment;
pub use functions::FUNCTIONS;
pub use limits::{DEPTH_MAX, ERROR_SIZE_MAX, OUTPUT_SIZE_MAX, SIZE_MAX, STEPS_MAX};
use parse::Trees;
pub use print::scientific;
use value::{Data, Value};

/// Declares the variables that Prometheus gives to each template.
const VARIABLES: &str = "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}{{$externalURL := .ExternalURL}}\
                         {{$value := .Value}}";

/// A label or annotation of an alert.
#[derive(Debug)]
pub struct Template {
    name: String,
    /// The text, preceded by the declarations of variables. Columns in error messages include them.
    text: String,
    /// `None` if the text has no actions.
    trees: Option<Result<Trees, String>>,
}

impl Template {
    /// Parses a template of an alert.
    #[must_use]
    pub fn new(alert: &str, text: &str) -> Self {
        let name = format!("__alert_{alert}");
        if !text.contains("{{") {
            return Self {
                name,
                text: text.to_owned(),
                trees: None,
            };
        }
        let text = VARIABLES.to_owned() + text;
        let trees = Some(parse::parse(&name, &text));
        Self { name, text, trees }
    }

    /// Returns the reason why the text is not a template.
    #[must_use]
    pub fn parse_error(&self) -> Option<&str> {
        self.trees.as_ref()?.as_ref().err().map(String::as_str)
    }

    /// Executes the template for an alert. The sample has the labels and the value of the alert's
    /// expression.
    ///
    /// # Errors
    /// Prometheus' message, cut at [`ERROR_SIZE_MAX`]. [`error_text`] formats it as the text of the
    /// label or annotation.
    pub fn expand(
        &self,
        environment: &Environment<'_>,
        sample: &VectorSample,
    ) -> Result<String, String> {
        let Self { name, text, trees } = self;
        let trees = match trees {
            None => return Ok(text.clone()),
            Some(Err(error)) => return Err(cut(format!("error parsing template {name}: {error}"))),
            Some(Ok(trees)) => trees,
        };
        let data = Data {
            labels: sample.labels.clone(),
            external_labels: labels(environment.external_labels),
            external_url: environment.external_url.into(),
            value: Value::of_sample(sample),
        };
        let output = execute::execute(name, text, trees, environment, Value::Data(Rc::new(data)));
        output.map_err(|error| cut(format!("error executing template {name}: {error}")))
    }
}

/// Returns the start of an error.
fn cut(mut error: String) -> String {
    error.truncate(error.floor_char_boundary(ERROR_SIZE_MAX));
    error.shrink_to_fit();
    error
}

/// Converts external labels, which the configuration has checked.
fn labels(texts: &BTreeMap<String, String>) -> Labels {
    let pairs = texts
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()));
    Labels::from_pairs(pairs).unwrap_or_default()
}

/// Returns the text of a label or annotation whose template failed.
#[must_use]
pub fn error_text(error: &str) -> String {
    format!("<error expanding template: {error}>")
}

/// Prints a duration as Go does: `1h30m0s`.
pub fn print_go_duration(duration: std::time::Duration) -> String {
    let nanos = i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
    time::Duration {
        nanos,
        is_pointer: false,
    }
    .to_string()
}

#[cfg(test)]
mod tests;
