//! What of a request cannot be stored at once: it waits, while the rest is stored.
//!
//! A go at a request stores what can be stored now and leaves a [`Rest`]: series that are to be made when there is a turn
//! and a budget for them, and samples of teams that send too many. As long as goes get on, or time is left, there is
//! another one.

mod budget;
pub(crate) mod memory;
pub(crate) mod priority;
pub(crate) mod semaphore;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::WriteError;
use crate::limits::Limits;
use priority::Precedence;
use semaphore::{Seat, Turn, Turns};

pub use crate::error::Scarce;
#[cfg(test)]
pub(crate) use budget::TeamNames;
pub use budget::{AMOUNT_MAX, Amounts, BudgetError, Budgets, Figures, TEAMS_MAX, TeamBudget, TeamStatus};
pub(crate) use budget::{Lasting, Ledger, Refusal, Team};
pub use semaphore::TurnStats;

/// Who sends a request.
#[derive(Clone, Copy, Default)]
pub struct Origin<'a> {
    /// The team that it names; its budget stands for the whole request.
    pub team: Option<&'a str>,
    /// Called when the request begins to wait: it gives back what others need more, such as its place.
    pub begins_to_wait: Option<&'a dyn Fn()>,
}

/// What requests wait for, and how.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) ledger: Ledger,
    pub(crate) turns: Turns,
    pub(crate) precedence: Precedence,
    wait_max: Duration,
}

/// What of a request is not stored yet.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    /// The series, by their places in the request, ascending; with the team of those whose samples or series are refused.
    pub(crate) series: Vec<(u32, Option<Team>)>,
    /// Teams that are refused samples, or series, in this go.
    held: Vec<Team>,
    no_series: Vec<Team>,
    /// What is scarce, for whom, and for how long; the longest.
    scarce: Option<(Scarce, Team, Duration)>,
}

/// A request that waits.
pub(crate) struct Waiting<'a> {
    door: &'a Door,
    seat: Seat<'a>,
    until: Instant,
}

impl Door {
    pub(crate) fn new(ledger: Ledger, limits: &Limits) -> Self {
        let seats_size_max = limits.bytes_in_flight_max / SEATS_SHARE;
        let turns = Turns::new(limits.creation_concurrency_max, limits.waiting_max, seats_size_max);
        Self { ledger, turns, precedence: Precedence::default(), wait_max: limits.admission_wait }
    }

    /// Returns until when a request that comes now may wait.
    pub(crate) fn until(&self) -> Instant {
        Instant::now() + self.wait_max
    }

    /// Sits a request of so many bytes down.
    ///
    /// # Errors
    /// [`WriteError::Throttled`] if there is no seat.
    pub(crate) fn wait<'a>(&'a self, origin: &Origin<'_>, size: usize, rest: &Rest) -> Result<Waiting<'a>, WriteError> {
        let Some(seat) = self.turns.seat(size) else { return Err(rest.refuse(self, Some(Scarce::Seats))) };
        if let Some(begins_to_wait) = origin.begins_to_wait {
            begins_to_wait();
        }
        Ok(Waiting { door: self, seat, until: self.until() })
    }

    /// Waits until a request of a team may bring samples; comes before it is decompressed.
    ///
    /// # Errors
    /// [`WriteError::Throttled`] if that takes too long.
    pub(crate) fn pass(&self, origin: &Origin<'_>, team: Option<Team>, size: usize) -> Result<(), WriteError> {
        let Err(refusal) = self.ledger.check_samples(team) else { return Ok(()) };
        let mut rest = Rest::default();
        rest.note(team.unwrap_or_default(), refusal);
        let waiting = self.wait(origin, size, &rest)?;
        loop {
            waiting.pause(&rest)?;
            rest = Rest::default();
            match self.ledger.check_samples(team) {
                Ok(()) => return Ok(()),
                Err(refusal) => rest.note(team.unwrap_or_default(), refusal),
            }
        }
    }
}

impl<'a> Waiting<'a> {
    /// Waits for a turn to make series.
    ///
    /// # Errors
    /// [`WriteError::Throttled`] if there is none in time.
    pub(crate) fn turn(&self, rest: &Rest) -> Result<Turn<'a>, WriteError> {
        self.seat.turn(self.until).ok_or_else(|| rest.refuse(self.door, Some(Scarce::Turns)))
    }

    /// Waits for what is scarce, as far as time allows.
    ///
    /// # Errors
    /// [`WriteError::Throttled`] if no time is left.
    pub(crate) fn pause(&self, rest: &Rest) -> Result<(), WriteError> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(rest.refuse(self.door, None));
        }
        let wait = rest.scarce.map_or(PAUSE_MIN, |(_, _, wait)| wait.max(PAUSE_MIN));
        std::thread::sleep(wait.min(left));
        Ok(())
    }
}

impl Rest {
    /// Begins another go: returns the series of the last one.
    pub(crate) fn next_go(&mut self) -> Vec<(u32, Option<Team>)> {
        let Self { series, .. } = std::mem::take(self);
        series
    }

    /// Notes that a team's samples are refused in this go.
    pub(crate) fn hold(&mut self, team: Team, refusal: Refusal) {
        self.held.push(team);
        self.note(team, refusal);
    }

    /// Tells whether anything was refused in this go but for want of a turn.
    pub(crate) fn is_scarce(&self) -> bool {
        self.scarce.is_some()
    }

    /// Tells whether any team's samples are.
    pub(crate) fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// Tells whether a team's samples are.
    pub(crate) fn holds(&self, team: Team) -> bool {
        self.held.contains(&team)
    }

    /// Notes that a team gets no more series in this go.
    pub(crate) fn stop_series(&mut self, team: Team, refusal: Refusal) {
        self.no_series.push(team);
        self.note(team, refusal);
    }

    /// Tells whether a team gets series in this go, as far as is known.
    pub(crate) fn may_have_series(&self, team: Team) -> bool {
        !self.no_series.contains(&team) && !self.held.contains(&team)
    }

    /// Leaves a series for the next go.
    pub(crate) fn leave(&mut self, tag: u32, team: Option<Team>) {
        self.series.push((tag, team));
    }

    fn note(&mut self, team: Team, refusal: Refusal) {
        if let Refusal::Passing(scarce, wait) = refusal
            && self.scarce.is_none_or(|(_, _, longest)| wait > longest)
        {
            self.scarce = Some((scarce, team, wait));
        }
    }

    fn refuse(&self, door: &Door, otherwise: Option<Scarce>) -> WriteError {
        let (scarce, team, wait) = self.scarce.unwrap_or((Scarce::Turns, Team::NONE, Duration::ZERO));
        let (scarce, team) = match otherwise {
            Some(scarce) => (scarce, Arc::from("")),
            None => (scarce, door.ledger.name(team)),
        };
        WriteError::Throttled {
            scarce,
            team,
            n_series: self.series.len() as u64,
            retry_after: wait.max(RETRY_AFTER_MIN),
        }
    }
}

/// The least that is waited before another look.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// The least after which a sender is told to come again: it holds back samples of known series meanwhile.
const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);
/// Which part of the bytes in flight requests that wait may hold, so that others are let in.
const SEATS_SHARE: usize = 4;
