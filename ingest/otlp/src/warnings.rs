//! What a translation changes without an error, counted as Prometheus does.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Maximum number of distinct warnings of a request that are counted.
const WARNINGS_MAX: usize = 1_000;

/// Numbers of warnings of a request. As in Prometheus
/// (`otlptranslator/prometheusremotewrite/warnings.go`), equal ones count once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WarningCounts {
    /// Several attributes become the same label, so their values are joined.
    pub label_name_collisions: u64,
    /// A native histogram without observations has a sum.
    pub zero_counts_with_sum: u64,
    /// A resource has more attributes than a series may have labels.
    pub cut_target_infos: u64,
}

/// The warnings of a request so far.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    /// Hashes of the warnings.
    seen: HashSet<u64>,
    counts: WarningCounts,
}

impl Warnings {
    /// Notes that the attributes with these names become the same label.
    pub(super) fn note_collision<'a>(&mut self, attributes: impl Iterator<Item = &'a [u8]>) {
        let attributes: Vec<&[u8]> = attributes.collect();
        if self.is_new(&attributes) {
            self.counts.label_name_collisions += 1;
        }
    }

    /// Notes that a histogram without observations has a sum.
    pub(super) fn note_zero_count(&mut self, sum: f64) {
        if self.is_new(&sum.to_bits()) {
            self.counts.zero_counts_with_sum += 1;
        }
    }

    /// Notes that a `target_info` with these labels lost some of them.
    pub(super) fn note_cut_info(&mut self, labels: &impl Hash) {
        if self.is_new(labels) {
            self.counts.cut_target_infos += 1;
        }
    }

    pub(super) fn counts(&self) -> WarningCounts {
        self.counts
    }

    fn is_new(&mut self, warning: &impl Hash) -> bool {
        let mut hasher = DefaultHasher::new();
        warning.hash(&mut hasher);
        self.seen.len() < WARNINGS_MAX && self.seen.insert(hasher.finish())
    }
}
