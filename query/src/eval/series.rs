//! Series and vectors of series: what expressions evaluate to.
//!
//! Invariants
//! 1. Every series of a vector has at least one value; operators drop those that lose all.
//! 2. What a vector holds is charged: its bytes to the request's memory, its values to the samples of the query.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use varve_tsdb::context::Charge;
use varve_tsdb::labels::METRIC_NAME;
use varve_tsdb::{Labels, QueryContext};

use super::column::Column;
use crate::error::{Error, Result};

/// One series over the steps of a grid.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    pub(crate) labels: Labels,
    /// The metric name is to go at the end of the evaluation (delayed name removal).
    pub(crate) drop_name: bool,
    pub(crate) column: Column,
}

impl Series {
    /// Takes the metric name off, now or at the end of the evaluation.
    pub(crate) fn drop_name(&mut self, delayed: bool) {
        self.drop_name = true;
        if !delayed {
            self.labels = without_name(&self.labels);
        }
    }
}

/// Labels that go wherever the metric name goes.
pub(crate) const NAME_LABELS: [&str; 2] = ["__type__", "__unit__"];

/// Tells whether a label is the metric name or goes wherever that goes.
pub(crate) fn is_name_label(name: &str) -> bool {
    name.starts_with("__") && (name == METRIC_NAME || NAME_LABELS.contains(&name))
}

/// Returns a label set without the metric name, type and unit.
pub(crate) fn without_name(labels: &Labels) -> Labels {
    // Fast path: nothing to remove.
    if labels.iter().any(|(name, _)| is_name_label(name)) {
        labels.filter(|name| !is_name_label(name))
    } else {
        labels.clone()
    }
}

/// Columns of so many steps are made before they are charged.
const SMALL_COLUMN_STEPS: usize = 512;

/// How many samples a query holds, and how many it may.
#[derive(Debug, Clone)]
pub(crate) struct SampleCount {
    held: Arc<AtomicUsize>,
    /// The most that were held.
    peak: Arc<AtomicUsize>,
    max: usize,
}

impl SampleCount {
    pub(crate) fn new(max: usize) -> Self {
        Self { held: Arc::default(), peak: Arc::default(), max }
    }

    /// Returns the most samples that were held at once.
    pub(crate) fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    /// Returns a hold of no samples.
    pub(crate) fn hold(&self) -> SampleHold {
        SampleHold { count: self.clone(), n_samples: 0 }
    }

    /// Fails if `n_samples` more than are held would be too many.
    pub(crate) fn check(&self, n_samples: usize) -> Result<()> {
        if self.held.load(Ordering::Relaxed).saturating_add(n_samples) > self.max {
            return Err(Error::too_many_samples());
        }
        Ok(())
    }
}

/// Samples that are held until this is dropped.
#[derive(Debug)]
pub(crate) struct SampleHold {
    count: SampleCount,
    n_samples: usize,
}

impl SampleHold {
    /// Counts more samples as held.
    ///
    /// # Errors
    /// [`Error::Limit`] if the query holds too many.
    pub(crate) fn grow(&mut self, n_samples: usize) -> Result<()> {
        let SampleCount { held, peak, max } = &self.count;
        let before = held.fetch_add(n_samples, Ordering::Relaxed);
        self.n_samples += n_samples;
        let after = before.saturating_add(n_samples);
        peak.fetch_max(after, Ordering::Relaxed);
        if after > *max { Err(Error::too_many_samples()) } else { Ok(()) }
    }
}

impl Drop for SampleHold {
    fn drop(&mut self) {
        self.count.held.fetch_sub(self.n_samples, Ordering::Relaxed);
    }
}

/// What bounds an evaluation; handed to whatever builds vectors.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    pub(crate) ctx: QueryContext,
    pub(crate) samples: SampleCount,
}

impl Bounds {
    /// Fails if the request is to end.
    pub(crate) fn check(&self) -> Result<()> {
        Ok(self.ctx.check()?)
    }

    /// Returns an empty vector.
    pub(crate) fn vector(&self) -> Vector {
        Vector { series: Vec::new(), charge: self.ctx.charge(), hold: self.samples.hold() }
    }

    /// Reserves the memory for a column, before it is made.
    pub(crate) fn charge_column(&self, n_steps: usize) -> Result<Charge> {
        // More steps than samples are allowed cannot come to anything, and must not be tried.
        if n_steps > self.samples.max {
            return Err(Error::too_many_samples());
        }
        let mut charge = self.ctx.charge();
        charge.grow(Column::size(n_steps))?;
        Ok(charge)
    }

    /// Returns a column without values; the caller charges it when it keeps it.
    pub(crate) fn column(&self, n_steps: usize) -> Result<Column> {
        // Fast path: a small one does no harm before it is charged.
        if n_steps > SMALL_COLUMN_STEPS {
            drop(self.charge_column(n_steps)?);
        }
        Ok(Column::absent(n_steps))
    }
}

/// Series over one grid.
#[derive(Debug)]
pub(crate) struct Vector {
    pub(crate) series: Vec<Series>,
    charge: Charge,
    hold: SampleHold,
}

impl Vector {
    /// Adds a series, unless it has no values.
    ///
    /// # Errors
    /// [`Error::Limit`] if the query holds too much.
    pub(crate) fn push(&mut self, series: Series) -> Result<()> {
        let n_samples = series.column.n_samples();
        if n_samples > 0 {
            self.hold.grow(n_samples)?;
            self.charge.grow(series_size(&series))?;
            self.series.push(series);
        }
        Ok(())
    }

    /// Counts the samples.
    pub(crate) fn n_samples(&self) -> usize {
        self.hold.n_samples
    }

    /// Returns the bytes that are charged for it.
    pub(crate) fn size(&self) -> usize {
        self.charge.size()
    }

    /// Returns a copy, charged as this one is.
    ///
    /// # Errors
    /// [`Error::Limit`] if the query holds too much.
    pub(crate) fn copy(&self, bounds: &Bounds) -> Result<Self> {
        let mut copy = bounds.vector();
        copy.series.reserve(self.series.len());
        self.series.iter().try_for_each(|series| copy.push(series.clone()))?;
        Ok(copy)
    }

    /// Takes over all series of another vector.
    pub(crate) fn append(&mut self, mut other: Self) -> Result<()> {
        self.hold.grow(other.hold.n_samples)?;
        self.series.append(&mut other.series);
        self.charge.absorb(other.charge);
        Ok(())
    }

    /// Removes all histograms, and the series that have nothing else.
    pub(crate) fn keep_floats(&mut self) {
        // Fast path: no series has histograms.
        if self.series.iter().all(|series| series.column.histograms.is_empty()) {
            return;
        }
        self.series.iter_mut().for_each(|series| series.column.keep_floats());
        self.drop_empty();
    }

    /// Drops series that have lost all values.
    pub(crate) fn drop_empty(&mut self) {
        self.series.retain(|series| !series.column.present.is_empty());
    }

    /// Joins series of equal labels into one; the first keeps its place.
    ///
    /// # Errors
    /// [`Error::Execution`] if two have a value at the same step.
    pub(crate) fn merge_same_labels(&mut self) -> Result<()> {
        let Some(first_of) = self.first_of_labels() else { return Ok(()) };
        let series = std::mem::take(&mut self.series);
        let mut place_of = Vec::with_capacity(series.len());
        for (at, next) in series.into_iter().enumerate() {
            if first_of[at] == at {
                place_of.push(self.series.len());
                self.series.push(next);
                continue;
            }
            let place = place_of[first_of[at]];
            place_of.push(place);
            let column = &mut self.series[place].column;
            if column.present.overlaps(&next.column.present) {
                return Err(Error::same_labels());
            }
            column.fill_from(&next.column);
        }
        Ok(())
    }

    /// For every series the index of the first with its labels; `None` if all labels differ.
    fn first_of_labels(&self) -> Option<Vec<usize>> {
        // Fast path: neighbours in ascending order.
        if self.series.is_sorted_by(|a, b| a.labels < b.labels) {
            return None;
        }
        let mut known = HashMap::with_capacity(self.series.len());
        let mut all_differ = true;
        let first_of: Vec<_> = self
            .series
            .iter()
            .enumerate()
            .map(|(at, series)| match known.entry(&series.labels) {
                Entry::Vacant(free) => *free.insert(at),
                Entry::Occupied(first) => {
                    all_differ = false;
                    *first.get()
                }
            })
            .collect();
        (!all_differ).then_some(first_of)
    }
}

/// Returns the bytes that a series takes.
pub(crate) fn series_size(series: &Series) -> usize {
    size_of::<Series>()
        + series.labels.size()
        + Column::size(series.column.values.len())
        + series.column.histograms_size()
}
