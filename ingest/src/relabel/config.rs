//! One relabel configuration as it is written, and what is wrong with it in Prometheus' words (`model/relabel`).

use varve_tsdb::labels::regexp::{Regexp, RegexpError, Rewrite};

/// A relabel configuration. What is `None` or empty has not been written; Prometheus' defaults stand for it then.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RelabelConfig {
    /// Labels whose values are joined. Default none.
    pub source_labels: Vec<String>,
    /// What is put between them. Default `;`.
    pub separator: Option<String>,
    /// What the joined values are matched with, anchored. Default `(.*)`.
    pub regex: Option<String>,
    /// Modulus of `hashmod`. Default 0.
    pub modulus: u64,
    /// The label that is written or compared; a template for `replace`. Default empty.
    pub target_label: String,
    /// A template for what is written. Default `$1`.
    pub replacement: Option<String>,
    /// What is done; case does not matter. Default `replace`.
    pub action: Option<String>,
    /// The rule's name in metrics. Default `#` and its place, from 0.
    pub name: Option<String>,
    /// Whether the rule counts only. Default `enforce`.
    pub state: RuleState,
    /// Whether the rule falls back to shadow when somebody asks for what it drops. Default not.
    pub armed: bool,
}

/// Whether a rule does what it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RuleState {
    /// It does.
    #[default]
    Enforce,
    /// It counts what it would do.
    Shadow,
}

impl RuleState {
    /// Returns the state as it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
        }
    }
}

/// Why a configuration is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RelabelError(pub(super) String);

/// What a rule does, ready to be done.
#[derive(Debug)]
pub(super) enum Action {
    Replace { regex: Regexp, target: Template, replacement: Template },
    Keep(Regexp),
    Drop(Regexp),
    KeepEqual(String),
    DropEqual(String),
    HashMod { target: String, modulus: u64 },
    LabelMap(Rewrite),
    LabelDrop(Regexp),
    LabelKeep(Regexp),
    Lowercase(String),
    Uppercase(String),
}

/// A template, filled in by the groups of the rule's expression.
#[derive(Debug)]
pub(super) enum Template {
    /// It refers to nothing.
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
            return refuse(format!("{label:?} is not a valid label name"));
        }
        let pattern = Regexp::parse(self.pattern()).map_err(of_regex)?;
        if !ACTIONS.contains(&name.as_str()) {
            return refuse(match action {
                "" => "relabel action cannot be empty".to_owned(),
                _ => format!("unknown relabel action {action:?}"),
            });
        }
        self.check(&name)?;
        let (target, modulus) = (self.target_label.clone(), self.modulus);
        Ok(match name.as_str() {
            "keep" => Action::Keep(pattern),
            "drop" => Action::Drop(pattern),
            "keepequal" => Action::KeepEqual(target),
            "dropequal" => Action::DropEqual(target),
            "hashmod" => Action::HashMod { target, modulus },
            "labelmap" => Action::LabelMap(Rewrite::parse(self.pattern(), self.replacement()).map_err(of_regex)?),
            "labeldrop" => Action::LabelDrop(pattern),
            "labelkeep" => Action::LabelKeep(pattern),
            "lowercase" => Action::Lowercase(target),
            "uppercase" => Action::Uppercase(target),
            _ => self.replace(pattern)?,
        })
    }

    fn replace(&self, regex: Regexp) -> Result<Action, RelabelError> {
        let template = |text: &str| match text.contains('$') {
            true => Ok(Template::Groups(Box::new(Rewrite::parse(self.pattern(), text).map_err(of_regex)?))),
            false => Ok(Template::Plain(text.to_owned())),
        };
        let (target, replacement) = (template(&self.target_label)?, template(self.replacement())?);
        Ok(Action::Replace { regex, target, replacement })
    }

    /// Checks in Prometheus' order.
    fn check(&self, action: &str) -> Result<(), RelabelError> {
        let is = |names: &[&str]| names.contains(&action);
        if is(&["hashmod"]) && self.modulus == 0 {
            return refuse("relabel configuration for hashmod requires non-zero modulus".to_owned());
        }
        let needs_target = is(&["replace", "hashmod", "lowercase", "uppercase", "keepequal", "dropequal"]);
        if needs_target && self.target_label.is_empty() {
            return refuse(format!("relabel configuration for {action} action requires 'target_label' value"));
        }
        // Any text that is not empty is a label name: neither templates nor names can be wrong in another way.
        if is(&["lowercase", "uppercase", "keepequal", "dropequal"]) && self.replacement() != REPLACEMENT {
            return refuse(format!("'replacement' can not be set for {action} action"));
        }
        if is(&["labelmap"]) && self.replacement().is_empty() {
            return refuse(format!("{:?} is invalid 'replacement' for {action} action", self.replacement()));
        }
        let has_others = self.modulus != 0 || self.separator() != ";" || self.replacement() != REPLACEMENT;
        if is(&["dropequal", "keepequal"]) && (self.regex.is_some() || has_others) {
            return refuse(format!(
                "{action} action requires only 'source_labels' and `target_label`, and no other fields"
            ));
        }
        let has_labels = !self.source_labels.is_empty() || !self.target_label.is_empty();
        if is(&["labeldrop", "labelkeep"]) && (has_labels || has_others) {
            return refuse(format!("{action} action requires only 'regex', and no other fields"));
        }
        Ok(())
    }
}

fn refuse<T>(reason: String) -> Result<T, RelabelError> {
    Err(RelabelError(reason))
}

fn of_regex(error: RegexpError) -> RelabelError {
    RelabelError(error.to_string())
}

const REPLACEMENT: &str = "$1";
const ACTIONS: [&str; 11] = [
    "replace",
    "keep",
    "drop",
    "keepequal",
    "dropequal",
    "hashmod",
    "labelmap",
    "labeldrop",
    "labelkeep",
    "lowercase",
    "uppercase",
];
