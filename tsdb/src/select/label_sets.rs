//! The label sets of a selection without samples.

use varve_model::Labels;

use super::series::Series;
use super::series_set::SeriesSet;
use crate::error::Result;

/// The label sets of the selected series, in label order. The samples of the heads were not copied,
/// so none can be read. Its memory is charged to the request. After an error, it returns no more.
#[derive(Debug)]
pub struct LabelSets(SeriesSet);

/// The labels of a selected series, charged to the request with those of its neighbors.
#[derive(Debug)]
pub struct SelectedLabels(Series);

impl LabelSets {
    pub(crate) fn new(set: SeriesSet) -> Self {
        Self(set)
    }

    /// Returns `true` if any series of the heads and blocks that are read, selected or not, may
    /// have a label of one of these names.
    ///
    /// # Errors
    /// Errors of reading blocks.
    pub fn may_have_label(&self, names: &[&str]) -> Result<bool> {
        self.0.may_have_label(names)
    }
}

impl Iterator for LabelSets {
    type Item = Result<SelectedLabels>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.next()?.map(SelectedLabels))
    }
}

impl SelectedLabels {
    /// Returns the labels.
    #[must_use]
    pub fn labels(&self) -> &Labels {
        self.0.labels()
    }
}
