//! The life of a request for data: start -> admit -> work -> end.
//!
//! Used by HTTP, gRPC and rules. A request starts when it enters the list of active requests. HTTP
//! and gRPC then wait for a permit of their gate; rules wait for none. When the work has ended, the
//! query breaker, the most expensive queries and the query log learn of it.
//!
//! Invariants
//! 1. [`Requests::context`] is the only way from a client's read of data to a context, which has
//!    the restriction and the limits of its tenant. Rules read all data. Administrative requests
//!    add the matchers of their tenant themselves.
//! 2. Everything that a request needs memory for is charged to one budget: its body, its form, its
//!    work, its response and the compression of that. `--query.max-memory` bounds the sum.

use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus::proto::MetricFamily;
use varve_config::settings::ServerSettings;
use varve_context::{Limit, MemoryBudget, QueryContext, ReadOptions};
use varve_env::{Clock, SystemClock};
use varve_system::metrics::{Registrar, SummaryVec, counts};
use varve_tsdb::ReadContext;

use super::active::{ActiveRequests, Registration};
use super::record::{Active, ActiveClass, RequestClass, RequestRecord};
use crate::queries::query_breaker::QueryBreaker;
use crate::queries::query_log::{LoggedQuery, QueryLog, QueryOrigin};
use crate::queries::query_stats;
use crate::queries::top_queries::{QueryCost, TopQueries};
use crate::traces::Trace;

const QUERY_SECONDS: &str = "prometheus_engine_query_duration_seconds";

/// What all requests of a server share.
#[derive(Debug)]
pub struct Requests {
    /// The active requests.
    pub active: Arc<ActiveRequests>,
    /// The query log.
    pub query_log: QueryLog,
    /// The most expensive queries.
    pub top_queries: TopQueries,
    /// Queries that exceeded a memory limit.
    pub query_breaker: QueryBreaker,
    /// Seconds of queries, by Prometheus' names of their phases.
    query_seconds: SummaryVec,
    limits: RequestLimits,
    /// Bounds the memory of all queries and metadata requests.
    query_memory: MemoryBudget,
    /// Bounds the memory of request bodies of writes.
    write_memory: MemoryBudget,
}

/// Limits of one request.
#[derive(Debug)]
struct RequestLimits {
    timeout_max: Duration,
    query_memory_max: usize,
    write_memory_max: usize,
    /// Series of a metadata request.
    metadata_series_max: Option<u64>,
    /// Reads return partial results instead of waiting for the replay.
    takes_partial: bool,
}

/// Why a request failed.
#[derive(Debug, Clone, Copy)]
pub struct RequestFailure<'a> {
    /// The reason.
    pub reason: &'a str,
    /// The request exceeded a memory limit that the query breaker counts.
    pub is_memory_limit: bool,
    /// The request is malformed. As in Prometheus, a query that does not parse is not logged.
    pub is_malformed: bool,
}

impl Requests {
    /// Creates what the requests of a server share, without a request.
    ///
    /// # Errors
    /// If another metric has the same name.
    pub fn new(settings: &ServerSettings, registrar: &Registrar<'_>) -> prometheus::Result<Self> {
        let active = Arc::<ActiveRequests>::default();
        let reclaimer = Arc::<ActiveRequests>::clone(&active);
        Ok(Self {
            active,
            query_log: QueryLog::new(registrar)?,
            top_queries: TopQueries::default(),
            query_breaker: QueryBreaker::new(
                settings.query.breaker_failures,
                settings.query.breaker_timeout,
            ),
            query_seconds: registrar.summary(QUERY_SECONDS)?,
            limits: RequestLimits {
                timeout_max: settings.query.timeout,
                query_memory_max: settings.query.memory_max,
                write_memory_max: settings.write.bytes_in_flight_max,
                metadata_series_max: settings.query.metadata_series_max,
                takes_partial: settings.query.partial_during_replay,
            },
            query_memory: MemoryBudget::with_reclaimer(
                Limit::QueryMemoryTotal,
                settings.query.memory_total_max,
                reclaimer,
            ),
            write_memory: MemoryBudget::new(
                Limit::WritesMemory,
                settings.write.bytes_in_flight_max,
            ),
        })
    }

    /// Collects the metrics of active requests and of their memory.
    pub fn collect(&self) -> Vec<MetricFamily> {
        counts([
            (
                "varve_active_request_log_dropped_total",
                self.active.n_dropped(),
            ),
            ("varve_query_memory_bytes", self.query_memory.used() as u64),
            ("varve_ingest_body_bytes", self.write_memory.used() as u64),
            (
                "varve_query_memory_max_bytes",
                self.query_memory.limit() as u64,
            ),
        ])
    }

    /// Returns the memory of all queries and metadata requests.
    pub fn query_memory(&self) -> &MemoryBudget {
        &self.query_memory
    }

    /// Returns the memory budget of a request that reads, a part of its tenant's.
    pub fn memory<'a>(&self, request: &'a RequestRecord) -> &'a MemoryBudget {
        request.memory(|| {
            let all = match &request.tenant {
                Some(tenant) => tenant.memory(&self.query_memory),
                None => &self.query_memory,
            };
            all.child(Limit::QueryMemory, self.limits.query_memory_max)
        })
    }

    /// Returns the memory budget of a write request. It is separate from that of reads, so that the
    /// memory of bodies is known.
    pub fn memory_of_write<'a>(&self, request: &'a RequestRecord) -> &'a MemoryBudget {
        request.memory(|| {
            self.write_memory
                .child(Limit::WritesMemory, self.limits.write_memory_max)
        })
    }

    /// Returns the context of a request that reads: its deadline, its cancellation, its memory
    /// budget, its limits, and the restriction to its tenant.
    pub fn context(
        &self,
        request: &RequestRecord,
        class: RequestClass,
        timeout: Option<Duration>,
    ) -> ReadContext {
        let memory = self.memory(request).clone();
        let timeout = self.timeout(timeout);
        let mut options = ReadOptions {
            takes_partial: self.limits.takes_partial,
            ..ReadOptions::default()
        };
        if class == RequestClass::Metadata {
            let series_max = self.limits.metadata_series_max;
            options.series_max = series_max.map(|series_max| (Limit::MetadataSeries, series_max));
        }
        match &request.tenant {
            Some(tenant) => {
                tenant.limit(&mut options);
                let ctx = QueryContext::with_options(timeout, memory, options);
                ReadContext::restricted(ctx, Arc::clone(&tenant.matchers))
            }
            None => ReadContext::unrestricted(QueryContext::with_options(timeout, memory, options)),
        }
    }

    /// Returns the timeout of a request that asks for `timeout`.
    pub fn timeout(&self, timeout: Option<Duration>) -> Duration {
        let timeout_max = self.limits.timeout_max;
        timeout.map_or(timeout_max, |timeout| timeout.min(timeout_max))
    }

    /// Returns the context of a write request with a deadline after `timeout`.
    pub fn write_context(&self, request: &RequestRecord, timeout: Duration) -> QueryContext {
        QueryContext::new(timeout, self.memory_of_write(request).clone())
    }

    /// Returns the context of an administrative request, which has no deadline. It has no
    /// restriction either: the caller adds the matchers of the tenant.
    pub fn admin_context(&self, request: &RequestRecord) -> ReadContext {
        let memory = self.memory(request).clone();
        ReadContext::unrestricted(QueryContext::new(Duration::MAX, memory))
    }

    /// Returns the memory budget of a query for work of the server itself.
    pub fn own_memory(&self) -> MemoryBudget {
        self.query_memory
            .child(Limit::QueryMemory, self.limits.query_memory_max)
    }

    /// Starts a request: it is active until the registration is dropped.
    pub fn start(
        &self,
        request: &Arc<RequestRecord>,
        class: impl Into<ActiveClass>,
        ctx: &QueryContext,
    ) -> Registration {
        self.active.register(request, class.into(), ctx)
    }

    /// Ends a request whose work has ended, with the reason if it failed.
    pub fn end(&self, registration: Registration, failure: Option<RequestFailure<'_>>) {
        let request = registration.request();
        let reason = failure.map(|failure| failure.reason);
        if let Some(active) = request.active() {
            if active.class == RequestClass::Query.into() {
                if failure.is_none_or(|failure| failure.is_memory_limit) {
                    self.query_breaker.record(request, reason, Instant::now());
                }
                self.note_cost(request, active, reason.is_some());
            }
            if failure.is_none_or(|failure| !failure.is_malformed) {
                self.log_query(request, active, reason);
            }
        }
        registration.record_end(reason);
    }

    /// Adds a query that has ended to the most expensive ones.
    fn note_cost(&self, request: &RequestRecord, active: &Active, has_failed: bool) {
        if request.steps().is_none() {
            return;
        }
        let queued = active.queued();
        let evaluated = active.age().saturating_sub(queued);
        self.query_seconds
            .observe("queue_time", queued.as_secs_f64());
        self.query_seconds
            .observe("inner_eval", evaluated.as_secs_f64());
        let seconds = evaluated.as_secs_f64();
        let cost = QueryCost {
            n_queries: 1,
            n_failed: u64::from(has_failed),
            seconds,
            seconds_max: seconds,
            n_samples: active.ctx.n_samples(),
            memory_peak_max: active.ctx.memory().peak(),
            requester: request.requester(),
            ..QueryCost::default()
        };
        self.top_queries
            .add(SystemClock.now_ms(), &request.parameters().text, cost);
    }

    /// Writes a query that has ended to the query log, with the reason if it failed.
    fn log_query(&self, request: &RequestRecord, active: &Active, reason: Option<&str>) {
        if !self.query_log.is_enabled() {
            return;
        }
        let Some(steps) = request.steps() else {
            return;
        };
        let ctx = &active.ctx;
        let queued = active.queued();
        let stats = match request.stats() {
            Some(stats) => query_stats::to_json(stats, queued),
            None => {
                let worked = active.age().saturating_sub(queued);
                query_stats::failed_query(queued, worked, ctx.n_samples())
            }
        };
        let (query, origin) = match &request.rule {
            Some(rule) => (
                &rule.expr,
                QueryOrigin::RuleGroup {
                    file: &rule.file,
                    name: &rule.group,
                },
            ),
            None => (
                &request.parameters().text,
                QueryOrigin::Http {
                    client_ip: request
                        .client
                        .map(|client| client.ip().to_string())
                        .unwrap_or_default(),
                    method: &request.method,
                    path: &request.route,
                    requester: request.requester(),
                },
            ),
        };
        self.query_log.log(&LoggedQuery {
            query,
            start_ms: steps.start_ms(),
            end_ms: steps.end_ms(),
            step_s: steps.step_ms() / 1000,
            error: reason,
            stats,
            n_series: ctx.n_series(),
            memory_peak_bytes: ctx.memory().peak(),
            trace: request.trace().map(Trace::ids),
            origin,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::tenant::Tenant;
    use crate::requests::tenant::User;
    use prometheus::Registry;
    use varve_config::web::{TenantConfig, TenantLimits};
    use varve_model::Matcher;
    use varve_wire::active_requests::GrafanaSource;

    const MEMORY_MAX: usize = 1000;

    fn requests() -> Requests {
        let registry = Registry::new();
        let registrar = Registrar(&registry);
        Requests {
            active: Arc::default(),
            query_log: QueryLog::new(&registrar).unwrap(),
            top_queries: TopQueries::default(),
            query_breaker: QueryBreaker::new(0, Duration::ZERO),
            query_seconds: registrar.summary(QUERY_SECONDS).unwrap(),
            limits: RequestLimits {
                timeout_max: Duration::from_secs(60),
                query_memory_max: MEMORY_MAX,
                write_memory_max: MEMORY_MAX,
                metadata_series_max: None,
                takes_partial: false,
            },
            query_memory: MemoryBudget::new(Limit::QueryMemoryTotal, 10 * MEMORY_MAX),
            write_memory: MemoryBudget::new(Limit::WritesMemory, 10 * MEMORY_MAX),
        }
    }

    fn request(user: Option<User>) -> Arc<RequestRecord> {
        RequestRecord::new(
            "POST",
            "/x".to_owned(),
            None,
            "",
            GrafanaSource::default(),
            user,
        )
    }

    /// The form, the work and the response had a budget each.
    #[test]
    fn all_parts_of_a_request_draw_on_one_budget() {
        varve_config::limits::name_limits();
        let requests = requests();
        let first = request(None);
        let mut form = requests.memory(&first).charge();
        form.grow(MEMORY_MAX * 9 / 10).unwrap();
        let ctx = requests.context(&first, RequestClass::Query, None);
        let mut work = ctx.charge();
        let refused = work.grow(MEMORY_MAX * 2 / 10).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "--query.max-memory: 1100 exceeds the limit of 1000"
        );
        let second = request(None);
        let ctx = requests.context(&second, RequestClass::Query, None);
        ctx.charge().grow(MEMORY_MAX * 2 / 10).unwrap();

        drop(form);
        work.grow(MEMORY_MAX * 2 / 10).unwrap();
        assert_eq!(requests.query_memory().used(), MEMORY_MAX * 2 / 10);
    }

    #[test]
    fn a_context_has_the_restriction_of_its_tenant() {
        let requests = requests();
        let tenant = Tenant::new(&TenantConfig {
            users: Vec::new(),
            matchers: vec![Matcher::equal("team", "a")],
            labels: Vec::new(),
            limits: TenantLimits::default(),
        });
        let user = User {
            name: Arc::from("ann"),
            tenant: Some(Arc::new(tenant)),
        };
        let ctx = requests.context(&request(Some(user)), RequestClass::Query, None);
        assert_eq!(ctx.restriction().len(), 1);
        let ctx = requests.context(&request(None), RequestClass::Query, None);
        assert!(ctx.restriction().is_empty());
    }
}
