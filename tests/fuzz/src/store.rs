//! Stores whose files are damaged by the edits in the input.
//!
//! The input is a list of edits of 8 bytes each: file, kind, offset (4), value (2). A file may also
//! get the bytes of another.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use varve_env::Fs;
use varve_env::testing::{ManualClock, MemFs, PowerCut};
use varve_model::{Exemplar, Labels, Matcher, Sample, SampleColumns, TimeRange};
use varve_model::histogram::{BucketSpan, Histogram, HistogramCounts};
use varve_tsdb::{Db, Options, ReadContext, WalSync, WriteBatch, inspect};

use crate::reseal::reseal;

const NOW_MS: i64 = 1_700_000_000_000;
const ROOT: &str = "/";

/// The samples of each series, as times and bits, or the error when it is read.
type Contents = BTreeMap<String, Result<Vec<(i64, u64)>, String>>;

/// Damages logs and opens the store twice. Both attempts give the same result: an error, or the
/// same samples, all of which were written.
pub fn wal_replay(input: &[u8]) {
    static STORE: OnceLock<(MemFs, Contents)> = OnceLock::new();
    open_damaged(STORE.get_or_init(|| with_contents(logs())), input);
}

/// As [`wal_replay`], with checkpoints, parts, merged blocks and tombstones. Deleted samples stay
/// deleted.
pub fn store_open(input: &[u8]) {
    static STORE: OnceLock<(MemFs, Contents)> = OnceLock::new();
    open_damaged(STORE.get_or_init(|| with_contents(everything())), input);
}

/// As [`store_open`], but with valid checksums, so that the edits reach the decoders. The contents
/// may be anything, but no operation on the store panics.
pub fn store_decode(input: &[u8]) {
    static STORE: OnceLock<MemFs> = OnceLock::new();
    let fs = STORE.get_or_init(everything).crash(PowerCut::KeepsAll);
    for path in damaged(&fs, input) {
        fs.edit(&path, |bytes| reseal(&path, bytes))
            .expect("the file exists");
    }
    read_from_outside(&fs.crash(PowerCut::KeepsAll));
    let first = contents(&fs);
    let second = contents(&fs.crash(PowerCut::KeepsAll));
    assert_eq!(
        first.is_some(),
        second.is_some(),
        "the store opens only once"
    );
    let Ok(db) = Db::open(Path::new(ROOT), options(&fs)) else {
        return;
    };
    // Each may return an error.
    let ctx = ReadContext::unbounded();
    drop(db.label_names(&ctx, &[], TimeRange::ALL));
    drop(db.label_values(&ctx, "i", &[Matcher::equal("j", "1")], TimeRange::ALL));
    drop(db.exemplars(&ctx, &[Vec::new()], TimeRange::ALL));
    drop(db.delete(vec![Matcher::equal("i", "1")], TimeRange::ALL));
    drop(db.compact_fully());
    drop(db.clean_tombstones());
    drop(db.snapshot("s", false));
}

/// Inspects and repairs the log as the tools do. Both may return an error.
fn read_from_outside(fs: &MemFs) {
    drop(inspect::inspect(fs, Path::new(ROOT), &mut |_, _| {}));
    drop(inspect::repair(fs, Path::new(ROOT), true, &mut |_, _| {}));
    drop(contents(fs));
}

fn with_contents(fs: MemFs) -> (MemFs, Contents) {
    let all = contents(&fs.crash(PowerCut::KeepsAll)).expect("a store without damage opens");
    assert!(
        all.values().all(Result::is_ok),
        "a store without damage is read"
    );
    (fs, all)
}

fn open_damaged((whole, all): &(MemFs, Contents), input: &[u8]) {
    let fs = whole.crash(PowerCut::KeepsAll);
    drop(damaged(&fs, input));
    let first = contents(&fs);
    let second = contents(&fs.crash(PowerCut::LosesAll));
    assert_eq!(
        first.is_some(),
        second.is_some(),
        "the store opens only once"
    );
    let (Some(first), Some(second)) = (first, second) else {
        return;
    };
    assert_eq!(first, second);
    for (series, samples) in first {
        let written = all.get(&series).expect("the series was never written");
        let (Ok(samples), Ok(written)) = (samples, written) else {
            continue;
        };
        assert!(
            samples.iter().all(|sample| written.contains(sample)),
            "a sample was never written"
        );
    }
}

/// Applies the edits of an input and returns the edited files.
pub(crate) fn damaged(fs: &MemFs, input: &[u8]) -> Vec<PathBuf> {
    let mut files = files(fs, Path::new(ROOT));
    files.retain(|path| {
        fs.open(path)
            .and_then(|file| file.size())
            .is_ok_and(|size| size > 0)
    });
    let mut damaged = Vec::new();
    for edit in input.chunks_exact(8) {
        let path = &files[usize::from(edit[0]) % files.len()];
        if edit[1] % 8 == 7 {
            // A file under the name of another.
            let other = &files[usize::from(edit[6]) % files.len()];
            let bytes = fs.read(other, u64::MAX).expect("the file exists");
            fs.edit(path, |of| *of = bytes).expect("the file exists");
            damaged.push(path.clone());
            continue;
        }
        let offset = u32::from_le_bytes([edit[2], edit[3], edit[4], edit[5]]) as usize;
        fs.edit(path, |bytes| {
            damage(bytes, edit[1], offset, [edit[6], edit[7]])
        })
        .expect("the file exists");
        damaged.push(path.clone());
    }
    damaged
}

fn damage(bytes: &mut Vec<u8>, kind: u8, offset: usize, value: [u8; 2]) {
    let at = if bytes.is_empty() {
        0
    } else {
        offset % bytes.len()
    };
    match kind % 5 {
        0 => bytes.truncate(at),
        1 => bytes.extend(value),
        2 => bytes[..]
            .iter_mut()
            .skip(at)
            .take(1 + usize::from(value[1] % 64))
            .for_each(|byte| *byte = value[0]),
        3 => bytes[..]
            .iter_mut()
            .skip(at)
            .take(1)
            .for_each(|byte| *byte ^= value[0]),
        // Some bytes are repeated, as if an old sector reappeared.
        _ => bytes.extend_from_within(at..(at + usize::from(value[0])).min(bytes.len())),
    }
}

fn options(fs: &MemFs) -> Options {
    Options {
        fs: Arc::new(fs.clone()),
        clock: Arc::new(ManualClock::at(NOW_MS + 2 * 86_400_000)),
        wal_sync: WalSync::Never,
        wal_segment_size_bytes: 4096,
        background: false,
        ..Options::default()
    }
}

pub(crate) fn open(fs: &MemFs) -> Db {
    Db::open(Path::new(ROOT), options(fs)).expect("a sound store opens")
}

/// Appends a sample to each of some series, to some of them histograms, with starts and exemplars;
/// two labels, so that the index has something to find.
fn write(db: &Db, series: std::ops::Range<i64>, t: i64) {
    let mut batch = WriteBatch::default();
    for i in series {
        let labels = Labels::from_pairs([
            ("__name__", "m"),
            ("i", &*i.to_string()),
            ("j", &*(i % 2).to_string()),
        ]);
        let handle = db
            .series(&labels.expect("names ascend"))
            .expect("there is room");
        let (value, start_ms) = (
            (t / 1000 % 1_000_003 * i) as f64 * 0.1,
            if i > 2 { t / 7_200_000 * 1000 } else { 0 },
        );
        if i % 4 == 3 {
            batch.push_histogram_with_start(handle, t, Arc::new(histogram(value, t)), start_ms, 0);
        } else {
            batch.push_with_start(
                handle,
                Sample {
                    timestamp_ms: t,
                    value,
                },
                start_ms,
                0,
            );
        }
        if i == 1 {
            let labels = Labels::from_pairs([("trace_id", "abc")]).expect("it is one label");
            batch.push_exemplar(
                handle,
                Exemplar {
                    labels,
                    value,
                    timestamp_ms: t,
                },
                0,
            );
        }
    }
    db.append(&mut batch).expect("there is room");
    assert_eq!(batch.rejected().len(), 0);
}

/// A histogram, whose buckets change now and then, of integers or of floats.
fn histogram(sum: f64, t: i64) -> Histogram {
    let n = 1 + (t / 1_200_000 % 3).unsigned_abs() as u32;
    let positive_spans = vec![BucketSpan {
        offset: 1,
        length: n,
    }];
    let counts = if t / 3_600_000 % 2 == 0 {
        HistogramCounts::Integer {
            count: n.into(),
            zero_count: 0,
            positive: vec![1; n as usize],
            negative: vec![],
        }
    } else {
        HistogramCounts::Float {
            count: n.into(),
            zero_count: 0.0,
            positive: vec![1.0; n as usize],
            negative: vec![],
        }
    };
    Histogram {
        sum,
        schema: 3,
        counts,
        positive_spans,
        ..Histogram::default()
    }
}

/// A closed store whose samples are all in its log.
fn logs() -> MemFs {
    let fs = MemFs::new();
    let db = open(&fs);
    for n in 0..20 {
        write(&db, n / 10..n / 10 + 4, NOW_MS + n * 1000);
    }
    drop(db);
    fs
}

/// A closed store with checkpoints and what was logged behind them, parts, merged blocks, and rules
/// for some of them.
pub(crate) fn everything() -> MemFs {
    let fs = MemFs::new();
    let db = open(&fs);
    db.set_metadata([("m", varve_model::metadata::Metadata::default())])
        .expect("there is room");
    for n in 0..16 {
        write(&db, 0..4 + n % 4, NOW_MS + n * 1_200_000);
        if n % 3 == 2 {
            db.flush().expect("there is room");
            db.compact().expect("there is room");
        }
        if n == 13 {
            let range = TimeRange {
                start_ms: NOW_MS,
                end_ms: NOW_MS + 6 * 1_200_000,
            };
            db.delete(vec![Matcher::equal("i", "2")], range)
                .expect("there is room");
            db.delete(
                vec![Matcher::equal("j", "1")],
                TimeRange {
                    end_ms: NOW_MS,
                    ..range
                },
            )
            .expect("there is room");
        }
    }
    drop(db);
    assert!(fs.open(Path::new("/tombstones")).is_ok(), "rules wait");
    fs
}

/// Returns all files below a folder.
pub(crate) fn files(fs: &MemFs, dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for name in fs.list(dir).expect("it is a folder") {
        let path = dir.join(name);
        if fs.list(&path).is_ok() {
            found.extend(files(fs, &path))
        } else {
            found.push(path)
        }
    }
    found
}

/// Reads all series, `None` if the store does not open. A selection that fails is at its end.
fn contents(fs: &MemFs) -> Option<Contents> {
    let db = Db::open(Path::new(ROOT), options(fs)).ok()?;
    let mut contents = Contents::new();
    let Ok(set) = db.select(&ReadContext::unbounded(), &[], TimeRange::ALL) else {
        return Some(contents);
    };
    for series in set {
        let Ok(series) = series else { break };
        let mut columns = SampleColumns::default();
        let read = series.read(&mut columns).map_err(|e| e.to_string());
        let samples = read.map(|()| {
            columns
                .iter()
                .map(|s| (s.timestamp_ms, s.value.to_bits()))
                .collect::<Vec<_>>()
        });
        if samples.as_ref().map_or(true, |samples| !samples.is_empty()) {
            contents.insert(series.labels().to_string(), samples);
        }
    }
    Some(contents)
}
