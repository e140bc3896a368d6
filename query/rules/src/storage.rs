//! The services that rules use: queries, appends, a clock, and the delivery of alerts.

use std::sync::Arc;
use std::time::Duration;

use varve_context::{Limit, MemoryBudget, QueryContext, scheduler};
use varve_model::{Labels, Matcher, Rejection, Sample, TimeRange};
use varve_query::histogram::FloatHistogram;
use varve_query::{ScanPlan, SharedScans, VectorSample};

use crate::alert::state::Notification;
use crate::time::Time;

/// Maximum bytes of the error of an evaluation, as of the error of a query in a response.
pub const ERROR_SIZE_MAX: usize = 16 << 10;
/// Maximum memory of the templates and alerts of a rule without a server, in bytes.
const EVALUATION_SIZE_MAX: usize = 256 << 20;

/// The services that rules use. Each query and each append is a separate request with its own
/// deadline and memory budget.
pub trait Storage: Sync {
    /// Starts background work on this thread, until the returned value is dropped: each
    /// [`scheduler::pause`] then lets more urgent work run. Returns `None` if nothing else needs
    /// the cores.
    fn start_background(&self) -> Option<scheduler::Background> {
        None
    }

    /// Evaluates an expression at one time. A scalar is a vector of one sample without labels.
    ///
    /// # Errors
    /// The query failed or was interrupted, or its value is neither a vector nor a scalar.
    fn query(&self, from: &RuleRef<'_>, query: &Query<'_>) -> Result<Answer, Failure>;

    /// Returns deadline and memory of one evaluation of a rule, besides its queries: of its
    /// templates, and of the alerts and the error that the rule keeps after it. `interval` is that
    /// of the group.
    fn evaluation_context(&self, interval: Duration) -> QueryContext {
        let memory = MemoryBudget::new(Limit::Other("memory of a rule"), EVALUATION_SIZE_MAX);
        QueryContext::new(interval, memory)
    }

    /// Returns the scans that queries of a group at one time share. `None` if they share none.
    fn shared_scans(&self, _plan: &Arc<ScanPlan>, _timestamp_ms: i64) -> Option<SharedScans> {
        None
    }

    /// Appends samples. A later query sees them. Returns those that were not stored, by their index.
    ///
    /// # Errors
    /// The request failed. Some of its samples may be stored.
    fn append(&self, budget: OutputBudget, samples: &[Output]) -> Result<Vec<Rejection>, Failure>;

    /// Returns the newest sample in `range` of each series that passes all matchers.
    ///
    /// # Errors
    /// The selection failed.
    fn newest(
        &self,
        matchers: &[Matcher],
        range: TimeRange,
    ) -> Result<Vec<(Labels, Sample)>, Failure>;

    /// Notes the expansion of a template, with the reason if it failed.
    fn note_expansion(&self, _from: &RuleRef<'_>, _error: Option<&str>) {}

    /// Logs why an evaluation failed, or why a sample of it was not stored. Returns `false` if too
    /// many others were logged just before.
    fn log_failure(&self, _from: &RuleRef<'_>, _error: &str) -> bool {
        true
    }

    /// Returns the wall-clock time.
    fn now(&self) -> Time;

    /// Returns `true` if evaluations must end.
    fn is_stopping(&self) -> bool {
        false
    }

    /// Sends alerts to Alertmanager. Never waits.
    fn notify(&self, alerts: Vec<Notification>);
}

/// The rule for which a request is made.
#[derive(Debug, Clone, Copy)]
pub struct RuleRef<'a> {
    /// The file of the group.
    pub file: &'a str,
    /// The group.
    pub group: &'a str,
    /// The name of the rule.
    pub rule: &'a str,
}

/// An expression, and the time of its evaluation.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a> {
    /// The expression.
    pub expr: &'a str,
    /// The time.
    pub timestamp_ms: i64,
    /// The scans of all queries of the group at this time.
    pub scans: Option<&'a SharedScans>,
}

/// The result of a query, and its cost.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// The samples.
    pub samples: Vec<VectorSample>,
    /// Number of series that the selectors matched.
    pub n_series: u64,
    /// Number of samples read.
    pub n_samples: u64,
    /// Maximum memory of the query in bytes.
    pub peak_bytes: u64,
}

/// The reason why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The message.
    pub message: String,
}

impl Failure {
    /// Creates a failure from its message.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
        }
    }
}

/// The budget that may deny samples of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputBudget {
    /// That of the team: for the result of a recording rule.
    Team,
    /// None: for `ALERTS` and `ALERTS_FOR_STATE`, which are bounded by limits on alerts, and for
    /// staleness markers of series that no rule writes any more.
    Exempt,
}

/// A sample that a rule writes.
#[derive(Debug, Clone)]
pub struct Output {
    /// The series.
    pub labels: Labels,
    /// Time and value. The value is meaningless if `histogram` is `Some`.
    pub sample: Sample,
    /// The value, if it is a histogram.
    pub histogram: Option<Arc<FloatHistogram>>,
}
