//! The label names of `by`, `on`, `group_left` and similar lists, and the labels that are removed
//! with a metric name.

use varve_model::labels::{METRIC_NAME, NAME_LABELS};

/// Sorts label names and removes duplicates.
pub(super) fn sort(mut names: Vec<String>) -> Vec<String> {
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns `true` if `name` is in `names`, which must ascend. Cost: logarithmic.
pub(crate) fn contains_name(names: &[String], name: &str) -> bool {
    // Fast path: most names differ in length, which is compared first.
    if names.len() <= SCANNED_MAX {
        return names.iter().any(|known| known == name);
    }
    names
        .binary_search_by(|known| known.as_str().cmp(name))
        .is_ok()
}

/// The greatest of the labels that are removed with a metric name, and of the metric name.
pub(crate) const LAST_NAME_LABEL: &str = "__unit__";

/// Returns `true` if a label is the metric name or is removed with it.
pub(crate) fn is_name_label(name: &str) -> bool {
    name.starts_with("__") && (name == METRIC_NAME || NAME_LABELS.contains(&name))
}

/// Maximum number of names that are compared one after the other.
const SCANNED_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_label_is_greater_than_the_last_one() {
        let greatest = NAME_LABELS.into_iter().chain([METRIC_NAME]).max();
        assert_eq!(greatest, Some(LAST_NAME_LABEL));
    }

    #[test]
    fn names_are_found_in_short_and_long_lists() {
        for n in [0, 1, SCANNED_MAX, SCANNED_MAX + 1, 100] {
            let names = sort((0..n).rev().chain(0..n).map(|i| format!("l{i}")).collect());
            assert_eq!(names.len(), n);
            assert!(
                (0..n).all(|i| contains_name(&names, &format!("l{i}"))),
                "{n}"
            );
            assert!(
                !contains_name(&names, "l") && !contains_name(&names, &format!("l{n}")),
                "{n}"
            );
        }
    }
}
