//! The samples of one series in the form that range functions read: floats in two columns,
//! histograms in a separate list.

use std::sync::Arc;

use varve_context::Charge;
use varve_model::SampleColumns;
use varve_model::histogram::ResetHint;
use varve_model::staleness::is_stale_nan;

use crate::error::Result;
use crate::eval::columns::Column;
use crate::functions::window::HistogramSample;
use crate::histogram::from_storage;
use crate::steps::Steps;

/// Number of values that are searched for staleness markers at once.
const STALE_CHUNK: usize = 256;

/// The samples of a series without staleness markers. The buffer is reused for all series.
#[derive(Debug)]
pub(in crate::eval) struct RangeSamples {
    /// The floats.
    pub(in crate::eval) floats: SampleColumns,
    /// Start timestamps of the floats, 0 if unknown. Empty if start timestamps are not read, or if
    /// none is known.
    pub(in crate::eval) starts_ms: Vec<i64>,
    /// The histograms, ascending by time.
    pub(in crate::eval) histograms: Vec<HistogramSample>,
    reads_starts: bool,
    /// Charge for the memory of the histograms.
    charge: Charge,
}

impl RangeSamples {
    /// Creates an empty buffer that charges histograms to `charge`.
    pub(in crate::eval) fn new(charge: Charge, reads_starts: bool) -> Self {
        let floats = SampleColumns::default();
        let starts_ms = Vec::new();
        let histograms = Vec::new();
        Self {
            floats,
            starts_ms,
            reads_starts,
            histograms,
            charge,
        }
    }

    /// Reads a series. With `skip_buckets`, reads histograms without their buckets.
    pub(in crate::eval) fn read(
        &mut self,
        series: &varve_tsdb::select::Series,
        skip_buckets: bool,
    ) -> Result<()> {
        self.clear();
        series.read(&mut self.floats)?;
        if self.reads_starts && !self.floats.starts_ms.is_empty() {
            self.charge.grow(self.floats.len() * size_of::<i64>())?;
            self.starts_ms
                .extend((0..self.floats.len()).map(|idx| self.floats.start_ms(idx)));
        }
        if !self.floats.histograms.is_empty() {
            self.split_histograms(skip_buckets)?;
        }
        let SampleColumns {
            timestamps_ms,
            values,
            ..
        } = &mut self.floats;
        if has_stale(values) {
            let keep = |idx: usize| !is_stale_nan(values[idx]);
            retain_indexes(timestamps_ms, keep);
            retain_indexes(&mut self.starts_ms, keep);
            values.retain(|&value| !is_stale_nan(value));
        }
        Ok(())
    }

    /// Reads the values of a subquery from a column. Clears counter reset hints, because there may
    /// be samples between the steps.
    pub(in crate::eval) fn read_column(&mut self, column: &Column, steps: Steps) -> Result<()> {
        self.clear();
        let n_floats = column.float_steps().count();
        // The lists may have more capacity, from the series before.
        self.charge.grow(
            n_floats.max(self.floats.values.capacity()) * (size_of::<i64>() + size_of::<f64>()),
        )?;
        self.floats.timestamps_ms.reserve_exact(n_floats);
        self.floats.values.reserve_exact(n_floats);
        for step in column
            .float_steps()
            .iter()
            .filter(|&step| !is_stale_nan(column.values[step]))
        {
            self.floats.timestamps_ms.push(steps.time_ms(step));
            self.floats.values.push(column.values[step]);
        }
        self.reserve_histograms(column.histograms.len())?;
        for (step, histogram) in column
            .histograms()
            .filter(|(_, histogram)| !is_stale_nan(histogram.sum))
        {
            let mut histogram = Arc::clone(histogram);
            if matches!(histogram.reset_hint, ResetHint::Reset | ResetHint::NoReset) {
                self.charge.grow(histogram.size())?;
                Arc::make_mut(&mut histogram).reset_hint = ResetHint::Unknown;
            }
            self.histograms.push(HistogramSample {
                timestamp_ms: steps.time_ms(step),
                start_ms: 0,
                histogram,
            });
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.floats.clear();
        self.starts_ms.clear();
        self.histograms.clear();
        self.charge.shrink(self.charge.size());
    }

    /// Charges and allocates a list of `n` histograms.
    fn reserve_histograms(&mut self, n: usize) -> Result<()> {
        // The list may have more capacity, from the series before.
        self.charge
            .grow(n.max(self.histograms.capacity()) * size_of::<HistogramSample>())?;
        self.histograms.reserve_exact(n);
        Ok(())
    }

    /// Moves the histograms from the columns to their list.
    fn split_histograms(&mut self, skip_buckets: bool) -> Result<()> {
        self.reserve_histograms(self.floats.histograms.len())?;
        let Self {
            floats,
            starts_ms,
            histograms,
            charge,
            ..
        } = self;
        let read = from_storage::read(floats, skip_buckets, charge)?;
        for (index, histogram) in &read {
            if is_stale_nan(histogram.sum) {
                continue;
            }
            let timestamp_ms = floats.timestamps_ms[*index as usize];
            let start_ms = starts_ms.get(*index as usize).copied().unwrap_or(0);
            histograms.push(HistogramSample {
                timestamp_ms,
                start_ms,
                histogram: histogram.clone(),
            });
        }
        let is_float = |idx: usize| {
            read.binary_search_by_key(&idx, |(index, _)| *index as usize)
                .is_err()
        };
        retain_indexes(&mut floats.timestamps_ms, is_float);
        retain_indexes(&mut floats.values, is_float);
        retain_indexes(starts_ms, is_float);
        floats.histograms.clear();
        Ok(())
    }
}

/// Returns `true` if a value is the staleness marker.
fn has_stale(values: &[f64]) -> bool {
    // A chunk without a branch compiles to vector instructions.
    values.chunks(STALE_CHUNK).any(|chunk| {
        let is_stale = chunk.iter().map(|&value| is_stale_nan(value));
        is_stale.fold(false, |any, is_stale| any | is_stale)
    })
}

/// Keeps the elements whose indexes `keep` accepts.
fn retain_indexes<T>(list: &mut Vec<T>, keep: impl Fn(usize) -> bool) {
    let mut indexes = 0..;
    list.retain(|_| indexes.next().is_some_and(&keep));
}
