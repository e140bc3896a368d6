//! Vectors: sets of series, the values of expressions.
//!
//! Invariants
//! 1. Every series of a vector has at least one value. Operators drop series that lose all values.
//! 2. The size of a vector is charged to the memory of the request. Its values count as samples
//!    held by the query.

use hashbrown::HashMap;
use varve_context::{Charge, QueryContext};
use varve_model::Labels;

use super::limits::{HeldSamples, Limits, SERIES_PER_CHECK};
use super::series::{Series, series_size};
use crate::error::{Error, Result};

/// Series over the same steps.
#[derive(Debug)]
pub(crate) struct Vector {
    pub(crate) series: Vec<Series>,
    ctx: QueryContext,
    charge: Charge,
    /// Charged bytes that no series takes yet.
    spare: usize,
    held: HeldSamples,
}

/// A vector charges this part of its size ahead, at most [`CHARGED_AHEAD_MAX`]: charging each of
/// many small series takes as long as computing it.
const CHARGED_AHEAD_PART: usize = 8;
/// Maximum number of bytes that are charged ahead.
const CHARGED_AHEAD_MAX: usize = 64 << 10;

impl Limits {
    /// Returns an empty vector.
    pub(crate) fn vector(&self) -> Vector {
        Vector {
            series: Vec::new(),
            ctx: QueryContext::clone(&self.ctx),
            charge: self.ctx.charge(),
            spare: 0,
            held: self.samples.guard(),
        }
    }
}

impl Vector {
    /// Adds a series, unless it has no values.
    ///
    /// # Errors
    /// [`Error::Limit`] if the query holds too many samples or bytes.
    pub(crate) fn push(&mut self, mut series: Series) -> Result<()> {
        let n_samples = series.column.n_samples();
        if n_samples > 0 {
            self.held.grow(n_samples)?;
            series.column.histograms.shrink_to_fit();
            self.charge_size(series_size(&series))?;
            self.series.push(series);
        }
        Ok(())
    }

    /// Charges `size` more bytes.
    fn charge_size(&mut self, size: usize) -> Result<()> {
        if self.spare < size {
            self.charge.grow(size - self.spare)?;
            self.spare = size;
            let ahead = CHARGED_AHEAD_MAX.min(self.charge.size() / CHARGED_AHEAD_PART);
            if self.charge.grow_if_free(ahead) {
                self.spare += ahead;
            }
        }
        self.spare -= size;
        Ok(())
    }

    /// Returns the series and their charge.
    pub(crate) fn into_parts(mut self) -> (Vec<Series>, Charge) {
        self.charge.shrink(self.spare);
        (self.series, self.charge)
    }

    /// Returns the number of samples.
    pub(crate) fn n_samples(&self) -> usize {
        self.held.n_samples()
    }

    /// Returns the size of the series in bytes.
    pub(crate) fn size(&self) -> usize {
        self.charge.size() - self.spare
    }

    /// Returns a copy, and charges it.
    ///
    /// # Errors
    /// [`Error::Limit`] if the query holds too many samples or bytes.
    pub(crate) fn copy(&self, limits: &Limits) -> Result<Self> {
        let mut copy = limits.vector();
        copy.series.reserve(self.series.len());
        for (at, series) in self.series.iter().enumerate() {
            self.ctx.check_every(SERIES_PER_CHECK, at)?;
            copy.push(series.clone())?;
        }
        Ok(copy)
    }

    /// Appends all series of another vector.
    pub(crate) fn append(&mut self, mut other: Self) -> Result<()> {
        self.held.grow(other.held.n_samples())?;
        self.series.append(&mut other.series);
        self.charge.absorb(other.charge);
        self.spare += other.spare;
        Ok(())
    }

    /// Removes all histograms, and the series that have no floats.
    pub(crate) fn keep_floats(&mut self) {
        // Fast path: no series has histograms.
        if self
            .series
            .iter()
            .all(|series| series.column.histograms.is_empty())
        {
            return;
        }
        for series in &mut self.series {
            series.column.keep_floats();
        }
        self.drop_empty();
    }

    /// Drops series without values.
    pub(crate) fn drop_empty(&mut self) {
        self.series
            .retain(|series| !series.column.present.is_empty());
    }

    /// Changes the labels of every series, and charges their growth.
    ///
    /// # Errors
    /// The first error of `change`; [`Error::Limit`] if the query exceeds its memory limit.
    pub(crate) fn update_labels(
        &mut self,
        mut change: impl FnMut(&mut Series) -> Result<()>,
    ) -> Result<()> {
        for (at, series) in self.series.iter_mut().enumerate() {
            self.ctx.check_every(SERIES_PER_CHECK, at)?;
            let before = series.labels.size();
            change(series)?;
            self.charge
                .grow(series.labels.size().saturating_sub(before))?;
        }
        Ok(())
    }

    /// Merges all series with equal labels into the first one.
    ///
    /// # Errors
    /// [`Error::Execution`] if two series with equal labels have a value at the same step.
    pub(crate) fn merge_same_labels(&mut self) -> Result<()> {
        // Fast path: labels ascend strictly.
        if self.series.is_sorted_by(|a, b| a.labels < b.labels) {
            return Ok(());
        }
        let mut charge = self.ctx.charge();
        charge.grow(
            self.series.len() * (size_of::<(&Labels, usize)>() * 2 + size_of::<usize>() * 2),
        )?;
        let Some(first_of) = self.first_of_labels()? else {
            return Ok(());
        };
        let series = std::mem::take(&mut self.series);
        let mut index_of = Vec::with_capacity(series.len());
        for (at, next) in series.into_iter().enumerate() {
            self.ctx.check_every(SERIES_PER_CHECK, at)?;
            if first_of[at] == at {
                index_of.push(self.series.len());
                self.series.push(next);
                continue;
            }
            let index = index_of[first_of[at]];
            index_of.push(index);
            let column = &mut self.series[index].column;
            if column.present.overlaps(&next.column.present) {
                return Err(Error::same_labels());
            }
            column.fill_from(&next.column);
        }
        Ok(())
    }

    /// Returns for every series the index of the first series with the same labels; `None` if all
    /// label sets differ.
    fn first_of_labels(&self) -> Result<Option<Vec<usize>>> {
        let mut known = HashMap::with_capacity(self.series.len());
        let mut first_of = Vec::with_capacity(self.series.len());
        for (at, series) in self.series.iter().enumerate() {
            self.ctx.check_every(SERIES_PER_CHECK, at)?;
            first_of.push(*known.entry(&series.labels).or_insert(at));
        }
        Ok((known.len() < first_of.len()).then_some(first_of))
    }
}
