//! The log of one shard of an epoch, while it is replayed.

use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use hashbrown::HashMap;

use super::{Place, Places, ReplayProgress, ReplayStats, Shared, Target, corrupt};
use crate::error::{Error, Result};
use crate::exemplars::{Exemplar, Restored};
use crate::fs::Fs;
use crate::head::{Head, Order, Replayed, SeriesRef};
use crate::labels::Labels;
use crate::metadata::Metadata;
use crate::options::WalOnCorruption;
use crate::sample::Sample;
use crate::shard::shard_of;
use crate::wal::checkpoint::{self, Entry};
use crate::wal::exemplars::{EXEMPLARS, decode_exemplars};
use crate::wal::frame::HEADER_SIZE;
use crate::wal::payload::unpack;
use crate::wal::reader::{Frame, Item, Opened, Reader};
use crate::wal::record::{self, SampleColumn};
use crate::wal::starts::{STARTS, Start, decode_starts};
use crate::wal::{SegmentKind, quarantine, samples, v1};

/// A log and what was found in it so far.
pub(super) struct Log {
    dir: PathBuf,
    /// The checkpoint to load, if there is one.
    checkpoint: Option<u64>,
    /// Numbers of the segments that count, ascending.
    series: Vec<u64>,
    samples: Vec<u64>,
    /// The series that the log defines.
    pub(super) places: Places,
    pub(super) next_ref: u64,
    pub(super) stats: ReplayStats,
    /// Files whose ends are to be cut, and where.
    torn: Vec<(PathBuf, u64)>,
}

/// Memory that a worker reuses from frame to frame.
#[derive(Default)]
struct Scratch {
    payload: Vec<u8>,
    column: SampleColumn,
    /// Samples of a record, by shard.
    by_shard: Vec<Vec<(u32, Sample)>>,
    /// Starts of samples of the next record, by shard, slot and time.
    starts: HashMap<(u16, u32, i64), Start>,
}

impl Log {
    /// Lists the files of a log and chooses its checkpoint.
    pub(super) fn open(dir: PathBuf, shared: &Shared<'_>) -> Result<Self> {
        let names = match shared.target.fs.list(&dir) {
            Ok(names) => names,
            // A crash came between the making of the epoch's folder and the shard's.
            Err(e) if e.kind() == ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(Error::io("list", &dir)(e)),
        };
        let numbers = |kind: SegmentKind| {
            let mut numbers: Vec<u64> = names.iter().filter_map(|name| kind.parse(name)).collect();
            numbers.sort_unstable();
            numbers
        };
        let mut log = Self {
            dir,
            checkpoint: None,
            series: numbers(SegmentKind::Series),
            samples: numbers(SegmentKind::Samples),
            places: Places::new(),
            next_ref: 0,
            stats: ReplayStats::default(),
            torn: Vec::new(),
        };
        log.choose_checkpoint(&numbers(SegmentKind::Checkpoint), shared)?;
        let cut = log.checkpoint.unwrap_or(0);
        log.series.retain(|&number| number >= cut);
        log.samples.retain(|&number| number >= cut);
        log.announce(shared.target)?;
        Ok(log)
    }

    /// Chooses the newest sound checkpoint: as long as an older one is there, so are the segments behind it. If there is
    /// none, the newest one, for what is sound of it.
    fn choose_checkpoint(&mut self, numbers: &[u64], shared: &Shared<'_>) -> Result<()> {
        let Target { fs, .. } = shared.target;
        self.checkpoint = numbers.last().copied();
        for &number in numbers.iter().rev() {
            let path = self.path(SegmentKind::Checkpoint, number);
            let Some(damage) = checkpoint::examine(*fs, &path, &shared.large)? else {
                self.checkpoint = Some(number);
                break;
            };
            tracing::error!(?path, offset = damage.offset, "the checkpoint of a log is damaged: {}", damage.reason);
            refuse(shared.target, &path, damage.offset, damage.reason)?;
            self.stats.n_damaged_checkpoints += 1;
            for range in damage.ranges {
                self.damaged(&path, range, shared.target)?;
            }
        }
        Ok(())
    }

    fn announce(&self, target: &Target<'_>) -> Result<()> {
        let kinds = [
            (SegmentKind::Checkpoint, self.checkpoint.as_slice()),
            (SegmentKind::Series, &self.series),
            (SegmentKind::Samples, &self.samples),
        ];
        for (kind, numbers) in kinds {
            for &number in numbers {
                let path = self.path(kind, number);
                let size = target.fs.open(&path).and_then(|file| file.size()).map_err(Error::io("open", &path))?;
                target.progress.expect_file(size);
            }
        }
        Ok(())
    }

    /// Loads the checkpoint, then the series segments.
    pub(super) fn definitions(&mut self, shared: &Shared<'_>) -> Result<()> {
        let Target { fs, progress, .. } = shared.target;
        if let Some(number) = self.checkpoint {
            let path = self.path(SegmentKind::Checkpoint, number);
            let size = fs.open(&path).and_then(|file| file.size()).map_err(Error::io("open", &path))?;
            checkpoint::load(*fs, &path, number, &shared.large, |entry| self.entry(entry, shared.target))?;
            self.read(size, progress);
            progress.finish_file();
        }
        let mut scratch = Scratch::default();
        for number in std::mem::take(&mut self.series) {
            self.segment(SegmentKind::Series, number, shared, |log, frame, _version| {
                let Some((record, payload)) = unpack(frame.record, frame.payload, &mut scratch.payload) else {
                    return Ok(None);
                };
                match record {
                    record::SERIES => log.series(payload, shared.target),
                    record::METADATA => Ok(log.metadata(payload, shared.target)),
                    _ => Ok(None),
                }
            })?;
        }
        Ok(())
    }

    /// Replays the samples segments; `earlier` knows the series of earlier epochs.
    pub(super) fn samples(&mut self, shared: &Shared<'_>, earlier: &Places) -> Result<()> {
        let mut scratch = Scratch::default();
        scratch.by_shard.resize_with(shared.target.shards.len(), Vec::new);
        for number in std::mem::take(&mut self.samples) {
            self.segment(SegmentKind::Samples, number, shared, |log, frame, version| {
                let decoded = match (frame.record, version) {
                    (STARTS, 2..) => return Ok(log.starts(frame.payload, earlier, &mut scratch.starts)),
                    (EXEMPLARS, 2..) => return Ok(log.exemplars(frame.payload, earlier, shared.target)),
                    (record::SAMPLES, 1) => v1::decode_samples(frame.payload, &mut scratch.column),
                    (record::SAMPLES, _) => samples::decode_samples(frame.payload, &mut scratch.column),
                    _ => None,
                };
                Ok(decoded.map(|()| log.apply(&mut scratch, earlier, shared.target)))
            })?;
        }
        Ok(())
    }

    /// Cuts off what crashes left half written.
    pub(super) fn cut_torn_tails(&self, fs: &dyn Fs) -> Result<()> {
        self.torn.iter().try_for_each(|(path, size)| fs.truncate(path, *size).map_err(Error::io("cut", path)))
    }

    /// Reads a segment and hands out its frames with the version of the file; `each` returns `None` if one does not decode.
    fn segment(
        &mut self,
        kind: SegmentKind,
        number: u64,
        shared: &Shared<'_>,
        mut each: impl FnMut(&mut Self, &Frame<'_>, u8) -> Result<Option<()>>,
    ) -> Result<()> {
        let Target { fs, progress, .. } = shared.target;
        let path = self.path(kind, number);
        match Reader::open(*fs, &path, kind, &shared.large)? {
            Opened::Empty => {}
            Opened::Damaged(size) => {
                refuse(shared.target, &path, 0, "no sound header")?;
                self.damaged(&path, 0..size, shared.target)?;
                self.read(size, progress);
            }
            Opened::Sound(mut reader) => {
                let version = reader.version();
                self.read(HEADER_SIZE as u64, progress);
                while let Some(item) = reader.next()? {
                    self.read(item.size(), progress);
                    match item {
                        Item::Frame(frame) => {
                            self.stats.n_missing_frames += frame.n_missing;
                            // The checksum is right, so whoever wrote it meant something that this program does not know.
                            let reason = || format!("frame {} holds no record that this program knows", frame.sequence);
                            each(self, &frame, version)?
                                .ok_or_else(|| corrupt(path.clone(), frame.offset, reason()))?;
                        }
                        Item::Damaged(range) => {
                            refuse(shared.target, &path, range.start, "no sound frame")?;
                            self.damaged(&path, range, shared.target)?;
                        }
                        Item::Torn(range) => self.torn(&path, range),
                    }
                }
            }
        }
        progress.finish_file();
        Ok(())
    }

    fn entry(&mut self, entry: Entry, target: &Target<'_>) -> Result<()> {
        match entry {
            Entry::Series(series, labels, last_ms) => {
                let place = self.define(series, &labels, target)?;
                if last_ms != i64::MIN {
                    target.shards[usize::from(place.shard)].head_mut().set_last(place.slot, last_ms);
                }
            }
            Entry::LostSeries => self.stats.n_lost_series += 1,
            Entry::Exemplars((labels, exemplars)) => {
                for (number, exemplar) in exemplars {
                    self.exemplar(number, exemplar, target, || Some(labels.clone()));
                }
            }
            Entry::Metadata(family, metadata) => set_metadata(target, &family, metadata),
            Entry::NextRef(next_ref) => self.next_ref = self.next_ref.max(next_ref),
        }
        Ok(())
    }

    fn series(&mut self, payload: &[u8], target: &Target<'_>) -> Result<Option<()>> {
        let mut refused = Ok(());
        let decoded = record::decode_series(payload, |series, labels| {
            if refused.is_ok() {
                refused = self.define(series, &labels, target).map(|_place| ());
            }
        });
        refused.map(|()| decoded)
    }

    fn define(&mut self, series: SeriesRef, labels: &Labels, target: &Target<'_>) -> Result<Place> {
        self.next_ref = self.next_ref.max(series.0.saturating_add(1));
        let shard = shard_of(labels, target.shards.len());
        let (slot, _new) = target.shards[shard].head_mut().find_or_create(labels, series)?;
        let place = Place { shard: shard as u16, slot };
        if self.places.insert(series, place).is_none() {
            self.stats.n_series += 1;
        }
        Ok(place)
    }

    fn metadata(&self, payload: &[u8], target: &Target<'_>) -> Option<()> {
        record::decode_metadata(payload, |family, metadata| set_metadata(target, family, metadata))
    }

    fn starts(&self, payload: &[u8], earlier: &Places, starts: &mut HashMap<(u16, u32, i64), Start>) -> Option<()> {
        starts.clear();
        decode_starts(payload, |series, timestamp_ms, start| {
            if let Some(Place { shard, slot }) = self.places.get(&series).or_else(|| earlier.get(&series)) {
                starts.insert((*shard, *slot, timestamp_ms), start);
            }
        })
    }

    /// Applies the samples that were decoded into `scratch.column`.
    fn apply(&mut self, scratch: &mut Scratch, earlier: &Places, target: &Target<'_>) {
        target.progress.add_samples(scratch.column.len() as u64);
        for (&series, &sample) in scratch.column.refs.iter().zip(&scratch.column.samples) {
            // A number that only a sample knows must not be given to another series either.
            self.next_ref = self.next_ref.max(series.0.saturating_add(1));
            match self.places.get(&series).or_else(|| earlier.get(&series)) {
                Some(place) => scratch.by_shard[usize::from(place.shard)].push((place.slot, sample)),
                None => self.stats.n_orphaned += 1,
            }
        }
        let Scratch { by_shard, starts, .. } = scratch;
        let shards = (0..).zip(target.shards).zip(by_shard);
        for ((idx, shard), samples) in shards.filter(|(_, samples)| !samples.is_empty()) {
            let mut head = shard.head_mut();
            for (slot, sample) in samples.drain(..) {
                let replayed = head.replay(slot, sample);
                // Fast path: no starts at all.
                if !starts.is_empty()
                    && let Some(&start) = starts.get(&(idx, slot, sample.timestamp_ms))
                {
                    replay_start(&mut head, slot, sample.timestamp_ms, start, replayed);
                }
                match replayed {
                    Replayed::New => self.stats.n_samples += 1,
                    Replayed::Repeated => self.stats.n_repeated += 1,
                    Replayed::Conflicting => self.stats.n_conflicting += 1,
                }
            }
        }
        starts.clear();
    }

    fn exemplars(&mut self, payload: &[u8], earlier: &Places, target: &Target<'_>) -> Option<()> {
        decode_exemplars(payload, |number, series, exemplar| {
            self.next_ref = self.next_ref.max(series.0.saturating_add(1));
            let place = self.places.get(&series).or_else(|| earlier.get(&series)).copied();
            let labels = |Place { shard, slot }: Place| target.shards[usize::from(shard)].head().labels(slot);
            self.exemplar(number, exemplar, target, || place.map(labels));
        })
    }

    fn exemplar(
        &mut self,
        number: u64,
        exemplar: Exemplar,
        target: &Target<'_>,
        series: impl FnOnce() -> Option<Labels>,
    ) {
        match target.exemplars.restore(number, exemplar, series) {
            Restored::Done => self.stats.n_exemplars += 1,
            Restored::Orphaned => self.stats.n_orphaned += 1,
            Restored::Passed => {}
        }
    }

    /// Notes what a crash left half written; it is cut off when all has been read.
    fn torn(&mut self, path: &Path, range: Range<u64>) {
        tracing::info!(?path, offset = range.start, bytes = range.end - range.start, "a segment has a torn end");
        self.stats.torn_bytes += range.end - range.start;
        self.torn.push((path.to_owned(), range.start));
    }

    fn damaged(&mut self, path: &Path, range: Range<u64>, target: &Target<'_>) -> Result<()> {
        let bytes = range.end - range.start;
        tracing::warn!(?path, offset = range.start, bytes, "skipped damaged bytes of the log");
        self.stats.damaged_bytes += bytes;
        quarantine::keep(target.fs, target.quarantine, path, range)
    }

    fn read(&mut self, n_bytes: u64, progress: &ReplayProgress) {
        self.stats.read_bytes += n_bytes;
        progress.add_bytes(n_bytes);
    }

    fn path(&self, kind: SegmentKind, number: u64) -> PathBuf {
        self.dir.join(kind.file_name(number))
    }
}

/// Sets the start of a sample as it was set when the sample came. A late one that was left out has none; those behind an
/// in-order one need what it said.
fn replay_start(head: &mut Head, slot: u32, timestamp_ms: i64, start: Start, replayed: Replayed) {
    if replayed == Replayed::New || start.order == Order::Newest {
        head.set_start(slot, timestamp_ms, start.start_ms, start.order);
    }
}

fn set_metadata(target: &Target<'_>, family: &str, metadata: Metadata) {
    let mut all = target.metadata.lock().unwrap_or_else(PoisonError::into_inner);
    all.insert(family.to_owned(), metadata);
}

fn refuse(target: &Target<'_>, path: &Path, offset: u64, reason: &str) -> Result<()> {
    match target.on_corruption {
        WalOnCorruption::Quarantine => Ok(()),
        WalOnCorruption::Refuse => Err(corrupt(path.to_owned(), offset, reason)),
    }
}
