//! The record of a request: who sent it, what it asks for, what it uses, and its state.
//!
//! The layer around all HTTP routes, and each evaluation of a rule, create one. Whoever works for
//! the request has it as an argument.
//!
//! Threads: the thread that works on a request writes, lists and logs read at any time. Everything
//! that becomes known later is set once.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;
use varve_context::{Charge, MemoryBudget, QueryContext};
use varve_query::Steps;
use varve_query::stats::QueryStats;
use varve_system::excerpt::truncate;
use varve_wire::active_requests::{GrafanaSource, RULE_ROUTE, RequestState};

use super::log::Place;
use super::requester::QueryRequester;
use super::tenant::{Tenant, User};
use crate::rejections::Sender;
use crate::traces::{Part, Trace};

/// Bytes of a user agent that are kept.
const USER_AGENT_SIZE_MAX: usize = 256;
/// Bytes of a query or of selectors that are kept: a longer query is rejected.
const TEXT_SIZE_MAX: usize = 1 << 20;

/// The methods that change nothing by their definition.
const SAFE_METHODS: [&str; 3] = ["GET", "HEAD", "OPTIONS"];

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A request, from its start to its end.
#[derive(Debug)]
pub struct RequestRecord {
    /// Counts from 1 since the start of the process.
    pub id: u64,
    /// Start of the request.
    pub started: Timestamp,
    /// The HTTP method; GET for a rule.
    pub method: String,
    /// The route, with path parameters as Prometheus writes them: `:name`; [`RULE_ROUTE`] for a
    /// rule.
    pub route: String,
    /// The client's address.
    pub client: Option<SocketAddr>,
    /// The user agent, truncated.
    pub user_agent: String,
    /// Empty without authentication.
    pub user: Arc<str>,
    /// What Grafana's headers say of the request.
    pub grafana: GrafanaSource,
    /// The tenant that the request is restricted to.
    pub tenant: Option<Arc<Tenant>>,
    /// The rule, if this is the query of one.
    pub rule: Option<RuleQuery>,
    is_read: AtomicBool,
    parameters: OnceLock<(Parameters, Option<Charge>)>,
    steps: OnceLock<Steps>,
    stats: OnceLock<QueryStats>,
    trace: OnceLock<Trace>,
    memory: OnceLock<MemoryBudget>,
    active: OnceLock<Active>,
}

/// The query of a rule.
#[derive(Debug)]
pub struct RuleQuery {
    /// The rule file.
    pub file: String,
    /// The name of the group.
    pub group: String,
    /// The expression.
    pub expr: String,
}

/// The parameters of a query or metadata request, as they were sent.
#[derive(Debug, Default)]
pub struct Parameters {
    /// The query, or the selectors, separated by commas.
    pub text: String,
    /// The parameter `start` or `time`.
    pub start: String,
    /// The parameter `end`.
    pub end: String,
    /// The parameter `step`.
    pub step: String,
}

/// The class of a request. Each class has its own gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestClass {
    /// A query.
    Query,
    /// A request for series or labels.
    Metadata,
    /// A remote read.
    RemoteRead,
    /// A write.
    Write,
}

impl RequestClass {
    /// Returns the name of the class in metrics and lists.
    pub fn name(self) -> &'static str {
        match self {
            Self::Query => "query",
            Self::Metadata => "metadata",
            Self::RemoteRead => "remote_read",
            Self::Write => "write",
        }
    }
}

/// The class of an active request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActiveClass {
    /// A request of a client.
    Client(RequestClass),
    /// The query of a rule, which waits for no gate.
    Rule,
}

impl ActiveClass {
    /// Returns the name of the class in metrics and lists.
    pub fn name(self) -> &'static str {
        match self {
            Self::Client(class) => class.name(),
            Self::Rule => "rule",
        }
    }
}

impl From<RequestClass> for ActiveClass {
    fn from(class: RequestClass) -> Self {
        Self::Client(class)
    }
}

/// What an active request has besides its record.
#[derive(Debug)]
pub struct Active {
    /// The class.
    pub class: ActiveClass,
    /// Deadline, cancellation and memory.
    pub ctx: QueryContext,
    arrived: Instant,
    /// Time that the request was queued. Set when its work begins.
    queued: OnceLock<Duration>,
    /// The place of the request in the active-request log.
    pub(super) place: Mutex<Place>,
}

impl RequestRecord {
    /// Creates the record of a client's request.
    pub fn new(
        method: &str,
        route: String,
        client: Option<SocketAddr>,
        user_agent: &str,
        grafana: GrafanaSource,
        user: Option<User>,
    ) -> Arc<Self> {
        let mut record = Self::anonymous(method, route);
        record.client = client;
        truncate(user_agent, USER_AGENT_SIZE_MAX).clone_into(&mut record.user_agent);
        record.grafana = grafana;
        if let Some(User { name, tenant }) = user {
            record.user = name;
            record.tenant = tenant;
        }
        Arc::new(record)
    }

    /// Creates the record of the query of a rule. All its memory is charged to `memory`.
    pub fn of_rule(rule: RuleQuery, memory: MemoryBudget) -> Arc<Self> {
        let mut record = Self::anonymous("GET", RULE_ROUTE.to_owned());
        record.rule = Some(rule);
        record.memory = OnceLock::from(memory);
        Arc::new(record)
    }

    fn anonymous(method: &str, route: String) -> Self {
        Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            started: Timestamp::now(),
            is_read: AtomicBool::new(SAFE_METHODS.contains(&method)),
            method: method.to_owned(),
            route,
            client: None,
            user_agent: String::new(),
            user: Arc::from(""),
            grafana: GrafanaSource::default(),
            tenant: None,
            rule: None,
            parameters: OnceLock::new(),
            steps: OnceLock::new(),
            stats: OnceLock::new(),
            trace: OnceLock::new(),
            memory: OnceLock::new(),
            active: OnceLock::new(),
        }
    }

    /// Returns the sender of a write request.
    pub fn sender(&self) -> Sender {
        Sender {
            address: self.client,
            user_agent: self.user_agent.clone(),
            user: Arc::clone(&self.user),
            path: self.route.clone(),
        }
    }

    /// Returns who sent the query.
    pub fn requester(&self) -> QueryRequester {
        QueryRequester {
            user: Arc::clone(&self.user),
            user_agent: self.user_agent.clone(),
            grafana: self.grafana.clone(),
        }
    }

    /// Sets the parameters, once. Keeps the charge of their memory until the request ends.
    pub fn note_parameters(&self, mut parameters: Parameters, charge: impl Into<Option<Charge>>) {
        self.parameters.get_or_init(|| {
            parameters.text = truncate(&parameters.text, TEXT_SIZE_MAX).to_owned();
            (parameters, charge.into())
        });
    }

    /// Returns the parameters, which are empty until they are read.
    pub fn parameters(&self) -> &Parameters {
        static EMPTY: Parameters = Parameters {
            text: String::new(),
            start: String::new(),
            end: String::new(),
            step: String::new(),
        };
        self.parameters
            .get()
            .map_or(&EMPTY, |(parameters, _)| parameters)
    }

    /// Sets the times of a query, once.
    pub fn note_steps(&self, steps: Steps) {
        self.steps.get_or_init(|| steps);
    }

    /// Returns the times, if this is a query.
    pub fn steps(&self) -> Option<Steps> {
        self.steps.get().copied()
    }

    /// Sets the statistics of an evaluated query, once.
    pub fn note_stats(&self, stats: &QueryStats) {
        self.stats.get_or_init(|| stats.clone());
    }

    /// Returns the statistics of the query, once it is evaluated.
    pub fn stats(&self) -> Option<&QueryStats> {
        self.stats.get()
    }

    /// Sets the trace of a sampled request, once.
    pub fn note_trace(&self, trace: Trace) {
        self.trace.get_or_init(|| trace);
    }

    /// Returns the trace, if the request is sampled.
    pub fn trace(&self) -> Option<&Trace> {
        self.trace.get()
    }

    /// Starts the span of a part of the request, if it is sampled.
    pub fn part(&self, name: &'static str) -> Option<Part<'_>> {
        self.trace().map(|trace| trace.part(name))
    }

    /// Notes that the request only reads.
    pub fn note_read(&self) {
        self.is_read.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if the request may have changed the store.
    pub fn may_have_written(&self) -> bool {
        !self.is_read.load(Ordering::Relaxed)
    }

    /// Returns the memory budget of the request, which `create` returns when the first part of the
    /// request needs memory. All parts draw on it.
    pub(super) fn memory(&self, create: impl FnOnce() -> MemoryBudget) -> &MemoryBudget {
        self.memory.get_or_init(create)
    }

    /// Sets the class and the context, once, when the request becomes active.
    pub(super) fn activate(&self, class: ActiveClass, ctx: QueryContext) -> &Active {
        self.active.get_or_init(|| Active {
            class,
            ctx,
            arrived: Instant::now(),
            queued: match class {
                ActiveClass::Client(_) => OnceLock::new(),
                ActiveClass::Rule => OnceLock::from(Duration::ZERO),
            },
            place: Mutex::default(),
        })
    }

    /// Returns the class, the context and the times of an active request.
    pub fn active(&self) -> Option<&Active> {
        self.active.get()
    }

    /// Returns the time that the request was queued, up to now if it still is.
    pub fn queued(&self) -> Duration {
        self.active().map_or(Duration::ZERO, Active::queued)
    }
}

impl Active {
    /// Notes that work on the request begins.
    pub(super) fn begin(&self) {
        self.queued.get_or_init(|| self.arrived.elapsed());
    }

    /// Returns [`RequestState::Waiting`] or [`RequestState::Working`].
    pub fn state(&self) -> RequestState {
        if self.queued.get().is_some() {
            RequestState::Working
        } else {
            RequestState::Waiting
        }
    }

    /// Returns the time since the request arrived.
    pub fn age(&self) -> Duration {
        self.arrived.elapsed()
    }

    /// Returns the time that the request was queued, up to now if it still is.
    pub fn queued(&self) -> Duration {
        self.queued
            .get()
            .copied()
            .unwrap_or_else(|| self.arrived.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(method: &str) -> Arc<RequestRecord> {
        let user = User {
            name: Arc::from("ann"),
            tenant: None,
        };
        let user_agent = "ä".repeat(USER_AGENT_SIZE_MAX);
        let grafana = GrafanaSource::default();
        RequestRecord::new(
            method,
            String::new(),
            None,
            &user_agent,
            grafana,
            Some(user),
        )
    }

    #[test]
    fn the_first_parameters_are_kept() {
        let record = record("GET");
        assert_eq!(
            (&*record.user, record.user_agent.len()),
            ("ann", USER_AGENT_SIZE_MAX)
        );
        assert_eq!(record.parameters().text, "");
        for text in ["a", "b"] {
            record.note_parameters(
                Parameters {
                    text: text.to_owned(),
                    ..Parameters::default()
                },
                None,
            );
        }
        assert_eq!(record.parameters().text, "a");
    }

    #[test]
    fn a_request_that_may_have_written_is_not_a_read() {
        assert!(!record("GET").may_have_written());
        let record = record("POST");
        assert!(record.may_have_written());
        record.note_read();
        assert!(!record.may_have_written());
    }
}
