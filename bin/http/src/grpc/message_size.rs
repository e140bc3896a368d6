//! The memory of labels in messages, which is charged before they are built.

use std::collections::BTreeMap;

use varve_model::Labels;

/// Memory of a label in bytes, without its texts: two strings, with the overhead of their
/// allocations, in a list that may be half empty.
const LABEL_MEMORY: usize = 144;

/// Returns the maximum memory of the labels of a series in a message, in bytes.
pub(super) fn size_of_labels(labels: &Labels) -> usize {
    size_of_pairs(labels)
}

/// Returns the maximum memory of labels, or of annotations, in a message, in bytes.
pub(super) fn size_of_texts(texts: &BTreeMap<String, String>) -> usize {
    size_of_pairs(
        texts
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str())),
    )
}

fn size_of_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> usize {
    let mut size = 0;
    for (name, value) in pairs {
        size += LABEL_MEMORY + name.len() + value.len();
    }
    size
}
