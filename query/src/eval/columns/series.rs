//! A series of an evaluation, and removal of its metric name.

use std::fmt::{self, Write};

use varve_model::Labels;

use super::column::Column;
use crate::plan::{LAST_NAME_LABEL, is_name_label};

/// Maximum size in bytes of a label set in a message. Labels may have 1 MiB, and a message is kept
/// with its rule.
const PRINTED_SIZE_MAX: usize = 4 << 10;

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

/// Prints a label set for a message. A long one is cut.
pub(crate) fn printed(labels: &Labels) -> String {
    let mut cut = CutText::default();
    if write!(cut, "{labels}").is_err() {
        cut.0.push_str("...");
    }
    cut.0
}

/// A text of at most [`PRINTED_SIZE_MAX`] bytes. Writing more fails.
#[derive(Default)]
struct CutText(String);

impl Write for CutText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = PRINTED_SIZE_MAX - self.0.len();
        if text.len() <= room {
            self.0.push_str(text);
            return Ok(());
        }
        self.0.push_str(&text[..text.floor_char_boundary(room)]);
        Err(fmt::Error)
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
    fn a_long_label_set_is_cut_in_messages() {
        let short = Labels::from_pairs([("a", "1"), ("b", "\u{e9}")]).unwrap();
        assert_eq!(printed(&short), short.to_string());
        for long in ["x", "\u{e9}", "\n"] {
            let value = long.repeat(60_000);
            let labels = Labels::from_pairs([("a", "1"), ("b", &*value)]).unwrap();
            let cut = printed(&labels);
            assert!(
                cut.starts_with("{a=\"1\", b=\"") && cut.ends_with("..."),
                "{cut}"
            );
            assert!((PRINTED_SIZE_MAX - 4..=PRINTED_SIZE_MAX + 3).contains(&cut.len()));
        }
    }

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
