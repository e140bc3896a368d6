//! `Query/Query` and `Query/QueryRange`: queries of a distributed querier, which aggregates the
//! results of several stores. The expression sees the external labels.

use std::sync::Arc;
use std::time::Duration;

use varve_env::{Clock, SystemClock};
use varve_model::{Sample, SampleColumns};
use varve_query::stats::StatsMode;
use varve_query::{HistogramPoint, MatrixSeries, QueryResult, Request, Steps, Value, VectorSample};
use varve_server::requests::record::Parameters;
use varve_server::store::Store;

use super::call::{Caller, Method};
use super::external::{ExternalLabels, own_matchers};
use super::frame::Frames;
use super::message_size::size_of_labels;
use crate::api::query::evaluate::evaluate as evaluate_query;
use crate::error::{ApiError, ErrorKind, Result};
use crate::serving::run::{RequestClass, Work};
use varve_wire::prometheus::remote_read::{TimeSeries, labels};
use varve_wire::thanos::query::{
    QueryPart, QueryRangeRequest, QueryRequest, QueryResponse, QueryStats, StoreMatchers,
    TimeSeriesBatch,
};
use varve_wire::thanos::store::ShardInfo;

/// Maximum number of series in a message.
const BATCH_SERIES_MAX: usize = 64;
/// Memory of the series of a message in bytes from which it is sent.
const BATCH_MEMORY_MAX: usize = 1 << 20;
/// Memory of a float in bytes: in columns that may be half empty, and in a message that may be.
const POINT_MEMORY: usize = 96;
/// Memory of a native histogram in a message in bytes, without its buckets, with the overhead of its
/// allocations.
const HISTOGRAM_MEMORY: usize = 512;

impl Method for QueryRequest {
    const PATH: &'static str = "/thanos.Query/Query";
    const SERVES_TENANTS: bool = true;

    fn class(&self) -> RequestClass {
        RequestClass::Query
    }

    fn timeout(&self) -> Option<Duration> {
        positive_seconds(self.timeout_seconds)
    }

    fn shown(&self) -> Parameters {
        Parameters {
            text: self.query.clone(),
            start: self.time_seconds.to_string(),
            ..Parameters::default()
        }
    }

    fn respond(self, caller: &Caller, work: &mut Work, out: &mut Frames) -> Result<()> {
        let time_ms = if self.time_seconds == 0 {
            SystemClock.now_ms()
        } else {
            milliseconds(self.time_seconds)
        };
        let evaluation = Evaluation {
            query: self.query,
            steps: Steps::instant(time_ms),
            replica_labels: self.replica_labels,
            store_matchers: self.store_matchers,
            enable_dedup: self.enable_dedup,
            shard_info: self.shard_info,
            lookback_delta_seconds: self.lookback_delta_seconds,
            response_batch_size: self.response_batch_size,
        };
        evaluate(&evaluation, caller, work, out)
    }
}

impl Method for QueryRangeRequest {
    const PATH: &'static str = "/thanos.Query/QueryRange";
    const SERVES_TENANTS: bool = true;

    fn class(&self) -> RequestClass {
        RequestClass::Query
    }

    fn timeout(&self) -> Option<Duration> {
        positive_seconds(self.timeout_seconds)
    }

    fn shown(&self) -> Parameters {
        Parameters {
            text: self.query.clone(),
            start: self.start_time_seconds.to_string(),
            end: self.end_time_seconds.to_string(),
            step: self.interval_seconds.to_string(),
        }
    }

    fn respond(self, caller: &Caller, work: &mut Work, out: &mut Frames) -> Result<()> {
        if self.interval_seconds <= 0 {
            return Err(ApiError::bad_data(format!(
                "step of {} s is not positive",
                self.interval_seconds
            )));
        }
        let points_max = caller.app.settings.query.points_max;
        let n_intervals = self
            .end_time_seconds
            .saturating_sub(self.start_time_seconds)
            / self.interval_seconds;
        if n_intervals > points_max as i64 {
            let text = format!("exceeded maximum resolution of {points_max} points per timeseries");
            return Err(ApiError::new(ErrorKind::TooLarge, text).with_limit("--query.max-points"));
        }
        let evaluation = Evaluation {
            query: self.query,
            steps: Steps::range(
                milliseconds(self.start_time_seconds),
                milliseconds(self.end_time_seconds),
                milliseconds(self.interval_seconds),
            ),
            replica_labels: self.replica_labels,
            store_matchers: self.store_matchers,
            enable_dedup: self.enable_dedup,
            shard_info: self.shard_info,
            lookback_delta_seconds: self.lookback_delta_seconds,
            response_batch_size: self.response_batch_size,
        };
        evaluate(&evaluation, caller, work, out)
    }
}

/// What the two requests have in common.
struct Evaluation {
    query: String,
    steps: Steps,
    replica_labels: Vec<String>,
    store_matchers: Vec<StoreMatchers>,
    enable_dedup: bool,
    shard_info: Option<ShardInfo>,
    lookback_delta_seconds: i64,
    response_batch_size: i64,
}

fn milliseconds(seconds: i64) -> i64 {
    seconds.saturating_mul(1000)
}

fn positive_seconds(seconds: i64) -> Option<Duration> {
    u64::try_from(seconds)
        .ok()
        .filter(|seconds| *seconds > 0)
        .map(Duration::from_secs)
}

/// Evaluates a query, and sends its result.
fn evaluate(
    evaluation: &Evaluation,
    caller: &Caller,
    work: &mut Work,
    out: &mut Frames,
) -> Result<()> {
    if evaluation
        .shard_info
        .as_ref()
        .is_some_and(|shard| shard.total_shards > 1)
    {
        return Err(ApiError::new(
            ErrorKind::Disabled,
            "a query cannot be sharded",
        ));
    }
    if !selects_this_store(evaluation, work, &caller.external)? {
        return Ok(());
    }
    caller.record.note_steps(evaluation.steps);

    let request = Request {
        lookback_delta_ms: positive_seconds(evaluation.lookback_delta_seconds)
            .map(|delta| delta.as_millis() as i64),
        stats: StatsMode::AsPlanned,
        external_labels: visible_labels(evaluation, &caller.external),
        ..Request::new(&evaluation.query, evaluation.steps)
    };
    let (result, _infos) = evaluate_query(work, &caller.who, None, &request, Store::note_query)?;
    let QueryResult {
        value,
        annotations,
        stats,
        charge: _value_charge,
    } = result;
    if let Some(stats) = &stats {
        caller.record.note_stats(stats);
    }
    work.out.drop_permit();

    let partial = work.ctx.partial().map(str::to_owned);
    for warning in annotations.warnings().chain(partial) {
        send(work, out, QueryPart::Warnings(warning))?;
    }
    send_value(evaluation, work, out, value)?;
    let samples = stats.map(|stats| stats.samples).unwrap_or_default();
    let stats = QueryStats {
        samples_total: samples.queryable as i64,
        peak_samples: samples.peak as i64,
    };
    send(work, out, QueryPart::Stats(stats))
}

/// Returns the external labels that the series of a query have: all but those of replicas, if the
/// query merges replicas.
fn visible_labels(evaluation: &Evaluation, external: &ExternalLabels) -> Arc<[(String, String)]> {
    let mut visible = Vec::new();
    for (name, value) in external {
        if !evaluation.enable_dedup || !evaluation.replica_labels.contains(name) {
            visible.push((name.clone(), value.clone()));
        }
    }
    visible.into()
}

/// Returns `true` without store matchers, or if the external labels match one of them.
fn selects_this_store(
    evaluation: &Evaluation,
    work: &Work,
    external: &ExternalLabels,
) -> Result<bool> {
    for StoreMatchers { matchers } in &evaluation.store_matchers {
        if own_matchers(&work.ctx, matchers, external)?.is_some() {
            return Ok(true);
        }
    }
    Ok(evaluation.store_matchers.is_empty())
}

fn send_value(
    evaluation: &Evaluation,
    work: &mut Work,
    out: &mut Frames,
    value: Value,
) -> Result<()> {
    match value {
        Value::Scalar(point) => {
            let sample = Sample {
                timestamp_ms: point.timestamp_ms,
                value: point.value,
            };
            let mut columns = SampleColumns::default();
            columns.push(sample);
            send(
                work,
                out,
                QueryPart::Series(TimeSeries::new(Vec::new(), &columns)),
            )
        }
        Value::String { .. } => Ok(()),
        Value::Vector(samples) => {
            let series = samples
                .into_iter()
                .map(|sample| Arc::new(one_point(sample)));
            send_series(evaluation, work, out, series)
        }
        Value::Matrix(series) => send_series(evaluation, work, out, series.into_iter()),
    }
}

fn send_series(
    evaluation: &Evaluation,
    work: &mut Work,
    out: &mut Frames,
    series: impl Iterator<Item = Arc<MatrixSeries>>,
) -> Result<()> {
    let batch_size = usize::try_from(evaluation.response_batch_size)
        .unwrap_or_default()
        .min(BATCH_SERIES_MAX);
    let mut batch = Vec::new();
    let mut charge = work.ctx.charge();
    for series in series {
        work.ctx.check()?;
        charge.grow(size_of_message(&series))?;
        let message = matrix_series(&series);
        if batch_size <= 1 {
            send(work, out, QueryPart::Series(message))?;
            charge = work.ctx.charge();
            continue;
        }
        batch.push(message);
        if batch.len() == batch_size || charge.size() >= BATCH_MEMORY_MAX {
            let series = std::mem::take(&mut batch);
            send(work, out, QueryPart::Batch(TimeSeriesBatch { series }))?;
            charge = work.ctx.charge();
        }
    }
    if batch.is_empty() {
        return Ok(());
    }
    send(
        work,
        out,
        QueryPart::Batch(TimeSeriesBatch { series: batch }),
    )
}

fn send(work: &mut Work, out: &mut Frames, part: QueryPart) -> Result<()> {
    out.send(work, &QueryResponse { part: Some(part) })
}

/// Returns a sample as a series.
fn one_point(sample: VectorSample) -> MatrixSeries {
    let VectorSample {
        labels,
        point,
        histogram,
    } = sample;
    match histogram {
        Some(histogram) => {
            let histograms = vec![HistogramPoint {
                timestamp_ms: point.timestamp_ms,
                histogram,
            }];
            MatrixSeries {
                labels,
                points: Vec::new(),
                histograms,
            }
        }
        None => MatrixSeries {
            labels,
            points: vec![point],
            histograms: Vec::new(),
        },
    }
}

/// Returns the maximum memory of the message of a series, and of the columns of floats from which it
/// is built.
fn size_of_message(series: &MatrixSeries) -> usize {
    let of_histograms: usize = series
        .histograms
        .iter()
        .map(|point| HISTOGRAM_MEMORY + point.histogram.stored_size())
        .sum();
    size_of_labels(&series.labels) + series.points.len() * POINT_MEMORY + of_histograms
}

/// Floats and histograms are separate lists in the message too.
fn matrix_series(
    MatrixSeries {
        labels: own,
        points,
        histograms,
    }: &MatrixSeries,
) -> TimeSeries {
    let mut floats = SampleColumns::default();
    for point in points {
        floats.push(Sample {
            timestamp_ms: point.timestamp_ms,
            value: point.value,
        });
    }
    // One at a time, so that there are not two copies of all.
    let mut messages = Vec::with_capacity(histograms.len());
    let mut column = SampleColumns::default();
    for HistogramPoint {
        timestamp_ms,
        histogram,
    } in histograms
    {
        column.clear();
        column.push_histogram(*timestamp_ms, Arc::new(histogram.to_stored()));
        messages.append(&mut TimeSeries::new(Vec::new(), &column).histograms);
    }
    TimeSeries {
        histograms: messages,
        ..TimeSeries::new(labels(own, &ExternalLabels::new()), &floats)
    }
}
