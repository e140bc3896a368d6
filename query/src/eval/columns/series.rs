//! A series of an evaluation, and removal of its metric name.

use varve_model::Labels;

use super::column::Column;
use crate::plan::{LAST_NAME_LABEL, is_name_label};

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
    // Fast path: the removed labels come before all others, or there are none.
    let mut removed_end = 0;
    for (name, pair) in labels.packed_pairs() {
        if name > LAST_NAME_LABEL {
            break;
        }
        if is_name_label(name) {
            if pair.start != removed_end {
                return labels.filter(|name| !is_name_label(name));
            }
            removed_end = pair.end;
        }
    }
    if removed_end == 0 {
        labels.clone()
    } else {
        Labels::from_packed(&labels.as_packed()[removed_end..])
    }
}

/// Returns the size of a series in bytes.
pub(crate) fn series_size(series: &Series) -> usize {
    size_of::<Series>()
        + series.labels.size()
        + Column::size(series.column.values.len())
        + series.column.histograms_size()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_type_and_unit_are_removed_wherever_they_are() {
        let labels = |pairs: &[(&str, &str)]| Labels::from_pairs(pairs.iter().copied()).unwrap();
        let name = ("__name__", "m");
        let kind = ("__type__", "counter");
        let unit = ("__unit__", "s");
        for before in [None, Some(("A", "1")), Some(("__a__", "1"))] {
            for between in [None, Some(("__p__", "1"))] {
                let rest: Vec<_> = [before, between, Some(("job", "j"))]
                    .into_iter()
                    .flatten()
                    .collect();
                for names in [&[][..], &[name], &[unit], &[name, kind, unit]] {
                    let whole = labels(&[&rest, names].concat());
                    assert_eq!(without_name(&whole), labels(&rest));
                }
            }
        }
        assert!(without_name(&labels(&[name])).is_empty());
    }
}
