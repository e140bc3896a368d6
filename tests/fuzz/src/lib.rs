//! What must hold for arbitrary bytes, one function a target.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use varve_ingest::{DecodedBatch, Limits, RouteHasher, decode_v1};
use varve_query::Features;
use varve_query::promql::{parse, print};
use varve_tsdb::{
    BucketSpan, Db, Fs, Histogram, HistogramCounts, Labels, ManualClock, MemFs, Options, PowerCut, QueryContext, Sample, SampleColumns, TimeRange,
    WalSync, WriteBatch,
};

const NOW_MS: i64 = 1_700_000_000_000;

/// Damages the files of a small store as `input` says, opens it twice and asserts that both times it holds the same: a
/// refusal refuses again, what was skipped stays skipped, and no sample comes from nowhere.
///
/// The input is a list of edits of 8 bytes each: file, kind, offset (4), value (2).
pub fn wal_replay(input: &[u8]) {
    let whole = small_store();
    let fs = whole.crash(PowerCut::KeepsAll);
    let files = files(&fs, Path::new("/"));
    for edit in input.chunks_exact(8) {
        let path = &files[usize::from(edit[0]) % files.len()];
        let offset = u32::from_le_bytes([edit[2], edit[3], edit[4], edit[5]]) as usize;
        fs.edit(path, |bytes| damage(bytes, edit[1], offset, [edit[6], edit[7]])).expect("the file is there");
    }
    let first = contents(&fs);
    let second = contents(&fs.crash(PowerCut::LosesAll));
    assert_eq!(first.is_some(), second.is_some(), "a store opens once, and not again");
    let (Some(first), Some(second)) = (first, second) else { return };
    assert_eq!(first, second);
    let all = contents(&whole.crash(PowerCut::KeepsAll)).expect("a store without damage opens");
    for (series, samples) in first {
        let written = all.get(&series).expect("a series from nowhere");
        assert!(samples.iter().all(|sample| written.contains(sample)), "a sample from nowhere");
    }
}

fn damage(bytes: &mut Vec<u8>, kind: u8, offset: usize, value: [u8; 2]) {
    let at = if bytes.is_empty() { 0 } else { offset % bytes.len() };
    match kind % 5 {
        0 => bytes.truncate(at),
        1 => bytes.extend(value),
        2 => bytes[..].iter_mut().skip(at).take(1 + usize::from(value[1] % 64)).for_each(|byte| *byte = value[0]),
        3 => bytes[..].iter_mut().skip(at).take(1).for_each(|byte| *byte ^= value[0]),
        // Some bytes come twice, as when an old piece of the disk shows.
        _ => bytes.extend_from_within(at..(at + usize::from(value[0])).min(bytes.len())),
    }
}

fn options(fs: &MemFs) -> Options {
    Options {
        fs: Arc::new(fs.clone()),
        clock: Arc::new(ManualClock::at(NOW_MS)),
        wal_sync: WalSync::Never,
        wal_segment_size_bytes: 4096,
        background: false,
        ..Options::default()
    }
}

/// A closed store with some series and samples.
fn small_store() -> MemFs {
    let fs = MemFs::new();
    let db = Db::open(Path::new("/"), options(&fs)).expect("a new store opens");
    for i in 0..20_i64 {
        let mut batch = WriteBatch::default();
        for series in 0..4 {
            let labels = Labels::from_pairs([("__name__", "m"), ("i", &*(series + i / 10).to_string())]);
            let handle = db.series(&labels.expect("names ascend")).expect("there is room");
            batch.push(handle, Sample { timestamp_ms: NOW_MS + i * 1000, value: i as f64 * 0.1 }, 0);
        }
        let labels = Labels::from_pairs([("__name__", "of_histograms")]).expect("there is one name");
        let handle = db.series(&labels).expect("there is room");
        batch.push_histogram(handle, NOW_MS + i * 1000, Arc::new(histogram(i)), 0);
        db.append(&mut batch).expect("there is room");
    }
    drop(db);
    fs
}

/// Returns a histogram, after some time with a bucket more.
fn histogram(i: i64) -> Histogram {
    let n = if i < 7 { 2 } else { 3 };
    let positive = (0..n).map(|bucket| bucket + i.unsigned_abs()).collect();
    Histogram {
        schema: 3,
        sum: i as f64 * 0.3,
        counts: HistogramCounts::Integer { count: 100, zero_count: 0, positive, negative: Vec::new() },
        positive_spans: vec![BucketSpan { offset: -1, length: n as u32 }],
        ..Histogram::default()
    }
}

/// Returns all files below a folder.
fn files(fs: &MemFs, dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for name in fs.list(dir).expect("it is a folder") {
        let path = dir.join(name);
        if fs.list(&path).is_ok() { found.extend(files(fs, &path)) } else { found.push(path) }
    }
    found
}

/// Time and bits of all samples by labels, `None` if the store does not open.
fn contents(fs: &MemFs) -> Option<BTreeMap<String, Vec<(i64, u64)>>> {
    let db = Db::open(Path::new("/"), options(fs)).ok()?;
    let mut contents = BTreeMap::new();
    for series in db.select(&QueryContext::unbounded(), &[], TimeRange::ALL).expect("nothing limits it") {
        let series = series.expect("nothing limits it");
        let mut columns = SampleColumns::default();
        series.read(&mut columns).expect("what was accepted at open can be read");
        assert!(columns.timestamps_ms.is_sorted_by(|a, b| a < b), "times ascend");
        let samples: Vec<_> = columns.iter().map(|sample| (sample.timestamp_ms, sample.value.to_bits())).collect();
        if !samples.is_empty() {
            contents.insert(series.labels().to_string(), samples);
        }
    }
    Some(contents)
}

/// Decodes a message of remote write 1.0; the second time into the same batch.
pub fn remote_write_v1(input: &[u8]) {
    let (hasher, limits, mut batch) = (RouteHasher::new(), Limits::default(), DecodedBatch::default());
    let first = decode_v1(input, &hasher, &limits, &mut batch).is_ok();
    assert_eq!(decode_v1(input, &hasher, &limits, &mut batch).is_ok(), first);
}

/// Parses an expression. What parses is printed, and that parses to what prints the same.
pub fn promql_parse(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let features = Features::default();
    let Ok(expr) = parse(text, &features) else { return };
    let printed = print(&expr);
    let again = parse(&printed, &features).unwrap_or_else(|e| panic!("{text:?} is printed as {printed:?}: {e}"));
    assert_eq!(print(&again), printed, "{text:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a target over the seeds as they are, and over many mutations of them.
    fn smoke(target: fn(&[u8]), seeds: &[&[u8]], n_inputs: u64) {
        seeds.iter().for_each(|seed| target(seed));
        let mut state = 1_u64;
        let mut below = |n: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % n
        };
        for _ in 0..n_inputs {
            let mut input = seeds[below(seeds.len())].to_vec();
            for _ in 0..=below(4) {
                let other = seeds[below(seeds.len())];
                let at = below(input.len() + 1);
                match below(4) {
                    0 => input.truncate(at),
                    1 => input.insert(at, below(256) as u8),
                    2 => input.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << below(8)),
                    _ => drop(input.splice(at..at, other[below(other.len() + 1)..].iter().copied())),
                }
            }
            target(&input);
        }
    }

    #[test]
    fn wal_replay_holds() {
        let edits: Vec<u8> = (0..64_u64).flat_map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes()).collect();
        let seeds: Vec<&[u8]> = edits.chunks(8).chain(edits.chunks(24)).chain([&[][..]]).collect();
        smoke(wal_replay, &seeds, 500);
    }

    #[test]
    fn remote_write_v1_holds() {
        // One series with a label and a sample; metadata.
        let series = b"\x0a\x1a\x0a\x0d\x0a\x08__name__\x12\x01m\x12\x09\x09\0\0\0\0\0\0\xf0\x3f";
        let metadata = b"\x1a\x0a\x08\x02\x12\x01m\x22\x03abc";
        smoke(remote_write_v1, &[series, metadata], 20_000);
    }

    #[test]
    fn promql_parse_holds() {
        let seeds = [
            "sum by (job) (rate(http_requests_total{code=~\"5..\", job!=\"a\"}[5m] offset 1h))",
            "histogram_quantile(0.9, sum without (i) (x)) > bool on (a) group_left (b) -1.5e3 ^ 2",
            "max_over_time(up[1h:5m] @ end()) or absent(vector(1)) unless {__name__=\"a b\"}",
        ];
        smoke(promql_parse, &seeds.map(str::as_bytes), 20_000);
    }
}
