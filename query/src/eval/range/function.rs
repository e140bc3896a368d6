//! Evaluation of a range function on one series at a time, on any thread.

use varve_context::CHECK_INTERVAL;
use varve_model::Labels;
use varve_promql::ast::Span;
use varve_promql::duration::seconds;
use varve_tsdb::select::Series as StoredSeries;

use super::windows::{Windows, count_window, n_samples_of};
use crate::annotations::{
    Annotation, AnnotationList, Occurrence, SeriesAnnotation, SeriesAnnotations,
};
use crate::error::{Error, Result};
use crate::eval::columns::{Column, HISTOGRAM_ENTRY_SIZE, Limits, Scalars, Series};
use crate::eval::select::RangeSamples;
use crate::eval::stream::Batch;
use crate::functions::window::{SampleValue, Window};
use crate::functions::{Kernels, Params, RangeFunction, SlidingRate, over_time, starts_overlap};
use crate::steps::Steps;

/// Parameters of the evaluation of a range function, the same for all series and threads.
pub(super) struct RangeEvaluation<'p> {
    pub(super) function: RangeFunction,
    pub(super) kernels: Kernels,
    /// The scalar arguments.
    pub(super) params: Vec<Scalars>,
    /// The function uses start timestamps.
    pub(super) reads_starts: bool,
    /// Overlapping start timestamps cause a warning.
    pub(super) checks_starts: bool,
    pub(super) delayed: bool,
    /// Counters are recognized by the label `__type__` instead of the metric name.
    pub(super) by_type_label: bool,
    /// The metric name of all series, if there is only one. Their labels may then lack it.
    pub(super) metric_name: Option<&'p str>,
    pub(super) windows: Windows,
    pub(super) limits: Limits,
    pub(super) spans: Spans,
}

/// Positions of arguments, for annotations.
pub(super) struct Spans {
    /// Position of the range.
    pub(super) range: Span,
    /// Position of the first argument, which for some functions is not the range.
    pub(super) first: Span,
    /// Position of the first scalar argument, if there is one.
    pub(super) first_param: Span,
}

/// The samples of one series.
pub(super) struct Input<'a> {
    pub(super) labels: &'a Labels,
    pub(super) drop_name: bool,
    pub(super) samples: &'a RangeSamples,
}

impl RangeEvaluation<'_> {
    pub(super) fn evaluate_stored(
        &self,
        batch: &[StoredSeries],
        skip_buckets: bool,
        siblings: &[Self],
        out: &mut Batch<'_>,
    ) -> Result<()> {
        let mut samples = RangeSamples::new(self.limits.ctx.charge(), self.reads_starts);
        StoredSeries::try_for_each(batch, |series| {
            samples.read(series, skip_buckets)?;
            let input = Input {
                labels: series.labels(),
                drop_name: false,
                samples: &samples,
            };
            self.evaluate(&input, true, out)?;
            for (at, sibling) in siblings.iter().enumerate() {
                out.produce_sibling(at, |out| sibling.evaluate(&input, true, out));
            }
            Ok(())
        })
    }

    pub(super) fn evaluate_columns(
        &self,
        batch: &[Series],
        inner: Steps,
        out: &mut Batch<'_>,
    ) -> Result<()> {
        let mut samples = RangeSamples::new(self.limits.ctx.charge(), false);
        for Series {
            labels,
            drop_name,
            column,
        } in batch
        {
            self.limits.check()?;
            samples.read_column(column, inner)?;
            self.evaluate(
                &Input {
                    labels,
                    drop_name: *drop_name,
                    samples: &samples,
                },
                false,
                out,
            )?;
        }
        Ok(())
    }

    /// Computes the result for one series. If `is_stored`, its samples count as needed by this
    /// function; the samples of a subquery are counted by its selectors.
    fn evaluate(&self, input: &Input<'_>, is_stored: bool, out: &mut Batch<'_>) -> Result<()> {
        if is_stored {
            out.sample_stats.add_series();
        }
        let column = self.column(input, is_stored, out)?;
        if column.present.is_empty() {
            return Ok(());
        }
        if self.function.needs_counter
            && !column.float_steps().is_empty()
            && let Some(annotation) = self.possible_non_counter(input.labels)
        {
            let steps = column.float_steps().into_owned();
            out.annotations
                .add(annotation, self.spans.range, Occurrence::Steps(steps));
        }
        let mut series = Series {
            labels: input.labels.clone(),
            drop_name: input.drop_name,
            column,
        };
        if input.drop_name || !self.function.keeps_name {
            if self.delayed {
                series.drop_name(true);
            } else {
                out.drop_shared_name(&mut series);
            }
        }
        out.push(series)
    }

    fn column(&self, input: &Input<'_>, is_stored: bool, out: &mut Batch<'_>) -> Result<Column> {
        let mut column = self.limits.column(self.windows.steps.n_steps)?;
        let mut charge = self.limits.ctx.charge();
        let mut annotations = SeriesAnnotations::default();
        let mut window_len_max = 0;
        let mut n_visited = 0;
        let mut params = [0.0; 2];
        let Kernels {
            floats,
            histograms,
            sliding,
        } = self.kernels;
        let mut sliding =
            sliding.map(|kind| SlidingRate::new(kind, seconds(self.windows.range_ms)));
        self.windows
            .slide(input.samples, |step, window, n_before| {
                for (param, values) in params.iter_mut().zip(&self.params) {
                    *param = values[step];
                }
                self.check_params(params, step, window, &mut out.annotations)?;
                annotations.step = step;
                n_visited += window.values.len() + 1;
                if n_visited > CHECK_INTERVAL {
                    n_visited = 0;
                    self.limits.check()?;
                }
                if is_stored {
                    count_window(window, step, n_before, &mut out.sample_stats);
                }
                // Fast path: only floats.
                if window.histograms.is_empty() {
                    // Some kernels sort a copy of the window.
                    charge.grow(
                        2 * size_of::<f64>() * window.values.len().saturating_sub(window_len_max),
                    )?;
                    window_len_max = window_len_max.max(window.values.len());
                    if self.checks_starts && starts_overlap(window) {
                        annotations.add(SeriesAnnotation::StartTimestampsOverlap(1));
                    }
                    let value = match &mut sliding {
                        Some(sliding) => sliding.value(window),
                        None => floats(window, &params[..self.params.len()]),
                    };
                    if let Some(value) = value {
                        column.set(step, value);
                    }
                    return Ok(());
                }
                // A window of histograms may take as long as a whole series of floats.
                self.limits.check()?;
                window_len_max = window_len_max.max(n_samples_of(window));
                match histograms {
                    Some(kernel) => match kernel(window, &mut annotations) {
                        Some(SampleValue::Float(value)) => column.set(step, value),
                        Some(SampleValue::Histogram(histogram)) => {
                            charge.grow(histogram.size() + HISTOGRAM_ENTRY_SIZE)?;
                            column.push_histogram(step, histogram);
                        }
                        None => {}
                    },
                    None if window.values.is_empty() => {}
                    None => {
                        annotations.add(SeriesAnnotation::HistogramsIgnored);
                        if let Some(value) = floats(window, &params[..self.params.len()]) {
                            column.set(step, value);
                        }
                    }
                }
                Ok(())
            })?;
        self.limits.samples.check(window_len_max)?;
        for (annotation, steps) in annotations.list {
            out.annotations.add(
                annotation.of_metric(self.name(input.labels)),
                self.spans.first,
                Occurrence::Steps(steps),
            );
        }
        Ok(column)
    }

    fn name<'a>(&'a self, labels: &'a Labels) -> &'a str {
        self.metric_name.unwrap_or_else(|| labels.metric_name())
    }

    /// Returns the annotation about a rate of a series that is possibly not a counter.
    fn possible_non_counter(&self, labels: &Labels) -> Option<Annotation> {
        let name = self.name(labels);
        if name.is_empty() {
            return None;
        }
        if self.by_type_label {
            let type_label = labels.get("__type__").unwrap_or("");
            if matches!(type_label, "counter" | "histogram") {
                return None;
            }
            return Some(Annotation::PossibleNonCounterLabel {
                metric_name: name.into(),
                type_label: type_label.into(),
            });
        }
        let counter = ["_total", "_sum", "_count", "_bucket"]
            .iter()
            .any(|suffix| name.ends_with(suffix));
        (!counter).then(|| Annotation::PossibleNonCounter(name.into()))
    }

    fn check_params(
        &self,
        params: [f64; 2],
        step: usize,
        window: &Window<'_>,
        annotations: &mut AnnotationList,
    ) -> Result<()> {
        match self.function.params {
            Params::Any => Ok(()),
            Params::Quantile => {
                if !window.values.is_empty() && !(0.0..=1.0).contains(&params[0]) {
                    annotations.add(
                        Annotation::InvalidQuantile(params[0]),
                        self.spans.first_param,
                        Occurrence::at(step),
                    );
                }
                Ok(())
            }
            Params::Strategy => {
                let strategy = params[0];
                if !window.values.is_empty() && over_time::integral_rule(&params).is_none() {
                    annotations.add(
                        Annotation::InvalidIntegralStrategy(strategy),
                        self.spans.first_param,
                        Occurrence::at(step),
                    );
                }
                Ok(())
            }
            Params::SmoothingFactors => check_factors(params),
        }
    }
}

/// Fails unless both factors of double exponential smoothing are in (0, 1).
fn check_factors([smoothing, trend]: [f64; 2]) -> Result<()> {
    for (name, factor, symbol) in [("smoothing", smoothing, "sf"), ("trend", trend, "tf")] {
        if factor <= 0.0 || factor >= 1.0 {
            let bounds = format!("0 < {symbol} < 1");
            return Err(Error::Execution(format!(
                "invalid {name} factor. Expected: {bounds}, got: {factor:.6}"
            )));
        }
    }
    Ok(())
}
