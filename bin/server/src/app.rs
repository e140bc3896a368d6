//! The state of a running server.
//!
//! Invariant: the store is present from [`App::set_store`] to [`App::take_store`]. Before and
//! after, requests for data get 503.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use anyhow::bail;
use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use prometheus::proto::MetricFamily;
use varve_config::file::Config;
use varve_config::settings::Settings;
use varve_context::Interrupt;
use varve_context::scheduler::Scheduler;
use varve_system::machine;
use varve_system::metrics::{counts, families};
use varve_system::service_manager::{self, notify};

use super::live_config::{LiveConfig, Prepared};
use super::metrics::Metrics;
use super::notifications::{CONFIG_FAILED, Notifications, RETENTION_HELD};
use super::pressure::Pressure;
use super::rejections::RejectionLog;
use super::requests::life::Requests;
use super::rules::Rules;
use super::senders::Senders;
use super::shutdown::Quit;
use super::store::Store;
use crate::notifier::Notifier;
use crate::traces::Tracer;

/// The state that all requests share.
#[derive(Debug)]
pub struct App {
    /// The checked flags.
    pub settings: Settings,
    /// The metrics that requests update.
    pub metrics: Metrics,
    /// The configuration in force.
    pub config: LiveConfig,
    /// Notifications on the web page.
    pub notifications: Notifications,
    /// Requests the shutdown of the process.
    pub quit: Quit,
    /// Start of the process.
    pub started: Timestamp,
    /// What all requests share.
    pub requests: Requests,
    /// Memory pressure.
    pub pressure: Pressure,
    /// What was rejected of writes.
    pub rejections: RejectionLog,
    /// Statistics of the senders of writes.
    pub senders: Senders,
    /// Sends alerts to Alertmanagers.
    pub notifier: Arc<Notifier>,
    /// The rules.
    pub rules: Rules,
    /// Traces of requests and rules.
    pub tracer: Tracer,
    phase: AtomicU8,
    /// Held during a reload, so that configuration and rules are of the same one.
    reloading: Mutex<()>,
    store: RwLock<Option<Arc<Store>>>,
    /// Shares the cores between requests that read.
    pub scheduler: Scheduler,
}

const STARTING: u8 = 0;
const READY: u8 = 1;
const STOPPING: u8 = 2;

impl App {
    /// Creates the state of a server that has no store yet.
    ///
    /// # Errors
    /// If two metrics have the same name.
    pub fn new(
        settings: Settings,
        config: LiveConfig,
        pressure: Pressure,
    ) -> prometheus::Result<Self> {
        let metrics = Metrics::new()?;
        Ok(Self {
            started: Timestamp::now(),
            config,
            notifications: Notifications::new(settings.web.notifications_subscribers_max),
            quit: Quit::default(),
            phase: AtomicU8::new(STARTING),
            reloading: Mutex::default(),
            store: RwLock::new(None),
            requests: Requests::new(&settings, &metrics),
            pressure,
            rejections: RejectionLog::default(),
            senders: Senders::default(),
            notifier: Arc::new(Notifier::new(
                settings.notifier,
                metrics.notifications.clone(),
            )),
            rules: Rules::new(settings.rules.clone()),
            tracer: Tracer::new(metrics.traces.clone()),
            scheduler: Scheduler::new(machine::cores()),
            metrics,
            settings,
        })
    }

    /// Applies the current configuration to the store, which a reload may have changed since the
    /// start, and begins to serve requests for data. Blocks.
    ///
    /// # Errors
    /// The errors of [`Store::reload`] and [`Settings::retention_rules`].
    pub fn set_store(&self, store: Arc<Store>) -> anyhow::Result<()> {
        let _one_at_a_time = self.reloading.lock();
        let config = self.config.current();
        store.reload(&config)?;
        store
            .receiver
            .refuse_new_series(self.pressure.refuses_new_series());
        store.set_retention(
            self.settings.retention(&config),
            self.settings.retention_rules(&config)?,
        );
        *self.store.write() = Some(store);
        self.phase.store(READY, Ordering::Release);
        Ok(())
    }

    /// Returns the store, or `None` before it is open and after [`App::take_store`].
    pub fn store(&self) -> Option<Arc<Store>> {
        self.store.read().clone()
    }

    /// Removes the store, to close it.
    pub fn take_store(&self) -> Option<Arc<Store>> {
        self.store.write().take()
    }

    /// Rejects further requests with 503.
    pub fn begin_shutdown(&self) {
        self.phase.store(STOPPING, Ordering::Release);
    }

    /// Returns `None` while the store is open, and otherwise whether the server is stopping.
    pub fn stopping(&self) -> Option<bool> {
        match self.phase.load(Ordering::Acquire) {
            READY => None,
            phase => Some(phase == STOPPING),
        }
    }

    /// Reloads the configuration, after a reload that is running.
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
        let _one_at_a_time = self.reloading.lock();
        // Before the store is open, the end of a reload must not be reported as the end of the
        // start.
        let is_serving = self.stopping().is_none();
        if is_serving {
            notify(service_manager::ServiceState::Reloading);
        }
        let mut rules = None;
        let reloaded = self.config.reload(|config| {
            let prepared = self.rules.prepare(config)?;
            self.apply(config)?;
            rules = Some(prepared);
            Ok(())
        });
        // Waits for evaluations.
        rules.into_iter().for_each(|rules| self.rules.apply(rules));
        self.notifications.set(CONFIG_FAILED, reloaded.is_err());
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
            notify(service_manager::ServiceState::Ready);
        }
        reloaded.map(drop)
    }

    /// Applies all settings that need no restart, or none of them.
    fn apply(&self, config: &Config) -> anyhow::Result<()> {
        let Prepared {
            query_log,
            alerting,
        } = Prepared::new(config)?;
        let retention_rules = self.settings.retention_rules(config)?;
        if let Some(store) = self.store() {
            store.reload(config)?;
            store.set_retention(self.settings.retention(config), retention_rules);
        }
        self.notifier.apply(alerting);
        self.tracer.apply(config.tracing.as_ref());
        self.requests.query_log.write_to(query_log);
        varve_system::log::set_level(config.runtime.log_level);
        Ok(())
    }

    /// Collects all metrics. Blocks, so it must not run on a tokio task.
    pub fn gather(&self) -> Vec<MetricFamily> {
        let (used_bytes, limit_bytes) = self.pressure.stats();
        let retention = self.settings.retention(&self.config.current());
        let mut own = counts([
            (
                "varve_active_request_log_dropped_total",
                self.requests.active.n_dropped(),
            ),
            ("varve_memory_used_bytes", used_bytes),
            ("varve_memory_limit_bytes", limit_bytes),
            (
                "varve_query_memory_bytes",
                self.requests.query_memory().used() as u64,
            ),
            (
                "varve_ingest_body_bytes",
                self.requests.write_memory().used() as u64,
            ),
            (
                "varve_query_memory_max_bytes",
                self.requests.query_memory().limit() as u64,
            ),
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
        ]);
        own.extend(families([(
            "varve_requests_turn_wait_seconds_total",
            self.scheduler.waited().as_secs_f64(),
        )]));
        self.metrics.gather(
            self.store().as_deref(),
            Some(&self.rules),
            own,
            self.config.status(),
        )
    }

    /// Applies the state of memory pressure: interrupts the heaviest request, sets the memory of
    /// queries, denies new series, clears the result cache. Records all active requests in their
    /// log.
    pub fn check_requests(&self) {
        if self.pressure.check() {
            self.requests.active.interrupt_heaviest(Interrupt::Pressure);
        }
        let max = self.settings.query.memory_total_max;
        let held = self.requests.query_memory().used();
        self.requests
            .query_memory()
            .set_limit(self.pressure.query_memory_max(max, held));
        let store = self.store();
        self.notifications.set(
            RETENTION_HELD,
            store
                .as_ref()
                .is_some_and(|store| store.db.n_held_blocks() > 0),
        );
        if let Some(store) = store {
            let is_short = self.pressure.refuses_new_series();
            store.receiver.refuse_new_series(is_short);
            if is_short {
                store.engine.clear_cache();
            }
        }
        self.requests.active.record_all();
    }
}
