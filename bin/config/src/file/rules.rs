//! Section `rules`: when rules are evaluated.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::duration::{duration, print};

/// Section `rules`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RulesConfig {
    /// `data`: an evaluation starts when all senders have delivered its time. `none`: at its time.
    /// Default `data`.
    pub wait: Wait,
    /// How long an evaluation waits for data at most. Default 10s; up to 5m.
    #[serde(deserialize_with = "duration", serialize_with = "print")]
    pub max_wait: Duration,
}

/// What an evaluation waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// Until the samples of all active senders have arrived.
    #[default]
    Data,
    /// Nothing.
    None,
}

/// Maximum of `max_wait`.
pub(super) const MAX_WAIT_MAX: Duration = Duration::from_secs(300);

impl Default for RulesConfig {
    fn default() -> Self {
        Self {
            wait: Wait::default(),
            max_wait: Duration::from_secs(10),
        }
    }
}
