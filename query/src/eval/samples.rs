//! The samples of one series, as functions over ranges take them: floats as two columns, histograms apart.

use std::sync::Arc;

use varve_tsdb::SampleColumns;
use varve_tsdb::context::Charge;
use varve_tsdb::histogram::ResetHint;
use varve_tsdb::staleness::is_stale_nan;

use super::column::Column;
use super::grid::Grid;
use crate::error::Result;
use crate::functions::window::HistogramSample;
use crate::histogram::stored;

/// The samples of a series without the markers of its ends. Reused from series to series.
#[derive(Debug)]
pub(super) struct RangeSamples {
    /// Only floats.
    pub(super) floats: SampleColumns,
    /// The start of what each float counts, 0 if unknown; empty if they are not looked at, or none is known.
    pub(super) starts_ms: Vec<i64>,
    /// Ascending by time.
    pub(super) histograms: Vec<HistogramSample>,
    takes_starts: bool,
    /// What the histograms take.
    charge: Charge,
}

impl RangeSamples {
    /// Makes room for samples; `charge` takes the histograms among them.
    pub(super) fn new(charge: Charge, takes_starts: bool) -> Self {
        let (floats, starts_ms, histograms) = (SampleColumns::default(), Vec::new(), Vec::new());
        Self { floats, starts_ms, takes_starts, histograms, charge }
    }

    /// Reads a series; of histograms only the totals, where nothing else is needed.
    pub(super) fn read(&mut self, series: &varve_tsdb::select::Series, only_totals: bool) -> Result<()> {
        self.clear();
        series.read(&mut self.floats)?;
        if self.takes_starts && !self.floats.starts_ms.is_empty() {
            self.charge.grow(self.floats.len() * size_of::<i64>())?;
            self.starts_ms.extend((0..self.floats.len()).map(|at| self.floats.start_ms(at)));
        }
        if !self.floats.histograms.is_empty() {
            self.split(only_totals)?;
        }
        let SampleColumns { timestamps_ms, values, .. } = &mut self.floats;
        if values.iter().any(|&value| is_stale_nan(value)) {
            let mut kept = values.iter();
            timestamps_ms.retain(|_| kept.next().is_some_and(|&value| !is_stale_nan(value)));
            let mut kept = values.iter();
            self.starts_ms.retain(|_| kept.next().is_some_and(|&value| !is_stale_nan(value)));
            values.retain(|&value| !is_stale_nan(value));
        }
        Ok(())
    }

    /// Takes the values of a column, those of a subquery. What its histograms say of resets is forgotten: the samples in
    /// between may have been passed over.
    pub(super) fn take_column(&mut self, column: &Column, grid: Grid) -> Result<()> {
        self.clear();
        for step in column.float_steps().iter().filter(|&step| !is_stale_nan(column.values[step])) {
            self.floats.timestamps_ms.push(grid.time_ms(step));
            self.floats.values.push(column.values[step]);
        }
        for (step, histogram) in column.histograms().filter(|(_, histogram)| !is_stale_nan(histogram.sum)) {
            let mut histogram = Arc::clone(histogram);
            if matches!(histogram.reset_hint, ResetHint::Reset | ResetHint::NoReset) {
                self.charge.grow(histogram.size())?;
                Arc::make_mut(&mut histogram).reset_hint = ResetHint::Unknown;
            }
            self.histograms.push(HistogramSample { timestamp_ms: grid.time_ms(step), start_ms: 0, histogram });
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.floats.clear();
        self.starts_ms.clear();
        self.histograms.clear();
        self.charge.shrink(self.charge.size());
    }

    /// Takes the histograms out of the columns.
    fn split(&mut self, only_totals: bool) -> Result<()> {
        let Self { floats, starts_ms, histograms, charge, .. } = self;
        let read = stored::read(floats, only_totals);
        charge.grow(read.iter().map(|(_, histogram)| histogram.size()).sum())?;
        for (place, histogram) in read.iter().filter(|(_, histogram)| !is_stale_nan(histogram.sum)) {
            let timestamp_ms = floats.timestamps_ms[*place as usize];
            let start_ms = starts_ms.get(*place as usize).copied().unwrap_or(0);
            histograms.push(HistogramSample { timestamp_ms, start_ms, histogram: histogram.clone() });
        }
        let is_float = |at: usize| read.binary_search_by_key(&at, |(place, _)| *place as usize).is_err();
        let mut places = 0..;
        floats.timestamps_ms.retain(|_| places.next().is_some_and(is_float));
        let mut places = 0..;
        floats.values.retain(|_| places.next().is_some_and(is_float));
        let mut places = 0..;
        starts_ms.retain(|_| places.next().is_some_and(is_float));
        floats.histograms.clear();
        Ok(())
    }
}
