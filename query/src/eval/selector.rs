//! Selectors of instant vectors: the newest sample of every series that is not too old.

use std::sync::Arc;

use varve_tsdb::histogram::ResetHint;
use varve_tsdb::select::{SelectHints, SeriesSet};
use varve_tsdb::staleness::is_stale_nan;
use varve_tsdb::{SampleColumns, TimeRange};

use super::Evaluator;
use super::column::Column;
use super::grid::Grid;
use super::samples::RangeSamples;
use super::series::{Bounds, Series};
use super::stream::{BATCH_OF_NEWEST, Made, Way, batch_len, batches};
use super::tally::Tally;
use crate::annotations::Remark;
use crate::error::{Error, Result};
use crate::functions::mixed::{Remarks, interpolate};
use crate::functions::window::{HistogramSample, SampleValue};
use crate::histogram::{FloatHistogram, MixedSchemas, stored};
use crate::plan::{Plan, Selector, Shift};
use crate::promql::ast::RangeExtension;

/// What of a sample is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Take {
    Value,
    /// The time in seconds.
    Timestamp,
    /// The start timestamp in seconds; 0 if it is unknown.
    StartTimestamp,
    /// The time in seconds of the sample of an info series, which must be a float.
    TimestampOfInfo,
}

impl Evaluator<'_> {
    /// Hands out the series of a selector.
    pub(super) fn each_selected(
        &mut self,
        plan: &Plan,
        selector: &Selector,
        way: &Way<'_>,
        grid: Grid,
        sink: &mut dyn FnMut(Series) -> Result<()>,
    ) -> Result<()> {
        match selector.extension {
            None => self.each_newest(plan.id, selector, selector.shift, Take::Value, way, grid, sink),
            Some(RangeExtension::Smoothed) => self.each_smoothed(plan, selector, way, grid, sink),
            Some(RangeExtension::Anchored) => {
                Err(Error::Unsupported("anchored is not supported on an instant vector selector".into()))
            }
        }
    }

    /// Hands out for every series and step the newest sample that is younger than the lookback and no end of a series.
    /// `shift` tells when to look, among the samples that the selector selects.
    #[expect(clippy::too_many_arguments, reason = "what to select, what to take of it and where that goes")]
    fn each_newest(
        &mut self,
        id: usize,
        selector: &Selector,
        shift: Shift,
        take: Take,
        way: &Way<'_>,
        grid: Grid,
        sink: &mut dyn FnMut(Series) -> Result<()>,
    ) -> Result<()> {
        let lookback_ms = self.settings.lookback_ms;
        // Where one step looks at what is selected, it looks at the newest.
        let only_newest = grid.n_steps == 1 && shift == selector.shift && take != Take::TimestampOfInfo;
        let hints = SelectHints { only_newest, ..way.hints() };
        let set = self.select(selector, grid, (lookback_ms, 0), hints)?;
        let batch_len = if only_newest { BATCH_OF_NEWEST } else { batch_len(grid.n_steps) };
        let look = Look { take, shift, grid, lookback_ms, only_totals: selector.only_totals };
        let make = |batch: Vec<varve_tsdb::select::Series>, made: &mut Made<'_>| look.make(&batch, &way.bounds, made);
        self.run(id, way, batches(set, batch_len), make, |_| Ok(()), sink)
    }

    /// Hands out for every series and step the value on the line between the samples around it.
    fn each_smoothed(
        &mut self,
        plan: &Plan,
        selector: &Selector,
        way: &Way<'_>,
        grid: Grid,
        sink: &mut dyn FnMut(Series) -> Result<()>,
    ) -> Result<()> {
        let lookback_ms = self.settings.lookback_ms;
        let set = self.select(selector, grid, (lookback_ms, lookback_ms), way.hints())?;
        let make = |batch: Vec<varve_tsdb::select::Series>, made: &mut Made<'_>| {
            let mut samples = RangeSamples::new(way.bounds.ctx.charge(), false);
            for series in batch {
                way.bounds.check()?;
                samples.read(&series, selector.only_totals)?;
                let mut column = way.bounds.column(grid.n_steps)?;
                let mut remarks = Remarks::default();
                for (step, time_ms) in grid.times_ms().enumerate() {
                    match smoothed_of_any(&samples, selector.shift.apply(time_ms), lookback_ms, &mut remarks) {
                        Some(SampleValue::Float(value)) => column.set(step, value),
                        Some(SampleValue::Histogram(histogram)) => column.push_histogram(step, histogram),
                        None => {}
                    }
                }
                let name = series.labels().metric_name();
                remarks.list.into_iter().for_each(|remark| made.said.add(remark.about(name), plan.span));
                tally(&column, &mut made.tally);
                made.push(Series { labels: series.labels().clone(), drop_name: false, column })?;
            }
            Ok(())
        };
        self.run(plan.id, way, batches(set, batch_len(grid.n_steps)), make, |_| Ok(()), sink)
    }

    /// Selects the samples that the steps may look at: behind the first of the margins before the first step, up to the
    /// second after the last.
    pub(super) fn select(
        &self,
        selector: &Selector,
        grid: Grid,
        (before_ms, after_ms): (i64, i64),
        hints: SelectHints,
    ) -> Result<SeriesSet> {
        let range = TimeRange {
            start_ms: selector.shift.apply(grid.start_ms).saturating_sub(before_ms).saturating_add(1),
            end_ms: selector.shift.apply(grid.last_ms()).saturating_add(after_ms),
        };
        Ok(self.db.select_with(&self.bounds.ctx, &selector.matchers, range, hints)?)
    }

    /// Hands out times of the samples of a plain selector, as `timestamp(selector)` does; `id` is that of the selector.
    pub(super) fn each_timestamp(
        &mut self,
        id: usize,
        selector: &Selector,
        take: Take,
        grid: Grid,
        sink: &mut dyn FnMut(Series) -> Result<()>,
    ) -> Result<()> {
        // With `@` Prometheus passes over the offset here, but still selects samples by it.
        let shift = match selector.shift.at_ms {
            Some(_) => Shift { offset_ms: 0, ..selector.shift },
            None => selector.shift,
        };
        let way = self.way(Vec::new(), grid);
        self.each_newest(id, selector, shift, take, &way, grid, sink)
    }

    /// Hands out the times of the samples of info series.
    pub(super) fn each_info(
        &mut self,
        selector: &Selector,
        grid: Grid,
        sink: &mut dyn FnMut(Series) -> Result<()>,
    ) -> Result<()> {
        let way = self.way(Vec::new(), grid);
        self.each_newest(usize::MAX, selector, selector.shift, Take::TimestampOfInfo, &way, grid, sink)
    }
}

/// How the series of a selector are looked at.
struct Look {
    take: Take,
    shift: Shift,
    grid: Grid,
    lookback_ms: i64,
    only_totals: bool,
}

impl Look {
    fn make(&self, batch: &[varve_tsdb::select::Series], bounds: &Bounds, made: &mut Made<'_>) -> Result<()> {
        let mut samples = SampleColumns::default();
        for series in batch {
            samples.clear();
            series.read(&mut samples)?;
            if self.take == Take::TimestampOfInfo && !samples.histograms.is_empty() {
                let text = format!("this should be an info metric, with float samples: {}", series.labels());
                return Err(Error::Execution(text));
            }
            let column = self.column(&samples, bounds)?;
            tally(&column, &mut made.tally);
            made.push(Series { labels: series.labels().clone(), drop_name: false, column })?;
        }
        Ok(())
    }

    fn column(&self, samples: &SampleColumns, bounds: &Bounds) -> Result<Column> {
        let Self { shift, grid, lookback_ms, .. } = *self;
        let mut column = bounds.column(grid.n_steps)?;
        let newest = Newest { samples, shift, grid, lookback_ms };
        let seconds = |time_ms: i64| time_ms as f64 / 1000.0;
        match self.take {
            // Fast path: a series of floats.
            Take::Value if samples.histograms.is_empty() => {
                newest.each(|step, at| column.set(step, samples.values[at]));
            }
            Take::Value => take_mixed(&newest, self.only_totals, &mut column, bounds)?,
            Take::Timestamp | Take::TimestampOfInfo => {
                newest.each(|step, at| column.set(step, seconds(samples.timestamps_ms[at])));
            }
            Take::StartTimestamp => newest.each(|step, at| column.set(step, seconds(samples.start_ms(at)))),
        }
        Ok(column)
    }
}

/// Counts the values of a selector's series.
fn tally(column: &Column, tally: &mut Tally) {
    if tally.is_on() {
        column.float_steps().iter().for_each(|step| tally.add(step, 1));
        column.histograms().for_each(|(step, histogram)| tally.add(step, histogram.n_samples()));
    }
}

/// Sets the values of a series that has histograms.
fn take_mixed(newest: &Newest<'_>, only_totals: bool, column: &mut Column, bounds: &Bounds) -> Result<()> {
    let read = stored::read(newest.samples, only_totals);
    let mut charge = bounds.ctx.charge();
    charge.grow(read.iter().map(|(_, histogram)| histogram.size()).sum())?;
    newest.each(|step, at| match read.binary_search_by_key(&at, |(place, _)| *place as usize) {
        Ok(found) => column.push_histogram(step, Arc::clone(&read[found].1)),
        Err(_) => column.set(step, newest.samples.values[at]),
    });
    Ok(())
}

/// Finds for each step the newest sample in `(t - lookback, t]`; none where that is the end of the series.
struct Newest<'a> {
    samples: &'a SampleColumns,
    shift: Shift,
    grid: Grid,
    lookback_ms: i64,
}

impl Newest<'_> {
    /// Calls `found` with each step that has a sample, and the place of that.
    #[inline]
    fn each(&self, mut found: impl FnMut(usize, usize)) {
        let SampleColumns { timestamps_ms, values, .. } = self.samples;
        let mut after = 0;
        for (step, time_ms) in self.grid.times_ms().enumerate() {
            let time_ms = self.shift.apply(time_ms);
            while timestamps_ms.get(after).is_some_and(|&t| t <= time_ms) {
                after += 1;
            }
            let Some(at) = after.checked_sub(1) else { continue };
            if timestamps_ms[at] > time_ms.saturating_sub(self.lookback_ms) && !is_stale_nan(values[at]) {
                found(step, at);
            }
        }
    }
}

/// Returns the value at a time, of floats or histograms; none where there are both around it.
fn smoothed_of_any(
    samples: &RangeSamples,
    time_ms: i64,
    lookback_ms: i64,
    remarks: &mut Remarks,
) -> Option<SampleValue> {
    let float = || smoothed(&samples.floats, time_ms, lookback_ms).map(SampleValue::Float);
    // Fast path: a series of floats.
    if samples.histograms.is_empty() {
        return float();
    }
    let (earliest_ms, latest_ms) = (time_ms.saturating_sub(lookback_ms), time_ms.saturating_add(lookback_ms));
    let from = samples.histograms.partition_point(|sample| sample.timestamp_ms <= earliest_ms);
    let to = samples.histograms.partition_point(|sample| sample.timestamp_ms <= latest_ms);
    if from == to {
        return float();
    }
    let floats = &samples.floats.timestamps_ms;
    if floats.partition_point(|&t| t <= earliest_ms) != floats.partition_point(|&t| t <= latest_ms) {
        remarks.add(Remark::Mixed);
        return None;
    }
    let histogram = smoothed_histogram(&samples.histograms[from..to], time_ms, remarks)?;
    Some(SampleValue::Histogram(histogram))
}

/// Returns the histogram at a time: that of a sample, or what lies between two, or the last before it.
fn smoothed_histogram(samples: &[HistogramSample], time_ms: i64, remarks: &mut Remarks) -> Option<Arc<FloatHistogram>> {
    let at = samples.partition_point(|sample| sample.timestamp_ms < time_ms);
    let after = samples.get(at);
    if let Some(exact) = after.filter(|sample| sample.timestamp_ms == time_ms) {
        return Some(Arc::clone(&exact.histogram));
    }
    let before = &samples[at.checked_sub(1)?];
    let Some(after) = after else {
        // What is known of resets is about the sample, not about what stands in for one.
        let mut carried = FloatHistogram::clone(&before.histogram);
        carried.reset_hint = ResetHint::Unknown;
        return Some(Arc::new(carried));
    };
    if before.histogram.is_custom() != after.histogram.is_custom() {
        remarks.add(Remark::MixedSchemas);
        return None;
    }
    let is_counter = [before, after].iter().any(|sample| sample.histogram.reset_hint != ResetHint::Gauge);
    match interpolate(before, after, time_ms, is_counter, remarks) {
        Ok(histogram) => Some(Arc::new(histogram)),
        Err(MixedSchemas) => {
            remarks.add(Remark::MixedSchemas);
            None
        }
    }
}

/// Returns the value at a time: that of a sample, or what lies between two, or the last before it.
fn smoothed(samples: &SampleColumns, time_ms: i64, lookback_ms: i64) -> Option<f64> {
    let (earliest_ms, latest_ms) = (time_ms.saturating_sub(lookback_ms), time_ms.saturating_add(lookback_ms));
    let from = samples.timestamps_ms.partition_point(|&t| t <= earliest_ms);
    let to = samples.timestamps_ms.partition_point(|&t| t <= latest_ms);
    let (timestamps_ms, values) = (&samples.timestamps_ms[from..to], &samples.values[from..to]);
    let at = timestamps_ms.partition_point(|&t| t < time_ms);
    if timestamps_ms.get(at) == Some(&time_ms) {
        return Some(values[at]);
    }
    let before = at.checked_sub(1)?;
    if at == values.len() {
        return Some(values[before]);
    }
    let (y1, y2) = (values[before], values[at]);
    let (t1, t2) = (timestamps_ms[before], timestamps_ms[at]);
    Some(y1 + (y2 - y1) * (time_ms - t1) as f64 / (t2 - t1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_tsdb::Sample;
    use varve_tsdb::staleness::STALE_NAN_BITS;

    fn samples(list: &[(i64, f64)]) -> SampleColumns {
        let mut samples = SampleColumns::default();
        list.iter().for_each(|&(timestamp_ms, value)| samples.push(Sample { timestamp_ms, value }));
        samples
    }

    fn check(list: &[(i64, f64)], shift: Shift, grid: Grid, expect: &[Option<f64>]) {
        let (samples, mut column) = (samples(list), Column::absent(grid.n_steps));
        let newest = Newest { samples: &samples, shift, grid, lookback_ms: 10 };
        newest.each(|step, at| column.set(step, samples.values[at]));
        assert_eq!((0..grid.n_steps).map(|step| column.get(step)).collect::<Vec<_>>(), expect);
    }

    const NOW: Shift = Shift { offset_ms: 0, at_ms: None };

    #[test]
    fn a_sample_as_old_as_the_lookback_is_not_seen() {
        let grid = Grid::new(0, 30, 5);
        check(&[(5, 1.0), (20, 2.0)], NOW, grid, &[None, Some(1.0), Some(1.0), None, Some(2.0), Some(2.0), None]);
    }

    #[test]
    fn a_stale_marker_ends_a_series_and_other_nans_do_not() {
        let stale = f64::from_bits(STALE_NAN_BITS);
        check(&[(1, 1.0), (2, stale), (4, 3.0)], NOW, Grid::new(1, 4, 1), &[Some(1.0), None, None, Some(3.0)]);
        let (samples, mut found) = (samples(&[(1, f64::NAN)]), false);
        Newest { samples: &samples, shift: NOW, grid: Grid::instant(1), lookback_ms: 10 }.each(|_, _| found = true);
        assert!(found);
    }

    #[test]
    fn offset_and_at_move_the_time_looked_at() {
        let list = [(0, 1.0), (10, 2.0)];
        check(&list, Shift { offset_ms: 5, at_ms: None }, Grid::new(0, 20, 10), &[None, Some(1.0), Some(2.0)]);
        check(&list, Shift { offset_ms: -10, at_ms: None }, Grid::new(0, 0, 10), &[Some(2.0)]);
        check(&list, Shift { offset_ms: 1, at_ms: Some(10) }, Grid::new(90, 100, 10), &[Some(1.0), Some(1.0)]);
    }

    #[test]
    fn smoothed_values_lie_between_samples() {
        let list = samples(&[(0, 0.0), (10, 10.0)]);
        let at = |time_ms| smoothed(&list, time_ms, 20);
        assert_eq!(
            [at(-1), at(0), at(4), at(10), at(15), at(30)],
            [None, Some(0.0), Some(4.0), Some(10.0), Some(10.0), None]
        );
    }
}
