//! The ledger applies the budget policy in force: it adds the names of teams, the number of series
//! in the store, and the clock.
//!
//! Threads: one lock, held briefly. A request takes it once for its samples, and once for each
//! series that it creates. It may be taken while a lock of the store is held, but no lock of the
//! store is taken under it. A thread that waits for a rate blocks on a condition variable until the
//! bucket has refilled, budgets change, or its deadline has passed.
//!
//! Crash: nothing is persisted. After a start, series of the log belong to the team of their label.
//! Series of a team that the sender names belong to it again with their next sample.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use varve_model::Labels;
use varve_tsdb::Db;

use super::budgets::Budgets;
use super::policy::{Active, Denied, Policy, TeamStatus};
use super::teams::{Team, TeamNames};

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Ledger {
    db: Arc<Db>,
    started: Instant,
    state: Mutex<State>,
    /// Notified after a change of budgets.
    changed: Condvar,
    has_label: AtomicBool,
    bounds_samples: AtomicBool,
    /// Number of changes of budgets that may have moved label sets to other teams.
    generation: AtomicU32,
}

#[derive(Debug)]
struct State {
    budgets: Budgets,
    names: TeamNames,
    policy: Policy,
    /// Number of changes of budgets.
    n_changes: u64,
}

/// The right to create one series. While it is held, the series counts as active.
#[derive(Debug)]
pub(crate) struct Grant<'a> {
    ledger: &'a Ledger,
    team: Team,
}

impl Ledger {
    /// Creates a ledger without budgets.
    pub(crate) fn new(db: Arc<Db>) -> Self {
        let budgets = Budgets::default();
        let policy = Policy::new(&budgets, Duration::ZERO);
        Self {
            db,
            started: Instant::now(),
            state: Mutex::new(State {
                budgets,
                names: TeamNames::default(),
                policy,
                n_changes: 0,
            }),
            changed: Condvar::new(),
            has_label: AtomicBool::new(false),
            bounds_samples: AtomicBool::new(false),
            generation: AtomicU32::new(0),
        }
    }

    /// Applies budgets. If the team label changes, counts all series again by the new label.
    pub(crate) fn set(&self, budgets: Budgets) {
        let now = self.now();
        let mut state = self.state.lock();
        let is_other_label = state.budgets.team_label != budgets.team_label;
        state.policy.set_total(&budgets, now);
        let label = budgets.team_label.clone();
        state.budgets = budgets;
        state.n_changes += 1;
        let State {
            budgets,
            names,
            policy,
            ..
        } = &mut *state;
        for (team, name) in names.iter() {
            policy.set(team, budgets.teams.get(&**name).copied(), now);
        }
        let names: Vec<String> = state.budgets.teams.keys().cloned().collect();
        for name in names {
            self.team_in(&mut state, &name);
        }
        self.bounds_samples
            .store(state.policy.bounds_samples(), Ordering::Relaxed);
        self.has_label.store(label.is_some(), Ordering::Relaxed);
        drop(state);
        self.changed.notify_all();
        if is_other_label {
            self.db
                .set_group_label(label.as_deref(), |name| self.team_named(name).group());
            self.generation.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the generation of the assignment of label sets to teams. Routes cached under another
    /// generation are invalid.
    pub(crate) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Returns the team that a sender names: [`Team::OTHER`] if the sender may not name it. So
    /// invented names neither get ids nor budgets of their own.
    pub(crate) fn team_sent(&self, name: &str, user: Option<&str>) -> Team {
        let mut state = self.state.lock();
        if state.budgets.may_name(name, user) {
            self.team_in(&mut state, name)
        } else {
            Team::OTHER
        }
    }

    /// Returns the team of a label value.
    pub(crate) fn team_named(&self, name: &str) -> Team {
        self.team_in(&mut self.state.lock(), name)
    }

    /// Returns the team that the team label of a label set names.
    pub(crate) fn team_of(&self, labels: &Labels) -> Team {
        // Fast path: no label is configured.
        if !self.has_label.load(Ordering::Relaxed) {
            return Team::NONE;
        }
        let mut state = self.state.lock();
        let value = state
            .budgets
            .team_label
            .as_deref()
            .and_then(|label| labels.get(label))
            .map(str::to_owned);
        value.map_or(Team::NONE, |name| self.team_in(&mut state, &name))
    }

    fn team_in(&self, state: &mut State, name: &str) -> Team {
        let State {
            budgets,
            names,
            policy,
            ..
        } = state;
        let now = self.now();
        if let Some(team) = names.find(name) {
            policy.note_use(team, now);
            return team;
        }
        let team = names.get(name, |team| {
            policy.is_idle(team, self.db.n_series_of(team.group()), now)
        });
        if team != Team::OTHER {
            policy.open(team, budgets.teams.get(name).copied(), now);
            self.bounds_samples
                .store(policy.bounds_samples(), Ordering::Relaxed);
        }
        team
    }

    /// Grants a team one new series unless there is a `refusal`, see [`Policy::admit_series`].
    ///
    /// # Errors
    /// The reason of the denial.
    pub(crate) fn admit_series(
        &self,
        team: Team,
        refusal: Option<Denied>,
    ) -> Result<Grant<'_>, Denied> {
        let mut state = self.state.lock();
        let active = Active {
            team: self.db.n_series_of(team.group()),
            total: self.db.n_series(),
        };
        state
            .policy
            .admit_series(team, active, refusal, self.now())?;
        Ok(Grant { ledger: self, team })
    }

    /// Returns `true` if any budget bounds samples.
    pub(crate) fn bounds_samples(&self) -> bool {
        self.bounds_samples.load(Ordering::Relaxed)
    }

    /// Takes the samples of a request from the budgets of their teams. Calls `denied` for each team
    /// that must wait.
    pub(crate) fn admit_samples(
        &self,
        by_team: &[(Team, u64)],
        mut denied: impl FnMut(Team, Denied),
    ) {
        let mut state = self.state.lock();
        let now = self.now();
        for &(team, n) in by_team {
            if let Err(reason) = state.policy.admit_samples(team, n, now) {
                denied(team, reason);
            }
        }
    }

    /// Takes samples of a team from its budget. The budget may go into debt.
    pub(crate) fn charge_samples(&self, team: Team, n: u64) {
        self.state.lock().policy.charge_samples(team, n);
    }

    /// Counts the samples of a request.
    pub(crate) fn count_samples(&self, by_team: &[(Team, u64)]) {
        let mut state = self.state.lock();
        let now = self.now();
        for &(team, n) in by_team {
            state.policy.count_samples(team, n, now);
        }
    }

    /// Checks whether the samples of any request would be denied now. `team` is the team that the
    /// sender names.
    ///
    /// # Errors
    /// The reason of the denial.
    pub(crate) fn check_samples(&self, team: Option<Team>) -> Result<(), Denied> {
        // Fast path: no budget bounds samples.
        if self.bounds_samples() {
            self.state.lock().check_samples(team, self.now())
        } else {
            Ok(())
        }
    }

    /// Waits until samples would be admitted.
    ///
    /// # Errors
    /// The reason of the denial, at the deadline.
    pub(crate) fn wait_for_samples(
        &self,
        team: Option<Team>,
        deadline: Instant,
    ) -> Result<(), Denied> {
        let mut state = self.state.lock();
        loop {
            let Err(denied) = state.check_samples(team, self.now()) else {
                return Ok(());
            };
            let left = deadline.saturating_duration_since(Instant::now());
            let wait = match denied {
                Denied::Temporary(_, wait) if !left.is_zero() => wait.min(left),
                _ => return Err(denied),
            };
            self.changed.wait_for(&mut state, wait);
        }
    }

    /// Waits until the timeout or a change of budgets.
    pub(crate) fn wait(&self, timeout: Duration) {
        let mut state = self.state.lock();
        let n_changes = state.n_changes;
        let _either =
            self.changed
                .wait_while_for(&mut state, |state| state.n_changes == n_changes, timeout);
    }

    /// Returns the name of a team.
    pub(crate) fn name(&self, team: Team) -> Arc<str> {
        Arc::clone(self.state.lock().names.name(team))
    }

    /// Returns the status of all teams together, and of each team by name.
    pub(crate) fn status(&self) -> (TeamStatus, Vec<TeamStatus>) {
        let mut state = self.state.lock();
        let now = self.now();
        let State { names, policy, .. } = &mut *state;
        let mut teams: Vec<_> = names
            .iter()
            .map(|(team, name)| {
                (
                    team,
                    policy.status(team, name, self.db.n_series_of(team.group()), now),
                )
            })
            .filter(|(team, status)| *team != Team::OTHER || status.is_used())
            .map(|(_, status)| status)
            .collect();
        teams.sort_by(|a, b| a.name.cmp(&b.name));
        (policy.total_status(self.db.n_series(), now), teams)
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }
}

impl State {
    fn check_samples(&mut self, team: Option<Team>, now: Duration) -> Result<(), Denied> {
        match team {
            Some(team) => self.policy.check_samples(team, now),
            // The samples may belong to a team with a guarantee.
            None if self.policy.guarantees_samples() => Ok(()),
            None => self.policy.check_total_samples(now),
        }
    }
}

impl Drop for Grant<'_> {
    fn drop(&mut self) {
        self.ledger.state.lock().policy.settle_series(self.team);
    }
}
