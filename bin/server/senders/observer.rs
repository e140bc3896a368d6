//! Logs changes that matter to an operator: senders that appear and vanish, leaders of HA pairs, teams at their
//! maximum.
//!
//! Once a minute, [`Observer::observe`] compares the state with the state at the last call, and logs one line for each
//! change. [`Senders`] itself logs senders that appear.
//!
//! Threads: an `Observer` belongs to one task.

use std::collections::BTreeMap;

use varve_tsdb::fs::{Clock, SystemClock};

use super::{SILENT_MAX_MS, Senders};
use crate::server::store::Store;

/// The state of the last call.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    /// The leader of each HA pair.
    leaders: BTreeMap<String, String>,
    /// The number of rejected series of each team.
    rejected: BTreeMap<String, u64>,
}

impl Observer {
    /// Logs what has changed since the last call.
    pub(crate) fn observe(&mut self, store: &Store, senders: &Senders) {
        for sender in senders.vanished(SystemClock.now_ms()) {
            tracing::info!(%sender, silent_ms = SILENT_MAX_MS, "A sender has vanished");
        }
        let leaders = store.elections.clusters().into_iter().map(|pair| (pair.cluster, pair.leader.replica));
        for (cluster, old, new) in changes(&mut self.leaders, leaders) {
            tracing::info!(cluster, ?old, new, "A replica leads the HA pair");
        }
        let rejected =
            store.receiver.team_stats().1.into_iter().map(|team| (team.name.to_string(), team.series_refused));
        for (team, before, now) in changes(&mut self.rejected, rejected) {
            let n_rejected = now.saturating_sub(before.unwrap_or_default());
            if n_rejected > 0 {
                tracing::warn!(team, n_rejected, "New series were rejected: the team or the store is at its maximum");
            }
        }
    }
}

/// Replaces the known values and returns those that are new or have changed, with the previous ones.
fn changes<T: Clone + PartialEq>(
    known: &mut BTreeMap<String, T>,
    now: impl Iterator<Item = (String, T)>,
) -> Vec<(String, Option<T>, T)> {
    let now: BTreeMap<String, T> = now.collect();
    let before = std::mem::replace(known, now);
    let is_changed = |(name, value): &(&String, &T)| before.get(*name) != Some(*value);
    let changed = known.iter().filter(is_changed);
    changed.map(|(name, value)| (name.clone(), before.get(name).cloned(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_and_changed_values_are_found() {
        let mut known = BTreeMap::new();
        let mut next = |now: &[(&str, u64)]| changes(&mut known, now.iter().map(|(name, n)| ((*name).to_owned(), *n)));
        assert_eq!(next(&[("a", 1)]), [("a".to_owned(), None, 1)]);
        assert_eq!(next(&[("a", 1), ("b", 2)]), [("b".to_owned(), None, 2)]);
        assert_eq!(next(&[("a", 3)]), [("a".to_owned(), Some(1), 3)]);
    }
}
