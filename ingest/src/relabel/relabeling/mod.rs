//! The compiled relabel rules of a configuration, and those in force.

use std::sync::Arc;

use varve_context::{Charge, QueryContext};
use varve_model::labels::{LabelsError, METRIC_NAME};
use varve_model::{Labels, MatchOp, Matcher};
use varve_tsdb::ReadContext;

use super::attribution::Attributions;
use super::builder::Builder;
use super::config::{RelabelConfig, RelabelError, RelabelRuleState};
use super::footprints::Footprints;
use super::rule::{DisabledByUse, Effect, RelabelRule, RelabelRuleStats};

/// Compiled relabel rules, in the order of their application.
#[derive(Debug, Default)]
pub struct Relabeling {
    pub(super) rules: Vec<RelabelRule>,
    /// Footprints of the series that the rules with `disable_on_use` have dropped, or would have in
    /// a dry run, with the labels that the rule compares. For requests without tenant.
    dropped: Footprints,
    /// Footprints of the same series that also have the labels that matchers of tenants name. For
    /// requests of tenants. There may be one for each value of such a label: separate, so that they
    /// do not use up the limit of `dropped`.
    dropped_of_tenants: Footprints,
    /// Footprints of the series that the other rules have dropped. Separate for the same reason.
    dropped_by_others: Footprints,
}

/// A relabel rule that drops the series of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DroppingRelabelRule {
    /// The rule's name.
    pub name: String,
    /// Whether a query has disabled the rule, so that new samples are stored.
    pub is_disabled: bool,
}

/// A relabel rule that a query used first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsedRelabelRule {
    /// The rule's name.
    pub name: String,
    /// Whether the query disabled the rule. Otherwise, it would have, but the rule is in a dry run.
    pub is_disabled: bool,
}

/// A relabel rule after it was enabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnabledRelabelRule {
    /// Whether a query had disabled the rule, or would have in a dry run.
    pub was_used: bool,
    /// The state in force now.
    pub state: RelabelRuleState,
}

/// The effect of a rule on a label set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelabelStep {
    /// The rule's name.
    pub name: String,
    /// The rule's state. A rule in dry run changes nothing.
    pub state: RelabelRuleState,
    /// Whether the rule drops the series, or would. Otherwise it changes labels, or would.
    pub drops: bool,
    /// The labels that the rule sets, or would set, each with its value.
    pub set: Vec<(String, String)>,
    /// The labels that the rule deletes, or would delete.
    pub deleted: Vec<String>,
}

/// The effect of all rules on a label set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelabelPreview {
    /// The rules that have an effect, or would have, in the order of their application.
    pub steps: Vec<RelabelStep>,
    /// The resulting labels. `None` if a rule drops the series, or no label is left.
    pub result: Result<Option<Labels>, LabelsError>,
}

impl Relabeling {
    /// Checks and compiles rules.
    ///
    /// # Errors
    /// The first rule that Prometheus would reject, with the reason; a name that two rules have;
    /// more than [`RELABEL_RULES_MAX`] rules.
    pub fn new(configs: Vec<RelabelConfig>) -> Result<Self, RelabelError> {
        if configs.len() > RELABEL_RULES_MAX {
            return Err(RelabelError(format!("more than {RELABEL_RULES_MAX} rules")));
        }
        let mut rules: Vec<RelabelRule> = Vec::with_capacity(configs.len());
        for (idx, config) in configs.into_iter().enumerate() {
            let rule = RelabelRule::new(config, idx)
                .map_err(|RelabelError(reason)| RelabelError(format!("rule {idx}: {reason}")))?;
            if rules.iter().any(|other| other.name == rule.name) {
                return Err(RelabelError(format!(
                    "rule {idx}: another rule has the name {:?}",
                    rule.name
                )));
            }
            rules.push(rule);
        }
        Ok(Self {
            rules,
            ..Self::default()
        })
    }

    /// Returns `true` if the configurations of the rules are the same, in the same order.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.rules
            .iter()
            .map(|rule| &rule.config)
            .eq(other.rules.iter().map(|rule| &rule.config))
    }

    /// Returns the number of footprints of dropped series.
    pub(crate) fn n_footprints(&self) -> usize {
        let sets = [
            &self.dropped,
            &self.dropped_of_tenants,
            &self.dropped_by_others,
        ];
        sets.map(Footprints::len).iter().sum()
    }

    /// Returns how many footprints were not remembered because of the limits.
    pub(crate) fn n_refused_footprints(&self) -> u64 {
        let sets = [
            &self.dropped,
            &self.dropped_of_tenants,
            &self.dropped_by_others,
        ];
        sets.map(Footprints::n_refused).iter().sum()
    }

    /// Returns the relabeled label set, which may be empty, or `None` if a rule drops it.
    ///
    /// # Errors
    /// If the result is not a valid label set.
    pub fn relabel(&self, labels: &Labels) -> Result<Option<Labels>, LabelsError> {
        self.apply(labels.clone(), &[], &mut Vec::new())
    }

    /// Returns the effect of the rules on a label set for a request, without any side effect. The
    /// patterns are compiled and matched within its limits. Before a rule is applied, grows
    /// `charge` by the maximum size of the strings that the rule may create; afterwards, by the size
    /// of its step.
    ///
    /// # Errors
    /// If the request is interrupted, or its memory does not suffice.
    pub fn preview(
        &self,
        ctx: &QueryContext,
        labels: &Labels,
        charge: &mut Charge,
    ) -> varve_context::Result<RelabelPreview> {
        let mut builder = Builder::new(labels);
        let mut steps = Vec::new();
        let mut is_dropped = false;
        for rule in &self.rules {
            ctx.check()?;
            charge.grow(STRING_COPIES.saturating_mul(rule.created_size_max(&builder)))?;
            let mut after = builder.clone();
            let effect = rule.preview(&mut after, Some(ctx))?;
            if effect == Effect::None {
                continue;
            }
            let state = rule.state();
            let (set, deleted) = builder.changes_to(&after);
            let size = set
                .iter()
                .map(|(name, value)| name.len() + value.len())
                .sum::<usize>();
            charge.grow(
                size_of::<RelabelStep>()
                    + rule.name.len()
                    + size
                    + deleted.iter().map(String::len).sum::<usize>(),
            )?;
            let drops = effect == Effect::Drops;
            steps.push(RelabelStep {
                name: rule.name.clone(),
                state,
                drops,
                set,
                deleted,
            });
            if state == RelabelRuleState::Enforce {
                if drops {
                    is_dropped = true;
                    break;
                }
                builder = after;
            }
        }
        let result = if is_dropped {
            Ok(None)
        } else {
            builder
                .labels()
                .map(|labels| Some(labels).filter(|l| !l.is_empty()))
        };
        Ok(RelabelPreview { steps, result })
    }

    /// Notes a query with a selector. Disables the rules with `disable_on_use` that have dropped
    /// series that `matchers` may select, and returns the rules for which this is the first use.
    ///
    /// # Errors
    /// If the request is interrupted or exceeds its memory limit.
    pub(crate) fn note_use(
        &self,
        ctx: &ReadContext,
        matchers: &[Matcher],
        by: impl Fn() -> DisabledByUse,
    ) -> varve_tsdb::Result<Vec<UsedRelabelRule>> {
        let is_named = names_metrics(matchers);
        if !self.rules.iter().any(|rule| rule.awaits_use(is_named)) {
            return Ok(Vec::new());
        }
        let footprints = if ctx.restriction().is_empty() {
            &self.dropped
        } else {
            &self.dropped_of_tenants
        };
        let mut used = Vec::new();
        for idx in footprints.matching(ctx, matchers)? {
            let rule = &self.rules[usize::from(idx)];
            if rule.awaits_use(is_named) && rule.used.set(by()) {
                used.push(UsedRelabelRule {
                    name: rule.name.clone(),
                    is_disabled: rule.config.state == RelabelRuleState::Enforce,
                });
            }
        }
        Ok(used)
    }

    /// Returns the rules that have dropped series that `matchers` may select, if `matchers` name
    /// their metrics: enforced rules, and those that a query has disabled. For requests without
    /// tenant.
    ///
    /// # Errors
    /// If the request is interrupted or exceeds its memory limit.
    pub(crate) fn dropping(
        &self,
        ctx: &ReadContext,
        matchers: &[Matcher],
    ) -> varve_tsdb::Result<Vec<DroppingRelabelRule>> {
        if self.rules.is_empty() || !names_metrics(matchers) {
            return Ok(Vec::new());
        }
        let mut found = self.dropped.matching(ctx, matchers)?;
        found.extend(self.dropped_by_others.matching(ctx, matchers)?);
        let mut dropping = Vec::new();
        for idx in found {
            let rule = &self.rules[usize::from(idx)];
            if rule.config.state == RelabelRuleState::Enforce {
                dropping.push(DroppingRelabelRule {
                    name: rule.name.clone(),
                    is_disabled: rule.state() == RelabelRuleState::DryRun,
                });
            }
        }
        Ok(dropping)
    }

    /// Enables a rule that a query has disabled, and forgets the query. Returns `None` if no rule
    /// has the name.
    pub(crate) fn enable(&self, name: &str) -> Option<EnabledRelabelRule> {
        let rule = self.rules.iter().find(|rule| rule.name == name)?;
        Some(EnabledRelabelRule {
            was_used: rule.used.clear(),
            state: rule.state(),
        })
    }

    /// Like [`Relabeling::relabel`]. Stores in `matched` the indexes of the rules that changed or
    /// dropped the label set, or would have. The footprint of a dropped one for tenants has the
    /// labels `tenant_label_names` as well.
    fn apply(
        &self,
        labels: Labels,
        tenant_label_names: &[String],
        matched: &mut Vec<u16>,
    ) -> Result<Option<Labels>, LabelsError> {
        matched.clear();
        if self.rules.is_empty() {
            return Ok(Some(labels));
        }
        let mut builder = Builder::new(&labels);
        for (idx, rule) in (0..).zip(&self.rules) {
            match rule.apply(&mut builder) {
                Effect::None => continue,
                Effect::Drops => {
                    matched.push(idx);
                    let is_enforced = rule.state() == RelabelRuleState::Enforce;
                    let names = rule.compared_labels();
                    if rule.config.disable_on_use {
                        self.dropped.note(idx, names, &builder);
                        self.note_for_tenants(idx, tenant_label_names, &builder);
                    } else if is_enforced {
                        self.dropped_by_others.note(idx, names, &builder);
                    }
                    if is_enforced {
                        return Ok(None);
                    }
                }
                Effect::Changes => matched.push(idx),
            }
        }
        if !builder.is_changed() {
            return Ok(Some(labels));
        }
        builder.labels().map(Some)
    }

    /// Remembers a label set that a rule drops for requests of tenants, if there are tenants.
    fn note_for_tenants(&self, idx: u16, tenant_label_names: &[String], labels: &Builder<'_>) {
        if tenant_label_names.is_empty() {
            return;
        }
        let rule = &self.rules[usize::from(idx)];
        let of_tenants = tenant_label_names
            .iter()
            .map(String::as_str)
            .filter(|name| !rule.compared_labels().any(|compared| compared == *name));
        let names = rule.compared_labels().chain(of_tenants);
        self.dropped_of_tenants.note(idx, names, labels);
    }
}

/// Returns `true` if matchers select their metrics by name: by equality, or by a regular expression
/// that is a finite set of names.
fn names_metrics(matchers: &[Matcher]) -> bool {
    matchers
        .iter()
        .filter(|matcher| matcher.name() == METRIC_NAME)
        .any(|matcher| match matcher.op() {
            MatchOp::Equal => !matcher.value().is_empty(),
            MatchOp::Regexp => {
                let names = matcher.regexp().and_then(|regexp| regexp.literals());
                names.is_some_and(|names| names.iter().all(|name| !name.is_empty()))
            }
            MatchOp::NotEqual | MatchOp::NotRegexp => false,
        })
}

/// The relabel rules in force, and their counts.
#[derive(Debug)]
pub(crate) struct ActiveRelabeling {
    pub(crate) relabeling: Arc<Relabeling>,
    pub(crate) attributions: Arc<Attributions>,
    /// The labels that matchers of tenants name, which footprints have.
    pub(crate) tenant_label_names: Arc<[String]>,
    /// Number of changes of the rules.
    pub(crate) generation: u32,
}

impl ActiveRelabeling {
    pub(crate) fn new(relabeling: Relabeling, generation: u32) -> Self {
        Self {
            attributions: Arc::new(Attributions::new(relabeling.rules.len())),
            relabeling: Arc::new(relabeling),
            tenant_label_names: Arc::default(),
            generation,
        }
    }

    /// Returns other rules in a new generation.
    pub(crate) fn with_rules(&self, relabeling: Relabeling) -> Self {
        Self {
            tenant_label_names: Arc::clone(&self.tenant_label_names),
            ..Self::new(relabeling, self.generation.wrapping_add(1))
        }
    }

    /// Returns the same rules in a new generation, whose footprints have other labels of tenants.
    /// The earlier footprints of tenants lack these labels, and would only use up the limits.
    pub(crate) fn with_tenant_label_names(&self, names: &[String]) -> Self {
        self.relabeling.dropped_of_tenants.clear();
        Self {
            tenant_label_names: names.into(),
            ..self.next_generation()
        }
    }

    /// Applies the rules as [`Relabeling::relabel`] does. Stores in `matched` the indexes of the
    /// rules that changed or dropped the label set, or would have.
    pub(crate) fn apply(
        &self,
        labels: Labels,
        matched: &mut Vec<u16>,
    ) -> Result<Option<Labels>, LabelsError> {
        self.relabeling
            .apply(labels, &self.tenant_label_names, matched)
    }

    /// Returns the same rules in a new generation, after some were disabled or enabled, which makes
    /// cached routes invalid. Rules count their series anew.
    pub(crate) fn next_generation(&self) -> Self {
        self.attributions.reset_series();
        let generation = self.generation.wrapping_add(1);
        Self {
            relabeling: Arc::clone(&self.relabeling),
            attributions: Arc::clone(&self.attributions),
            tenant_label_names: Arc::clone(&self.tenant_label_names),
            generation,
        }
    }

    /// Returns the counts of each rule.
    pub(crate) fn stats(&self) -> Vec<RelabelRuleStats> {
        let mut stats: Vec<_> = self
            .relabeling
            .rules
            .iter()
            .map(RelabelRule::stats)
            .collect();
        self.attributions.for_each(|rules, series, samples| {
            for &idx in rules {
                stats[usize::from(idx)].series += series;
                stats[usize::from(idx)].samples += samples;
            }
        });
        let rates = self
            .attributions
            .rates(stats.iter().map(|rule| rule.samples).collect());
        for (rule, rate) in stats.iter_mut().zip(rates) {
            rule.samples_per_second = rate;
        }
        stats
    }
}

/// Copies of a created string that exist at the same time: the result of the expansion, the labels
/// before and after the rule, and the step.
const STRING_COPIES: usize = 4;

/// Maximum number of rules.
pub const RELABEL_RULES_MAX: usize = 4_096;

#[cfg(test)]
mod tests;
