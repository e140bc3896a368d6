//! How much may come in, of all and of a team: keys `budget`, `teams` and `team_maximum` of section `ingest`.

use serde::{Deserialize, Serialize};
use varve_ingest::admission::{Amounts, TeamBudget};

/// What may be had; any number of what is not named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct AmountsConfig {
    /// Series in memory. From 1 to 10^12, as for the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    active_series: Option<u64>,
    /// Series made in a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    new_series_per_second: Option<u64>,
    /// Samples that come in a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    samples_per_second: Option<u64>,
}

/// What a team may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TeamConfig {
    /// What it always gets. Default nothing.
    guaranteed: AmountsConfig,
    /// What it never exceeds. Default any number.
    maximum: AmountsConfig,
}

impl TeamConfig {
    /// Returns the budget.
    pub(super) fn budget(self) -> TeamBudget {
        TeamBudget { guaranteed: self.guaranteed.amounts(), maximum: self.maximum.amounts() }
    }
}

impl AmountsConfig {
    /// Returns the amounts.
    pub(super) fn amounts(self) -> Amounts {
        let Self { active_series, new_series_per_second, samples_per_second } = self;
        Amounts { active_series, new_series_per_second, samples_per_second }
    }
}
