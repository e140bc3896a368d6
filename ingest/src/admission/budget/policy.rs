//! The policy of budgets: pure, so that the same events always give the same decisions. Time is an argument.
//!
//! Invariants, in any order of events
//! 1. The series of a team, including those being created, never exceed its maximum.
//! 2. A team below its guarantee gets a new series, unless its own maximum rate is reached.
//! 3. A team above its guarantee gets one only while all teams together are below the total budget. So all together exceed
//!    the total by no more than what is borrowed: the guarantees alone are within it.
//! 4. No series is taken from a team.
//!
//! Rates work the same way, with token buckets. Guaranteed tokens are also taken from the total bucket, into debt if need
//! be, so that borrowers wait.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Exhausted;

use super::teams::Team;
use super::token_bucket::TokenBucket;
use super::{Amounts, Budgets, TeamBudget};

/// Active series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Active {
    pub(super) team: u64,
    pub(super) total: u64,
}

/// Why the budget denied a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denied {
    /// Waiting does not help.
    Permanent(SeriesLimit),
    /// The resource is available again after about this time.
    Temporary(Exhausted, Duration),
}

/// An exhausted budget of active series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SeriesLimit {
    /// The maximum of the team.
    Team { used: u64, limit: u64 },
    /// The total, and the team has its guarantee.
    Total { used: u64, limit: u64 },
}

/// The present use of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
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
    /// Its name; empty for series without a team.
    pub name: Arc<str>,
    /// Its budget.
    pub budget: TeamBudget,
    /// Its present use.
    pub use_now: Usage,
    /// The part of the use above the guarantee.
    pub borrowed: Usage,
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
        self.use_now.active_series > 0 || self.samples > 0 || self.new_series > 0 || self.series_refused > 0
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Policy {
    total: Account,
    /// By id.
    teams: Vec<Account>,
    team_maximum: Amounts,
}

#[derive(Debug)]
struct Account {
    budget: TeamBudget,
    has_own_budget: bool,
    /// Series that were granted and are not created yet.
    n_reserved: u64,
    n_refused: u64,
    new_series: Rate,
    samples: Rate,
}

/// A rate: its bounds and its meter.
#[derive(Debug)]
struct Rate {
    guaranteed: Option<TokenBucket>,
    maximum: Option<TokenBucket>,
    meter: Meter,
}

/// Counts events, and returns how many happened per second recently.
#[derive(Debug, Default)]
struct Meter {
    n_total: u64,
    /// The interval that is being counted.
    interval: u64,
    n_interval: u64,
    n_interval_before: u64,
}

/// The empty bucket, and how long it takes to refill.
enum Empty {
    Team(Duration),
    Total(Duration),
}

impl Policy {
    /// Creates the two accounts that always exist.
    pub(super) fn new(budgets: &Budgets, now: Duration) -> Self {
        let total = Account::new(TeamBudget { maximum: budgets.total, ..TeamBudget::default() }, true, now);
        let mut policy = Self { total, teams: Vec::new(), team_maximum: budgets.team_maximum };
        policy.open(Team::NONE, budgets.teams.get("").copied(), now);
        policy.open(Team::OTHER, None, now);
        policy
    }

    /// Opens an account, in place of an earlier one of the same id. Ids have no gaps.
    pub(super) fn open(&mut self, team: Team, own: Option<TeamBudget>, now: Duration) {
        let account = Account::new(self.budget_for(team, own), own.is_some(), now);
        match self.teams.get_mut(team.idx()) {
            Some(place) => *place = account,
            None => self.teams.push(account),
        }
    }

    /// Puts a total budget into force.
    pub(super) fn set_total(&mut self, budgets: &Budgets, now: Duration) {
        self.team_maximum = budgets.team_maximum;
        self.total.set(TeamBudget { maximum: budgets.total, ..TeamBudget::default() }, true, now);
    }

    /// Puts the budget of a team into force.
    pub(super) fn set(&mut self, team: Team, own: Option<TeamBudget>, now: Duration) {
        let budget = self.budget_for(team, own);
        self.teams[team.idx()].set(budget, own.is_some(), now);
    }

    fn budget_for(&self, team: Team, own: Option<TeamBudget>) -> TeamBudget {
        let of_each = if team == Team::NONE { Amounts::default() } else { self.team_maximum };
        own.unwrap_or(TeamBudget { maximum: of_each, ..TeamBudget::default() })
    }

    /// Returns `true` if the id of a team with `n_series` series may be given to another team.
    pub(super) fn is_idle(&self, team: Team, n_series: u64) -> bool {
        let account = &self.teams[team.idx()];
        !account.has_own_budget && account.n_reserved == 0 && n_series == 0
    }

    /// Grants a team one new series, which counts as active until [`Policy::settle_series`].
    ///
    /// # Errors
    /// Why it is denied.
    pub(super) fn admit_series(&mut self, team: Team, active: Active, now: Duration) -> Result<(), Denied> {
        let account = &mut self.teams[team.idx()];
        if let Err(lasting) = account.check_series(&self.total, active) {
            account.n_refused += 1;
            return Err(Denied::Permanent(lasting));
        }
        account.new_series.admit(&mut self.total.new_series, 1, now).map_err(|empty| match empty {
            Empty::Team(wait) => Denied::Temporary(Exhausted::TeamNewSeries, wait),
            Empty::Total(wait) => Denied::Temporary(Exhausted::TotalNewSeries, wait),
        })?;
        account.n_reserved += 1;
        self.total.n_reserved += 1;
        Ok(())
    }

    /// Ends a grant: the series is created by now, or will not be.
    pub(super) fn settle_series(&mut self, team: Team) {
        for account in [&mut self.teams[team.idx()], &mut self.total] {
            account.n_reserved = account.n_reserved.saturating_sub(1);
        }
    }

    /// Grants a team all of its samples or none. [`Policy::count_samples`] counts them.
    ///
    /// # Errors
    /// Why they are denied, always temporarily.
    pub(super) fn admit_samples(&mut self, team: Team, n: u64, now: Duration) -> Result<(), Denied> {
        self.teams[team.idx()].samples.take(&mut self.total.samples, n, now).map_err(|empty| match empty {
            Empty::Team(wait) => Denied::Temporary(Exhausted::TeamSamples, wait),
            Empty::Total(wait) => Denied::Temporary(Exhausted::TotalSamples, wait),
        })
    }

    /// Takes samples of a team that were not granted before.
    pub(super) fn charge_samples(&mut self, team: Team, n: u64) {
        let Self { total, teams, .. } = self;
        let Rate { guaranteed, maximum, .. } = &mut teams[team.idx()].samples;
        [guaranteed, maximum, &mut total.samples.maximum].into_iter().flatten().for_each(|bucket| bucket.take(n));
    }

    /// Counts samples.
    pub(super) fn count_samples(&mut self, team: Team, n: u64, now: Duration) {
        self.teams[team.idx()].samples.meter.count(n, now);
        self.total.samples.meter.count(n, now);
    }

    /// Returns `true` if any budget bounds samples.
    pub(super) fn bounds_samples(&self) -> bool {
        self.total.samples.is_bounded() || self.teams.iter().any(|account| account.samples.is_bounded())
    }

    /// Checks whether a team's samples would be denied now.
    pub(super) fn check_samples(&mut self, team: Team, now: Duration) -> Result<(), Denied> {
        self.admit_samples(team, 0, now)
    }

    /// Checks whether samples of a team without a guarantee would be denied now.
    pub(super) fn check_total_samples(&mut self, now: Duration) -> Result<(), Denied> {
        match self.total.samples.maximum.as_mut().map_or(Duration::ZERO, |bucket| bucket.wait(now)) {
            Duration::ZERO => Ok(()),
            wait => Err(Denied::Temporary(Exhausted::TotalSamples, wait)),
        }
    }

    /// Returns `true` if any team has a guarantee of samples.
    pub(super) fn guarantees_samples(&self) -> bool {
        self.teams.iter().any(|account| account.samples.guaranteed.is_some())
    }

    /// Returns the status of a team with `n_series` series.
    pub(super) fn status(&mut self, team: Team, name: &Arc<str>, n_series: u64, now: Duration) -> TeamStatus {
        self.teams[team.idx()].status(name, n_series, now)
    }

    /// Returns the status of all teams together.
    pub(super) fn total_status(&mut self, n_series: u64, now: Duration) -> TeamStatus {
        let status = self.total.status(&Arc::from(""), n_series, now);
        let n_refused = self.teams.iter().map(|account| account.n_refused).sum();
        TeamStatus { series_refused: n_refused, borrowed: Usage::default(), ..status }
    }
}

impl Account {
    fn new(budget: TeamBudget, has_own_budget: bool, now: Duration) -> Self {
        let TeamBudget { guaranteed, maximum } = budget;
        Self {
            budget,
            has_own_budget,
            n_reserved: 0,
            n_refused: 0,
            new_series: Rate::new(guaranteed.new_series_per_second, maximum.new_series_per_second, now),
            samples: Rate::new(guaranteed.samples_per_second, maximum.samples_per_second, now),
        }
    }

    /// Changes the budget. Counts stay, token buckets start full.
    fn set(&mut self, budget: TeamBudget, has_own_budget: bool, now: Duration) {
        let Self { new_series, samples, .. } = Self::new(budget, has_own_budget, now);
        (self.budget, self.has_own_budget) = (budget, has_own_budget);
        for (rate, other) in [(&mut self.new_series, new_series), (&mut self.samples, samples)] {
            (rate.guaranteed, rate.maximum) = (other.guaranteed, other.maximum);
        }
    }

    fn check_series(&self, total: &Self, active: Active) -> Result<(), SeriesLimit> {
        let of_team = active.team + self.n_reserved;
        if let Some(maximum) = self.budget.maximum.active_series.filter(|&maximum| of_team >= maximum) {
            return Err(SeriesLimit::Team { used: of_team, limit: maximum });
        }
        if self.budget.guaranteed.active_series.is_some_and(|guaranteed| of_team < guaranteed) {
            return Ok(());
        }
        let of_all = active.total + total.n_reserved;
        match total.budget.maximum.active_series.filter(|&maximum| of_all >= maximum) {
            Some(limit) => Err(SeriesLimit::Total { used: of_all, limit }),
            None => Ok(()),
        }
    }

    fn status(&mut self, name: &Arc<str>, n_series: u64, now: Duration) -> TeamStatus {
        let use_now = Usage {
            active_series: n_series,
            new_series_per_second: self.new_series.meter.per_second(now),
            samples_per_second: self.samples.meter.per_second(now),
        };
        let guaranteed = &self.budget.guaranteed;
        let above = |of: u64, guaranteed: Option<u64>| of.saturating_sub(guaranteed.unwrap_or(0));
        let borrowed = Usage {
            active_series: above(use_now.active_series, guaranteed.active_series),
            new_series_per_second: above(use_now.new_series_per_second, guaranteed.new_series_per_second),
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

impl Rate {
    fn new(guaranteed: Option<u64>, maximum: Option<u64>, now: Duration) -> Self {
        let bucket = |rate: Option<u64>| rate.map(|rate| TokenBucket::new(rate, now));
        Self { guaranteed: bucket(guaranteed), maximum: bucket(maximum), meter: Meter::default() }
    }

    fn is_bounded(&self) -> bool {
        self.maximum.is_some()
    }

    /// Takes and counts `n`.
    fn admit(&mut self, total: &mut Self, n: u64, now: Duration) -> Result<(), Empty> {
        self.take(total, n, now)?;
        self.meter.count(n, now);
        total.meter.count(n, now);
        Ok(())
    }

    /// Takes `n`: from the guarantee while that has tokens, else from the total.
    fn take(&mut self, total: &mut Self, n: u64, now: Duration) -> Result<(), Empty> {
        let wait = |bucket: &mut Option<TokenBucket>| bucket.as_mut().map_or(Duration::ZERO, |bucket| bucket.wait(now));
        let of_team = wait(&mut self.maximum);
        if !of_team.is_zero() {
            return Err(Empty::Team(of_team));
        }
        let of_guarantee = self.guaranteed.as_mut().map(|bucket| bucket.wait(now));
        let is_guaranteed = of_guarantee.is_some_and(|wait| wait.is_zero());
        let of_total = wait(&mut total.maximum);
        if !is_guaranteed && !of_total.is_zero() {
            return Err(Empty::Total(of_guarantee.map_or(of_total, |wait| wait.min(of_total))));
        }
        let guaranteed = self.guaranteed.as_mut().filter(|_| is_guaranteed);
        [guaranteed, self.maximum.as_mut(), total.maximum.as_mut()].into_iter().flatten().for_each(|of| of.take(n));
        Ok(())
    }
}

impl Meter {
    fn count(&mut self, n: u64, now: Duration) {
        self.advance(now);
        self.n_total = self.n_total.saturating_add(n);
        self.n_interval = self.n_interval.saturating_add(n);
    }

    /// Returns the rate of the last complete interval.
    fn per_second(&mut self, now: Duration) -> u64 {
        self.advance(now);
        self.n_interval_before / INTERVAL_S
    }

    fn advance(&mut self, now: Duration) {
        let interval = now.as_secs() / INTERVAL_S;
        if interval > self.interval {
            self.n_interval_before = if interval == self.interval + 1 { self.n_interval } else { 0 };
            (self.interval, self.n_interval) = (interval, 0);
        }
    }
}

/// Seconds that a reported rate covers.
const INTERVAL_S: u64 = 10;

#[cfg(test)]
mod tests;
