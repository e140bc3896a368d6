//! The type [`Group`]: its parts, and the outcome of its evaluations.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use varve_model::Labels;
use varve_query::ScanPlan;

use super::dependencies;
use crate::alert::RestoreOptions;
use crate::alerts_max::AlertsMax;
use crate::file::{self, GroupState};
use crate::rule::Rule;
use crate::schedule::Schedule;
use crate::storage::RuleRef;
use crate::threads::Threads;
use crate::time::Time;

/// Settings of all groups.
#[derive(Debug, Clone)]
pub struct GroupSettings {
    /// `global.rule_query_offset`: the query offset of groups that set none.
    pub query_offset: Duration,
    /// `--rules.alert.resend-delay`: minimum time between two notifications of an alert.
    pub resend_delay: Duration,
    /// Settings for the restoration of alerts after a restart.
    pub restore: RestoreOptions,
    /// `global.external_labels`, for templates.
    pub external_labels: file::Texts,
    /// `--web.external-url`, for templates.
    pub external_url: String,
    /// Threads that all groups share. `None`: rules run on the thread of their group.
    pub threads: Option<Threads>,
}

/// A group of rules.
#[derive(Debug)]
pub struct Group {
    /// The file.
    pub file: Arc<str>,
    /// Its name in the file.
    pub definition: file::GroupDefinition,
    /// The rules in the order of the file.
    pub rules: Vec<Rule>,
    pub(super) schedule: Schedule,
    pub(super) batches: Vec<Vec<usize>>,
    pub(super) scan_plan: Arc<ScanPlan>,
    pub(super) running: Mutex<()>,
    pub(super) is_stopped: AtomicBool,
    pub(super) state: Mutex<State>,
}

/// State that evaluations change.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    /// `true` if alerts of an earlier process must still be restored.
    pub(super) restores: bool,
    /// Series of rules that a reload has removed, or that several rules may have written before a
    /// restart. They end after the next evaluation unless a rule writes them.
    pub(super) stale: Vec<Labels>,
    /// `true` if alerts were loaded that several rules may have written before a restart.
    pub(super) has_shared_alerts: bool,
    pub(super) status: GroupStatus,
}

/// The outcome of a group's evaluations.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct GroupStatus {
    /// The timestamp of the last evaluation.
    pub last_tick: Option<Time>,
    /// The wall-clock time of its start.
    pub last_started: Option<Time>,
    /// Its duration.
    pub last_duration: Duration,
    /// Number of its selections from the store.
    pub last_n_scans: u64,
    /// Sum of the durations of its rules.
    pub last_rules_duration: Duration,
    /// Number of samples of its results.
    pub last_n_results: u64,
    /// Duration of the restoration of alerts.
    pub last_restore: Duration,
    /// Number of evaluations, missed ones included. Prometheus calls them iterations.
    pub n_iterations: u64,
    /// Number of missed evaluations.
    pub n_missed: u64,
    /// Number of evaluations of rules.
    pub n_evaluations: u64,
    /// Number of failed evaluations of rules.
    pub n_failures: u64,
}

impl Group {
    /// Creates a group. With `restores`, its alerts are restored after the second evaluation.
    ///
    /// # Panics
    /// If the interval is zero.
    #[must_use]
    pub fn new(
        file: Arc<str>,
        definition: file::GroupDefinition,
        default_interval: Duration,
        restores: bool,
        alerts_max: &Arc<AlertsMax>,
    ) -> Self {
        let interval = definition
            .interval_ms
            .filter(|&ms| ms > 0)
            .map_or(default_interval, duration);
        Self {
            schedule: Schedule::new(&file, &definition.name, interval),
            batches: dependencies::batches(&definition.rules),
            scan_plan: Arc::new(ScanPlan::new(
                definition.rules.iter().map(|rule| &rule.expr.tree),
            )),
            rules: definition
                .rules
                .iter()
                .map(|rule| Rule::new(rule.clone(), !restores, Arc::clone(alerts_max)))
                .collect(),
            file,
            definition,
            running: Mutex::default(),
            is_stopped: AtomicBool::new(false),
            state: Mutex::new(State {
                restores,
                ..State::default()
            }),
        }
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// Returns the key of the group in metrics: `file;name`.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{};{}", self.file, self.name())
    }

    /// Returns the schedule.
    #[must_use]
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Returns the query offset.
    #[must_use]
    pub fn query_offset(&self, settings: &GroupSettings) -> Duration {
        self.definition
            .query_offset_ms
            .map_or(settings.query_offset, duration)
    }

    /// Returns `true` if rules are evaluated, but no results are written and no alerts are sent.
    #[must_use]
    pub fn is_dry_run(&self) -> bool {
        self.definition.state == GroupState::DryRun
    }

    /// Returns the outcome of the evaluations so far.
    #[must_use]
    pub fn status(&self) -> GroupStatus {
        self.state.lock().status
    }

    /// Counts missed evaluations.
    pub fn note_missed(&self, n_missed: u64) {
        let status = &mut self.state.lock().status;
        status.n_missed += n_missed;
        status.n_iterations += n_missed;
    }

    /// Ends the group after the rule that is being evaluated.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Waits until the group has ended, after [`Group::stop`].
    pub(crate) fn join(&self) {
        drop(self.running.lock());
    }

    /// Returns `true` after [`Group::stop`].
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Returns the reference to a rule of this group, for requests to the store.
    pub(super) fn rule_ref<'a>(&'a self, rule: &'a str) -> RuleRef<'a> {
        RuleRef {
            file: &self.file,
            group: self.name(),
            rule,
        }
    }
}

/// Returns a duration that a file gives in milliseconds; zero if it is negative.
pub(crate) fn duration(ms: i64) -> Duration {
    Duration::from_millis(ms.max(0) as u64)
}
