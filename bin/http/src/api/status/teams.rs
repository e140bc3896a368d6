//! /api/v1/status/teams: budgets of teams, their usage, and their usage above the guaranteed share.

use std::sync::Arc;

use axum::extract::State;
use varve_ingest::admission::{Amounts, BudgetUsage, TeamStatus};

use crate::error::{ApiError, Result};
use crate::response::success;
use crate::serving::app::App;
use varve_wire::schema;

schema! {
    /// Limits. null: no limit.
    pub(crate) struct TeamAmounts {
        active_series: Option<u64>,
        new_series_per_second: Option<u64>,
        samples_per_second: Option<u64>,
    }
}

schema! {
    /// Current usage.
    pub(crate) struct TeamUsage {
        active_series: u64,
        /// Average of the last ten full seconds.
        new_series_per_second: u64,
        /// Average of the last ten full seconds.
        samples_per_second: u64,
    }
}

schema! {
    /// Usage of all teams together.
    pub(crate) struct AllTeams {
        maximum: TeamAmounts,
        used = "use": TeamUsage,
        /// Since the start.
        samples: u64,
        new_series: u64,
        /// New series that were rejected because a budget of active series was exhausted.
        series_rejected: u64,
    }
}

schema! {
    /// Usage of a team.
    pub(crate) struct TeamUse {
        /// The name of the team. Empty for series without a team, `(other)` for teams beyond the
        /// maximum number.
        team: String,
        /// The guaranteed share. null: none.
        guaranteed: TeamAmounts,
        maximum: TeamAmounts,
        used = "use": TeamUsage,
        /// Usage above its guaranteed share.
        borrowed: TeamUsage,
        samples: u64,
        new_series: u64,
        series_rejected: u64,
    }
}

schema! {
    /// Budgets and their usage.
    pub(crate) struct Teams {
        /// The label whose value is the team of a series. Empty if there is none.
        team_label: String,
        all: AllTeams,
        /// Sorted by name.
        teams: Vec<TeamUse>,
    }
}

impl From<Amounts> for TeamAmounts {
    fn from(amounts: Amounts) -> Self {
        Self {
            active_series: amounts.active_series,
            new_series_per_second: amounts.new_series_per_second,
            samples_per_second: amounts.samples_per_second,
        }
    }
}

impl From<BudgetUsage> for TeamUsage {
    fn from(usage: BudgetUsage) -> Self {
        Self {
            active_series: usage.active_series,
            new_series_per_second: usage.new_series_per_second,
            samples_per_second: usage.samples_per_second,
        }
    }
}

impl From<TeamStatus> for TeamUse {
    fn from(status: TeamStatus) -> Self {
        Self {
            team: status.name.to_string(),
            guaranteed: status.budget.guaranteed.into(),
            maximum: status.budget.maximum.into(),
            used: status.use_now.into(),
            borrowed: status.borrowed.into(),
            samples: status.samples,
            new_series: status.new_series,
            series_rejected: status.series_refused,
        }
    }
}

/// GET /api/v1/status/teams.
pub(crate) async fn teams(State(app): State<Arc<App>>) -> Result {
    let (all, teams) = app
        .store()
        .ok_or_else(ApiError::stopping)?
        .receiver
        .team_stats();
    let all = AllTeams {
        maximum: all.budget.maximum.into(),
        used: all.use_now.into(),
        samples: all.samples,
        new_series: all.new_series,
        series_rejected: all.series_refused,
    };
    let team_label = app.config.current().ingest.team_label().to_owned();
    Ok(success(&Teams {
        team_label,
        all,
        teams: teams.into_iter().map(TeamUse::from).collect(),
    }))
}
