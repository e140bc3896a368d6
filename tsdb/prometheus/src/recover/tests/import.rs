//! Importing a head gives the samples of an import of the blocks that a recovery writes.

use varve_codec::varint::put_u64;
use varve_env::damage::DamageKind;
use varve_model::Labels;
use varve_model::histogram::HISTOGRAM_BUCKETS_MAX;
use varve_model::staleness::STALE_NAN_BITS;

use super::*;
use crate::head_chunks::HeadChunkFiles;

const HOUR_MS: i64 = 3_600_000;
const EXEMPLARS_MAX: usize = 100;

/// Everything that a store has of a sample: timestamp, value, start timestamp, histogram.
type Sample = (i64, u64, i64, String);

/// Imports the blocks in `import` of a new data directory, and returns the samples by series.
fn stored(data_dir: &Path) -> BTreeMap<String, Vec<Sample>> {
    let options = Options {
        background: false,
        ..Options::default()
    };
    let db = Db::open(data_dir, options).unwrap();
    db.import().unwrap();
    let ctx = ReadContext::unbounded();
    let mut stored = BTreeMap::new();
    for series in db.select(&ctx, &[], TimeRange::ALL).unwrap() {
        let series = series.unwrap();
        let mut columns = SampleColumns::default();
        series.read(&mut columns).unwrap();
        let sample = |idx: usize| {
            let histogram = columns.histogram(idx).map(|it| format!("{it:?}"));
            (
                columns.timestamps_ms[idx],
                columns.values[idx].to_bits(),
                columns.start_ms(idx),
                histogram.unwrap_or_default(),
            )
        };
        let samples = (0..columns.len()).map(sample).collect();
        stored.insert(format!("{:?}", series.labels()), samples);
    }
    stored
}

/// Imports through blocks of Prometheus.
fn import_by_blocks(
    source: &Path,
    external_labels: &[(String, String)],
) -> (BTreeMap<String, Vec<Sample>>, Report) {
    let options = RecoverOptions {
        start_timestamps: StartTimestamps::Keep,
        ..RecoverOptions::default()
    };
    let out = tempfile::tempdir().unwrap();
    let mut report = recover(&fs(), source, out.path(), &options, &|_| {}).unwrap();
    let data = tempfile::tempdir().unwrap();
    let mut number = 1;
    for block in BlockReader::list(&RealFs, out.path()).unwrap() {
        let import_dir = data.path().join("import");
        let damage = &mut report.damage;
        let imported = import_block(&fs(), &block, &import_dir, number, external_labels, damage);
        number += imported.unwrap().n_blocks;
    }
    (stored(data.path()), report)
}

fn import_directly(
    source: &Path,
    options: &RecoverOptions,
) -> (BTreeMap<String, Vec<Sample>>, ImportedHead) {
    let data = tempfile::tempdir().unwrap();
    let import_dir = data.path().join("import");
    let head = import_head(&fs(), source, &import_dir, options, EXEMPLARS_MAX, &|_| {}).unwrap();
    let stored = stored(data.path());
    let n_samples: usize = stored.values().map(Vec::len).sum();
    let totals = &head.report.totals;
    assert_eq!(
        (head.n_samples, totals.n_kept, totals.n_unaccounted()),
        (n_samples as u64, n_samples as u64, 0),
        "{totals:?}"
    );
    (stored, head)
}

/// Compares both ways, with and without spilled chunks. Returns the samples and the result of the
/// direct one.
fn check(source: &Path) -> (BTreeMap<String, Vec<Sample>>, ImportedHead) {
    let (expected, by_blocks) = import_by_blocks(source, &[]);
    let mut last = None;
    for (memory_bytes, concurrency) in [(1 << 30, 1), (1, 3)] {
        let options = RecoverOptions {
            memory_bytes,
            concurrency,
            ..RecoverOptions::default()
        };
        let (found, head) = import_directly(source, &options);
        assert!(found.keys().eq(expected.keys()));
        for (labels, samples) in &found {
            assert_eq!(samples, &expected[labels], "{labels}, {memory_bytes} bytes");
        }
        let report = &head.report;
        assert_eq!(report.damage.n_damaged(), by_blocks.damage.n_damaged());
        assert_eq!(report.n_samples, by_blocks.n_samples);
        assert_eq!(report.n_out_of_order, by_blocks.n_out_of_order);
        assert_eq!(report.n_not_newer, by_blocks.n_not_newer);
        assert_eq!(report.n_tombstones, by_blocks.n_tombstones);
        assert_eq!(report.n_unknown_samples, by_blocks.n_unknown_samples);
        last = Some((found, head));
    }
    last.unwrap()
}

#[test]
fn recorded_heads_are_imported() {
    for dir in recorded().into_iter().chain([recorded_3_16()]) {
        let (found, _) = check(logs_of(&dir).path());
        assert!(!found.is_empty());
    }
}

#[test]
fn the_recorded_log_has_exemplars_and_metadata() {
    let Some(dir) = recorded() else { return };
    let of = |exemplars_max| {
        let out = tempfile::tempdir().unwrap();
        let options = RecoverOptions::default();
        import_head(&fs(), &dir, out.path(), &options, exemplars_max, &|_| {})
            .unwrap()
            .exemplars_and_metadata
    };
    let all = of(usize::MAX);
    assert!(!all.exemplars.is_empty());
    assert_eq!((all.n_exemplars_skipped, all.n_metadata_skipped), (0, 0));
    let some = of(3);
    assert_eq!(
        some.exemplars.len() as u64 + some.n_exemplars_skipped,
        all.exemplars.len() as u64
    );
    let newest = &all.exemplars[all.exemplars.len() - 3..];
    assert_eq!(format!("{:?}", some.exemplars), format!("{newest:?}"));
    let duration = &all.metadata["prometheus_http_request_duration_seconds"];
    assert_eq!(duration.kind, "histogram");
    assert!(!duration.help.is_empty());
}

/// Returns a record of floats of one series with start timestamps: times, starts and values.
fn floats(series: i64, samples: impl Iterator<Item = (i64, i64, f64)>) -> Vec<u8> {
    let mut record = vec![11];
    let mut first = None;
    for (time_ms, start_ms, value) in samples {
        if let Some((first_ms, first_start_ms)) = first {
            put_i64(&mut record, 0);
            put_i64(&mut record, time_ms - first_ms);
            if start_ms == 0 {
                record.push(0);
            } else {
                record.push(2);
                put_i64(&mut record, start_ms - first_start_ms);
            }
        } else {
            put_i64(&mut record, series);
            put_i64(&mut record, time_ms);
            put_i64(&mut record, start_ms);
            first = Some((time_ms, start_ms));
        }
        record.extend_from_slice(&value.to_bits().to_be_bytes());
    }
    record
}

/// Returns a record of one histogram of a series, whose buckets have the same count.
fn histogram(series: u64, time_ms: i64, bucket: u64, n_buckets: [usize; 2]) -> Vec<u8> {
    let mut record = vec![7];
    record.extend_from_slice(&series.to_be_bytes());
    record.extend_from_slice(&time_ms.to_be_bytes());
    // The differences to series and time; hint; schema.
    record.extend_from_slice(&[0; 4]);
    record.extend_from_slice(&0.5_f64.to_bits().to_be_bytes());
    // The zero bucket.
    record.push(0);
    let n_buckets = n_buckets.map(|n| n as u64);
    put_u64(&mut record, (n_buckets[0] + n_buckets[1]) * bucket);
    record.extend_from_slice(&(bucket as f64).to_bits().to_be_bytes());
    for n in n_buckets {
        put_u64(&mut record, u64::from(n > 0));
        if n > 0 {
            put_i64(&mut record, 0);
            put_u64(&mut record, n);
        }
    }
    for n in n_buckets {
        put_u64(&mut record, n);
        if n > 0 {
            put_i64(&mut record, bucket as i64);
            record.resize(record.len() + n as usize - 1, 0);
        }
    }
    record
}

#[test]
fn everything_that_a_log_can_have_is_imported() {
    let labels = |name| vec![("__name__", name), ("job", "x")];
    let mut records = vec![series_record([
        (1, labels("plain")),
        (2, labels("starts")),
        (3, labels("mixed")),
        (4, labels("deleted")),
        (5, labels("all_deleted")),
        (6, labels("late")),
        (8, vec![("", "no name"), ("__name__", "bad")]),
    ])];
    let stale = f64::from_bits(STALE_NAN_BITS);
    // Over three windows, the second half with new start timestamps from time to time.
    for hour in 0..5 {
        let times = (0..100).map(|i| hour * HOUR_MS + i * 30_000);
        let value = |time: i64| {
            if time % 7 == 0 {
                stale
            } else {
                (time / 1000) as f64 / 8.0
            }
        };
        for series in [1, 4, 5, 6, 8, 9] {
            let samples = times.clone().map(|time| (time, 0, value(time)));
            records.push(floats(series, samples));
        }
        // Some are sent again.
        records.push(floats(1, times.clone().skip(50).map(|time| (time, 0, 1.0))));
        let start = |time: i64| match time / 300_000 % 3 {
            0 => 0,
            1 => time - 10,
            _ => hour * HOUR_MS - 5,
        };
        let samples = times.clone().map(|time| (time, start(time), value(time)));
        records.push(floats(2, samples));
        for (i, time) in times.clone().enumerate() {
            records.push(match i / 20 % 3 {
                0 => floats(3, [(time, 0, 1.0)].into_iter()),
                1 => floats(3, [(time, time - 1, 2.0)].into_iter()),
                _ => histogram(3, time, i as u64 % 30, [2, 0]),
            });
        }
    }
    let mut tombstones = vec![3];
    for (series, from, until) in [(4_u64, HOUR_MS, 3 * HOUR_MS), (5, -1, 9 * HOUR_MS)] {
        tombstones.extend_from_slice(&series.to_be_bytes());
        put_i64(&mut tombstones, from);
        put_i64(&mut tombstones, until);
    }
    records.push(tombstones);
    let source = wal_of(&segment(&records).0);
    // Out-of-order samples: older than all others, between them, and at the same time.
    let late = [-9 * HOUR_MS, 15_001, 30_000, 2 * HOUR_MS + 1];
    let late: Vec<_> = [6, 3]
        .map(|series| floats(series, late.into_iter().map(|time| (time, 0, -1.0))))
        .into();
    std::fs::create_dir(source.path().join("wbl")).unwrap();
    std::fs::write(source.path().join("wbl/00000000"), segment(&late).0).unwrap();

    let (found, head) = check(source.path());
    let names: Vec<_> = found.keys().map(|labels| labels.as_str()).collect();
    assert_eq!(names.len(), 5, "{names:?}");
    assert!(!names.iter().any(|name| name.contains("all_deleted")));
    assert_eq!(head.n_blocks, 4);
    let of = |name: &str| {
        let mut series = found.iter().filter(|(labels, _)| labels.contains(name));
        series.next().unwrap().1
    };
    assert_eq!(of("plain").len(), 500);
    assert!(of("starts").iter().any(|sample| sample.2 != 0));
    assert!(of("mixed").iter().any(|sample| !sample.3.is_empty()));
    assert!(of("deleted").len() < 400);
    assert_eq!(of("late").len(), 503, "the first sample at a time wins");
    assert_eq!(head.report.n_unknown_samples, 500);
    let damage = head.report.damage.entries();
    assert!(
        damage
            .iter()
            .all(|it| it.reason.contains("a label without a name"))
    );
    assert_eq!(damage.len(), 3, "once in each block");
}

/// Full chunks are in head chunk files, as Prometheus writes them.
#[test]
fn head_chunks_with_and_without_start_timestamps_are_imported() {
    let source = recorded_3_16();
    let mut damage = DamageReport::default();
    let dir = source.join("chunks_head");
    let (_, chunks) = HeadChunkFiles::scan(&RealFs, &dir, &mut damage).unwrap();
    assert!(chunks.iter().any(|chunk| chunk.encoding == Encoding::Xor2));
    check(logs_of(&source).path());
}

#[test]
fn histograms_with_too_many_buckets_are_reported() {
    let n_buckets = HISTOGRAM_BUCKETS_MAX / 2 + 1;
    let records = [
        series_record([(1, vec![("a", "b")])]),
        floats(1, [(0, 0, 1.0)].into_iter()),
        histogram(1, 1000, 3, [n_buckets; 2]),
    ];
    let source = wal_of(&segment(&records).0);
    let (found, head) = check(source.path());
    assert_eq!(found.values().map(Vec::len).sum::<usize>(), 1);
    let damage = &head.report.damage.entries()[0];
    assert_eq!(damage.kind, DamageKind::Unsupported);
    assert!(damage.reason.contains("buckets"), "{}", damage.reason);
    assert_eq!(damage.path, source.path());
}

/// Returns the timestamps of each series.
fn times_of(stored: BTreeMap<String, Vec<Sample>>) -> BTreeMap<String, Vec<i64>> {
    stored
        .into_iter()
        .map(|(labels, samples)| (labels, samples.iter().map(|sample| sample.0).collect()))
        .collect()
}

/// Each external label is added to the series that have no label of its name. Then series sort in
/// another order, and some become one.
#[test]
fn series_get_external_labels() {
    let external = [("b", "1"), ("p", "1")];
    let mut series: Vec<Vec<(&str, &str)>> = vec![vec![]];
    for name in ["a", "b", "k", "p", "z"] {
        for labels in series.clone() {
            for value in ["0", "1", "2"] {
                series.push([&labels[..], &[(name, value)]].concat());
            }
        }
    }
    series.remove(0);
    let mut expected: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    let mut records = vec![series_record((1..).zip(series.iter().cloned()))];
    for (number, labels) in (1..).zip(&series) {
        records.push(floats(number, [(number, 0, 1.0)].into_iter()));
        let all: BTreeMap<_, _> = external.iter().chain(labels).copied().collect();
        let labels = Labels::from_pairs(all).unwrap();
        expected
            .entry(format!("{labels:?}"))
            .or_default()
            .push(number);
    }
    assert_eq!((series.len(), expected.len()), (1023, 576));
    let source = wal_of(&segment(&records).0);
    let external = external.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let (by_blocks, _) = import_by_blocks(source.path(), &external);
    assert_eq!(times_of(by_blocks), expected);
    let options = RecoverOptions {
        external_labels: external.to_vec(),
        ..RecoverOptions::default()
    };
    let (directly, _) = import_directly(source.path(), &options);
    assert_eq!(times_of(directly), expected);
}
