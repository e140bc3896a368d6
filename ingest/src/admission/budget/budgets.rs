//! The configuration of budgets, and its checks.

use std::collections::{BTreeMap, BTreeSet};

use super::teams::{NAME_SIZE_MAX, RULES_TEAM, TEAMS_MAX};

/// Amounts of a budget; `None` is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amounts {
    /// Series in memory.
    pub active_series: Option<u64>,
    /// Series created per second.
    pub new_series_per_second: Option<u64>,
    /// Samples received per second.
    pub samples_per_second: Option<u64>,
}

/// The budget of a team.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TeamBudget {
    /// Amounts that the team always gets. `None` guarantees nothing.
    pub guaranteed: Amounts,
    /// Amounts that the team never exceeds.
    pub maximum: Amounts,
}

/// All budgets. The default is none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Budgets {
    /// The label whose value is the team. If `None`, only senders name teams.
    pub team_label: Option<String>,
    /// Maximum of all teams together.
    pub total: Amounts,
    /// Budgets by team name. The empty name stands for series without a team.
    pub teams: BTreeMap<String, TeamBudget>,
    /// The users and tokens that may name a team of `teams`. A team without an entry may be named
    /// by the user or token of its own name.
    pub senders: BTreeMap<String, BTreeSet<String>>,
    /// The maximum of each team that is not in `teams`.
    pub team_maximum: Amounts,
}

/// The reason why budgets are invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BudgetError(String);

/// Maximum of any amount: more than one machine handles, and small enough that no sum of amounts
/// overflows.
pub const AMOUNT_MAX: u64 = 1_000_000_000_000;

/// An amount: its key in the configuration, and its field.
type Field = (&'static str, fn(&Amounts) -> Option<u64>);

const FIELDS: [Field; 3] = [
    ("active_series", |amounts| amounts.active_series),
    ("new_series_per_second", |amounts| {
        amounts.new_series_per_second
    }),
    ("samples_per_second", |amounts| amounts.samples_per_second),
];

impl Budgets {
    /// Checks that all amounts are within their bounds, and all guarantees within the total.
    ///
    /// # Errors
    /// The first violation, by the keys of the configuration.
    pub fn check(&self) -> Result<(), BudgetError> {
        // Two ids are reserved: `Team::OTHER` and `Team::NONE`.
        if self.teams.len() > TEAMS_MAX - 2 {
            return Err(BudgetError(format!("teams: more than {}", TEAMS_MAX - 2)));
        }
        if let Some(name) = self.teams.keys().find(|name| name.len() > NAME_SIZE_MAX) {
            return Err(BudgetError(format!(
                "teams: the name {name:?} is longer than {} bytes",
                NAME_SIZE_MAX
            )));
        }
        self.check_amounts()?;
        for (what, amount) in FIELDS {
            let mut sum = 0;
            for (name, team) in &self.teams {
                let guaranteed = amount(&team.guaranteed).unwrap_or(0);
                sum += guaranteed;
                if let Some(maximum) = amount(&team.maximum).filter(|&maximum| maximum < guaranteed)
                {
                    return Err(BudgetError(format!(
                        "teams.{name}: {what}: the guarantee {guaranteed} exceeds the maximum {maximum}"
                    )));
                }
            }
            if let Some(total) = amount(&self.total).filter(|&total| total < sum) {
                return Err(BudgetError(format!(
                    "teams: {what}: all guarantees, {sum}, exceed the budget {total}"
                )));
            }
        }
        Ok(())
    }

    /// Returns `true` if a sender may name a team. `user` is `None` if the server has neither users
    /// nor tokens.
    pub(super) fn may_name(&self, team: &str, user: Option<&str>) -> bool {
        if team == RULES_TEAM || !self.teams.contains_key(team) {
            return false;
        }
        match (user, self.senders.get(team)) {
            (None, _) => true,
            (Some(user), Some(senders)) => senders.contains(user),
            (Some(user), None) => user == team,
        }
    }

    fn check_amounts(&self) -> Result<(), BudgetError> {
        let team_amounts = self.teams.iter().flat_map(|(name, team)| {
            [
                (format!("teams.{name}.guaranteed"), team.guaranteed),
                (format!("teams.{name}.maximum"), team.maximum),
            ]
        });
        let total_amounts = [
            ("budget".to_owned(), self.total),
            ("team_maximum".to_owned(), self.team_maximum),
        ];
        for (key, amounts) in total_amounts.into_iter().chain(team_amounts) {
            let mut set = FIELDS
                .iter()
                .filter_map(|(what, amount)| Some((what, amount(&amounts)?)));
            if let Some((what, _)) = set.find(|(_, amount)| !(1..=AMOUNT_MAX).contains(amount)) {
                return Err(BudgetError(format!(
                    "{key}.{what}: must be from 1 to {AMOUNT_MAX}"
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(budgets: &Budgets, expect: &str) {
        assert_eq!(
            budgets
                .check()
                .err()
                .map_or_else(String::new, |invalid| invalid.to_string()),
            expect
        );
    }

    fn series(guaranteed: u64, maximum: Option<u64>) -> TeamBudget {
        let amounts = |active_series| Amounts {
            active_series,
            ..Amounts::default()
        };
        TeamBudget {
            guaranteed: amounts(Some(guaranteed)),
            maximum: amounts(maximum),
        }
    }

    #[test]
    fn guarantees_beyond_a_maximum_or_the_total_are_invalid() {
        let mut budgets = Budgets::default();
        check(&budgets, "");
        budgets.teams.insert("a".to_owned(), series(10, Some(10)));
        budgets.teams.insert("b".to_owned(), series(5, None));
        check(&budgets, "");
        budgets.total.active_series = Some(15);
        check(&budgets, "");
        budgets.total.active_series = Some(14);
        check(
            &budgets,
            "teams: active_series: all guarantees, 15, exceed the budget 14",
        );
        budgets.teams.insert("a".to_owned(), series(10, Some(9)));
        check(
            &budgets,
            "teams.a: active_series: the guarantee 10 exceeds the maximum 9",
        );
        budgets.team_maximum.samples_per_second = Some(0);
        check(
            &budgets,
            "team_maximum.samples_per_second: must be from 1 to 1000000000000",
        );
        let many = (0..TEAMS_MAX - 1)
            .map(|i| (i.to_string(), TeamBudget::default()))
            .collect();
        check(
            &Budgets {
                teams: many,
                ..Budgets::default()
            },
            "teams: more than 998",
        );
        let long = [("x".repeat(257), TeamBudget::default())].into();
        assert!(
            Budgets {
                teams: long,
                ..Budgets::default()
            }
            .check()
            .is_err()
        );
    }
}
