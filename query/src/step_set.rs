//! Sets of steps.

use smallvec::{SmallVec, smallvec};

/// A set of steps, as a bitmap. Bits after the last step are 0.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StepSet {
    /// Up to 64 steps take no memory on the heap: millions of series have one step.
    words: SmallVec<[u64; 1]>,
    len: usize,
}

impl Clone for StepSet {
    fn clone(&self) -> Self {
        Self {
            // `SmallVec::clone` rounds the capacity up, which would not be charged.
            words: SmallVec::from_slice(&self.words),
            len: self.len,
        }
    }
}

impl StepSet {
    /// Creates an empty set of `len` steps.
    pub(crate) fn empty(len: usize) -> Self {
        Self {
            words: smallvec![0; len.div_ceil(64)],
            len,
        }
    }

    /// Returns the size of a set for `len` steps in bytes.
    pub(crate) const fn size(len: usize) -> usize {
        size_of::<Self>() + len.div_ceil(64) * size_of::<u64>()
    }

    /// Creates a set of all `len` steps.
    pub(crate) fn full(len: usize) -> Self {
        let mut set = Self {
            words: smallvec![!0; len.div_ceil(64)],
            len,
        };
        if let Some(last) = set.words.last_mut()
            && !len.is_multiple_of(64)
        {
            *last = (1 << (len % 64)) - 1;
        }
        set
    }

    /// Creates a set that ends with the step that it contains.
    pub(crate) fn only(step: usize) -> Self {
        let mut set = Self::empty(step + 1);
        set.insert(step);
        set
    }

    /// Returns the size of this set in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        Self::size(self.len)
    }

    /// Returns `true` if a step is in the set.
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

    /// Removes all steps.
    pub(crate) fn clear(&mut self) {
        self.words.fill(0);
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
    pub(crate) fn union_with(&mut self, other: &Self) {
        self.zip(other, |a, b| a | b);
    }

    /// Makes this a set of at least `len` steps.
    pub(crate) fn extend_to(&mut self, len: usize) {
        self.len = self.len.max(len);
        self.words.resize(self.len.div_ceil(64), 0);
    }

    /// Adds all steps of another set, which may be of more steps or of fewer.
    pub(crate) fn extend_with(&mut self, other: &Self) {
        self.extend_to(other.len);
        for (word, more) in self.words.iter_mut().zip(&other.words) {
            *word |= more;
        }
    }

    /// Keeps the steps that are also in another set.
    pub(crate) fn intersect_with(&mut self, other: &Self) {
        self.zip(other, |a, b| a & b);
    }

    /// Removes the steps of another set.
    pub(crate) fn subtract(&mut self, other: &Self) {
        self.zip(other, |a, b| a & !b);
    }

    /// Returns the steps that are in both sets.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let mut both = self.clone();
        both.intersect_with(other);
        both
    }

    /// Returns `true` if two sets have a step in common.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    /// Returns `true` if there is no step.
    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// Returns the number of steps.
    pub(crate) fn count(&self) -> usize {
        self.words
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
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
        debug_assert_eq!(self.len, other.len, "sets of one steps");
        for (a, &b) in self.words.iter_mut().zip(&other.words) {
            *a = op(*a, b);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(len: usize, steps: &[usize]) -> StepSet {
        let mut set = StepSet::empty(len);
        for &step in steps.iter() {
            set.insert(step);
        }
        set
    }

    #[test]
    fn sets_span_several_words() {
        let a = steps(130, &[0, 63, 64, 129]);
        assert_eq!(a.iter().collect::<Vec<_>>(), [0, 63, 64, 129]);
        assert_eq!(
            (a.count(), a.first(), a.contains(64), a.contains(65)),
            (4, Some(0), true, false)
        );
        let b = steps(130, &[63, 100]);
        assert_eq!(a.intersection(&b), steps(130, &[63]));
        let mut c = a.clone();
        c.subtract(&b);
        assert_eq!(c, steps(130, &[0, 64, 129]));
        c.union_with(&b);
        c.retain(|step| step != 0);
        assert_eq!(c, steps(130, &[63, 64, 100, 129]));
        assert!(a.overlaps(&b) && !steps(130, &[1]).overlaps(&b));
    }

    #[test]
    fn a_set_grows_with_another_one() {
        for (a, b) in [(3, 130), (130, 3)] {
            let mut set = StepSet::only(a);
            set.extend_with(&StepSet::only(b));
            assert_eq!(set, steps(131, &[3, 130]));
        }
    }

    #[test]
    fn a_full_set_ends_with_the_last_step() {
        for len in [0, 1, 63, 64, 65, 128] {
            assert_eq!(
                (StepSet::full(len).count(), StepSet::full(len).iter().last()),
                (len, len.checked_sub(1))
            );
        }
    }
}
