//! Reads exemplars and metadata from a WAL. Blocks do not store them.
//!
//! Used by the import. The WAL stores metadata per series, the store per metric family. The name of
//! a family is the metric name without the suffix of its type.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use varve_env::Fs;
use varve_env::damage::DamageReport;
use varve_model::labels::METRIC_NAME;
use varve_model::metadata::{METADATA_FAMILIES_MAX, METADATA_SIZE_MAX, Metadata, MetricType};
use varve_model::{EXEMPLAR_LABELS_LEN_MAX, Exemplar, Labels};
use varve_tsdb::Result;

use super::inspect::for_each_record;
use super::wal::{RecordContent, RefExemplar, RefMetadata, SeriesDefinition};

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

/// An exemplar whose series is not resolved yet.
struct PendingExemplar {
    series: u64,
    exemplar: Exemplar,
}

/// Reads exemplars, at most the newest `exemplars_max`, and metadata from the WAL of a Prometheus
/// data directory. Reads the WAL twice. Skips damage without a report, since recovery reports it.
///
/// # Errors
/// [`Error::Io`](varve_tsdb::Error::Io) if a directory cannot be listed.
pub fn read_exemplars_and_metadata(
    fs: &dyn Fs,
    dir: &Path,
    exemplars_max: usize,
) -> Result<ExemplarsAndMetadata> {
    let mut result = ExemplarsAndMetadata::default();
    let mut found = VecDeque::new();
    let mut names = Names::default();
    for_each_record(
        fs,
        dir,
        &mut DamageReport::default(),
        &mut |_, _| {},
        |record| {
            match record.content() {
                Some(RecordContent::Series(definitions)) => {
                    for it in &definitions {
                        names.learn(it);
                    }
                }
                Some(RecordContent::Metadata(metadata)) => {
                    for it in &metadata {
                        result.add_metadata(it, &names);
                    }
                }
                Some(RecordContent::Exemplars(exemplars)) => {
                    result.n_exemplars_skipped += add_exemplars(&exemplars, &mut found);
                }
                _ => {}
            }
            while found.len() > exemplars_max {
                found.pop_front();
                result.n_exemplars_skipped += 1;
            }
            Ok(())
        },
    )?;
    let labels = labels_of(fs, dir, &found.iter().map(|it| it.series).collect())?;
    for PendingExemplar { series, exemplar } in found {
        match labels.get(&series) {
            Some(labels) => result.exemplars.push((labels.clone(), exemplar)),
            None => result.n_exemplars_skipped += 1,
        }
    }
    Ok(result)
}

/// Metric names of series, interned.
#[derive(Default)]
struct Names {
    all: HashSet<Arc<str>>,
    by_series: HashMap<u64, Arc<str>>,
}

impl Names {
    fn learn(&mut self, definition: &SeriesDefinition<'_>) {
        let Some((_, name)) = definition.labels().find(|(name, _)| *name == METRIC_NAME) else {
            return;
        };
        let name = self.all.get_or_insert_with(name, |name| Arc::from(name));
        self.by_series.insert(definition.series, Arc::clone(name));
    }
}

impl ExemplarsAndMetadata {
    fn add_metadata(&mut self, it: &RefMetadata<'_>, names: &Names) {
        let kind = it.metric_type.name();
        let Some(family) = names
            .by_series
            .get(&it.series)
            .map(|name| family(name, it.metric_type))
        else {
            self.n_metadata_skipped += 1;
            return;
        };
        let is_full =
            self.metadata.len() >= METADATA_FAMILIES_MAX && !self.metadata.contains_key(family);
        if is_full || family.len() + kind.len() + it.help.len() + it.unit.len() > METADATA_SIZE_MAX
        {
            self.n_metadata_skipped += 1;
            return;
        }
        let metadata = Metadata {
            kind: kind.to_owned(),
            help: it.help.to_owned(),
            unit: it.unit.to_owned(),
        };
        self.metadata.insert(family.to_owned(), metadata);
    }
}

/// Adds the exemplars of a record. Returns the number of invalid ones.
fn add_exemplars(exemplars: &[RefExemplar<'_>], dst: &mut VecDeque<PendingExemplar>) -> u64 {
    let mut n_bad = 0;
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
                dst.push_back(PendingExemplar {
                    series: it.series,
                    exemplar,
                });
            }
            _ => n_bad += 1,
        }
    }
    n_bad
}

/// Finds the labels of some series.
fn labels_of(fs: &dyn Fs, dir: &Path, wanted: &HashSet<u64>) -> Result<HashMap<u64, Labels>> {
    let mut labels = HashMap::new();
    if wanted.is_empty() {
        return Ok(labels);
    }
    for_each_record(
        fs,
        dir,
        &mut DamageReport::default(),
        &mut |_, _| {},
        |record| {
            if let Some(RecordContent::Series(definitions)) = record.content() {
                let wanted = definitions.iter().filter(|it| wanted.contains(&it.series));
                labels.extend(
                    wanted
                        .filter_map(|it| Some((it.series, Labels::from_pairs(it.labels()).ok()?))),
                );
            }
            Ok(())
        },
    )?;
    Ok(labels)
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
    use crate::testing::recorded;
    use varve_env::RealFs;

    #[test]
    fn the_recorded_log_has_exemplars_and_metadata() {
        let Some(dir) = recorded() else { return };
        let all = read_exemplars_and_metadata(&RealFs, &dir, usize::MAX).unwrap();
        assert!(
            !all.exemplars.is_empty()
                && all.n_exemplars_skipped == 0
                && all.n_metadata_skipped == 0
        );
        let some = read_exemplars_and_metadata(&RealFs, &dir, 3).unwrap();
        assert_eq!(
            (some.exemplars.len() as u64 + some.n_exemplars_skipped),
            all.exemplars.len() as u64
        );
        let key = |it: &(Labels, Exemplar)| (it.0.clone(), it.1.timestamp_ms);
        let newest: Vec<_> = all
            .exemplars
            .iter()
            .skip(all.exemplars.len() - 3)
            .map(key)
            .collect();
        assert_eq!(some.exemplars.iter().map(key).collect::<Vec<_>>(), newest);
        let duration = &all.metadata["prometheus_http_request_duration_seconds"];
        assert_eq!(duration.kind, "histogram");
        assert!(!duration.help.is_empty());
    }

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
}
