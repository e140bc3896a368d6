//! `histogram_quantile` and related functions, for native and for classic histograms. A classic
//! histogram is a set of series that differ only in `le`.
//!
//! Series are grouped, and their bounds parsed and sorted, once for all steps. Each step then
//! collects the counts of its buckets. If a step has a native and a classic histogram of the same
//! name and labels, both are skipped.

use std::sync::Arc;

use hashbrown::HashMap;
use varve_context::Charge;
use varve_model::Labels;
use varve_promql::ast::Span;
use varve_promql::decimal;
use varve_promql::number;

use super::histogram_annotations::is_valid;
use super::label::string_arg;
use crate::annotations::{Annotation, Occurrence, RaisedExtent};
use crate::error::Result;
use crate::eval::columns::{Column, GroupingKeys, Limits, Series, StepSet, Vector, series_size};
use crate::eval::evaluator::{Evaluator, Sink};
use crate::functions::classic_histogram::{self, Bucket, Raised};
use crate::histogram::{FloatHistogram, NanEffect};
use crate::plan::Plan;
use crate::steps::Steps;

/// The label that holds the upper bound of a bucket.
const BUCKET_LABEL: &str = "le";

/// The series of one classic histogram.
struct Classic {
    /// Labels without `le`.
    labels: Labels,
    /// Upper bounds, ascending, each with the index of its series.
    buckets: Vec<(f64, usize)>,
    /// The steps that are skipped, because a native histogram has the same labels.
    conflicting: Option<StepSet>,
}

/// A series of native histograms.
struct Native {
    labels: Labels,
    /// The histograms with their steps, ascending.
    steps: Vec<(usize, Arc<FloatHistogram>)>,
}

/// The classic and native histograms of a vector.
struct Histograms {
    /// The vector without its native histograms.
    vector: Vector,
    classic: Vec<Classic>,
    native: Vec<Native>,
    span: Span,
    /// Charge for the memory of `classic`.
    _charge: Charge,
}

/// Moves the native histograms out of a vector. The floats remain.
fn take_native(vector: &mut Vector, charge: &mut Charge, limits: &Limits) -> Result<Vec<Native>> {
    let mut native = Vec::new();
    for series in vector
        .series
        .iter_mut()
        .filter(|series| !series.column.histograms.is_empty())
    {
        limits.check()?;
        let n_histograms = series.column.histograms.len();
        charge.grow(
            2 * size_of::<Native>() + n_histograms * size_of::<(usize, Arc<FloatHistogram>)>(),
        )?;
        let mut steps = Vec::with_capacity(n_histograms);
        steps.extend(
            series
                .column
                .histograms()
                .map(|(step, histogram)| (step, Arc::clone(histogram))),
        );
        native.push(Native {
            labels: series.labels.clone(),
            steps,
        });
        series.column.keep_floats();
    }
    vector.drop_empty();
    Ok(native)
}

impl Classic {
    /// Collects the buckets at a step into `buckets`.
    fn at(&self, vector: &Vector, step: usize, buckets: &mut Vec<Bucket>) {
        buckets.clear();
        if self
            .conflicting
            .as_ref()
            .is_some_and(|conflicting| conflicting.contains(step))
        {
            return;
        }
        let present = self.buckets.iter().filter_map(|&(upper, at)| {
            let count = vector.series[at].column.get(step)?;
            Some(Bucket { upper, count })
        });
        buckets.extend(present);
    }
}

impl Evaluator<'_> {
    /// `histogram_quantile(q, v)`
    pub(super) fn histogram_quantile(&mut self, args: &[Plan], steps: Steps) -> Result<Vector> {
        let quantiles = self.scalar(&args[0], steps)?;
        let vector = self.vector(&args[1], steps)?;
        self.check_quantiles(&quantiles, args[0].span)?;
        let histograms = self.histograms(vector, args[1].span, steps)?;
        let mut out = self.limits.vector();
        self.each_quantile(&histograms, &quantiles, &|_| true, steps, &mut |series| {
            out.push(series)
        })?;
        self.without_names(out)
    }

    /// `histogram_quantiles(v, label, q, ...)`
    pub(super) fn histogram_quantiles(&mut self, args: &[Plan], steps: Steps) -> Result<Vector> {
        let label = string_arg(&args[1])?;
        let vector = self.vector(&args[0], steps)?;
        let quantiles = args[2..]
            .iter()
            .map(|arg| self.scalar(arg, steps))
            .collect::<Result<Vec<_>>>()?;
        for (arg, quantiles) in args[2..].iter().zip(&quantiles) {
            self.check_quantiles(quantiles, arg.span)?;
        }
        let histograms = self.histograms(vector, args[0].span, steps)?;
        let limits = self.limits.clone();
        let mut out = limits.vector();
        let delayed = self.settings.features.delayed_name_removal;
        for (idx, quantile) in quantiles.iter().enumerate() {
            // Each histogram and step is reported once, whatever the number of quantiles.
            let is_reported = |step: usize| {
                !quantiles[..idx]
                    .iter()
                    .any(|earlier| is_valid(earlier[step]))
            };
            self.each_quantile(
                &histograms,
                quantile,
                &is_reported,
                steps,
                &mut |mut series| {
                    // First drops the name: the label that is set next may be the name.
                    series.drop_name(delayed);
                    split_by_quantile(&series, quantile, label, &limits, &mut out)
                },
            )?;
        }
        out.merge_same_labels()?;
        Ok(out)
    }

    /// `histogram_fraction(lower, upper, v)`
    pub(super) fn histogram_fraction(&mut self, args: &[Plan], steps: Steps) -> Result<Vector> {
        let lower = self.scalar(&args[0], steps)?;
        let upper = self.scalar(&args[1], steps)?;
        let vector = self.vector(&args[2], steps)?;
        let histograms = self.histograms(vector, args[2].span, steps)?;
        let mut out = self.limits.vector();
        for native in &histograms.native {
            out.push(
                self.map_native(native, histograms.span, steps, |step, histogram| {
                    histogram.fraction(lower[step], upper[step])
                })?,
            )?;
        }
        for classic in &histograms.classic {
            out.push(
                self.map_classic(classic, &histograms, steps, |step, buckets| {
                    (
                        classic_histogram::fraction(lower[step], upper[step], buckets),
                        None,
                    )
                })?,
            )?;
        }
        self.without_names(out)
    }

    /// Computes a quantile of each histogram at every step and passes the resulting series to
    /// `sink`. Adds infos about raised buckets at the steps for which `is_reported` returns `true`.
    fn each_quantile(
        &mut self,
        histograms: &Histograms,
        quantiles: &[f64],
        is_reported: &dyn Fn(usize) -> bool,
        steps: Steps,
        sink: Sink<'_>,
    ) -> Result<()> {
        for native in &histograms.native {
            sink(
                self.map_native(native, histograms.span, steps, |step, histogram| {
                    histogram.quantile(quantiles[step])
                })?,
            )?;
        }
        for classic in &histograms.classic {
            sink(
                self.map_classic(classic, histograms, steps, |step, buckets| {
                    let (value, raised) = classic_histogram::quantile(quantiles[step], buckets);
                    let reported = if is_reported(step) { raised } else { None };
                    (value, reported)
                })?,
            )?;
        }
        Ok(())
    }

    /// Computes a number for each native histogram of a series.
    fn map_native(
        &mut self,
        native: &Native,
        span: Span,
        steps: Steps,
        compute: impl Fn(usize, &FloatHistogram) -> (f64, Option<NanEffect>),
    ) -> Result<Series> {
        self.limits.check()?;
        let mut column = self.limits.column(steps.n_steps)?;
        for (step, histogram) in &native.steps {
            self.limits.check()?;
            let (value, effect) = compute(*step, histogram);
            column.set(*step, value);
            if let Some(effect) = effect {
                let metric_name = self.known_name(&native.labels);
                self.annotations.add(
                    Annotation::NanObservations {
                        metric_name,
                        effect,
                    },
                    span,
                    Occurrence::at(*step),
                );
            }
        }
        Ok(Series {
            labels: native.labels.clone(),
            drop_name: true,
            column,
        })
    }

    /// Computes a number for a classic histogram at every step.
    fn map_classic(
        &mut self,
        classic: &Classic,
        histograms: &Histograms,
        steps: Steps,
        compute: impl Fn(usize, &mut Vec<Bucket>) -> (f64, Option<Raised>),
    ) -> Result<Series> {
        self.limits.check()?;
        let mut column = self.limits.column(steps.n_steps)?;
        let mut charge = self.limits.ctx.charge();
        let mut extents = Vec::new();
        let mut buckets = Vec::new();
        for step in 0..steps.n_steps {
            self.limits.check()?;
            classic.at(&histograms.vector, step, &mut buckets);
            if buckets.is_empty() {
                continue;
            }
            let (value, raised) = compute(step, &mut buckets);
            column.set(step, value);
            if let Some(Raised {
                bounds,
                difference_max,
            }) = raised
            {
                // A growing list may have a capacity of twice its length.
                charge.grow(2 * size_of::<(usize, RaisedExtent)>())?;
                let extent = RaisedExtent {
                    times_ms: (steps.time_ms(step), steps.time_ms(step)),
                    bounds,
                    difference_max,
                    n_histograms: 1,
                };
                extents.push((step, extent));
            }
        }
        self.add_forced_monotonicity(&classic.labels, extents, histograms.span);
        Ok(Series {
            labels: classic.labels.clone(),
            drop_name: true,
            column,
        })
    }

    /// Groups series into histograms, in order of appearance. Adds warnings about series without a
    /// valid `le`. Drops steps that have both a classic and a native histogram.
    fn histograms(&mut self, mut vector: Vector, span: Span, steps: Steps) -> Result<Histograms> {
        let mut classic: Vec<Classic> = Vec::new();
        let mut charge = self.limits.ctx.charge();
        let mut native = take_native(&mut vector, &mut charge, &self.limits)?;
        let mut groups = GroupingKeys::default();
        for (at, series) in vector.series.iter().enumerate() {
            self.limits.check()?;
            let label = series.labels.get(BUCKET_LABEL).unwrap_or("");
            let Some(upper) = parse_bound(label) else {
                self.add_bad_bucket_label(series, label, span);
                continue;
            };
            let (group, is_new) =
                groups.intern(&series.labels, &self.limits, |name| name != BUCKET_LABEL)?;
            charge.grow(2 * size_of::<(f64, usize)>())?;
            if is_new {
                let labels = groups.labels()[group].clone();
                charge.grow(GroupingKeys::size(&labels) + 2 * size_of::<Classic>())?;
                classic.push(Classic {
                    labels,
                    buckets: Vec::new(),
                    conflicting: None,
                });
            }
            classic[group].buckets.push((upper, at));
        }
        for histogram in &mut classic {
            self.limits.check()?;
            histogram.buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
            // Counts of buckets with equal bounds are added in the order of their series. With
            // three or more, the order can change the sum.
            self.is_order_fixed &= histogram
                .buckets
                .windows(3)
                .all(|equal| equal[0].0 != equal[2].0);
        }
        for native in &mut native {
            let Some(group) = groups.get(&native.labels, &self.limits, |_| true)? else {
                continue;
            };
            let conflicting =
                drop_conflicts(&mut classic[group], native, &vector, steps, &self.limits)?;
            if !conflicting.is_empty() {
                let metric_name = self.known_name(&native.labels);
                self.annotations.add(
                    Annotation::ClassicAndNative(metric_name),
                    span,
                    Occurrence::Steps(conflicting),
                );
            }
        }
        Ok(Histograms {
            vector,
            classic,
            native,
            span,
            _charge: charge,
        })
    }
}

/// Drops the steps that have both a classic and a native histogram. Returns these steps.
fn drop_conflicts(
    classic: &mut Classic,
    native: &mut Native,
    vector: &Vector,
    steps: Steps,
    limits: &Limits,
) -> Result<StepSet> {
    let mut conflicting = StepSet::empty(steps.n_steps);
    let mut buckets = Vec::new();
    for (step, _) in &native.steps {
        limits.check()?;
        classic.at(vector, *step, &mut buckets);
        if !buckets.is_empty() {
            conflicting.insert(*step);
        }
    }
    native
        .steps
        .retain(|(step, _)| !conflicting.contains(*step));
    classic.conflicting = Some(conflicting.clone());
    Ok(conflicting)
}

/// Splits a series by the quantile of each step, and adds the quantile as a label.
fn split_by_quantile(
    series: &Series,
    quantiles: &[f64],
    label: &str,
    limits: &Limits,
    out: &mut Vector,
) -> Result<()> {
    let mut split: Vec<Series> = Vec::new();
    let mut index_of = HashMap::new();
    let mut charge = limits.ctx.charge();
    for (step, value) in series.column.iter() {
        limits.check()?;
        // 0 and -0 are one quantile.
        let quantile = quantiles[step] + 0.0;
        let split_idx = *index_of.entry(quantile.to_bits()).or_insert(split.len());
        if split_idx == split.len() {
            charge.grow(series_size(series))?;
            let labels = series.labels.with(label, &decimal::open_metrics(quantile));
            let column = Column::absent(quantiles.len());
            split.push(Series {
                labels,
                drop_name: series.drop_name,
                column,
            });
        }
        split[split_idx].column.set(step, value);
    }
    split.into_iter().try_for_each(|series| out.push(series))
}

/// Parses the upper bound of a bucket. NaN is no bound.
fn parse_bound(text: &str) -> Option<f64> {
    number::parse_float(text)
        .ok()
        .filter(|bound| !bound.is_nan())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_numbers_in_go_syntax() {
        assert_eq!(parse_bound("+Inf"), Some(f64::INFINITY));
        assert_eq!(parse_bound("0.1"), Some(0.1));
        assert_eq!(parse_bound("1_000"), Some(1000.0));
        assert_eq!(["", "x", "1e999", "NaN"].map(parse_bound), [None; 4]);
    }
}
