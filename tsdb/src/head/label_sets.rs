//! Label sets as numbers: the values of a set as symbols, its names as the number of a shape.
//!
//! Series of one metric have the same label names, so the list of names, the shape, is kept once. A set is a run of words
//! in one array: the shape, then a value for each of its names, in ascending order of names. Equal sets are equal words.

use std::hash::BuildHasher;
use std::ops::Range;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::index::{Column, Numbers, SymbolId};

/// Where a label set begins in the array; `NONE` for a slot without a series.
pub(super) const NONE: u32 = u32::MAX;

/// All label sets of a shard.
#[derive(Debug, Default)]
pub(super) struct LabelSets {
    words: Column<u32>,
    /// Words of sets that are gone.
    n_garbage: usize,
    shapes: Vec<Shape>,
    by_names: HashTable<u32>,
    numbers: Numbers,
    hasher: DefaultHashBuilder,
}

/// A list of label names.
#[derive(Debug, Default)]
struct Shape {
    names: Box<[SymbolId]>,
    n_sets: u32,
}

/// Garbage below this is left alone, in words.
const GARBAGE_MIN: usize = 1 << 12;

impl LabelSets {
    /// Returns the shape of a list of names, if there is one.
    pub(super) fn find_shape(&self, names: &[SymbolId]) -> Option<u32> {
        let found =
            self.by_names.find(self.hasher.hash_one(names), |&shape| *self.shapes[shape as usize].names == *names);
        found.copied()
    }

    /// Returns the shape of a list of names, makes it if need be, and counts a set; `None` if all numbers are used up.
    /// The second value tells whether the shape is new: then its names are in use.
    pub(super) fn intern_shape(&mut self, names: &[SymbolId]) -> Option<(u32, bool)> {
        if let Some(shape) = self.find_shape(names) {
            self.shapes[shape as usize].n_sets += 1;
            return Some((shape, false));
        }
        let number = self.numbers.take(u32::MAX)?;
        let shape = Shape { names: names.into(), n_sets: 1 };
        match self.shapes.get_mut(number as usize) {
            Some(free) => *free = shape,
            None => self.shapes.push(shape),
        }
        let (shapes, hasher) = (&self.shapes, &self.hasher);
        self.by_names
            .insert_unique(hasher.hash_one(names), number, |&shape| hasher.hash_one(&*shapes[shape as usize].names));
        Some((number, true))
    }

    /// Adds a set of words and returns where it begins; `None` if the array is full.
    pub(super) fn push(&mut self, words: &[u32]) -> Option<u32> {
        let at = u32::try_from(self.words.len()).ok().filter(|&at| at != NONE)?;
        self.words.extend_from_slice(words);
        Some(at)
    }

    /// Removes a set. If it was the last one of its shape, returns the names, which are no longer in use.
    pub(super) fn remove(&mut self, at: u32) -> Option<Box<[SymbolId]>> {
        let range = self.range(at);
        let number = self.words[range.start];
        self.n_garbage += range.len();
        let shape = &mut self.shapes[number as usize];
        shape.n_sets -= 1;
        if shape.n_sets > 0 {
            return None;
        }
        let names = std::mem::take(&mut shape.names);
        if let Ok(found) = self.by_names.find_entry(self.hasher.hash_one(&*names), |&other| other == number) {
            found.remove();
        }
        self.numbers.give_back(number);
        Some(names)
    }

    /// Returns the words of a set.
    #[inline]
    pub(super) fn words(&self, at: u32) -> &[u32] {
        &self.words[self.range(at)]
    }

    /// Iterates over the names and values of a set in ascending order of names.
    #[inline]
    pub(super) fn pairs(&self, at: u32) -> impl ExactSizeIterator<Item = (SymbolId, SymbolId)> + '_ {
        self.pairs_of(self.words(at))
    }

    /// Iterates over the names and values of a set that is given as words.
    #[inline]
    pub(super) fn pairs_of<'a>(&'a self, words: &'a [u32]) -> impl ExactSizeIterator<Item = (SymbolId, SymbolId)> + 'a {
        self.shapes[words[0] as usize].names.iter().copied().zip(words[1..].iter().map(|&value| SymbolId(value)))
    }

    /// Gives memory back if more than a quarter is garbage: moves all sets, whose places are in `places`.
    pub(super) fn shrink<'a>(&mut self, places: impl Iterator<Item = &'a mut u32>) {
        self.shapes.truncate(self.numbers.end());
        if self.n_garbage < GARBAGE_MIN || self.n_garbage < self.words.len() / 4 {
            return;
        }
        let mut moved = Vec::with_capacity(self.words.len() - self.n_garbage);
        for place in places.filter(|place| **place != NONE) {
            let range = self.range(*place);
            // The array only gets shorter, so places still fit.
            *place = moved.len() as u32;
            moved.extend_from_slice(&self.words[range]);
        }
        (self.words, self.n_garbage) = (Column::new(moved), 0);
    }

    /// Returns about how many bytes the sets take.
    pub(super) fn size(&self) -> usize {
        self.words.size() + self.shapes.capacity() * size_of::<Shape>() + self.by_names.allocation_size()
    }

    #[inline]
    fn range(&self, at: u32) -> Range<usize> {
        let at = at as usize;
        at..at + 1 + self.shapes[self.words[at] as usize].names.len()
    }
}
