//! A rule of a running group: its definition, its alerts, and the outcome of its evaluations.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use varve_context::Charge;
use varve_model::labels::METRIC_NAME;
use varve_model::{Labels, Matcher};

use crate::alert::{ALERT_NAME, Alert, AlertState, Alerts};
use crate::alerts_max::AlertsMax;
use crate::file::{self, RuleKind};
use crate::time::Time;
use varve_template::Template;

/// Number of evaluations that are kept per rule.
pub const EVALUATIONS_KEPT: usize = 20;
/// Minimum time between two log lines about failed evaluations of a rule.
const FAILURE_LOG_INTERVAL: Duration = Duration::from_secs(10 * 60);

/// A rule of a group.
#[derive(Debug)]
pub struct Rule {
    /// As in the file.
    pub definition: file::RuleDefinition,
    /// The expression as Prometheus prints it.
    pub expr: Arc<str>,
    /// Labels and annotations of an alerting rule by their text.
    templates: BTreeMap<String, Template>,
    pub(crate) state: Mutex<RuleState>,
    alerts_max: Arc<AlertsMax>,
}

/// State that evaluations change.
#[derive(Debug, Default)]
pub(crate) struct RuleState {
    pub(crate) alerts: Alerts,
    /// Covers the alerts.
    alerts_charge: Option<Arc<Charge>>,
    /// `true` if another rule has taken over the alerts.
    are_alerts_moved: bool,
    /// `true` if alerts of an earlier process have been restored.
    pub(crate) is_restored: bool,
    /// The series of the previous evaluation.
    pub(crate) previous_series: BTreeSet<Labels>,
    evaluations: VecDeque<KeptEvaluation>,
    has_matched: bool,
    costs: RuleCosts,
    /// When a failed evaluation was last logged.
    failure_logged: Option<Time>,
}

/// An evaluation that is kept.
#[derive(Debug, Clone)]
struct KeptEvaluation {
    record: EvaluationRecord,
    /// Covers the error.
    _charge: Arc<Charge>,
}

/// The outcome of the last evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// There was none.
    Unknown,
    /// It succeeded.
    Good,
    /// It failed, or a sample of it was rejected.
    Bad,
}

impl Health {
    /// Returns the health as Prometheus writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Good => "ok",
            Self::Bad => "err",
        }
    }
}

/// One evaluation of a rule.
#[derive(Debug, Clone, PartialEq)]
pub struct EvaluationRecord {
    /// The timestamp of the evaluation.
    pub tick: Time,
    /// The wall-clock time of its start.
    pub started: Time,
    /// Its duration.
    pub duration: Duration,
    /// Number of series that the selectors matched.
    pub n_series: u64,
    /// Number of samples read.
    pub n_samples: u64,
    /// Maximum memory of the query in bytes.
    pub peak_bytes: u64,
    /// Number of samples of the result.
    pub n_results: u64,
    /// Why it failed, or why its first rejected sample was not stored.
    pub error: Option<String>,
}

/// Costs of a rule since it was loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RuleCosts {
    /// Seconds of evaluation.
    pub seconds: f64,
    /// Samples read.
    pub n_samples: u64,
    /// Sum of the memory peaks of its queries, in bytes.
    pub bytes: u64,
}

/// The state of a rule at one time.
#[derive(Debug, Clone)]
pub struct RuleStatus {
    /// The outcome of the last evaluation.
    pub health: Health,
    /// The alerts, resolved ones included.
    pub alerts: Vec<Alert>,
    /// The newest evaluations, oldest first.
    pub evaluations: Vec<EvaluationRecord>,
    /// `true` if a selector has ever matched a series.
    pub has_matched: bool,
    /// The costs so far.
    pub costs: RuleCosts,
}

impl RuleStatus {
    /// Returns the last evaluation.
    #[must_use]
    pub fn last(&self) -> Option<&EvaluationRecord> {
        self.evaluations.last()
    }

    /// Returns the state of the most severe alert of the rule, as Prometheus writes it.
    #[must_use]
    pub fn alert_state(&self) -> &'static str {
        if self.evaluations.is_empty() {
            return "unknown";
        }
        self.alerts
            .iter()
            .map(|alert| alert.state)
            .max()
            .unwrap_or(AlertState::Inactive)
            .name()
    }
}

impl Rule {
    pub(crate) fn new(
        definition: file::RuleDefinition,
        is_restored: bool,
        alerts_max: Arc<AlertsMax>,
    ) -> Self {
        let state = Mutex::new(RuleState {
            is_restored,
            ..RuleState::default()
        });
        let templates = templates(&definition);
        Self {
            expr: varve_promql::print(&definition.expr.tree).into(),
            definition,
            templates,
            state,
            alerts_max,
        }
    }

    /// Returns the template of a label or annotation.
    pub(crate) fn template(&self, text: &str) -> Option<&Template> {
        self.templates.get(text)
    }

    /// Returns `true` for an alerting rule.
    #[must_use]
    pub fn is_alerting(&self) -> bool {
        matches!(self.definition.kind, RuleKind::Alerting(_))
    }

    /// Returns matchers for the series of a metric that this rule writes. Omits labels with
    /// templates.
    pub(crate) fn matchers(&self, metric: &str) -> Vec<Matcher> {
        [Matcher::equal(METRIC_NAME, metric)]
            .into_iter()
            .chain(self.label_matchers())
            .collect()
    }

    /// Returns the matchers of the fixed labels of the series that this rule writes.
    pub(crate) fn label_matchers(&self) -> Vec<Matcher> {
        let file::RuleDefinition { name, labels, .. } = &self.definition;
        let alert = self.is_alerting().then(|| Matcher::equal(ALERT_NAME, name));
        let labels = labels
            .iter()
            .filter(|(label, value)| {
                !value.is_empty()
                    && !value.contains("{{")
                    && ![METRIC_NAME, ALERT_NAME].contains(&label.as_str())
            })
            .map(|(label, value)| Matcher::equal(label, value));
        alert.into_iter().chain(labels).collect()
    }

    /// Returns about the bytes of [`Rule::status`]. Includes the texts that it shares with the rule,
    /// because it keeps them alive.
    #[must_use]
    pub fn status_size(&self) -> usize {
        let state = self.state.lock();
        let mut size = size_of::<RuleStatus>();
        for alert in state.alerts.values() {
            size += alert.size();
        }
        for kept in &state.evaluations {
            size +=
                size_of::<EvaluationRecord>() + kept.record.error.as_ref().map_or(0, String::len);
        }
        size
    }

    /// Returns the state.
    #[must_use]
    pub fn status(&self) -> RuleStatus {
        let state = self.state.lock();
        let health = match state.evaluations.back() {
            None => Health::Unknown,
            Some(last) if last.record.error.is_none() => Health::Good,
            Some(_) => Health::Bad,
        };
        let evaluations = state.evaluations.iter();
        RuleStatus {
            health,
            alerts: state.alerts.values().cloned().collect(),
            evaluations: evaluations.map(|kept| kept.record.clone()).collect(),
            has_matched: state.has_matched,
            costs: state.costs,
        }
    }

    /// Calls `visit` with each firing alert, until it fails. `visit` must not wait.
    ///
    /// # Errors
    /// The error of `visit`.
    pub fn for_each_firing<E>(
        &self,
        mut visit: impl FnMut(&Alert) -> Result<(), E>,
    ) -> Result<(), E> {
        for alert in self.state.lock().alerts.values() {
            if alert.state == AlertState::Firing {
                visit(alert)?;
            }
        }
        Ok(())
    }

    /// Returns why the last evaluation failed, or why its first rejected sample was not stored.
    #[must_use]
    pub fn last_error(&self) -> Option<String> {
        self.state.lock().evaluations.back()?.record.error.clone()
    }

    /// Checks whether the rule may have `n` alerts now.
    ///
    /// # Errors
    /// All rules together would have too many.
    pub(crate) fn check_n_alerts(&self, n: usize) -> Result<(), String> {
        let n_old = self.state.lock().alerts.len();
        self.alerts_max.check(n_old, n)
    }

    /// Replaces the alerts. `charge` covers them.
    ///
    /// # Errors
    /// All rules together would have more alerts than the maximum.
    pub(crate) fn set_alerts(&self, alerts: Alerts, charge: Charge) -> Result<(), String> {
        let state = &mut *self.state.lock();
        self.alerts_max.replace(state.alerts.len(), alerts.len())?;
        state.alerts = alerts;
        state.alerts_charge = Some(Arc::new(charge));
        Ok(())
    }

    /// Takes over alerts, written series and evaluations of the same rule before a reload.
    pub(crate) fn carry_over(&self, from_rule: &Self) {
        let state = &mut *self.state.lock();
        let from = &mut *from_rule.state.lock();
        // The new rule counts the alerts from now on. The old rule only shows them until the end of
        // the reload.
        from.are_alerts_moved = true;
        state.alerts = from.alerts.clone();
        state.alerts_charge = from.alerts_charge.clone();
        state.is_restored = from.is_restored;
        state.previous_series = from.previous_series.clone();
        state.evaluations = from.evaluations.clone();
        state.costs = from.costs;
        state.failure_logged = from.failure_logged;
        state.has_matched = from_rule.expr == self.expr && from.has_matched;
    }

    /// Returns `true` if a failed evaluation is to be logged: the first one, and the next one after
    /// [`FAILURE_LOG_INTERVAL`].
    pub(crate) fn is_failure_log_due(&self, now: Time) -> bool {
        let logged = self.state.lock().failure_logged;
        logged.is_none_or(|logged| now.has_passed(FAILURE_LOG_INTERVAL, logged))
    }

    /// Notes that a failed evaluation was logged.
    pub(crate) fn note_failure_logged(&self, now: Time) {
        self.state.lock().failure_logged = Some(now);
    }

    /// Adds the outcome of an evaluation. `charge` covers its error.
    pub(crate) fn record(&self, record: EvaluationRecord, charge: Charge) {
        let state = &mut *self.state.lock();
        state.has_matched |= record.n_series > 0;
        state.costs.seconds += record.duration.as_secs_f64();
        state.costs.n_samples += record.n_samples;
        state.costs.bytes += record.peak_bytes;
        if state.evaluations.len() == EVALUATIONS_KEPT {
            state.evaluations.pop_front();
        }
        state.evaluations.push_back(KeptEvaluation {
            record,
            _charge: Arc::new(charge),
        });
    }
}

impl Drop for Rule {
    fn drop(&mut self) {
        let state = self.state.lock();
        if !state.are_alerts_moved {
            self.alerts_max.remove(state.alerts.len());
        }
    }
}

/// Parses the labels and annotations of an alerting rule.
fn templates(definition: &file::RuleDefinition) -> BTreeMap<String, Template> {
    let RuleKind::Alerting(alerting) = &definition.kind else {
        return BTreeMap::new();
    };
    let texts = definition
        .labels
        .values()
        .chain(alerting.annotations.values());
    texts
        .map(|text| (text.clone(), Template::new(&definition.name, text)))
        .collect()
}
