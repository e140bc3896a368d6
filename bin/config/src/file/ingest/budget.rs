//! Budgets: keys `budget`, `teams` and `team_maximum` of section `ingest`.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use varve_ingest::admission::{Amounts, TeamBudget};

/// The amounts of a budget. A missing key is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct AmountsConfig {
    /// Series in memory. From 1 to 10^12, like the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    active_series: Option<u64>,
    /// Series created per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    new_series_per_second: Option<u64>,
    /// Samples received per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    samples_per_second: Option<u64>,
}

/// The budget of a team.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TeamConfig {
    /// What the team always gets. Default nothing.
    guaranteed: AmountsConfig,
    /// What the team never exceeds. Default unlimited.
    maximum: AmountsConfig,
    /// Users and tokens that may name the team in `X-Scope-OrgID`. Default the user or token of the
    /// same name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) senders: Option<BTreeSet<String>>,
}

impl TeamConfig {
    /// Returns the budget.
    pub(super) fn budget(&self) -> TeamBudget {
        TeamBudget {
            guaranteed: self.guaranteed.amounts(),
            maximum: self.maximum.amounts(),
        }
    }
}

impl AmountsConfig {
    /// Returns the amounts.
    pub(super) fn amounts(self) -> Amounts {
        let Self {
            active_series,
            new_series_per_second,
            samples_per_second,
        } = self;
        Amounts {
            active_series,
            new_series_per_second,
            samples_per_second,
        }
    }
}
