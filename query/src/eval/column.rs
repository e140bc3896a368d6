//! Columns: the values of one series at the steps of a grid.
//!
//! Whether there is a value at a step is told by a bit beside it and never by the value, as every NaN is a value.
//!
//! Invariants
//! 1. A column has as many values as its presence has bits.
//! 2. Values of steps without presence are arbitrary; kernels may compute with them.
//! 3. Bits behind the last one are 0.

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
}

impl Column {
    /// Returns a column without values.
    pub(crate) fn absent(n_steps: usize) -> Self {
        Self { values: vec![0.0; n_steps], present: Bits::none(n_steps) }
    }

    /// Returns a column with a value at every step.
    pub(crate) fn full(values: Vec<f64>) -> Self {
        let present = Bits::all(values.len());
        Self { values, present }
    }

    /// Returns the value at a step, if there is one.
    #[inline]
    pub(crate) fn get(&self, step: usize) -> Option<f64> {
        self.present.contains(step).then(|| self.values[step])
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
    fn all_has_no_bits_behind_the_last_step() {
        for len in [0, 1, 63, 64, 65, 128] {
            assert_eq!((Bits::all(len).count(), Bits::all(len).iter().last()), (len, len.checked_sub(1)));
        }
    }
}
