//! Logs changes that matter to an operator: senders that appear and vanish, leaders of HA pairs,
//! teams at their maximum.
//!
//! Every few seconds, [`Observer::observe`] compares the state with the state at the last call, and
//! logs one line for each change. Rejected series are logged at most once a minute for each team.
//! [`Senders`] itself logs senders that appear.
//!
//! Threads: an `Observer` belongs to one task.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use varve_env::{Clock, SystemClock};

use super::{SILENT_MAX_MS, Senders};
use crate::store::Store;

/// Minimum time between two lines on the rejected series of a team.
const REJECTED_INTERVAL: Duration = Duration::from_secs(60);

/// The state of the last call.
#[derive(Debug, Default)]
pub struct Observer {
    /// The leader of each HA pair.
    leaders: BTreeMap<String, String>,
    /// The rejected series of each team that are logged.
    rejected: BTreeMap<String, Logged>,
}

/// A number of rejected series, and the time at which it was logged.
#[derive(Debug, Clone, Copy, Default)]
struct Logged {
    n_rejected: u64,
    at: Option<Instant>,
}

impl Observer {
    /// Logs what has changed since the last call.
    pub fn observe(&mut self, store: &Store, senders: &Senders) {
        for sender in senders.vanished(SystemClock.now_ms()) {
            tracing::info!(%sender, silent_ms = SILENT_MAX_MS, "A sender has vanished");
        }
        let leaders = store
            .elections
            .clusters()
            .into_iter()
            .map(|pair| (pair.cluster, pair.leader.replica));
        for (cluster, old, new) in changes(&mut self.leaders, leaders) {
            tracing::info!(
                cluster,
                old = old.as_deref(),
                new,
                "A replica leads the HA pair"
            );
        }
        let teams = store.receiver.team_stats().1.into_iter();
        let rejected = teams.map(|team| (team.name.to_string(), team.series_refused));
        for (team, n_rejected) in rejections(&mut self.rejected, rejected, Instant::now()) {
            tracing::warn!(
                team,
                n_rejected,
                "New series were rejected: the team or the store is at its maximum"
            );
        }
    }
}

/// Returns the teams whose rejected series must be logged now, with the number since the last time.
/// `totals` are the numbers since startup.
fn rejections(
    known: &mut BTreeMap<String, Logged>,
    totals: impl Iterator<Item = (String, u64)>,
    now: Instant,
) -> Vec<(String, u64)> {
    let before = std::mem::take(known);
    let mut due = Vec::new();
    for (team, total) in totals {
        let mut logged = before.get(&team).copied().unwrap_or_default();
        let n_new = total.saturating_sub(logged.n_rejected);
        if n_new > 0
            && logged
                .at
                .is_none_or(|at| now.saturating_duration_since(at) >= REJECTED_INTERVAL)
        {
            due.push((team.clone(), n_new));
            logged = Logged {
                n_rejected: total,
                at: Some(now),
            };
        }
        // A team whose series all ended counts from 0 again.
        logged.n_rejected = logged.n_rejected.min(total);
        known.insert(team, logged);
    }
    due
}

/// Replaces the known values and returns those that are new or have changed, with the previous
/// ones.
fn changes<T: Clone + PartialEq>(
    known: &mut BTreeMap<String, T>,
    now: impl Iterator<Item = (String, T)>,
) -> Vec<(String, Option<T>, T)> {
    let now: BTreeMap<String, T> = now.collect();
    let before = std::mem::replace(known, now);
    let mut changed = Vec::new();
    for (name, value) in known.iter() {
        let old = before.get(name);
        if old != Some(value) {
            changed.push((name.clone(), old.cloned(), value.clone()));
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_and_changed_values_are_found() {
        let mut known = BTreeMap::new();
        let mut next = |now: &[(&str, u64)]| {
            changes(
                &mut known,
                now.iter().map(|(name, n)| ((*name).to_owned(), *n)),
            )
        };
        assert_eq!(next(&[("a", 1)]), [("a".to_owned(), None, 1)]);
        assert_eq!(next(&[("a", 1), ("b", 2)]), [("b".to_owned(), None, 2)]);
        assert_eq!(next(&[("a", 3)]), [("a".to_owned(), Some(1), 3)]);
    }

    #[test]
    fn rejected_series_are_logged_at_once_and_then_once_a_minute() {
        let mut known = BTreeMap::new();
        let start = Instant::now();
        let mut due = |at_s, total| {
            let totals = [("a".to_owned(), total), ("b".to_owned(), 0)].into_iter();
            rejections(&mut known, totals, start + Duration::from_secs(at_s))
                .iter()
                .map(|(_, n)| *n)
                .sum::<u64>()
        };
        let seen = [
            (0, 0),
            (5, 3),
            (10, 4),
            (60, 9),
            (65, 9),
            (70, 9),
            (120, 9),
            (125, 10),
            (130, 1),
            (200, 3),
        ]
        .map(|(at_s, total)| due(at_s, total));
        assert_eq!(seen, [0, 3, 0, 0, 6, 0, 0, 1, 0, 2]);
    }
}
