//! /api/v1/status/ha: the leaders of HA pairs.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use varve_ingest::ha::{HaCluster, HaReplica};

use crate::response::success;
use crate::serving::app::App;
use varve_wire::schema;

schema! {
    /// The known HA pairs.
    pub(crate) struct HaStatus {
        clusters: Vec<Cluster>,
    }
}

schema! {
    /// A cluster and its leader.
    pub(crate) struct Cluster {
        /// The value of the cluster label, and the labels of the tenant if there is one.
        cluster: String,
        /// The replica whose samples are stored.
        leader: Replica,
        /// Since when it leads, in milliseconds since the epoch.
        since_ms: i64,
        /// Leader changes since the first samples of the cluster.
        changes: u64,
        /// Other replicas since the start, the most recent first.
        standbys: Vec<Replica>,
        /// Samples of standbys that were deduplicated since the start.
        samples_deduplicated: u64,
    }
}

schema! {
    /// A replica.
    pub(crate) struct Replica {
        /// The value of the replica label.
        replica: String,
        /// Milliseconds since its last request, or since the start.
        silent_ms: u64,
    }
}

/// GET /api/v1/status/ha.
pub(crate) async fn status(State(app): State<Arc<App>>) -> Response {
    let clusters = app
        .store()
        .map(|store| store.elections.clusters())
        .unwrap_or_default();
    success(&HaStatus {
        clusters: clusters.into_iter().map(Cluster::of).collect(),
    })
}

impl Cluster {
    fn of(status: HaCluster) -> Self {
        let HaCluster {
            cluster,
            leader,
            since_ms,
            n_changes,
            standbys,
            samples_deduplicated,
        } = status;
        let standbys = standbys.into_iter().map(Replica::of).collect();
        Self {
            cluster,
            leader: Replica::of(leader),
            since_ms,
            changes: n_changes,
            standbys,
            samples_deduplicated,
        }
    }
}

impl Replica {
    fn of(HaReplica { replica, silent }: HaReplica) -> Self {
        Self {
            replica,
            silent_ms: u64::try_from(silent.as_millis()).unwrap_or(u64::MAX),
        }
    }
}
