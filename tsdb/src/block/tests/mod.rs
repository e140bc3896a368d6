//! Whole blocks against the data written to them.

mod batches;
mod read_cache;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use varve_context::{Limit, MemoryBudget, QueryContext};
use varve_env::testing::{MemFs, assert_shown};
use varve_env::{Fs, RealFs};
use varve_model::histogram::{Histogram, HistogramCounts};
use varve_model::{Sample, SampleColumns, TimeRange};

use super::footer::{HEADER_SIZE, TRAILER_SIZE};
use super::rows::SERIES_SAMPLES_MAX;
use super::{
    Access, Block, BlockId, BlockMeta, BlockOrigin, BlockWriter, PageCache, ReadCache, Symbol,
};
use crate::error::{Error, Result};

const HOUR_MS: i64 = 3_600_000;
const START_MS: i64 = 1_763_683_200_000;

/// The series of a block: `{__name__="m", n="<ordinal>"}`.
type Model = Vec<SampleColumns>;

fn origin(hours: i64) -> BlockOrigin {
    let window = TimeRange {
        start_ms: START_MS,
        end_ms: START_MS + hours * HOUR_MS - 1,
    };
    let sources = vec![BlockId(1), BlockId(2)];
    BlockOrigin {
        id: BlockId(7),
        window,
        level: 1,
        flushes: (3, 9),
        sources,
        deletions: 4,
    }
}

fn write(fs: Arc<dyn Fs>, dir: &Path, hours: i64, model: &Model) -> Result<BlockMeta> {
    let mut writer = BlockWriter::create(fs, dir, origin(hours))?;
    let name = writer.symbol("__name__", "m")?;
    let values: Vec<Symbol> = (0..model.len())
        .map(|i| writer.symbol("n", &format!("{i:06}")))
        .collect::<Result<_>>()?;
    for (samples, value) in model.iter().zip(values) {
        writer.series(&[name, value], samples)?;
    }
    writer.finish()
}

fn open(path: &Path) -> Result<Block> {
    Block::open(&RealFs, path, &Arc::new(PageCache::new(1 << 20)))
}

struct Written {
    dir: tempfile::TempDir,
    path: PathBuf,
    meta: BlockMeta,
}

fn written(hours: i64, model: &Model) -> Written {
    let dir = tempfile::tempdir().unwrap();
    let meta = write(Arc::new(RealFs), dir.path(), hours, model).unwrap();
    let path = dir.path().join("00000007.block");
    Written { dir, path, meta }
}

fn columns(samples: impl IntoIterator<Item = (i64, f64)>) -> SampleColumns {
    let mut columns = SampleColumns::default();
    samples.into_iter().for_each(|(timestamp_ms, value)| {
        columns.push(Sample {
            timestamp_ms,
            value,
        })
    });
    columns
}

fn bits(samples: &SampleColumns) -> Vec<(i64, u64)> {
    samples
        .iter()
        .map(|sample| (sample.timestamp_ms, sample.value.to_bits()))
        .collect()
}

fn within(samples: &SampleColumns, range: TimeRange) -> Vec<(i64, u64)> {
    bits(samples)
        .into_iter()
        .filter(|&(time_ms, _)| range.contains(time_ms))
        .collect()
}

/// Reads a series with an empty cache and with the cache of earlier reads, and by different
/// functions.
fn check_series(
    block: &Block,
    used: &mut ReadCache,
    ordinal: u32,
    range: TimeRange,
    samples: &SampleColumns,
) {
    let expected = within(samples, range);
    for read_cache in [&mut ReadCache::default(), used] {
        let mut got = columns([(0, 0.5)]);
        block.read(read_cache, ordinal, range, &mut got).unwrap();
        assert_eq!(bits(&got)[1..], expected, "read {ordinal} in {range:?}");
        assert_eq!(
            block.overlaps(read_cache, ordinal, range).unwrap(),
            !expected.is_empty(),
            "{ordinal} in {range:?}"
        );
    }
}

/// Creates a read cache with a budget of `size_max` bytes.
fn read_cache(size_max: usize) -> ReadCache {
    ReadCache::new(
        MemoryBudget::new(Limit::Other("a test"), size_max).charge(),
        false,
    )
}

fn check_scan(block: &Block, model: &Model) {
    let (mut scan, mut samples, mut labels) = (
        block.scan(),
        SampleColumns::default(),
        block.index.series_cursor(Access::Cached),
    );
    for (i, expected) in model.iter().enumerate() {
        let symbols = scan.next(&mut samples).unwrap().map(<[_]>::to_vec);
        assert_eq!(
            symbols,
            Some(vec![Symbol(0), Symbol(i as u32 + 1)]),
            "series {i}"
        );
        assert_eq!(bits(&samples), bits(expected), "series {i}");
        labels.seek(i as u32).unwrap();
        assert_eq!(labels.labels().unwrap().get("n"), Some(&*format!("{i:06}")));
    }
    assert!(
        scan.next(&mut samples).unwrap().is_none(),
        "the scan has ended"
    );
}

/// The example helps to write a reader.
#[test]
fn the_example_of_the_page_is_correct() {
    let dir = tempfile::tempdir().unwrap();
    let origin = BlockOrigin {
        level: 0,
        sources: vec![],
        deletions: 0,
        flushes: (3, 3),
        ..origin(2)
    };
    let mut writer = BlockWriter::create(Arc::new(RealFs), dir.path(), origin).unwrap();
    let [name, a, b] = [("__name__", "up"), ("job", "a"), ("job", "b")]
        .map(|(name, value)| writer.symbol(name, value));
    let (name, a, b) = (name.unwrap(), a.unwrap(), b.unwrap());
    let stale = f64::from_bits(varve_model::staleness::STALE_NAN_BITS);
    let model = [[1.0, 1.0, stale], [0.25, 1.5, 7.0]].map(|values| {
        columns(
            (0..)
                .zip(values)
                .map(|(i, value)| (START_MS + i * 15_000, value)),
        )
    });
    writer.series(&[name, a], &model[0]).unwrap();
    writer.series(&[name, b], &model[1]).unwrap();
    writer.finish().unwrap();
    let path = dir.path().join("00000007.block");
    assert_shown(
        include_str!("../../../../docs/format/block.md"),
        &std::fs::read(&path).unwrap(),
    );
    let block = open(&path).unwrap();
    block.verify(&QueryContext::unbounded()).unwrap();
    for (ordinal, samples) in (0..).zip(&model) {
        check_series(
            &block,
            &mut read_cache(1 << 20),
            ordinal,
            TimeRange::ALL,
            samples,
        );
    }
}

/// A recipe for a series. Series with equal steps and jitters share timestamp columns.
#[derive(Debug, Clone)]
struct Recipe {
    step_ms: i64,
    jitter_ms: i64,
    /// Start and length of gaps, in hundredths of the window.
    holes: Vec<(i64, i64)>,
    kind: u8,
    seed: u64,
}

impl Recipe {
    fn samples(&self, hours: i64) -> SampleColumns {
        let n = hours * HOUR_MS / self.step_ms;
        let is_hole = |i: i64| {
            self.holes
                .iter()
                .any(|&(at, len)| (at..at + len).contains(&(i * 100 / n)))
        };
        let time_ms = |i: i64| START_MS + i * self.step_ms + self.jitter_ms * (i % 3);
        columns(
            (0..n)
                .filter(|&i| i == 0 || !is_hole(i))
                .map(|i| (time_ms(i), self.value(i))),
        )
    }

    fn value(&self, i: i64) -> f64 {
        match self.kind {
            0 => self.seed as f64,
            1 => i as f64 * 3.0,
            2 => (self.seed % 1000) as f64 / 8.0 + (i % 7) as f64,
            _ => f64::from_bits(self.seed.rotate_left(i as u32 % 64)),
        }
    }
}

fn any_recipe() -> impl Strategy<Value = Recipe> {
    let step_ms = prop_oneof![
        Just(15_000),
        Just(60_000),
        Just(1_200_000),
        5_000..2 * HOUR_MS
    ];
    let holes = proptest::collection::vec((0..100_i64, 0..100_i64), 0..3);
    (step_ms, 0..3_i64, holes, 0..4_u8, any::<u64>()).prop_map(
        |(step_ms, jitter_ms, holes, kind, seed)| Recipe {
            step_ms,
            jitter_ms,
            holes,
            kind,
            seed,
        },
    )
}

fn any_picks() -> impl Strategy<Value = Vec<(i64, i64)>> {
    proptest::collection::vec((0..=1000_i64, 0..=1000_i64), 6)
}

fn any_model() -> impl Strategy<Value = (i64, Vec<Recipe>)> {
    (
        prop_oneof![Just(2), Just(24)],
        proptest::collection::vec(any_recipe(), 1..40),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn written_samples_are_read_in_any_range((hours, recipes) in any_model(), picks in any_picks()) {
        let model: Model = recipes.iter().map(|recipe| recipe.samples(hours)).collect();
        let Written { path, meta, dir: _dir } = written(hours, &model);
        let block = open(&path).unwrap();
        let mut used = read_cache([0, 10_000, 1 << 30][picks.len() % 3]);
        prop_assert_eq!(block.meta(), &meta);
        prop_assert_eq!((meta.n_series, meta.size), (model.len() as u64, std::fs::metadata(&path).unwrap().len()));
        prop_assert_eq!(meta.n_samples, model.iter().map(|samples| samples.len() as u64).sum::<u64>());
        for (ordinal, samples) in (0..).zip(&model) {
            check_series(&block, &mut used, ordinal, TimeRange::ALL, samples);
            for &(from, len) in &picks {
                let start_ms = START_MS + hours * HOUR_MS * (from - 10) / 980;
                check_series(&block, &mut used, ordinal, TimeRange { start_ms, end_ms: start_ms + hours * HOUR_MS * len / 2000 }, samples);
                let at_ms = samples.timestamps_ms[(from as usize * samples.len() / 1001).min(samples.len() - 1)];
                check_series(&block, &mut used, ordinal, TimeRange::at(at_ms), samples);
                check_series(&block, &mut used, ordinal, TimeRange { start_ms: at_ms + 1, end_ms: at_ms + 1 + len }, samples);
                check_series(&block, &mut used, ordinal, TimeRange { start_ms: at_ms + 1, end_ms: at_ms }, samples);
            }
        }
        check_scan(&block, &model);
        block.verify(&QueryContext::unbounded()).unwrap();
    }
}

#[test]
fn groups_end_at_256_series_and_when_a_page_is_full() {
    let noise = |i: i64| f64::from_bits(xxhash_rust::xxh3::xxh3_64(&i.to_le_bytes()));
    let small: Model = (0..600).map(|i| columns([(START_MS + i, 1.0)])).collect();
    let large: Model = (0..100)
        .map(|i| columns((0..480).map(|k| (START_MS + k * 15_000, noise(i * 480 + k)))))
        .collect();
    for (model, groups) in [(small, 3..=3), (large, 4..=9)] {
        let Written {
            path, dir: _dir, ..
        } = written(2, &model);
        let block = open(&path).unwrap();
        let mut used = read_cache(1 << 30);
        assert!(
            groups.contains(&block.groups.len()),
            "{} groups",
            block.groups.len()
        );
        check_scan(&block, &model);
        for (ordinal, samples) in (0..).zip(&model) {
            check_series(&block, &mut used, ordinal, TimeRange::ALL, samples);
        }
    }
}

#[test]
fn a_series_with_very_many_samples_gets_pages_of_its_own() {
    let n = 2 * SERIES_SAMPLES_MAX as i64 + 5;
    let dense = columns((0..n).map(|i| (START_MS + i * 50, (i % 1000) as f64)));
    let plain = columns((0..100).map(|i| (START_MS + i * 60_000, i as f64)));
    let model = vec![plain.clone(), dense.clone(), plain];
    let Written {
        path, dir: _dir, ..
    } = written(2, &model);
    let block = open(&path).unwrap();
    let mut used = read_cache(1 << 30);
    assert_eq!(
        (
            block.groups.len(),
            block.groups.get(block.groups.idx_of(1)).n_pages()
        ),
        (3, 3)
    );
    check_scan(&block, &model);
    let edge_ms = dense.timestamps_ms[SERIES_SAMPLES_MAX];
    for (start_ms, end_ms) in [
        (edge_ms - 50, edge_ms),
        (edge_ms, edge_ms),
        (edge_ms - 100_000, edge_ms - 50),
    ] {
        check_series(&block, &mut used, 1, TimeRange { start_ms, end_ms }, &dense);
    }
    block.verify(&QueryContext::unbounded()).unwrap();
}

#[test]
fn series_of_one_target_share_their_timestamps() {
    let series = |target: i64| {
        columns((0..240).map(|i| (START_MS + i * 30_000 + (i * i + target * i) % 97, 1.0)))
    };
    let size = |n_targets: i64| {
        written(2, &(0..500).map(|i| series(i % n_targets)).collect())
            .meta
            .timestamps_size
    };
    let (few, many) = (size(4), size(500));
    assert!(few < 1_500, "{few} bytes for 4 timestamp columns");
    assert!(many > 3 * few, "{many} bytes for 97 timestamp columns");
}

#[test]
fn a_query_for_an_hour_reads_one_slice_of_a_day() {
    let model: Model = (0..10)
        .map(|k| columns((0..2880).map(|i| (START_MS + i * 30_000, (i * k) as f64))))
        .collect();
    let Written {
        path, dir: _dir, ..
    } = written(24, &model);
    let block = open(&path).unwrap();
    let mut used = read_cache(1 << 20);
    let hour = TimeRange {
        start_ms: START_MS + 9 * HOUR_MS,
        end_ms: START_MS + 10 * HOUR_MS,
    };
    let group = block.groups.get(block.groups.idx_of(3));
    assert_eq!(
        (
            group.n_pages(),
            group.pages_in(hour).map(|(i, _)| i).collect::<Vec<_>>()
        ),
        (3, vec![1])
    );
    check_series(&block, &mut used, 3, hour, &model[3]);
}

fn small_model() -> Model {
    let times = |offset: i64| (0..40).map(move |i| START_MS + i * 30_000 + offset);
    let first = columns(times(0).map(|time_ms| (time_ms, (time_ms % 1009) as f64)));
    let second = columns(times(0).map(|time_ms| (time_ms, 1.5)));
    let third = columns(times(11).map(|time_ms| (time_ms, (time_ms % 97) as f64 / 10.0)));
    vec![first, second, third]
}

/// Damaged parts are rejected and never misread; other parts are still read.
fn check_damaged(path: &Path, model: &Model, what: &str) {
    let mut n_rejected = 0;
    let block = match open(path) {
        Ok(block) => block,
        Err(error) => return check_error(&error, what),
    };
    for (ordinal, samples) in (0..).zip(model) {
        let mut got = SampleColumns::default();
        match block.read(&mut ReadCache::default(), ordinal, TimeRange::ALL, &mut got) {
            Ok(()) => assert_eq!(
                bits(&got),
                bits(samples),
                "{what}: series {ordinal} is misread"
            ),
            Err(error) => {
                assert!(got.is_empty(), "{what}: a failed read appends nothing");
                check_error(&error, what);
                n_rejected += 1;
            }
        }
    }
    let verified = block.verify(&QueryContext::unbounded());
    check_error(&verified.expect_err(what), what);
    let mut scan = block.scan();
    let mut samples = SampleColumns::default();
    let scanned = std::iter::from_fn(|| {
        scan.next(&mut samples)
            .map(|series| series.map(|_| ()))
            .transpose()
    });
    assert!(
        n_rejected == 0 || scanned.take(model.len()).any(|series| series.is_err()),
        "{what}: scan and read agree"
    );
}

fn check_error(error: &Error, what: &str) {
    assert!(
        matches!(
            error,
            Error::Corrupt { .. } | Error::Version { .. } | Error::Io { .. }
        ),
        "{what}: {error:?}"
    );
}

#[test]
fn every_flipped_byte_is_found_and_never_misread() {
    let model = small_model();
    let Written { path, dir, .. } = written(2, &model);
    let good = std::fs::read(&path).unwrap();
    let bad_path = dir.path().join("00000008.block");
    for i in 0..good.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut bad = good.clone();
            bad[i] ^= flip;
            std::fs::write(&bad_path, &bad).unwrap();
            check_damaged(&bad_path, &model, &format!("byte {i} ^ {flip:#x}"));
        }
    }
}

/// Pages with correct checksums over invalid bytes are never written, but must not cause a panic.
#[test]
fn invalid_pages_with_correct_checksums_never_panic() {
    let written = written(2, &small_model());
    let good = std::fs::read(&written.path).unwrap();
    let bad_path = written.dir.path().join("00000008.block");
    let mut offset = HEADER_SIZE;
    while offset + TRAILER_SIZE < good.len() {
        let size = u32::from_le_bytes(good[offset + 4..offset + 8].try_into().unwrap()) as usize;
        for i in 8..size {
            for flip in [0x01, 0x10, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[offset + i] ^= flip;
                let crc = crc32c::crc32c(&bad[offset + 4..offset + size]).to_le_bytes();
                bad[offset..offset + 4].copy_from_slice(&crc);
                std::fs::write(&bad_path, &bad).unwrap();
                use_all(&bad_path);
            }
        }
        offset += size;
    }
    assert_eq!(offset + TRAILER_SIZE, good.len(), "pages fill the file");
}

fn use_all(path: &Path) {
    let Ok(block) = open(path) else { return };
    let mut samples = SampleColumns::default();
    for ordinal in 0..block.meta().n_series as u32 {
        let range = TimeRange {
            start_ms: START_MS + 60_000,
            end_ms: START_MS + 90_000,
        };
        let _either = (
            block.read(&mut ReadCache::default(), ordinal, range, &mut samples),
            block.overlaps(&mut ReadCache::default(), ordinal, range),
        );
        assert_eq!(samples.timestamps_ms.len(), samples.values.len());
    }
    let _either = block.verify(&QueryContext::unbounded());
    let mut scan = block.scan();
    while let Ok(Some(_)) = scan.next(&mut samples) {}
}

/// A merge passes scanned series to a writer, which assumes that they are valid.
#[test]
fn a_scan_rejects_timestamps_that_do_not_ascend_despite_correct_checksums() {
    let Written {
        path, dir: _dir, ..
    } = written(2, &small_model());
    let page = open(&path).unwrap().timestamp_columns.get(0).page;
    let (start, end) = (
        page.offset as usize,
        page.offset as usize + page.size as usize,
    );
    let mut bytes = std::fs::read(&path).unwrap();
    // After the header of the page: flags, two counts, two sizes; then the step of the first
    // timestamp column, which becomes 0.
    let step = start + 12 + 1 + 4 + 6;
    bytes[step..step + 3].copy_from_slice(&[0x80, 0x80, 0]);
    let crc = crc32c::crc32c(&bytes[start + 4..end]).to_le_bytes();
    bytes[start..start + 4].copy_from_slice(&crc);
    std::fs::write(&path, bytes).unwrap();
    let block = open(&path).unwrap();
    let error = block
        .scan()
        .next(&mut SampleColumns::default())
        .map(drop)
        .unwrap_err();
    assert!(error.to_string().contains("do not ascend"), "{error}");
}

#[test]
fn truncated_extended_and_other_files_are_rejected() {
    let Written { path, dir, .. } = written(2, &small_model());
    let good = std::fs::read(&path).unwrap();
    let bad_path = dir.path().join("00000008.block");
    let error = |bytes: &[u8]| {
        std::fs::write(&bad_path, bytes).unwrap();
        open(&bad_path).unwrap_err().to_string()
    };
    for size in 0..good.len() {
        let error = error(&good[..size]);
        assert!(
            error.contains("truncated") && error.contains("00000008.block"),
            "truncated to {size}: {error}"
        );
    }
    assert!(error(&[&good[..], &[0; 10]].concat()).contains("truncated"));
    assert!(error(&[b"PK", &good[2..]].concat()).contains("is not a block"));
    assert!(error(&[7; 1000]).contains("is not a block"));
    let mut newer = good.clone();
    newer[4] = 2;
    let crc = crc32c::crc32c(&newer[..12]).to_le_bytes();
    newer[12..16].copy_from_slice(&crc);
    assert!(error(&newer).contains("format version 2, this program reads version 1"));
    assert!(matches!(
        open(&dir.path().join("none.block")),
        Err(Error::Io { op: "open", .. })
    ));
}

#[test]
fn truncation_and_bad_sectors_of_an_open_block_fail_reads_with_path_and_offset() {
    let model = small_model();
    let bytes = std::fs::read(&written(2, &model).path).unwrap();
    let path = Path::new("/00000007.block");
    let check = |damage: &dyn Fn(&MemFs) -> io::Result<()>, words: &str| {
        let fs = MemFs::new();
        fs.create(path).unwrap().append(&bytes).unwrap();
        let block = Block::open(&fs, path, &Arc::new(PageCache::new(1 << 20))).unwrap();
        damage(&fs).unwrap();
        for (ordinal, samples) in (0..).zip(&model) {
            let mut got = SampleColumns::default();
            match block.read(&mut ReadCache::default(), ordinal, TimeRange::ALL, &mut got) {
                Ok(()) => assert_eq!(bits(&got), bits(samples)),
                Err(error) => {
                    let message = error.to_string();
                    assert!(
                        [words, "00000007.block", "at byte "]
                            .iter()
                            .all(|word| message.contains(word)),
                        "{message}"
                    );
                }
            }
        }
        block.verify(&QueryContext::unbounded()).unwrap_err();
    };
    for at in 16..bytes.len() - 200 {
        check(&|fs| fs.edit(path, |file| file.truncate(at)), "truncated");
        check(
            &|fs| fs.set_bad_sector(path, at as u64..at as u64 + 512),
            "os error 5",
        );
    }
}

#[test]
fn a_full_disk_or_failing_sync_leaves_no_file() {
    let (fs, dir, model) = (MemFs::new(), Path::new("/"), small_model());
    let size = written(2, &model).meta.size;
    for room in 0..size {
        fs.set_room(room);
        let error = write(Arc::new(fs.clone()), dir, 2, &model).unwrap_err();
        assert!(
            matches!(&error, Error::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull),
            "{error}"
        );
        assert_eq!(fs.list(dir).unwrap(), [""; 0], "room for {room}");
    }
    fs.set_room(u64::MAX);
    fs.set_sync_fails(true);
    assert!(matches!(
        write(Arc::new(fs.clone()), dir, 2, &model),
        Err(Error::Io { op: "sync", .. })
    ));
    assert_eq!(fs.list(dir).unwrap(), [""; 0], "sync");
    fs.set_sync_fails(false);
    drop(BlockWriter::create(Arc::new(fs.clone()), dir, origin(2)).unwrap());
    assert_eq!(fs.list(dir).unwrap(), [""; 0], "dropped");
    write(Arc::new(fs.clone()), dir, 2, &model).unwrap();
    assert_eq!(fs.list(dir).unwrap(), ["00000007.block"]);
    let again = BlockWriter::create(Arc::new(fs), dir, origin(2))
        .map(|_| ())
        .unwrap_err();
    assert!(
        matches!(again, Error::Io { op: "create", .. }),
        "a block is never replaced"
    );
}

/// Large histograms fill a page before their number does. The series is cut, and every part of it
/// round-trips.
#[test]
fn series_of_large_histograms_are_cut_into_pages() {
    let histogram = |i: i64| Histogram {
        sum: i as f64,
        counts: HistogramCounts::Integer {
            count: i.unsigned_abs(),
            zero_count: 0,
            positive: (0..3000).map(|bucket| bucket * i.unsigned_abs()).collect(),
            negative: vec![],
        },
        ..Histogram::default()
    };
    let mut large = SampleColumns::default();
    for i in 0..200 {
        if i % 50 == 49 {
            large.push(Sample {
                timestamp_ms: START_MS + i * 30_000,
                value: i as f64,
            })
        } else {
            large.push_histogram(START_MS + i * 30_000, Arc::new(histogram(i)))
        }
    }
    let model = vec![
        columns([(START_MS, 1.0)]),
        large,
        columns([(START_MS + 30_000, 2.0)]),
    ];
    let written = written(2, &model);
    let block = open(&written.path).unwrap();
    let mut used = read_cache(1 << 30);
    block.verify(&QueryContext::unbounded()).unwrap();
    check_scan(&block, &model);
    for (start, end) in [(0, 200), (0, 1), (80, 95), (49, 49), (199, 199)] {
        let range = TimeRange {
            start_ms: START_MS + start * 30_000,
            end_ms: START_MS + end * 30_000,
        };
        check_series(&block, &mut used, 1, range, &model[1]);
        let mut got = SampleColumns::default();
        block
            .read(&mut ReadCache::default(), 1, range, &mut got)
            .unwrap();
        for (idx, sample) in got.iter().enumerate() {
            let i = (sample.timestamp_ms - START_MS) / 30_000;
            let is_right = match got.histogram(idx) {
                None => i % 50 == 49,
                Some(found) => i % 50 != 49 && found.is_same(&histogram(i)),
            };
            assert!(is_right, "{i}");
        }
    }
}
