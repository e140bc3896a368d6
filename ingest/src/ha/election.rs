//! Election of the leader of each cluster. It is pure: the caller passes the time.
//!
//! The first replica that sends a request leads. When it has been silent for the timeout, the next
//! replica that sends a request takes over. The former leader does not become the leader again when
//! it returns.
//!
//! After a start, nobody knows whether the leader still runs. Until it sends a request, or has been
//! silent for the timeout, requests of the others are undecided: what they were to send during the
//! downtime would be lost if they were standbys, and the leader had died meanwhile.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use varve_model::may_add;

use super::cluster_name::ClusterName;
use crate::limits::CLUSTERS_MAX;

/// Maximum number of remembered standbys of a cluster. The most recent ones are remembered.
const STANDBYS_MAX: usize = 8;
/// Minimum silence of a cluster before a new cluster may evict it.
const EVICTED_AFTER: Duration = Duration::from_secs(3_600);

/// A point in time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    /// Monotonic time since the process started to listen.
    pub(super) since_start: Duration,
    /// Wall clock time in milliseconds since the epoch, for display.
    pub(super) wall_ms: i64,
}

/// The role of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    Leader,
    Standby,
    /// The leader has not sent a request since the start. The request must be sent again.
    Undecided,
    TooManyClusters,
}

/// A cluster and its leader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HaCluster {
    /// The value of the cluster label, and the labels of the tenant if there is one:
    /// `eu{team="a"}`.
    pub cluster: String,
    /// The leader, with its silence. The silence counts from the start of the process if the leader
    /// has not sent a request since.
    pub leader: HaReplica,
    /// Time when it became the leader, in milliseconds since the epoch.
    pub since_ms: i64,
    /// Number of changes of the leader.
    pub n_changes: u64,
    /// The other replicas that have sent requests since the start, and a former leader from before
    /// the start, most recent first.
    pub standbys: Vec<HaReplica>,
    /// Number of samples of standbys since the start.
    pub samples_deduplicated: u64,
}

/// A replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HaReplica {
    /// The value of the replica label.
    pub replica: String,
    /// Time since its last request.
    pub silent: Duration,
}

/// The clusters.
#[derive(Debug, Default)]
pub(super) struct Election {
    clusters: BTreeMap<ClusterName, Cluster>,
    /// Number of changes of what is persisted: new clusters and changes of a leader.
    n_persisted_changes: u64,
}

/// The state of a cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) leader: Box<str>,
    pub(super) since_ms: i64,
    pub(super) n_changes: u64,
    heard: Duration,
    /// The leader has sent a request since the start.
    has_sent: bool,
    standbys: Vec<(Box<str>, Duration)>,
    samples_deduplicated: u64,
}

impl Election {
    /// Decides about a request of a replica, and records the time of the request.
    pub(super) fn decide(
        &mut self,
        cluster: &ClusterName,
        replica: &str,
        now: Moment,
        timeout: Duration,
    ) -> Decision {
        let Some(known) = self.clusters.get_mut(cluster) else {
            return self.add(cluster, replica, now);
        };
        if *known.leader == *replica {
            known.heard = now.since_start;
            known.has_sent = true;
            return Decision::Leader;
        }
        if now.since_start.saturating_sub(known.heard) < timeout {
            known.note_standby(replica, now.since_start);
            return if known.has_sent {
                Decision::Standby
            } else {
                Decision::Undecided
            };
        }
        known.elect(replica, now);
        self.n_persisted_changes += 1;
        Decision::Leader
    }

    /// Adds a cluster led by `replica`.
    fn add(&mut self, cluster: &ClusterName, replica: &str, now: Moment) -> Decision {
        let tenant = cluster.tenant_key();
        let names = self.clusters.keys();
        let n_own = names.filter(|known| known.tenant_key() == tenant).count();
        let n_free = CLUSTERS_MAX.saturating_sub(self.clusters.len());
        if !may_add(!tenant.is_empty(), n_own, n_free) && !self.evict(tenant, n_free, now) {
            return Decision::TooManyClusters;
        }
        let added = Cluster {
            heard: now.since_start,
            has_sent: true,
            ..Cluster::restored(replica.into(), now.wall_ms, 0)
        };
        self.clusters.insert(cluster.clone(), added);
        self.n_persisted_changes += 1;
        Decision::Leader
    }

    /// Evicts the cluster with the longest silence if it has been silent for [`EVICTED_AFTER`]: of
    /// the tenant if only its share is full, otherwise of all.
    fn evict(&mut self, tenant: &str, n_free: usize, now: Moment) -> bool {
        let oldest = self
            .clusters
            .iter()
            .filter(|(name, _)| n_free == 0 || name.tenant_key() == tenant)
            .min_by_key(|(_, cluster)| cluster.heard);
        let Some((name, cluster)) = oldest else {
            return false;
        };
        if now.since_start.saturating_sub(cluster.heard) < EVICTED_AFTER {
            return false;
        }
        let name = name.clone();
        self.clusters.remove(&name).is_some()
    }

    /// Counts samples of standbys.
    pub(super) fn count_deduplicated(&mut self, cluster: &ClusterName, n_samples: u64) {
        if let Some(cluster) = self.clusters.get_mut(cluster) {
            cluster.samples_deduplicated += n_samples;
        }
    }

    /// Returns the number of changes of the persisted part.
    pub(super) fn n_persisted_changes(&self) -> u64 {
        self.n_persisted_changes
    }

    /// Iterates over the clusters by name.
    pub(super) fn iter(
        &self,
    ) -> impl DoubleEndedIterator<Item = (&str, &Cluster)> + ExactSizeIterator {
        self.clusters
            .iter()
            .map(|(name, cluster)| (name.as_str(), cluster))
    }

    /// Adds a persisted cluster.
    pub(super) fn restore(&mut self, cluster: ClusterName, restored: Cluster) {
        self.clusters.insert(cluster, restored);
    }

    /// Returns all clusters, for display.
    pub(super) fn clusters(&self, now: Moment) -> Vec<HaCluster> {
        self.iter()
            .map(|(name, cluster)| cluster.status(name, now))
            .collect()
    }
}

impl HaReplica {
    fn new(name: &str, heard: Duration, now: Moment) -> Self {
        Self {
            replica: name.to_owned(),
            silent: now.since_start.saturating_sub(heard),
        }
    }
}

impl Cluster {
    fn status(&self, name: &str, now: Moment) -> HaCluster {
        HaCluster {
            cluster: name.to_owned(),
            leader: HaReplica::new(&self.leader, self.heard, now),
            since_ms: self.since_ms,
            n_changes: self.n_changes,
            standbys: self
                .standbys
                .iter()
                .map(|(name, heard)| HaReplica::new(name, *heard, now))
                .collect(),
            samples_deduplicated: self.samples_deduplicated,
        }
    }

    /// Creates a cluster whose leader counts as heard at the start of the process.
    pub(super) fn restored(leader: Box<str>, since_ms: i64, n_changes: u64) -> Self {
        let heard = Duration::ZERO;
        Self {
            leader,
            since_ms,
            n_changes,
            heard,
            has_sent: false,
            standbys: Vec::new(),
            samples_deduplicated: 0,
        }
    }

    fn elect(&mut self, replica: &str, now: Moment) {
        let old_leader = std::mem::replace(&mut self.leader, replica.into());
        let heard = self.heard;
        self.standbys.retain(|(name, _)| **name != *replica);
        self.standbys.push((old_leader, heard));
        self.standbys.sort_by_key(|(_, heard)| Reverse(*heard));
        self.standbys.truncate(STANDBYS_MAX);
        (self.heard, self.since_ms) = (now.since_start, now.wall_ms);
        self.has_sent = true;
        // The number may come from a file and be the maximum.
        self.n_changes = self.n_changes.saturating_add(1);
    }

    fn note_standby(&mut self, replica: &str, heard: Duration) {
        self.standbys.retain(|(name, _)| **name != *replica);
        self.standbys.insert(0, (replica.into(), heard));
        self.standbys.truncate(STANDBYS_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::Decision::{Leader, Standby, TooManyClusters, Undecided};
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);

    fn named(name: &str) -> ClusterName {
        ClusterName::persisted(name)
    }

    fn at(seconds: u64) -> Moment {
        Moment {
            since_start: Duration::from_secs(seconds),
            wall_ms: seconds as i64 * 1_000,
        }
    }

    /// Sends requests of cluster `c`: second, replica, expected decision.
    fn check(election: &mut Election, requests: &[(u64, &str, Decision)]) {
        for &(seconds, replica, expect) in requests {
            assert_eq!(
                election.decide(&named("c"), replica, at(seconds), TIMEOUT),
                expect,
                "{replica} at {seconds}"
            );
        }
    }

    #[test]
    fn the_first_leads_until_it_is_silent_for_the_timeout() {
        let mut election = Election::default();
        check(
            &mut election,
            &[
                (0, "a", Leader),
                (1, "b", Standby),
                (20, "a", Leader),
                (49, "b", Standby),
                (50, "b", Leader),
                (51, "a", Standby),
                (79, "a", Standby),
                (80, "c", Leader),
                (81, "b", Standby),
            ],
        );
        let [cluster] = &election.clusters(at(85))[..] else {
            panic!("one cluster")
        };
        assert_eq!(
            (
                cluster.leader.replica.as_str(),
                cluster.leader.silent.as_secs()
            ),
            ("c", 5)
        );
        assert_eq!((cluster.since_ms, cluster.n_changes), (80_000, 2));
        let standbys: Vec<_> = cluster
            .standbys
            .iter()
            .map(|status| (status.replica.as_str(), status.silent.as_secs()))
            .collect();
        assert_eq!(standbys, [("b", 4), ("a", 6)]);
    }

    #[test]
    fn a_former_leader_is_in_the_order_of_its_last_request() {
        let mut election = Election::default();
        check(
            &mut election,
            &[
                (0, "a", Leader),
                (10, "a", Leader),
                (20, "x", Standby),
                (60, "b", Leader),
            ],
        );
        let [cluster] = &election.clusters(at(61))[..] else {
            panic!("one cluster")
        };
        let standbys: Vec<_> = cluster
            .standbys
            .iter()
            .map(|status| status.replica.as_str())
            .collect();
        assert_eq!(standbys, ["x", "a"]);
    }

    #[test]
    fn clusters_are_independent_and_samples_are_counted() {
        let mut election = Election::default();
        assert_eq!(election.decide(&named("c"), "a", at(0), TIMEOUT), Leader);
        assert_eq!(election.decide(&named("d"), "b", at(0), TIMEOUT), Leader);
        assert_eq!(election.decide(&named("d"), "a", at(0), TIMEOUT), Standby);
        election.count_deduplicated(&named("d"), 5);
        election.count_deduplicated(&named("unknown"), 5);
        let counts: Vec<_> = election
            .clusters(at(0))
            .iter()
            .map(|status| status.samples_deduplicated)
            .collect();
        assert_eq!((counts, election.n_persisted_changes()), (vec![0, 5], 2));
    }

    #[test]
    fn a_persisted_leader_has_the_whole_timeout_to_be_heard() {
        let mut election = Election::default();
        election.restore(named("c"), Cluster::restored("a".into(), 7, 3));
        check(
            &mut election,
            &[(29, "b", Undecided), (30, "b", Leader), (31, "a", Standby)],
        );
        assert_eq!(election.clusters(at(31))[0].n_changes, 4);
    }

    #[test]
    fn a_persisted_leader_that_returns_has_standbys() {
        let mut election = Election::default();
        election.restore(named("c"), Cluster::restored("a".into(), 7, 3));
        check(
            &mut election,
            &[
                (1, "b", Undecided),
                (2, "a", Leader),
                (3, "b", Standby),
                (31, "b", Standby),
                (32, "b", Leader),
            ],
        );
    }

    #[test]
    fn clusters_and_standbys_are_bounded() {
        let mut election = Election::default();
        for i in 0..CLUSTERS_MAX {
            assert_eq!(
                election.decide(&named(&format!("c{i}")), "a", at(i as u64), TIMEOUT),
                Leader
            );
        }
        assert_eq!(
            election.decide(&named("new"), "a", at(3_599), TIMEOUT),
            TooManyClusters
        );
        assert_eq!(
            election.decide(&named("c1"), "a", at(3_599), TIMEOUT),
            Leader
        );
        // Silent for an hour.
        assert_eq!(
            election.decide(&named("new"), "a", at(3_600), TIMEOUT),
            Leader
        );
        assert_eq!(
            (
                election.iter().len(),
                election.iter().any(|(name, _)| name == "c0")
            ),
            (CLUSTERS_MAX, false)
        );
        for i in 0..100 {
            assert_eq!(
                election.decide(&named("new"), &format!("r{i}"), at(3_601), TIMEOUT),
                Standby
            );
        }
        let clusters = election.clusters(at(3_601));
        let new = clusters
            .iter()
            .find(|status| status.cluster == "new")
            .unwrap();
        assert_eq!(
            (new.standbys.len(), new.standbys[0].replica.as_str()),
            (STANDBYS_MAX, "r99")
        );
    }

    #[test]
    fn no_tenant_has_all_clusters() {
        let mut election = Election::default();
        let mut add = |name: &str, seconds| {
            election.decide(&named(name), "a", at(seconds), TIMEOUT) == Leader
        };
        let mut fill = |team: &str| {
            (0..CLUSTERS_MAX)
                .take_while(|i| add(&format!("c{i}{{team=\"{team}\"}}"), 0))
                .count()
        };
        assert_eq!([fill("a"), fill("b")], [CLUSTERS_MAX / 2, CLUSTERS_MAX / 4]);
        assert!(add("without tenant", 0));
        // A full share takes the place of a silent cluster of its own.
        assert!(!add("new{team=\"a\"}", 3_599));
        assert!(add("new{team=\"a\"}", 3_600));
        let n_of = |team| {
            let suffix = format!("{{team=\"{team}\"}}");
            let names = election.iter();
            names.filter(|(name, _)| name.ends_with(&suffix)).count()
        };
        assert_eq!([n_of("a"), n_of("b")], [CLUSTERS_MAX / 2, CLUSTERS_MAX / 4]);
    }
}
