//! Arenas: storage for runs of values, whose memory is freed a piece at a time.
//!
//! As with [`Column`](super::Column), growing moves nothing. A run lies within one piece, so a
//! piece may end with a few unused values. A run that is longer than a piece has a piece of its
//! own. An unused piece is freed. If much of a piece is unused, it is [`sparse`](Arena::is_sparse):
//! the owner moves its remaining runs elsewhere, one by one.

use std::ops::Range;

/// The contents of a piece: strings, or arrays of integers.
pub trait Piece: Default {
    /// A run.
    type Run: ?Sized;
    /// Bytes per value.
    const VALUE_SIZE: usize;

    /// Returns the number of values in a run.
    fn len_of(run: &Self::Run) -> usize;
    /// Creates an empty piece with room for `n` values.
    fn with_room(n: usize) -> Self;
    /// Returns the number of values and the capacity.
    fn filled(&self) -> (usize, usize);
    /// Appends a run. The piece must have room for it.
    fn append(&mut self, run: &Self::Run);
    /// Returns the run at a range of positions in the piece.
    fn run(&self, range: Range<usize>) -> &Self::Run;
}

/// Runs of values.
#[derive(Debug)]
pub struct Arena<P> {
    pieces: Vec<Counted<P>>,
    /// The piece that takes the next run.
    open: usize,
    /// Indexes of free pieces.
    free: Vec<usize>,
    /// Capacity of all pieces in values.
    room: usize,
}

/// A piece. Empty if it is free, or if it belongs to a run in an earlier piece that is longer than
/// a piece.
#[derive(Debug, Default)]
struct Counted<P> {
    piece: P,
    /// Values in use, plus one per run.
    n_used: usize,
}

/// Values per piece.
const PIECE_LEN: usize = 1 << 16;
/// Initial capacity of the first piece.
const ROOM_MIN: usize = 256;
/// A piece is sparse if more than one value in this many is unused, where a run counts as one value
/// more than it has. A lower number wastes more memory under churn, a higher one moves more runs.
const SPARSE: usize = 4;
/// Pieces of an arena: positions have 32 bits, and the highest one is reserved.
const PIECES_MAX: usize = (1 << 32) / PIECE_LEN - 1;

impl<P: Piece> Arena<P> {
    /// Adds a run and returns its position, which is less than `u32::MAX`. Returns `None` if the
    /// arena is full.
    pub fn push(&mut self, run: &P::Run) -> Option<u32> {
        let n = P::len_of(run);
        let fits = self.pieces.get(self.open).is_some_and(|open| {
            let (len, room) = open.piece.filled();
            // Without room the piece was released.
            room > 0 && len < PIECE_LEN && len + n <= room
        });
        if !fits {
            self.open = self.make_room(n)?;
        }
        let position = self.open * PIECE_LEN + self.pieces[self.open].piece.filled().0;
        let open = &mut self.pieces[self.open];
        open.piece.append(run);
        open.n_used += n + 1;
        Some(u32::try_from(position).expect("there are at most PIECES_MAX pieces"))
    }

    /// Makes room for a run and returns the index of its piece.
    #[cold]
    fn make_room(&mut self, n: usize) -> Option<usize> {
        if let [only] = &mut self.pieces[..]
            && self.free.is_empty()
        {
            // The first piece doubles until it has the size of the others.
            let (len, room) = only.piece.filled();
            if len + n <= PIECE_LEN {
                let mut larger = P::with_room((2 * (len + n)).min(PIECE_LEN));
                larger.append(only.piece.run(0..len));
                self.room = self.room + larger.filled().1 - room;
                only.piece = larger;
                return Some(0);
            }
        }
        let room_min = if self.pieces.is_empty() {
            ROOM_MIN
        } else {
            PIECE_LEN
        };
        let number = match self.free.pop_if(|_| n <= PIECE_LEN) {
            Some(number) => number,
            None => {
                let number = self.pieces.len();
                let n_pieces = n.div_ceil(PIECE_LEN).max(1);
                if number + n_pieces > PIECES_MAX {
                    return None;
                }
                self.pieces.resize_with(number + n_pieces, Counted::default);
                number
            }
        };
        self.pieces[number].piece = P::with_room(n.max(room_min));
        self.room += self.pieces[number].piece.filled().1;
        Some(number)
    }

    /// Returns the run of `n` values at a position.
    ///
    /// # Panics
    /// If there is no such run.
    #[inline]
    pub fn run(&self, position: u32, n: usize) -> &P::Run {
        let (number, start) = split(position);
        self.pieces[number].piece.run(start..start + n)
    }

    /// Marks a run as unused.
    pub fn release(&mut self, position: u32, n: usize) {
        let (number, _) = split(position);
        let counted = &mut self.pieces[number];
        counted.n_used -= n + 1;
        if counted.n_used > 0 {
            return;
        }
        let (_, room) = std::mem::take(&mut counted.piece).filled();
        self.room -= room;
        self.free
            .extend(number..number + n.div_ceil(PIECE_LEN).max(1));
    }

    /// Returns `true` if the piece of a run is sparse, so that the run should be moved.
    pub fn is_sparse(&self, position: u32) -> bool {
        let (number, _) = split(position);
        let counted = &self.pieces[number];
        let (len, _) = counted.piece.filled();
        number != self.open && counted.n_used < len / SPARSE * (SPARSE - 1)
    }

    /// Moves a run and returns its new position. Returns `None` if the arena is full and the run
    /// stays.
    pub fn relocate(&mut self, position: u32, n: usize) -> Option<u32> {
        let (number, start) = split(position);
        debug_assert!(number != self.open, "runs in the open piece are not moved");
        let piece = std::mem::take(&mut self.pieces[number].piece);
        let moved = self.push(piece.run(start..start + n));
        self.pieces[number].piece = piece;
        let moved = moved?;
        self.release(position, n);
        Some(moved)
    }

    /// Returns the size of the arena in bytes.
    pub fn size(&self) -> usize {
        let pieces = self.pieces.capacity() * size_of::<Counted<P>>()
            + self.free.capacity() * size_of::<usize>();
        self.room * P::VALUE_SIZE + pieces
    }
}

/// Returns the index of a piece, and the position in it.
#[inline]
fn split(position: u32) -> (usize, usize) {
    let position = position as usize;
    (position / PIECE_LEN, position % PIECE_LEN)
}

impl<P> Default for Arena<P> {
    fn default() -> Self {
        Self {
            pieces: Vec::new(),
            open: 0,
            free: Vec::new(),
            room: 0,
        }
    }
}

macro_rules! impl_piece {
    ($piece:ty, $run:ty, $value_size:expr, $append:ident) => {
        impl Piece for $piece {
            type Run = $run;
            const VALUE_SIZE: usize = $value_size;

            fn len_of(run: &$run) -> usize {
                run.len()
            }

            fn with_room(n: usize) -> Self {
                Self::with_capacity(n)
            }

            fn filled(&self) -> (usize, usize) {
                (self.len(), self.capacity())
            }

            fn append(&mut self, run: &$run) {
                self.$append(run);
            }

            #[inline]
            fn run(&self, range: Range<usize>) -> &$run {
                &self[range]
            }
        }
    };
}

impl_piece!(String, str, 1, push_str);
impl_piece!(Vec<u32>, [u32], size_of::<u32>(), extend_from_slice);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(i: usize, n: usize) -> Vec<u32> {
        (0..n).map(|k| (i * 7 + k) as u32).collect()
    }

    #[test]
    fn runs_of_any_length_round_trip() {
        let lens = [
            0,
            3,
            PIECE_LEN,
            0,
            2 * PIECE_LEN + 1,
            1,
            PIECE_LEN - 1,
            0,
            PIECE_LEN + 1,
            2,
            300,
            PIECE_LEN,
        ];
        let mut arena = Arena::<Vec<u32>>::default();
        let positions: Vec<_> = lens
            .iter()
            .enumerate()
            .map(|(i, &n)| arena.push(&run(i, n)).unwrap())
            .collect();
        for (i, (&n, &position)) in lens.iter().zip(&positions).enumerate() {
            assert_eq!(arena.run(position, n), run(i, n), "{i}");
        }
        lens.iter()
            .zip(&positions)
            .for_each(|(&n, &position)| arena.release(position, n));
        assert!(arena.size() < 4096, "{}", arena.size());
        let n_pieces = arena.pieces.len();
        (0..n_pieces).for_each(|_| _ = arena.push(&run(1, PIECE_LEN)).unwrap());
        assert_eq!(arena.pieces.len(), n_pieces, "free pieces are reused");
    }

    #[test]
    fn small_arenas_use_little_memory() {
        let mut arena = Arena::<String>::default();
        arena.push("x");
        assert!(arena.size() < 1024, "{}", arena.size());
        (0..1000).for_each(|_| _ = arena.push("0123456789"));
        assert!(arena.size() < 33_000, "{}", arena.size());
    }

    #[test]
    fn moving_the_runs_of_sparse_pieces_frees_memory() {
        let n = 100_000;
        let mut arena = Arena::<Vec<u32>>::default();
        let mut positions: Vec<_> = (0..n).map(|i| arena.push(&run(i, 9)).unwrap()).collect();
        let is_live = |i: &usize| i.is_multiple_of(3);
        (0..n)
            .filter(|i| !is_live(i))
            .for_each(|i| arena.release(positions[i], 9));
        for i in (0..n).filter(is_live) {
            if arena.is_sparse(positions[i]) {
                positions[i] = arena.relocate(positions[i], 9).unwrap();
            }
        }
        assert!(arena.room <= n / 3 * 9 + 2 * PIECE_LEN, "{}", arena.room);
        assert!(
            (0..n)
                .filter(is_live)
                .all(|i| arena.run(positions[i], 9) == run(i, 9))
        );
    }

    proptest! {
        #[test]
        fn runs_moved_out_of_sparse_pieces_keep_their_values(
            lens in proptest::collection::vec(prop_oneof![0..2_000_usize, 30_000..70_000_usize], 1..60),
            gone in proptest::collection::vec(any::<bool>(), 60),
        ) {
            let mut arena = Arena::<Vec<u32>>::default();
            let runs: Vec<_> = lens.iter().enumerate().map(|(i, &n)| run(i, n)).collect();
            let mut positions: Vec<_> = runs.iter().map(|run| arena.push(run).unwrap()).collect();
            let mut live: Vec<_> = (0..runs.len()).collect();
            live.retain(|&i| {
                if gone[i] {
                    arena.release(positions[i], runs[i].len());
                }
                !gone[i]
            });
            for &i in &live {
                if arena.is_sparse(positions[i]) {
                    positions[i] = arena.relocate(positions[i], runs[i].len()).unwrap();
                }
                prop_assert!(!arena.is_sparse(positions[i]));
            }
            for &i in &live {
                prop_assert_eq!(arena.run(positions[i], runs[i].len()), &runs[i][..]);
            }
        }
    }
}
