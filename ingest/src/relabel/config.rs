//! A relabel configuration as written in the file. The errors have the texts of Prometheus
//! (`model/relabel`).

use varve_regexp::{Regexp, RegexpError, Rewrite};

/// A relabel configuration. A field that is `None` or empty is not in the file and has Prometheus'
/// default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RelabelConfig {
    /// Labels whose values are joined. Default none.
    pub source_labels: Vec<String>,
    /// The separator of the joined values. Default `;`.
    pub separator: Option<String>,
    /// The anchored regular expression for the joined values. Default `(.*)`.
    pub regex: Option<String>,
    /// Modulus of `hashmod`. Default 0.
    pub modulus: u64,
    /// The label that the rule sets or compares; a template for `replace`. Default empty.
    pub target_label: String,
    /// The template of the new value. Default `$1`.
    pub replacement: Option<String>,
    /// The action, in upper or lower case. Default `replace`.
    pub action: Option<String>,
    /// The rule's name in metrics. Default `#` and its index.
    pub name: Option<String>,
    /// Whether the rule takes effect or only counts. Default `enforce`.
    pub state: RelabelRuleState,
    /// Whether the rule switches to `dry_run` when a query names a metric whose series it dropped.
    /// Default `false`.
    pub disable_on_use: bool,
    /// Whether a query without a metric name also disables the rule, if it may select series that
    /// the rule dropped. Default `false`.
    pub disable_on_nameless_use: bool,
}

/// Whether a rule takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RelabelRuleState {
    /// The rule takes effect.
    #[default]
    Enforce,
    /// The rule only counts what it would change or drop.
    DryRun,
}

impl RelabelRuleState {
    /// Returns the state as written in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::DryRun => "dry_run",
        }
    }
}

/// The reason why a configuration is invalid, in Prometheus' words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RelabelError(pub(super) String);

/// A compiled action.
#[derive(Debug)]
pub(super) enum Action {
    Replace {
        regex: Regexp,
        target: Template,
        replacement: Template,
    },
    Keep(Regexp),
    Drop(Regexp),
    KeepEqual(String),
    DropEqual(String),
    HashMod {
        target: String,
        modulus: u64,
    },
    LabelMap(Rewrite),
    LabelDrop(Regexp),
    LabelKeep(Regexp),
    Lowercase(String),
    Uppercase(String),
}

/// A template that may refer to groups of the rule's regular expression.
#[derive(Debug)]
pub(super) enum Template {
    /// A string without references.
    Plain(String),
    Groups(Box<Rewrite>),
}

impl RelabelConfig {
    pub(super) fn separator(&self) -> &str {
        self.separator.as_deref().unwrap_or(";")
    }

    fn replacement(&self) -> &str {
        self.replacement.as_deref().unwrap_or(REPLACEMENT)
    }

    fn pattern(&self) -> &str {
        self.regex.as_deref().unwrap_or("(.*)")
    }

    /// Checks the configuration and compiles its action.
    pub(super) fn compile(&self) -> Result<Action, RelabelError> {
        let action = self.action.as_deref().unwrap_or("replace");
        let name = action.to_lowercase();
        if let Some(label) = self.source_labels.iter().find(|label| label.is_empty()) {
            return invalid(format!("{label:?} is not a valid label name"));
        }
        let pattern = Regexp::parse(self.pattern()).map_err(regex_error)?;
        self.check(&name)?;
        let target = self.target_label.clone();
        let modulus = self.modulus;
        Ok(match name.as_str() {
            "keep" => Action::Keep(pattern),
            "drop" => Action::Drop(pattern),
            "keepequal" => Action::KeepEqual(target),
            "dropequal" => Action::DropEqual(target),
            "hashmod" => Action::HashMod { target, modulus },
            "labelmap" => Action::LabelMap(
                Rewrite::parse(self.pattern(), self.replacement()).map_err(regex_error)?,
            ),
            "labeldrop" => Action::LabelDrop(pattern),
            "labelkeep" => Action::LabelKeep(pattern),
            "lowercase" => Action::Lowercase(target),
            "uppercase" => Action::Uppercase(target),
            "replace" => self.replace(pattern)?,
            _ => return invalid(format!("unknown relabel action {action:?}")),
        })
    }

    fn replace(&self, regex: Regexp) -> Result<Action, RelabelError> {
        Ok(Action::Replace {
            regex,
            target: self.template(&self.target_label)?,
            replacement: self.template(self.replacement())?,
        })
    }

    fn template(&self, template: &str) -> Result<Template, RelabelError> {
        if !template.contains('$') {
            return Ok(Template::Plain(template.to_owned()));
        }
        let rewrite = Rewrite::parse(self.pattern(), template).map_err(regex_error)?;
        Ok(Template::Groups(Box::new(rewrite)))
    }

    /// Checks the fields in the order of Prometheus.
    fn check(&self, action: &str) -> Result<(), RelabelError> {
        if action == "hashmod" && self.modulus == 0 {
            return invalid(
                "relabel configuration for hashmod requires non-zero modulus".to_owned(),
            );
        }
        let needs_target = matches!(
            action,
            "replace" | "hashmod" | "lowercase" | "uppercase" | "keepequal" | "dropequal"
        );
        if needs_target && self.target_label.is_empty() {
            return invalid(format!(
                "relabel configuration for {action} action requires 'target_label' value"
            ));
        }
        // Any non-empty string is a label name, so templates and names have no other errors.
        let has_no_replacement = matches!(
            action,
            "lowercase" | "uppercase" | "keepequal" | "dropequal"
        );
        if has_no_replacement && self.replacement() != REPLACEMENT {
            return invalid(format!("'replacement' can not be set for {action} action"));
        }
        if action == "labelmap" && self.replacement().is_empty() {
            return invalid(format!(
                "{:?} is invalid 'replacement' for {action} action",
                self.replacement()
            ));
        }
        let has_others =
            self.modulus != 0 || self.separator() != ";" || self.replacement() != REPLACEMENT;
        if matches!(action, "dropequal" | "keepequal") && (self.regex.is_some() || has_others) {
            return invalid(format!(
                "{action} action requires only 'source_labels' and `target_label`, and no other fields"
            ));
        }
        let has_labels = !self.source_labels.is_empty() || !self.target_label.is_empty();
        if matches!(action, "labeldrop" | "labelkeep") && (has_labels || has_others) {
            return invalid(format!(
                "{action} action requires only 'regex', and no other fields"
            ));
        }
        Ok(())
    }
}

fn invalid<T>(reason: String) -> Result<T, RelabelError> {
    Err(RelabelError(reason))
}

fn regex_error(error: RegexpError) -> RelabelError {
    RelabelError(error.to_string())
}

const REPLACEMENT: &str = "$1";
