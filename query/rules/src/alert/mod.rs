//! Alerts: one per alerting rule and label set.
//!
//! `rule` decides which alerts are pending, firing or resolved; `restore` continues alerts after a
//! restart.

mod restore;
mod rule;
pub(crate) mod state;

pub use restore::RestoreOptions;
pub(crate) use restore::{Stored, restore};
pub(crate) use rule::{Evaluation, RuleParts, evaluate};
pub(crate) use state::{ALERT_NAME, ALERTS, ALERTS_FOR_STATE, Alerts};
pub use state::{Alert, AlertState, Notification};
