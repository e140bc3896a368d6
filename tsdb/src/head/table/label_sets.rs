//! Label sets as integers: a shape for the names of a set, and a symbol for each value.
//!
//! Series of one metric have the same label names, so the list of names, the shape, is stored once.
//! A set is a run of words in an arena: the shape, then a value for each of its names in ascending
//! order of names. Equal sets have equal words.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::index::SymbolId;
use varve_collections::{Arena, IdAllocator};

/// Position of the label set of a slot without a series.
pub(in crate::head) const NONE: u32 = u32::MAX;

/// All label sets of a shard.
#[derive(Debug, Default)]
pub(in crate::head) struct LabelSets {
    words: Arena<Vec<u32>>,
    shapes: Vec<Shape>,
    by_names: HashTable<u32>,
    ids: IdAllocator,
    hasher: DefaultHashBuilder,
}

/// A list of label names.
#[derive(Debug, Default)]
struct Shape {
    names: Box<[SymbolId]>,
    n_sets: u32,
}

impl LabelSets {
    /// Returns the shape of a list of names, if it exists.
    pub(in crate::head) fn find_shape(&self, names: &[SymbolId]) -> Option<u32> {
        let found = self.by_names.find(self.hasher.hash_one(names), |&shape| {
            *self.shapes[shape as usize].names == *names
        });
        found.copied()
    }

    /// Adds the shape of a new list of names, without sets. Returns `None` if no shape ids are
    /// left.
    pub(in crate::head) fn add_shape(&mut self, names: &[SymbolId]) -> Option<u32> {
        let number = self.ids.allocate(u32::MAX)?;
        let shape = Shape {
            names: names.into(),
            n_sets: 0,
        };
        match self.shapes.get_mut(number as usize) {
            Some(free) => *free = shape,
            None => self.shapes.push(shape),
        }
        let shapes = &self.shapes;
        let hasher = &self.hasher;
        self.by_names
            .insert_unique(hasher.hash_one(names), number, |&shape| {
                hasher.hash_one(&*shapes[shape as usize].names)
            });
        Some(number)
    }

    /// Appends the words of a set and returns its position. Returns `None` if the arena is full.
    pub(in crate::head) fn push(&mut self, words: &[u32]) -> Option<u32> {
        let labels_at = self.words.push(words)?;
        self.shapes[words[0] as usize].n_sets += 1;
        Some(labels_at)
    }

    /// Removes a set. If it was the last one of its shape, returns the names, which are no longer
    /// used.
    pub(in crate::head) fn remove(&mut self, labels_at: u32) -> Option<Box<[SymbolId]>> {
        let words = self.words(labels_at);
        let number = words[0];
        let n_words = words.len();
        self.words.release(labels_at, n_words);
        let shape = &mut self.shapes[number as usize];
        shape.n_sets -= 1;
        if shape.n_sets > 0 {
            return None;
        }
        let names = std::mem::take(&mut shape.names);
        if let Ok(found) = self
            .by_names
            .find_entry(self.hasher.hash_one(&*names), |&other| other == number)
        {
            found.remove();
        }
        self.ids.free(number);
        Some(names)
    }

    /// Returns the words of a set.
    #[inline]
    pub(in crate::head) fn words(&self, labels_at: u32) -> &[u32] {
        self.words.run(labels_at, self.n_words(labels_at))
    }

    /// Returns the word at a position in the arena.
    #[inline]
    pub(in crate::head) fn word(&self, labels_at: u32) -> u32 {
        self.words.run(labels_at, 1)[0]
    }

    /// Returns the names of a shape.
    pub(in crate::head) fn names(&self, shape: u32) -> &[SymbolId] {
        &self.shapes[shape as usize].names
    }

    /// Iterates over the names of all shapes. A name is repeated for each of its shapes.
    pub(in crate::head) fn names_of_shapes(&self) -> impl Iterator<Item = &SymbolId> {
        self.shapes.iter().flat_map(|shape| &*shape.names)
    }

    /// Iterates over the names and values of a set in ascending order of names.
    #[inline]
    pub(in crate::head) fn pairs(
        &self,
        labels_at: u32,
    ) -> impl ExactSizeIterator<Item = (SymbolId, SymbolId)> + '_ {
        self.pairs_of(self.words(labels_at))
    }

    /// Iterates over the names and values of a set given as words.
    #[inline]
    pub(in crate::head) fn pairs_of<'a>(
        &'a self,
        words: &'a [u32],
    ) -> impl ExactSizeIterator<Item = (SymbolId, SymbolId)> + 'a {
        self.shapes[words[0] as usize]
            .names
            .iter()
            .copied()
            .zip(words[1..].iter().map(|&value| SymbolId(value)))
    }

    /// Returns the shape of a set and its names.
    pub(in crate::head) fn shape(&self, labels_at: u32) -> (u32, &[SymbolId]) {
        let shape = self.words.run(labels_at, 1)[0];
        (shape, &self.shapes[shape as usize].names)
    }

    /// Returns the value of a name in a set.
    #[inline]
    pub(in crate::head) fn value(&self, labels_at: u32, name: SymbolId) -> Option<SymbolId> {
        let place = self
            .shape(labels_at)
            .1
            .iter()
            .position(|&other| other == name)?;
        self.words(labels_at)
            .get(1 + place)
            .map(|&value| SymbolId(value))
    }

    /// Frees memory after the last shape.
    pub(in crate::head) fn truncate(&mut self) {
        self.shapes.truncate(self.ids.end());
    }

    /// Moves a set out of a sparse piece of the arena. Returns its new position.
    pub(in crate::head) fn relocate(&mut self, labels_at: u32) -> u32 {
        let n_words = self.n_words(labels_at);
        let moved = if self.words.is_sparse(labels_at) {
            self.words.relocate(labels_at, n_words)
        } else {
            None
        };
        moved.unwrap_or(labels_at)
    }

    /// Returns the approximate size of the sets in bytes.
    pub(in crate::head) fn size(&self) -> usize {
        self.words.size()
            + self.shapes.capacity() * size_of::<Shape>()
            + self.by_names.allocation_size()
    }

    #[inline]
    fn n_words(&self, labels_at: u32) -> usize {
        let shape = self.word(labels_at);
        1 + self.shapes[shape as usize].names.len()
    }
}
