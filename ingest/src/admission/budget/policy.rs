//! Who gets what: pure, so that the same course of events always gives the same answers. Time is an argument.
//!
//! Invariants, whatever is asked for and whenever
//! 1. The series of a team, those that are being made included, are never more than its maximum.
//! 2. A team below its guarantee gets a new series, unless one of its own maxima of rates is reached.
//! 3. A team above its guarantee gets one only while all teams together are below the budget of all. So all together exceed
//!    that budget by no more than what is borrowed at the time: the guarantees alone are within it.
//! 4. Nothing is taken from a team that has it.
//!
//! Rates are kept likewise, by buckets: what is guaranteed goes through and is taken from the bucket of all nevertheless,
//! into debt if need be, so that borrowers wait.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Scarce;

use super::bucket::Bucket;
use super::teams::Team;
use super::{Amounts, Budgets, TeamBudget};

/// How many series there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Active {
    /// Of the team.
    pub(super) team: u64,
    /// Of all.
    pub(super) total: u64,
}

/// Why something is not to be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// To wait does not help.
    Lasting(Lasting),
    /// It helps to wait about so long.
    Passing(Scarce, Duration),
}

/// What is used up for as long as nobody gives it back. The numbers are those in use, and the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lasting {
    /// The series of the team.
    TeamSeries(u64, u64),
    /// The series of all, and the team has what is guaranteed to it.
    TotalSeries(u64, u64),
}

/// What is had of the three things that budgets are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// Series in memory.
    pub active_series: u64,
    /// Series made in a second, of late.
    pub new_series_per_second: u64,
    /// Samples in a second, of late.
    pub samples_per_second: u64,
}

/// How a team stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TeamStatus {
    /// Its name; empty for what belongs to none.
    pub name: Arc<str>,
    /// Its budget.
    pub budget: TeamBudget,
    /// What it has now.
    pub use_now: Figures,
    /// How much of that is above what is guaranteed.
    pub borrowed: Figures,
    /// Samples since the start.
    pub samples: u64,
    /// Series made since the start.
    pub new_series: u64,
    /// Times that a new series was refused since the start because a budget of active series was used up.
    pub series_refused: u64,
}

impl TeamStatus {
    /// Tells whether there is anything to say.
    pub(super) fn is_used(&self) -> bool {
        self.use_now.active_series > 0 || self.samples > 0 || self.new_series > 0 || self.series_refused > 0
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Policy {
    total: Account,
    /// By number.
    teams: Vec<Account>,
    team_maximum: Amounts,
}

#[derive(Debug)]
struct Account {
    budget: TeamBudget,
    has_own_budget: bool,
    /// Series that may be made and are not yet.
    n_reserved: u64,
    n_refused: u64,
    new_series: Rate,
    samples: Rate,
}

/// One thing that comes at a rate.
#[derive(Debug)]
struct Rate {
    guaranteed: Option<Bucket>,
    maximum: Option<Bucket>,
    meter: Meter,
}

/// Counts, and says how many came in a second of late.
#[derive(Debug, Default)]
struct Meter {
    n_ever: u64,
    /// Which span of time is counted at the moment.
    span: u64,
    n_span: u64,
    n_span_before: u64,
}

/// Whose bucket was empty.
enum Empty {
    Team(Duration),
    Total(Duration),
}

impl Policy {
    /// Begins with the two accounts that are always there.
    pub(super) fn new(budgets: &Budgets, now: Duration) -> Self {
        let total = Account::new(TeamBudget { maximum: budgets.total, ..TeamBudget::default() }, true, now);
        let mut policy = Self { total, teams: Vec::new(), team_maximum: budgets.team_maximum };
        policy.open(Team::NONE, budgets.teams.get("").copied(), now);
        policy.open(Team::OTHER, None, now);
        policy
    }

    /// Opens an account, in place of one that had the number before. Numbers come without gaps.
    pub(super) fn open(&mut self, team: Team, own: Option<TeamBudget>, now: Duration) {
        let account = Account::new(self.budget_for(team, own), own.is_some(), now);
        match self.teams.get_mut(team.idx()) {
            Some(place) => *place = account,
            None => self.teams.push(account),
        }
    }

    /// Puts another budget into force for all.
    pub(super) fn set_total(&mut self, budgets: &Budgets, now: Duration) {
        self.team_maximum = budgets.team_maximum;
        self.total.set(TeamBudget { maximum: budgets.total, ..TeamBudget::default() }, true, now);
    }

    /// Puts another budget into force for a team.
    pub(super) fn set(&mut self, team: Team, own: Option<TeamBudget>, now: Duration) {
        let budget = self.budget_for(team, own);
        self.teams[team.idx()].set(budget, own.is_some(), now);
    }

    fn budget_for(&self, team: Team, own: Option<TeamBudget>) -> TeamBudget {
        let of_each = if team == Team::NONE { Amounts::default() } else { self.team_maximum };
        own.unwrap_or(TeamBudget { maximum: of_each, ..TeamBudget::default() })
    }

    /// Tells whether the number may be given to another team, which has so many series.
    pub(super) fn is_idle(&self, team: Team, n_series: u64) -> bool {
        let account = &self.teams[team.idx()];
        !account.has_own_budget && account.n_reserved == 0 && n_series == 0
    }

    /// Allows a team one new series, which counts as there until [`Policy::settle_series`].
    ///
    /// # Errors
    /// Why not.
    pub(super) fn admit_series(&mut self, team: Team, active: Active, now: Duration) -> Result<(), Refusal> {
        let account = &mut self.teams[team.idx()];
        if let Err(lasting) = account.check_series(&self.total, active) {
            account.n_refused += 1;
            return Err(Refusal::Lasting(lasting));
        }
        account.new_series.admit(&mut self.total.new_series, 1, now).map_err(|empty| match empty {
            Empty::Team(wait) => Refusal::Passing(Scarce::TeamNewSeries, wait),
            Empty::Total(wait) => Refusal::Passing(Scarce::TotalNewSeries, wait),
        })?;
        account.n_reserved += 1;
        self.total.n_reserved += 1;
        Ok(())
    }

    /// Notes that a series that was allowed is made by now, or will not be.
    pub(super) fn settle_series(&mut self, team: Team) {
        for account in [&mut self.teams[team.idx()], &mut self.total] {
            account.n_reserved = account.n_reserved.saturating_sub(1);
        }
    }

    /// Allows a team samples, all or none. To be counted, by [`Policy::count_samples`].
    ///
    /// # Errors
    /// Why not: to wait helps.
    pub(super) fn admit_samples(&mut self, team: Team, n: u64, now: Duration) -> Result<(), Refusal> {
        self.teams[team.idx()].samples.take(&mut self.total.samples, n, now).map_err(|empty| match empty {
            Empty::Team(wait) => Refusal::Passing(Scarce::TeamSamples, wait),
            Empty::Total(wait) => Refusal::Passing(Scarce::TotalSamples, wait),
        })
    }

    /// Takes samples of a team that were not asked for.
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

    /// Tells whether samples have any bound.
    pub(super) fn bounds_samples(&self) -> bool {
        self.total.samples.is_bounded() || self.teams.iter().any(|account| account.samples.is_bounded())
    }

    /// Tells how long a team's samples would have to wait now, if at all.
    pub(super) fn samples_wait(&mut self, team: Team, now: Duration) -> Result<(), Refusal> {
        self.admit_samples(team, 0, now)
    }

    /// Likewise of a team that nothing is guaranteed to.
    pub(super) fn total_samples_wait(&mut self, now: Duration) -> Result<(), Refusal> {
        match self.total.samples.maximum.as_mut().map_or(Duration::ZERO, |bucket| bucket.wait(now)) {
            Duration::ZERO => Ok(()),
            wait => Err(Refusal::Passing(Scarce::TotalSamples, wait)),
        }
    }

    /// Tells whether any team has a guarantee for samples.
    pub(super) fn guarantees_samples(&self) -> bool {
        self.teams.iter().any(|account| account.samples.guaranteed.is_some())
    }

    /// Tells how a team stands that has so many series.
    pub(super) fn status(&mut self, team: Team, name: &Arc<str>, n_series: u64, now: Duration) -> TeamStatus {
        self.teams[team.idx()].status(name, n_series, now)
    }

    /// Tells how all together stand.
    pub(super) fn total_status(&mut self, n_series: u64, now: Duration) -> TeamStatus {
        let status = self.total.status(&Arc::from(""), n_series, now);
        let n_refused = self.teams.iter().map(|account| account.n_refused).sum();
        TeamStatus { series_refused: n_refused, borrowed: Figures::default(), ..status }
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

    /// Changes the budget; what was counted stays, rates begin anew.
    fn set(&mut self, budget: TeamBudget, has_own_budget: bool, now: Duration) {
        let Self { new_series, samples, .. } = Self::new(budget, has_own_budget, now);
        (self.budget, self.has_own_budget) = (budget, has_own_budget);
        for (rate, other) in [(&mut self.new_series, new_series), (&mut self.samples, samples)] {
            (rate.guaranteed, rate.maximum) = (other.guaranteed, other.maximum);
        }
    }

    fn check_series(&self, total: &Self, active: Active) -> Result<(), Lasting> {
        let of_team = active.team + self.n_reserved;
        if let Some(maximum) = self.budget.maximum.active_series.filter(|&maximum| of_team >= maximum) {
            return Err(Lasting::TeamSeries(of_team, maximum));
        }
        if self.budget.guaranteed.active_series.is_some_and(|guaranteed| of_team < guaranteed) {
            return Ok(());
        }
        let of_all = active.total + total.n_reserved;
        match total.budget.maximum.active_series.filter(|&maximum| of_all >= maximum) {
            Some(maximum) => Err(Lasting::TotalSeries(of_all, maximum)),
            None => Ok(()),
        }
    }

    fn status(&mut self, name: &Arc<str>, n_series: u64, now: Duration) -> TeamStatus {
        let use_now = Figures {
            active_series: n_series,
            new_series_per_second: self.new_series.meter.per_second(now),
            samples_per_second: self.samples.meter.per_second(now),
        };
        let guaranteed = &self.budget.guaranteed;
        let above = |of: u64, guaranteed: Option<u64>| of.saturating_sub(guaranteed.unwrap_or(0));
        let borrowed = Figures {
            active_series: above(use_now.active_series, guaranteed.active_series),
            new_series_per_second: above(use_now.new_series_per_second, guaranteed.new_series_per_second),
            samples_per_second: above(use_now.samples_per_second, guaranteed.samples_per_second),
        };
        TeamStatus {
            name: Arc::clone(name),
            budget: self.budget,
            use_now,
            borrowed,
            samples: self.samples.meter.n_ever,
            new_series: self.new_series.meter.n_ever,
            series_refused: self.n_refused,
        }
    }
}

impl Rate {
    fn new(guaranteed: Option<u64>, maximum: Option<u64>, now: Duration) -> Self {
        let bucket = |rate: Option<u64>| rate.map(|rate| Bucket::new(rate, now));
        Self { guaranteed: bucket(guaranteed), maximum: bucket(maximum), meter: Meter::default() }
    }

    fn is_bounded(&self) -> bool {
        self.maximum.is_some()
    }

    /// Takes `n` and counts them.
    fn admit(&mut self, total: &mut Self, n: u64, now: Duration) -> Result<(), Empty> {
        self.take(total, n, now)?;
        self.meter.count(n, now);
        total.meter.count(n, now);
        Ok(())
    }

    /// Takes `n`: of what is guaranteed while there is some, else of what all may have.
    fn take(&mut self, total: &mut Self, n: u64, now: Duration) -> Result<(), Empty> {
        let wait = |bucket: &mut Option<Bucket>| bucket.as_mut().map_or(Duration::ZERO, |bucket| bucket.wait(now));
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
        self.turn(now);
        self.n_ever = self.n_ever.saturating_add(n);
        self.n_span = self.n_span.saturating_add(n);
    }

    /// Returns the rate of the last span that is over.
    fn per_second(&mut self, now: Duration) -> u64 {
        self.turn(now);
        self.n_span_before / SPAN_S
    }

    fn turn(&mut self, now: Duration) {
        let span = now.as_secs() / SPAN_S;
        if span > self.span {
            self.n_span_before = if span == self.span + 1 { self.n_span } else { 0 };
            (self.span, self.n_span) = (span, 0);
        }
    }
}

/// Seconds over which rates are told.
const SPAN_S: u64 = 10;

#[cfg(test)]
mod tests;
