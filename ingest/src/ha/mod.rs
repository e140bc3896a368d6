//! HA pairs: two or more Prometheus servers that scrape the same targets. Only the samples of one
//! of them are stored.
//!
//! The servers of a pair have the same value of one external label, the cluster, and different
//! values of another, the replica. Pairs of different tenants are independent (`cluster_name`): of
//! tokens with other forced labels, and of other tenants of a router.
//! In each cluster one replica leads (`election`). Its series are stored without the replica label.
//! Series of the other replicas are deduplicated, and their senders get a successful response. The
//! leaders are persisted (`file`).
//!
//! Used by `write`. External labels are on all series of a sender. So the first
//! series of a request determines which server sent it (`Member`); the routes that are cached for
//! this server then apply. An unknown series is parsed, so that a series of another server, or of
//! none of a pair, in the same request gets its own decision. Rationale:
//! docs/decisions/ingest/0013-ha-pairs.md.
//!
//! Invariants
//! 1. Routes cached under the salt of a server belong to series of this server only.
//! 2. A new leader is on disk before its first sample is stored. A failed write is counted, and
//!    [`Elections::save`] repeats it.
//! 3. Downtime is not silence: after a start, each leader has the whole timeout to send a request.
//!    Until it does, a request with series of another replica of its pair fails and is sent again, so
//!    nothing that the others have queued is dropped.
//!
//! Threads: one lock, held for a look-up, and for writing a small file when the leader changes.
//! Crash: the old file or the new one.

mod cluster_name;
mod election;
mod file;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use varve_env::{Clock, Error, Fs, StateFileError, SystemClock};
use varve_model::{Labels, RejectionReason, TenantLabels};

use crate::batch::RouteHasher;
use crate::error::WriteError;
use crate::limits::CLUSTERS_MAX;
use crate::persisted_state::PersistedState;
use crate::sender_labels::SenderLabels;
use cluster_name::{ClusterName, NAME_SIZE_MAX};
use election::{Decision, Election, Moment};

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
    /// Series of senders whose names are too long.
    n_oversized: AtomicU64,
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
                n_oversized: AtomicU64::new(0),
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

    /// Returns how many series were stored without deduplication because the name of their cluster,
    /// with the labels of its tenant, or of their replica is too long. A series is counted when it is
    /// first seen.
    #[must_use]
    pub fn n_oversized(&self) -> u64 {
        self.n_oversized.load(Ordering::Relaxed)
    }

    /// Repeats a failed write. Waits for the disk.
    ///
    /// # Errors
    /// If the write fails again. The file is unchanged then.
    pub fn save(&self) -> Result<(), Error> {
        let State { election, file } = &mut *self.state.lock();
        file.save(|| file::encode(election))
    }

    fn decide(&self, cluster: &ClusterName, replica: &str, timeout: Duration) -> Decision {
        let State { election, file } = &mut *self.state.lock();
        let n_changes = election.n_persisted_changes();
        let decision = election.decide(cluster, replica, self.now(), timeout);
        if election.n_persisted_changes() != n_changes {
            file.write(&file::encode(election));
        }
        decision
    }

    fn count_deduplicated(&self, cluster: &ClusterName, n_samples: u64) {
        self.state
            .lock()
            .election
            .count_deduplicated(cluster, n_samples);
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

/// A server of an HA pair: the values of the cluster label and the replica label of its series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Member<'a> {
    cluster: &'a str,
    replica: &'a str,
}

/// The server of a pair that sent a request, and the decision about it.
#[derive(Debug)]
pub(crate) struct HaContext<'a> {
    ha: Option<Arc<Ha>>,
    own: Option<(Member<'a>, Decision)>,
    salt: u32,
    tenant: TenantLabels,
    /// A pair of a series of another server, if its leader is not known yet.
    undecided: OnceLock<Box<str>>,
}

/// The decision about a series.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Deduplication {
    /// Stored under these labels. The route may be cached if `is_cacheable`: the series is of the
    /// server that sent the request.
    Store { labels: Labels, is_cacheable: bool },
    /// Another replica leads.
    Standby,
    /// There are too many clusters.
    Reject(RejectionReason),
}

impl Ha {
    pub(crate) fn new(settings: HaSettings, elections: Arc<Elections>) -> Self {
        Self {
            settings,
            elections,
        }
    }

    /// Returns the server that sent a series, or `None` if a name is missing, empty, too long or not
    /// UTF-8.
    fn member<'a>(&self, labels: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Option<Member<'a>> {
        let mut cluster = None;
        let mut replica = None;
        for (name, value) in labels {
            if name == self.settings.cluster_label.as_bytes() {
                cluster = Some(value);
            } else if name == self.settings.replica_label.as_bytes() {
                replica = Some(value);
            }
        }
        Some(Member {
            cluster: valid_name(cluster?)?,
            replica: valid_name(replica?)?,
        })
    }

    /// Returns `true` if a series is of a server whose name, or that of its cluster, is too long.
    fn has_oversized_name(&self, labels: &Labels, tenant: &TenantLabels) -> bool {
        let cluster = labels.get(&self.settings.cluster_label).unwrap_or("");
        let replica = labels.get(&self.settings.replica_label).unwrap_or("");
        if cluster.is_empty() || replica.is_empty() {
            return false;
        }
        replica.len() > NAME_SIZE_MAX || ClusterName::new(cluster, tenant).is_none()
    }

    /// Decides about a server of a tenant. Returns `None` if the name of its cluster is too long.
    fn decide(&self, member: Member<'_>, tenant: &TenantLabels) -> Option<Decision> {
        let cluster = ClusterName::new(member.cluster, tenant)?;
        let timeout = self.settings.failover_timeout;
        Some(self.elections.decide(&cluster, member.replica, timeout))
    }

    fn count_deduplicated(&self, member: Member<'_>, tenant: &TenantLabels, n_samples: u64) {
        if let Some(cluster) = ClusterName::new(member.cluster, tenant) {
            self.elections.count_deduplicated(&cluster, n_samples);
        }
    }

    /// Returns the salt of the routes of a server under these settings. Two servers with the same
    /// salt could be confused only if one request had series of both.
    fn salt(&self, member: Option<Member<'_>>, hasher: &RouteHasher) -> u32 {
        let member = member.unwrap_or(Member {
            cluster: "",
            replica: "",
        });
        let strings = [
            self.settings.cluster_label.as_bytes(),
            self.settings.replica_label.as_bytes(),
            member.cluster.as_bytes(),
            member.replica.as_bytes(),
        ];
        // UTF-8 never contains 0xff.
        hasher.hash(&strings.join(&0xff)).salt()
    }
}

impl<'a> HaContext<'a> {
    /// Finds the server that sent a request by the labels of its first series, and records the time
    /// of the request. `None` for `ha` turns deduplication off.
    pub(crate) fn new(
        ha: Option<Arc<Ha>>,
        sender_labels: &SenderLabels<'_>,
        first_labels: Option<impl Iterator<Item = (&'a [u8], &'a [u8])>>,
        hasher: &RouteHasher,
    ) -> Self {
        let Some(ha) = ha else {
            return Self::none();
        };
        let tenant = sender_labels.tenant();
        let member = first_labels.and_then(|labels| ha.member(labels));
        let own = member.and_then(|member| Some((member, ha.decide(member, &tenant)?)));
        Self {
            salt: ha.salt(member, hasher),
            own,
            tenant,
            ha: Some(ha),
            undecided: OnceLock::new(),
        }
    }

    /// Returns the context of a request that is not deduplicated.
    pub(crate) fn none() -> Self {
        Self {
            ha: None,
            own: None,
            salt: 0,
            tenant: TenantLabels::default(),
            undecided: OnceLock::new(),
        }
    }

    /// Fails if it is unknown whether the leader of a pair still runs: that of the pair that sent the
    /// request, or that of a series that [`HaContext::deduplicate`] has seen.
    ///
    /// # Errors
    /// [`WriteError::NoLeaderYet`].
    pub(crate) fn ensure_decided(&self) -> Result<(), WriteError> {
        let own = match self.own {
            Some((member, Decision::Undecided)) => Some(member.cluster),
            _ => None,
        };
        match own.or(self.undecided.get().map(|cluster| &**cluster)) {
            Some(cluster) => Err(WriteError::NoLeaderYet {
                cluster: cluster.into(),
            }),
            None => Ok(()),
        }
    }

    /// Returns the replica that sent the request: `cluster/replica`.
    pub(crate) fn replica(&self) -> Option<Box<str>> {
        let (member, _) = self.own?;
        Some(format!("{}/{}", member.cluster, member.replica).into())
    }

    /// Returns the salt of the request's routes; 0 without HA pairs.
    pub(crate) fn salt(&self) -> u32 {
        self.salt
    }

    /// Returns `true` if cached routes apply. They do not apply to a standby, whose series are not
    /// stored.
    pub(crate) fn uses_route_cache(&self) -> bool {
        match self.own {
            None => true,
            Some((_, decision)) => decision == Decision::Leader,
        }
    }

    /// Returns `true` if a series is of the server that sent the request, and this is a standby.
    pub(crate) fn is_of_standby_sender<'b>(
        &self,
        labels: impl Iterator<Item = (&'b [u8], &'b [u8])>,
    ) -> bool {
        match (&self.ha, self.own) {
            (Some(ha), Some((member, Decision::Standby))) => ha.member(labels) == Some(member),
            _ => false,
        }
    }

    /// Decides about a series by its labels.
    pub(crate) fn deduplicate(&self, labels: Labels) -> Deduplication {
        let Some(ha) = &self.ha else {
            return Deduplication::Store {
                labels,
                is_cacheable: true,
            };
        };
        let pairs = labels
            .iter()
            .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let member = ha.member(pairs);
        let decided = match (member, self.own) {
            (Some(member), Some((own, decision))) if own == member => Some((decision, true)),
            (Some(member), _) => ha
                .decide(member, &self.tenant)
                .map(|decision| (decision, false)),
            (None, _) => None,
        };
        let Some((decision, is_cacheable)) = decided else {
            if ha.has_oversized_name(&labels, &self.tenant) {
                ha.elections.n_oversized.fetch_add(1, Ordering::Relaxed);
            }
            // Only series of the sending server are cached under its salt.
            return Deduplication::Store {
                labels,
                is_cacheable: self.own.is_none(),
            };
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
            Decision::Undecided => {
                let cluster = member.map_or("", |member| member.cluster);
                self.undecided.get_or_init(|| cluster.into());
                Deduplication::Standby
            }
            Decision::TooManyClusters => Deduplication::Reject(RejectionReason::TooManyClusters {
                clusters_max: CLUSTERS_MAX as u32,
            }),
        }
    }

    /// Counts deduplicated samples of a series for its cluster.
    pub(crate) fn count_deduplicated<'b>(
        &self,
        labels: impl Iterator<Item = (&'b [u8], &'b [u8])>,
        n_samples: u64,
    ) {
        if let Some(ha) = &self.ha
            && let Some(member) = ha.member(labels)
        {
            ha.count_deduplicated(member, &self.tenant, n_samples);
        }
    }

    /// Counts deduplicated samples of the server that sent the request.
    pub(crate) fn count_sender_deduplicated(&self, n_samples: u64) {
        if let (Some(ha), Some((member, _)), 1..) = (&self.ha, self.own, n_samples) {
            ha.count_deduplicated(member, &self.tenant, n_samples);
        }
    }
}

fn valid_name(bytes: &[u8]) -> Option<&str> {
    if bytes.is_empty() || bytes.len() > NAME_SIZE_MAX {
        return None;
    }
    std::str::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests;
