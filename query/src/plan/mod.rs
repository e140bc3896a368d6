//! The plan of a query: its syntax tree after resolving all parts that depend on the times of the
//! query.
//!
//! Differences from the tree: `@ start()` and `@ end()` are times, durations are milliseconds,
//! `start()`, `end()`, `range()` and `step()` are numbers, chains of operators are flat,
//! parentheses are removed, functions are resolved to implementations, and step-invariant
//! expressions are wrapped so that they are evaluated once.
//!
//! Invariants
//! 1. A [`PlanKind::StepInvariant`] never wraps a range of samples, a string or another
//!    [`PlanKind::StepInvariant`].
//! 2. The depth of a plan is at most the depth of the tree. A chain of operators counts as one
//!    level.

mod common_subexpressions;
mod describe;
mod duration;
mod info_shift;
mod label_names;
mod order;
mod planner;
mod propagate_matchers;
mod skip_buckets;
mod skip_values;
mod tree;

pub(crate) use common_subexpressions::CommonSubexpressions;
pub(crate) use describe::describe;
pub(crate) use info_shift::info_shift;
pub(crate) use label_names::{LAST_NAME_LABEL, contains_name, is_name_label};
pub(crate) use order::Order;
pub(crate) use planner::build;
pub(crate) use propagate_matchers::propagate_matchers;
pub(crate) use tree::{
    Aggregate, Call, Chain, Link, Plan, PlanKind, RangeSelector, Selector, Shift, Subquery,
};
