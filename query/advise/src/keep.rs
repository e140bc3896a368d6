//! The keep list: metrics that advice keeps although nothing uses them.
//!
//! Some metrics are silent until something breaks, and their alert is often written after the first
//! failure: uncorrectable memory errors of a GPU, rejects of an API server. Dropping them saves few
//! series and costs the diagnosis. The presets are on by default.

use varve_model::labels::METRIC_NAME;
use varve_model::{MatchOp, Matcher};
use varve_regexp::RegexpError;

/// A named part of the keep list.
#[derive(Debug)]
pub struct Preset {
    /// Its name in reports.
    pub name: &'static str,
    /// Anchored regular expressions of the metric names.
    patterns: &'static [&'static str],
}

/// The presets.
pub const PRESETS: [Preset; 2] = [
    // The fields of NVIDIA's dcgm-exporter.
    Preset {
        name: "gpu-health",
        patterns: &[
            "DCGM_FI_DEV_ECC_(SBE|DBE)_.+",
            "DCGM_FI_DEV_XID_ERRORS|DCGM_EXP_XID_ERRORS_COUNT",
            "DCGM_FI_DEV_(UN)?CORRECTABLE_REMAPPED_ROWS|DCGM_FI_DEV_ROW_REMAP_(FAILURE|PENDING)",
            "DCGM_FI_DEV_RETIRED_(SBE|DBE|PENDING)",
            "DCGM_FI_DEV_NVLINK_.*(ERROR|DISCARD|RECOVERY).*",
            "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
            "DCGM_FI_DEV_[A-Z_]+_VIOLATION",
            "DCGM_FI_DEV_CLOCKS?_(THROTTLE|EVENT)_REASONS|DCGM_EXP_CLOCK_EVENTS_COUNT",
            "DCGM_EXP_GPU_HEALTH_STATUS",
        ],
    },
    // Kubernetes' API server and etcd.
    Preset {
        name: "apiserver-health",
        patterns: &[
            "apiserver_flowcontrol_rejected_requests_total",
            "apiserver_(dropped_requests|request_terminations|request_aborts)_total",
            "apiserver_admission_webhook_(rejection_count|fail_open_count)",
            "apiserver_(audit_error|audit_requests_rejected|tls_handshake_errors)_total",
            "apiserver_storage_data_key_generation_failures_total",
            "etcd_request_errors_total",
            "etcd_server_(has_leader|health_failures|quota_backend_bytes)",
            "etcd_server_(leader_changes_seen|proposals_failed|heartbeat_send_failures)_total",
            "etcd_server_(slow_apply|slow_read_indexes|read_indexes_failed)_total",
            "etcd_mvcc_db_total_size_in_(use_in_)?bytes",
        ],
    },
];

/// Which unused metrics to keep.
#[derive(Debug, Clone, Default)]
pub struct Keep {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    /// The preset, or the regular expression of the user.
    name: String,
    metrics: Matcher,
}

impl Keep {
    /// Returns the list of all presets.
    ///
    /// # Panics
    /// Never: a test parses all patterns.
    #[must_use]
    pub fn presets() -> Self {
        let mut keep = Self::default();
        for preset in &PRESETS {
            for pattern in preset.patterns {
                keep.push(preset.name, pattern)
                    .expect("the patterns of presets are regular expressions");
            }
        }
        keep
    }

    /// Adds an anchored regular expression of metric names.
    ///
    /// # Errors
    /// If it is not a regular expression.
    pub fn add(&mut self, pattern: &str) -> Result<(), RegexpError> {
        self.push(pattern, pattern)
    }

    fn push(&mut self, name: &str, pattern: &str) -> Result<(), RegexpError> {
        self.entries.push(Entry {
            name: name.to_owned(),
            metrics: Matcher::new(MatchOp::Regexp, METRIC_NAME, pattern)?,
        });
        Ok(())
    }

    /// Returns the matchers of all entries, which a request compiles within its limits.
    pub fn matchers(&self) -> impl Iterator<Item = &Matcher> {
        self.entries.iter().map(|entry| &entry.metrics)
    }

    /// Returns the preset, or the regular expression, that keeps a metric.
    #[must_use]
    pub fn kept_by(&self, metric: &str) -> Option<&str> {
        self.entries
            .iter()
            .find(|entry| entry.metrics.matches(metric))
            .map(|entry| entry.name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_keep_metrics_of_failures() {
        let mut keep = Keep::presets();
        let gpu = Some("gpu-health");
        let apiserver = Some("apiserver-health");
        for (metric, expect) in [
            ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", gpu),
            ("DCGM_FI_DEV_XID_ERRORS", gpu),
            ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", gpu),
            ("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", gpu),
            ("DCGM_FI_DEV_POWER_VIOLATION", gpu),
            ("DCGM_FI_DEV_THERMAL_VIOLATION", gpu),
            ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", gpu),
            ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", None),
            ("DCGM_FI_DEV_GPU_UTIL", None),
            ("apiserver_flowcontrol_rejected_requests_total", apiserver),
            ("etcd_mvcc_db_total_size_in_bytes", apiserver),
            ("apiserver_request_duration_seconds_bucket", None),
            ("my_alarm_total", None),
        ] {
            assert_eq!(keep.kept_by(metric), expect, "{metric}");
        }
        keep.add("my_.+").unwrap();
        assert_eq!(keep.kept_by("my_alarm_total"), Some("my_.+"));
        assert_eq!(keep.kept_by("not_my_alarm_total"), None);
        assert!(keep.add("(").is_err());
    }
}
