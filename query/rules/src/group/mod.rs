//! A group of rules: its definition, its schedule and its state.
//!
//! `evaluate` runs one evaluation, `dependencies` finds the rules that may run at the same time,
//! `levels` orders recording rules of several groups, `reload` carries state over to a changed group,
//! `restart` loads the state before a restart.
//!
//! Invariants
//! 1. A group runs one evaluation at a time: [`Group::evaluate`] holds `running`, as does
//!    [`Group::continue_from`].
//! 2. An evaluation of a rule that fails before its samples are written changes none of its alerts.
//!    If only the write fails, the alerts have already changed and were sent, as in Prometheus.
//!
//! Threads: the lock of a rule's state is held only to read or replace it, never during a query.

mod group;

mod dependencies;
mod evaluate;
mod levels;
mod reload;
mod restart;
#[cfg(test)]
mod tests;
mod write;

pub use evaluate::{EvaluationDurations, Mode};
pub use group::{Group, GroupSettings, GroupStatus};
pub use levels::{Levels, levels};
pub use reload::RemovedGroup;
