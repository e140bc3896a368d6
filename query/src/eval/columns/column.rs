//! A column: the values of one series at all steps.
//!
//! A bitmap marks the steps that have a value. No float can mark missing values, because every NaN
//! is a valid value. Histograms are in a separate list, which is empty for nearly all series.
//!
//! Invariants
//! 1. A column has one value for each step.
//! 2. The values and histograms of absent steps are arbitrary. Kernels may compute with them.
//! 3. Histograms ascend by step, at most one per step. The float at the step of a histogram is
//!    arbitrary.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use crate::histogram::FloatHistogram;
use crate::step_set::StepSet;

/// Values at steps.
#[derive(Debug)]
pub(crate) struct Column {
    /// One value per step. A single one takes no memory on the heap: millions of series have one.
    pub(crate) values: SmallVec<[f64; 1]>,
    /// The steps that have a value.
    pub(crate) present: StepSet,
    /// The histograms with their steps.
    pub(crate) histograms: Vec<(usize, Arc<FloatHistogram>)>,
}

/// Size of an entry of a list of histograms that grows: the old and the new list exist at the same
/// time.
pub(crate) const HISTOGRAM_ENTRY_SIZE: usize = 3 * size_of::<(usize, Arc<FloatHistogram>)>();

impl Clone for Column {
    fn clone(&self) -> Self {
        Self {
            values: self.copied_values(),
            present: self.present.clone(),
            histograms: self.histograms.clone(),
        }
    }
}

impl Column {
    /// Creates a column without values.
    pub(crate) fn absent(n_steps: usize) -> Self {
        Self {
            values: smallvec![0.0; n_steps],
            present: StepSet::empty(n_steps),
            histograms: Vec::new(),
        }
    }

    /// Creates a column with a value at every step.
    pub(crate) fn full(values: Vec<f64>) -> Self {
        let present = StepSet::full(values.len());
        Self {
            values: values.into(),
            present,
            histograms: Vec::new(),
        }
    }

    /// Creates a column of `n_steps` steps that repeats the value of the first step of `first`.
    pub(crate) fn repeated(first: &Self, n_steps: usize) -> Self {
        let mut column = Self::full(vec![first.values[0]; n_steps]);
        if let Some(histogram) = first.histogram(0) {
            column
                .histograms
                .extend((0..n_steps).map(|step| (step, Arc::clone(histogram))));
        }
        column
    }

    /// Returns a copy of the values. `SmallVec::clone` rounds the capacity up, which would not be
    /// charged.
    pub(crate) fn copied_values(&self) -> SmallVec<[f64; 1]> {
        SmallVec::from_slice(&self.values)
    }

    /// Returns the float at a step, or `None` if there is none. The column must not have
    /// histograms.
    #[inline]
    pub(crate) fn get(&self, step: usize) -> Option<f64> {
        self.present.contains(step).then(|| self.values[step])
    }

    /// Returns the histogram at a step, or `None` if the step has no value or a float.
    #[inline]
    pub(crate) fn histogram(&self, step: usize) -> Option<&Arc<FloatHistogram>> {
        // Fast path: a series of floats.
        if self.histograms.is_empty() || !self.present.contains(step) {
            return None;
        }
        let at = self
            .histograms
            .binary_search_by_key(&step, |(step, _)| *step)
            .ok()?;
        Some(&self.histograms[at].1)
    }

    /// Iterates over the histograms at present steps.
    pub(crate) fn histograms(&self) -> impl Iterator<Item = (usize, &Arc<FloatHistogram>)> + '_ {
        self.histograms
            .iter()
            .filter(|(step, _)| self.present.contains(*step))
            .map(|(step, histogram)| (*step, histogram))
    }

    /// Returns the steps whose values are histograms.
    pub(crate) fn histogram_steps(&self) -> StepSet {
        let mut steps = self.present.clone();
        steps.subtract(&self.float_steps());
        steps
    }

    /// Returns the steps whose values are floats.
    pub(crate) fn float_steps(&self) -> Cow<'_, StepSet> {
        let mut steps = Cow::Borrowed(&self.present);
        for (step, _) in &self.histograms {
            steps.to_mut().remove(*step);
        }
        steps
    }

    /// Removes all histograms.
    pub(crate) fn keep_floats(&mut self) {
        for (step, _) in self.histograms.drain(..) {
            self.present.remove(step);
        }
    }

    /// Appends a histogram. `step` must be after all other histograms. Before, the caller charges
    /// [`HISTOGRAM_ENTRY_SIZE`].
    pub(crate) fn push_histogram(&mut self, step: usize, histogram: Arc<FloatHistogram>) {
        debug_assert!(
            self.histograms.last().is_none_or(|(last, _)| *last < step),
            "histograms ascend by step"
        );
        self.set(step, 0.0);
        self.histograms.push((step, histogram));
    }

    /// Maps each histogram to `f` of it. Adjacent steps that share a histogram share the result.
    pub(crate) fn map_histograms(&mut self, f: impl Fn(&FloatHistogram) -> FloatHistogram) {
        let mut before: Option<(Arc<FloatHistogram>, Arc<FloatHistogram>)> = None;
        for (_, histogram) in &mut self.histograms {
            let old = Arc::clone(histogram);
            *histogram = match &before {
                Some((known, new)) if Arc::ptr_eq(known, &old) => Arc::clone(new),
                _ => Arc::new(f(&old)),
            };
            before = Some((old, Arc::clone(histogram)));
        }
    }

    /// Returns the number of values. A histogram counts by its size, as in Prometheus.
    pub(crate) fn n_samples(&self) -> usize {
        let more: usize = self
            .histograms()
            .map(|(_, histogram)| histogram.n_samples() - 1)
            .sum();
        self.present.count() + more
    }

    /// Returns the size of the histograms in bytes. A histogram that adjacent steps share counts
    /// once.
    pub(crate) fn histograms_size(&self) -> usize {
        let mut size = self.histograms.len() * size_of::<(usize, Arc<FloatHistogram>)>();
        let mut before: Option<&Arc<FloatHistogram>> = None;
        for (_, histogram) in &self.histograms {
            if before.is_none_or(|before| !Arc::ptr_eq(before, histogram)) {
                size += histogram.size();
            }
            before = Some(histogram);
        }
        size
    }

    /// Sets the float at a step.
    #[inline]
    pub(crate) fn set(&mut self, step: usize, value: f64) {
        self.values[step] = value;
        self.present.insert(step);
    }

    /// Iterates over the steps with a value, in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        self.present.iter().map(|step| (step, self.values[step]))
    }

    /// Copies the values of another column to the steps that have no value.
    pub(crate) fn fill_from(&mut self, other: &Self) {
        if !(self.histograms.is_empty() && other.histograms.is_empty()) {
            let Self {
                present,
                histograms,
                ..
            } = self;
            histograms.retain(|(step, _)| present.contains(*step));
            let new = other
                .histograms()
                .filter(|(step, _)| !present.contains(*step));
            histograms.extend(new.map(|(step, histogram)| (step, Arc::clone(histogram))));
            histograms.sort_by_key(|(step, _)| *step);
        }
        for (step, value) in other.iter() {
            if !self.present.contains(step) {
                self.set(step, value);
            }
        }
    }

    /// Returns the size of a column of `n_steps` steps in bytes, without histograms.
    pub(crate) const fn size(n_steps: usize) -> usize {
        n_steps * size_of::<f64>() + n_steps.div_ceil(64) * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_are_values_beside_the_floats() {
        let histogram = |sum: f64| Arc::new(FloatHistogram::of_sum(sum));
        let sums = |column: &Column| {
            column
                .histograms()
                .map(|(step, h)| (step, h.sum))
                .collect::<Vec<_>>()
        };
        let mut column = Column::absent(4);
        column.set(0, 1.0);
        column.push_histogram(2, histogram(2.0));
        column.push_histogram(3, histogram(3.0));
        assert_eq!(
            (column.n_samples(), sums(&column)),
            (1 + 2 * 11, vec![(2, 2.0), (3, 3.0)])
        );
        assert_eq!(column.float_steps().iter().collect::<Vec<_>>(), [0]);
        // A float set at the step of an absent histogram does not make the histogram present again.
        column.present.remove(3);
        let mut other = Column::absent(4);
        other.push_histogram(1, histogram(4.0));
        other.set(3, 5.0);
        column.fill_from(&other);
        assert_eq!(
            (sums(&column), column.histogram(3).is_none()),
            (vec![(1, 4.0), (2, 2.0)], true)
        );
        column.keep_floats();
        assert_eq!(column.iter().collect::<Vec<_>>(), [(0, 1.0), (3, 5.0)]);
        assert_eq!(Column::repeated(&other, 3).present.count(), 3);
    }
}
