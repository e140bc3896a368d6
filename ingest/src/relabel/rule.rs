//! One compiled rule, and its effect on a label set.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use varve_context::QueryContext;
use varve_regexp::{Regexp, Rewrite};

use super::builder::Builder;
use super::config::{Action, RelabelConfig, RelabelError, RelabelRuleState, Template};
use super::letter_case::{lower, upper};

#[derive(Debug)]
pub(super) struct RelabelRule {
    pub(super) name: String,
    separator: String,
    action: Action,
    pub(super) config: RelabelConfig,
    pub(super) used: FirstUse,
}

/// The first query for series that the rule drops: it disables an enforced rule, and is recorded in
/// a dry run.
#[derive(Debug, Default)]
pub(super) struct FirstUse {
    /// Whether there is a query. Read for each rule and new label set, without the lock.
    is_known: AtomicBool,
    by: Mutex<Option<DisabledByUse>>,
}

impl FirstUse {
    /// Sets the query unless one is known. Returns `true` if it was set.
    pub(super) fn set(&self, by: DisabledByUse) -> bool {
        let mut known = self.by.lock();
        let is_first = known.is_none();
        known.get_or_insert(by);
        self.is_known.store(true, Ordering::Release);
        is_first
    }

    /// Forgets the query. Returns `true` if there was one.
    pub(super) fn clear(&self) -> bool {
        let mut known = self.by.lock();
        self.is_known.store(false, Ordering::Release);
        known.take().is_some()
    }

    pub(super) fn get(&self) -> Option<DisabledByUse> {
        self.by.lock().clone()
    }

    pub(super) fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Acquire)
    }
}

/// A relabel rule's state and counts.
#[derive(Debug, Clone, PartialEq)]
pub struct RelabelRuleStats {
    /// The rule's name.
    pub name: String,
    /// The current state.
    pub state: RelabelRuleState,
    /// Whether it switches to `dry_run` when a query uses series that it dropped.
    pub disable_on_use: bool,
    /// The query that disabled the rule, if any.
    pub disabled_by_use: Option<DisabledByUse>,
    /// The first query that would have disabled the rule, if it is in a dry run.
    pub would_be_disabled_by: Option<DisabledByUse>,
    /// Number of label sets that it dropped or changed, or would have, since the rules last changed
    /// or one of them was disabled or enabled.
    pub series: u64,
    /// Number of samples of these label sets.
    pub samples: u64,
    /// Recent samples per second of these label sets.
    pub samples_per_second: f64,
}

/// A query that disabled a rule, or would have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DisabledByUse {
    /// Time of the query in milliseconds since the epoch.
    pub at_ms: i64,
    /// The selector of the query.
    pub selector: String,
    /// The sender of the query.
    pub who: String,
}

/// The effect of a rule on a label set, which does not depend on the rule's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    None,
    Changes,
    Drops,
}

impl RelabelRule {
    pub(super) fn new(config: RelabelConfig, idx: usize) -> Result<Self, RelabelError> {
        let action = config.compile()?;
        if config.disable_on_use && !action.only_drops() {
            return Err(RelabelError(
                "'disable_on_use' is only for rules that drop series".to_owned(),
            ));
        }
        if config.disable_on_nameless_use && !config.disable_on_use {
            return Err(RelabelError(
                "'disable_on_nameless_use' needs 'disable_on_use'".to_owned(),
            ));
        }
        let separator = config.separator().to_owned();
        let name = config.name.clone().unwrap_or_else(|| format!("#{idx}"));
        Ok(Self {
            name,
            separator,
            action,
            config,
            used: FirstUse::default(),
        })
    }

    /// Returns `true` if the next query for series that the rule drops is its first use. `is_named`
    /// tells whether the query names a metric.
    pub(super) fn awaits_use(&self, is_named: bool) -> bool {
        self.config.disable_on_use
            && (is_named || self.config.disable_on_nameless_use)
            && !self.used.is_known()
    }

    /// Returns the statistics of the rule with all counts 0.
    pub(super) fn stats(&self) -> RelabelRuleStats {
        let used = self.used.get();
        let (disabled_by_use, would_be_disabled_by) = match self.config.state {
            RelabelRuleState::Enforce => (used, None),
            RelabelRuleState::DryRun => (None, used),
        };
        RelabelRuleStats {
            name: self.name.clone(),
            state: self.state(),
            disable_on_use: self.config.disable_on_use,
            disabled_by_use,
            would_be_disabled_by,
            series: 0,
            samples: 0,
            samples_per_second: 0.0,
        }
    }

    /// Returns the current state.
    pub(super) fn state(&self) -> RelabelRuleState {
        if self.used.is_known() {
            RelabelRuleState::DryRun
        } else {
            self.config.state
        }
    }

    /// Returns the labels that decide whether the rule drops a series.
    pub(super) fn compared_labels(&self) -> impl Iterator<Item = &str> {
        self.config
            .source_labels
            .iter()
            .map(String::as_str)
            .chain(self.action.target())
    }

    /// Applies the rule and returns its effect. In `dry_run`, the labels do not change.
    pub(super) fn apply(&self, labels: &mut Builder<'_>) -> Effect {
        let effect = match self.state() {
            RelabelRuleState::Enforce => self.preview(labels, None),
            RelabelRuleState::DryRun if self.action.only_drops() => self.preview(labels, None),
            RelabelRuleState::DryRun => self.preview(&mut labels.clone(), None),
        };
        effect.expect("without a request there is no limit")
    }

    /// Applies the rule as if it were enforced, and returns its effect.
    ///
    /// # Errors
    /// If the request is interrupted, or its memory does not suffice for the regular expression.
    pub(super) fn preview(
        &self,
        labels: &mut Builder<'_>,
        request: Option<&QueryContext>,
    ) -> varve_context::Result<Effect> {
        let joined = self.join(labels);
        let value: &str = &joined;
        let drops = match &self.action {
            Action::Keep(regex) => !is_match(regex, value, request)?,
            Action::Drop(regex) => is_match(regex, value, request)?,
            Action::KeepEqual(target) => labels.get(target) != value,
            Action::DropEqual(target) => labels.get(target) == value,
            _ => {
                let value = joined.into_owned();
                return self.rewrite(&value, labels, request);
            }
        };
        Ok(if drops { Effect::Drops } else { Effect::None })
    }

    /// Returns the maximum size of the strings that the rule creates for a label set.
    pub(super) fn created_size_max(&self, labels: &Builder<'_>) -> usize {
        let sources = self.config.source_labels.iter();
        let joined = sources
            .map(|name| labels.get(name).len() + self.separator.len())
            .sum();
        let created = match &self.action {
            Action::Replace {
                target,
                replacement,
                ..
            } => target
                .expanded_size_max(joined)
                .saturating_add(replacement.expanded_size_max(joined)),
            Action::LabelMap(rewrite) => {
                let visited = labels.visit();
                let names = visited.iter().map(|(name, value)| {
                    rewrite
                        .expanded_size_max(name.len())
                        .saturating_add(value.len())
                });
                names.fold(0, usize::saturating_add)
            }
            // A letter in another case has at most twice as many bytes.
            Action::Lowercase(_) | Action::Uppercase(_) => joined.saturating_mul(2),
            _ => 0,
        };
        joined.saturating_add(created)
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

    fn rewrite(
        &self,
        value: &str,
        labels: &mut Builder<'_>,
        request: Option<&QueryContext>,
    ) -> varve_context::Result<Effect> {
        let changes = match &self.action {
            Action::Replace {
                regex,
                target,
                replacement,
            } => {
                is_match(regex, value, request)?
                    && replace(target, replacement, value, labels, request)?
            }
            Action::HashMod { target, modulus } => {
                labels.set(target, &hash_modulo(value, *modulus).to_string())
            }
            Action::Lowercase(target) => labels.set(target, &lower(value)),
            Action::Uppercase(target) => labels.set(target, &upper(value)),
            Action::LabelMap(rewrite) => {
                let mut changes = false;
                for (name, value) in labels.visit() {
                    if let Some(name) = expand(rewrite, &name, request)? {
                        changes |= labels.set(&name, &value);
                    }
                }
                changes
            }
            Action::LabelDrop(regex) => delete(labels, regex, true, request)?,
            Action::LabelKeep(regex) => delete(labels, regex, false, request)?,
            Action::Keep(_) | Action::Drop(_) | Action::KeepEqual(_) | Action::DropEqual(_) => {
                false
            }
        };
        Ok(if changes {
            Effect::Changes
        } else {
            Effect::None
        })
    }
}

/// Returns `true` if all of a text matches. The patterns of the configuration have no request.
fn is_match(
    regex: &Regexp,
    text: &str,
    request: Option<&QueryContext>,
) -> varve_context::Result<bool> {
    match request {
        Some(ctx) => regex.is_match_in(ctx, text),
        None => Ok(regex.is_match(text)),
    }
}

/// Expands a template if all of a text matches.
fn expand(
    rewrite: &Rewrite,
    text: &str,
    request: Option<&QueryContext>,
) -> varve_context::Result<Option<String>> {
    match request {
        Some(ctx) => rewrite.apply_in(ctx, text),
        None => Ok(rewrite.apply(text)),
    }
}

fn replace(
    target: &Template,
    replacement: &Template,
    value: &str,
    labels: &mut Builder<'_>,
    request: Option<&QueryContext>,
) -> varve_context::Result<bool> {
    let target = target.expand(value, request)?;
    let replacement = replacement.expand(value, request)?;
    Ok(match (target, replacement) {
        (Some(target), Some(replacement)) if !target.is_empty() => {
            labels.set(&target, &replacement)
        }
        _ => false,
    })
}

/// Deletes the labels whose names match, or those whose names do not. Returns `true` if there are
/// any.
fn delete(
    labels: &mut Builder<'_>,
    regex: &Regexp,
    deletes_matches: bool,
    request: Option<&QueryContext>,
) -> varve_context::Result<bool> {
    let mut changes = false;
    for (name, _) in labels.visit() {
        if is_match(regex, &name, request)? == deletes_matches {
            changes |= labels.delete(&name);
        }
    }
    Ok(changes)
}

/// Returns the last eight bytes of the MD5 hash, as Prometheus does, modulo `modulus`.
fn hash_modulo(value: &str, modulus: u64) -> u64 {
    let md5::Digest(hash) = md5::compute(value);
    hash[8..]
        .iter()
        .fold(0_u64, |hash, &byte| hash << 8 | u64::from(byte))
        % modulus
}

impl Action {
    /// Returns `true` if the action only drops series and changes no labels.
    fn only_drops(&self) -> bool {
        matches!(
            self,
            Self::Keep(_) | Self::Drop(_) | Self::KeepEqual(_) | Self::DropEqual(_)
        )
    }

    /// Returns the label that the action compares with the source labels.
    fn target(&self) -> Option<&str> {
        match self {
            Self::KeepEqual(target) | Self::DropEqual(target) => Some(target),
            _ => None,
        }
    }
}

impl Template {
    fn expanded_size_max(&self, size: usize) -> usize {
        match self {
            Self::Plain(text) => text.len(),
            Self::Groups(rewrite) => rewrite.expanded_size_max(size),
        }
    }

    /// Expands the template. Returns `None` if the rule's regular expression does not match.
    fn expand(
        &self,
        value: &str,
        request: Option<&QueryContext>,
    ) -> varve_context::Result<Option<Cow<'_, str>>> {
        match self {
            Self::Plain(text) => Ok(Some(Cow::Borrowed(text))),
            Self::Groups(rewrite) => Ok(expand(rewrite, value, request)?.map(Cow::Owned)),
        }
    }
}
