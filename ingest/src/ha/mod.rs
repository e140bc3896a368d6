//! HA pairs: two Prometheus servers that scrape the same, of which the samples of one are stored.
//!
//! The servers of a pair carry the same value of one external label, the cluster, and different values of another, the
//! replica. For each cluster one replica leads (`election`); its series lose the replica label and are stored, those of the
//! others are left out, and their senders told that all is well. Who leads is kept in a file (`file`).
//!
//! Used by `pipeline` and `request`. A sender's external labels are on all of its series: the first series of a request tells
//! whose it is, and what the route cache knows under that pair belongs to it. A series that is not known is looked into,
//! so that one of another pair, or of none, in the midst of a request is dealt with as what it is; it costs more.
//!
//! Invariants
//! 1. A route that was found under a pair's salt is of a series of that pair: none other is noted under it.
//! 2. A change of leader is on disk before a sample of the new leader is stored, unless the disk fails: that is counted, and
//!    [`Elections::save`] tries again.
//! 3. Time in which nobody listened is not silence: after a start each leader has the whole timeout to be heard.
//!
//! Threads: one lock, held for a look-up, and for a small file where the leader changes. Crash: the old file or the new one.

mod election;
mod file;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use varve_tsdb::Labels;
use varve_tsdb::fs::{Clock, Fs, SystemClock};

use crate::batch::{DecodedBatch, RouteHasher};
use crate::outcome::Reason;
use crate::persisted_state::{Kept, StateFound};
use crate::remote_write::{LabelPairs, label_pairs};
use election::{Decision, Election, Moment, NAME_SIZE_MAX};

pub use election::{HaCluster, HaReplica};

/// By which labels pairs are known, and when the other one takes over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HaSettings {
    /// The label that both of a pair have alike. Stays on the series.
    pub cluster_label: String,
    /// The label that tells them apart. Taken off the series.
    pub replica_label: String,
    /// How long nothing has to come of the leader until another one is elected.
    pub failover_timeout: Duration,
}

/// Who leads, kept across restarts.
#[derive(Debug)]
pub struct Elections {
    started: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    election: Election,
    kept: Kept,
}

impl Elections {
    /// Reads who led, from the file `path` in a folder that exists.
    pub fn open(fs: Arc<dyn Fs>, path: PathBuf) -> (Self, StateFound) {
        let (election, kept, found) = Kept::open(file::FILE, fs, path, file::decode);
        (Self { started: Instant::now(), state: Mutex::new(State { election, kept }) }, found)
    }

    /// Returns the clusters by name.
    #[must_use]
    pub fn clusters(&self) -> Vec<HaCluster> {
        self.state().election.clusters(self.now())
    }

    /// Counts the times that a change could not be written.
    #[must_use]
    pub fn n_unsaved(&self) -> u64 {
        self.state().kept.n_unsaved()
    }

    /// Writes what could not be written before. Waits for the disk.
    ///
    /// # Errors
    /// If it cannot be written now either; what was there is there still.
    pub fn save(&self) -> io::Result<()> {
        let State { election, kept } = &mut *self.state();
        kept.save(|| file::encode(election))
    }

    fn decide(&self, pair: Pair<'_>, timeout: Duration) -> Decision {
        let State { election, kept } = &mut *self.state();
        let n_changes = election.n_changes();
        let decision = election.decide(pair.cluster, pair.replica, self.now(), timeout);
        if election.n_changes() != n_changes {
            kept.change(&file::encode(election));
        }
        decision
    }

    fn leave(&self, pair: Pair<'_>, n_samples: u64) {
        self.state().election.leave(pair.cluster, n_samples);
    }

    fn now(&self) -> Moment {
        Moment { since_start: self.started.elapsed(), wall_ms: SystemClock.now_ms() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Pairs as they are in force.
#[derive(Debug)]
pub(crate) struct Ha {
    settings: HaSettings,
    elections: Arc<Elections>,
}

/// Whose a series is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pair<'a> {
    cluster: &'a str,
    replica: &'a str,
}

/// Where a request stands: whose it is, and whether that one leads.
#[derive(Debug)]
pub(crate) struct Standing<'a> {
    ha: Option<&'a Ha>,
    of: Option<(Pair<'a>, Decision)>,
    salt: u32,
}

/// What becomes of a series.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    /// It is stored under these labels; `is_lasting` if that holds for the request's other series of these bytes, and those
    /// of later requests of the same pair.
    Taken { labels: Labels, is_lasting: bool },
    /// Another replica leads.
    Standby,
    /// There is no room for its cluster.
    Refused(Reason),
}

impl Ha {
    pub(crate) fn new(settings: HaSettings, elections: Arc<Elections>) -> Self {
        Self { settings, elections }
    }

    /// Returns whose a series is. Names that are too long, empty or no text are nobody's.
    fn pair<'a>(&self, labels: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Option<Pair<'a>> {
        let (mut cluster, mut replica) = (None, None);
        for (name, value) in labels {
            if name == self.settings.cluster_label.as_bytes() {
                cluster = Some(value);
            } else if name == self.settings.replica_label.as_bytes() {
                replica = Some(value);
            }
        }
        let text = |bytes: Option<&'a [u8]>| {
            let bytes = bytes.filter(|bytes| !bytes.is_empty() && bytes.len() <= NAME_SIZE_MAX)?;
            std::str::from_utf8(bytes).ok()
        };
        Some(Pair { cluster: text(cluster)?, replica: text(replica)? })
    }

    fn decide(&self, pair: Pair<'_>) -> Decision {
        self.elections.decide(pair, self.settings.failover_timeout)
    }

    /// Returns what tells routes of a pair, and under these settings, from others. Two pairs with one salt would have to meet
    /// in the series of one request to be taken for each other.
    fn salt(&self, pair: Option<Pair<'_>>, hasher: &RouteHasher) -> u32 {
        let HaSettings { cluster_label, replica_label, .. } = &self.settings;
        let (cluster, replica) = pair.map_or(("", ""), |pair| (pair.cluster, pair.replica));
        // 0xff is in no UTF-8.
        let text: Vec<&[u8]> = [cluster_label, replica_label, cluster, replica].map(str::as_bytes).to_vec();
        hasher.hash(&text.join(&0xff)).salt()
    }
}

impl<'a> Standing<'a> {
    /// Looks whose a request is, and notes that it was heard.
    pub(crate) fn of(ha: Option<&'a Ha>, message: &'a [u8], batch: &'a DecodedBatch, hasher: &RouteHasher) -> Self {
        let Some(ha) = ha else { return Self { ha: None, of: None, salt: 0 } };
        let pair = batch.series.first().and_then(|first| ha.pair(label_pairs(batch, message, first.labels)));
        let salt = ha.salt(pair, hasher);
        Self { ha: Some(ha), of: pair.map(|pair| (pair, ha.decide(pair))), salt }
    }

    /// Returns what the keys of the request's routes are salted with; 0 without HA pairs.
    pub(crate) fn salt(&self) -> u32 {
        self.salt
    }

    /// Tells whether what is known of the request's series counts: those of one that does not lead go nowhere.
    pub(crate) fn trusts_routes(&self) -> bool {
        self.of.is_none_or(|(_, decision)| decision == Decision::Leader)
    }

    /// Tells whether a series is left out because it is of the request's pair, which does not lead.
    pub(crate) fn leaves_out(&self, labels: LabelPairs<'_>) -> bool {
        match (self.ha, self.of) {
            (Some(ha), Some((pair, Decision::Standby))) => ha.pair(labels) == Some(pair),
            _ => false,
        }
    }

    /// Decides about a series that has been looked into.
    pub(crate) fn judge(&self, labels: Labels) -> Judged {
        let Some(ha) = self.ha else { return Judged::Taken { labels, is_lasting: true } };
        let pair = ha.pair(labels.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())));
        let Some(pair) = pair else {
            // Under the salt of a pair only its own series may be known.
            return Judged::Taken { labels, is_lasting: self.of.is_none() };
        };
        let (decision, is_lasting) = match self.of {
            Some((of_request, decision)) if of_request == pair => (decision, true),
            _ => (ha.decide(pair), false),
        };
        match decision {
            Decision::Leader => {
                let labels = labels.filter(|name| name != ha.settings.replica_label);
                Judged::Taken { labels, is_lasting }
            }
            Decision::Standby => Judged::Standby,
            Decision::NoRoom => Judged::Refused(Reason::TooManyClusters),
        }
    }

    /// Counts samples of a series that were left out, under its pair.
    pub(crate) fn count(&self, labels: LabelPairs<'_>, n_samples: u64) {
        if let Some((ha, pair)) = self.ha.and_then(|ha| Some((ha, ha.pair(labels)?))) {
            ha.elections.leave(pair, n_samples);
        }
    }

    /// Likewise, of series of the request's own pair.
    pub(crate) fn count_own(&self, n_samples: u64) {
        if let (Some(ha), Some((pair, _)), 1..) = (self.ha, self.of, n_samples) {
            ha.elections.leave(pair, n_samples);
        }
    }
}

#[cfg(test)]
mod tests;
