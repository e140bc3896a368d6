//! One rule, applied to a label set.

use std::borrow::Cow;
use std::sync::OnceLock;

use super::RuleStats;
use super::builder::Builder;
use super::config::{Action, RelabelConfig, RelabelError, RuleState, Template};
use super::letter_case::{lower, upper};

#[derive(Debug)]
pub(super) struct Rule {
    pub(super) name: String,
    separator: String,
    action: Action,
    pub(super) config: RelabelConfig,
    pub(super) fallen: OnceLock<Fallen>,
}

/// That a rule has fallen back to shadow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fallen {
    /// When, in milliseconds since the epoch.
    pub at_ms: i64,
    /// What was asked for.
    pub selector: String,
    /// Who asked.
    pub who: String,
}

/// What a rule does to a label set, or would.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    None,
    Changes,
    Drops,
}

impl Rule {
    pub(super) fn new(config: RelabelConfig, idx: usize) -> Result<Self, RelabelError> {
        let action = config.compile()?;
        if config.armed && !action.drops() {
            return Err(RelabelError("'armed' is for rules that drop series".to_owned()));
        }
        let separator = config.separator().to_owned();
        let name = config.name.clone().unwrap_or_else(|| format!("#{idx}"));
        Ok(Self { name, separator, action, config, fallen: OnceLock::new() })
    }

    /// Tells whether the rule is armed, and has not fallen back.
    pub(super) fn may_fall(&self) -> bool {
        self.config.armed && self.fallen.get().is_none()
    }

    /// Returns what is told of the rule, without counts.
    pub(super) fn stats(&self) -> RuleStats {
        RuleStats {
            name: self.name.clone(),
            state: self.state(),
            armed: self.config.armed,
            fallen: self.fallen.get().cloned(),
            series: 0,
            samples: 0,
            samples_per_second: 0.0,
        }
    }

    /// Returns the state that is in force.
    pub(super) fn state(&self) -> RuleState {
        if self.fallen.get().is_some() { RuleState::Shadow } else { self.config.state }
    }

    /// Returns the labels that decide whether the rule drops a series.
    pub(super) fn looks_at(&self) -> impl Iterator<Item = &str> {
        self.config.source_labels.iter().map(String::as_str).chain(self.action.compared())
    }

    /// Applies the rule; in shadow nothing changes.
    pub(super) fn apply(&self, labels: &mut Builder<'_>) -> Effect {
        let joined = self.join(labels);
        let value: &str = &joined;
        let drops = match &self.action {
            Action::Keep(regex) => !regex.is_match(value),
            Action::Drop(regex) => regex.is_match(value),
            Action::KeepEqual(target) => labels.get(target) != value,
            Action::DropEqual(target) => labels.get(target) == value,
            _ => {
                let value = joined.into_owned();
                return match self.state() {
                    RuleState::Enforce => self.rewrite(&value, labels),
                    RuleState::Shadow => self.rewrite(&value, &mut labels.clone()),
                };
            }
        };
        if drops { Effect::Drops } else { Effect::None }
    }

    fn join<'a>(&self, labels: &'a Builder<'_>) -> Cow<'a, str> {
        match &self.config.source_labels[..] {
            [] => Cow::Borrowed(""),
            [name] => Cow::Borrowed(labels.get(name)),
            names => {
                let values: Vec<_> = names.iter().map(|name| labels.get(name)).collect();
                Cow::Owned(values.join(&self.separator))
            }
        }
    }

    fn rewrite(&self, value: &str, labels: &mut Builder<'_>) -> Effect {
        let changes = match &self.action {
            Action::Replace { regex, target, replacement } => {
                regex.is_match(value) && replace(target, replacement, value, labels)
            }
            Action::HashMod { target, modulus } => labels.set(target, &hash_modulo(value, *modulus).to_string()),
            Action::Lowercase(target) => labels.set(target, &lower(value)),
            Action::Uppercase(target) => labels.set(target, &upper(value)),
            Action::LabelMap(rewrite) => {
                let mut changes = false;
                for (name, value) in labels.visit() {
                    changes |= rewrite.apply(&name).is_some_and(|name| labels.set(&name, &value));
                }
                changes
            }
            Action::LabelDrop(regex) => delete(labels, |name| regex.is_match(name)),
            Action::LabelKeep(regex) => delete(labels, |name| !regex.is_match(name)),
            Action::Keep(_) | Action::Drop(_) | Action::KeepEqual(_) | Action::DropEqual(_) => false,
        };
        if changes { Effect::Changes } else { Effect::None }
    }
}

fn replace(target: &Template, replacement: &Template, value: &str, labels: &mut Builder<'_>) -> bool {
    match (target.fill(value), replacement.fill(value)) {
        (Some(target), Some(replacement)) if !target.is_empty() => labels.set(&target, &replacement),
        _ => false,
    }
}

fn delete(labels: &mut Builder<'_>, goes: impl Fn(&str) -> bool) -> bool {
    let names = labels.visit().into_iter().filter(|(name, _)| goes(name));
    names.fold(false, |changes, (name, _)| labels.delete(&name) || changes)
}

/// The last eight bytes of the MD5 hash, as Prometheus has always taken them.
fn hash_modulo(value: &str, modulus: u64) -> u64 {
    let md5::Digest(hash) = md5::compute(value);
    hash[8..].iter().fold(0_u64, |hash, &byte| hash << 8 | u64::from(byte)) % modulus
}

impl Action {
    /// Tells whether all it may do is to drop series.
    fn drops(&self) -> bool {
        matches!(self, Self::Keep(_) | Self::Drop(_) | Self::KeepEqual(_) | Self::DropEqual(_))
    }

    /// Returns the label that it compares others with.
    fn compared(&self) -> Option<&str> {
        match self {
            Self::KeepEqual(target) | Self::DropEqual(target) => Some(target),
            _ => None,
        }
    }
}

impl Template {
    /// Fills the template in; `None` if the rule's expression does not match.
    fn fill(&self, value: &str) -> Option<Cow<'_, str>> {
        match self {
            Self::Plain(text) => Some(Cow::Borrowed(text)),
            Self::Groups(rewrite) => rewrite.apply(value).map(Cow::Owned),
        }
    }
}
