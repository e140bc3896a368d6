//! /api/v1/status/teams: budgets, what teams have of them, and what they borrow; and which team a write names.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{Extensions, HeaderMap};
use axum::response::Response;
use varve_ingest::admission::{Amounts, Figures, TeamStatus};

use super::runtime::success;
use crate::http::App;
use crate::http::api::endpoint::unavailable;
use crate::http::openapi::described;
use crate::server::request_context::User;

/// The header in which a sender names its team.
const TEAM_HEADER: &str = "x-scope-orgid";

/// Returns the team that a write names. Where users or tokens are asked for, only one of these is believed.
pub(crate) fn named_team(headers: &HeaderMap, extensions: &Extensions, asks_for_users: bool) -> Option<String> {
    if asks_for_users && extensions.get::<User>().is_none() {
        return None;
    }
    let name = headers.get(TEAM_HEADER)?.as_bytes();
    let name = String::from_utf8_lossy(name).trim().to_owned();
    (!name.is_empty()).then_some(name)
}

described! {
    /// What may be had; null is any number.
    pub(crate) struct TeamAmounts {
        active_series: Option<u64>,
        new_series_per_second: Option<u64>,
        samples_per_second: Option<u64>,
    }
}

described! {
    /// What is had.
    pub(crate) struct TeamFigures {
        active_series: u64,
        /// Of the last ten seconds that are over.
        new_series_per_second: u64,
        /// Likewise.
        samples_per_second: u64,
    }
}

described! {
    /// What all teams have together.
    pub(crate) struct AllTeams {
        maximum: TeamAmounts,
        used = "use": TeamFigures,
        /// Since the start.
        samples: u64,
        new_series: u64,
        /// Times that a new series was refused because a budget of active series was used up.
        series_refused: u64,
    }
}

described! {
    /// What a team has.
    pub(crate) struct TeamUse {
        /// Its name; empty for what belongs to none, `(other)` for those beyond the number of teams that are told apart.
        team: String,
        /// What it always gets; null is nothing.
        guaranteed: TeamAmounts,
        maximum: TeamAmounts,
        used = "use": TeamFigures,
        /// What it has above its guarantee.
        borrowed: TeamFigures,
        samples: u64,
        new_series: u64,
        series_refused: u64,
    }
}

described! {
    /// Budgets, and how they are used.
    pub(crate) struct Teams {
        /// The label whose value is the team of a series; empty if there is none.
        team_label: String,
        all: AllTeams,
        /// By name.
        teams: Vec<TeamUse>,
    }
}

impl From<Amounts> for TeamAmounts {
    fn from(of: Amounts) -> Self {
        Self {
            active_series: of.active_series,
            new_series_per_second: of.new_series_per_second,
            samples_per_second: of.samples_per_second,
        }
    }
}

impl From<Figures> for TeamFigures {
    fn from(of: Figures) -> Self {
        Self {
            active_series: of.active_series,
            new_series_per_second: of.new_series_per_second,
            samples_per_second: of.samples_per_second,
        }
    }
}

impl From<TeamStatus> for TeamUse {
    fn from(of: TeamStatus) -> Self {
        Self {
            team: of.name.to_string(),
            guaranteed: of.budget.guaranteed.into(),
            maximum: of.budget.maximum.into(),
            used: of.use_now.into(),
            borrowed: of.borrowed.into(),
            samples: of.samples,
            new_series: of.new_series,
            series_refused: of.series_refused,
        }
    }
}

/// GET /api/v1/status/teams.
pub(crate) async fn teams(State(app): State<Arc<App>>) -> Response {
    // The layer around answers 503 while there is no store; it may have gone since.
    let (all, teams) = match app.store() {
        Some(store) => store.receiver.team_stats(),
        None => return unavailable(true),
    };
    let all = AllTeams {
        maximum: all.budget.maximum.into(),
        used: all.use_now.into(),
        samples: all.samples,
        new_series: all.new_series,
        series_refused: all.series_refused,
    };
    let team_label = app.config.current().ingest.team_label().to_owned();
    success(&Teams { team_label, all, teams: teams.into_iter().map(TeamUse::from).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_team_is_believed_of_whom_is_known_where_users_are_asked_for() {
        let mut headers = HeaderMap::new();
        let (nobody, mut ann) = (Extensions::new(), Extensions::new());
        ann.insert(User(Arc::from("ann")));
        assert_eq!(named_team(&headers, &nobody, false), None);
        headers.insert(TEAM_HEADER, " payments ".parse().unwrap());
        assert_eq!(named_team(&headers, &nobody, false).as_deref(), Some("payments"));
        assert_eq!(named_team(&headers, &nobody, true), None);
        assert_eq!(named_team(&headers, &ann, true).as_deref(), Some("payments"));
        headers.insert(TEAM_HEADER, " ".parse().unwrap());
        assert_eq!(named_team(&headers, &ann, true), None);
    }
}
