//! Recording and alerting rules.
//!
//! ```text
//! text -> file (YAML, expressions) -> RuleSet of Groups -> plan (when) -> Group::evaluate (what) -> Storage
//! ```
//!
//! A group evaluates its rules at its own times (`schedule`), as soon as the data has arrived
//! (`plan`, `arrival`). A recording rule writes its result. An alerting rule has an alert per
//! series of its result (`alert`). Queries, appends, the clock and the delivery of alerts come
//! through the trait [`Storage`](storage::Storage).
//!
//! The crate knows no HTTP and no threads other than those of one evaluation. Files, API and
//! semantics are those of Prometheus 3.16.
#![forbid(unsafe_code)]

pub mod file;

mod alert;
mod alerts_max;
pub mod arrival;
mod group;
mod label_set;
pub mod plan;
mod recording;
pub mod rule;
mod rule_set;
pub mod schedule;
pub mod storage;
mod threads;
mod time;
pub mod unit_test;

pub use alert::{Alert, AlertState, Notification, RestoreOptions};
pub use alerts_max::AlertsMax;
pub use group::{
    EvaluationDurations, Group, GroupSettings, GroupStatus, Levels, Mode, RemovedGroup, levels,
};
pub use rule_set::{RuleSet, RuleSetChange};
pub use threads::Threads;
pub use time::Time;
