//! Relabeling: relabel rules, which rewrite, keep or drop series before they reach the store.
//!
//! Here, a rule is always a relabel rule: one of Prometheus' relabel configurations (`config`), with
//! its defaults, regular expressions and errors; `rule` applies it to a label set. The rules are
//! applied to each label set once, when it is first seen. The route cache keeps the result and its
//! [`Attribution`], so that a later sample of a dropped series costs one look-up.
//!
//! A rule in `dry_run` is evaluated and counted, and changes nothing. A rule with `disable_on_use`
//! switches to `dry_run` when a query names a metric of series that it dropped (`footprints`), and
//! stays in this state across restarts (`disabled_rules`) until an operator enables it. In a dry
//! run, the query that would have disabled the rule is recorded.
//!
//! Invariants
//! 1. An attribution is used only with the rules that created it: routes of other rules have other
//!    keys in the route cache.
//!
//! Threads: rules are immutable, except for the query that disabled each. A request uses the rules
//! that were in force when it started.

mod attribution;
mod builder;
mod config;
mod disabled_rules;
mod footprints;
mod letter_case;
mod rates;
mod relabeling;
mod rule;

pub(crate) use attribution::{AttributedSamples, Attribution};
pub use config::{RelabelConfig, RelabelError, RelabelRuleState};
pub use disabled_rules::DisabledRelabelRules;
pub(crate) use relabeling::ActiveRelabeling;
pub use relabeling::{
    DroppingRelabelRule, EnabledRelabelRule, RELABEL_RULES_MAX, RelabelPreview, RelabelStep,
    Relabeling, UsedRelabelRule,
};
pub use rule::{DisabledByUse, RelabelRuleStats};
