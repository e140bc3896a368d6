//! Finds the latest sample of a series at each step.

use std::sync::Arc;

use varve_model::staleness::is_stale_nan;
use varve_model::{Sample, SampleColumns};
use varve_tsdb::select::{Series as StoredSeries, SeriesSet};

use crate::error::{Error, Result};
use crate::eval::columns::{Column, HISTOGRAM_ENTRY_SIZE, Limits, Series, printed};
use crate::eval::evaluator::Sink;
use crate::eval::stream::Batch;
use crate::eval::time_cursor::TimeCursor;
use crate::histogram::from_storage;
use crate::plan::Shift;
use crate::steps::Steps;

/// The field of a sample that is selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::eval) enum SampleField {
    Value,
    /// The timestamp in seconds.
    Timestamp,
    /// The start timestamp in seconds; 0 if it is unknown.
    StartTimestamp,
    /// The timestamp in seconds of a sample of an info series. The sample must be a float.
    InfoTimestamp,
}

/// Parameters for reading the series of a selector.
pub(super) struct InstantSelection {
    pub(super) field: SampleField,
    pub(super) shift: Shift,
    pub(super) steps: Steps,
    pub(super) lookback_ms: i64,
    pub(super) skip_buckets: bool,
    /// The selection has one step, at its end, and needs only the newest sample of each series.
    pub(super) only_newest: bool,
}

/// Passes the newest float of each series on, except for staleness markers. Returns `false` if the
/// series must be read instead.
pub(super) fn each_newest_float(set: &SeriesSet, sink: Sink<'_>) -> Result<bool> {
    set.each_newest_float(|labels, newest| {
        if is_stale_nan(newest.value) {
            return Ok(());
        }
        let mut column = Column::absent(1);
        column.set(0, newest.value);
        sink(Series {
            labels: labels.clone(),
            drop_name: false,
            column,
        })
    })
}

impl InstantSelection {
    pub(super) fn produce(
        &self,
        stored: &[StoredSeries],
        limits: &Limits,
        out: &mut Batch<'_>,
    ) -> Result<()> {
        let mut samples = SampleColumns::default();
        let mut n_newest = 0;
        out.reserve(stored.len())?;
        StoredSeries::try_for_each(stored, |series| {
            // Fast path: the newest sample of a series of floats.
            if self.only_newest
                && let Some(newest) = series.newest_float()
            {
                n_newest += 1;
                return self.push_newest(series, newest, limits, out);
            }
            samples.clear();
            series.read(&mut samples)?;
            if self.field == SampleField::InfoTimestamp && !samples.histograms.is_empty() {
                let text = format!(
                    "this should be an info metric, with float samples: {}",
                    printed(series.labels())
                );
                return Err(Error::Execution(text));
            }
            let column = self.column(&samples, limits)?;
            out.sample_stats.add_series();
            out.sample_stats.add_column(&column);
            out.push(Series {
                labels: series.labels().clone(),
                drop_name: false,
                column,
            })
        })?;
        Ok(limits.ctx.count_samples(n_newest)?)
    }

    /// Produces a series of which only the newest sample was read.
    #[inline]
    fn push_newest(
        &self,
        series: &StoredSeries,
        newest: Sample,
        limits: &Limits,
        out: &mut Batch<'_>,
    ) -> Result<()> {
        out.sample_stats.add_series();
        if is_stale_nan(newest.value) {
            return Ok(());
        }
        let mut column = limits.column(1)?;
        let value = match self.field {
            SampleField::Value => newest.value,
            _ => seconds(newest.timestamp_ms),
        };
        column.set(0, value);
        out.sample_stats.add_column(&column);
        out.push(Series {
            labels: series.labels().clone(),
            drop_name: false,
            column,
        })
    }

    fn column(&self, samples: &SampleColumns, limits: &Limits) -> Result<Column> {
        let Self {
            shift,
            steps,
            lookback_ms,
            ..
        } = *self;
        let mut column = limits.column(steps.n_steps)?;
        let latest = LatestSamples {
            samples,
            shift,
            steps,
            lookback_ms,
        };
        match self.field {
            // Fast path: a series of floats.
            SampleField::Value if samples.histograms.is_empty() => {
                latest.each(|step, at| column.set(step, samples.values[at]));
            }
            SampleField::Value => set_values(&latest, self.skip_buckets, &mut column, limits)?,
            SampleField::Timestamp | SampleField::InfoTimestamp => {
                latest.each(|step, at| column.set(step, seconds(samples.timestamps_ms[at])));
            }
            SampleField::StartTimestamp => {
                latest.each(|step, at| column.set(step, seconds(samples.start_ms(at))))
            }
        }
        Ok(column)
    }
}

/// Sets the values of a series that has histograms.
fn set_values(
    latest: &LatestSamples<'_>,
    skip_buckets: bool,
    column: &mut Column,
    limits: &Limits,
) -> Result<()> {
    let mut charge = limits.ctx.charge();
    let read = from_storage::read(latest.samples, skip_buckets, &mut charge)?;
    charge.grow(latest.steps.n_steps * HISTOGRAM_ENTRY_SIZE)?;
    latest.each(
        |step, at| match read.binary_search_by_key(&at, |(index, _)| *index as usize) {
            Ok(found) => column.push_histogram(step, Arc::clone(&read[found].1)),
            Err(_) => column.set(step, latest.samples.values[at]),
        },
    );
    Ok(())
}

/// Finds for each step the latest sample in `(t - lookback, t]`. A step has no sample if the latest
/// one is a staleness marker.
struct LatestSamples<'a> {
    samples: &'a SampleColumns,
    shift: Shift,
    steps: Steps,
    lookback_ms: i64,
}

impl LatestSamples<'_> {
    /// Calls `found` with each step that has a sample, and with the index of the sample.
    #[inline]
    fn each(&self, mut found: impl FnMut(usize, usize)) {
        let SampleColumns {
            timestamps_ms,
            values,
            ..
        } = self.samples;
        let mut cursor = TimeCursor::default();
        for (step, time_ms) in self.steps.times_ms().enumerate() {
            let time_ms = self.shift.apply(time_ms);
            cursor.move_after(time_ms, timestamps_ms);
            let Some(at) = cursor.n_before().checked_sub(1) else {
                continue;
            };
            if timestamps_ms[at] > time_ms.saturating_sub(self.lookback_ms)
                && !is_stale_nan(values[at])
            {
                found(step, at);
            }
        }
    }
}

fn seconds(time_ms: i64) -> f64 {
    time_ms as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_model::staleness::STALE_NAN_BITS;

    fn samples(list: &[(i64, f64)]) -> SampleColumns {
        let mut samples = SampleColumns::default();
        for &(timestamp_ms, value) in list.iter() {
            samples.push(Sample {
                timestamp_ms,
                value,
            })
        }
        samples
    }

    fn check(list: &[(i64, f64)], shift: Shift, steps: Steps, expect: &[Option<f64>]) {
        let samples = samples(list);
        let mut column = Column::absent(steps.n_steps);
        let latest = LatestSamples {
            samples: &samples,
            shift,
            steps,
            lookback_ms: 10,
        };
        latest.each(|step, at| column.set(step, samples.values[at]));
        assert_eq!(
            (0..steps.n_steps)
                .map(|step| column.get(step))
                .collect::<Vec<_>>(),
            expect
        );
    }

    const NOW: Shift = Shift {
        offset_ms: 0,
        at_ms: None,
    };

    #[test]
    fn a_sample_as_old_as_the_lookback_delta_is_excluded() {
        let steps = Steps::range(0, 30, 5);
        check(
            &[(5, 1.0), (20, 2.0)],
            NOW,
            steps,
            &[None, Some(1.0), Some(1.0), None, Some(2.0), Some(2.0), None],
        );
    }

    #[test]
    fn only_a_staleness_marker_ends_a_series() {
        let stale = f64::from_bits(STALE_NAN_BITS);
        check(
            &[(1, 1.0), (2, stale), (4, 3.0)],
            NOW,
            Steps::range(1, 4, 1),
            &[Some(1.0), None, None, Some(3.0)],
        );
        let samples = samples(&[(1, f64::NAN)]);
        let mut found = false;
        LatestSamples {
            samples: &samples,
            shift: NOW,
            steps: Steps::instant(1),
            lookback_ms: 10,
        }
        .each(|_, _| found = true);
        assert!(found);
    }

    #[test]
    fn offset_and_at_shift_the_evaluation_time() {
        let list = [(0, 1.0), (10, 2.0)];
        check(
            &list,
            Shift {
                offset_ms: 5,
                at_ms: None,
            },
            Steps::range(0, 20, 10),
            &[None, Some(1.0), Some(2.0)],
        );
        check(
            &list,
            Shift {
                offset_ms: -10,
                at_ms: None,
            },
            Steps::range(0, 0, 10),
            &[Some(2.0)],
        );
        check(
            &list,
            Shift {
                offset_ms: 1,
                at_ms: Some(10),
            },
            Steps::range(90, 100, 10),
            &[Some(1.0), Some(1.0)],
        );
    }
}
