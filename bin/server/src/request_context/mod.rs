//! The sender of a request and its parameters, which lists and logs show.
//!
//! The layer around all routes creates one [`RequestContext`] per request. Work for the request
//! finds it through [`RequestContext::current`], so that no handler has to pass it on.

pub mod fair_semaphore;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::http::Method;
use jiff::Timestamp;
use varve_context::{Charge, Limit, MemoryBudget, QueryContext};
use varve_model::Matcher;
use varve_query::stats::QueryStats;
use varve_system::excerpt::truncate;

use super::rejections::Client;
use crate::traces::{Part, Trace};
use fair_semaphore::FairSemaphore;

/// Bytes of a user agent that are kept.
const USER_AGENT_SIZE_MAX: usize = 256;
/// Bytes of a query or of selectors that are kept: a longer query is rejected.
const TEXT_SIZE_MAX: usize = 1 << 20;

/// The client's address of a connection. An extension of each of its requests.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub SocketAddr);

/// The authenticated user. An extension of a request where authentication is configured.
#[derive(Debug, Clone)]
pub struct User {
    /// The name of the user or token.
    pub name: Arc<str>,
    /// The tenant that the requests of the user are restricted to.
    pub tenant: Option<Arc<Tenant>>,
}

/// The series that some users may read, and the labels of what they write.
#[derive(Debug)]
pub struct Tenant {
    /// Matchers that are added to every selection of a request.
    pub matchers: Arc<[Matcher]>,
    /// Labels that all series of a write request get.
    pub labels: Vec<(String, String)>,
    /// One permit for each read that may be active, if their number is limited.
    pub reads: Option<FairSemaphore>,
    /// Limits of its reads.
    pub limits: TenantLimits,
    /// The budget of this memory, from the first read on.
    memory: OnceLock<MemoryBudget>,
}

/// Limits of the reads of a tenant. `None`: no limit.
#[derive(Debug, Clone, Default)]
pub struct TenantLimits {
    /// Maximum memory of all reads together in bytes.
    pub memory_max: Option<usize>,
    /// Maximum number of samples that one request reads.
    pub samples_max: Option<u64>,
    /// Maximum length of the time that one selector reads.
    pub range_max: Option<Duration>,
}

impl TenantLimits {
    /// Limits a request.
    pub(crate) fn apply(&self, ctx: &QueryContext) {
        self.samples_max
            .inspect(|&samples_max| ctx.limit_samples(Limit::TenantSamples, samples_max));
        self.range_max
            .inspect(|&range_max| ctx.limit_range(Limit::TenantRange, range_max));
    }
}

impl Tenant {
    /// Creates a tenant without limits.
    pub fn new(matchers: Arc<[Matcher]>, labels: Vec<(String, String)>) -> Self {
        Self {
            matchers,
            labels,
            reads: None,
            limits: TenantLimits::default(),
            memory: OnceLock::new(),
        }
    }

    /// Returns the budget on which its reads draw, a part of the budget of all queries.
    pub(crate) fn memory(&self, of_all: &MemoryBudget) -> MemoryBudget {
        let limited = |max| {
            self.memory
                .get_or_init(|| of_all.child(Limit::TenantMemory, max))
                .clone()
        };
        self.limits
            .memory_max
            .map_or_else(|| of_all.clone(), limited)
    }
}

/// Details of a request.
#[derive(Debug)]
pub struct RequestContext {
    /// Counts from 1 since the start of the process.
    pub id: u64,
    /// Start of the request.
    pub started: Timestamp,
    /// The method.
    pub method: Method,
    /// The route, with path parameters as Prometheus writes them: `:name`.
    pub route: String,
    /// The client's address.
    pub client: Option<SocketAddr>,
    /// The user agent, truncated.
    pub user_agent: String,
    /// Empty without authentication.
    pub user: Arc<str>,
    /// The tenant that the request is restricted to.
    pub tenant: Option<Arc<Tenant>>,
    parameters: OnceLock<(Parameters, Option<Charge>)>,
    times: OnceLock<Times>,
    stats: OnceLock<QueryStats>,
    trace: OnceLock<Trace>,
    is_read: AtomicBool,
}

/// The time range of a query.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// Start of the range, or the time of an instant query.
    pub start_ms: i64,
    /// End of the range, included.
    pub end_ms: i64,
    /// 0 for an instant query.
    pub step_ms: i64,
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

tokio::task_local! {
    static CURRENT: Arc<RequestContext>;
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl RequestContext {
    /// Creates the context of a request.
    pub fn new(
        method: Method,
        route: String,
        client: Option<SocketAddr>,
        user_agent: &str,
        user: Option<User>,
    ) -> Arc<Self> {
        let User { name: user, tenant } = user.unwrap_or_else(|| User {
            name: Arc::from(""),
            tenant: None,
        });
        Arc::new(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            started: Timestamp::now(),
            method,
            route,
            client,
            user_agent: truncate(user_agent, USER_AGENT_SIZE_MAX).to_owned(),
            user,
            tenant,
            parameters: OnceLock::new(),
            times: OnceLock::new(),
            stats: OnceLock::new(),
            trace: OnceLock::new(),
            is_read: AtomicBool::new(false),
        })
    }

    /// Runs `work` in this context.
    pub async fn scope<F: Future>(self: Arc<Self>, work: F) -> F::Output {
        CURRENT.scope(self, work).await
    }

    /// Returns the context of the running task, or an empty one outside of a request.
    pub fn current() -> Arc<Self> {
        let empty = || Self::new(Method::GET, String::new(), None, "", None);
        CURRENT
            .try_with(Arc::clone)
            .unwrap_or_else(|_outside| empty())
    }

    /// Returns the sender of a write.
    pub fn sender(&self) -> Client {
        let (user_agent, user, path) = (
            self.user_agent.clone(),
            Arc::clone(&self.user),
            self.route.clone(),
        );
        Client {
            address: self.client,
            user_agent,
            user,
            path,
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
    pub fn note_times(&self, times: Times) {
        self.times.get_or_init(|| times);
    }

    /// Returns the times, if this is a query.
    pub fn times(&self) -> Option<Times> {
        self.times.get().copied()
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
        let is_safe = matches!(self.method, Method::GET | Method::HEAD | Method::OPTIONS);
        !is_safe && !self.is_read.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(method: Method) -> Arc<RequestContext> {
        RequestContext::new(
            method,
            String::new(),
            None,
            &"ä".repeat(USER_AGENT_SIZE_MAX),
            Some(User {
                name: Arc::from("ann"),
                tenant: None,
            }),
        )
    }

    #[test]
    fn the_first_parameters_are_kept() {
        let context = context(Method::GET);
        assert_eq!(
            (&*context.user, context.user_agent.len()),
            ("ann", USER_AGENT_SIZE_MAX)
        );
        assert_eq!(context.parameters().text, "");
        for text in ["a", "b"] {
            context.note_parameters(
                Parameters {
                    text: text.to_owned(),
                    ..Parameters::default()
                },
                None,
            );
        }
        assert_eq!(context.parameters().text, "a");
    }

    #[test]
    fn a_request_that_may_have_written_is_not_a_read() {
        assert!(!context(Method::GET).may_have_written());
        let context = context(Method::POST);
        assert!(context.may_have_written());
        context.note_read();
        assert!(!context.may_have_written());
    }
}
