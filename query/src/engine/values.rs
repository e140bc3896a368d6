//! From the columns of an evaluation to the value of a query.

use std::sync::Arc;

use varve_context::Charge;
use varve_model::Labels;
use varve_promql::ast::ValueType;

use crate::error::Result;
use crate::eval::Evaluator;
use crate::eval::columns::{Limits, Series, Vector, series_size};
use crate::eval::sort::sort_by;
use crate::plan::{Plan, PlanKind};
use crate::stats::Timings;
use crate::steps::Steps;
use crate::value::{HistogramPoint, MatrixSeries, Point, Value, VectorSample};

/// Evaluates a plan at one time.
pub(super) fn instant_value(
    evaluator: &mut Evaluator<'_>,
    plan: &Plan,
    time_ms: i64,
    timings: &mut Timings,
    charge: &mut Charge,
) -> Result<Value> {
    let steps = Steps::instant(time_ms);
    match (plan.value_type, &plan.kind) {
        (ValueType::String, PlanKind::String(text)) => Ok(Value::String {
            timestamp_ms: time_ms,
            value: text.clone(),
        }),
        (ValueType::Scalar, _) => {
            let value = evaluator.scalar(plan, steps)?[0];
            Ok(Value::Scalar(Point {
                timestamp_ms: time_ms,
                value,
            }))
        }
        (_, PlanKind::Range(_)) => Ok(Value::Matrix(
            evaluator.range_vector(plan, time_ms, charge)?,
        )),
        (_, PlanKind::Subquery(subquery)) => {
            let (inner, mut vector) = evaluator.whole_subquery(subquery, steps)?;
            evaluator.finish(&mut vector)?;
            Ok(Value::Matrix(timings.sorting(|| {
                matrix(vector, inner, &evaluator.limits, charge)
            })?))
        }
        _ => {
            let mut vector = evaluator.vector(plan, steps)?;
            evaluator.finish(&mut vector)?;
            // The charge of the vector covers the samples, which are smaller than its series.
            const { assert!(size_of::<VectorSample>() <= size_of::<Series>()) };
            let (series, vector_charge) = vector.into_parts();
            charge.absorb(vector_charge);
            let samples = series
                .into_iter()
                .map(|series| VectorSample {
                    point: Point {
                        timestamp_ms: time_ms,
                        value: series.column.values[0],
                    },
                    histogram: series.column.histogram(0).cloned(),
                    labels: series.labels,
                })
                .collect();
            Ok(Value::Vector(samples))
        }
    }
}

/// Evaluates a plan at all steps. The value is a matrix.
pub(super) fn range_value(
    evaluator: &mut Evaluator<'_>,
    plan: &Plan,
    steps: Steps,
    timings: &mut Timings,
    charge: &mut Charge,
) -> Result<Value> {
    if plan.value_type == ValueType::Scalar {
        let values = evaluator.scalar(plan, steps)?;
        let points = steps
            .times_ms()
            .zip(values.iter().copied())
            .map(|(timestamp_ms, value)| Point {
                timestamp_ms,
                value,
            })
            .collect();
        let labels = Labels::empty();
        let histograms = Vec::new();
        return Ok(Value::Matrix(vec![Arc::new(MatrixSeries {
            labels,
            points,
            histograms,
        })]));
    }
    let mut vector = evaluator.vector(plan, steps)?;
    evaluator.finish(&mut vector)?;
    Ok(Value::Matrix(timings.sorting(|| {
        matrix(vector, steps, &evaluator.limits, charge)
    })?))
}

/// Converts columns to points and sorts the series by labels. Charges the points, and releases each
/// column after its conversion.
fn matrix(
    vector: Vector,
    steps: Steps,
    limits: &Limits,
    charge: &mut Charge,
) -> Result<Vec<Arc<MatrixSeries>>> {
    let (columns, mut columns_charge) = vector.into_parts();
    charge.grow(columns.len() * MatrixSeries::FIXED_SIZE)?;
    let mut series = Vec::with_capacity(columns.len());
    for (series_idx, column) in columns.into_iter().enumerate() {
        limits.check_series(series_idx)?;
        let column_size = series_size(&column);
        let converted = matrix_series(column, steps, charge)?;
        series.push(Arc::new(converted));
        columns_charge.shrink(column_size);
    }
    sort_by(&mut series, limits, |a, b| a.labels.cmp(&b.labels))?;
    Ok(series)
}

fn matrix_series(
    Series { labels, column, .. }: Series,
    steps: Steps,
    charge: &mut Charge,
) -> Result<MatrixSeries> {
    let n_floats = column.float_steps().count();
    charge.grow(labels.size() + n_floats * size_of::<Point>() + column.histograms_size())?;
    let mut points = Vec::with_capacity(n_floats);
    points.extend(column.float_steps().iter().map(|step| Point {
        timestamp_ms: steps.time_ms(step),
        value: column.values[step],
    }));
    let mut histograms = Vec::with_capacity(column.histograms.len());
    histograms.extend(column.histograms().map(|(step, histogram)| HistogramPoint {
        timestamp_ms: steps.time_ms(step),
        histogram: Arc::clone(histogram),
    }));
    Ok(MatrixSeries {
        labels,
        points,
        histograms,
    })
}
