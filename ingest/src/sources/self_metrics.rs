//! Samples of the server itself, such as its own metrics. Admission control, relabel rules and
//! budgets do not apply to them.

use varve_model::{Labels, Sample};
use varve_protobuf::Span;

use crate::batch::DecodedBatch;
use crate::error::WriteError;
use crate::outcome::Rejections;
use crate::receiver::Receiver;
use crate::write::buffers::RequestBuffers;
use crate::write::{Write, Writer};

impl Receiver {
    /// Appends samples of the server itself, and returns the rejected ones.
    ///
    /// # Errors
    /// [`WriteError::Store`] and [`WriteError::Moved`].
    pub fn append_self_metrics(
        &self,
        samples: &[(Labels, Sample)],
    ) -> Result<Rejections, WriteError> {
        let mut batch = DecodedBatch::default();
        let mut series = Vec::with_capacity(samples.len());
        for (labels, sample) in samples {
            batch.push_sample(*sample, 0);
            // Without a key: there are few series, and their routes are not cached.
            batch.push_series(Span::default(), None);
            series.push(labels);
        }

        let permit = self.admission.exempt();
        let writer = Writer::Server(&series);
        let mut buffers = RequestBuffers::internal();
        let mut write = Write::internal(self, permit, writer, &batch, &mut buffers);
        write.store_internal()?;
        Ok(write.rejections())
    }
}
