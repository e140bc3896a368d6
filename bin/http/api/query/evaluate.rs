//! /api/v1/query, query_range, query_explain, format_query, parse_query.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use varve_query::{Asked, MatrixSeries, QueryResult, Request, Times, Value, VectorSample, promql};
use varve_tsdb::{Clock, SystemClock};

use super::stats;
use super::stats::Wanted;
use crate::http::App;
use crate::http::error::ApiError;
use crate::http::json;
use crate::http::params::{Form, Steps};
use crate::http::serving::run::{Class, TRUNCATED, Work, run, run_shared};
use crate::server::request_context as call;
use crate::server::request_context::Call;
use crate::server::usage::Requester;

/// Points that are written between two steps of the answer's writer.
const POINTS_PER_STEP: usize = 64;

/// GET and POST /api/v1/query.
pub(crate) async fn instant(State(app): State<Arc<App>>, who: Requester, form: Form) -> Response {
    let (time_ms, options) = match (|| {
        let limit = form.limit()?;
        let time_ms = form.optional_time_ms("time")?.unwrap_or_else(|| SystemClock.now_ms());
        Ok::<_, ApiError>((time_ms, Options::read(&form, limit)?))
    })() {
        Ok(read) => read,
        Err(refused) => return refused.into_response(),
    };
    evaluate(&app, who, options, Times::Instant(time_ms)).await
}

/// GET and POST /api/v1/query_range.
pub(crate) async fn range(State(app): State<Arc<App>>, who: Requester, form: Form) -> Response {
    let (steps, options) = match (|| {
        let limit = form.limit()?;
        Ok::<_, ApiError>((form.steps(app.settings.points_max)?, Options::read(&form, limit)?))
    })() {
        Ok(read) => read,
        Err(refused) => return refused.into_response(),
    };
    let Steps { start_ms, end_ms, step_ms } = steps;
    evaluate(&app, who, options, Times::Range { start_ms, end_ms, step_ms }).await
}

/// GET and POST /api/v1/query_explain: evaluates a query, at one time or, with `start`, `end` and `step`, over a range, and
/// answers with what each operator of its plan did instead of its value.
pub(crate) async fn explain(State(app): State<Arc<App>>, who: Requester, form: Form) -> Response {
    let (times, options) = match (|| {
        let times = if ["start", "end", "step"].iter().all(|name| form.first(name).is_empty()) {
            Times::Instant(form.optional_time_ms("time")?.unwrap_or_else(|| SystemClock.now_ms()))
        } else {
            let Steps { start_ms, end_ms, step_ms } = form.steps(app.settings.points_max)?;
            Times::Range { start_ms, end_ms, step_ms }
        };
        Ok::<_, ApiError>((times, Options { stats: Wanted::Plan, ..Options::read(&form, None)? }))
    })() {
        Ok(read) => read,
        Err(refused) => return refused.into_response(),
    };
    note_times(times);
    let call = Call::current();
    run(&app, Class::Query, options.timeout, move |work| {
        let result = options.evaluate(work, &who, times, options.stats.asked())?;
        result.stats.iter().for_each(|stats| call.note_stats(stats));
        work.out.leave_gate();
        work.open();
        if let Some(stats) = &result.stats {
            stats::write_explained(work.out.buffer(), stats, work.queued);
        }
        let warnings: Vec<String> = result.annotations.warnings().collect();
        let infos: Vec<String> = result.annotations.infos().collect();
        work.close(&warnings, &infos)
    })
    .await
}

async fn evaluate(app: &Arc<App>, who: Requester, options: Options, times: Times) -> Response {
    note_times(times);
    let call = Call::current();
    let is_logged = app.query_log.is_enabled();
    run_shared(app, Class::Query, options.timeout, format!("{who:?} {options:?} {times:?}"), move |work| {
        // The query log has statistics also where the answer has none.
        let asked = if is_logged { options.stats.asked_for_log() } else { options.stats.asked() };
        let result = options.evaluate(work, &who, times, asked)?;
        result.stats.iter().for_each(|stats| call.note_stats(stats));
        write_result(work, result, &options)
    })
    .await
}

/// Notes the times of a query for lists and logs.
fn note_times(times: Times) {
    let (start_ms, end_ms, step_ms) = match times {
        Times::Instant(time_ms) => (time_ms, time_ms, 0),
        Times::Range { start_ms, end_ms, step_ms } => (start_ms, end_ms, step_ms),
    };
    Call::current().note_times(call::Times { start_ms, end_ms, step_ms });
}

/// GET and POST /api/v1/format_query.
pub(crate) async fn format(State(app): State<Arc<App>>, form: Form) -> Response {
    let features = app.settings.features;
    run(&app, Class::Query, None, move |work| {
        let expr = promql::parse(form.first("query"), &features)?;
        let text = promql::prettify(&expr);
        work.open();
        json::write_html_string(work.out.buffer(), text.as_bytes());
        work.close(&[], &[])
    })
    .await
}

/// GET and POST /api/v1/parse_query.
pub(crate) async fn parse(State(app): State<Arc<App>>, form: Form) -> Response {
    let features = app.settings.features;
    run(&app, Class::Query, None, move |work| {
        let expr = promql::parse(form.first("query"), &features)?;
        work.open();
        work.out.buffer().extend_from_slice(promql::to_json(&expr).as_bytes());
        work.close(&[], &[])
    })
    .await
}

/// The parameters that both kinds of queries have.
#[derive(Debug)]
struct Options {
    query: String,
    timeout: Option<std::time::Duration>,
    lookback_delta_ms: Option<i64>,
    limit: Option<usize>,
    stats: Wanted,
    stats_warning: Option<String>,
}

impl Options {
    /// `limit` is read by the caller, as Prometheus checks it before the times.
    fn read(form: &Form, limit: Option<usize>) -> Result<Self, ApiError> {
        let timeout = form.timeout()?;
        let lookback_delta_ms = form.lookback_delta_ms()?;
        let stats = form.first("stats");
        let (stats, stats_warning) = (Wanted::read(stats), Wanted::warning(stats));
        Ok(Self { query: form.first("query").to_owned(), timeout, lookback_delta_ms, limit, stats, stats_warning })
    }

    fn evaluate(&self, work: &Work, who: &Requester, times: Times, stats: Asked) -> Result<QueryResult, ApiError> {
        let Self { query, lookback_delta_ms, .. } = self;
        let request = Request { query, times, lookback_delta_ms: *lookback_delta_ms, stats };
        let parsed = work.store.engine.parse(query)?;
        work.store.note_query(who, parsed.expr());
        Ok(work.store.engine.run_parsed(&work.store.db, &work.ctx, parsed, &request)?)
    }
}

fn write_result(work: &mut Work, result: QueryResult, options: &Options) -> Result<(), ApiError> {
    work.out.leave_gate();
    let QueryResult { value, annotations, stats } = result;
    // The value outlives its evaluation by as long as the client takes to read it.
    let mut charge = work.ctx.charge();
    charge.grow(size_of_value(&value))?;
    let limit = options.limit.unwrap_or(usize::MAX);
    work.open();
    let truncated = write_value(work, value, limit)?;
    if let Some(stats) = stats.filter(|_| options.stats != Wanted::None) {
        work.out.buffer().extend_from_slice(b",\"stats\":");
        stats::write(work.out.buffer(), &stats, work.queued, options.stats);
    }
    work.out.buffer().push(b'}');
    let mut warnings: Vec<String> = annotations.warnings().collect();
    warnings.extend(truncated.then(|| TRUNCATED.to_owned()));
    warnings.extend(options.stats_warning.clone());
    let infos: Vec<String> = annotations.infos().collect();
    work.close(&warnings, &infos)
}

/// Returns the bytes that a value holds; label sets that other values share count in full.
fn size_of_value(value: &Value) -> usize {
    match value {
        Value::Scalar(_) => 0,
        Value::String { value, .. } => value.len(),
        Value::Vector(samples) => {
            let of_histogram = |s: &VectorSample| s.histogram.as_ref().map_or(0, |histogram| histogram.size());
            samples.iter().map(|s| size_of::<VectorSample>() + s.labels.size() + of_histogram(s)).sum()
        }
        Value::Matrix(matrix) => {
            let size = |s: &MatrixSeries| {
                let of_points =
                    size_of_val(&*s.points) + s.histograms.iter().map(|h| h.histogram.size()).sum::<usize>();
                size_of::<MatrixSeries>() + s.labels.size() + of_points
            };
            matrix.iter().map(size).sum()
        }
    }
}

/// Writes a value with its type, as the begin of an object; returns whether `limit` cut it.
fn write_value(work: &mut Work, value: Value, limit: usize) -> Result<bool, ApiError> {
    let kind = match value {
        Value::Scalar(_) => "scalar",
        Value::String { .. } => "string",
        Value::Vector(_) => "vector",
        Value::Matrix(_) => "matrix",
    };
    work.out.buffer().extend_from_slice(format!("{{\"resultType\":\"{kind}\",\"result\":").as_bytes());
    let mut truncated = false;
    match value {
        Value::Scalar(point) => write_pair(work, point.timestamp_ms, |out| json::write_scalar(out, point.value)),
        Value::String { timestamp_ms, value } => {
            write_pair(work, timestamp_ms, |out| json::write_html_string(out, &value));
        }
        Value::Vector(samples) => {
            truncated = samples.len() > limit;
            work.array(samples.into_iter().take(limit), write_sample)?;
        }
        Value::Matrix(series) => {
            truncated = series.len() > limit;
            write_matrix(work, series.into_iter().take(limit))?;
        }
    }
    Ok(truncated)
}

fn write_pair(work: &mut Work, timestamp_ms: i64, write: impl FnOnce(&mut Vec<u8>)) {
    let out = work.out.buffer();
    out.push(b'[');
    json::write_float_timestamp(out, timestamp_ms);
    out.push(b',');
    write(out);
    out.push(b']');
}

fn write_sample(out: &mut Vec<u8>, sample: VectorSample) {
    out.extend_from_slice(b"{\"metric\":");
    json::write_labels(out, &sample.labels);
    let timestamp_ms = sample.point.timestamp_ms;
    match &sample.histogram {
        None => {
            out.extend_from_slice(b",\"value\":");
            json::write_point(out, timestamp_ms, sample.point.value);
        }
        Some(histogram) => {
            out.extend_from_slice(b",\"histogram\":");
            json::write_histogram_point(out, timestamp_ms, histogram);
        }
    }
    out.push(b'}');
}

fn write_matrix(work: &mut Work, matrix: impl Iterator<Item = MatrixSeries>) -> Result<(), ApiError> {
    work.out.buffer().push(b'[');
    for (i, series) in matrix.enumerate() {
        work.comma(i);
        let out = work.out.buffer();
        out.extend_from_slice(b"{\"metric\":");
        json::write_labels(out, &series.labels);
        write_points(work, b",\"values\":", &series.points, |out, point| {
            json::write_point(out, point.timestamp_ms, point.value);
        })?;
        write_points(work, b",\"histograms\":", &series.histograms, |out, point| {
            json::write_histogram_point(out, point.timestamp_ms, &point.histogram);
        })?;
        work.out.buffer().push(b'}');
    }
    work.out.buffer().push(b']');
    Ok(())
}

/// Writes the points of a series as an array behind its key, unless there are none.
fn write_points<P>(
    work: &mut Work,
    key: &[u8],
    points: &[P],
    write: impl Fn(&mut Vec<u8>, &P),
) -> Result<(), ApiError> {
    for (n, points) in points.chunks(POINTS_PER_STEP).enumerate() {
        let out = work.out.buffer();
        if n == 0 {
            out.extend_from_slice(key);
        }
        for (i, point) in points.iter().enumerate() {
            out.push(if n + i == 0 { b'[' } else { b',' });
            write(out, point);
        }
        work.out.step()?;
    }
    if !points.is_empty() {
        work.out.buffer().push(b']');
    }
    Ok(())
}
