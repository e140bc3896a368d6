//! Columns: growing arrays of small values that are never moved as a whole.
//!
//! A vector that grows copies all that it holds, and touches fresh memory for all of it each time: while a million series
//! come in, that was most of what the kernel had to do for them, and a shard's lock was held meanwhile. A column consists
//! of pieces of one size. The first one grows by doubling, so that small columns stay small; from then on a piece is added
//! at a time, and nothing is moved.

use std::ops::{Index, IndexMut};

/// A growing array.
#[derive(Debug)]
pub struct Column<T> {
    /// All but the last are full.
    pieces: Vec<Vec<T>>,
    len: usize,
}

/// The largest piece, in bytes.
const PIECE_SIZE: usize = 1 << 16;
/// Values of a column that is not empty for which there is room at least.
const ROOM_MIN: usize = 8;

impl<T> Column<T> {
    /// Values of a piece: a power of two.
    const PIECE_LEN: usize = 1 << (PIECE_SIZE / size_of::<T>()).ilog2();

    /// Counts the values.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if there are no values.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns a value, if there are so many.
    #[inline]
    pub fn get(&self, idx: usize) -> Option<&T> {
        self.pieces.get(idx / Self::PIECE_LEN)?.get(idx % Self::PIECE_LEN)
    }

    /// Returns a value to change, if there are so many.
    #[inline]
    pub fn get_mut(&mut self, idx: usize) -> Option<&mut T> {
        self.pieces.get_mut(idx / Self::PIECE_LEN)?.get_mut(idx % Self::PIECE_LEN)
    }

    /// Appends a value.
    #[inline]
    pub fn push(&mut self, value: T) {
        match self.pieces.last_mut() {
            Some(last) if last.len() < last.capacity() => last.push(value),
            _ => self.push_slowly(value),
        }
        self.len += 1;
    }

    #[cold]
    fn push_slowly(&mut self, value: T) {
        match &mut self.pieces[..] {
            [first] if first.len() < Self::PIECE_LEN => {
                first.reserve_exact(first.len().clamp(1, Self::PIECE_LEN - first.len()));
                first.push(value);
            }
            pieces => {
                let room = if pieces.is_empty() { ROOM_MIN.min(Self::PIECE_LEN) } else { Self::PIECE_LEN };
                let mut piece = Vec::with_capacity(room);
                piece.push(value);
                self.pieces.push(piece);
            }
        }
    }

    /// Iterates over all values.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.pieces.iter().flatten()
    }

    /// Iterates over all values, to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.pieces.iter_mut().flatten()
    }

    /// Shortens the column to `len`, if it is longer, and gives the memory of pieces behind that back.
    pub fn truncate(&mut self, len: usize) {
        if len >= self.len {
            return;
        }
        self.len = len;
        self.pieces.truncate(len.div_ceil(Self::PIECE_LEN));
        if let Some(last) = self.pieces.last_mut() {
            // All before it are full.
            last.truncate((len - 1) % Self::PIECE_LEN + 1);
        }
    }

    /// Returns the bytes that the column takes.
    pub fn size(&self) -> usize {
        let room = match &self.pieces[..] {
            [only] => only.capacity(),
            pieces => pieces.len() * Self::PIECE_LEN,
        };
        room * size_of::<T>() + self.pieces.capacity() * size_of::<Vec<T>>()
    }
}

impl<T> Default for Column<T> {
    fn default() -> Self {
        Self { pieces: Vec::new(), len: 0 }
    }
}

impl<T> FromIterator<T> for Column<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut column = Self::default();
        values.into_iter().for_each(|value| column.push(value));
        column
    }
}

impl<T> Index<usize> for Column<T> {
    type Output = T;

    #[inline]
    fn index(&self, idx: usize) -> &T {
        &self.pieces[idx / Self::PIECE_LEN][idx % Self::PIECE_LEN]
    }
}

impl<T> IndexMut<usize> for Column<T> {
    #[inline]
    fn index_mut(&mut self, idx: usize) -> &mut T {
        &mut self.pieces[idx / Self::PIECE_LEN][idx % Self::PIECE_LEN]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_wherever_a_piece_ends() {
        let n = Column::<u64>::PIECE_LEN;
        for len in [0, 1, 7, 8, 9, n - 1, n, n + 1, 3 * n] {
            let mut column: Column<u64> = (0..len as u64).collect();
            assert_eq!(column.len(), len);
            assert!(column.iter().copied().eq(0..len as u64));
            assert!(column.get(len).is_none());
            assert!(column.get_mut(len).is_none());
            for (idx, value) in (0..len).zip(0..) {
                assert_eq!((column[idx], column.get(idx)), (value, Some(&value)));
                column[idx] += 1;
            }
            assert!(column.iter_mut().map(|value| *value).eq(1..=len as u64));
        }
    }

    #[test]
    fn a_column_is_cut_and_grows_again() {
        let n = Column::<u64>::PIECE_LEN;
        for len in [0, 1, n - 1, n, n + 1, 2 * n, 3 * n, 4 * n] {
            let mut column: Column<u64> = (0..3 * n as u64).collect();
            column.truncate(len);
            let end = len.min(3 * n) as u64;
            assert!(column.iter().copied().eq(0..end));
            assert!(column.size() <= (end as usize + n) * 8 + 256, "{len}");
            (end..end + n as u64 + 1).for_each(|value| column.push(value));
            assert!(column.iter().copied().eq(0..=end + n as u64));
        }
    }

    #[test]
    fn small_columns_take_little() {
        let mut column = Column::default();
        (0..9_u32).for_each(|value| column.push(value));
        assert!(column.size() <= 16 * 4 + 4 * size_of::<Vec<u32>>(), "{}", column.size());
    }
}
