//! Consecutive series of a block, encoded on any thread before the writer adds them in order.
//!
//! Used by imports, which encode on all cores. The writer adds what depends on the series before:
//! the index, and the numbers of timestamp columns.

use hashbrown::HashMap;
use varve_model::{SampleColumns, TimeRange, start_timestamps};

use super::directory::TimestampColumnId;
use super::group::GroupBuilder;
use super::meta::EMPTY_RANGE;
use super::rows::histograms::RowSamples;
use super::slice::{SliceSpan, check, slice};
use super::symbol::Symbol;

/// Encodes consecutive series of a block. A group of the block does not cross the end of a batch,
/// so a batch should have a multiple of 256 series.
pub(crate) struct SeriesBatch {
    pub(super) window: TimeRange,
    pub(super) range: TimeRange,
    n_samples: u64,
    /// Finished groups, in order.
    pub(super) groups: Vec<BatchGroup>,
    open: BatchGroup,
    spans: Vec<SliceSpan>,
}

/// A group of a batch.
#[derive(Default)]
pub(super) struct BatchGroup {
    /// Its timestamp columns have numbers of `columns`.
    pub(super) rows: GroupBuilder,
    pub(super) columns: DistinctColumns,
    pub(super) labels: Vec<Symbol>,
    /// For each series, the end of its labels.
    pub(super) label_ends: Vec<usize>,
}

/// Distinct timestamp columns, in order of first occurrence.
#[derive(Default)]
pub(super) struct DistinctColumns {
    pub(super) timestamps_ms: Vec<Box<[i64]>>,
    numbers: HashMap<Box<[i64]>, u32>,
    last: u32,
}

impl SeriesBatch {
    /// Creates an empty batch of a block of this window.
    pub(crate) fn new(window: TimeRange) -> Self {
        Self {
            window,
            range: EMPTY_RANGE,
            n_samples: 0,
            groups: Vec::new(),
            open: BatchGroup::default(),
            spans: Vec::new(),
        }
    }

    /// Returns the number of samples.
    pub(crate) fn n_samples(&self) -> u64 {
        self.n_samples
    }

    /// Adds a series with its samples.
    ///
    /// # Panics
    /// If there are no samples, or if the timestamps do not ascend within the window of the block.
    pub(crate) fn push(&mut self, labels: impl Iterator<Item = Symbol>, samples: &SampleColumns) {
        let range = check(samples, self.window);
        slice(samples, self.window, &mut self.spans);
        // A series with more samples than fit a page gets a group of its own.
        let is_alone = self.spans.iter().any(|(key, _)| key.run > 0);
        if is_alone {
            self.end_group();
        }
        for (key, span) in &self.spans {
            let times_ms = &samples.timestamps_ms[span.clone()];
            let number = self.open.columns.number(times_ms);
            let starts = start_timestamps::slice(&samples.starts_ms, span.clone());
            self.open.rows.push(
                *key,
                TimestampColumnId(number),
                times_ms,
                RowSamples::of(samples, span.clone()),
                &starts,
            );
        }
        self.open.rows.end_series();
        self.open.labels.extend(labels);
        self.open.label_ends.push(self.open.labels.len());
        self.range = self.range.hull(range);
        self.n_samples += samples.len() as u64;
        if is_alone || self.open.rows.is_full() {
            self.end_group();
        }
    }

    /// Ends the last group. No series may follow.
    pub(super) fn finish(&mut self) {
        self.end_group();
    }

    fn end_group(&mut self) {
        if self.open.rows.n_series() > 0 {
            self.groups.push(std::mem::take(&mut self.open));
        }
    }
}

impl DistinctColumns {
    /// Returns the number of a timestamp column.
    fn number(&mut self, times_ms: &[i64]) -> u32 {
        // Fast path: a series of the same target as the series before.
        if let Some(last) = self.timestamps_ms.get(self.last as usize)
            && **last == *times_ms
        {
            return self.last;
        }
        if let Some(&number) = self.numbers.get(times_ms) {
            self.last = number;
            return number;
        }
        // A group has at most 256 series with a column for each page of rows.
        let number = self.timestamps_ms.len() as u32;
        self.timestamps_ms.push(times_ms.into());
        self.numbers.insert(times_ms.into(), number);
        self.last = number;
        number
    }
}
