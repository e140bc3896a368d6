//! `histogram_quantile` and its kin, on native histograms and on classic ones: series that differ in the label `le` only.
//!
//! Series are grouped and their bounds read and sorted once; a step then gathers the counts of the buckets that it has.
//! Where a step has a native and a classic histogram of the same name and labels, neither is looked at.

use std::sync::Arc;

use varve_tsdb::Labels;
use varve_tsdb::context::Charge;

use super::Evaluator;
use super::column::Bits;
use super::grid::Grid;
use super::keys::Keys;
use super::label::text_arg;
use super::series::{Series, Vector};
use crate::annotations::{ForcedMonotonicity, Note};
use crate::error::Result;
use crate::functions::histogram::{self, Bucket, Raised};
use crate::histogram::{FloatHistogram, NanNote};
use crate::plan::Plan;
use crate::promql::ast::Span;
use crate::promql::number;

/// The label that holds a bucket's upper bound.
const BUCKET_LABEL: &str = "le";

/// The series of one classic histogram.
struct Histogram {
    /// Labels without `le`.
    labels: Labels,
    drop_name: bool,
    /// Bounds, ascending, and indexes of the series.
    buckets: Vec<(f64, usize)>,
    /// The steps at which there is a native histogram as well.
    blocked: Option<Bits>,
}

/// All classic histograms of a vector.
struct Histograms {
    list: Vec<Histogram>,
    /// What the list takes.
    _charge: Charge,
}

/// A series of native histograms.
struct Native {
    labels: Labels,
    /// Ascending by step.
    steps: Vec<(usize, Arc<FloatHistogram>)>,
}

/// Takes the native histograms out of a vector, which keeps the floats.
fn take_natives(vector: &mut Vector) -> Vec<Native> {
    let mut natives = Vec::new();
    for series in vector.series.iter_mut().filter(|series| !series.column.histograms.is_empty()) {
        let steps = series.column.histograms().map(|(step, histogram)| (step, Arc::clone(histogram))).collect();
        natives.push(Native { labels: series.labels.clone(), steps });
        series.column.keep_floats();
    }
    vector.drop_empty();
    natives
}

impl Histogram {
    /// Gathers the buckets of a step.
    fn at(&self, vector: &Vector, step: usize, buckets: &mut Vec<Bucket>) {
        buckets.clear();
        if self.blocked.as_ref().is_some_and(|blocked| blocked.contains(step)) {
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
    pub(super) fn histogram_quantile(&mut self, args: &[Plan], grid: Grid) -> Result<Vector> {
        let quantiles = self.scalar(&args[0], grid)?;
        let mut vector = self.vector(&args[1], grid)?;
        self.note_bad_quantiles(&quantiles, args[0].span);
        let mut natives = take_natives(&mut vector);
        let histograms = self.histograms(&vector, &mut natives, args[1].span, grid)?;
        let mut out = self.bounds.vector();
        for native in &natives {
            let series =
                self.of_native(native, args[1].span, grid, |step, histogram| histogram.quantile(quantiles[step]))?;
            out.push(series)?;
        }
        for histogram in &histograms.list {
            let series = self.quantile_of(histogram, &vector, &quantiles, args[1].span, grid)?;
            out.push(series)?;
        }
        self.unnamed(out)
    }

    /// `histogram_quantiles(v, label, q, ...)`
    pub(super) fn histogram_quantiles(&mut self, args: &[Plan], grid: Grid) -> Result<Vector> {
        let label = text_arg(&args[1])?;
        let mut vector = self.vector(&args[0], grid)?;
        let quantiles = args[2..].iter().map(|arg| self.scalar(arg, grid)).collect::<Result<Vec<_>>>()?;
        args[2..].iter().zip(&quantiles).for_each(|(arg, quantiles)| self.note_bad_quantiles(quantiles, arg.span));
        let (span, mut natives) = (args[0].span, take_natives(&mut vector));
        let histograms = self.histograms(&vector, &mut natives, span, grid)?;
        let mut out = self.bounds.vector();
        for quantiles in &quantiles {
            for native in &natives {
                let series =
                    self.of_native(native, span, grid, |step, histogram| histogram.quantile(quantiles[step]))?;
                for series in by_quantile(series, quantiles, label) {
                    out.push(series)?;
                }
            }
            for histogram in &histograms.list {
                let series = self.quantile_of(histogram, &vector, quantiles, span, grid)?;
                for series in by_quantile(series, quantiles, label) {
                    out.push(series)?;
                }
            }
        }
        self.unnamed(out)
    }

    /// `histogram_fraction(lower, upper, v)`
    pub(super) fn histogram_fraction(&mut self, args: &[Plan], grid: Grid) -> Result<Vector> {
        let (lower, upper) = (self.scalar(&args[0], grid)?, self.scalar(&args[1], grid)?);
        let mut vector = self.vector(&args[2], grid)?;
        let (span, mut natives) = (args[2].span, take_natives(&mut vector));
        let histograms = self.histograms(&vector, &mut natives, span, grid)?;
        let mut out = self.bounds.vector();
        for native in &natives {
            out.push(
                self.of_native(native, span, grid, |step, histogram| histogram.fraction(lower[step], upper[step]))?,
            )?;
        }
        let mut buckets = Vec::new();
        for histogram in histograms.list {
            self.bounds.check()?;
            let mut column = self.bounds.column(grid.n_steps)?;
            for step in 0..grid.n_steps {
                histogram.at(&vector, step, &mut buckets);
                if !buckets.is_empty() {
                    column.set(step, histogram::fraction(lower[step], upper[step], &mut buckets));
                }
            }
            out.push(Series { labels: histogram.labels, drop_name: histogram.drop_name, column })?;
        }
        self.unnamed(out)
    }

    /// Says which quantiles are none. Called once all arguments are evaluated: where one of them says the same, the
    /// place of the outermost stands.
    fn note_bad_quantiles(&mut self, quantiles: &[f64], span: Span) {
        let mut before = None;
        for &q in quantiles.iter().filter(|q| !(0.0..=1.0).contains(*q)) {
            if before.replace(q.to_bits()) != Some(q.to_bits()) {
                self.annotations.add(Note::InvalidQuantile(q), span);
            }
        }
    }

    /// Computes a number of each native histogram of a series.
    fn of_native(
        &mut self,
        native: &Native,
        span: Span,
        grid: Grid,
        of: impl Fn(usize, &FloatHistogram) -> (f64, Option<NanNote>),
    ) -> Result<Series> {
        self.bounds.check()?;
        let mut column = self.bounds.column(grid.n_steps)?;
        for (step, histogram) in &native.steps {
            let (value, note) = of(*step, histogram);
            column.set(*step, value);
            if let Some(note) = note {
                let metric_name = self.known_name(&native.labels);
                self.annotations.add(Note::NanObservations { metric_name, note }, span);
            }
        }
        Ok(Series { labels: native.labels.clone(), drop_name: true, column })
    }

    /// Computes a quantile of a histogram at every step.
    fn quantile_of(
        &mut self,
        histogram: &Histogram,
        vector: &Vector,
        quantiles: &[f64],
        span: Span,
        grid: Grid,
    ) -> Result<Series> {
        self.bounds.check()?;
        let mut column = self.bounds.column(grid.n_steps)?;
        let mut buckets = Vec::new();
        for (step, &q) in quantiles.iter().enumerate() {
            histogram.at(vector, step, &mut buckets);
            if buckets.is_empty() {
                continue;
            }
            let (value, raised) = histogram::quantile(q, &mut buckets);
            column.set(step, value);
            if let Some(raised) = raised {
                self.note_raised(raised, histogram, grid.time_ms(step), span);
            }
        }
        Ok(Series { labels: histogram.labels.clone(), drop_name: histogram.drop_name, column })
    }

    fn note_raised(&mut self, raised: Raised, histogram: &Histogram, time_ms: i64, span: Span) {
        let forced = ForcedMonotonicity {
            metric_name: self.known_name(&histogram.labels),
            times_ms: (time_ms, time_ms),
            bounds: raised.bounds,
            difference_max: raised.difference_max,
            n_histograms: 1,
        };
        self.annotations.add(Note::ForcedMonotonicity(forced), span);
    }

    /// Groups series into histograms, in the order in which these appear. Series without a proper `le` are reported, and
    /// native histograms that are there as well, which go.
    fn histograms(&mut self, vector: &Vector, natives: &mut [Native], span: Span, grid: Grid) -> Result<Histograms> {
        let (mut histograms, mut charge): (Vec<Histogram>, _) = (Vec::new(), self.bounds.ctx.charge());
        let is_of_histogram = |name: &str| name != BUCKET_LABEL;
        let mut keys = Keys::default();
        for (at, series) in vector.series.iter().enumerate() {
            self.bounds.check()?;
            let label = series.labels.get(BUCKET_LABEL).unwrap_or("");
            let Some(upper) = parse_bound(label) else {
                let note = Note::BadBucketLabel { metric_name: self.known_name(&series.labels), label: label.into() };
                self.annotations.add(note, span);
                continue;
            };
            let (place, new) = keys.number(&series.labels, is_of_histogram);
            charge.grow(2 * size_of::<(f64, usize)>())?;
            if new {
                let labels = keys.labels()[place].clone();
                charge.grow(Keys::size(&labels) + 2 * size_of::<Histogram>())?;
                histograms.push(Histogram { labels, drop_name: true, buckets: Vec::new(), blocked: None });
            }
            histograms[place].buckets.push((upper, at));
        }
        for histogram in &mut histograms {
            histogram.buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        for native in natives {
            if let Some(place) = keys.get(&native.labels, |_| true)
                && block(&mut histograms[place], native, vector, grid)
            {
                let metric_name = self.known_name(&native.labels);
                self.annotations.add(Note::ClassicAndNative(metric_name), span);
            }
        }
        Ok(Histograms { list: histograms, _charge: charge })
    }

    /// Returns the metric name where it is still known: with delayed name removal.
    fn known_name(&self, labels: &Labels) -> String {
        let delayed = self.settings.features.delayed_name_removal;
        if delayed { labels.metric_name().to_owned() } else { String::new() }
    }

    /// Takes off metric names; two histograms of different names may be one too many then.
    fn unnamed(&self, mut vector: Vector) -> Result<Vector> {
        let delayed = self.settings.features.delayed_name_removal;
        vector.series.iter_mut().for_each(|series| series.drop_name(delayed));
        vector.merge_same_labels()?;
        Ok(vector)
    }
}

/// Removes the steps at which a classic and a native histogram are there; tells whether there are any.
fn block(classic: &mut Histogram, native: &mut Native, vector: &Vector, grid: Grid) -> bool {
    let mut blocked = Bits::none(grid.n_steps);
    let mut buckets = Vec::new();
    native.steps.retain(|(step, _)| {
        classic.at(vector, *step, &mut buckets);
        if !buckets.is_empty() {
            blocked.insert(*step);
        }
        buckets.is_empty()
    });
    let any = !blocked.is_empty();
    classic.blocked = Some(blocked);
    any
}

/// Splits a series by the quantile of each step, which becomes a label.
fn by_quantile(series: Series, quantiles: &[f64], label: &str) -> Vec<Series> {
    let mut split: Vec<(u64, Series)> = Vec::new();
    for (step, value) in series.column.iter() {
        let bits = quantiles[step].to_bits();
        let place = split.iter().position(|(known, _)| *known == bits).unwrap_or_else(|| {
            let labels = series.labels.with(label, &number::open_metrics(quantiles[step]));
            let column = super::column::Column::absent(quantiles.len());
            split.push((bits, Series { labels, drop_name: series.drop_name, column }));
            split.len() - 1
        });
        split[place].1.column.set(step, value);
    }
    split.into_iter().map(|(_, series)| series).collect()
}

/// Reads a bound as Go's `strconv.ParseFloat`.
fn parse_bound(text: &str) -> Option<f64> {
    let value: f64 = text.parse().ok()?;
    // What overflows is an error there, and infinity here.
    let overflows = value.is_infinite() && text.contains(|c: char| c.is_ascii_digit());
    (!overflows).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_numbers_in_go_syntax() {
        assert_eq!(parse_bound("+Inf"), Some(f64::INFINITY));
        assert_eq!(parse_bound("0.1"), Some(0.1));
        assert_eq!(parse_bound("1e3"), Some(1000.0));
        assert_eq!((parse_bound(""), parse_bound("x"), parse_bound("1e999")), (None, None, None));
    }
}
