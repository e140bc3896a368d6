//! A function over ranges, evaluated on one series after the other by any of the threads.

use varve_tsdb::Labels;

use super::super::column::Column;
use super::super::grid::Grid;
use super::super::samples::RangeSamples;
use super::super::scalar::Scalars;
use super::super::series::{Bounds, Series};
use super::super::stream::{Made, Said};
use super::Input;
use super::windows::{Windows, n_samples_of, tally_window};
use crate::annotations::{Note, Remark};
use crate::error::{Error, Result};
use crate::functions::mixed::Remarks;
use crate::functions::window::{SampleValue, Window};
use crate::functions::{Kernels, Params, RangeFunction, Steady, starts_overlap};
use crate::plan::seconds;
use crate::promql::ast::Span;

/// A function over ranges, the same for all series and on all threads.
pub(in crate::eval) struct OverRange<'p> {
    pub(super) function: RangeFunction,
    pub(super) kernels: Kernels,
    /// The other arguments: one column each.
    pub(super) params: Vec<Scalars>,
    /// Start timestamps are looked at.
    pub(super) takes_starts: bool,
    /// What start timestamps contradict is said.
    pub(super) warns_of_starts: bool,
    pub(super) delayed: bool,
    /// Counters are known by their label `__type__`.
    pub(super) by_label: bool,
    /// The metric name of all series, which may then lack the label.
    pub(super) one_name: Option<&'p str>,
    /// Series have all their labels, so that two with the same without their names are told.
    pub(super) tells_apart: bool,
    pub(super) windows: Windows,
    pub(super) bounds: Bounds,
    pub(super) places: Places,
}

/// Where annotations point to.
pub(super) struct Places {
    /// The range.
    pub(super) range: Span,
    /// The first argument, which for some functions is not the range.
    pub(super) first: Span,
    /// The second, where it is a quantile.
    pub(super) quantile: Span,
}

impl OverRange<'_> {
    pub(super) fn of_stored(
        &self,
        batch: &[varve_tsdb::select::Series],
        only_totals: bool,
        beside: &[Self],
        made: &mut Made<'_>,
    ) -> Result<()> {
        let mut samples = RangeSamples::new(self.bounds.ctx.charge(), self.takes_starts);
        for series in batch {
            samples.read(series, only_totals)?;
            let input = Input { labels: series.labels(), drop_name: false, samples: &samples };
            self.make(&input, true, made)?;
            for (at, other) in beside.iter().enumerate() {
                made.make_beside(at, |made| other.make(&input, true, made));
            }
        }
        Ok(())
    }

    pub(super) fn of_columns(&self, batch: &[Series], inner: Grid, made: &mut Made<'_>) -> Result<()> {
        let mut samples = RangeSamples::new(self.bounds.ctx.charge(), false);
        for Series { labels, drop_name, column } in batch {
            self.bounds.check()?;
            samples.take_column(column, inner)?;
            self.make(&Input { labels, drop_name: *drop_name, samples: &samples }, false, made)?;
        }
        Ok(())
    }

    /// Makes one series of another; `reads` tells whether its samples were read for this.
    fn make(&self, input: &Input<'_>, reads: bool, made: &mut Made<'_>) -> Result<()> {
        let column = self.column(input, reads, made)?;
        if column.present.is_empty() {
            return Ok(());
        }
        if self.function.of_counters
            && !column.float_steps().is_empty()
            && let Some(note) = self.doubt_counter(input.labels)
        {
            made.said.add(note, self.places.range);
        }
        let mut series = Series { labels: input.labels.clone(), drop_name: input.drop_name, column };
        if input.drop_name || !self.function.keeps_name {
            series.drop_name(self.delayed);
            if !self.delayed && self.tells_apart {
                made.unnamed.push((input.labels.clone(), series.labels.clone()));
            }
        }
        made.push(series)
    }

    fn column(&self, input: &Input<'_>, reads: bool, made: &mut Made<'_>) -> Result<Column> {
        let mut column = self.bounds.column(self.windows.grid.n_steps)?;
        let mut charge = self.bounds.ctx.charge();
        let mut remarks = Remarks::default();
        let mut window_len_max = 0;
        let mut params = [0.0; 2];
        let Kernels { floats, mixed, steady } = self.kernels;
        let mut steady = steady.map(|kind| Steady::new(kind, seconds(self.windows.range_ms)));
        self.windows.slide(input.samples, |step, window, n_before| {
            for (param, values) in params.iter_mut().zip(&self.params) {
                *param = values[step];
            }
            self.check_params(params, window, &mut made.said)?;
            tally_window(window, step, n_before.filter(|_| reads), &mut made.tally);
            // Fast path: only floats.
            if window.histograms.is_empty() {
                window_len_max = window_len_max.max(window.values.len());
                if self.warns_of_starts && starts_overlap(window) {
                    remarks.add(Remark::StartsOverlap(1));
                }
                let value = match &mut steady {
                    Some(steady) => steady.value(window),
                    None => floats(window, &params[..self.params.len()]),
                };
                if let Some(value) = value {
                    column.set(step, value);
                }
                return Ok(());
            }
            // A window of histograms may take as long as a series of floats.
            self.bounds.check()?;
            window_len_max = window_len_max.max(n_samples_of(window));
            match mixed {
                Some(mixed) => match mixed(window, &mut remarks) {
                    Some(SampleValue::Float(value)) => column.set(step, value),
                    Some(SampleValue::Histogram(histogram)) => {
                        charge.grow(histogram.size())?;
                        column.push_histogram(step, histogram);
                    }
                    None => {}
                },
                None if window.values.is_empty() => {}
                None => {
                    remarks.add(Remark::Ignored);
                    if let Some(value) = floats(window, &params[..self.params.len()]) {
                        column.set(step, value);
                    }
                }
            }
            Ok(())
        })?;
        self.bounds.samples.check(window_len_max)?;
        for remark in remarks.list {
            made.said.add(remark.about(self.name(input.labels)), self.places.first);
        }
        Ok(column)
    }

    fn name<'a>(&'a self, labels: &'a Labels) -> &'a str {
        self.one_name.unwrap_or_else(|| labels.metric_name())
    }

    /// Returns what to say about a rate of a series that may not be a counter.
    fn doubt_counter(&self, labels: &Labels) -> Option<Note> {
        let name = self.name(labels);
        if name.is_empty() {
            return None;
        }
        if self.by_label {
            let type_label = labels.get("__type__").unwrap_or("");
            let note = || Note::PossibleNonCounterLabel { metric_name: name.into(), type_label: type_label.into() };
            return (!matches!(type_label, "counter" | "histogram")).then(note);
        }
        let counter = ["_total", "_sum", "_count", "_bucket"].iter().any(|suffix| name.ends_with(suffix));
        (!counter).then(|| Note::PossibleNonCounter(name.into()))
    }

    fn check_params(&self, params: [f64; 2], window: &Window<'_>, said: &mut Said) -> Result<()> {
        match self.function.params {
            Params::Any => Ok(()),
            Params::Quantile => {
                if !window.values.is_empty() && !(0.0..=1.0).contains(&params[0]) {
                    said.add(Note::InvalidQuantile(params[0]), self.places.quantile);
                }
                Ok(())
            }
            Params::SmoothingFactors => check_factors(params),
        }
    }
}

/// The factors of double exponential smoothing lie between 0 and 1, both excluded.
fn check_factors([smoothing, trend]: [f64; 2]) -> Result<()> {
    for (name, factor, symbol) in [("smoothing", smoothing, "sf"), ("trend", trend, "tf")] {
        if factor <= 0.0 || factor >= 1.0 {
            let bounds = format!("0 < {symbol} < 1");
            return Err(Error::Execution(format!("invalid {name} factor. Expected: {bounds}, got: {factor:.6}")));
        }
    }
    Ok(())
}
