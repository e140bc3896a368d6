//! Replay of whole logs: after a crash at each step of a rotation, and with damaged segments and
//! checkpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64};

use parking_lot::Mutex;
use varve_env::Fs;
use varve_env::damage::DamageReport;
use varve_env::testing::{Fault, MemFs, PowerCut};
use varve_model::metadata::{Families, Metadata};
use varve_model::{Exemplar, Labels, Sample};

use super::ReplayStats;
use super::context::ReplayContext;
use super::progress::{ReplayProgress, count};
use super::replay::Replay;
use crate::batch::SeriesRef;
use crate::error::{Error, Result};
use crate::options::{WalOnCorruption, WalSync};
use crate::shard::exemplars::Exemplars;
use crate::shard::{Shard, SharedLog};
use crate::store::family_table::FamilyTable;
use crate::wal::checkpoint::tests::add_head;
use crate::wal::frame::{begin_frame, file_header, finish_frame};
use crate::wal::inspect;
use crate::wal::reader::LargeFrameLock;
use crate::wal::{
    CheckpointPosition, Epoch, Log, LogOptions, SampleColumn, SegmentKind, remove_epochs_before,
};

const ROOT: &str = "/wal";
const EPOCH: Epoch = Epoch { number: 0, logs: 1 };

/// The result of replaying a WAL.
struct Replayed {
    result: Result<(ReplayStats, u64)>,
    progress: ReplayProgress,
    metadata: Arc<Families>,
}

fn replay(fs: &MemFs, on_corruption: WalOnCorruption) -> Replayed {
    let shards: Vec<Shard> = (0..2_u16)
        .map(|idx| {
            let log = open_log(&MemFs::new(), Path::new("/new"));
            Shard::new(idx, 1, SharedLog::new(log), usize::MAX)
        })
        .collect();
    let names = fs.list(Path::new(ROOT)).unwrap();
    let mut epochs: Vec<Epoch> = names.iter().filter_map(|name| Epoch::parse(name)).collect();
    epochs.sort_unstable();
    let (metadata, progress) = (
        Mutex::new(FamilyTable::new(usize::MAX)),
        ReplayProgress::default(),
    );
    let context = ReplayContext {
        shards: &shards,
        metadata: &metadata,
        exemplars: &Exemplars::new(8, 1 << 20),
        quarantine: Path::new("/quarantine"),
        fs,
        on_corruption,
        sample_bins_bytes: 1 << 20,
        progress: &progress,
        newest_ms: &AtomicI64::new(i64::MIN),
        stop: &AtomicBool::new(false),
        large_frames: LargeFrameLock::default(),
    };
    let result = Replay::load_definitions(Path::new(ROOT), &epochs, &context)
        .and_then(Replay::replay_samples);
    Replayed {
        result,
        progress,
        metadata: Arc::clone(metadata.into_inner().families()),
    }
}

fn stats(fs: &MemFs) -> (ReplayStats, u64) {
    replay(fs, WalOnCorruption::Quarantine).result.unwrap()
}

fn open_log(fs: &MemFs, dir: &Path) -> Log {
    open_log_with(fs, dir, 1 << 20)
}

fn open_log_with(fs: &MemFs, dir: &Path, segment_size_bytes: u64) -> Log {
    let fs = Arc::new(fs.clone());
    let options = LogOptions {
        number: 0,
        dir: dir.to_owned(),
        fs,
        sync: WalSync::Never,
        segment_size_bytes,
    };
    Log::open(options).unwrap()
}

fn log_dir() -> PathBuf {
    EPOCH.log_dir(Path::new(ROOT), 0)
}

fn labels(i: u64) -> Labels {
    Labels::from_pairs([("__name__", "m"), ("i", &*i.to_string())]).unwrap()
}

/// Defines series and appends a sample to each as one request.
fn try_append(
    log: &Log,
    new: impl IntoIterator<Item = u64>,
    all: impl IntoIterator<Item = u64>,
    timestamp_ms: i64,
) -> Result<()> {
    new.into_iter()
        .for_each(|i| log.append_series(SeriesRef(i), &labels(i)));
    let mut column = SampleColumn::default();
    all.into_iter().for_each(|i| {
        column.push(
            SeriesRef(i),
            Sample {
                timestamp_ms,
                value: i as f64,
            },
        )
    });
    log.append_samples(&column);
    log.commit(log.end())
}

fn append(
    log: &Log,
    new: impl IntoIterator<Item = u64>,
    all: impl IntoIterator<Item = u64>,
    timestamp_ms: i64,
) {
    try_append(log, new, all, timestamp_ms).unwrap();
}

fn checkpoint(
    log: &Log,
    position: CheckpointPosition,
    live: impl IntoIterator<Item = u64>,
    next_ref: u64,
) -> Result<()> {
    let mut live: Vec<_> = live.into_iter().map(|i| (i, labels(i), 1000)).collect();
    live.sort_by(|a, b| a.1.cmp(&b.1));
    let metadata = Metadata {
        help: "h".into(),
        ..Metadata::default()
    };
    log.checkpoint(
        position,
        |writer| add_head(writer, &live),
        next_ref,
        [("m", &metadata)].into_iter(),
        &[],
    )
}

/// All files below a directory with their contents.
fn files(fs: &MemFs, dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for path in fs
        .list(dir)
        .unwrap_or_default()
        .iter()
        .map(|name| dir.join(name))
    {
        match fs.read(&path, u64::MAX) {
            Ok(bytes) => drop(found.insert(path, bytes)),
            Err(_directory) => found.extend(files(fs, &path)),
        }
    }
    found
}

fn flip_bit(fs: &MemFs, path: &Path, at: usize) {
    fs.edit(path, |bytes| bytes[at] ^= 1).unwrap();
}

/// Two rounds of append, rotation, append, checkpoint. Returns the number of acknowledged samples,
/// and how many of them the checkpoints replace.
fn two_rounds(log: &Log) -> (u64, u64) {
    let (mut acknowledged, mut superseded) = (0, 0);
    let mut run = || -> Result<()> {
        for round in 0..2_u64 {
            try_append(
                log,
                round * 10..round * 10 + 5,
                0..round * 10 + 5,
                round as i64 * 10,
            )?;
            acknowledged += round * 10 + 5;
            let position = log.rotate()?;
            let before_rotation = acknowledged;
            try_append(
                log,
                round * 10 + 5..round * 10 + 10,
                0..round * 10 + 10,
                round as i64 * 10 + 5,
            )?;
            acknowledged += round * 10 + 10;
            // From here on, blocks contain the samples before the rotation.
            superseded = before_rotation;
            checkpoint(log, position, 0..round * 10 + 10, 1000 + round)?;
        }
        Ok(())
    };
    let _died = run();
    (acknowledged, superseded)
}

/// A crash at any operation loses no acknowledged sample that is in no block, and none of its
/// series.
#[test]
fn a_crash_at_any_step_of_a_rotation_leaves_the_old_state_or_the_new_one() {
    let fs = MemFs::new();
    let first = fs.n_operations();
    assert_eq!(two_rounds(&open_log(&fs, &log_dir())), (50, 30));
    let n_operations = fs.n_operations();
    assert!(n_operations - first > 20);
    let (found, next_ref) = stats(&fs);
    assert_eq!(
        (found.n_series, found.n_samples, next_ref),
        (20, 20, 1001),
        "the samples after the last rotation"
    );
    assert_eq!(
        fs.list(&log_dir()).unwrap().len(),
        3,
        "a checkpoint and two segments"
    );

    let mut seen = BTreeSet::new();
    // The first operations create directories.
    for operation in first + 3..n_operations {
        let fs = MemFs::new();
        fs.fail_at(operation, Fault::Dies);
        let (acknowledged, superseded) = two_rounds(&open_log(&fs, &log_dir()));
        let (found, next_ref) = stats(&fs.crash(PowerCut::KeepsAll));
        assert_eq!(
            (
                found.n_unknown_samples,
                found.damaged_bytes,
                found.n_missing_frames + found.n_file_gaps
            ),
            (0, 0, 0),
            "{operation}"
        );
        assert!(
            found.n_samples + superseded >= acknowledged,
            "{:?}: {found:?}",
            fs.failed()
        );
        assert!(next_ref >= found.n_series, "{:?}", fs.failed());
        seen.insert(found.n_samples);
    }
    assert!(seen.len() > 4, "{seen:?}");
}

/// A log with a checkpoint of 1,000 series and 10 more after it; optionally with the checkpoint and
/// the segment before.
fn log_with_two_checkpoints(keep_older: bool) -> MemFs {
    let fs = MemFs::new();
    let log = open_log(&fs, &log_dir());
    append(&log, 0..500, 0..500, 0);
    let position = log.rotate().unwrap();
    checkpoint(&log, position, 0..500, 5000).unwrap();
    append(&log, 500..1000, 0..1000, 10);
    let position = log.rotate().unwrap();
    let older = files(&fs, Path::new(ROOT));
    append(&log, 1000..1010, 0..1010, 20);
    checkpoint(&log, position, 0..1010, 6000).unwrap();
    for (path, bytes) in older.into_iter().filter(|_| keep_older) {
        fs.create(&path)
            .and_then(|file| file.append(&bytes))
            .unwrap();
    }
    fs
}

#[test]
fn a_valid_checkpoint_restores_series_metadata_and_the_next_ref() {
    for keep_older in [false, true] {
        let fs = log_with_two_checkpoints(keep_older);
        let Replayed {
            result,
            progress,
            metadata,
        } = replay(&fs, WalOnCorruption::Refuse);
        let (found, next_ref) = result.unwrap();
        assert_eq!(
            (found.n_series, found.n_samples, next_ref),
            (1010, 1010, 6000),
            "{found:?}"
        );
        assert_eq!(metadata["m"].help, "h");
        assert_eq!(
            (count(&progress.n_files), count(&progress.n_files_total)),
            (3, 3)
        );
        assert_eq!(
            (count(&progress.n_bytes), count(&progress.n_samples)),
            (count(&progress.n_bytes_total), 1010)
        );
        assert_eq!(found.read_bytes, count(&progress.n_bytes));
    }
}

#[test]
fn instead_of_a_damaged_checkpoint_the_previous_one_or_its_valid_frames_are_used() {
    for (keep_older, at) in [false, true]
        .into_iter()
        .flat_map(|keep| [10, 30, 200, usize::MAX].map(|at| (keep, at)))
    {
        let fs = log_with_two_checkpoints(keep_older);
        let newest = SegmentKind::Checkpoint
            .numbers(&fs.list(&log_dir()).unwrap())
            .pop()
            .unwrap();
        let path = log_dir().join(SegmentKind::Checkpoint.file_name(newest));
        let at = at.min(fs.read(&path, u64::MAX).unwrap().len() - 1);
        flip_bit(&fs, &path, at);

        let before = files(&fs, Path::new("/"));
        match replay(&fs, WalOnCorruption::Refuse).result.unwrap_err() {
            Error::Corrupt {
                path: named,
                offset,
                ..
            } => assert!(named == path && offset <= at as u64),
            e => panic!("{e}"),
        }
        assert_eq!(files(&fs, Path::new("/")), before, "nothing is changed");

        let (found, next_ref) = stats(&fs);
        assert_eq!(found.n_damaged_checkpoints, 1);
        assert!(found.damaged_bytes > 0 && !files(&fs, Path::new("/quarantine")).is_empty());
        assert_eq!(files(&fs, Path::new(ROOT)), before);
        if keep_older {
            assert_eq!(
                (found.n_series, found.n_samples, found.n_unknown_samples),
                (1010, 2010, 0),
                "at {at}"
            );
        } else {
            assert_eq!(
                found.n_samples + found.n_unknown_samples,
                1010,
                "at {at}: {found:?}"
            );
            assert!(
                next_ref >= if at == 10 { 1010 } else { 6000 },
                "at {at}: {next_ref}"
            );
        }
    }
}

#[test]
fn damage_to_segments_fails_without_changes_or_is_copied_once() {
    let fs = MemFs::new();
    let log = open_log(&fs, &log_dir());
    append(&log, 0..3, 0..3, 0);
    (1..10).for_each(|t| append(&log, [], 0..3, t));
    log.rotate().unwrap();
    (10..12).for_each(|t| append(&log, [], 0..3, t));
    // One segment has damage inside, the other a torn tail.
    let names = fs.list(&log_dir()).unwrap();
    let [damaged, torn] = [&names[0], &names[1]].map(|name| log_dir().join(name));
    let at = fs.read(&damaged, u64::MAX).unwrap().len() / 2;
    flip_bit(&fs, &damaged, at);
    fs.edit(&torn, |bytes| bytes.truncate(bytes.len() - 1))
        .unwrap();

    let before = files(&fs, Path::new("/"));
    let error = replay(&fs, WalOnCorruption::Refuse).result.unwrap_err();
    assert!(
        matches!(&error, Error::Corrupt { path, offset, .. } if *path == damaged && *offset <= at as u64)
    );
    assert_eq!(files(&fs, Path::new("/")), before);

    for round in 0..2 {
        let (found, _) = stats(&fs);
        assert_eq!(
            (found.n_samples, found.n_missing_frames),
            (30, 1),
            "two frames of three samples are lost"
        );
        assert_eq!(
            found.torn_bytes > 0,
            round == 0,
            "a torn tail is truncated once"
        );
        assert_eq!(
            files(&fs, Path::new("/quarantine")).len(),
            1,
            "damage is copied once"
        );
    }
}

/// The progress of the replay did not reach 100 %.
#[test]
fn a_segment_that_ends_inside_its_header_counts_as_read() {
    let fs = MemFs::new();
    append(&open_log(&fs, &log_dir()), [0], [0], 0);
    append(&open_log(&fs, &log_dir()), [], [0], 1);
    let numbers = SegmentKind::Samples.numbers(&fs.list(&log_dir()).unwrap());
    let newest = SegmentKind::Samples.file_name(*numbers.last().unwrap());
    fs.truncate(&log_dir().join(newest), 5).unwrap();

    let Replayed {
        result, progress, ..
    } = replay(&fs, WalOnCorruption::Quarantine);
    assert_eq!(result.unwrap().0.n_samples, 1);
    assert_eq!(count(&progress.n_bytes), count(&progress.n_bytes_total));
}

/// Damage at the end of a full segment was taken for the incomplete write of a killed process, and
/// truncated.
#[test]
fn only_the_last_segment_of_a_process_can_have_a_torn_tail() {
    for (segment, is_torn) in [(0, false), (1, false), (2, true), (4, false), (5, true)] {
        let fs = MemFs::new();
        // Two processes write three segments each.
        for process in 0..2 {
            let log = open_log_with(&fs, &log_dir(), 1);
            (0..3).for_each(|t| append(&log, [3 * process + t], [3 * process + t], t as i64));
        }
        let numbers = SegmentKind::Samples.numbers(&fs.list(&log_dir()).unwrap());
        assert_eq!(numbers, [0, 1, 2, 4, 5, 6]);
        let path = log_dir().join(SegmentKind::Samples.file_name(numbers[segment]));
        flip_bit(&fs, &path, fs.read(&path, u64::MAX).unwrap().len() - 1);

        let listed = inspect::list(&fs, Path::new("/")).unwrap();
        let file = listed.iter().find(|file| file.path == path).unwrap();
        let mut damage = DamageReport::default();
        let found = inspect::read_file(&fs, file, &mut damage, |_| Ok(())).unwrap();
        assert_eq!(
            (
                found.torn_bytes > 0,
                found.damaged_bytes > 0,
                damage.n_damaged()
            ),
            (is_torn, !is_torn, u64::from(!is_torn))
        );

        let before = files(&fs, Path::new("/"));
        let refused = replay(&fs, WalOnCorruption::Refuse).result;
        assert_eq!(refused.is_ok(), is_torn);
        if !is_torn {
            assert_eq!(files(&fs, Path::new("/")), before);
            let (replayed, _) = stats(&fs);
            assert_eq!(
                (
                    replayed.n_samples,
                    replayed.torn_bytes,
                    replayed.damaged_bytes
                ),
                (5, 0, found.damaged_bytes)
            );
            assert_eq!(files(&fs, Path::new("/quarantine")).len(), 1);
        }
    }
}

/// Lost exemplars were counted as samples.
#[test]
fn exemplars_of_unknown_series_are_counted_apart_from_samples() {
    let fs = MemFs::new();
    let log = open_log(&fs, &log_dir());
    append(&log, [0], [0, 1, 2], 0);
    for id in [0, 1] {
        let exemplar = Exemplar {
            labels: Labels::from_pairs([("trace_id", "t")]).unwrap(),
            value: 0.5,
            timestamp_ms: 0,
        };
        log.append_exemplar(id, SeriesRef(id), &exemplar);
    }
    log.commit(log.end()).unwrap();
    let (found, _) = stats(&fs);
    assert_eq!((found.n_samples, found.n_unknown_samples), (1, 2));
    assert_eq!((found.n_exemplars, found.n_unknown_exemplars), (1, 1));
}

/// The next flush removes the log, and with it samples whose series is unknown.
#[test]
fn segments_with_samples_of_lost_definitions_are_linked_into_the_quarantine() {
    let fs = MemFs::new();
    let log = open_log(&fs, &log_dir());
    append(&log, [0], 0..=0, 0);
    append(&log, [1], 0..=1, 1);
    let series = log_dir().join(SegmentKind::Series.file_name(0));
    let samples = fs
        .read(&log_dir().join(SegmentKind::Samples.file_name(0)), u64::MAX)
        .unwrap();
    flip_bit(&fs, &series, fs.read(&series, u64::MAX).unwrap().len() - 1);
    for _ in 0..2 {
        assert_eq!(stats(&fs).0.n_unknown_samples, 1);
        let linked = files(&fs, Path::new("/quarantine"))
            .into_values()
            .filter(|bytes| *bytes == samples);
        assert_eq!(linked.count(), 1, "once");
    }
}

/// Damage outside a frame does not affect it, and a replay restores no sample that was never
/// written.
#[test]
fn every_damaged_byte_and_every_cut_of_a_small_log_opens() {
    let whole = MemFs::new();
    let log = open_log(&whole, &log_dir());
    (0..4).for_each(|i| append(&log, [i], 0..=i, i as i64));
    for (path, good) in files(&whole, Path::new(ROOT)) {
        // Tests of frames flip every bit; here one bit of each byte is enough.
        let flipped = (0..good.len()).map(|at| {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            (bad, at >= 24)
        });
        let truncated = (0..good.len()).map(|size| (good[..size].to_vec(), false));
        for (bad, costs_one_frame) in flipped.chain(truncated) {
            let fs = whole.crash(PowerCut::KeepsAll);
            fs.edit(&path, |bytes| *bytes = bad).unwrap();
            let (found, _) = stats(&fs);
            let n_found = found.n_samples + found.n_unknown_samples;
            assert!(
                n_found <= 10 && (n_found >= 6 || !costs_one_frame),
                "{found:?}"
            );
        }
    }
    assert_eq!(stats(&whole).0.n_samples, 10);
}

#[test]
fn unknown_records_in_valid_frames_are_errors() {
    for (kind, record) in [
        (SegmentKind::Samples, 4),
        (SegmentKind::Samples, 1),
        (SegmentKind::Series, 2),
        (SegmentKind::Series, 0x83),
    ] {
        let fs = MemFs::new();
        fs.create_dir(&log_dir()).unwrap();
        let mut bytes = file_header(kind, 9).to_vec();
        let at = begin_frame(&mut bytes);
        bytes.extend_from_slice(b"from the future");
        finish_frame(&mut bytes, at, 9, 0, record);
        fs.create(&log_dir().join(kind.file_name(0)))
            .and_then(|file| file.append(&bytes))
            .unwrap();
        let error = replay(&fs, WalOnCorruption::Quarantine).result.unwrap_err();
        assert!(
            matches!(error, Error::Corrupt { offset: 24, .. }),
            "{error}"
        );
    }
}

#[test]
fn the_logs_of_an_earlier_epoch_are_read_until_they_are_removed() {
    let fs = MemFs::new();
    let old = open_log(&fs, &log_dir());
    append(&old, 0..10, 0..10, 0);
    let current = Epoch { number: 1, logs: 2 };
    let new: Vec<_> = (0..2)
        .map(|log| open_log(&fs, &current.log_dir(Path::new(ROOT), log)))
        .collect();
    append(&new[0], [], 0..5, 1);
    append(&new[1], [20], [20, 5, 6], 1);
    let (found, next_ref) = stats(&fs);
    assert_eq!(
        (
            found.n_series,
            found.n_samples,
            found.n_unknown_samples,
            next_ref
        ),
        (11, 18, 0, 21)
    );
    for (log, live) in new.iter().zip([0..5, 5..11]) {
        let position = log.rotate().unwrap();
        checkpoint(log, position, live, 21).unwrap();
    }
    remove_epochs_before(&fs, Path::new(ROOT), current).unwrap();
    append(&new[0], [], 0..3, 2);
    let (found, next_ref) = stats(&fs);
    assert_eq!(
        (
            found.n_series,
            found.n_samples,
            found.n_unknown_samples,
            next_ref
        ),
        (11, 3, 0, 21)
    );
}
