//! Budgets: active series, new series per second and samples per second, in total and for each
//! team.
//!
//! A team is a name: the value of a configured label, or the name that a sender gives. It selects a
//! budget and does not isolate data. `policy` makes the decisions and is pure. `ledger` supplies
//! the store, the teams (`teams`) and the time. Rationale: docs/decisions/ingest/0011-admission.md.
//!
//! A team always gets its guarantee. Above its guarantee it borrows what other teams leave unused,
//! up to its own maximum and while all teams together are within the total budget. When the other
//! teams need their share, *new* series and samples of the borrower are denied. An existing series
//! is never removed.

mod budgets;
mod ledger;
mod policy;
mod teams;
mod token_bucket;

pub use budgets::{AMOUNT_MAX, Amounts, BudgetError, Budgets, TeamBudget};
pub(crate) use ledger::{Grant, Ledger};
pub use policy::{BudgetUsage, TeamStatus};
pub(crate) use policy::{Denied, SeriesLimit};
pub(crate) use teams::Team;
#[cfg(test)]
pub(crate) use teams::TeamNames;
pub use teams::{OTHER_TEAMS, RULES_TEAM, TEAMS_MAX};
