//! Columns: the values of one series at the steps of a grid.
//!
//! Whether there is a value at a step is told by a bit beside it and never by the value, as every NaN is a value.
//! Histograms stand in a list beside the numbers, which is empty for nearly all series.
//!
//! Invariants
//! 1. A column has as many values as its presence has bits.
//! 2. Values of steps without presence are arbitrary; kernels may compute with them. So are the histograms of such steps.
//! 3. Bits behind the last one are 0.
//! 4. Histograms ascend by step, each step once. Where one is present the number is arbitrary, and no kernel's result.

use std::borrow::Cow;
use std::sync::Arc;

use crate::histogram::FloatHistogram;

/// A set of steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bits {
    words: Vec<u64>,
    len: usize,
}

/// Values at steps.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    /// One value per step.
    pub(crate) values: Vec<f64>,
    /// The steps that have a value.
    pub(crate) present: Bits,
    /// The values that are histograms, with their steps.
    pub(crate) histograms: Vec<(usize, Arc<FloatHistogram>)>,
}

impl Column {
    /// Returns a column without values.
    pub(crate) fn absent(n_steps: usize) -> Self {
        Self { values: vec![0.0; n_steps], present: Bits::none(n_steps), histograms: Vec::new() }
    }

    /// Returns a column with a value at every step.
    pub(crate) fn full(values: Vec<f64>) -> Self {
        let present = Bits::all(values.len());
        Self { values, present, histograms: Vec::new() }
    }

    /// Returns a column with the value of the first step of another at every step.
    pub(crate) fn repeated(first: &Self, n_steps: usize) -> Self {
        let mut column = Self::full(vec![first.values[0]; n_steps]);
        if let Some(histogram) = first.histogram(0) {
            column.histograms.extend((0..n_steps).map(|step| (step, Arc::clone(histogram))));
        }
        column
    }

    /// Returns the number at a step, if there is one; not for columns with histograms.
    #[inline]
    pub(crate) fn get(&self, step: usize) -> Option<f64> {
        self.present.contains(step).then(|| self.values[step])
    }

    /// Returns the histogram at a step, if the value there is one.
    #[inline]
    pub(crate) fn histogram(&self, step: usize) -> Option<&Arc<FloatHistogram>> {
        // Fast path: a series of floats.
        if self.histograms.is_empty() || !self.present.contains(step) {
            return None;
        }
        let at = self.histograms.binary_search_by_key(&step, |(step, _)| *step).ok()?;
        Some(&self.histograms[at].1)
    }

    /// Iterates over the histograms that are present.
    pub(crate) fn histograms(&self) -> impl Iterator<Item = (usize, &Arc<FloatHistogram>)> + '_ {
        self.histograms
            .iter()
            .filter(|(step, _)| self.present.contains(*step))
            .map(|(step, histogram)| (*step, histogram))
    }

    /// Returns the steps whose values are numbers.
    pub(crate) fn float_steps(&self) -> Cow<'_, Bits> {
        let mut steps = Cow::Borrowed(&self.present);
        for (step, _) in &self.histograms {
            steps.to_mut().remove(*step);
        }
        steps
    }

    /// Removes all histograms.
    pub(crate) fn keep_floats(&mut self) {
        self.histograms.drain(..).for_each(|(step, _)| self.present.remove(step));
    }

    /// Sets the histogram at a step behind all others.
    pub(crate) fn push_histogram(&mut self, step: usize, histogram: Arc<FloatHistogram>) {
        debug_assert!(self.histograms.last().is_none_or(|(last, _)| *last < step), "histograms ascend by step");
        self.set(step, 0.0);
        self.histograms.push((step, histogram));
    }

    /// Replaces each histogram by another; neighbours that shared one share what replaces it.
    pub(crate) fn map_histograms(&mut self, of: impl Fn(&FloatHistogram) -> FloatHistogram) {
        let mut before: Option<(Arc<FloatHistogram>, Arc<FloatHistogram>)> = None;
        for (_, histogram) in &mut self.histograms {
            let old = Arc::clone(histogram);
            *histogram = match &before {
                Some((known, new)) if Arc::ptr_eq(known, &old) => Arc::clone(new),
                _ => Arc::new(of(&old)),
            };
            before = Some((old, Arc::clone(histogram)));
        }
    }

    /// Counts the values, histograms by their size as Prometheus does.
    pub(crate) fn n_samples(&self) -> usize {
        let more: usize = self.histograms().map(|(_, histogram)| histogram.n_samples() - 1).sum();
        self.present.count() + more
    }

    /// Returns the bytes that the histograms take; one that stands at neighbouring steps counts once.
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

    /// Sets the value at a step.
    #[inline]
    pub(crate) fn set(&mut self, step: usize, value: f64) {
        self.values[step] = value;
        self.present.insert(step);
    }

    /// Iterates over the steps with a value, in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        self.present.iter().map(|step| (step, self.values[step]))
    }

    /// Takes over the values of steps that have none yet.
    pub(crate) fn fill_from(&mut self, other: &Self) {
        if !(self.histograms.is_empty() && other.histograms.is_empty()) {
            let Self { present, histograms, .. } = self;
            histograms.retain(|(step, _)| present.contains(*step));
            let new = other.histograms().filter(|(step, _)| !present.contains(*step));
            histograms.extend(new.map(|(step, histogram)| (step, Arc::clone(histogram))));
            histograms.sort_by_key(|(step, _)| *step);
        }
        for (step, value) in other.iter() {
            if !self.present.contains(step) {
                self.set(step, value);
            }
        }
    }

    /// Returns the bytes that a column of `n_steps` takes.
    pub(crate) const fn size(n_steps: usize) -> usize {
        n_steps * size_of::<f64>() + n_steps.div_ceil(64) * size_of::<u64>()
    }
}

impl Bits {
    /// Returns the empty set among `len` steps.
    pub(crate) fn none(len: usize) -> Self {
        Self { words: vec![0; len.div_ceil(64)], len }
    }

    /// Returns the bytes that a set among `len` steps takes.
    pub(crate) const fn size(len: usize) -> usize {
        size_of::<Self>() + len.div_ceil(64) * size_of::<u64>()
    }

    /// Returns all of `len` steps.
    pub(crate) fn all(len: usize) -> Self {
        let mut bits = Self { words: vec![!0; len.div_ceil(64)], len };
        if let Some(last) = bits.words.last_mut()
            && !len.is_multiple_of(64)
        {
            *last = (1 << (len % 64)) - 1;
        }
        bits
    }

    /// Tells whether a step is in the set.
    #[inline]
    pub(crate) fn contains(&self, step: usize) -> bool {
        self.words[step / 64] >> (step % 64) & 1 == 1
    }

    /// Adds a step.
    #[inline]
    pub(crate) fn insert(&mut self, step: usize) {
        debug_assert!(step < self.len, "step {step} of {}", self.len);
        self.words[step / 64] |= 1 << (step % 64);
    }

    /// Removes a step.
    pub(crate) fn remove(&mut self, step: usize) {
        self.words[step / 64] &= !(1 << (step % 64));
    }

    /// Removes the steps for which `keep` is false.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(usize) -> bool) {
        for (at, word) in self.words.iter_mut().enumerate() {
            let mut rest = *word;
            while rest != 0 {
                let bit = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                if !keep(at * 64 + bit) {
                    *word &= !(1 << bit);
                }
            }
        }
    }

    /// Adds all steps of another set.
    pub(crate) fn unite(&mut self, other: &Self) {
        self.zip(other, |a, b| a | b);
    }

    /// Keeps the steps that another set has too.
    pub(crate) fn intersect(&mut self, other: &Self) {
        self.zip(other, |a, b| a & b);
    }

    /// Removes the steps of another set.
    pub(crate) fn subtract(&mut self, other: &Self) {
        self.zip(other, |a, b| a & !b);
    }

    /// Returns the steps that both sets have.
    pub(crate) fn common(&self, other: &Self) -> Self {
        let mut common = self.clone();
        common.intersect(other);
        common
    }

    /// Tells whether two sets share a step.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    /// Tells whether there is no step.
    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// Counts the steps.
    pub(crate) fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns the first step.
    pub(crate) fn first(&self) -> Option<usize> {
        self.iter().next()
    }

    /// Iterates over the steps in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(at, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
                rest &= rest - 1;
                Some(at * 64 + bit)
            })
        })
    }

    fn zip(&mut self, other: &Self, op: impl Fn(u64, u64) -> u64) {
        debug_assert_eq!(self.len, other.len, "sets over one grid");
        for (a, &b) in self.words.iter_mut().zip(&other.words) {
            *a = op(*a, b);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(len: usize, steps: &[usize]) -> Bits {
        let mut bits = Bits::none(len);
        steps.iter().for_each(|&step| bits.insert(step));
        bits
    }

    #[test]
    fn sets_of_steps_across_words() {
        let a = bits(130, &[0, 63, 64, 129]);
        assert_eq!(a.iter().collect::<Vec<_>>(), [0, 63, 64, 129]);
        assert_eq!((a.count(), a.first(), a.contains(64), a.contains(65)), (4, Some(0), true, false));
        let b = bits(130, &[63, 100]);
        assert_eq!(a.common(&b), bits(130, &[63]));
        let mut c = a.clone();
        c.subtract(&b);
        assert_eq!(c, bits(130, &[0, 64, 129]));
        c.unite(&b);
        c.retain(|step| step != 0);
        assert_eq!(c, bits(130, &[63, 64, 100, 129]));
        assert!(a.overlaps(&b) && !bits(130, &[1]).overlaps(&b));
    }

    #[test]
    fn histograms_are_values_beside_the_numbers() {
        let histogram = |sum: f64| Arc::new(FloatHistogram::of_sum(sum));
        let sums = |column: &Column| column.histograms().map(|(step, h)| (step, h.sum)).collect::<Vec<_>>();
        let mut column = Column::absent(4);
        column.set(0, 1.0);
        column.push_histogram(2, histogram(2.0));
        column.push_histogram(3, histogram(3.0));
        assert_eq!((column.n_samples(), sums(&column)), (1 + 2 * 11, vec![(2, 2.0), (3, 3.0)]));
        assert_eq!(*column.float_steps(), bits(4, &[0]));
        // What is left of a histogram without presence does not come back with another value.
        column.present.remove(3);
        let mut other = Column::absent(4);
        other.push_histogram(1, histogram(4.0));
        other.set(3, 5.0);
        column.fill_from(&other);
        assert_eq!((sums(&column), column.histogram(3).is_none()), (vec![(1, 4.0), (2, 2.0)], true));
        column.keep_floats();
        assert_eq!(column.iter().collect::<Vec<_>>(), [(0, 1.0), (3, 5.0)]);
        assert_eq!(Column::repeated(&other, 3).present.count(), 3);
    }

    #[test]
    fn all_has_no_bits_behind_the_last_step() {
        for len in [0, 1, 63, 64, 65, 128] {
            assert_eq!((Bits::all(len).count(), Bits::all(len).iter().last()), (len, len.checked_sub(1)));
        }
    }
}
