//! The labels of all series.

use varve_collections::{Arena, Column};

use super::label_pairs::PairId;

/// Index of a series in the table.
pub(crate) type SeriesIdx = u32;

/// The labels of all series.
#[derive(Debug, Default)]
pub(crate) struct SeriesLabels {
    /// For each series the number of its labels, then the labels.
    all: Arena<Vec<PairId>>,
    /// For each series, the start of its labels.
    indexes: Column<u32>,
}

impl SeriesLabels {
    /// Returns the number of series.
    pub(crate) fn len(&self) -> usize {
        self.indexes.len()
    }

    /// Returns the labels of a series, sorted by name.
    #[inline]
    pub(crate) fn get(&self, series: SeriesIdx) -> &[PairId] {
        let index = self.indexes[series as usize];
        match self.all.run(index, 1)[0] as usize {
            // The run may end its piece.
            0 => &[],
            n_labels => self.all.run(index + 1, n_labels),
        }
    }

    /// Appends a series: the number of its labels, then the labels. Returns `None` if the arena is
    /// full.
    pub(super) fn push(&mut self, counted_ids: &[PairId]) -> Option<()> {
        self.indexes.push(self.all.push(counted_ids)?);
        Some(())
    }

    /// Estimates the memory in bytes.
    pub(crate) fn size(&self) -> usize {
        self.all.size() + self.indexes.size()
    }
}
