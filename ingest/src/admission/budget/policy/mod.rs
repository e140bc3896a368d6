//! The budget policy. It is pure: time is an argument, so the same events always lead to the same
//! decisions.
//!
//! Invariants, in any order of events
//! 1. The series of a team, including those being created, never exceed its maximum.
//! 2. A team below its guarantee gets a new series, unless it has reached its own maximum rate.
//! 3. A team above its guarantee gets a new series only while all teams together are below the
//!    total budget. The guarantees alone are within the total. So all teams together exceed the
//!    total by at most the borrowed amount.
//! 4. A team never loses a series.
//!
//! Rates work the same way, with token buckets. Guaranteed tokens are also taken from the total
//! bucket, which may go into debt, so that borrowers wait.

mod rate;

use std::sync::Arc;
use std::time::Duration;

use super::budgets::{Amounts, Budgets, TeamBudget};
use super::teams::Team;
use crate::error::Exhausted;
use rate::{Empty, Rate, take_from};

/// How long a team keeps its id after a request has looked it up, so that requests that still run
/// do not use the id of another team. A write request with the default timeouts takes less.
const REUSE_AFTER: Duration = Duration::from_secs(600);

/// Numbers of active series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Active {
    pub(super) team: u64,
    pub(super) total: u64,
}

/// The reason why a budget denied series or samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denied {
    /// Waiting does not help: the series is rejected.
    Permanent(SeriesLimit),
    /// The resource is available again after about this time.
    Temporary(Exhausted, Duration),
}

/// A limit of series in memory that a new series would exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SeriesLimit {
    /// The maximum of the team.
    Team { used: u64, limit: u64 },
    /// The total of all teams. The team has already reached its guarantee.
    Total { used: u64, limit: u64 },
    /// The maximum of label names, of all teams.
    LabelNames { used: u64, limit: u64 },
    /// The maximum of series of the metric, of all teams.
    Metric { used: u64, limit: u64 },
}

/// The current use of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BudgetUsage {
    /// Series in memory.
    pub active_series: u64,
    /// Series created per second, recently.
    pub new_series_per_second: u64,
    /// Samples received per second, recently.
    pub samples_per_second: u64,
}

/// The budget of a team, and its use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TeamStatus {
    /// Name of the team; empty for series without a team.
    pub name: Arc<str>,
    /// The budget in force.
    pub budget: TeamBudget,
    /// The current use.
    pub use_now: BudgetUsage,
    /// The part of the use above the guarantee.
    pub borrowed: BudgetUsage,
    /// Samples since the start.
    pub samples: u64,
    /// Series created since the start.
    pub new_series: u64,
    /// New series rejected since the start because a budget of active series was exhausted.
    pub series_refused: u64,
}

impl TeamStatus {
    /// Returns `true` if the team has any series or counts.
    pub(super) fn is_used(&self) -> bool {
        self.use_now.active_series > 0
            || self.samples > 0
            || self.new_series > 0
            || self.series_refused > 0
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Policy {
    total: Account,
    /// Indexed by team id.
    teams: Vec<Account>,
    team_maximum: Amounts,
}

#[derive(Debug)]
struct Account {
    budget: TeamBudget,
    has_own_budget: bool,
    /// Number of series that were granted but are not created yet.
    n_reserved: u64,
    n_refused: u64,
    /// When the team was last looked up by its name.
    last_used: Duration,
    new_series: Rate,
    samples: Rate,
}

impl Policy {
    /// Creates the two accounts that always exist.
    pub(super) fn new(budgets: &Budgets, now: Duration) -> Self {
        let total = Account::new(
            TeamBudget {
                maximum: budgets.total,
                ..TeamBudget::default()
            },
            true,
            now,
        );
        let mut policy = Self {
            total,
            teams: Vec::new(),
            team_maximum: budgets.team_maximum,
        };
        policy.open(Team::NONE, budgets.teams.get("").copied(), now);
        policy.open(Team::OTHER, None, now);
        policy
    }

    /// Opens an account. Replaces the account of an earlier team with the same id. Ids have no
    /// gaps.
    pub(super) fn open(&mut self, team: Team, own: Option<TeamBudget>, now: Duration) {
        let account = Account::new(self.budget_for(team, own), own.is_some(), now);
        match self.teams.get_mut(team.idx()) {
            Some(existing) => *existing = account,
            None => self.teams.push(account),
        }
    }

    /// Applies a total budget.
    pub(super) fn set_total(&mut self, budgets: &Budgets, now: Duration) {
        self.team_maximum = budgets.team_maximum;
        self.total.set(
            TeamBudget {
                maximum: budgets.total,
                ..TeamBudget::default()
            },
            true,
            now,
        );
    }

    /// Applies the budget of a team.
    pub(super) fn set(&mut self, team: Team, own: Option<TeamBudget>, now: Duration) {
        let budget = self.budget_for(team, own);
        self.teams[team.idx()].set(budget, own.is_some(), now);
    }

    fn budget_for(&self, team: Team, own: Option<TeamBudget>) -> TeamBudget {
        let maximum = if team == Team::NONE {
            Amounts::default()
        } else {
            self.team_maximum
        };
        own.unwrap_or(TeamBudget {
            maximum,
            ..TeamBudget::default()
        })
    }

    /// Notes that a request has looked up a team, and may still use its id.
    pub(super) fn note_use(&mut self, team: Team, now: Duration) {
        self.teams[team.idx()].last_used = now;
    }

    /// Returns `true` if the id of a team with `n_series` series may be assigned to another team.
    pub(super) fn is_idle(&self, team: Team, n_series: u64, now: Duration) -> bool {
        let account = &self.teams[team.idx()];
        let is_unused = now.saturating_sub(account.last_used) >= REUSE_AFTER;
        is_unused && !account.has_own_budget && account.n_reserved == 0 && n_series == 0
    }

    /// Grants a team one new series, which counts as active until [`Policy::settle_series`].
    /// `refusal` denies it for another reason, such as memory. Active series are checked first,
    /// because a sender must not retry a permanent denial. Rates are checked last, because they
    /// count the series.
    ///
    /// # Errors
    /// The reason of the denial.
    pub(super) fn admit_series(
        &mut self,
        team: Team,
        active: Active,
        refusal: Option<Denied>,
        now: Duration,
    ) -> Result<(), Denied> {
        let account = &mut self.teams[team.idx()];
        if let Err(limit) = account.check_series(&self.total, active) {
            account.n_refused += 1;
            return Err(Denied::Permanent(limit));
        }
        if let Some(denied) = refusal {
            return Err(denied);
        }
        account
            .new_series
            .admit(&mut self.total.new_series, 1, now)
            .map_err(|empty| match empty {
                Empty::Team(wait) => Denied::Temporary(Exhausted::TeamNewSeries, wait),
                Empty::Total(wait) => Denied::Temporary(Exhausted::TotalNewSeries, wait),
            })?;
        account.n_reserved += 1;
        self.total.n_reserved += 1;
        Ok(())
    }

    /// Ends a grant, after the series was created or its creation failed.
    pub(super) fn settle_series(&mut self, team: Team) {
        for account in [&mut self.teams[team.idx()], &mut self.total] {
            account.n_reserved = account.n_reserved.saturating_sub(1);
        }
    }

    /// Grants a team all of its samples or none. Does not count them; see
    /// [`Policy::count_samples`].
    ///
    /// # Errors
    /// The reason of the denial, which is always temporary.
    pub(super) fn admit_samples(
        &mut self,
        team: Team,
        n: u64,
        now: Duration,
    ) -> Result<(), Denied> {
        self.teams[team.idx()]
            .samples
            .take(&mut self.total.samples, n, now)
            .map_err(|empty| match empty {
                Empty::Team(wait) => Denied::Temporary(Exhausted::TeamSamples, wait),
                Empty::Total(wait) => Denied::Temporary(Exhausted::TotalSamples, wait),
            })
    }

    /// Takes samples that were not granted from the budget of their team, which may go into debt.
    pub(super) fn charge_samples(&mut self, team: Team, n: u64) {
        let Self { total, teams, .. } = self;
        let Rate {
            guaranteed,
            maximum,
            ..
        } = &mut teams[team.idx()].samples;
        take_from(guaranteed, n);
        take_from(maximum, n);
        take_from(&mut total.samples.maximum, n);
    }

    /// Counts samples.
    pub(super) fn count_samples(&mut self, team: Team, n: u64, now: Duration) {
        self.teams[team.idx()].samples.meter.count(n, now);
        self.total.samples.meter.count(n, now);
    }

    /// Returns `true` if any budget bounds samples.
    pub(super) fn bounds_samples(&self) -> bool {
        self.total.samples.is_bounded()
            || self
                .teams
                .iter()
                .any(|account| account.samples.is_bounded())
    }

    /// Checks whether a team's samples would be denied now.
    pub(super) fn check_samples(&mut self, team: Team, now: Duration) -> Result<(), Denied> {
        self.admit_samples(team, 0, now)
    }

    /// Checks whether samples of a team without a guarantee would be denied now.
    pub(super) fn check_total_samples(&mut self, now: Duration) -> Result<(), Denied> {
        match self
            .total
            .samples
            .maximum
            .as_mut()
            .map_or(Duration::ZERO, |bucket| bucket.wait(now))
        {
            Duration::ZERO => Ok(()),
            wait => Err(Denied::Temporary(Exhausted::TotalSamples, wait)),
        }
    }

    /// Returns `true` if any team has a guarantee of samples.
    pub(super) fn guarantees_samples(&self) -> bool {
        self.teams
            .iter()
            .any(|account| account.samples.guaranteed.is_some())
    }

    /// Returns the status of a team with `n_series` series.
    pub(super) fn status(
        &mut self,
        team: Team,
        name: &Arc<str>,
        n_series: u64,
        now: Duration,
    ) -> TeamStatus {
        self.teams[team.idx()].status(name, n_series, now)
    }

    /// Returns the status of all teams together.
    pub(super) fn total_status(&mut self, n_series: u64, now: Duration) -> TeamStatus {
        let status = self.total.status(&Arc::from(""), n_series, now);
        let n_refused = self.teams.iter().map(|account| account.n_refused).sum();
        TeamStatus {
            series_refused: n_refused,
            borrowed: BudgetUsage::default(),
            ..status
        }
    }
}

impl Account {
    fn new(budget: TeamBudget, has_own_budget: bool, now: Duration) -> Self {
        let TeamBudget {
            guaranteed,
            maximum,
        } = budget;
        Self {
            budget,
            has_own_budget,
            n_reserved: 0,
            n_refused: 0,
            last_used: now,
            new_series: Rate::new(
                guaranteed.new_series_per_second,
                maximum.new_series_per_second,
                now,
            ),
            samples: Rate::new(
                guaranteed.samples_per_second,
                maximum.samples_per_second,
                now,
            ),
        }
    }

    /// Changes the budget. Counters keep their values, token buckets start full.
    fn set(&mut self, budget: TeamBudget, has_own_budget: bool, now: Duration) {
        let Self {
            new_series,
            samples,
            ..
        } = Self::new(budget, has_own_budget, now);
        self.budget = budget;
        self.has_own_budget = has_own_budget;
        for (rate, other) in [
            (&mut self.new_series, new_series),
            (&mut self.samples, samples),
        ] {
            rate.guaranteed = other.guaranteed;
            rate.maximum = other.maximum;
        }
    }

    fn check_series(&self, total: &Self, active: Active) -> Result<(), SeriesLimit> {
        let team_series = active.team + self.n_reserved;
        if let Some(maximum) = self
            .budget
            .maximum
            .active_series
            .filter(|&maximum| team_series >= maximum)
        {
            return Err(SeriesLimit::Team {
                used: team_series,
                limit: maximum,
            });
        }
        if self
            .budget
            .guaranteed
            .active_series
            .is_some_and(|guaranteed| team_series < guaranteed)
        {
            return Ok(());
        }
        let total_series = active.total + total.n_reserved;
        match total
            .budget
            .maximum
            .active_series
            .filter(|&maximum| total_series >= maximum)
        {
            Some(limit) => Err(SeriesLimit::Total {
                used: total_series,
                limit,
            }),
            None => Ok(()),
        }
    }

    fn status(&mut self, name: &Arc<str>, n_series: u64, now: Duration) -> TeamStatus {
        let use_now = BudgetUsage {
            active_series: n_series,
            new_series_per_second: self.new_series.meter.per_second(now),
            samples_per_second: self.samples.meter.per_second(now),
        };
        let guaranteed = &self.budget.guaranteed;
        let borrowed = BudgetUsage {
            active_series: above(use_now.active_series, guaranteed.active_series),
            new_series_per_second: above(
                use_now.new_series_per_second,
                guaranteed.new_series_per_second,
            ),
            samples_per_second: above(use_now.samples_per_second, guaranteed.samples_per_second),
        };
        TeamStatus {
            name: Arc::clone(name),
            budget: self.budget,
            use_now,
            borrowed,
            samples: self.samples.meter.n_total,
            new_series: self.new_series.meter.n_total,
            series_refused: self.n_refused,
        }
    }
}

/// Returns the part of a use above the guarantee.
fn above(used: u64, guaranteed: Option<u64>) -> u64 {
    used.saturating_sub(guaranteed.unwrap_or(0))
}

#[cfg(test)]
mod tests;
