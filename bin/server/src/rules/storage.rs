//! Access of rules to the store. Each query is an active request with a deadline and a memory
//! budget.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use varve_advise::usage::Requester;
use varve_context::{Limit, MemoryBudget, QueryContext, scheduler};
use varve_ingest::{RuleBudget, RuleSample};
use varve_model::{Labels, Matcher, Rejection, Sample, SampleColumns, TimeRange};
use varve_query::stats::StatsMode;
use varve_query::{
    Engine, Error, Request, ScanPlan, SharedScans, Steps, Value, VectorSample, usage,
};
use varve_rules::storage::{Answer, Failure, Output, OutputBudget, Query, RuleRef, Storage};
use varve_rules::{Notification, Time};
use varve_template::query_escaped;
use varve_tsdb::ReadContext;
use varve_tsdb::select::SelectHints;
use varve_wire::active_requests::RULE_ROUTE;

use super::state::{Rules, now};
use crate::notifier::OutgoingAlert;
use crate::requests::life::RequestFailure;
use crate::requests::record::{ActiveClass, Parameters, RequestRecord, RuleQuery};
use crate::store::Store;
use crate::traces::TraceOrigin;

/// The store as rules see it, with the deadline of the queries of one group.
pub(super) struct RuleStorage<'a> {
    rules: &'a Rules,
    store: &'a Store,
    /// Runs queries on the threads of rules, whose number is bounded.
    engine: Engine,
    /// Lets writes run first.
    yield_now: Arc<dyn Fn() + Send + Sync>,
    /// Deadline of each query.
    timeout: Duration,
}

impl<'a> RuleStorage<'a> {
    /// Creates the storage for queries that take at most `timeout`, and at most the time that the
    /// server allows.
    pub(super) fn new(rules: &'a Rules, store: &'a Store, timeout: Duration) -> Self {
        let engine = store.engine.without_workers();
        let yield_now = yield_fn(rules, store);
        Self {
            rules,
            store,
            engine,
            yield_now,
            timeout: timeout.min(rules.host.query_timeout),
        }
    }

    fn context(&self) -> ReadContext {
        ReadContext::unrestricted(QueryContext::new(self.timeout, self.memory()))
    }

    fn memory(&self) -> MemoryBudget {
        let memory_max = self.rules.host.query_memory_max;
        self.rules.memory.child(Limit::QueryMemory, memory_max)
    }

    /// Returns the record of a query, with its trace if it is sampled.
    fn record(&self, from: &RuleRef<'_>, query: &Query<'_>) -> Arc<RequestRecord> {
        let &Query {
            expr, timestamp_ms, ..
        } = query;
        let rule = RuleQuery {
            file: from.file.to_owned(),
            group: from.group.to_owned(),
            expr: expr.to_owned(),
        };
        let record = RequestRecord::of_rule(rule, self.memory());
        let text = format!("{expr} # {};{} {}", from.file, from.group, from.rule);
        record.note_parameters(
            Parameters {
                text,
                ..Parameters::default()
            },
            None,
        );
        record.note_steps(Steps::instant(timestamp_ms));
        let trace = self
            .rules
            .host
            .tracer
            .start(TraceOrigin::Internal, || RULE_ROUTE.to_owned());
        if let Some(trace) = trace {
            trace.note("rule.file", from.file);
            trace.note("rule.group", from.group);
            trace.note("rule.name", from.rule);
            record.note_trace(trace);
        }
        record
    }

    fn evaluate(
        &self,
        from: &RuleRef<'_>,
        ctx: &ReadContext,
        record: &RequestRecord,
        query: &Query<'_>,
    ) -> Result<Vec<VectorSample>, Error> {
        let part = record.part("parse");
        let parsed = self.engine.parse(ctx, query.expr)?;
        let who = Requester {
            rule: from.rule.into(),
            ..Requester::default()
        };
        self.store.note_query(ctx, &who, &usage::of(parsed.expr()));
        drop(part);

        let _part = record.part("evaluate");
        let stats = if self.rules.host.requests.query_log.is_enabled() {
            StatsMode::AsWritten
        } else {
            StatsMode::Off
        };
        let request = Request {
            stats,
            scans: query.scans,
            ..Request::new(query.expr, Steps::instant(query.timestamp_ms))
        };
        let result = self
            .engine
            .run_parsed(&self.store.db, ctx, parsed, &request)?;
        let samples = match result.value {
            Value::Vector(samples) => samples,
            Value::Scalar(point) => vec![VectorSample {
                labels: Labels::empty(),
                point,
                histogram: None,
            }],
            Value::String { .. } | Value::Matrix(_) => {
                return Err(Error::Execution(
                    "rule result is not a vector or scalar".into(),
                ));
            }
        };
        if let Some(stats) = &result.stats {
            record.note_stats(stats);
        }
        Ok(samples)
    }
}

impl Storage for RuleStorage<'_> {
    fn start_background(&self) -> Option<scheduler::Background> {
        Some(scheduler::start_background(Arc::clone(&self.yield_now)))
    }

    fn evaluation_context(&self, _interval: Duration) -> QueryContext {
        let memory_max = self.rules.host.query_memory_max;
        let memory = self
            .rules
            .alert_memory
            .child(Limit::QueryMemory, memory_max);
        QueryContext::new(self.timeout, memory)
    }

    fn shared_scans(&self, plan: &Arc<ScanPlan>, timestamp_ms: i64) -> Option<SharedScans> {
        // No deadline: the scans serve several queries. A scan is not interrupted with the query
        // that runs it, neither by its deadline nor by a kill or a shutdown.
        let ctx = ReadContext::unrestricted(QueryContext::new(Duration::MAX, self.memory()));
        Some(
            self.engine
                .shared_scans(Arc::clone(plan), ctx, timestamp_ms),
        )
    }

    fn query(&self, from: &RuleRef<'_>, query: &Query<'_>) -> Result<Answer, Failure> {
        let requests = &self.rules.host.requests;
        let record = self.record(from, query);
        let memory = requests.memory(&record).clone();
        let ctx = ReadContext::unrestricted(QueryContext::new(self.timeout, memory));
        let registration = requests.start(&record, ActiveClass::Rule, &ctx);
        registration.record_start();

        let result = self.evaluate(from, &ctx, &record, query);

        let reason = result.as_ref().err().map(ToString::to_string);
        if let Some(trace) = record.trace()
            && let Some(reason) = &reason
        {
            trace.fail(reason.as_str());
        }
        let failure = reason.as_deref().map(|reason| RequestFailure {
            reason,
            is_memory_limit: false,
            is_malformed: false,
        });
        requests.end(registration, failure);

        match result {
            Ok(samples) => Ok(Answer {
                samples,
                n_series: ctx.n_series(),
                n_samples: ctx.n_samples(),
                peak_bytes: ctx.memory().peak() as u64,
            }),
            Err(_) => Err(Failure::new(reason.unwrap_or_default())),
        }
    }

    fn append(&self, budget: OutputBudget, samples: &[Output]) -> Result<Vec<Rejection>, Failure> {
        let samples: Vec<RuleSample<'_>> = samples
            .iter()
            .map(|output| RuleSample {
                labels: &output.labels,
                sample: output.sample,
                histogram: output
                    .histogram
                    .as_ref()
                    .map(|histogram| Arc::new(histogram.to_stored())),
            })
            .collect();
        let budget = match budget {
            OutputBudget::Team => RuleBudget::Team,
            OutputBudget::Exempt => RuleBudget::Exempt,
        };
        self.store
            .receiver
            .append_rule_samples(&samples, budget)
            .map_err(|error| Failure::new(error.to_string()))
    }

    fn newest(
        &self,
        matchers: &[Matcher],
        range: TimeRange,
    ) -> Result<Vec<(Labels, Sample)>, Failure> {
        let ctx = self.context();
        let hints = SelectHints {
            only_newest: true,
            ..SelectHints::default()
        };
        let found = self
            .store
            .db
            .select_with(&ctx, matchers, range, hints)
            .map_err(failure)?;
        let mut newest = Vec::new();
        let mut columns = SampleColumns::default();
        for series in found {
            let series = series.map_err(failure)?;
            columns.clear();
            series.read(&mut columns).map_err(failure)?;
            if let Some(sample) = columns.iter().last() {
                newest.push((series.labels().clone(), sample));
            }
        }
        Ok(newest)
    }

    fn note_expansion(&self, from: &RuleRef<'_>, error: Option<&str>) {
        self.rules.metrics.note_expansion(error.is_some());
        if let Some(error) = error {
            let RuleRef { file, group, rule } = from;
            tracing::warn!(file, group, rule, error, "Expanding alert template failed");
        }
    }

    fn log_failure(&self, from: &RuleRef<'_>, error: &str) -> bool {
        let Some(n_suppressed) = self.rules.failure_log.admit(Instant::now()) else {
            return false;
        };
        let RuleRef { file, group, rule } = from;
        tracing::warn!(
            file,
            group,
            rule,
            error,
            n_suppressed,
            "Evaluating rule failed"
        );
        true
    }

    fn now(&self) -> Time {
        now()
    }

    fn is_stopping(&self) -> bool {
        self.rules.is_stopping()
    }

    fn notify(&self, notifications: Vec<Notification>) {
        let external_url = self.rules.options.external_url.as_str();
        let mut alerts = Vec::with_capacity(notifications.len());
        for notification in notifications {
            alerts.push(outgoing_alert(notification, external_url));
        }
        self.rules.host.notifier.enqueue(alerts);
    }
}

/// Returns a function that pauses for writes, and counts how long.
fn yield_fn(rules: &Rules, store: &Store) -> Arc<dyn Fn() + Send + Sync> {
    let yield_fn = store.receiver.yield_fn(rules.options.active_writes_max);
    let total_ns = Arc::clone(&rules.write_pause_ns);
    Arc::new(move || {
        total_ns.fetch_add(yield_fn().as_nanos() as u64, Ordering::Relaxed);
    })
}

fn failure(error: varve_tsdb::Error) -> Failure {
    Failure::new(error.to_string())
}

fn outgoing_alert(notification: Notification, external_url: &str) -> OutgoingAlert {
    OutgoingAlert {
        annotations: notification.annotations,
        starts_at_ms: notification.starts_at.map_or(NO_TIME_MS, Time::ms),
        ends_at_ms: notification.ends_at.ms(),
        generator_url: format!(
            "{external_url}/graph?g0.expr={}&g0.tab=1",
            query_escaped(&notification.expr)
        ),
        labels: notification.labels,
    }
}

/// The year 1, Go's time without a value.
const NO_TIME_MS: i64 = -62_135_596_800_000;

#[cfg(test)]
mod tests {
    use super::*;
    use varve_rules::file::Texts;

    #[test]
    fn alerts_link_to_their_expression() {
        let annotations: Texts = [("summary".to_owned(), "x".to_owned())].into();
        let notification = Notification {
            labels: Labels::empty(),
            annotations: Arc::new(annotations),
            starts_at: Some(Time::from_ms(5)),
            ends_at: Time::from_ms(7),
            expr: "a{b=\"c d\"} > 1.5".into(),
        };
        let sent = outgoing_alert(notification, "http://h:9/p");
        assert_eq!(
            sent.generator_url,
            "http://h:9/p/graph?g0.expr=a%7Bb%3D%22c+d%22%7D+%3E+1.5&g0.tab=1"
        );
        assert_eq!(
            (
                sent.starts_at_ms,
                sent.ends_at_ms,
                sent.annotations["summary"].as_str()
            ),
            (5, 7, "x")
        );
    }
}
