//! The samples of one shard that wait for the end of the replay, in the order in which they were logged.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::head::AnySample;
use crate::sample::Sample;
use crate::sample::histogram::Histogram;

/// A sample of the series in a slot. No series leaves its slot before the end of the replay.
#[derive(Debug)]
pub(crate) enum HeldSample {
    /// None itself: the start timestamp of the next one. Without, it has none.
    Start(i64),
    Float {
        slot: u32,
        sample: Sample,
    },
    Histogram {
        slot: u32,
        timestamp_ms: i64,
        histogram: Arc<Histogram>,
    },
}

impl HeldSample {
    /// Returns the slot and the sample.
    ///
    /// # Errors
    /// The start of the next sample, if that is what this is.
    pub(super) fn sample(&self) -> Result<(u32, AnySample<'_>), i64> {
        match self {
            Self::Start(start_ms) => Err(*start_ms),
            Self::Float { slot, sample } => Ok((*slot, AnySample::Float(*sample))),
            Self::Histogram { slot, timestamp_ms, histogram } => {
                Ok((*slot, AnySample::Histogram(*timestamp_ms, histogram)))
            }
        }
    }
}

/// Memory that a held sample takes, what a histogram refers to aside.
pub(crate) const HELD_SIZE: usize = size_of::<HeldSample>();
/// Samples of a piece. What is held grows piece by piece, so that it never takes twice the memory in order to grow, and
/// goes away piece by piece.
pub(super) const PIECE_SAMPLES: usize = 1024;

/// See the module. Takes the memory of up to a piece more than of its samples.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pieces: VecDeque<Vec<HeldSample>>,
}

impl Held {
    /// Adds a sample.
    pub(crate) fn push(&mut self, held: HeldSample) {
        match self.pieces.back_mut() {
            Some(piece) if piece.len() < PIECE_SAMPLES => piece.push(held),
            _ => {
                let mut piece = Vec::with_capacity(PIECE_SAMPLES);
                piece.push(held);
                self.pieces.push_back(piece);
            }
        }
    }

    /// Takes the oldest samples, up to [`PIECE_SAMPLES`]; `None` if there are none.
    pub(crate) fn pop(&mut self) -> Option<Vec<HeldSample>> {
        let piece = self.pieces.pop_front();
        if self.pieces.is_empty() {
            self.pieces = VecDeque::new();
        }
        piece
    }

    /// Counts the pieces.
    pub(crate) fn n_pieces(&self) -> usize {
        self.pieces.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_come_out_in_the_order_in_which_they_went_in() {
        let mut held = Held::default();
        let sample = |t: i64| HeldSample::Float { slot: 7, sample: Sample { timestamp_ms: t, value: 0.0 } };
        let n_samples = 2 * PIECE_SAMPLES as i64 + 5;
        (0..n_samples).for_each(|t| held.push(sample(t)));
        assert_eq!(held.n_pieces(), 3);
        let first = held.pop().unwrap();
        (n_samples..n_samples + 10).for_each(|t| held.push(sample(t)));
        let rest = std::iter::from_fn(|| held.pop()).flatten();
        let times: Vec<_> = first.into_iter().chain(rest).map(|held| held.sample().unwrap().1.timestamp_ms()).collect();
        assert_eq!(times, (0..n_samples + 10).collect::<Vec<_>>());
        assert_eq!((held.n_pieces(), HELD_SIZE), (0, 24));
    }
}
