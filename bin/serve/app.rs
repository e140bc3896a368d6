//! Builds the parts of a server, each with the handles it needs. Nothing below knows all of them.

use std::sync::Arc;

use anyhow::Result;
use jiff::Timestamp;
use varve_config::settings::ServerSettings;
use varve_context::scheduler::Scheduler;
use varve_http::{App, HttpMetrics};
use varve_server::lifecycle::Lifecycle;
use varve_server::live_config::LiveConfig;
use varve_server::metrics::{self, Metrics};
use varve_server::notifications::Notifications;
use varve_server::notifier::Notifier;
use varve_server::pressure::Pressure;
use varve_server::rejections::RejectionLog;
use varve_server::reload::Reloader;
use varve_server::requests::life::Requests;
use varve_server::rules::{self, RuleHost, Rules};
use varve_server::sender_stats::Senders;
use varve_server::shutdown::Quit;
use varve_server::traces::Tracer;
use varve_system::machine;
use varve_system::metrics::families;

/// Builds a server that has no store yet.
///
/// # Errors
/// If two metrics have the same name.
pub(super) fn build(
    settings: ServerSettings,
    config: LiveConfig,
    pressure: Pressure,
) -> Result<App> {
    let registry = Arc::new(Metrics::default());
    let registrar = registry.registrar();
    let settings = Arc::new(settings);
    let config = Arc::new(config);
    let pressure = Arc::new(pressure);
    let lifecycle = Arc::<Lifecycle>::default();
    let notifications = Notifications::new(settings.web.notifications_subscribers_max);
    let notifications = Arc::new(notifications);
    let scheduler = Scheduler::new(machine::cores());

    let metrics = Arc::new(HttpMetrics::new(&registrar)?);
    let requests = Arc::new(Requests::new(&settings, &registrar)?);
    let notifier = Arc::new(Notifier::new(settings.notifier, &registrar)?);
    let tracer = Arc::new(Tracer::new(&registrar)?);
    let host = RuleHost {
        requests: Arc::clone(&requests),
        tracer: Arc::clone(&tracer),
        notifier: Arc::clone(&notifier),
        query_timeout: settings.query.timeout,
        query_memory_max: settings.query.memory_max,
    };
    let rules = Arc::new(Rules::new(settings.rules.clone(), host, &registrar)?);
    let reloader = Arc::new(Reloader {
        settings: Arc::clone(&settings),
        config: Arc::clone(&config),
        lifecycle: Arc::clone(&lifecycle),
        notifications: Arc::clone(&notifications),
        pressure: Arc::clone(&pressure),
        requests: Arc::clone(&requests),
        notifier: Arc::clone(&notifier),
        rules: Arc::clone(&rules),
        tracer: Arc::clone(&tracer),
    });

    let app = App {
        settings,
        registry,
        metrics,
        config,
        reloader,
        lifecycle,
        notifications,
        quit: Quit::default(),
        started: Timestamp::now(),
        requests,
        pressure,
        rejections: RejectionLog::default(),
        senders: Senders::default(),
        notifier,
        rules,
        tracer,
        scheduler,
    };
    collect_metrics(&app);
    Ok(app)
}

/// Lets each scrape collect metrics from all parts that have some.
fn collect_metrics(app: &App) {
    let registry = &app.registry;
    registry.collect_from(&app.metrics, HttpMetrics::collect);
    registry.collect_from(&app.requests, Requests::collect);
    registry.collect_from(&app.pressure, Pressure::collect);
    registry.collect_from(&app.reloader, Reloader::collect);
    registry.collect_from(&app.rules, rules::collect);
    registry.collect_from(&app.lifecycle, metrics::store::collect);
    registry.collect_from(&Arc::new(app.scheduler.clone()), |scheduler| {
        families([(
            "varve_requests_turn_wait_seconds_total",
            scheduler.waited().as_secs_f64(),
        )])
    });
}
