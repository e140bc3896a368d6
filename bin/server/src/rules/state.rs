//! [`Rules`]: the rules in force, and what the threads that evaluate them share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::{Condvar, Mutex, RwLock};
use varve_config::file::Config;
use varve_config::file::rules::Wait;
use varve_config::settings::RulesOptions;
use varve_context::{Limit, MemoryBudget};
use varve_ingest::Written;
use varve_promql::Features;
use varve_rules::arrival::Lags;
use varve_rules::{AlertsMax, GroupSettings, RuleSet, Threads, Time};
use varve_system::metrics::Registrar;

use super::agenda::Agenda;
use super::failure_log::FailureLog;
use super::load::{self, Files};
use super::metrics::RuleMetrics;
use crate::notifier::Notifier;
use crate::requests::life::Requests;
use crate::requests::record::RequestRecord;
use crate::traces::Tracer;

/// Templates, alerts and errors may use the memory of rules divided by this.
const ALERT_MEMORY_DIVISOR: usize = 2;

/// The parts of the server that evaluations use.
#[derive(Debug)]
pub struct RuleHost {
    /// A query of a rule is an active request.
    pub requests: Arc<Requests>,
    /// Traces of evaluations.
    pub tracer: Arc<Tracer>,
    /// Sends alerts.
    pub notifier: Arc<Notifier>,
    /// Maximum time of a query.
    pub query_timeout: Duration,
    /// Maximum memory of a query in bytes.
    pub query_memory_max: usize,
}

/// The rules of a server.
#[derive(Debug)]
pub struct Rules {
    pub(super) options: RulesOptions,
    pub(super) host: RuleHost,
    pub(super) metrics: RuleMetrics,
    pub(super) failure_log: FailureLog,
    alerts_max: Arc<AlertsMax>,
    /// Bounds the threads that evaluate rules, with the helpers of groups.
    pub(super) evaluation_threads: Threads,
    pub(super) memory: MemoryBudget,
    /// The part of `memory` for templates, and for alerts and errors that rules keep. The rest is
    /// left to queries: many alerts fail alerting rules, and no others.
    pub(super) alert_memory: MemoryBudget,
    /// The arrival lags of senders. Write requests update them.
    pub(crate) lags: Lags,
    live: RwLock<Live>,
    pub(super) agenda: Mutex<Agenda>,
    /// Nanoseconds that rules have paused for writes.
    pub(super) write_pause_ns: Arc<AtomicU64>,
    /// Notified when the agenda changes, and on stop.
    pub(super) changed: Condvar,
    is_stopping: AtomicBool,
    /// The threads of the loop, once they are started.
    pub(super) threads: Mutex<Vec<JoinHandle<()>>>,
}

/// The rules and settings in force.
#[derive(Debug, Clone)]
pub(super) struct Live {
    set: Arc<RuleSet>,
    pub(super) settings: Arc<GroupSettings>,
    /// Evaluation interval of groups that set none.
    default_interval: Duration,
    /// Maximum time that an evaluation waits for data; `None` if it does not wait.
    pub(super) max_wait: Option<Duration>,
}

/// Rules that are read but not in force yet.
#[derive(Debug)]
pub struct PreparedRules {
    loaded: Files,
    live: Live,
}

impl Rules {
    /// Creates the rules of a server, of which there are none yet.
    ///
    /// # Errors
    /// If another metric has the same name.
    pub fn new(
        options: RulesOptions,
        host: RuleHost,
        registrar: &Registrar<'_>,
    ) -> prometheus::Result<Self> {
        let evaluation_threads = Threads::new(options.concurrency);
        let settings = Arc::new(settings(&options, &evaluation_threads, &Config::default()));
        let memory = MemoryBudget::new(Limit::RulesMemory, options.memory_max);
        let alert_memory_max = options.memory_max / ALERT_MEMORY_DIVISOR;
        Ok(Self {
            host,
            metrics: RuleMetrics::new(registrar)?,
            failure_log: FailureLog::default(),
            alerts_max: Arc::new(AlertsMax::new(options.alerts_max)),
            alert_memory: memory.child(Limit::RulesAlertMemory, alert_memory_max),
            memory,
            evaluation_threads,
            options,
            lags: Lags::default(),
            live: RwLock::new(Live {
                set: Arc::default(),
                settings,
                default_interval: Config::default().global.evaluation_interval,
                max_wait: None,
            }),
            agenda: Mutex::default(),
            write_pause_ns: Arc::default(),
            changed: Condvar::new(),
            is_stopping: AtomicBool::new(false),
            threads: Mutex::default(),
        })
    }

    /// Reads the rule files of a configuration. Nothing changes before [`Rules::apply`].
    ///
    /// # Errors
    /// A file cannot be read or is invalid.
    pub fn prepare(&self, config: &Config) -> anyhow::Result<PreparedRules> {
        let loaded = load::load(config, self.options.features)?;
        let max_wait = match config.rules.wait {
            Wait::Data if config.global.rule_query_offset.is_zero() => Some(config.rules.max_wait),
            Wait::Data | Wait::None => None,
        };
        let settings = Arc::new(settings(&self.options, &self.evaluation_threads, config));
        let default_interval = config.global.evaluation_interval;
        Ok(PreparedRules {
            loaded,
            live: Live {
                set: Arc::default(),
                settings,
                default_interval,
                max_wait,
            },
        })
    }

    /// Puts rules into force. Waits for running evaluations of groups that have changed or are
    /// removed. The caller applies one configuration at a time.
    pub fn apply(&self, PreparedRules { loaded, live }: PreparedRules) {
        let is_first = !self.agenda.lock().is_loaded();
        let old = self.live();
        let change = old
            .set
            .change_to(loaded, live.default_interval, is_first, &self.alerts_max);
        let now = now();
        let (set, removed) = change.apply(now, &live.settings);
        self.agenda.lock().replace(&set, removed, now);
        *self.live.write() = Live {
            set: Arc::new(set),
            ..live
        };
        self.changed.notify_all();
    }

    /// Returns all groups.
    pub fn set(&self) -> Arc<RuleSet> {
        Arc::clone(&self.live.read().set)
    }

    /// Returns the default interval of groups, and the settings in force.
    pub fn settings(&self) -> (Duration, GroupSettings) {
        let live = self.live();
        (live.default_interval, (*live.settings).clone())
    }

    /// Returns the optional parts of PromQL that rules may use.
    pub fn features(&self) -> Features {
        self.options.features
    }

    /// Returns the maximum number of alerts, and the current number.
    pub(super) fn alerts(&self) -> (usize, usize) {
        (self.alerts_max.max(), self.alerts_max.used())
    }

    /// Notes the progress of the sender of a write request
    /// ([`Sender::name`](crate::rejections::Sender::name)). Standby replicas of HA pairs have no
    /// progress, because their samples are not stored.
    pub fn note_progress(&self, request: &RequestRecord, written: &Written) {
        let Some(times) = written.times else {
            return;
        };
        if written.stored.total == 0 {
            return;
        }
        let name = request.sender().name(written.replica.as_deref());
        self.lags.note(&name, now(), times.start_ms, times.end_ms);
    }

    /// Prevents further evaluations from starting.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Waits for the end of all evaluations, after [`Rules::stop`].
    pub fn join(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            let _panic_is_logged = thread.join();
        }
    }

    /// Returns the bytes of memory of all queries of rules, and of what rules keep.
    pub(super) fn memory_used(&self) -> usize {
        self.memory.used()
    }

    /// Returns the bytes of memory of templates, and of alerts and errors that rules keep.
    pub(super) fn alert_memory_used(&self) -> usize {
        self.alert_memory.used()
    }

    /// Returns the total time that rules have paused for writes.
    pub(super) fn write_pause(&self) -> Duration {
        Duration::from_nanos(self.write_pause_ns.load(Ordering::Relaxed))
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    pub(super) fn live(&self) -> Live {
        self.live.read().clone()
    }
}

fn settings(options: &RulesOptions, threads: &Threads, config: &Config) -> GroupSettings {
    GroupSettings {
        query_offset: config.global.rule_query_offset,
        resend_delay: options.resend_delay,
        restore: options.restore,
        external_labels: config.global.external_labels.clone(),
        external_url: options.external_url.clone(),
        threads: Some(threads.clone()),
    }
}

/// Returns the wall-clock time.
pub(super) fn now() -> Time {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Time::from_ns(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}
