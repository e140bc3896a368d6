//! Histograms that a store does not accept.

use std::path::Path;

use varve_env::damage::{DamageKind, DamageReport};
use varve_model::histogram::HISTOGRAM_BUCKETS_MAX;
use varve_model::{SampleColumns, TimeRange};

/// Removes the histograms of a series that a store does not accept, and reports them as damage of
/// `path`.
pub(crate) fn remove_too_large(
    columns: &mut SampleColumns,
    print_labels: impl Fn() -> String,
    path: &Path,
    damage: &mut DamageReport,
) {
    let too_large = columns
        .histograms
        .iter()
        .filter(|(_, histogram)| !histogram.fits());
    let times_ms: Vec<i64> = too_large
        .map(|(idx, _)| columns.timestamps_ms[*idx as usize])
        .collect();
    for timestamp_ms in times_ms {
        columns.remove(TimeRange::at(timestamp_ms));
        let labels = print_labels();
        let limit = format!("more than {HISTOGRAM_BUCKETS_MAX} buckets, spans or bounds");
        let reason = format!("a histogram of {labels} at {timestamp_ms} ms has {limit}");
        damage.push(path, 0, DamageKind::Unsupported, reason);
    }
}
