//! Selectors of instant vectors: the newest sample of every series that is not too old.

use varve_tsdb::{SampleColumns, SeriesSet, TimeRange, is_stale_nan};

use super::Evaluator;
use super::column::Column;
use super::grid::Grid;
use super::series::Series;
use crate::error::{Error, Result};
use crate::plan::{Selector, Shift};
use crate::promql::ast::RangeExtension;

/// What of a sample is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Take {
    Value,
    /// The time in seconds.
    Timestamp,
}

impl Evaluator<'_> {
    /// Hands out the series of a selector.
    pub(super) fn each_selected(
        &mut self,
        selector: &Selector,
        grid: Grid,
        sink: &mut dyn FnMut(Series) -> Result<()>,
    ) -> Result<()> {
        match selector.extension {
            None => self.each_newest(selector, selector.shift, grid, Take::Value, sink),
            Some(RangeExtension::Smoothed) => self.each_smoothed(selector, grid, sink),
            Some(RangeExtension::Anchored) => {
                Err(Error::Unsupported("anchored is not supported on an instant vector selector".into()))
            }
        }
    }

    /// Hands out for every series and step the newest sample that is younger than the lookback and no end of a series.
    /// `shift` tells when to look, among the samples that the selector selects.
    pub(super) fn each_newest(
        &mut self,
        selector: &Selector,
        shift: Shift,
        grid: Grid,
        take: Take,
        sink: &mut dyn FnMut(Series) -> Result<()>,
    ) -> Result<()> {
        let lookback_ms = self.settings.lookback_ms;
        let mut samples = SampleColumns::default();
        for series in self.select(selector, grid, lookback_ms, 0)? {
            let series = series?;
            self.bounds.check()?;
            samples.clear();
            series.read(&mut samples)?;
            refuse_histograms(&samples)?;
            let mut column = self.bounds.column(grid.n_steps)?;
            newest(&samples, shift, grid, lookback_ms, take, &mut column);
            if !column.present.is_empty() {
                sink(Series { labels: series.labels().clone(), drop_name: false, column })?;
            }
        }
        Ok(())
    }

    /// Hands out for every series and step the value on the line between the samples around it.
    fn each_smoothed(
        &mut self,
        selector: &Selector,
        grid: Grid,
        sink: &mut dyn FnMut(Series) -> Result<()>,
    ) -> Result<()> {
        let lookback_ms = self.settings.lookback_ms;
        let mut samples = SampleColumns::default();
        for series in self.select(selector, grid, lookback_ms, lookback_ms)? {
            let series = series?;
            self.bounds.check()?;
            read_without_ends(&series, &mut samples)?;
            let mut column = self.bounds.column(grid.n_steps)?;
            for (step, time_ms) in grid.times_ms().enumerate() {
                if let Some(value) = smoothed(&samples, selector.shift.apply(time_ms), lookback_ms) {
                    column.set(step, value);
                }
            }
            if !column.present.is_empty() {
                sink(Series { labels: series.labels().clone(), drop_name: false, column })?;
            }
        }
        Ok(())
    }

    /// Selects the samples that the steps may look at: behind `before_ms` before the first, up to `after_ms` after the
    /// last.
    pub(super) fn select(&self, selector: &Selector, grid: Grid, before_ms: i64, after_ms: i64) -> Result<SeriesSet> {
        let range = TimeRange {
            start_ms: selector.shift.apply(grid.start_ms).saturating_sub(before_ms).saturating_add(1),
            end_ms: selector.shift.apply(grid.end_ms).saturating_add(after_ms),
        };
        Ok(self.db.select(&self.bounds.ctx, &selector.matchers, range)?)
    }

    /// Hands out `timestamp(selector)`.
    pub(super) fn each_timestamp(
        &mut self,
        selector: &Selector,
        grid: Grid,
        sink: &mut dyn FnMut(Series) -> Result<()>,
    ) -> Result<()> {
        if selector.extension.is_some() {
            return self.each_selected(selector, grid, sink);
        }
        // With `@` Prometheus passes over the offset here, but still selects samples by it.
        let shift = match selector.shift.at_ms {
            Some(_) => Shift { offset_ms: 0, ..selector.shift },
            None => selector.shift,
        };
        self.each_newest(selector, shift, grid, Take::Timestamp, sink)
    }
}

/// Reads the samples of a series, leaving out the markers of its ends.
pub(super) fn read_without_ends(series: &varve_tsdb::Series, samples: &mut SampleColumns) -> Result<()> {
    samples.clear();
    series.read(samples)?;
    refuse_histograms(samples)?;
    if samples.values.iter().any(|&value| is_stale_nan(value)) {
        let mut values = samples.values.iter();
        samples.timestamps_ms.retain(|_| values.next().is_some_and(|&value| !is_stale_nan(value)));
        samples.values.retain(|&value| !is_stale_nan(value));
    }
    Ok(())
}

/// Their sums are no values.
fn refuse_histograms(samples: &SampleColumns) -> Result<()> {
    if samples.histograms.is_empty() {
        return Ok(());
    }
    Err(Error::Unsupported("native histograms are stored, and not evaluated yet".to_owned()))
}

/// Finds for each step the newest sample in `(t - lookback, t]`; none where that is the end of the series.
fn newest(samples: &SampleColumns, shift: Shift, grid: Grid, lookback_ms: i64, take: Take, out: &mut Column) {
    let SampleColumns { timestamps_ms, values, .. } = samples;
    let mut after = 0;
    for (step, time_ms) in grid.times_ms().enumerate() {
        let time_ms = shift.apply(time_ms);
        while timestamps_ms.get(after).is_some_and(|&t| t <= time_ms) {
            after += 1;
        }
        let Some(at) = after.checked_sub(1) else { continue };
        if timestamps_ms[at] > time_ms.saturating_sub(lookback_ms) && !is_stale_nan(values[at]) {
            out.set(
                step,
                match take {
                    Take::Value => values[at],
                    Take::Timestamp => timestamps_ms[at] as f64 / 1000.0,
                },
            );
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
    use varve_tsdb::{STALE_NAN_BITS, Sample};

    fn samples(list: &[(i64, f64)]) -> SampleColumns {
        let mut samples = SampleColumns::default();
        list.iter().for_each(|&(timestamp_ms, value)| samples.push(Sample { timestamp_ms, value }));
        samples
    }

    fn check(list: &[(i64, f64)], shift: Shift, grid: Grid, expect: &[Option<f64>]) {
        let mut column = Column::absent(grid.n_steps);
        newest(&samples(list), shift, grid, 10, Take::Value, &mut column);
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
        let mut column = Column::absent(1);
        newest(&samples(&[(1, f64::NAN)]), NOW, Grid::instant(1), 10, Take::Value, &mut column);
        assert!(column.get(0).is_some_and(f64::is_nan));
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
