//! Section `ingest.ha`: pairs of Prometheus servers that scrape the same targets.

use std::time::Duration;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use varve_ingest::ha::HaSettings;
use varve_model::labels::METRIC_NAME;

use crate::file::duration::{duration, print};

/// The labels of HA pairs. The defaults are the external labels of the Prometheus operator.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct HaConfig {
    /// The label whose value the replicas of a pair share. Default `prometheus`.
    cluster_label: String,
    /// The label that tells the replicas apart, removed before storing. Default
    /// `prometheus_replica`.
    replica_label: String,
    /// How long the leader may be silent before another replica takes over. Default 30s; from 1s to
    /// 1h.
    #[serde(deserialize_with = "duration", serialize_with = "print")]
    failover_timeout: Duration,
}

impl Default for HaConfig {
    fn default() -> Self {
        Self {
            cluster_label: "prometheus".to_owned(),
            replica_label: "prometheus_replica".to_owned(),
            failover_timeout: Duration::from_secs(30),
        }
    }
}

const TIMEOUT_MIN: Duration = Duration::from_secs(1);
const TIMEOUT_MAX: Duration = Duration::from_secs(3_600);

impl HaConfig {
    pub(super) fn settings(&self) -> Result<HaSettings> {
        let Self {
            cluster_label,
            replica_label,
            failover_timeout,
        } = self.clone();
        for (key, label) in [
            ("cluster_label", &cluster_label),
            ("replica_label", &replica_label),
        ] {
            if label.is_empty() || label == METRIC_NAME {
                bail!("ingest.ha.{key}: is empty or {METRIC_NAME}");
            }
        }
        if cluster_label == replica_label {
            bail!("ingest.ha: cluster_label and replica_label are the same");
        }
        if !(TIMEOUT_MIN..=TIMEOUT_MAX).contains(&failover_timeout) {
            bail!("ingest.ha.failover_timeout: must be from 1s to 1h");
        }
        Ok(HaSettings {
            cluster_label,
            replica_label,
            failover_timeout,
        })
    }
}
