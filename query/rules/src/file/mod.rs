//! Rule files: from YAML to groups with parsed expressions.
//!
//! Used by the server, `varve check rules`, `varve test rules` and `varve advise`. Reads
//! Prometheus' rule files, PrometheusRule manifests, lists of them, and ConfigMaps whose values are
//! rule files.
//!
//! ```text
//! text -> read (document, raw: YAML only) -> RawFile -> check -> RuleFile
//!          '- yaml: a text that a client sends                '- locate: positions of errors
//! ```
//!
//! Invariants
//! 1. [`parse`] accepts a file of Prometheus if and only if Prometheus does, and reports all errors
//!    with positions.
//! 2. The labels of a [`RuleDefinition`] include the labels of its group.

mod check;
mod document;
mod error;
mod locate;
pub(crate) mod mapping;
mod raw;
mod unknown;
mod yaml;

use varve_context::QueryContext;
use varve_promql::Features;
use varve_promql::ast::Expr;

use document::read_for;
pub use document::{RawFile, read};
pub use error::FileError;
pub use mapping::Texts;
pub use raw::{RawGroup, RawRule};
pub use yaml::{CanonicalYaml, YAML_DEPTH_MAX};

/// Options of [`parse`].
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Ignores unknown fields instead of rejecting them.
    pub ignore_unknown_fields: bool,
    /// The optional parts of PromQL that expressions may use.
    pub features: Features,
    /// The request that sent the text. Its text, and the texts in it, are read as
    /// [`CanonicalYaml`].
    pub request: Option<QueryContext>,
}

/// A valid rule file. A text may contain several: one per PrometheusRule manifest.
#[derive(Debug, Clone)]
pub struct RuleFile {
    /// `namespace/name` of the manifest; `None` for Prometheus' own format.
    pub manifest: Option<String>,
    /// The groups in the order of the file. Their names are unique.
    pub groups: Vec<GroupDefinition>,
}

/// A group of rules that are evaluated together.
#[derive(Debug, Clone)]
pub struct GroupDefinition {
    /// Unique in the file.
    pub name: String,
    /// Evaluation interval in milliseconds; `None` if the global one applies.
    pub interval_ms: Option<i64>,
    /// Query offset in milliseconds; `None` if the global offset applies.
    pub query_offset_ms: Option<i64>,
    /// Maximum number of series or alerts per rule; 0 for no limit.
    pub limit: usize,
    /// Determines whether alerts are sent.
    pub state: GroupState,
    /// The rules in the order of evaluation.
    pub rules: Vec<RuleDefinition>,
}

/// The state that a file requests for a group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum GroupState {
    /// `state: active`: evaluated, and alerts are sent.
    #[default]
    Active,
    /// `state: dry_run`: evaluated and visible; nothing is written or sent.
    DryRun,
}

/// A rule.
#[derive(Debug, Clone)]
pub struct RuleDefinition {
    /// Name of the metric or of the alert.
    pub name: String,
    /// The expression.
    pub expr: Expression,
    /// The labels of the group, overridden by the labels of the rule. Templates in an alerting
    /// rule.
    pub labels: Texts,
    /// Fields that only one kind of rule has.
    pub kind: RuleKind,
}

/// The kind of a rule.
#[derive(Debug, Clone)]
pub enum RuleKind {
    /// The result is written under the name of the rule.
    Recording,
    /// Each series of the result is an alert.
    Alerting(Alerting),
}

/// Fields of an alerting rule.
#[derive(Debug, Clone)]
pub struct Alerting {
    /// `for`: time for which an alert is pending before it fires, in milliseconds.
    pub for_ms: i64,
    /// `keep_firing_for`: time for which an alert fires after its last match, in milliseconds.
    pub keep_firing_for_ms: i64,
    /// Templates.
    pub annotations: Texts,
}

/// A parsed expression and its text.
#[derive(Debug, Clone)]
pub struct Expression {
    /// As written in the file.
    pub text: String,
    /// The syntax tree.
    pub tree: Expr,
}

/// The result of [`parse`].
#[derive(Debug, Clone, Default)]
pub struct Parsed {
    /// The files, in the order of the text.
    pub files: Vec<RuleFile>,
    /// Number of ignored documents. Prometheus reads only the first document with groups.
    pub n_ignored_documents: usize,
}

/// Reads and checks all rule files of a text.
///
/// # Errors
/// All errors of the text.
pub fn parse(text: &str, options: &Options) -> Result<Parsed, Vec<FileError>> {
    let mut parsed = Parsed::default();
    let mut errors = Vec::new();
    let request = options.request.as_ref();
    let raws = match read_for(text, request) {
        Ok(raws) => raws,
        Err(error) => {
            errors.push(error);
            if !options.ignore_unknown_fields {
                errors.extend(unknown::find(text, request));
            }
            return Err(errors);
        }
    };
    errors.extend(check::repeated_in_manifests(&raws));
    for raw in raws {
        if raw.manifest.is_none() && raw.document > 0 {
            parsed.n_ignored_documents += 1;
            continue;
        }
        match check::check(&raw, options) {
            Ok(file) => parsed.files.push(file),
            Err(found) => errors.extend(found),
        }
    }
    if errors.is_empty() {
        Ok(parsed)
    } else {
        Err(errors)
    }
}

#[cfg(test)]
mod tests;
