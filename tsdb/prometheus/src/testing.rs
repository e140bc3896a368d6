//! What tests of several modules share.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use varve_codec::varint::put_u64;
use varve_env::damage::{DamageKind, DamageReport};
use varve_env::{Fs, RealFs};
use varve_model::{Sample, SampleColumns};

use crate::block::BlockReader;
use crate::chunk::{Chunk, Encoder, StartTimestamps};

/// Timestamps and value bits, by labels.
pub(crate) type Samples = BTreeMap<String, BTreeMap<i64, u64>>;

/// Returns the recorded data directory of a real Prometheus, unless it is missing.
pub(crate) fn recorded() -> Option<PathBuf> {
    varve_oracle::shared("prometheus-data/mixed")
}

/// Returns the data directory of a Prometheus 3.16 with XOR2 chunks: see `tests/data/README.md`.
pub(crate) fn recorded_3_16() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/prometheus-3.16")
}

pub(crate) fn fs() -> Arc<dyn Fs> {
    Arc::new(RealFs)
}

/// Creates a data directory whose WAL is one segment with these bytes.
pub(crate) fn wal_of(segment: &[u8]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("wal")).unwrap();
    std::fs::write(dir.path().join("wal/00000000"), segment).unwrap();
    dir
}

/// Returns a record of type 1, which defines series.
pub(crate) fn series_record<'a>(
    series: impl IntoIterator<Item = (u64, Vec<(&'a str, &'a str)>)>,
) -> Vec<u8> {
    let mut record = vec![1];
    for (series_ref, labels) in series {
        record.extend_from_slice(&series_ref.to_be_bytes());
        put_u64(&mut record, labels.len() as u64);
        for text in labels.into_iter().flat_map(|(name, value)| [name, value]) {
            put_u64(&mut record, text.len() as u64);
            record.extend_from_slice(text.as_bytes());
        }
    }
    record
}

/// Encodes floats without start timestamps.
pub(crate) fn encoded(samples: impl IntoIterator<Item = (i64, f64)>) -> Vec<Chunk> {
    let mut encoder = Encoder::new(StartTimestamps::Drop);
    for (timestamp_ms, value) in samples {
        encoder.push(
            Sample {
                timestamp_ms,
                value,
            },
            0,
        )
    }
    encoder.finish()
}

/// Returns the samples of a block, none if it cannot be opened.
pub(crate) fn read_block(dir: &Path, damage: &mut DamageReport) -> Samples {
    let mut samples = Samples::new();
    match BlockReader::open(&RealFs, dir, damage) {
        Ok(block) => {
            let mut cursor = block.cursor();
            let mut columns = SampleColumns::default();
            while let Some(series) = cursor.next(damage) {
                columns.clear();
                series.read(&mut columns, damage);
                add(&mut samples, format!("{:?}", series.labels()), &columns);
            }
        }
        Err(error) => damage.push(dir, 0, DamageKind::Corrupt, error.to_string()),
    }
    samples
}

pub(crate) fn add(samples: &mut Samples, labels: String, columns: &SampleColumns) {
    let series = samples.entry(labels).or_default();
    series.extend(
        columns
            .iter()
            .map(|sample| (sample.timestamp_ms, sample.value.to_bits())),
    );
}

pub(crate) fn n_samples(samples: &Samples) -> u64 {
    samples.values().map(|series| series.len() as u64).sum()
}
