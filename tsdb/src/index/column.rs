//! Columns: growing arrays of small values that waste little.

use std::ops::{Deref, DerefMut};

/// A vector that grows by an eighth instead of twofold, and gives memory back when it is cut short.
#[derive(Debug)]
pub(crate) struct Column<T>(Vec<T>);

/// The least that a column grows by, in elements.
const GROWTH_MIN: usize = 64;

impl<T> Column<T> {
    /// Takes over a vector.
    pub(crate) fn new(values: Vec<T>) -> Self {
        Self(values)
    }

    /// Makes room for `additional` values.
    pub(crate) fn reserve(&mut self, additional: usize) {
        if self.0.capacity() - self.0.len() < additional {
            self.0.reserve_exact(additional.max(self.0.len() / 8).max(GROWTH_MIN));
        }
    }

    /// Appends a value.
    pub(crate) fn push(&mut self, value: T) {
        self.reserve(1);
        self.0.push(value);
    }

    /// Appends copies of values.
    pub(crate) fn extend_from_slice(&mut self, values: &[T])
    where
        T: Clone,
    {
        self.reserve(values.len());
        self.0.extend_from_slice(values);
    }

    /// Shortens the column to `len`, and gives memory back where more than half would lie idle.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
        if self.0.capacity() / 2 > len + GROWTH_MIN {
            self.0.shrink_to(len + len / 8);
        }
    }

    /// Returns the bytes that the column takes.
    pub(crate) fn size(&self) -> usize {
        self.0.capacity() * size_of::<T>()
    }
}

impl<T> Default for Column<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Deref for Column<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> DerefMut for Column<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}
