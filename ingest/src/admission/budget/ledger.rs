//! The policy in force, with the teams that it knows, the store whose series it counts, and the clock.
//!
//! Threads: one lock, held for a few steps; a request takes it once for its samples, and once for each series that it
//! makes. Whoever holds it takes no lock of the store; the other way round is allowed.
//!
//! Crash: nothing is kept. After a start the series of the log belong to the teams of their label; those of teams that
//! senders name belong to them again with their next sample.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use varve_tsdb::{Db, Labels};

use super::policy::{Active, Policy};
use super::{Budgets, Refusal, Team, TeamNames, TeamStatus};

/// See the module.
#[derive(Debug)]
pub(crate) struct Ledger {
    db: Arc<Db>,
    began: Instant,
    state: Mutex<State>,
    has_label: AtomicBool,
    bounds_samples: AtomicBool,
    /// Counts how often a label set may have come to belong to another team.
    generation: AtomicU32,
}

#[derive(Debug)]
struct State {
    budgets: Budgets,
    names: TeamNames,
    policy: Policy,
}

/// The right to make one series; while it is held, the series counts as there.
#[derive(Debug)]
pub(crate) struct Grant<'a> {
    ledger: &'a Ledger,
    team: Team,
}

impl Ledger {
    /// Begins without budgets.
    pub(crate) fn new(db: Arc<Db>) -> Self {
        let budgets = Budgets::default();
        let policy = Policy::new(&budgets, Duration::ZERO);
        Self {
            db,
            began: Instant::now(),
            state: Mutex::new(State { budgets, names: TeamNames::default(), policy }),
            has_label: AtomicBool::new(false),
            bounds_samples: AtomicBool::new(false),
            generation: AtomicU32::new(0),
        }
    }

    /// Puts budgets into force. With another label each series is counted for the team that it has under that one.
    pub(crate) fn set(&self, budgets: Budgets) {
        let now = self.now();
        let mut state = self.state();
        let is_other_label = state.budgets.team_label != budgets.team_label;
        state.policy.set_total(&budgets, now);
        let label = budgets.team_label.clone();
        state.budgets = budgets;
        let State { budgets, names, policy } = &mut *state;
        for (team, name) in names.iter() {
            policy.set(team, budgets.teams.get(&**name).copied(), now);
        }
        let names: Vec<String> = state.budgets.teams.keys().cloned().collect();
        for name in names {
            self.team_in(&mut state, &name);
        }
        self.bounds_samples.store(state.policy.bounds_samples(), Ordering::Relaxed);
        self.has_label.store(label.is_some(), Ordering::Relaxed);
        drop(state);
        if is_other_label {
            self.db.regroup(label.as_deref(), |name| self.team_named(name).group());
            self.generation.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Tells under which number routes were made; of another one they may name another team.
    pub(crate) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Returns the team of a name.
    pub(crate) fn team_named(&self, name: &str) -> Team {
        self.team_in(&mut self.state(), name)
    }

    /// Returns the team that a label set belongs to by its label.
    pub(crate) fn team_of(&self, labels: &Labels) -> Team {
        // Fast path: no label is configured.
        if !self.has_label.load(Ordering::Relaxed) {
            return Team::NONE;
        }
        let mut state = self.state();
        let value = state.budgets.team_label.as_deref().and_then(|label| labels.get(label)).map(str::to_owned);
        value.map_or(Team::NONE, |name| self.team_in(&mut state, &name))
    }

    fn team_in(&self, state: &mut State, name: &str) -> Team {
        if let Some(team) = state.names.find(name) {
            return team;
        }
        let State { budgets, names, policy } = state;
        let team = names.get(name, |team| policy.is_idle(team, self.db.n_series_of(team.group())));
        if team != Team::OTHER {
            policy.open(team, budgets.teams.get(name).copied(), self.now());
            self.bounds_samples.store(policy.bounds_samples(), Ordering::Relaxed);
        }
        team
    }

    /// Allows a team one new series.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn admit_series(&self, team: Team) -> Result<Grant<'_>, Refusal> {
        let mut state = self.state();
        let active = Active { team: self.db.n_series_of(team.group()), total: self.db.n_series() };
        state.policy.admit_series(team, active, self.now())?;
        Ok(Grant { ledger: self, team })
    }

    /// Tells whether samples have to be asked for.
    pub(crate) fn bounds_samples(&self) -> bool {
        self.bounds_samples.load(Ordering::Relaxed)
    }

    /// Asks for the samples of a request by team, and calls `refused` for those that have to wait.
    pub(crate) fn admit_samples(&self, by_team: &[(Team, u64)], mut refused: impl FnMut(Team, Refusal)) {
        let (mut state, now) = (self.state(), self.now());
        for &(team, n) in by_team {
            if let Err(refusal) = state.policy.admit_samples(team, n, now) {
                refused(team, refusal);
            }
        }
    }

    /// Takes samples of a team from its budget, whether there is room for them or not.
    pub(crate) fn charge_samples(&self, team: Team, n: u64) {
        self.state().policy.charge_samples(team, n);
    }

    /// Counts the samples that a request has brought.
    pub(crate) fn count_samples(&self, by_team: &[(Team, u64)]) {
        let (mut state, now) = (self.state(), self.now());
        by_team.iter().for_each(|&(team, n)| state.policy.count_samples(team, n, now));
    }

    /// Tells whether samples that come now are certain to have to wait, whatever request of the team brings them.
    ///
    /// # Errors
    /// Why.
    pub(crate) fn check_samples(&self, team: Option<Team>) -> Result<(), Refusal> {
        // Fast path: no budget of samples.
        if !self.bounds_samples() {
            return Ok(());
        }
        let mut state = self.state();
        match team {
            Some(team) => state.policy.samples_wait(team, self.now()),
            // A request may be of a team that has a guarantee.
            None if state.policy.guarantees_samples() => Ok(()),
            None => state.policy.total_samples_wait(self.now()),
        }
    }

    /// Returns the name of a team.
    pub(crate) fn name(&self, team: Team) -> Arc<str> {
        Arc::clone(self.state().names.name(team))
    }

    /// Tells how all together and each team stand, the teams by name.
    pub(crate) fn status(&self) -> (TeamStatus, Vec<TeamStatus>) {
        let (mut state, now) = (self.state(), self.now());
        let State { names, policy, .. } = &mut *state;
        let mut teams: Vec<_> = names
            .iter()
            .map(|(team, name)| (team, policy.status(team, name, self.db.n_series_of(team.group()), now)))
            .filter(|(team, status)| *team != Team::OTHER || status.is_used())
            .map(|(_, status)| status)
            .collect();
        teams.sort_by(|a, b| a.name.cmp(&b.name));
        (policy.total_status(self.db.n_series(), now), teams)
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Grant<'_> {
    fn drop(&mut self) {
        self.ledger.state().policy.settle_series(self.team);
    }
}
