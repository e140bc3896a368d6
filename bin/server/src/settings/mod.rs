//! The settings that a server runs with. docs/config.md describes the flags that these values come
//! from.

pub mod external_url;
pub mod flags;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use axum::http::StatusCode;
use varve_config::file::{Config, RetentionConfig};
use varve_promql::Features;
use varve_tsdb::retention::RetentionRule;

use super::rules::RulesOptions;
use crate::notifier::NotifierOptions;
use external_url::{ExternalUrl, RoutePrefix};
use flags::ServeArgs;

/// Checked flags of a server.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The flags, for values that need no conversion.
    pub args: ServeArgs,
    /// The URL under which clients reach the server.
    pub external_url: ExternalUrl,
    /// The path under which endpoints are served.
    pub route_prefix: RoutePrefix,
    /// Options of notifications to Alertmanagers.
    pub notifier: NotifierOptions,
    /// Limits of a response.
    pub response: ResponseLimits,
    /// Maximum number of metadata requests that run at a time.
    pub metadata_concurrency: usize,
    /// Series that a metadata request may read. `None`: no limit.
    pub metadata_series_max: Option<u64>,
    /// Maximum memory of a query in bytes.
    pub query_max_memory: usize,
    /// Maximum memory of all queries in bytes.
    pub query_max_memory_total: usize,
    /// Maximum memory of all writes in bytes.
    pub write_bytes_in_flight_max: usize,
    /// Status of the response to a write that timed out in a queue.
    pub queue_timeout_status: StatusCode,
    /// The optional parts of PromQL.
    pub features: Features,
    /// Options of rules.
    pub rules: RulesOptions,
    /// Whether changed files are reloaded.
    pub auto_reload: bool,
    /// Whether the experimental search endpoints are enabled.
    pub search: bool,
    /// How far back an instant selector looks.
    pub lookback_delta_ms: i64,
    /// Maximum number of remote reads that run at a time.
    pub remote_read_concurrency: usize,
    /// Every flag with its value, for /api/v1/status/flags.
    pub flags: BTreeMap<String, String>,
}

/// Limits of the retention of all series. 0 is no limit.
#[derive(Debug, Clone, Copy, Default)]
pub struct Retention {
    /// Maximum age of samples.
    pub time: Duration,
    /// Maximum bytes of blocks.
    pub size: usize,
}

impl Settings {
    /// Returns the retention of a configuration, with the flags as defaults. With
    /// `--storage.tsdb.retention.local-after-upload` there is none: uploads remove blocks.
    pub fn retention(&self, config: &Config) -> Retention {
        let RetentionConfig { time, size, .. } = config.storage.tsdb.retention;
        match self.args.objstore.local_retention {
            Some(_) => Retention::default(),
            None => Retention {
                time: time.unwrap_or(self.args.retention_time),
                size: size.unwrap_or(self.args.retention_size),
            },
        }
    }

    /// Returns the retention rules of a configuration. With
    /// `--storage.tsdb.retention.local-after-upload` there are none.
    ///
    /// # Errors
    /// If the time of a rule exceeds the time of [`Settings::retention`].
    pub(crate) fn retention_rules(&self, config: &Config) -> Result<Vec<RetentionRule>> {
        let rules = config
            .storage
            .tsdb
            .retention
            .rules(self.retention(config).time)?;
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
pub struct ResponseLimits {
    /// Bytes that are buffered before the first one is sent.
    pub buffer_size: usize,
    /// Maximum size of a response in bytes.
    pub size_max: usize,
    /// Maximum time for which a client may read nothing.
    pub stall_timeout: Duration,
}

impl ResponseLimits {
    /// Buffers a whole response, so that its writer never waits for the client.
    pub fn without_streaming(self) -> Self {
        Self {
            buffer_size: self.size_max,
            ..self
        }
    }
}
