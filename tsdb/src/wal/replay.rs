//! Replay: from the log back to the head.
//!
//! The logs of an epoch are replayed at the same time by a bounded number of workers, definitions first, then samples.
//! A worker holds one segment in memory. As long as the number of shards has not changed, a log leads to one shard only
//! and workers share nothing; after a change a log leads to several, whose locks sort that out.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use hashbrown::HashMap;
use rayon::prelude::*;

use super::frame::BadHeader;
use super::reader::{Item, scan};
use super::record::{self, SampleColumn};
use super::{Epoch, SegmentKind, frame};
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::head::SeriesRef;
use crate::metadata::Metadata;
use crate::sample::Sample;
use crate::shard::{Shard, shard_of};

/// The largest segment that is read. Writers close segments far below it; one group commit may overshoot.
const SEGMENT_READ_SIZE_MAX: u64 = 4 << 30;

/// What a replay found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplayStats {
    /// Series defined.
    pub n_series: u64,
    /// Samples restored.
    pub n_samples: u64,
    /// Samples that were there already.
    pub n_repeated: u64,
    /// Samples whose series is not defined: their definition was damaged, or lost in a power cut.
    pub n_orphaned: u64,
    /// Bytes cut off the ends of segments: what was being written when the process ended.
    pub torn_bytes: u64,
    /// Bytes inside segments that are no sound record. They were copied to the quarantine folder.
    pub damaged_bytes: u64,
    /// Bytes read.
    pub read_bytes: u64,
}

/// Where a replay leads.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    /// The shards of the store that is being opened.
    pub(crate) shards: &'a [Shard],
    /// Metadata by metric family.
    pub(crate) metadata: &'a Mutex<BTreeMap<String, Metadata>>,
    /// The folder for damaged bytes.
    pub(crate) quarantine: &'a Path,
    /// The disk.
    pub(crate) fs: &'a dyn Fs,
}

/// Replays all epochs below `wal_dir`, oldest first, and returns the least number that no series has.
///
/// # Errors
/// [`Error::Io`] if a file cannot be read, [`Error::Version`] if one is of a newer format. Damage is no error.
pub(crate) fn replay(wal_dir: &Path, epochs: &[Epoch], target: &Target<'_>) -> Result<(ReplayStats, u64)> {
    let mut total = ReplayStats::default();
    let mut next_ref = 0;
    let mut earlier = Places::new();
    for epoch in epochs {
        let replay_log = |shard| {
            let mut log = Log::new(epoch.shard_dir(wal_dir, shard), target, &earlier);
            log.replay().map(|()| (log.stats, log.next_ref, log.places))
        };
        let logs: Result<Vec<_>> = (0..epoch.shards).into_par_iter().map(replay_log).collect();
        for (stats, log_next_ref, places) in logs? {
            total.add(stats);
            next_ref = next_ref.max(log_next_ref);
            if Some(epoch) != epochs.last() {
                earlier.extend(places);
            }
        }
    }
    Ok((total, next_ref))
}

impl ReplayStats {
    fn add(&mut self, other: Self) {
        self.n_series += other.n_series;
        self.n_samples += other.n_samples;
        self.n_repeated += other.n_repeated;
        self.n_orphaned += other.n_orphaned;
        self.torn_bytes += other.torn_bytes;
        self.damaged_bytes += other.damaged_bytes;
        self.read_bytes += other.read_bytes;
    }
}

/// Shard and slot of series.
type Places = HashMap<SeriesRef, (usize, u32)>;

/// The log of one shard of an epoch, while it is replayed.
struct Log<'a> {
    dir: PathBuf,
    target: &'a Target<'a>,
    /// The series that the log defines.
    places: Places,
    /// Those of earlier epochs: a series is defined once, in whatever epoch it first came.
    earlier: &'a Places,
    /// Samples of a record, by shard.
    by_shard: Vec<Vec<(u32, Sample)>>,
    column: SampleColumn,
    next_ref: u64,
    stats: ReplayStats,
}

impl<'a> Log<'a> {
    fn new(dir: PathBuf, target: &'a Target<'a>, earlier: &'a Places) -> Self {
        Self {
            dir,
            target,
            places: Places::new(),
            earlier,
            by_shard: target.shards.iter().map(|_| Vec::new()).collect(),
            column: SampleColumn::default(),
            next_ref: 0,
            stats: ReplayStats::default(),
        }
    }

    fn replay(&mut self) -> Result<()> {
        let names = match self.target.fs.list(&self.dir) {
            Ok(names) => names,
            // A crash came between the making of the epoch's folder and the shard's.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(Error::io("list", &self.dir)(e)),
        };
        for kind in [SegmentKind::Series, SegmentKind::Samples] {
            let mut numbers: Vec<u64> = names.iter().filter_map(|name| kind.parse(name)).collect();
            numbers.sort_unstable();
            for number in numbers {
                self.segment(kind, &self.dir.join(kind.file_name(number)))?;
            }
        }
        Ok(())
    }

    fn segment(&mut self, kind: SegmentKind, path: &Path) -> Result<()> {
        let bytes = self.target.fs.read(path, SEGMENT_READ_SIZE_MAX).map_err(Error::io("read", path))?;
        self.stats.read_bytes += bytes.len() as u64;
        let items = match scan(&bytes, kind) {
            Ok(items) => items,
            Err(BadHeader::Version(found)) => {
                return Err(Error::Version {
                    path: path.to_owned(),
                    found: found.into(),
                    supported: frame::VERSION.into(),
                });
            }
            // A file that never got its header holds nothing.
            Err(BadHeader::Damaged) if bytes.len() < frame::SEGMENT_HEADER_SIZE => return Ok(()),
            Err(BadHeader::Damaged) => return self.damaged(path, &bytes, 0..bytes.len()),
        };
        for item in items {
            match item {
                Item::Frame(frame) => {
                    let decoded = match (kind, frame.record) {
                        (SegmentKind::Series, record::SERIES) => self.series(frame.payload)?,
                        (SegmentKind::Series, record::METADATA) => self.metadata(frame.payload),
                        (SegmentKind::Samples, record::SAMPLES) => self.samples(frame.payload),
                        _ => None,
                    };
                    if decoded.is_none() {
                        // The checksum is right, so whoever wrote it meant something that this program does not know.
                        let reason = format!("frame {} holds no record that this program knows", frame.sequence);
                        return Err(Error::Corrupt { path: path.to_owned(), offset: frame.sequence, reason });
                    }
                }
                Item::Damaged(range) => self.damaged(path, &bytes, range)?,
                Item::Torn(range) => self.torn(path, range)?,
            }
        }
        Ok(())
    }

    fn series(&mut self, payload: &[u8]) -> Result<Option<()>> {
        let mut refused = Ok(());
        let decoded = record::decode_series(payload, |series, labels| {
            self.next_ref = self.next_ref.max(series.0.saturating_add(1));
            let shard = shard_of(&labels, self.target.shards.len());
            match self.target.shards[shard].head_mut().find_or_create(&labels, series) {
                Ok((slot, _)) => {
                    self.places.insert(series, (shard, slot));
                    self.stats.n_series += 1;
                }
                Err(e) => refused = Err(e),
            }
        });
        refused.map(|()| decoded)
    }

    fn metadata(&mut self, payload: &[u8]) -> Option<()> {
        let mut metadata = self.target.metadata.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        record::decode_metadata(payload, |family, new| {
            metadata.insert(family.to_owned(), new);
        })
    }

    fn samples(&mut self, payload: &[u8]) -> Option<()> {
        record::decode_samples(payload, &mut self.column)?;
        for (&series, &sample) in self.column.refs.iter().zip(&self.column.samples) {
            // A number that only a sample knows must not be given to another series either.
            self.next_ref = self.next_ref.max(series.0.saturating_add(1));
            match self.places.get(&series).or_else(|| self.earlier.get(&series)) {
                Some(&(shard, slot)) => self.by_shard[shard].push((slot, sample)),
                None => self.stats.n_orphaned += 1,
            }
        }
        for (shard, samples) in self.target.shards.iter().zip(&mut self.by_shard).filter(|(_, s)| !s.is_empty()) {
            let mut head = shard.head_mut();
            for (slot, sample) in samples.drain(..) {
                if head.replay(slot, sample) {
                    self.stats.n_samples += 1;
                } else {
                    self.stats.n_repeated += 1;
                }
            }
        }
        Some(())
    }

    /// Cuts what a crash left half written.
    fn torn(&mut self, path: &Path, range: Range<usize>) -> Result<()> {
        tracing::info!(?path, offset = range.start, bytes = range.len(), "cut a torn end off a segment");
        self.stats.torn_bytes += range.len() as u64;
        self.target.fs.truncate(path, range.start as u64).map_err(Error::io("cut", path))
    }

    /// Keeps damaged bytes aside, under a name that says where they were.
    fn damaged(&mut self, path: &Path, bytes: &[u8], range: Range<usize>) -> Result<()> {
        let Target { quarantine, fs, .. } = self.target;
        tracing::warn!(?path, offset = range.start, bytes = range.len(), "skipped damaged bytes of a segment");
        self.stats.damaged_bytes += range.len() as u64;
        fs.create_dir(quarantine).map_err(Error::io("create", quarantine))?;
        let parts: Vec<_> = path.iter().rev().take(3).map(|part| part.to_string_lossy()).collect();
        let copy = quarantine.join(format!("{}.{}.{}.at-{}", parts[2], parts[1], parts[0], range.start));
        match fs.create(&copy) {
            Ok(file) => file.append(&bytes[range]).and_then(|()| file.sync()).map_err(Error::io("write", &copy)),
            // Kept at an earlier start.
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            Err(e) => Err(Error::io("create", &copy)(e)),
        }
    }
}
