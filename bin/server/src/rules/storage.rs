//! Access of rules to the store. Each query is an active request with a deadline and a memory
//! budget.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::http::Method;
use varve_advise::usage::Requester;
use varve_context::{Limit, MemoryBudget, QueryContext, scheduler};
use varve_ingest::{RecordedBudget, RecordedRejection, RecordedSample};
use varve_model::{Labels, Matcher, Sample, SampleColumns, TimeRange};
use varve_query::stats::{QueryStats, StatsMode};
use varve_query::{
    Engine, Error, Request, ScanPlan, SharedScans, Steps, Value, VectorSample, usage,
};
use varve_rules::storage::{
    Answer, Failure, Output, OutputKind, Query, Rejected, RuleRef, Storage,
};
use varve_rules::{Notification, Time};
use varve_template::query_escaped;
use varve_tsdb::ReadContext;
use varve_tsdb::select::SelectHints;

use super::now;
use crate::active_requests::ActiveClass;
use crate::app::App;
use crate::notifier::Alert;
use crate::queries::query_log::{LoggedQuery, Origin};
use crate::queries::query_stats;
use crate::request_context::{Parameters, RequestContext, Times as RequestTimes};
use crate::store::Store;
use crate::traces::{self, Trace};

/// The path of rule queries in lists and logs.
pub const ROUTE: &str = "rule";

/// The store, for one evaluation of a group.
pub(super) struct RuleStorage<'a> {
    app: &'a App,
    store: &'a Store,
    /// Runs queries on the threads of rules, whose number is bounded.
    engine: Engine,
    /// Lets writes run first.
    yield_now: Arc<dyn Fn() + Send + Sync>,
    /// Deadline of each query.
    timeout: Duration,
}

impl<'a> RuleStorage<'a> {
    /// Creates the storage of a group that is evaluated every `interval`.
    pub(super) fn new(app: &'a App, store: &'a Store, interval: Duration) -> Self {
        let engine = store.engine.without_workers();
        let yield_now = yield_fn(app, store);
        Self {
            app,
            store,
            engine,
            yield_now,
            timeout: interval.min(app.settings.args.query_timeout),
        }
    }

    fn context(&self) -> ReadContext {
        ReadContext::unrestricted(QueryContext::new(self.timeout, self.memory()))
    }

    fn memory(&self) -> MemoryBudget {
        self.app
            .rules
            .memory
            .child(Limit::QueryMemory, self.app.settings.query_max_memory)
    }

    fn evaluate(
        &self,
        from: &RuleRef<'_>,
        ctx: &ReadContext,
        context: &RequestContext,
        &Query {
            expr,
            timestamp_ms,
            scans,
        }: &Query<'_>,
        stats: StatsMode,
    ) -> Result<(Vec<VectorSample>, Option<Box<QueryStats>>), Error> {
        let part = context.part("parse");
        let parsed = self.engine.parse(ctx, expr)?;
        let who = Requester {
            rule: from.rule.into(),
            ..Requester::default()
        };
        self.store.note_query(ctx, &who, &usage::of(parsed.expr()));
        drop(part);
        let _part = context.part("evaluate");
        let request = Request {
            stats,
            scans,
            ..Request::new(expr, Steps::instant(timestamp_ms))
        };
        let result = self
            .engine
            .run_parsed(&self.store.db, ctx, parsed, &request)?;
        match result.value {
            Value::Vector(samples) => Ok((samples, result.stats)),
            Value::Scalar(point) => Ok((
                vec![VectorSample {
                    labels: Labels::empty(),
                    point,
                    histogram: None,
                }],
                result.stats,
            )),
            Value::String { .. } | Value::Matrix(_) => Err(Error::Execution(
                "rule result is not a vector or scalar".into(),
            )),
        }
    }
}

impl Storage for RuleStorage<'_> {
    fn start_background(&self) -> Option<scheduler::Background> {
        Some(scheduler::start_background(Arc::clone(&self.yield_now)))
    }

    fn shared_scans(&self, plan: &Arc<ScanPlan>, timestamp_ms: i64) -> Option<SharedScans> {
        // The queries have deadlines.
        let ctx = ReadContext::unrestricted(QueryContext::new(Duration::MAX, self.memory()));
        Some(
            self.engine
                .shared_scans(Arc::clone(plan), ctx, timestamp_ms),
        )
    }

    fn query(&self, from: &RuleRef<'_>, query: &Query<'_>) -> Result<Answer, Failure> {
        let &Query {
            expr, timestamp_ms, ..
        } = query;
        let ctx = self.context();
        let context = RequestContext::new(Method::GET, ROUTE.into(), None, "", None);
        let text = format!("{expr} # {};{} {}", from.file, from.group, from.rule);
        context.note_parameters(
            Parameters {
                text,
                ..Parameters::default()
            },
            None,
        );
        context.note_times(RequestTimes {
            start_ms: timestamp_ms,
            end_ms: timestamp_ms,
            step_ms: 0,
        });
        if let Some(trace) = self
            .app
            .tracer
            .start(traces::Origin::Internal, || ROUTE.to_owned())
        {
            trace.note("rule.file", from.file);
            trace.note("rule.group", from.group);
            trace.note("rule.name", from.rule);
            context.note_trace(trace);
        }
        let registration =
            self.app
                .active_requests
                .register(Arc::clone(&context), ActiveClass::Rule, &ctx);
        let request = &registration.request;
        request.begin();
        registration.record_start();
        let mode = if self.app.query_log.is_enabled() {
            StatsMode::AsWritten
        } else {
            StatsMode::Off
        };
        let result = self.evaluate(from, &ctx, &context, query, mode);
        let reason = result.as_ref().err().map(ToString::to_string);
        context
            .trace()
            .zip(reason.as_deref())
            .inspect(|(trace, reason)| trace.fail(*reason));
        registration.record_end(reason.as_deref());
        if mode != StatsMode::Off {
            let stats = match &result {
                Ok((_, Some(stats))) => query_stats::to_json(stats, Duration::ZERO),
                _ => query_stats::failed_query(Duration::ZERO, request.age(), ctx.n_samples()),
            };
            self.app.query_log.log(&LoggedQuery {
                query: expr,
                start_ms: timestamp_ms,
                end_ms: timestamp_ms,
                step_s: 0,
                error: reason.as_deref(),
                stats,
                n_series: ctx.n_series(),
                memory_peak_bytes: ctx.memory().peak(),
                trace: context.trace().map(Trace::ids),
                origin: Origin::RuleGroup {
                    file: from.file,
                    name: from.group,
                },
            });
        }
        match (result, reason) {
            (Ok((samples, _)), _) => Ok(Answer {
                samples,
                n_series: ctx.n_series(),
                n_samples: ctx.n_samples(),
                peak_bytes: ctx.memory().peak() as u64,
            }),
            (Err(_), reason) => Err(Failure::new(reason.unwrap_or_default())),
        }
    }

    fn append(&self, kind: OutputKind, samples: &[Output]) -> Result<Vec<Rejected>, Failure> {
        let samples: Vec<RecordedSample<'_>> = samples
            .iter()
            .map(|output| RecordedSample {
                labels: &output.labels,
                sample: output.sample,
                histogram: output
                    .histogram
                    .as_ref()
                    .map(|histogram| Arc::new(histogram.to_stored())),
            })
            .collect();
        let budget = match kind {
            OutputKind::Recorded => RecordedBudget::Team,
            OutputKind::Alerts => RecordedBudget::Exempt,
        };
        let rejected = self.store.receiver.append_recorded(&samples, budget);
        let rejected = rejected.map_err(|error| Failure::new(error.to_string()))?;
        let rejected = rejected.into_iter();
        let rejected = rejected.map(
            |RecordedRejection {
                 index,
                 reason,
                 is_duplicate,
             }| Rejected {
                idx: index,
                reason,
                is_duplicate,
            },
        );
        Ok(rejected.collect())
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
        let failed = |error: varve_tsdb::Error| Failure::new(error.to_string());
        let found = self
            .store
            .db
            .select_with(&ctx, matchers, range, hints)
            .map_err(failed)?;
        let (mut newest, mut columns) = (Vec::new(), SampleColumns::default());
        for series in found {
            let series = series.map_err(failed)?;
            columns.clear();
            series.read(&mut columns).map_err(failed)?;
            newest.extend(
                columns
                    .iter()
                    .last()
                    .map(|sample| (series.labels().clone(), sample)),
            );
        }
        Ok(newest)
    }

    fn note_expansion(&self, from: &RuleRef<'_>, error: Option<&str>) {
        self.app.metrics.rules.note_expansion(error.is_some());
        if let Some(error) = error {
            let RuleRef { file, group, rule } = from;
            tracing::warn!(file, group, rule, error, "Expanding alert template failed");
        }
    }

    fn now(&self) -> Time {
        now()
    }

    fn is_stopping(&self) -> bool {
        self.app.rules.is_stopping()
    }

    fn notify(&self, alerts: Vec<Notification>) {
        let external_url = self.app.settings.external_url.as_str();
        self.app.notifier.send(
            alerts
                .into_iter()
                .map(|alert| to_send(alert, external_url))
                .collect(),
        );
    }
}

/// Returns a function that pauses for writes, and counts how long.
fn yield_fn(app: &App, store: &Store) -> Arc<dyn Fn() + Send + Sync> {
    let yield_fn = store.receiver.yield_fn(app.rules.options.active_writes_max);
    let total_ns = Arc::clone(&app.rules.write_pause_ns);
    Arc::new(move || {
        total_ns.fetch_add(yield_fn().as_nanos() as u64, Ordering::Relaxed);
    })
}

fn to_send(alert: Notification, external_url: &str) -> Alert {
    Alert {
        annotations: alert.annotations,
        starts_at_ms: alert.starts_at.map_or(NO_TIME_MS, Time::ms),
        ends_at_ms: alert.ends_at.ms(),
        generator_url: format!(
            "{external_url}/graph?g0.expr={}&g0.tab=1",
            query_escaped(&alert.expr)
        ),
        labels: alert.labels,
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
        let alert = Notification {
            labels: Labels::empty(),
            annotations: Arc::new(annotations),
            starts_at: Some(Time::from_ms(5)),
            ends_at: Time::from_ms(7),
            expr: "a{b=\"c d\"} > 1.5".into(),
        };
        let sent = to_send(alert, "http://h:9/p");
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
