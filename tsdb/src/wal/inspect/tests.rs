//! Inspection and repair of the log fixture: undamaged, and with seeded random damage.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use varve_env::damage::DamageReport;
use varve_env::testing::{copy_dir, random};
use varve_env::{Fs, RealFs};
use varve_model::{Labels, Sample, SampleColumns, TimeRange};

use super::*;
use crate::batch::WriteBatch;
use crate::db::Db;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::read_context::ReadContext;

/// Number of damaged copies that are repaired.
const VARIANTS: u64 = 36;

/// A copy of the fixture.
fn fixture() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    copy_dir(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/format/wal-v3"),
        dir.path(),
    );
    dir
}

fn inspect_dir(dir: &Path) -> WalInspection {
    inspect(&RealFs, dir, &mut |done, total| assert!(done <= total)).unwrap()
}

fn open(dir: &Path) -> Result<Db> {
    Db::open(
        dir,
        Options {
            background: false,
            ..Options::default()
        },
    )
}

/// The samples of all valid frames.
fn samples(dir: &Path) -> Vec<(u64, i64)> {
    let mut found = Vec::new();
    for file in list(&RealFs, dir).unwrap() {
        read_file(&RealFs, &file, &mut DamageReport::default(), |frame| {
            match &frame.content {
                Content::Samples(samples, _) => {
                    found.extend(samples.iter().map(|it| (it.series, it.sample.timestamp_ms)));
                }
                Content::Histograms(histograms) => {
                    found.extend(histograms.iter().map(|it| (it.0, it.1)))
                }
                _ => {}
            }
            Ok(())
        })
        .unwrap();
    }
    found.sort_unstable();
    found
}

fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    list(&RealFs, dir)
        .unwrap()
        .into_iter()
        .map(|it| (it.path.clone(), std::fs::read(&it.path).unwrap()))
        .collect()
}

#[test]
fn statistics_agree_with_those_of_a_replay() {
    for seed in 0..VARIANTS {
        let (dir, mut random) = (fixture(), random(seed));
        if seed > 0 {
            // Damage to a checkpoint changes which files a replay reads; here only segments are
            // damaged.
            damage_file(dir.path(), &mut random, |path| {
                !path.to_string_lossy().contains("checkpoint-")
            });
        }
        let found = inspect_dir(dir.path());
        let counts = |file: &&FileSummary| file.file.role == Role::Live;
        let n_samples: u64 = found
            .files
            .iter()
            .filter(counts)
            .map(|file| file.n_samples)
            .sum();
        let replayed = open(dir.path()).unwrap().stats().replayed;
        let n_replayed = replayed.n_samples
            + replayed.n_repeated
            + replayed.n_conflicting
            + replayed.n_unknown_samples;
        assert_eq!(
            (n_samples, found.n_unknown_samples),
            (n_replayed, replayed.n_unknown_samples),
            "seed {seed}"
        );
        assert!(n_samples > 0 && found.n_series > 0 && found.n_series <= replayed.n_series);
        let sum = |field: fn(&FileIntegrity) -> u64| {
            found
                .files
                .iter()
                .filter(counts)
                .map(|file| field(&file.integrity))
                .sum::<u64>()
        };
        let damage = (
            sum(|end| end.damaged_bytes),
            sum(|end| end.torn_bytes),
            sum(|end| end.n_missing_frames),
        );
        assert_eq!(
            damage,
            (
                replayed.damaged_bytes,
                replayed.torn_bytes,
                replayed.n_missing_frames
            ),
            "seed {seed}"
        );
        assert_eq!(
            (found.damage.n_damaged() > 0, found.n_removed_files),
            (damage.0 + damage.2 > 0, 0),
            "{:?}",
            found.damage.entries()
        );
    }
}

#[test]
fn the_sizes_of_the_parts_add_up_to_the_size_of_the_files() {
    let dir = fixture();
    let found = inspect_dir(dir.path());
    let PartSizes {
        file_headers,
        sample_frames,
        samples,
        n_samples,
        ..
    } = found.parts;
    let PartSizes {
        histograms,
        start_timestamps,
        exemplars,
        series,
        metadata,
        checkpoints,
        damaged,
        ..
    } = found.parts;
    let bits = samples.head + samples.refs + samples.times + samples.values;
    let bytes = file_headers + sample_frames + histograms + start_timestamps + exemplars;
    let size: u64 = found.files.iter().map(|file| file.integrity.size).sum();
    assert_eq!(
        8 * (bytes + series + metadata + checkpoints + damaged) + bits,
        8 * size
    );
    assert!(n_samples > 0 && samples.values > 0 && series > 0 && checkpoints > 0);
}

/// Damages a file of the WAL: a bit, some bytes or its header.
fn damage_file(dir: &Path, random: &mut impl FnMut(usize) -> usize, which: fn(&Path) -> bool) {
    let files: Vec<_> = files(dir)
        .into_iter()
        .filter(|(path, bytes)| which(path) && bytes.len() > 60)
        .collect();
    let (path, mut bytes) = files[random(files.len())].clone();
    let at = random(bytes.len());
    let end = (at + 1 + random(40)).min(bytes.len());
    match random(5) {
        0 => bytes[at] ^= 1 << random(8),
        1 => bytes[at..end]
            .iter_mut()
            .for_each(|byte| *byte = random(256) as u8),
        2 => bytes[random(24)] ^= 1 << random(8),
        3 => bytes[..8].fill(0),
        _ => drop(bytes.drain(at..end)),
    }
    std::fs::write(&path, bytes).unwrap();
}

#[test]
fn a_repaired_wal_has_every_valid_frame_and_no_faults() {
    for seed in 1..=VARIANTS {
        let (dir, mut random) = (fixture(), random(seed));
        damage_file(dir.path(), &mut random, |_| true);
        let before = (files(dir.path()), samples(dir.path()));
        let planned = repair(&RealFs, dir.path(), false, &mut |_, _| {}).unwrap();
        assert!(
            files(dir.path()) == before.0,
            "seed {seed}: nothing is written without being asked"
        );
        let found = repair(&RealFs, dir.path(), true, &mut |_, _| {}).unwrap();
        let repaired_files = |repair: &WalRepair| {
            repair
                .repaired
                .iter()
                .map(|it| (it.path.clone(), it.n_frames))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            repaired_files(&found),
            repaired_files(&planned),
            "seed {seed}"
        );
        for it in &found.repaired {
            assert!(
                std::fs::read(&it.original).unwrap() == before.0[&it.path],
                "the original is saved"
            );
        }
        assert_eq!(
            repair(&RealFs, dir.path(), true, &mut |_, _| {})
                .unwrap()
                .repaired,
            [],
            "seed {seed}: it is repaired"
        );
        let after = samples(dir.path());
        assert!(
            before
                .1
                .iter()
                .all(|sample| after.binary_search(sample).is_ok()),
            "seed {seed}"
        );
        let left = inspect_dir(dir.path()).damage;
        // Labels that a checkpoint lost cannot be restored.
        let is_known = |reason: &str| reason.starts_with("labels of ");
        let unsound = left
            .entries()
            .iter()
            .filter(|it| it.kind.name() != "torn tail")
            .find(|it| !is_known(&it.reason));
        assert!(unsound.is_none(), "seed {seed}: {unsound:?}");
        let stats = open(dir.path()).unwrap().stats().replayed;
        assert_eq!(
            (
                stats.damaged_bytes,
                stats.n_missing_frames,
                stats.n_damaged_checkpoints
            ),
            (0, 0, 0)
        );
    }
}

/// A server skips a file with a flipped bit in its header; a repair restores it.
#[test]
fn a_flipped_bit_of_a_header_is_repaired_without_loss() {
    let read = |dir: &Path| {
        let db = open(dir).unwrap();
        let ctx = ReadContext::unbounded();
        let mut found = Vec::new();
        for series in db.select(&ctx, &[], TimeRange::ALL).unwrap() {
            let (series, mut columns) = (series.unwrap(), SampleColumns::default());
            series.read(&mut columns).unwrap();
            let samples = columns
                .iter()
                .map(|it| (it.timestamp_ms, it.value.to_bits()))
                .collect::<Vec<_>>();
            found.push((series.labels().clone(), samples));
        }
        found
    };
    let whole = read(fixture().path());
    let dir = fixture();
    let path = list(&RealFs, dir.path())
        .unwrap()
        .into_iter()
        .rfind(|it| it.kind == SegmentKind::Samples)
        .unwrap()
        .path;
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[12] ^= 4;
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(inspect_dir(dir.path()).damage.entries()[0].offset, 0);
    repair(&RealFs, dir.path(), true, &mut |_, _| {}).unwrap();
    assert!(read(dir.path()) == whole);
}

/// A server did not start with a renamed checkpoint, and a repair did nothing. With a copy of a
/// checkpoint under another name it did not start either.
#[test]
fn a_renamed_checkpoint_gets_its_name_back() {
    let whole = fixture();
    let everything = |dir: &Path| {
        let stats = open(dir).unwrap().stats();
        (
            stats.n_series,
            stats.replayed.n_samples,
            stats.replayed.is_damaged(),
        )
    };
    let expected = everything(whole.path());
    // Lower and higher than its own number, and than those of the segments.
    for number in [1_u64, 1 << 20] {
        for is_copy in [false, true] {
            let dir = fixture();
            let checkpoint = list(&RealFs, dir.path())
                .unwrap()
                .into_iter()
                .find(|it| it.kind == SegmentKind::Checkpoint && it.role == Role::Live)
                .unwrap();
            let name = SegmentKind::Checkpoint.file_name(number);
            let path = checkpoint.path.with_file_name(name);
            std::fs::copy(&checkpoint.path, &path).unwrap();
            if !is_copy {
                std::fs::remove_file(&checkpoint.path).unwrap();
            }
            if number > checkpoint.number || !is_copy {
                let error = open(dir.path()).unwrap_err().to_string();
                let name = SegmentKind::Checkpoint.file_name(checkpoint.number);
                assert!(error.contains(&format!("this is {name}")), "{error}");
                assert!(error.contains("varve wal repair"), "{error}");
            }

            let planned = repair(&RealFs, dir.path(), false, &mut |_, _| {}).unwrap();
            assert!(path.exists());
            let done = repair(&RealFs, dir.path(), true, &mut |_, _| {}).unwrap();
            assert_eq!(
                (&done.renamed, done.repaired.len()),
                (&planned.renamed, planned.repaired.len())
            );
            assert_eq!(done.renamed.len(), usize::from(!is_copy), "{done:?}");
            assert!(!path.exists() && checkpoint.path.exists());
            for it in &done.repaired {
                assert!(
                    std::fs::read(&it.original).unwrap()
                        == std::fs::read(&checkpoint.path).unwrap()
                );
            }
            let again = repair(&RealFs, dir.path(), true, &mut |_, _| {}).unwrap();
            assert_eq!(again.damage.entries(), []);
            assert_eq!(everything(dir.path()), expected, "{number} {is_copy}");
        }
    }
}

/// A data directory with two logs, each with a file of series and a file of samples.
fn two_logs() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(
        dir.path(),
        Options {
            shards: 2,
            background: false,
            ..Options::default()
        },
    )
    .unwrap();
    let mut batch = WriteBatch::default();
    for i in 0..20 {
        let series = db
            .series(&Labels::from_pairs([("i", i.to_string().as_str())]).unwrap())
            .unwrap();
        batch.push(
            series,
            Sample {
                timestamp_ms: 1,
                value: 1.0,
            },
            0,
        );
    }
    db.append(&mut batch).unwrap();
    dir
}

fn reasons(dir: &Path, path: &Path) -> Vec<String> {
    let found = inspect_dir(dir).damage;
    found
        .entries()
        .iter()
        .filter(|it| it.path == path)
        .map(|it| it.reason.clone())
        .collect()
}

/// A replay would load the series into wrong shards and not find those of the samples.
#[test]
fn exchanged_files_of_two_logs_are_damage() {
    for kind in [SegmentKind::Series, SegmentKind::Samples] {
        let dir = two_logs();
        let found = inspect_dir(dir.path());
        assert_eq!((found.damage.n_damaged(), found.n_unknown_samples), (0, 0));
        let of_kind: Vec<_> = list(&RealFs, dir.path())
            .unwrap()
            .into_iter()
            .filter(|it| it.kind == kind)
            .map(|it| it.path)
            .collect();
        let [first, second] = &of_kind[..] else {
            panic!("{of_kind:?}")
        };
        let other = dir.path().join("other");
        for (from, to) in [(first, &other), (second, first), (&other, second)] {
            std::fs::rename(from, to).unwrap();
        }
        assert_eq!(inspect_dir(dir.path()).n_unknown_samples, 20);
        if kind == SegmentKind::Series {
            for path in [first, second] {
                let reasons = reasons(dir.path(), path);
                assert!(
                    reasons[0].contains("series belong to another log"),
                    "{reasons:?}"
                );
            }
        }
        let stats = Db::open(
            dir.path(),
            Options {
                shards: 2,
                background: false,
                ..Options::default()
            },
        )
        .unwrap()
        .stats();
        assert_eq!(stats.replayed.n_unknown_samples, 20);
    }
}

#[test]
fn an_empty_segment_is_reported_and_repaired() {
    for kind in [SegmentKind::Series, SegmentKind::Samples] {
        let dir = fixture();
        let path = list(&RealFs, dir.path())
            .unwrap()
            .into_iter()
            .rfind(|it| it.kind == kind)
            .unwrap()
            .path;
        std::fs::write(&path, b"").unwrap();
        let reasons_before = reasons(dir.path(), &path);
        assert!(
            reasons_before[0].starts_with("the segment has no header"),
            "{reasons_before:?}"
        );
        assert_eq!(
            repair(&RealFs, dir.path(), true, &mut |_, _| {})
                .unwrap()
                .repaired[0]
                .path,
            path
        );
        assert_eq!(reasons(dir.path(), &path), [""; 0]);
    }
}

#[test]
fn an_unsupported_version_is_reported_and_left_unchanged() {
    let dir = fixture();
    let path = list(&RealFs, dir.path()).unwrap().pop().unwrap().path;
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4] = 99;
    let crc = crc32c::crc32c(&bytes[..20]);
    bytes[20..24].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    let found = inspect_dir(dir.path());
    assert_eq!(
        found
            .damage
            .entries()
            .iter()
            .filter(|damage| damage.path == path)
            .count(),
        1
    );
    let before = files(dir.path());
    assert!(matches!(
        repair(&RealFs, dir.path(), true, &mut |_, _| {}),
        Err(Error::Version { found: 99, .. })
    ));
    assert!(files(dir.path()) == before);
}

#[test]
fn a_directory_in_use_is_not_repaired() {
    let dir = fixture();
    let db = open(dir.path()).unwrap();
    assert!(matches!(
        repair(&RealFs, dir.path(), true, &mut |_, _| {}),
        Err(Error::Locked { .. })
    ));
    assert!(
        repair(&RealFs, dir.path(), false, &mut |_, _| {})
            .unwrap()
            .repaired
            .is_empty()
    );
    drop(db);
    let lock = RealFs.lock(&dir.path().join("lock"));
    assert!(lock.is_ok());
}
