//! [`App`]: the parts of the server that handlers and layers use.

use std::sync::Arc;

use jiff::Timestamp;
use varve_config::settings::ServerSettings;
use varve_context::scheduler::Scheduler;
use varve_server::lifecycle::{Lifecycle, Phase};
use varve_server::live_config::LiveConfig;
use varve_server::metrics::Metrics;
use varve_server::notifications::Notifications;
use varve_server::notifier::Notifier;
use varve_server::pressure::Pressure;
use varve_server::rejections::RejectionLog;
use varve_server::reload::Reloader;
use varve_server::requests::life::Requests;
use varve_server::rules::Rules;
use varve_server::sender_stats::Senders;
use varve_server::shutdown::Quit;
use varve_server::store::Store;
use varve_server::traces::Tracer;

use super::metrics::HttpMetrics;

/// The parts of a server. `varve serve` builds them.
#[derive(Debug)]
pub struct App {
    /// The checked flags.
    pub settings: Arc<ServerSettings>,
    /// All metrics of the server.
    pub registry: Arc<Metrics>,
    /// The metrics that HTTP and gRPC update.
    pub metrics: Arc<HttpMetrics>,
    /// The configuration in force.
    pub config: Arc<LiveConfig>,
    /// Puts another configuration into force.
    pub reloader: Arc<Reloader>,
    /// Whether the server is starting, open or stopping, and the store.
    pub lifecycle: Arc<Lifecycle>,
    /// Notifications on the web page.
    pub notifications: Arc<Notifications>,
    /// Requests the shutdown of the process.
    pub quit: Quit,
    /// Start of the process.
    pub started: Timestamp,
    /// What all requests share.
    pub requests: Arc<Requests>,
    /// Memory pressure.
    pub pressure: Arc<Pressure>,
    /// What was rejected of writes.
    pub rejections: RejectionLog,
    /// Statistics of the clients that write.
    pub senders: Senders,
    /// Sends alerts to Alertmanagers.
    pub notifier: Arc<Notifier>,
    /// The rules.
    pub rules: Arc<Rules>,
    /// Traces of requests and rules.
    pub tracer: Arc<Tracer>,
    /// Shares the cores between requests that read.
    pub scheduler: Scheduler,
}

impl App {
    /// Returns the phase of the server.
    pub fn phase(&self) -> Phase {
        self.lifecycle.phase()
    }

    /// Returns the store, or `None` unless it is open.
    pub fn store(&self) -> Option<Arc<Store>> {
        self.lifecycle.store()
    }
}
