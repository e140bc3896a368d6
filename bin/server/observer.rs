//! Logs changes that an operator wants to know: senders that appear and vanish, leaders of HA pairs, teams at their maximum.
//!
//! [`Senders`] is filled by the write handlers. [`Observer::observe`] compares the state with that of the last call, once a
//! minute, and logs one line for each change.
//!
//! Bounds: [`SENDERS_MAX`] senders; teams and pairs as in `varve_ingest`.
//!
//! Threads: `Senders` has one lock, held for a look-up. An `Observer` belongs to one task.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::rejects::Sender;
use super::store::Store;

/// Maximum number of senders that are known at a time. Further ones are not logged.
const SENDERS_MAX: usize = 1_000;
/// A sender has vanished if it was silent for this time.
const SILENT_MAX: Duration = Duration::from_secs(300);

/// The senders of writes, and the times of their last requests.
#[derive(Debug, Default)]
pub(crate) struct Senders {
    known: Mutex<BTreeMap<Identity, Instant>>,
}

/// A sender, whatever its connections.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Identity {
    address: Option<IpAddr>,
    user_agent: String,
    user: Arc<str>,
    path: String,
}

impl Senders {
    /// Adds a request. Logs a sender that is not known.
    pub(crate) fn note(&self, sender: Sender, now: Instant) {
        let Sender { address, user_agent, user, path } = sender;
        let sender = Identity { address: address.map(|address| address.ip()), user_agent, user, path };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = known.get_mut(&sender) {
            *last = now;
        } else if known.len() < SENDERS_MAX {
            tracing::info!(%sender, "A sender has appeared");
            known.insert(sender, now);
        }
    }

    /// Removes the senders that have vanished and returns them.
    fn vanished(&self, now: Instant) -> Vec<Identity> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_silent = |last: &Instant| now.saturating_duration_since(*last) > SILENT_MAX;
        known.extract_if(.., |_, last| is_silent(last)).map(|(sender, _)| sender).collect()
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, user_agent, user, path } = self;
        match address {
            Some(address) => write!(f, "{address}")?,
            None => f.write_str("unknown address")?,
        }
        for (name, text) in [("user agent", user_agent.as_str()), ("user", user), ("path", path)] {
            if !text.is_empty() {
                write!(f, ", {name} {text}")?;
            }
        }
        Ok(())
    }
}

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
        for sender in senders.vanished(Instant::now()) {
            tracing::info!(%sender, silent = ?SILENT_MAX, "A sender has vanished");
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

    fn sender(agent: &str) -> Sender {
        Sender { user_agent: agent.to_owned(), ..Sender::default() }
    }

    #[test]
    fn a_sender_vanishes_after_minutes_of_silence() {
        let (senders, start) = (Senders::default(), Instant::now());
        senders.note(sender("a"), start);
        senders.note(sender("b"), start);
        senders.note(sender("b"), start + SILENT_MAX);
        assert_eq!(senders.vanished(start + SILENT_MAX).len(), 0);
        let vanished = senders.vanished(start + 2 * SILENT_MAX);
        assert_eq!(vanished.iter().map(ToString::to_string).collect::<Vec<_>>(), ["unknown address, user agent a"]);
        assert_eq!(senders.known.lock().unwrap().len(), 1);
    }

    #[test]
    fn no_more_than_the_maximum_number_of_senders_is_known() {
        let (senders, start) = (Senders::default(), Instant::now());
        (0..=SENDERS_MAX).for_each(|i| senders.note(sender(&i.to_string()), start));
        assert_eq!(senders.known.lock().unwrap().len(), SENDERS_MAX);
    }

    #[test]
    fn new_and_changed_values_are_found() {
        let mut known = BTreeMap::new();
        let mut next = |now: &[(&str, u64)]| changes(&mut known, now.iter().map(|(name, n)| ((*name).to_owned(), *n)));
        assert_eq!(next(&[("a", 1)]), [("a".to_owned(), None, 1)]);
        assert_eq!(next(&[("a", 1), ("b", 2)]), [("b".to_owned(), None, 2)]);
        assert_eq!(next(&[("a", 3)]), [("a".to_owned(), Some(1), 3)]);
    }
}
