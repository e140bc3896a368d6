//! A series of an evaluation, and removal of its metric name.

use varve_model::Labels;

use super::column::Column;
use crate::plan::is_name_label;

/// One series, with a value for each step.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    pub(crate) labels: Labels,
    /// Whether the metric name is removed at the end of the evaluation (delayed name removal).
    pub(crate) drop_name: bool,
    pub(crate) column: Column,
}

impl Series {
    /// Removes the metric name; at the end of the evaluation if `delayed`.
    pub(crate) fn drop_name(&mut self, delayed: bool) {
        self.drop_name = true;
        if !delayed {
            self.labels = without_name(&self.labels);
        }
    }
}

/// Returns a label set without the metric name, type and unit.
pub(crate) fn without_name(labels: &Labels) -> Labels {
    // Fast path: nothing to remove.
    if labels.iter().any(|(name, _)| is_name_label(name)) {
        labels.filter(|name| !is_name_label(name))
    } else {
        labels.clone()
    }
}

/// Returns the size of a series in bytes.
pub(crate) fn series_size(series: &Series) -> usize {
    size_of::<Series>()
        + series.labels.size()
        + Column::size(series.column.values.len())
        + series.column.histograms_size()
}
