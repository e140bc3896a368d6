//! Exemplars and metadata of a WAL. Blocks do not store them.
//!
//! Used by the import. The WAL stores metadata per series, the store per metric family. The name of
//! a family is the metric name without the suffix of its type.
//!
//! All threads collect from the records that they route ([`FoundBeside`]). One thread appends what
//! they found in the order of the WAL ([`ExemplarsAndMetadataBuilder`]).

use std::collections::{BTreeMap, VecDeque};

use varve_model::metadata::{METADATA_FAMILIES_MAX, METADATA_SIZE_MAX, Metadata, MetricType};
use varve_model::{EXEMPLAR_LABELS_LEN_MAX, Exemplar, Labels};

use super::series::SeriesTable;
use crate::wal::{RefExemplar, RefMetadata};

/// Exemplars and metadata of a WAL.
#[derive(Debug, Clone, Default)]
pub struct ExemplarsAndMetadata {
    /// The newest exemplars with the labels of their series, in WAL order.
    pub exemplars: Vec<(Labels, Exemplar)>,
    /// The newest metadata of each metric family.
    pub metadata: BTreeMap<String, Metadata>,
    /// Number of skipped exemplars: too old for the limit, of unknown series, or with invalid
    /// labels.
    pub n_exemplars_skipped: u64,
    /// Number of skipped metadata entries: of unknown series, too large, or of too many families.
    pub n_metadata_skipped: u64,
}

/// What some consecutive records have beside samples.
#[derive(Debug, Default)]
pub(super) struct FoundBeside {
    exemplars: Vec<PendingExemplar>,
    metadata: BTreeMap<String, FoundMetadata>,
    n_exemplars_skipped: u64,
    n_metadata_skipped: u64,
}

/// An exemplar whose series is not resolved yet.
#[derive(Debug)]
struct PendingExemplar {
    series: u64,
    exemplar: Exemplar,
}

/// The newest metadata of a family, and the number of its entries.
#[derive(Debug)]
struct FoundMetadata {
    newest: Metadata,
    n_entries: u64,
}

/// Collects exemplars and metadata in the order of the WAL.
#[derive(Debug)]
pub(super) struct ExemplarsAndMetadataBuilder {
    exemplars_max: usize,
    exemplars: VecDeque<PendingExemplar>,
    found: ExemplarsAndMetadata,
}

impl FoundBeside {
    /// Adds the exemplars of a record.
    pub(super) fn add_exemplars(&mut self, exemplars: &[RefExemplar<'_>]) {
        for it in exemplars {
            let len: usize = it
                .labels
                .iter()
                .map(|(name, value)| name.chars().count() + value.chars().count())
                .sum();
            match Labels::from_pairs(it.labels.iter().copied()) {
                Ok(labels) if len <= EXEMPLAR_LABELS_LEN_MAX => {
                    let exemplar = Exemplar {
                        labels,
                        value: it.value,
                        timestamp_ms: it.timestamp_ms,
                    };
                    self.exemplars.push(PendingExemplar {
                        series: it.series,
                        exemplar,
                    });
                }
                _ => self.n_exemplars_skipped += 1,
            }
        }
    }

    /// Adds the metadata of a record.
    pub(super) fn add_metadata(&mut self, metadata: &[RefMetadata<'_>], table: &SeriesTable) {
        for it in metadata {
            let kind = it.metric_type.name();
            let Some(family) = table
                .metric_name(it.series)
                .map(|name| family(name, it.metric_type))
            else {
                self.n_metadata_skipped += 1;
                continue;
            };
            if family.len() + kind.len() + it.help.len() + it.unit.len() > METADATA_SIZE_MAX {
                self.n_metadata_skipped += 1;
                continue;
            }
            let newest = Metadata {
                kind: kind.to_owned(),
                help: it.help.to_owned(),
                unit: it.unit.to_owned(),
            };
            match self.metadata.get_mut(family) {
                Some(found) => {
                    found.newest = newest;
                    found.n_entries += 1;
                }
                None => {
                    let n_entries = 1;
                    let first = FoundMetadata { newest, n_entries };
                    self.metadata.insert(family.to_owned(), first);
                }
            }
        }
    }
}

impl ExemplarsAndMetadataBuilder {
    /// Creates a builder for the newest `exemplars_max` exemplars.
    pub(super) fn new(exemplars_max: usize) -> Self {
        Self {
            exemplars_max,
            exemplars: VecDeque::new(),
            found: ExemplarsAndMetadata::default(),
        }
    }

    /// Appends what later records have.
    pub(super) fn append(&mut self, beside: &mut FoundBeside) {
        self.found.n_exemplars_skipped += std::mem::take(&mut beside.n_exemplars_skipped);
        self.found.n_metadata_skipped += std::mem::take(&mut beside.n_metadata_skipped);
        self.exemplars.extend(beside.exemplars.drain(..));
        let n_too_old = self.exemplars.len().saturating_sub(self.exemplars_max);
        self.exemplars.drain(..n_too_old);
        self.found.n_exemplars_skipped += n_too_old as u64;
        for (family, found) in std::mem::take(&mut beside.metadata) {
            let FoundMetadata { newest, n_entries } = found;
            let metadata = &mut self.found.metadata;
            if metadata.len() >= METADATA_FAMILIES_MAX && !metadata.contains_key(&family) {
                self.found.n_metadata_skipped += n_entries;
            } else {
                metadata.insert(family, newest);
            }
        }
    }

    /// Finds the series of the exemplars.
    pub(super) fn finish(self, table: &SeriesTable) -> ExemplarsAndMetadata {
        let mut found = self.found;
        for PendingExemplar { series, exemplar } in self.exemplars {
            let labels = table
                .find(series)
                .and_then(|series| Labels::from_pairs(table.strings_of(series)).ok());
            match labels {
                Some(labels) => found.exemplars.push((labels, exemplar)),
                None => found.n_exemplars_skipped += 1,
            }
        }
        found
    }
}

/// Returns the family of a metric.
fn family(name: &str, metric_type: MetricType) -> &str {
    metric_type
        .series_suffixes()
        .iter()
        .find_map(|suffix| name.strip_suffix(suffix))
        .unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recover::series::tests::define;

    #[test]
    fn families_have_no_type_suffix() {
        for (name, metric_type, expect) in [
            ("a_bucket", MetricType::Histogram, "a"),
            ("a_bucket", MetricType::Counter, "a_bucket"),
            ("a_sum", MetricType::Summary, "a"),
            ("a_total", MetricType::Counter, "a_total"),
            ("a", MetricType::Histogram, "a"),
        ] {
            assert_eq!(family(name, metric_type), expect, "{name} {metric_type:?}");
        }
    }

    fn exemplar(series: u64, timestamp_ms: i64) -> RefExemplar<'static> {
        RefExemplar {
            series,
            timestamp_ms,
            value: 1.0,
            labels: vec![("trace", "x")],
        }
    }

    #[test]
    fn the_newest_exemplars_and_metadata_are_kept_and_the_others_counted() {
        let mut table = SeriesTable::default();
        define(&mut table, 1, &[("__name__", "a_total"), ("job", "x")]).unwrap();
        define(&mut table, 2, &[("job", "no name")]).unwrap();
        let mut builder = ExemplarsAndMetadataBuilder::new(3);
        let mut beside = FoundBeside::default();
        for round in 0..3 {
            beside.add_exemplars(&[exemplar(1, round), exemplar(7, round)]);
            let helps = [(1, "old"), (1, "new"), (2, "no name"), (7, "unknown")];
            let metadata = helps.map(|(series, help)| RefMetadata {
                series,
                metric_type: MetricType::Counter,
                unit: "",
                help,
            });
            beside.add_metadata(&metadata, &table);
            builder.append(&mut beside);
        }
        let too_long = "x".repeat(EXEMPLAR_LABELS_LEN_MAX);
        beside.add_exemplars(&[RefExemplar {
            labels: vec![("trace", &too_long)],
            ..exemplar(1, 9)
        }]);
        builder.append(&mut beside);
        let found = builder.finish(&table);
        let times: Vec<_> = found
            .exemplars
            .iter()
            .map(|(labels, exemplar)| (labels.to_string(), exemplar.timestamp_ms))
            .collect();
        // Of the newest three, two belong to an unknown series.
        assert_eq!(times, [(r#"{__name__="a_total", job="x"}"#.to_owned(), 2)]);
        assert_eq!(found.n_exemplars_skipped, 3 + 2 + 1);
        assert_eq!(found.metadata.len(), 1);
        assert_eq!(found.metadata["a_total"].help, "new");
        assert_eq!(found.n_metadata_skipped, 6);
    }
}
