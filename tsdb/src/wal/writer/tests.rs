//! Group commit, full disks, failed syncs, and rotations.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::RwLock;

use varve_env::RealFs;
use varve_env::testing::{Fault, MemFs, PowerCut};
use varve_model::Sample;

use super::*;
use crate::wal::reader::{Item, LargeFrameLock, Opened, Reader};
use crate::wal::record::decode_samples;

fn open_log(dir: &Path, fs: Arc<dyn Fs>, sync: WalSync, segment_size_bytes: u64) -> Log {
    Log::open(LogOptions {
        number: 0,
        dir: dir.to_owned(),
        fs,
        sync,
        segment_size_bytes,
    })
    .unwrap()
}

fn append(log: &Log, timestamp_ms: i64) -> Result<()> {
    log.ready()?;
    let mut column = SampleColumn::default();
    column.push(
        SeriesRef(1),
        Sample {
            timestamp_ms,
            value: 1.5,
        },
    );
    log.append_samples(&column);
    log.commit(log.end())
}

/// Returns the timestamps of all samples in the selected segments. Asserts that the files are
/// complete.
fn times_in(fs: &dyn Fs, dir: &Path, numbers: impl Fn(u64) -> bool) -> Vec<i64> {
    let mut times = Vec::new();
    let large = LargeFrameLock::default();
    for name in fs.list(dir).unwrap() {
        if !SegmentKind::Samples.parse(&name).is_some_and(&numbers) {
            continue;
        }
        let Opened::Valid(mut reader) =
            Reader::open(fs, &dir.join(name), SegmentKind::Samples, &large).unwrap()
        else {
            panic!("the header is valid");
        };
        while let Some(item) = reader.next().unwrap() {
            let Item::Frame(frame) = item else {
                panic!("damaged: {item:?}")
            };
            assert_eq!(frame.n_missing, 0);
            let mut column = SampleColumn::default();
            decode_samples(frame.payload, &mut column).unwrap();
            times.extend(column.samples.iter().map(|s| s.timestamp_ms));
        }
    }
    times
}

fn times(fs: &dyn Fs, dir: &Path) -> Vec<i64> {
    times_in(fs, dir, |_| true)
}

#[test]
fn segments_are_closed_at_their_size_and_a_new_process_starts_its_own() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..2 {
        let log = open_log(dir.path(), Arc::new(RealFs), WalSync::Always, 100);
        (0..10).for_each(|i| append(&log, round * 10 + i).unwrap());
    }
    assert_eq!(times(&RealFs, dir.path()), (0..20).collect::<Vec<_>>());
    assert!(RealFs.list(dir.path()).unwrap().len() >= 4);
}

#[test]
fn a_full_disk_leaves_whole_frames_and_recovers_without_loss() {
    // The header and three frames fit into 78 bytes.
    for room in 0..78 {
        let (fs, dir) = (MemFs::new(), Path::new("/"));
        fs.set_room(room);
        let log = open_log(dir, Arc::new(fs.clone()), WalSync::Interval, 1 << 20);
        let appended: Vec<i64> = (0..3).filter(|&t| append(&log, t).is_ok()).collect();
        assert!(appended.len() < 3, "room {room}");
        assert!(append(&log, 3).is_err(), "blocked");
        assert!(
            log.pending_size() > 0,
            "room {room}: the rejected record waits"
        );
        assert!(
            matches!(log.health(), Health::Blocked(reason) if reason.contains("samples-")),
            "room {room}"
        );
        let before = times(&fs, dir);
        assert_eq!(
            before, appended,
            "room {room}: only what was acknowledged is there"
        );
        assert!(
            log.rotate().is_err(),
            "pending records cannot be written, so nothing is rotated"
        );
        fs.set_room(u64::MAX);
        append(&log, 4).unwrap();
        assert_eq!((log.health(), log.pending_size()), (Health::Ok, 0));
        // The first rejected append was kept in memory. Appends while the log was blocked were not.
        let rejected = appended.len() as i64;
        let expected: Vec<i64> = appended.into_iter().chain([rejected, 4]).collect();
        assert_eq!(times(&fs, dir), expected, "room {room}");
    }
}

#[test]
fn a_shortage_of_open_files_does_not_poison() {
    let mut n_syncs = 0;
    for operation in 0..20 {
        let fs = MemFs::new();
        let log = open_log(
            Path::new("/"),
            Arc::new(fs.clone()),
            WalSync::Always,
            1 << 20,
        );
        fs.fail_at(fs.n_operations() + operation, Fault::OutOfFiles);
        let failed = append(&log, 1);
        // Only the directory is opened for its sync.
        if fs
            .failed()
            .is_some_and(|failed| failed.contains("sync directory"))
        {
            n_syncs += 1;
            assert!(matches!(failed, Err(Error::Io { .. })), "{failed:?}");
            append(&log, 2).unwrap();
            assert_eq!(times(&fs.crash(PowerCut::LosesAll), Path::new("/")), [1, 2]);
        }
    }
    assert!(n_syncs > 0, "an append syncs the directory of its new file");
}

#[test]
fn a_failed_sync_poisons() {
    let fs = MemFs::new();
    let log = open_log(
        Path::new("/"),
        Arc::new(fs.clone()),
        WalSync::Always,
        1 << 20,
    );
    append(&log, 1).unwrap();
    fs.set_sync_fails(true);
    assert!(matches!(append(&log, 2), Err(Error::Poisoned { .. })));
    fs.set_sync_fails(false);
    assert!(
        matches!(append(&log, 3), Err(Error::Poisoned { .. })),
        "a later success proves nothing"
    );
    assert!(matches!(log.rotate(), Err(Error::Poisoned { .. })));
    assert!(
        matches!(log.health(), Health::Poisoned(reason) if reason.contains("Input/output error"))
    );
}

#[test]
fn large_requests_are_split_into_records() {
    let dir = tempfile::tempdir().unwrap();
    let log = open_log(dir.path(), Arc::new(RealFs), WalSync::Never, 1 << 30);
    let mut column = SampleColumn::default();
    let n_samples = RECORD_SAMPLES_MAX as i64 * 2 + 1;
    (0..n_samples).for_each(|timestamp_ms| {
        column.push(
            SeriesRef(1),
            Sample {
                timestamp_ms,
                value: 0.1,
            },
        )
    });
    log.append_samples(&column);
    log.commit(log.end()).unwrap();
    assert_eq!(times(&RealFs, dir.path()).len(), n_samples as usize);
}

#[test]
fn a_cut_separates_earlier_from_later_records_and_numbers_continue_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let open = || open_log(dir.path(), Arc::new(RealFs), WalSync::Never, 60);
    let log = open();
    (0..5).for_each(|i| append(&log, i).unwrap());
    let mut column = SampleColumn::default();
    column.push(
        SeriesRef(1),
        Sample {
            timestamp_ms: 5,
            value: 0.5,
        },
    );
    log.append_samples(&column);
    let position = log.rotate().unwrap();
    append(&log, 6).unwrap();
    assert_eq!(
        times_in(&RealFs, dir.path(), |number| number < position.0),
        [0, 1, 2, 3, 4, 5],
        "pending records are before the rotation"
    );
    assert_eq!(
        times_in(&RealFs, dir.path(), |number| number >= position.0),
        [6]
    );
    let position = log.rotate().unwrap();
    assert!(
        log.rotate().unwrap() > position,
        "no two positions are the same"
    );
    let position = log.rotate().unwrap();
    log.checkpoint(position, |_| Ok(()), 7, std::iter::empty(), &[])
        .unwrap();
    assert_eq!(
        RealFs.list(dir.path()).unwrap(),
        [SegmentKind::Checkpoint.file_name(position.0)]
    );
    drop(log);
    append(&open(), 8).unwrap();
    assert_eq!(
        times_in(&RealFs, dir.path(), |number| number >= position.0),
        [8],
        "a new process writes after the rotation"
    );
}

/// Appends hold a lock that a rotation takes as well. Commits hold no lock.
#[test]
fn cuts_between_concurrent_requests_split_each_request_from_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let log = open_log(dir.path(), Arc::new(RealFs), WalSync::Always, 2000);
    let head = RwLock::new(0_i64);
    let append = || {
        let mut next = head.write().unwrap();
        let mut column = SampleColumn::default();
        column.push(
            SeriesRef(1),
            Sample {
                timestamp_ms: *next,
                value: 1.5,
            },
        );
        log.append_samples(&column);
        *next += 1;
        let end = log.end();
        drop(next);
        log.commit(end).unwrap();
    };
    let positions = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| (0..300).for_each(|_| append())))
            .collect();
        let mut positions: Vec<(CheckpointPosition, i64)> = Vec::new();
        while !writers
            .iter()
            .all(std::thread::ScopedJoinHandle::is_finished)
        {
            let next = head.write().unwrap();
            if positions.last().is_none_or(|&(_, last)| *next >= last + 10) {
                positions.push((log.rotate().unwrap(), *next));
            }
            drop(next);
            std::thread::yield_now();
        }
        positions
    });
    for (position, next) in positions {
        let before: BTreeSet<i64> = times_in(&RealFs, dir.path(), |number| number < position.0)
            .into_iter()
            .collect();
        assert!(before.into_iter().eq(0..next), "{position:?} at {next}");
    }
    assert_eq!(times(&RealFs, dir.path()), (0..900).collect::<Vec<_>>());
}
