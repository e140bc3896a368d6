//! Samples of one shard that are buffered until the replay ends, in the order in which they were
//! logged.

use std::collections::VecDeque;
use std::sync::Arc;

use varve_model::Sample;
use varve_model::histogram::Histogram;

use crate::head::AnySample;

/// A sample of the series in a slot. No series leaves its slot before the replay ends.
#[derive(Debug)]
pub(crate) enum BufferedSample {
    /// Not a sample: the start timestamp of the next one. A sample without such an entry has none.
    StartTimestamp(i64),
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

impl BufferedSample {
    /// Returns the slot and the sample.
    ///
    /// # Errors
    /// The start timestamp of the next sample, if this entry is one.
    pub(crate) fn sample(&self) -> Result<(u32, AnySample<'_>), i64> {
        match self {
            Self::StartTimestamp(start_ms) => Err(*start_ms),
            Self::Float { slot, sample } => Ok((*slot, AnySample::Float(*sample))),
            Self::Histogram {
                slot,
                timestamp_ms,
                histogram,
            } => Ok((*slot, AnySample::Histogram(*timestamp_ms, histogram))),
        }
    }
}

/// Bytes of memory per buffered sample, without the memory that a histogram refers to.
pub(crate) const BUFFERED_SAMPLE_SIZE: usize = size_of::<BufferedSample>();
/// Number of samples per batch. The buffer grows and shrinks by batches, so growing copies nothing.
pub(super) const BATCH_SAMPLES: usize = 1024;

/// A queue of samples. Uses at most one batch more memory than its samples need.
#[derive(Debug, Default)]
pub(crate) struct SampleBuffer {
    batches: VecDeque<Vec<BufferedSample>>,
}

impl SampleBuffer {
    /// Appends a sample.
    pub(crate) fn push(&mut self, sample: BufferedSample) {
        match self.batches.back_mut() {
            Some(batch) if batch.len() < BATCH_SAMPLES => batch.push(sample),
            _ => {
                let mut batch = Vec::with_capacity(BATCH_SAMPLES);
                batch.push(sample);
                self.batches.push_back(batch);
            }
        }
    }

    /// Appends the start timestamp of the next sample, if it has one; 0 is none.
    pub(crate) fn push_start(&mut self, start_ms: i64) {
        if start_ms != 0 {
            self.push(BufferedSample::StartTimestamp(start_ms));
        }
    }

    /// Removes and returns the oldest samples, at most [`BATCH_SAMPLES`]. Returns `None` if the
    /// buffer is empty.
    pub(crate) fn pop(&mut self) -> Option<Vec<BufferedSample>> {
        let batch = self.batches.pop_front();
        if self.batches.is_empty() {
            self.batches = VecDeque::new();
        }
        batch
    }

    /// Returns the number of batches.
    pub(crate) fn n_batches(&self) -> usize {
        self.batches.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_come_out_in_the_order_of_insertion() {
        let mut buffer = SampleBuffer::default();
        let sample = |t: i64| BufferedSample::Float {
            slot: 7,
            sample: Sample {
                timestamp_ms: t,
                value: 0.0,
            },
        };
        let n_samples = 2 * BATCH_SAMPLES as i64 + 5;
        (0..n_samples).for_each(|t| buffer.push(sample(t)));
        assert_eq!(buffer.n_batches(), 3);
        let first = buffer.pop().unwrap();
        (n_samples..n_samples + 10).for_each(|t| buffer.push(sample(t)));
        let rest = std::iter::from_fn(|| buffer.pop()).flatten();
        let times: Vec<_> = first
            .into_iter()
            .chain(rest)
            .map(|sample| sample.sample().unwrap().1.timestamp_ms())
            .collect();
        assert_eq!(times, (0..n_samples + 10).collect::<Vec<_>>());
        assert_eq!((buffer.n_batches(), BUFFERED_SAMPLE_SIZE), (0, 24));
    }
}
