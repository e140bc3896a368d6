//! The sent and the acknowledged samples, and the comparison with the stored ones.

use std::collections::BTreeMap;
use std::fmt;

use tempfile::TempDir;
use varve_model::staleness::STALE_NAN_BITS;
use varve_model::{SampleColumns, TimeRange};
use varve_tsdb::{Db, Options, ReadContext};

use super::writer::Sent;
use crate::harness::Http;

/// A series: its writer and its number.
type Series = (u64, u64);

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    series: BTreeMap<Series, BTreeMap<i64, Entry>>,
    /// The samples that [`Ledger::check_bits`] found.
    stored: BTreeMap<Series, Vec<(i64, u64)>>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    bits: u64,
    acknowledged: bool,
}

impl Ledger {
    pub(crate) fn note(&mut self, sent: Vec<Sent>) {
        for sample in sent {
            let series = self
                .series
                .entry((sample.writer, sample.series))
                .or_default();
            let entry = series.entry(sample.timestamp_ms).or_insert(Entry {
                bits: sample.bits,
                acknowledged: false,
            });
            entry.acknowledged |= sample.acknowledged;
        }
    }

    pub(crate) fn n_acknowledged(&self) -> usize {
        self.series
            .values()
            .flat_map(BTreeMap::values)
            .filter(|entry| entry.acknowledged)
            .count()
    }

    /// Opens a data directory and checks every sample in it, bit for bit.
    pub(crate) fn check_bits(&mut self, data_dir: &TempDir, round: &str) {
        self.stored = read(data_dir);
        for (series, samples) in &self.stored {
            let sent = self
                .series
                .get(series)
                .unwrap_or_else(|| panic!("{round}: nobody sent {series:?}"));
            let twice = samples.windows(2).find(|pair| pair[0].0 >= pair[1].0);
            assert!(twice.is_none(), "{round}: {series:?} has {twice:?}");
            for (timestamp_ms, bits) in samples {
                let entry = sent.get(timestamp_ms).unwrap_or_else(|| {
                    panic!("{round}: {series:?} at {timestamp_ms} was never sent")
                });
                assert_eq!(
                    entry.bits, *bits,
                    "{round}: {series:?} at {timestamp_ms}: {:x} became {bits:x}",
                    entry.bits
                );
            }
        }
        for (series, sent) in &self.series {
            let stored = self.stored.get(series).map_or(&[][..], Vec::as_slice);
            for (timestamp_ms, _) in sent.iter().filter(|(_, entry)| entry.acknowledged) {
                let there = stored
                    .binary_search_by_key(timestamp_ms, |sample| sample.0)
                    .is_ok();
                assert!(
                    there,
                    "{round}: {series:?} at {timestamp_ms} was acknowledged and is lost"
                );
            }
        }
    }

    /// Checks that the server returns the samples that [`Ledger::check_bits`] found in its
    /// directory, once each. JSON does not contain the bits of a NaN, and no query returns a
    /// staleness marker.
    pub(crate) fn check_responses(&self, http: &Http, round: &str) {
        let query = [("query", "crash[3h]"), ("time", "1700010000")];
        let result = http.query("/api/v1/query", &query).data()["result"].take();
        let mut expected = self.stored.clone();
        for samples in expected.values_mut() {
            samples.retain(|sample| sample.1 != STALE_NAN_BITS);
        }
        expected.retain(|_, samples| !samples.is_empty());
        for returned in result.as_array().expect("a matrix is an array") {
            let label = |name: &str| {
                returned["metric"][name]
                    .as_str()
                    .and_then(|text| text.parse().ok())
                    .expect("a number")
            };
            let series = (label("writer"), label("series"));
            let samples = expected
                .remove(&series)
                .unwrap_or_else(|| panic!("{round}: {series:?} is returned twice or not stored"));
            let values = returned["values"].as_array().expect("a series has values");
            assert_eq!(
                values.len(),
                samples.len(),
                "{round}: samples of {series:?}"
            );
            for (returned, (timestamp_ms, bits)) in values.iter().zip(samples) {
                let time_ms =
                    (returned[0].as_f64().expect("a time is a number") * 1000.0).round() as i64;
                let value: f64 = returned[1]
                    .as_str()
                    .expect("a value is a string")
                    .parse()
                    .expect("a float");
                assert_eq!(time_ms, timestamp_ms, "{round}: {series:?}");
                let same =
                    value.to_bits() == bits || value.is_nan() && f64::from_bits(bits).is_nan();
                assert!(
                    same,
                    "{round}: {series:?} at {timestamp_ms}: {returned} is not {bits:x}"
                );
            }
        }
        assert!(
            expected.is_empty(),
            "{round}: not returned: {:?}",
            expected.keys()
        );
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n_sent: usize = self.series.values().map(BTreeMap::len).sum();
        let n_stored: usize = self.stored.values().map(Vec::len).sum();
        write!(
            f,
            "{n_sent} samples sent, {} acknowledged, {n_stored} stored",
            self.n_acknowledged()
        )
    }
}

fn read(data_dir: &TempDir) -> BTreeMap<Series, Vec<(i64, u64)>> {
    let options = Options {
        background: false,
        ..Options::default()
    };
    let db = Db::open(data_dir.path(), options).expect("a crash leaves a valid directory");
    assert_eq!(
        db.stats().n_damaged_blocks,
        0,
        "a crash leaves no damaged block"
    );
    let all = db
        .select(&ReadContext::unbounded(), &[], TimeRange::ALL)
        .expect("select all series");
    let mut stored = BTreeMap::new();
    for series in all {
        let series = series.expect("read a series");
        let mut samples = SampleColumns::default();
        series.read(&mut samples).expect("read samples");
        let number = |name| {
            series
                .labels()
                .get(name)
                .and_then(|text| text.parse().ok())
                .expect("a number")
        };
        let before = stored.insert(
            (number("writer"), number("series")),
            samples
                .iter()
                .map(|sample| (sample.timestamp_ms, sample.value.to_bits()))
                .collect(),
        );
        assert!(before.is_none(), "{} exists twice", series.labels());
    }
    stored
}
