//! /api/v1/status/ha: which replicas of HA pairs are stored.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use varve_ingest::ha::{HaCluster, HaReplica};

use crate::http::openapi::described;
use crate::http::response::success;
use crate::server::app::App;

described! {
    /// The HA pairs that have been heard.
    pub(crate) struct HaStatus {
        clusters: Vec<Cluster>,
    }
}

described! {
    /// A cluster, and who leads it.
    pub(crate) struct Cluster {
        /// The value of the cluster label.
        cluster: String,
        /// The replica that is stored.
        leader: Replica,
        /// Since when it is, in milliseconds since the epoch.
        since_ms: i64,
        /// How often the leader has changed since the cluster was first heard.
        changes: u64,
        /// The others that were heard since the start, the last one first.
        standbys: Vec<Replica>,
        /// Samples that were left out because their replica does not lead, since the start.
        samples_left_out: u64,
    }
}

described! {
    /// A replica.
    pub(crate) struct Replica {
        /// The value of the replica label.
        replica: String,
        /// Milliseconds since something came of it; since the start, if nothing has.
        silent_ms: u64,
    }
}

/// GET /api/v1/status/ha.
pub(crate) async fn status(State(app): State<Arc<App>>) -> Response {
    let clusters = app.store().map(|store| store.elections.clusters()).unwrap_or_default();
    success(&HaStatus { clusters: clusters.into_iter().map(Cluster::of).collect() })
}

impl Cluster {
    fn of(told: HaCluster) -> Self {
        let HaCluster { cluster, leader, since_ms, n_changes, standbys, samples_left_out } = told;
        let standbys = standbys.into_iter().map(Replica::of).collect();
        Self { cluster, leader: Replica::of(leader), since_ms, changes: n_changes, standbys, samples_left_out }
    }
}

impl Replica {
    fn of(HaReplica { replica, silent }: HaReplica) -> Self {
        Self { replica, silent_ms: u64::try_from(silent.as_millis()).unwrap_or(u64::MAX) }
    }
}
