//! Samples of the process itself, such as its own metrics. Admission control, relabel rules and budgets do not apply to
//! them.

use varve_tsdb::{Db, Labels, Sample, SeriesHandle, WriteBatch};

use super::Receiver;
use crate::append::{Outgoing, Source, append};
use crate::error::WriteError;
use crate::outcome::{Rejects, SampleCounts, Written};

impl Receiver {
    /// Appends samples of the process itself.
    ///
    /// # Errors
    /// [`WriteError::Store`] and [`WriteError::Moved`].
    pub fn append_own<'a>(
        &self,
        samples: impl IntoIterator<Item = (&'a Labels, Sample)>,
    ) -> Result<Written, WriteError> {
        let mut out = Outgoing { batch: WriteBatch::own(), ..Outgoing::default() };
        let mut own = OwnSamples { db: &self.db, series: Vec::new() };
        for (idx, (labels, sample)) in (0u32..).zip(samples) {
            out.batch.push(self.db.series(labels)?, sample, idx);
            own.series.push(labels);
        }
        let mut rejects = Rejects::default();
        let total = append(&self.db, &own, &mut out, &mut rejects)?;
        Ok(Written { stored: SampleCounts::floats(total), rejects, ..Written::default() })
    }
}

struct OwnSamples<'a> {
    db: &'a Db,
    series: Vec<&'a Labels>,
}

impl Source for OwnSamples<'_> {
    fn relocate(&self, series_idx: u32) -> Result<Option<SeriesHandle>, WriteError> {
        Ok(Some(self.db.series(self.series[series_idx as usize])?))
    }

    fn find(&self, series_idx: u32) -> Option<SeriesHandle> {
        self.db.find(self.series[series_idx as usize])
    }

    fn print(&self, series_idx: u32) -> String {
        self.series[series_idx as usize].to_string()
    }
}
