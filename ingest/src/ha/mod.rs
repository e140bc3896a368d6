//! HA pairs: two or more Prometheus servers that scrape the same targets. Only the samples of one
//! of them are stored.
//!
//! The servers of a pair have the same value of one external label, the cluster, and different
//! values of another, the replica. Pairs of senders with different forced labels are independent.
//! In each cluster one replica leads (`election`). Its series are stored without the replica label.
//! Series of the other replicas are deduplicated, and their senders get a successful response. The
//! leaders are persisted (`file`).
//!
//! Used by `receiver` and `resolve`. External labels are on all series of a sender. So the first
//! series of a request determines the pair of the request, whose cached routes then apply. An
//! unknown series is parsed, so that a series of another pair, or of no pair, in the same request
//! gets its own decision. Rationale: docs/decisions/ingest/0013-ha-pairs.md.
//!
//! Invariants
//! 1. Routes cached under the salt of a pair belong to series of this pair only.
//! 2. A new leader is on disk before its first sample is stored. A failed write is counted, and
//!    [`Elections::save`] repeats it.
//! 3. Downtime is not silence: after a start, each leader has the whole timeout to send a request.
//!
//! Threads: one lock, held for a look-up, and for writing a small file when the leader changes.
//! Crash: the old file or the new one.

mod election;
mod file;

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use varve_fs::{Clock, Error, Fs, StateFileError, SystemClock};
use varve_model::Labels;

use crate::batch::RouteHasher;
use crate::outcome::Reason;
use crate::persisted_state::PersistedState;
use election::{Decision, Election, Moment, NAME_SIZE_MAX};

pub use election::{HaCluster, HaReplica};

/// The labels of HA pairs, and the failover timeout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HaSettings {
    /// The label that has the same value on all replicas of a pair. It stays on the series.
    pub cluster_label: String,
    /// The label that has a different value on each replica. It is removed from the series.
    pub replica_label: String,
    /// Silence of the leader after which another replica takes over.
    pub failover_timeout: Duration,
}

/// The leader of each cluster, persisted across restarts.
#[derive(Debug)]
pub struct Elections {
    started: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    election: Election,
    file: PersistedState,
}

impl Elections {
    /// Reads the leaders from the file `path`, whose directory must exist.
    pub fn open(fs: Arc<dyn Fs>, path: PathBuf) -> (Self, Result<(), StateFileError>) {
        let (election, file, found) = PersistedState::open(file::FILE, fs, path, file::decode);
        (
            Self {
                started: Instant::now(),
                state: Mutex::new(State { election, file }),
            },
            found,
        )
    }

    /// Returns the clusters by name.
    #[must_use]
    pub fn clusters(&self) -> Vec<HaCluster> {
        self.state.lock().election.clusters(self.now())
    }

    /// Returns the number of failed writes of the file.
    #[must_use]
    pub fn n_write_failures(&self) -> u64 {
        self.state.lock().file.n_write_failures()
    }

    /// Repeats a failed write. Waits for the disk.
    ///
    /// # Errors
    /// If the write fails again. The file is unchanged then.
    pub fn save(&self) -> Result<(), Error> {
        let State { election, file } = &mut *self.state.lock();
        file.save(|| file::encode(election))
    }

    fn decide(&self, pair: Pair<'_>, timeout: Duration) -> Decision {
        let State { election, file } = &mut *self.state.lock();
        let n_changes = election.n_changes();
        let decision = election.decide(pair.cluster, pair.replica, self.now(), timeout);
        if election.n_changes() != n_changes {
            file.write(&file::encode(election));
        }
        decision
    }

    fn count_deduplicated(&self, pair: Pair<'_>, n_samples: u64) {
        self.state
            .lock()
            .election
            .count_deduplicated(pair.cluster, n_samples);
    }

    fn now(&self) -> Moment {
        Moment {
            since_start: self.started.elapsed(),
            wall_ms: SystemClock.now_ms(),
        }
    }
}

/// The settings in force.
#[derive(Debug)]
pub(crate) struct Ha {
    settings: HaSettings,
    elections: Arc<Elections>,
}

/// The cluster and replica of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pair<'a> {
    cluster: &'a str,
    replica: &'a str,
}

/// The pair of a request, and the decision about it.
#[derive(Debug)]
pub(crate) struct HaContext<'a> {
    ha: Option<&'a Ha>,
    own: Option<(Pair<'a>, Decision)>,
    salt: u32,
    /// The forced labels of the sender, printed: the end of the names of its clusters. Empty
    /// without any.
    tenant: String,
}

/// The decision about a series.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Deduplication {
    /// Stored under these labels. The route may be cached if `is_cacheable`: the series belongs to
    /// the pair of the request.
    Store { labels: Labels, is_cacheable: bool },
    /// Another replica leads.
    Standby,
    /// There are too many clusters.
    RejectionCount(Reason),
}

impl Ha {
    pub(crate) fn new(settings: HaSettings, elections: Arc<Elections>) -> Self {
        Self {
            settings,
            elections,
        }
    }

    /// Returns the pair of a series, or `None` if a name is missing, empty, too long or not UTF-8.
    fn pair<'a>(&self, labels: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Option<Pair<'a>> {
        let (mut cluster, mut replica) = (None, None);
        for (name, value) in labels {
            if name == self.settings.cluster_label.as_bytes() {
                cluster = Some(value);
            } else if name == self.settings.replica_label.as_bytes() {
                replica = Some(value);
            }
        }
        let string = |bytes: Option<&'a [u8]>| {
            let bytes = bytes.filter(|bytes| !bytes.is_empty() && bytes.len() <= NAME_SIZE_MAX)?;
            std::str::from_utf8(bytes).ok()
        };
        Some(Pair {
            cluster: string(cluster)?,
            replica: string(replica)?,
        })
    }

    fn decide(&self, pair: Pair<'_>) -> Decision {
        self.elections.decide(pair, self.settings.failover_timeout)
    }

    /// Returns the salt of the routes of a pair under these settings. Two pairs with the same salt
    /// could be confused only if one request had series of both.
    fn salt(&self, pair: Option<Pair<'_>>, hasher: &RouteHasher) -> u32 {
        let HaSettings {
            cluster_label,
            replica_label,
            ..
        } = &self.settings;
        let (cluster, replica) = pair.map_or(("", ""), |pair| (pair.cluster, pair.replica));
        // UTF-8 never contains 0xff.
        let strings: Vec<&[u8]> = [cluster_label, replica_label, cluster, replica]
            .map(str::as_bytes)
            .to_vec();
        hasher.hash(&strings.join(&0xff)).salt()
    }
}

impl<'a> HaContext<'a> {
    /// Finds the pair of a request, and records the time of the request.
    ///
    /// `first` has the labels of the first series, `tenant` those of the sender's tenant.
    pub(crate) fn new(
        ha: Option<&'a Ha>,
        tenant: impl FnOnce() -> String,
        first: Option<impl Iterator<Item = (&'a [u8], &'a [u8])>>,
        hasher: &RouteHasher,
    ) -> Self {
        let Some(ha) = ha else {
            return Self {
                ha: None,
                own: None,
                salt: 0,
                tenant: String::new(),
            };
        };
        let mut context = Self {
            ha: Some(ha),
            own: None,
            salt: 0,
            tenant: tenant(),
        };
        let pair = first.and_then(|labels| context.pair(ha, labels));
        context.salt = ha.salt(pair, hasher);
        context.own = pair.map(|pair| (pair, context.decide(ha, pair)));
        context
    }

    /// Returns the pair of a series, or `None` if [`Ha::pair`] does or the name of the cluster is
    /// too long.
    fn pair<'b>(
        &self,
        ha: &Ha,
        labels: impl Iterator<Item = (&'b [u8], &'b [u8])>,
    ) -> Option<Pair<'b>> {
        ha.pair(labels)
            .filter(|pair| pair.cluster.len() + self.tenant.len() <= NAME_SIZE_MAX)
    }

    fn decide(&self, ha: &Ha, pair: Pair<'_>) -> Decision {
        ha.decide(Pair {
            cluster: &self.name_of(pair),
            ..pair
        })
    }

    fn count(&self, ha: &Ha, pair: Pair<'_>, n_samples: u64) {
        ha.elections.count_deduplicated(
            Pair {
                cluster: &self.name_of(pair),
                ..pair
            },
            n_samples,
        );
    }

    /// Returns the name of a cluster in the elections: pairs of different tenants are independent.
    fn name_of<'b>(&self, Pair { cluster, .. }: Pair<'b>) -> Cow<'b, str> {
        if self.tenant.is_empty() {
            Cow::Borrowed(cluster)
        } else {
            Cow::Owned(format!("{cluster}{}", self.tenant))
        }
    }

    /// Returns the replica that sent the request: `cluster/replica`.
    pub(crate) fn replica(&self) -> Option<Box<str>> {
        self.own
            .map(|(Pair { cluster, replica }, _)| format!("{cluster}/{replica}").into())
    }

    /// Returns the salt of the request's routes; 0 without HA pairs.
    pub(crate) fn salt(&self) -> u32 {
        self.salt
    }

    /// Returns `true` if cached routes apply. They do not apply to a standby, whose series are not
    /// stored.
    pub(crate) fn uses_route_cache(&self) -> bool {
        self.own
            .is_none_or(|(_, decision)| decision == Decision::Leader)
    }

    /// Returns `true` if a series belongs to the pair of the request, and the sender is a standby.
    pub(crate) fn is_own_standby<'b>(
        &self,
        labels: impl Iterator<Item = (&'b [u8], &'b [u8])>,
    ) -> bool {
        match (self.ha, self.own) {
            (Some(ha), Some((pair, Decision::Standby))) => self.pair(ha, labels) == Some(pair),
            _ => false,
        }
    }

    /// Decides about a series by its labels.
    pub(crate) fn deduplicate(&self, labels: Labels) -> Deduplication {
        let Some(ha) = self.ha else {
            return Deduplication::Store {
                labels,
                is_cacheable: true,
            };
        };
        let pair = self.pair(
            ha,
            labels
                .iter()
                .map(|(name, value)| (name.as_bytes(), value.as_bytes())),
        );
        let Some(pair) = pair else {
            // Only series of the pair are cached under its salt.
            return Deduplication::Store {
                labels,
                is_cacheable: self.own.is_none(),
            };
        };
        let (decision, is_cacheable) = match self.own {
            Some((own, decision)) if own == pair => (decision, true),
            _ => (self.decide(ha, pair), false),
        };
        match decision {
            Decision::Leader => {
                let labels = labels.filter(|name| name != ha.settings.replica_label);
                Deduplication::Store {
                    labels,
                    is_cacheable,
                }
            }
            Decision::Standby => Deduplication::Standby,
            Decision::TooManyClusters => Deduplication::RejectionCount(Reason::TooManyClusters),
        }
    }

    /// Counts deduplicated samples of a series for its cluster.
    pub(crate) fn count_deduplicated<'b>(
        &self,
        labels: impl Iterator<Item = (&'b [u8], &'b [u8])>,
        n_samples: u64,
    ) {
        if let Some((ha, pair)) = self.ha.and_then(|ha| Some((ha, self.pair(ha, labels)?))) {
            self.count(ha, pair, n_samples);
        }
    }

    /// Counts deduplicated samples of the pair of the request.
    pub(crate) fn count_own_deduplicated(&self, n_samples: u64) {
        if let (Some(ha), Some((pair, _)), 1..) = (self.ha, self.own, n_samples) {
            self.count(ha, pair, n_samples);
        }
    }
}

#[cfg(test)]
mod tests;
