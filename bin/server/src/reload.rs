//! The configuration comes into force: at the start, when the store is open, and at each reload.
//!
//! A reload reads and checks everything that the file names before it changes anything, so an
//! invalid file changes nothing. What needs no check afterwards is then applied to each part of the
//! server.

use std::sync::Arc;

use anyhow::bail;
use prometheus::proto::MetricFamily;
use varve_config::file::Config;
use varve_config::settings::ServerSettings;
use varve_system::excerpt::truncate;
use varve_system::metrics::{counts, families};
use varve_system::service_manager::{ServiceState, notify};

use crate::lifecycle::{Lifecycle, Phase};
use crate::live_config::{LiveConfig, PreparedConfig};
use crate::notifications::{Notifications, Topic};
use crate::notifier::Notifier;
use crate::pressure::Pressure;
use crate::requests::life::Requests;
use crate::rules::Rules;
use crate::store::Store;
use crate::traces::Tracer;

/// Puts configurations into force.
#[derive(Debug)]
pub struct Reloader {
    /// The checked flags.
    pub settings: Arc<ServerSettings>,
    /// The configuration in force.
    pub config: Arc<LiveConfig>,
    /// The phase and the store.
    pub lifecycle: Arc<Lifecycle>,
    /// Notifications on the web page.
    pub notifications: Arc<Notifications>,
    /// Memory pressure.
    pub pressure: Arc<Pressure>,
    /// What all requests share.
    pub requests: Arc<Requests>,
    /// Sends alerts to Alertmanagers.
    pub notifier: Arc<Notifier>,
    /// The rules.
    pub rules: Arc<Rules>,
    /// Traces of requests and rules.
    pub tracer: Arc<Tracer>,
}

impl Reloader {
    /// Applies the current configuration to the store, which a reload may have changed since the
    /// start, and begins to serve requests for data. Blocks.
    ///
    /// # Errors
    /// The errors of [`Store::reload`] and [`ServerSettings::retention_rules`].
    pub fn open_store(&self, store: Arc<Store>) -> anyhow::Result<()> {
        let _one_at_a_time = self.config.lock_reloads();
        let config = self.config.current();
        store.reload(&config)?;
        store
            .receiver
            .set_denies_new_series(self.pressure.refuses_new_series());
        store.set_retention(
            self.settings.retention(&config),
            self.settings.retention_rules(&config)?,
        );
        self.lifecycle.open(store);
        Ok(())
    }

    /// Reloads the configuration, after a reload that is running. Blocks.
    ///
    /// # Errors
    /// The errors of [`LiveConfig::reload`], if the query log cannot be opened, and if the server
    /// was started without a file. The previous configuration stays in force.
    pub fn reload(&self) -> anyhow::Result<()> {
        if !self.config.has_file() {
            tracing::warn!(
                "No configuration was reloaded: the server was started without --config.file"
            );
            bail!(
                "the server was started without --config.file; restart it with a file, which may be empty"
            );
        }
        let _one_at_a_time = self.config.lock_reloads();
        // Before the store is open, the end of a reload must not be reported as the end of the
        // start.
        let is_serving = self.lifecycle.phase() == Phase::Open;
        if is_serving {
            notify(ServiceState::Reloading);
        }

        let mut rules = None;
        let reloaded = self.config.reload(|config| {
            let prepared = self.rules.prepare(config)?;
            self.apply(config)?;
            rules = Some(prepared);
            Ok(())
        });
        // Waits for evaluations, so it comes after everything that can fail.
        if let Some(rules) = rules {
            self.rules.apply(rules);
        }

        let failed = reloaded.as_ref().err().map(failed_text);
        self.notifications.set(Topic::Reload, failed.as_deref());
        match &reloaded {
            Ok(changed) => tracing::info!(
                changed = changed.join(", "),
                "Completed loading of configuration file"
            ),
            Err(reason) => {
                tracing::error!(reason = format!("{reason:#}"), "Error reloading config")
            }
        }
        if is_serving {
            notify(ServiceState::Ready);
        }
        reloaded.map(drop)
    }

    /// Applies all settings that need no restart, or none of them.
    fn apply(&self, config: &Config) -> anyhow::Result<()> {
        let PreparedConfig {
            query_log,
            alerting,
        } = PreparedConfig::new(config)?;
        let retention_rules = self.settings.retention_rules(config)?;
        if let Some(store) = self.lifecycle.store() {
            store.reload(config)?;
            store.set_retention(self.settings.retention(config), retention_rules);
        }
        self.notifier.apply(alerting);
        self.tracer.apply(config.tracing.as_ref());
        self.requests.query_log.write_to(query_log);
        varve_system::log::set_level(config.runtime.log_level);
        Ok(())
    }

    /// Collects the metrics of reloads, and of limits that are in force.
    pub fn collect(&self) -> Vec<MetricFamily> {
        let status = self.config.status();
        let retention = self.settings.retention(&self.config.current());
        let mut all = families([
            (
                "prometheus_config_last_reload_successful",
                f64::from(u8::from(status.is_success)),
            ),
            (
                "prometheus_config_last_reload_success_timestamp_seconds",
                status.last_success.as_millisecond() as f64 / 1000.0,
            ),
        ]);
        all.extend(counts([
            (
                "prometheus_engine_queries_concurrent_max",
                self.settings.query.concurrency_max as u64,
            ),
            (
                "prometheus_tsdb_retention_limit_seconds",
                retention.time.as_secs(),
            ),
            (
                "prometheus_tsdb_retention_limit_bytes",
                retention.size as u64,
            ),
        ]));
        all.extend(families([(
            "prometheus_tsdb_retention_limit_percentage",
            retention.percentage,
        )]));
        all
    }
}

/// Maximum size of the reason of a failed reload in a notification.
const REASON_SIZE_MAX: usize = 1_000;

/// Returns the notification of a failed reload.
fn failed_text(reason: &anyhow::Error) -> String {
    let reason = format!("{reason:#}");
    format!(
        "Configuration reload has failed: {}. The configuration before it stays in force.",
        truncate(&reason, REASON_SIZE_MAX)
    )
}
