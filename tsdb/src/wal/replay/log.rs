//! One log of an epoch, while it is replayed.

use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::definitions::{OfCheckpoint, OfSegments};
use super::gathered::Gathered;
use super::places::{Hint, Place, Places};
use super::starts::RecordStarts;
use super::{ReplayProgress, ReplayStats, Shared, Target, corrupt};
use crate::error::{Error, Interrupt, Result};
use crate::fs::Fs;
use crate::head::{AnySample, SeriesRef};
use crate::labels::{Labels, Metadata};
use crate::options::WalOnCorruption;
use crate::sample::exemplar::Exemplar;
use crate::shard::shard_of;
use crate::store::exemplars::Restored;
use crate::wal::checkpoint::Entry;
use crate::wal::exemplars::{EXEMPLARS, decode_exemplars};
use crate::wal::frame::HEADER_SIZE;
use crate::wal::histograms::{LoggedHistogram, decode_histograms};
use crate::wal::payload::Unpacker;
use crate::wal::reader::{Frame, Item, Opened, Reader};
use crate::wal::record::{DefinedLabel, SampleColumn};
use crate::wal::starts::{STARTS, decode_starts};
use crate::wal::{SegmentKind, checkpoint, quarantine, record, samples};

/// A log and what was found in it so far.
pub(super) struct Log {
    dir: PathBuf,
    /// The shard of all its series, if there are as many shards as logs.
    home: Option<usize>,
    /// The checkpoint to load, if there is one.
    checkpoint: Option<u64>,
    /// Numbers of the segments that count, ascending.
    series: Vec<u64>,
    samples: Vec<u64>,
    /// A number above those of all samples segments that there ever were.
    pub(super) next_samples: u64,
    /// The series that the log defines.
    pub(super) places: Places,
    pub(super) next_ref: u64,
    pub(super) stats: ReplayStats,
    /// Files whose ends are to be cut, and where.
    torn: Vec<(PathBuf, u64)>,
}

/// Memory that a worker reuses from frame to frame.
struct Scratch<'a> {
    column: SampleColumn,
    /// Of the log and of earlier ones.
    hints: (Hint, Hint),
    /// Floats of the records so far.
    gathered: Gathered<'a>,
    /// Starts of samples of the next record.
    starts: RecordStarts,
}

impl Log {
    /// Lists the files of a log and chooses its checkpoint.
    pub(super) fn open(dir: PathBuf, home: Option<usize>, shared: &Shared<'_>) -> Result<Self> {
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
            home,
            checkpoint: None,
            series: numbers(SegmentKind::Series),
            samples: numbers(SegmentKind::Samples),
            next_samples: 0,
            places: Places::default(),
            next_ref: 0,
            stats: ReplayStats::default(),
            torn: Vec::new(),
        };
        let last = log.samples.last().map_or(0, |last| last.saturating_add(1));
        log.next_samples = numbers(SegmentKind::Checkpoint).last().map_or(last, |&cut| last.max(cut));
        let cut = log.choose_checkpoint(&numbers(SegmentKind::Checkpoint), shared)?;
        log.series.retain(|&number| number >= cut);
        log.samples.retain(|&number| number >= cut);
        log.announce(shared.target)?;
        Ok(log)
    }

    /// Chooses the newest sound checkpoint: as long as an older one is there, so are the segments behind it. If there is
    /// none, the newest one, for what is sound of it. Returns the number of the first segment that counts.
    fn choose_checkpoint(&mut self, numbers: &[u64], shared: &Shared<'_>) -> Result<u64> {
        let Target { fs, .. } = shared.target;
        let mut begun = None;
        for &number in numbers.iter().rev() {
            let path = self.path(SegmentKind::Checkpoint, number);
            let Some(damage) = checkpoint::examine(*fs, &path, &shared.large)? else {
                self.checkpoint = Some(number);
                return Ok(number);
            };
            tracing::error!(?path, offset = damage.offset, "the checkpoint of a log is damaged: {}", damage.reason);
            refuse(shared.target, &path, damage.offset, damage.reason)?;
            self.stats.n_damaged_checkpoints += 1;
            if damage.begins {
                begun = begun.or(Some(number));
            }
            for range in damage.ranges {
                self.damaged(&path, range, shared.target)?;
            }
        }
        self.checkpoint = begun.or(numbers.last().copied());
        // A file that is no checkpoint but for its name does not make segments go.
        Ok(begun.unwrap_or(0))
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
            let mut loading = OfCheckpoint::default();
            checkpoint::load(*fs, &path, number, &shared.large, |entry| {
                self.entry(entry, &mut loading, shared.target)
            })?;
            self.read(size, progress);
            progress.finish_file();
        }
        let (mut loading, mut unpacker) = (OfSegments::default(), Unpacker::default());
        for number in std::mem::take(&mut self.series) {
            self.segment(SegmentKind::Series, number, shared, |log, frame| {
                let Some((record, payload)) = unpacker.unpack(frame.record, frame.payload) else { return Ok(None) };
                match record {
                    record::SERIES => log.series(payload, &mut loading, shared.target),
                    record::METADATA => Ok(log.metadata(payload, shared.target)),
                    _ => Ok(None),
                }
            })?;
        }
        self.places.sort();
        self.stats.n_series += self.places.len() as u64;
        Ok(())
    }

    /// Replays the samples segments; `earlier` knows the series of earlier epochs.
    pub(super) fn samples(&mut self, shared: &Shared<'_>, earlier: &Places) -> Result<()> {
        let Target { shards, gathered_bytes, .. } = *shared.target;
        let mut unpacker = Unpacker::default();
        let mut scratch = Scratch {
            column: SampleColumn::default(),
            hints: Default::default(),
            // A series that an earlier epoch defined may be anywhere, as far as this log knows.
            gathered: Gathered::new(shards, self.home.filter(|_| earlier.len() == 0), gathered_bytes),
            starts: RecordStarts::default(),
        };
        for number in std::mem::take(&mut self.samples) {
            let n_orphaned = self.stats.n_orphaned;
            self.segment(SegmentKind::Samples, number, shared, |log, frame| {
                let Some((record, payload)) = unpacker.unpack(frame.record, frame.payload) else { return Ok(None) };
                let decoded = match record {
                    record::HISTOGRAMS => {
                        return Ok(log.histograms(payload, earlier, &mut scratch, shared.target));
                    }
                    STARTS => return Ok(log.starts(payload, earlier, &mut scratch)),
                    EXEMPLARS => return Ok(log.exemplars(payload, earlier, &mut scratch, shared.target)),
                    record::SAMPLES => samples::decode_samples(payload, &mut scratch.column),
                    _ => None,
                };
                Ok(decoded.map(|()| log.apply(&mut scratch, earlier, shared.target)))
            })?;
            // The next flush removes the log: what has no place in the head is not to go with it.
            if self.stats.n_orphaned > n_orphaned {
                quarantine::keep_whole(
                    shared.target.fs,
                    shared.target.quarantine,
                    &self.path(SegmentKind::Samples, number),
                )?;
            }
        }
        scratch.gathered.drain(&mut self.stats);
        Ok(())
    }

    /// Cuts off what crashes left half written.
    pub(super) fn cut_torn_tails(&self, fs: &dyn Fs) -> Result<()> {
        self.torn.iter().try_for_each(|(path, size)| fs.truncate(path, *size).map_err(Error::io("cut", path)))
    }

    /// Reads a segment and hands out its frames; `each` returns `None` if one does not decode.
    fn segment(
        &mut self,
        kind: SegmentKind,
        number: u64,
        shared: &Shared<'_>,
        mut each: impl FnMut(&mut Self, &Frame<'_>) -> Result<Option<()>>,
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
                self.read(HEADER_SIZE as u64, progress);
                while let Some(item) = reader.next()? {
                    if shared.target.stop.load(Ordering::Relaxed) {
                        return Err(Error::Interrupted(Interrupt::Shutdown));
                    }
                    self.read(item.size(), progress);
                    match item {
                        Item::Frame(frame) => {
                            self.stats.n_missing_frames += frame.n_missing;
                            // The checksum is right, so whoever wrote it meant something that this program does not know.
                            let reason = || unknown(frame.sequence);
                            each(self, &frame)?.ok_or_else(|| corrupt(path.clone(), frame.offset, reason()))?;
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

    fn entry(&mut self, entry: Entry<'_>, loading: &mut OfCheckpoint, target: &Target<'_>) -> Result<()> {
        match entry {
            Entry::Series(described) => {
                let (shard, labels) = self.shard(|| described.labels(), target);
                let mut head = target.shards[shard].head_mut();
                let slot = match labels {
                    None => loading.load(&mut head, described)?,
                    Some(labels) => head.load_labels(&labels, described.series)?,
                };
                if described.last_ms != i64::MIN {
                    head.set_last(slot, described.last_ms);
                }
                drop(head);
                self.defined(described.series, Place { shard: shard as u16, slot });
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

    fn series(&mut self, payload: &[u8], loading: &mut OfSegments, target: &Target<'_>) -> Result<Option<()>> {
        let mut refused = Ok(());
        let decoded = record::decode_series(payload, |series, labels| {
            if refused.is_ok() {
                refused = self.define(series, labels, loading, target);
            }
        });
        refused.map(|()| decoded)
    }

    fn define(
        &mut self,
        series: SeriesRef,
        labels: &[DefinedLabel<'_>],
        loading: &mut OfSegments,
        target: &Target<'_>,
    ) -> Result<()> {
        let (shard, set) = self.shard(|| record::set_of(labels), target);
        let mut head = target.shards[shard].head_mut();
        let slot = match set {
            None => loading.load(&mut head, series, labels)?,
            Some(set) => head.load_labels(&set, series)?,
        };
        drop(head);
        self.defined(series, Place { shard: shard as u16, slot });
        Ok(())
    }

    /// Returns the shard of a series, and its labels if these had to be asked.
    fn shard(&self, labels: impl FnOnce() -> Labels, target: &Target<'_>) -> (usize, Option<Labels>) {
        match self.home {
            Some(home) => (home, None),
            None => {
                let labels = labels();
                (shard_of(&labels, target.shards.len()), Some(labels))
            }
        }
    }

    fn defined(&mut self, series: SeriesRef, place: Place) {
        self.next_ref = self.next_ref.max(series.0.saturating_add(1));
        self.places.push(series, place);
    }

    fn metadata(&self, payload: &[u8], target: &Target<'_>) -> Option<()> {
        record::decode_metadata(payload, |family, metadata| set_metadata(target, family, metadata))
    }

    fn starts(&self, payload: &[u8], earlier: &Places, scratch: &mut Scratch<'_>) -> Option<()> {
        let Scratch { starts, hints, .. } = scratch;
        starts.clear();
        let is_held = decode_starts(payload, |series, timestamp_ms, start| {
            if let Some(place) = self.place(series, earlier, hints) {
                starts.add(place, timestamp_ms, start);
            }
        })?;
        starts.set_held(is_held);
        Some(())
    }

    /// Applies the samples that were decoded into `scratch.column`.
    fn apply(&mut self, scratch: &mut Scratch<'_>, earlier: &Places, target: &Target<'_>) {
        target.progress.add_samples(scratch.column.len() as u64);
        let has_starts = !scratch.starts.is_empty();
        if has_starts {
            scratch.gathered.drain(&mut self.stats);
        }
        let (mut newest_ms, mut highest) = (i64::MIN, SeriesRef(0));
        let Scratch { column, hints, gathered, starts } = scratch;
        for (&series, &sample) in column.refs.iter().zip(&column.samples) {
            highest = highest.max(series);
            let Some(place) = self.places.find(series, &mut hints.0).or_else(|| earlier.find(series, &mut hints.1))
            else {
                self.stats.n_orphaned += 1;
                continue;
            };
            newest_ms = newest_ms.max(sample.timestamp_ms);
            if has_starts {
                self.apply_one(place, AnySample::Float(sample), starts, target);
            } else {
                gathered.push(place, sample, &mut self.stats);
            }
        }
        // A number that only a sample knows must not be given to another series either.
        self.next_ref = self.next_ref.max(highest.0.saturating_add(1));
        target.newest_ms.fetch_max(newest_ms, Ordering::Relaxed);
        starts.clear();
    }

    /// Applies a sample that does not go through what is gathered, of which nothing is left.
    fn apply_one(&mut self, place: Place, sample: AnySample<'_>, starts: &RecordStarts, target: &Target<'_>) {
        let mut head = target.shards[usize::from(place.shard)].head_mut();
        let replayed = head.replay(place.slot, sample);
        starts.apply(&mut head, place, sample.timestamp_ms(), replayed);
        self.stats.count(replayed, 1);
    }

    fn exemplars(
        &mut self,
        payload: &[u8],
        earlier: &Places,
        scratch: &mut Scratch<'_>,
        target: &Target<'_>,
    ) -> Option<()> {
        decode_exemplars(payload, |number, series, exemplar| {
            self.next_ref = self.next_ref.max(series.0.saturating_add(1));
            let place = self.place(series, earlier, &mut scratch.hints);
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

    fn place(&self, series: SeriesRef, earlier: &Places, hints: &mut (Hint, Hint)) -> Option<Place> {
        self.places.find(series, &mut hints.0).or_else(|| earlier.find(series, &mut hints.1))
    }

    fn histograms(
        &mut self,
        payload: &[u8],
        earlier: &Places,
        scratch: &mut Scratch<'_>,
        target: &Target<'_>,
    ) -> Option<()> {
        let Scratch { starts, hints, gathered, .. } = scratch;
        // Of a float and a histogram of one time the first stands.
        gathered.drain(&mut self.stats);
        let decoded = decode_histograms(payload, |of| {
            target.progress.add_samples(1);
            self.next_ref = self.next_ref.max(of.series.0.saturating_add(1));
            match self.place(of.series, earlier, hints) {
                Some(place) => self.apply_histogram(&of, place, starts, target),
                None => self.stats.n_orphaned += 1,
            }
        });
        starts.clear();
        decoded
    }

    fn apply_histogram(&mut self, of: &LoggedHistogram, place: Place, starts: &RecordStarts, target: &Target<'_>) {
        target.newest_ms.fetch_max(of.timestamp_ms, Ordering::Relaxed);
        self.apply_one(place, AnySample::Histogram(of.timestamp_ms, &of.histogram), starts, target);
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

fn set_metadata(target: &Target<'_>, family: &str, metadata: Metadata) {
    let mut all = target.metadata.lock().unwrap_or_else(PoisonError::into_inner);
    all.insert(family.to_owned(), metadata);
}

fn refuse(target: &Target<'_>, path: &Path, offset: u64, reason: &str) -> Result<()> {
    match target.on_corruption {
        WalOnCorruption::Quarantine => Ok(()),
        WalOnCorruption::Refuse => {
            let reason =
                format!("{reason}; restore the file, or open with damage put in quarantine to go on without it");
            Err(corrupt(path.to_owned(), offset, reason))
        }
    }
}

fn unknown(sequence: u64) -> String {
    format!(
        "frame {sequence} holds no record that this program knows; open it with the program that wrote it, or move the file \
         away to go on without it"
    )
}
