//! Label sets of samples that rules write.

use std::collections::BTreeMap;

use varve_tsdb::Labels;
use varve_tsdb::labels::LabelsBuilder;

/// Returns `base` with `changes` applied in order. A value replaces an earlier one. An empty value removes the label.
pub(crate) fn with_labels<'a>(base: &'a Labels, changes: impl IntoIterator<Item = (&'a str, &'a str)>) -> Labels {
    let pairs: BTreeMap<&str, &str> = base.iter().chain(changes).collect();
    let mut builder =
        LabelsBuilder::with_capacity(pairs.iter().map(|(name, value)| name.len() + value.len() + 4).sum());
    for (name, value) in pairs.into_iter().filter(|(_, value)| !value.is_empty()) {
        builder.push(name, value);
    }
    builder.finish()
}
