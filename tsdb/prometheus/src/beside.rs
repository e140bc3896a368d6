//! What a log of Prometheus holds that blocks do not: exemplars, and metadata.
//!
//! Used by the import. Metadata are of series there and of metric families here: the family's name is that of the metric
//! without the ending that its type adds.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::path::Path;

use varve_tsdb::exemplars::{EXEMPLAR_LABELS_LEN_MAX, Exemplar};
use varve_tsdb::fs::Fs;
use varve_tsdb::fs::damage::DamageReport;
use varve_tsdb::labels::{METADATA_FAMILIES_MAX, METADATA_SIZE_MAX, METRIC_NAME, Metadata};
use varve_tsdb::{Labels, Result};

use super::inspect::{FoundRecord, for_each_record};
use super::wal::{RecordType, decode_definitions, decode_exemplars, decode_metadata};

/// Exemplars and metadata of a log.
#[derive(Debug, Clone, Default)]
pub struct BesideBlocks {
    /// The newest exemplars with the labels of their series, in the order of the log.
    pub exemplars: Vec<(Labels, Exemplar)>,
    /// Metadata by metric family, the newest.
    pub metadata: BTreeMap<String, Metadata>,
    /// Exemplars that are left out: older than those that fit, of series without a definition, or with labels that make
    /// no sense.
    pub n_exemplars_left_out: u64,
    /// Metadata that are left out: of series without a definition, too large, or of too many families.
    pub n_metadata_left_out: u64,
}

/// An exemplar whose series is not known by its labels yet.
struct Found {
    series: u64,
    exemplar: Exemplar,
}

/// Reads the log of the Prometheus data directory `dir`; of the exemplars the newest `exemplars_max`. The log is read
/// twice. Damage is left out, and not noted: reading the samples notes it.
///
/// # Errors
/// [`Error::Io`](varve_tsdb::Error::Io) if a folder cannot be listed.
pub fn read_beside_blocks(fs: &dyn Fs, dir: &Path, exemplars_max: usize) -> Result<BesideBlocks> {
    let (mut beside, mut found, mut names) = (BesideBlocks::default(), VecDeque::new(), Names::default());
    for_each_record(fs, dir, &mut DamageReport::default(), &mut |_, _| {}, |record| {
        match record.record_type {
            Some(RecordType::Series) => names.learn(&record),
            Some(RecordType::Metadata) => beside.add_metadata(&record, &names),
            Some(RecordType::Exemplars) => beside.n_exemplars_left_out += add_exemplars(&record, &mut found),
            _ => {}
        }
        while found.len() > exemplars_max {
            found.pop_front();
            beside.n_exemplars_left_out += 1;
        }
        Ok(())
    })?;
    let labels = labels_of(fs, dir, &found.iter().map(|it| it.series).collect())?;
    for Found { series, exemplar } in found {
        match labels.get(&series) {
            Some(labels) => beside.exemplars.push((labels.clone(), exemplar)),
            None => beside.n_exemplars_left_out += 1,
        }
    }
    Ok(beside)
}

/// The names of the metrics of series, each text once.
#[derive(Default)]
struct Names {
    texts: Vec<String>,
    places: HashMap<String, u32>,
    by_series: HashMap<u64, u32>,
}

impl Names {
    fn learn(&mut self, record: &FoundRecord<'_>) {
        let mut definitions = Vec::new();
        // What comes before damage counts.
        let _ = decode_definitions(record.bytes, &mut definitions);
        for definition in &definitions {
            let Some((_, name)) = definition.labels().find(|(name, _)| *name == METRIC_NAME) else { continue };
            let place = self.places.get(name).copied().or_else(|| {
                let place = u32::try_from(self.texts.len()).ok()?;
                self.texts.push(name.to_owned());
                self.places.insert(name.to_owned(), place);
                Some(place)
            });
            self.by_series.extend(place.map(|place| (definition.series, place)));
        }
    }

    fn get(&self, series: u64) -> Option<&str> {
        self.by_series.get(&series).map(|&place| self.texts[place as usize].as_str())
    }
}

impl BesideBlocks {
    fn add_metadata(&mut self, record: &FoundRecord<'_>, names: &Names) {
        let mut found = Vec::new();
        // What comes before damage counts.
        let _ = decode_metadata(record.bytes, &mut found);
        for it in &found {
            let kind = it.type_name();
            let Some(family) = names.get(it.series).map(|name| family(name, kind)) else {
                self.n_metadata_left_out += 1;
                continue;
            };
            let is_full = self.metadata.len() >= METADATA_FAMILIES_MAX && !self.metadata.contains_key(family);
            if is_full || family.len() + kind.len() + it.help.len() + it.unit.len() > METADATA_SIZE_MAX {
                self.n_metadata_left_out += 1;
                continue;
            }
            let metadata = Metadata { kind: kind.to_owned(), help: it.help.to_owned(), unit: it.unit.to_owned() };
            self.metadata.insert(family.to_owned(), metadata);
        }
    }
}

/// Adds the exemplars of a record; returns how many make no sense.
fn add_exemplars(record: &FoundRecord<'_>, dst: &mut VecDeque<Found>) -> u64 {
    let (mut found, mut n_bad) = (Vec::new(), 0);
    // What comes before damage counts.
    let _ = decode_exemplars(record.bytes, &mut found);
    for it in found {
        let len: usize = it.labels.iter().map(|(name, value)| name.chars().count() + value.chars().count()).sum();
        match Labels::from_pairs(it.labels.iter().copied()) {
            Ok(labels) if len <= EXEMPLAR_LABELS_LEN_MAX => {
                let exemplar = Exemplar { labels, value: it.value, timestamp_ms: it.timestamp_ms };
                dst.push_back(Found { series: it.series, exemplar });
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
    for_each_record(fs, dir, &mut DamageReport::default(), &mut |_, _| {}, |record| {
        if record.record_type == Some(RecordType::Series) {
            let mut definitions = Vec::new();
            // What comes before damage counts.
            let _ = decode_definitions(record.bytes, &mut definitions);
            let of = definitions.iter().filter(|it| wanted.contains(&it.series));
            labels.extend(of.filter_map(|it| Some((it.series, Labels::from_pairs(it.labels()).ok()?))));
        }
        Ok(())
    })?;
    Ok(labels)
}

/// Returns the family of a metric of a type.
fn family<'a>(name: &'a str, kind: &str) -> &'a str {
    let suffixes: &[&str] = match kind {
        "histogram" | "gaugehistogram" => &["_bucket", "_count", "_sum", "_gcount", "_gsum"],
        "summary" => &["_count", "_sum"],
        _ => &[],
    };
    suffixes.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_tsdb::fs::RealFs;

    #[test]
    fn the_recorded_log_has_exemplars_and_metadata() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/prometheus-data/mixed");
        if !dir.is_dir() {
            return;
        }
        let all = read_beside_blocks(&RealFs, &dir, usize::MAX).unwrap();
        assert!(!all.exemplars.is_empty() && all.n_exemplars_left_out == 0 && all.n_metadata_left_out == 0);
        let some = read_beside_blocks(&RealFs, &dir, 3).unwrap();
        assert_eq!((some.exemplars.len() as u64 + some.n_exemplars_left_out), all.exemplars.len() as u64);
        let of = |it: &(Labels, Exemplar)| (it.0.clone(), it.1.timestamp_ms);
        let newest: Vec<_> = all.exemplars.iter().skip(all.exemplars.len() - 3).map(of).collect();
        assert_eq!(some.exemplars.iter().map(of).collect::<Vec<_>>(), newest);
        let duration = &all.metadata["prometheus_http_request_duration_seconds"];
        assert_eq!(duration.kind, "histogram");
        assert!(!duration.help.is_empty());
    }

    #[test]
    fn families_are_named_without_the_ending_of_their_type() {
        for (name, kind, expect) in [
            ("a_bucket", "histogram", "a"),
            ("a_bucket", "counter", "a_bucket"),
            ("a_sum", "summary", "a"),
            ("a_total", "counter", "a_total"),
            ("a", "histogram", "a"),
        ] {
            assert_eq!(family(name, kind), expect, "{name} {kind}");
        }
    }
}
