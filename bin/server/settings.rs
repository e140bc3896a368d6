//! The settings that a server runs with. docs/config.md describes the flags that these values come from.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use axum::http::StatusCode;
use varve_promql::Features;
use varve_tsdb::retention::RetentionRule;

use super::external_url::{ExternalUrl, RoutePrefix};
use super::rules::RulesOptions;
use crate::cli::ServeArgs;
use crate::config::{Config, RetentionConfig};
use crate::notifier::NotifierOptions;

/// Checked flags of a server.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The flags, for values that need no conversion.
    pub(crate) args: ServeArgs,
    pub(crate) external_url: ExternalUrl,
    pub(crate) route_prefix: RoutePrefix,
    pub(crate) notifier: NotifierOptions,
    pub(crate) response: ResponseLimits,
    pub(crate) metadata_concurrency: usize,
    /// Series that a metadata request may read. `None`: no limit.
    pub(crate) metadata_series_max: Option<u64>,
    pub(crate) query_max_memory: usize,
    pub(crate) query_max_memory_total: usize,
    pub(crate) write_bytes_in_flight_max: usize,
    /// Status of the response to a write that timed out in a queue.
    pub(crate) queue_timeout_status: StatusCode,
    pub(crate) features: Features,
    pub(crate) rules: RulesOptions,
    pub(crate) auto_reload: bool,
    /// Whether the experimental search endpoints are enabled.
    pub(crate) search: bool,
    pub(crate) lookback_delta_ms: i64,
    pub(crate) remote_read_concurrency: usize,
    /// Every flag with its value, for /api/v1/status/flags.
    pub(crate) flags: BTreeMap<String, String>,
}

impl Settings {
    /// Returns the retention of a configuration, with the flags as defaults: time and bytes. 0 is no limit. With
    /// `--storage.tsdb.retention.local-after-upload` there is none: uploads remove blocks.
    pub(crate) fn retention(&self, config: &Config) -> (Duration, usize) {
        let RetentionConfig { time, size, .. } = config.storage.tsdb.retention;
        match self.args.objstore.local_retention {
            Some(_) => (Duration::ZERO, 0),
            None => (time.unwrap_or(self.args.retention_time), size.unwrap_or(self.args.retention_size)),
        }
    }

    /// Returns the retention rules of a configuration. With `--storage.tsdb.retention.local-after-upload` there are
    /// none.
    ///
    /// # Errors
    /// If the time of a rule exceeds the time of [`Settings::retention`].
    pub(crate) fn retention_rules(&self, config: &Config) -> Result<Vec<RetentionRule>> {
        let rules = config.storage.tsdb.retention.rules(self.retention(config).0)?;
        if rules.is_empty() || self.args.objstore.local_retention.is_none() {
            return Ok(rules);
        }
        tracing::warn!(
            "storage.tsdb.retention.rules have no effect together with --storage.tsdb.retention.local-after-upload"
        );
        Ok(Vec::new())
    }
}

/// Limits of a response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResponseLimits {
    /// Bytes that are buffered before the first one is sent.
    pub(crate) buffer_size: usize,
    pub(crate) size_max: usize,
    /// Maximum time for which a client may read nothing.
    pub(crate) stall_timeout: Duration,
}

impl ResponseLimits {
    /// Buffers a whole response, so that its writer never waits for the client.
    pub(crate) fn without_streaming(self) -> Self {
        Self { buffer_size: self.size_max, ..self }
    }
}
