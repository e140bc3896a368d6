//! Columns: growing arrays of small values that are never moved as a whole.
//!
//! A vector that grows copies its contents into fresh memory. While a million series were created,
//! this was most of the kernel's work, done under a shard's lock. A column consists of pieces of
//! one size. The first piece grows by doubling, so that small columns stay small. After that,
//! growing adds a piece and moves nothing.

use std::ops::{Index, IndexMut, Range};

/// A growing array.
#[derive(Debug)]
pub struct Column<T> {
    /// All pieces but the last are full.
    pieces: Vec<Vec<T>>,
    len: usize,
}

/// The largest piece, in bytes.
const PIECE_SIZE: usize = 1 << 16;
/// Minimum capacity of a non-empty column.
const ROOM_MIN: usize = 8;

impl<T> Column<T> {
    /// Values per piece: a power of two.
    const PIECE_LEN: usize = 1 << (PIECE_SIZE / size_of::<T>()).ilog2();

    /// Returns the number of values.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if there are no values.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the value at `idx`.
    #[inline]
    pub fn get(&self, idx: usize) -> Option<&T> {
        self.pieces
            .get(idx / Self::PIECE_LEN)?
            .get(idx % Self::PIECE_LEN)
    }

    /// Returns a mutable reference to the value at `idx`.
    #[inline]
    pub fn get_mut(&mut self, idx: usize) -> Option<&mut T> {
        self.pieces
            .get_mut(idx / Self::PIECE_LEN)?
            .get_mut(idx % Self::PIECE_LEN)
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
                let room = if pieces.is_empty() {
                    ROOM_MIN.min(Self::PIECE_LEN)
                } else {
                    Self::PIECE_LEN
                };
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

    /// Iterates over the values at `range`, as far as they exist, in slices.
    pub fn slices(&self, range: Range<usize>) -> impl Iterator<Item = &[T]> {
        let end = range.end.min(self.len);
        let mut next = range.start;
        std::iter::from_fn(move || {
            if next >= end {
                return None;
            }
            let rest = &self.pieces[next / Self::PIECE_LEN][next % Self::PIECE_LEN..];
            let slice = &rest[..rest.len().min(end - next)];
            next += slice.len();
            Some(slice)
        })
    }

    /// Iterates mutably over all values.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.pieces.iter_mut().flatten()
    }

    /// Shortens the column to `len`, if it is longer, and frees the pieces after that.
    pub fn truncate(&mut self, len: usize) {
        if len >= self.len {
            return;
        }
        self.len = len;
        self.pieces.truncate(len.div_ceil(Self::PIECE_LEN));
        if let Some(last) = self.pieces.last_mut() {
            // All pieces before it are full.
            last.truncate((len - 1) % Self::PIECE_LEN + 1);
        }
    }

    /// Returns the size of the column in bytes.
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
        Self {
            pieces: Vec::new(),
            len: 0,
        }
    }
}

impl<T> FromIterator<T> for Column<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut column = Self::default();
        for value in values {
            column.push(value);
        }
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
    fn values_round_trip_at_the_ends_of_pieces() {
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
    fn slices_have_the_values_of_a_range() {
        let n = Column::<u64>::PIECE_LEN;
        let column: Column<u64> = (0..3 * n as u64 + 7).collect();
        let ends = [0, 1, 7, n - 1, n, n + 1, 3 * n, 3 * n + 7, 4 * n];
        for start in ends {
            for end in ends {
                let values: Vec<u64> = column.slices(start..end).flatten().copied().collect();
                let expect = start as u64..(end as u64).min(column.len() as u64);
                assert!(values.into_iter().eq(expect), "{start} {end}");
            }
        }
        assert_eq!(Column::<u64>::default().slices(0..9).count(), 0);
    }

    #[test]
    fn a_column_is_truncated_and_grows_again() {
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
    fn small_columns_use_little_memory() {
        let mut column = Column::default();
        (0..9_u32).for_each(|value| column.push(value));
        assert!(
            column.size() <= 16 * 4 + 4 * size_of::<Vec<u32>>(),
            "{}",
            column.size()
        );
    }
}
