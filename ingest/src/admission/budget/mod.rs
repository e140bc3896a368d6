//! Budgets: how many series may be active, how many may be new in a second, and how many samples may come in one; in all
//! and for each team.
//!
//! A team is a name: the value of a configured label, or what a sender says of itself. It chooses a budget and isolates
//! nothing. What may be had is decided in `policy`, which is pure; the `ledger` knows the store, the teams (`teams`) and
//! the time. Why so: docs/decisions/0011-admission.md.
//!
//! What is guaranteed to a team it always gets. Above that it borrows what others leave unused, up to its maximum and as
//! long as all together are within the budget of all. When the others come back, what is *new* of the borrower is
//! refused; a series that is there is never cut off.

mod bucket;
mod ledger;
mod policy;
mod teams;

use std::collections::BTreeMap;

pub(crate) use ledger::Ledger;
pub use policy::{Figures, TeamStatus};
pub(crate) use policy::{Lasting, Refusal};
pub use teams::TEAMS_MAX;
pub(crate) use teams::{Team, TeamNames};

/// What may be had; `None` is any number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amounts {
    /// Series in memory.
    pub active_series: Option<u64>,
    /// Series that are made in a second.
    pub new_series_per_second: Option<u64>,
    /// Samples that come in a second.
    pub samples_per_second: Option<u64>,
}

/// What a team may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TeamBudget {
    /// What it always gets; nothing where there is no number.
    pub guaranteed: Amounts,
    /// What it never exceeds.
    pub maximum: Amounts,
}

/// All budgets. By default there are none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Budgets {
    /// The label whose value is the team; `None`: only senders say.
    pub team_label: Option<String>,
    /// Of all together.
    pub total: Amounts,
    /// Of teams by name; the empty name is for what belongs to none.
    pub teams: BTreeMap<String, TeamBudget>,
    /// Of each team that has none of its own.
    pub team_maximum: Amounts,
}

/// Why budgets make no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BudgetError(String);

/// The most of anything that a budget may allow: enough for a machine, and no sum of it overflows.
pub const AMOUNT_MAX: u64 = 1_000_000_000_000;

/// An amount: its name in the configuration, and where it is.
type Field = (&'static str, fn(&Amounts) -> Option<u64>);

const FIELDS: [Field; 3] = [
    ("active_series", |of| of.active_series),
    ("new_series_per_second", |of| of.new_series_per_second),
    ("samples_per_second", |of| of.samples_per_second),
];

impl Budgets {
    /// Checks that what is guaranteed can be had.
    ///
    /// # Errors
    /// The first thing that cannot be, by the keys of the configuration.
    pub fn check(&self) -> Result<(), BudgetError> {
        let refuse = |reason: String| Err(BudgetError(reason));
        // One place is for those that the rest of the teams share, one for what belongs to none.
        if self.teams.len() > TEAMS_MAX - 2 {
            return refuse(format!("teams: more than {}", TEAMS_MAX - 2));
        }
        if let Some(name) = self.teams.keys().find(|name| name.len() > teams::NAME_SIZE_MAX) {
            return refuse(format!("teams: the name {name:?} is longer than {} bytes", teams::NAME_SIZE_MAX));
        }
        self.check_amounts()?;
        for (what, amount) in FIELDS {
            let mut sum = 0;
            for (name, team) in &self.teams {
                let guaranteed = amount(&team.guaranteed).unwrap_or(0);
                sum += guaranteed;
                if let Some(maximum) = amount(&team.maximum).filter(|&maximum| maximum < guaranteed) {
                    return refuse(format!(
                        "teams.{name}: {what}: {guaranteed} is guaranteed and {maximum} the maximum"
                    ));
                }
            }
            if let Some(total) = amount(&self.total).filter(|&total| total < sum) {
                return refuse(format!("teams: {what}: {sum} is guaranteed to all teams, and {total} is the budget"));
            }
        }
        Ok(())
    }

    fn check_amounts(&self) -> Result<(), BudgetError> {
        let of_teams = self.teams.iter().flat_map(|(name, team)| {
            let key = |kind: &str| format!("teams.{name}.{kind}");
            [(key("guaranteed"), team.guaranteed), (key("maximum"), team.maximum)]
        });
        let of_all = [("budget".to_owned(), self.total), ("team_maximum".to_owned(), self.team_maximum)];
        for (key, amounts) in of_all.into_iter().chain(of_teams) {
            let named = FIELDS.iter().filter_map(|(what, amount)| Some((what, amount(&amounts)?)));
            if let Some((what, _)) = named.clone().find(|(_, amount)| !(1..=AMOUNT_MAX).contains(amount)) {
                return Err(BudgetError(format!("{key}.{what}: must be from 1 to {AMOUNT_MAX}")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(budgets: &Budgets, expect: &str) {
        assert_eq!(budgets.check().err().map_or_else(String::new, |refused| refused.to_string()), expect);
    }

    fn series(guaranteed: u64, maximum: Option<u64>) -> TeamBudget {
        let amounts = |active_series| Amounts { active_series, ..Amounts::default() };
        TeamBudget { guaranteed: amounts(Some(guaranteed)), maximum: amounts(maximum) }
    }

    #[test]
    fn what_cannot_be_had_is_refused() {
        let mut budgets = Budgets::default();
        check(&budgets, "");
        budgets.teams.insert("a".to_owned(), series(10, Some(10)));
        budgets.teams.insert("b".to_owned(), series(5, None));
        check(&budgets, "");
        budgets.total.active_series = Some(15);
        check(&budgets, "");
        budgets.total.active_series = Some(14);
        check(&budgets, "teams: active_series: 15 is guaranteed to all teams, and 14 is the budget");
        budgets.teams.insert("a".to_owned(), series(10, Some(9)));
        check(&budgets, "teams.a: active_series: 10 is guaranteed and 9 the maximum");
        budgets.team_maximum.samples_per_second = Some(0);
        check(&budgets, "team_maximum.samples_per_second: must be from 1 to 1000000000000");
        let many = (0..TEAMS_MAX - 1).map(|i| (i.to_string(), TeamBudget::default())).collect();
        check(&Budgets { teams: many, ..Budgets::default() }, "teams: more than 998");
        let long = [("x".repeat(257), TeamBudget::default())].into();
        assert!(Budgets { teams: long, ..Budgets::default() }.check().is_err());
    }
}
