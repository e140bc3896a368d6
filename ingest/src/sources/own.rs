//! Samples of the process itself, such as its own metrics. Admission control, relabel rules and
//! budgets do not apply to them.

use varve_model::{Labels, Sample};
use varve_tsdb::{RejectReason, Rejected, WriteBatch};

use crate::error::WriteError;
use crate::outcome::{Example, Reason, Rejections};
use crate::receiver::Receiver;
use crate::write::append::ROUNDS_MAX;

impl Receiver {
    /// Appends samples of the process itself, and returns the rejected ones.
    ///
    /// # Errors
    /// [`WriteError::Store`] and [`WriteError::Moved`].
    pub fn append_own(&self, samples: &[(Labels, Sample)]) -> Result<Rejections, WriteError> {
        let mut rejections = Rejections::default();
        let push = |batch: &mut WriteBatch, idx: u32| {
            let (labels, sample) = &samples[idx as usize];
            // After a restart, the series may belong to the team of one of their labels.
            batch.push(self.db.series_without_group(labels)?, *sample, idx);
            Ok(())
        };
        self.append_unsent(samples.len(), push, |rejected| {
            let example = || {
                Example::of_sample(
                    samples[rejected.tag as usize].0.to_string(),
                    rejected.sample,
                )
            };
            rejections.add(Reason::Sample(rejected.reason), 1, 1, example);
        })?;
        Ok(rejections)
    }

    /// Appends `n` samples that no sender has sent, and repeats this for those whose series have
    /// moved. `push` adds the sample with an index to the batch, with the index as its tag.
    pub(crate) fn append_unsent(
        &self,
        n: usize,
        mut push: impl FnMut(&mut WriteBatch, u32) -> Result<(), WriteError>,
        mut reject: impl FnMut(&Rejected),
    ) -> Result<(), WriteError> {
        let mut pending: Vec<u32> = (0..n as u32).collect();
        for _ in 0..ROUNDS_MAX {
            let mut batch = WriteBatch::own();
            pending
                .drain(..)
                .try_for_each(|idx| push(&mut batch, idx))?;
            self.db.append(&mut batch)?;
            for rejected in batch.rejected() {
                match rejected.reason {
                    RejectReason::Moved => pending.push(rejected.tag),
                    _ => reject(rejected),
                }
            }
            if pending.is_empty() {
                return Ok(());
            }
        }
        Err(WriteError::Moved)
    }
}
