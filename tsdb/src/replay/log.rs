//! Replay of one log of an epoch.

use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::definitions::{CheckpointLoader, SegmentLoader};
use super::locations::{LookupHint, SeriesLocation, SeriesLocations};
use super::sample_bins::SampleBins;
use super::start_timestamps::RecordStartTimestamps;
use super::stats::ReplayStats;
use super::target::Target;
use crate::error::{Error, Interrupt, Result};
use crate::fs::Fs;
use crate::head::AnySample;
use crate::labels::Labels;
use crate::labels::Metadata;
use crate::options::WalOnCorruption;
use crate::sample::SeriesRef;
use crate::sample::exemplar::Exemplar;
use crate::shard::exemplars::Restored;
use crate::shard::shard_of;
use crate::wal::checkpoint::{self, Entry};
use crate::wal::reader::{Frame, Item, Opened, Reader};
use crate::wal::record::{
    self, DefinedLabel, EXEMPLARS, START_TIMESTAMPS, SampleColumn, decode_exemplars, decode_histograms,
    decode_start_timestamps,
};
use crate::wal::{Decompressor, HEADER_SIZE, SegmentKind, quarantine};

/// A log, and what the replay has found in it so far.
pub(super) struct LogReplay {
    dir: PathBuf,
    /// The shard of all its series, if there are as many shards as logs.
    home: Option<usize>,
    /// The checkpoint to load, if any.
    checkpoint: Option<u64>,
    /// Numbers of the live segments, ascending.
    series: Vec<u64>,
    samples: Vec<u64>,
    /// Above the numbers of all samples segments that have ever existed.
    pub(super) next_samples: u64,
    /// The series that the log defines.
    pub(super) locations: SeriesLocations,
    pub(super) next_ref: u64,
    pub(super) stats: ReplayStats,
    /// Files with a torn tail, and where it begins.
    torn: Vec<(PathBuf, u64)>,
}

/// The state of a worker that replays samples segments. Its memory is reused for all frames.
struct Scratch<'a> {
    target: &'a Target<'a>,
    /// The series of earlier epochs.
    earlier: &'a SeriesLocations,
    column: SampleColumn,
    /// For lookups in the log's own series and in earlier ones.
    hints: (LookupHint, LookupHint),
    /// Floats of previous records.
    bins: SampleBins<'a>,
    /// Start timestamps of the samples of the next record.
    start_timestamps: RecordStartTimestamps,
}

impl LogReplay {
    /// Lists the files of a log and chooses its checkpoint.
    pub(super) fn open(dir: PathBuf, home: Option<usize>, target: &Target<'_>) -> Result<Self> {
        let names = match target.fs.list(&dir) {
            Ok(names) => names,
            // The process ended after it created the epoch's folder and before it created that of the log.
            Err(e) if e.kind() == ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(Error::io("list", &dir)(e)),
        };
        let checkpoints = SegmentKind::Checkpoint.numbers(&names);
        let mut log = Self {
            dir,
            home,
            checkpoint: None,
            series: SegmentKind::Series.numbers(&names),
            samples: SegmentKind::Samples.numbers(&names),
            next_samples: 0,
            locations: SeriesLocations::default(),
            next_ref: 0,
            stats: ReplayStats::default(),
            torn: Vec::new(),
        };
        let last = log.samples.last().map_or(0, |last| last.saturating_add(1));
        log.next_samples = checkpoints.last().map_or(last, |&cut| last.max(cut));
        let cut = log.choose_checkpoint(&checkpoints, target)?;
        log.series.retain(|&number| number >= cut);
        log.samples.retain(|&number| number >= cut);
        log.announce(target)?;
        Ok(log)
    }

    /// Chooses the newest valid checkpoint: as long as an older one exists, so do the segments after it. Without a valid
    /// one, chooses the newest, for its valid frames. Returns the number of the first live segment.
    fn choose_checkpoint(&mut self, numbers: &[u64], target: &Target<'_>) -> Result<u64> {
        let mut begun = None;
        for &number in numbers.iter().rev() {
            let path = self.path(SegmentKind::Checkpoint, number);
            let Some(damage) = checkpoint::examine(target.fs, &path, &target.large_frames)? else {
                self.checkpoint = Some(number);
                return Ok(number);
            };
            tracing::error!(?path, offset = damage.offset, "a WAL checkpoint is damaged: {}", damage.reason);
            refuse(target, &path, damage.offset, damage.reason)?;
            self.stats.n_damaged_checkpoints += 1;
            if damage.begins {
                begun = begun.or(Some(number));
            }
            for range in damage.ranges {
                self.damaged(&path, range, target)?;
            }
        }
        self.checkpoint = begun.or(numbers.last().copied());
        // Without its first frame, only a file's name says that it is a checkpoint: it does not replace segments.
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
                target.progress.expect_file(file_size(target.fs, &self.path(kind, number))?);
            }
        }
        Ok(())
    }

    /// Loads the checkpoint, then the series segments.
    pub(super) fn definitions(&mut self, target: &Target<'_>) -> Result<()> {
        if let Some(number) = self.checkpoint {
            let path = self.path(SegmentKind::Checkpoint, number);
            let size = file_size(target.fs, &path)?;
            let mut loader = CheckpointLoader::default();
            checkpoint::load(target.fs, &path, number, &target.large_frames, |entry| {
                self.load_entry(entry, &mut loader, target)
            })?;
            self.count_read(size, target);
            target.progress.finish_file();
        }
        let (mut loader, mut decompressor) = (SegmentLoader::default(), Decompressor::default());
        for number in std::mem::take(&mut self.series) {
            self.segment(SegmentKind::Series, number, target, |log, frame| {
                let Some((record, payload)) = decompressor.decompress(frame.record, frame.payload) else {
                    return Ok(None);
                };
                match record {
                    record::SERIES => log.load_series(payload, &mut loader, target),
                    record::METADATA => {
                        let set = |family: &str, metadata| set_metadata(target, family, metadata);
                        Ok(record::decode_metadata(payload, set))
                    }
                    _ => Ok(None),
                }
            })?;
        }
        self.locations.sort();
        self.stats.n_series += self.locations.len() as u64;
        Ok(())
    }

    /// Replays the samples segments. `earlier` has the series of earlier epochs.
    pub(super) fn samples(&mut self, target: &Target<'_>, earlier: &SeriesLocations) -> Result<()> {
        // A series that an earlier epoch defined may be in any shard.
        let home = self.home.filter(|_| earlier.len() == 0);
        let mut decompressor = Decompressor::default();
        let mut scratch = Scratch {
            target,
            earlier,
            column: SampleColumn::default(),
            hints: Default::default(),
            bins: SampleBins::new(target.shards, home, target.sample_bins_bytes),
            start_timestamps: RecordStartTimestamps::default(),
        };
        for number in std::mem::take(&mut self.samples) {
            let n_orphaned = self.stats.n_orphaned;
            self.segment(SegmentKind::Samples, number, target, |log, frame| {
                let decompressed = decompressor.decompress(frame.record, frame.payload);
                Ok(decompressed.and_then(|(record, payload)| log.apply_record(record, payload, &mut scratch)))
            })?;
            // The next flush removes the log; samples without a series must not be lost with it.
            if self.stats.n_orphaned > n_orphaned {
                quarantine::link_file(target.fs, target.quarantine, &self.path(SegmentKind::Samples, number))?;
            }
        }
        scratch.bins.drain(&mut self.stats);
        Ok(())
    }

    /// Cuts off the torn tails.
    pub(super) fn cut_torn_tails(&self, fs: &dyn Fs) -> Result<()> {
        self.torn.iter().try_for_each(|(path, size)| fs.truncate(path, *size).map_err(Error::io("cut", path)))
    }

    /// Reads a segment and passes its frames to `each`, which returns `None` if one does not decode.
    fn segment(
        &mut self,
        kind: SegmentKind,
        number: u64,
        target: &Target<'_>,
        mut each: impl FnMut(&mut Self, &Frame<'_>) -> Result<Option<()>>,
    ) -> Result<()> {
        let path = self.path(kind, number);
        match Reader::open(target.fs, &path, kind, &target.large_frames)? {
            Opened::Empty => {}
            Opened::Damaged(size) => {
                refuse(target, &path, 0, "no valid header")?;
                self.damaged(&path, 0..size, target)?;
                self.count_read(size, target);
            }
            Opened::Valid(mut reader) => {
                self.count_read(HEADER_SIZE as u64, target);
                while let Some(item) = reader.next()? {
                    if target.stop.load(Ordering::Relaxed) {
                        return Err(Error::Interrupted(Interrupt::Shutdown));
                    }
                    self.count_read(item.size(), target);
                    match item {
                        Item::Frame(frame) => {
                            self.stats.n_missing_frames += frame.n_missing;
                            // The checksum is right: another version of the program wrote this record.
                            each(self, &frame)?.ok_or_else(|| frame.unknown_record(&path))?;
                        }
                        Item::Damaged(range) => {
                            refuse(target, &path, range.start, "no valid frame")?;
                            self.damaged(&path, range, target)?;
                        }
                        Item::Torn(range) => self.torn(&path, range),
                    }
                }
            }
        }
        target.progress.finish_file();
        Ok(())
    }

    fn load_entry(&mut self, entry: Entry<'_>, loader: &mut CheckpointLoader, target: &Target<'_>) -> Result<()> {
        match entry {
            Entry::Series(series) => {
                let (shard, labels) = self.shard(|| series.labels(), target);
                let mut head = target.shards[shard].head_mut();
                let slot = match labels {
                    None => loader.load(&mut head, series)?,
                    Some(labels) => head.load_labels(&labels, series.series)?,
                };
                if series.last_ms != i64::MIN {
                    head.set_last(slot, series.last_ms);
                }
                drop(head);
                self.defined(series.series, SeriesLocation { shard: shard as u16, slot });
            }
            Entry::LostSeries => self.stats.n_lost_series += 1,
            Entry::Exemplars((labels, exemplars)) => {
                for (id, exemplar) in exemplars {
                    self.restore_exemplar(id, exemplar, target, || Some(labels.clone()));
                }
            }
            Entry::Metadata(family, metadata) => set_metadata(target, &family, metadata),
            Entry::NextRef(next_ref) => self.next_ref = self.next_ref.max(next_ref),
        }
        Ok(())
    }

    fn load_series(&mut self, payload: &[u8], loader: &mut SegmentLoader, target: &Target<'_>) -> Result<Option<()>> {
        let mut failed = Ok(());
        let decoded = record::decode_series(payload, |series, labels| {
            if failed.is_ok() {
                failed = self.define(series, labels, loader, target);
            }
        });
        failed.map(|()| decoded)
    }

    fn define(
        &mut self,
        series: SeriesRef,
        labels: &[DefinedLabel<'_>],
        loader: &mut SegmentLoader,
        target: &Target<'_>,
    ) -> Result<()> {
        let (shard, set) = self.shard(|| record::to_labels(labels), target);
        let mut head = target.shards[shard].head_mut();
        let slot = match set {
            None => loader.load(&mut head, series, labels)?,
            Some(set) => head.load_labels(&set, series)?,
        };
        drop(head);
        self.defined(series, SeriesLocation { shard: shard as u16, slot });
        Ok(())
    }

    /// Returns the shard of a series, and its labels if they were needed for that.
    fn shard(&self, labels: impl FnOnce() -> Labels, target: &Target<'_>) -> (usize, Option<Labels>) {
        match self.home {
            Some(home) => (home, None),
            None => {
                let labels = labels();
                (shard_of(&labels, target.shards.len()), Some(labels))
            }
        }
    }

    fn defined(&mut self, series: SeriesRef, location: SeriesLocation) {
        self.reserve_ref(series);
        self.locations.push(series, location);
    }

    /// Ensures that a ref is not assigned to another series, even if only a sample has it.
    fn reserve_ref(&mut self, series: SeriesRef) {
        self.next_ref = self.next_ref.max(series.0.saturating_add(1));
    }

    /// Applies a record of a samples segment; `None` if it does not decode.
    fn apply_record(&mut self, record: u8, payload: &[u8], scratch: &mut Scratch<'_>) -> Option<()> {
        match record {
            record::SAMPLES => {
                record::decode_samples(payload, &mut scratch.column)?;
                self.apply_samples(scratch);
            }
            record::HISTOGRAMS => self.apply_histograms(payload, scratch)?,
            START_TIMESTAMPS => self.read_start_timestamps(payload, scratch)?,
            EXEMPLARS => self.apply_exemplars(payload, scratch)?,
            _ => return None,
        }
        Some(())
    }

    fn read_start_timestamps(&self, payload: &[u8], scratch: &mut Scratch<'_>) -> Option<()> {
        let Scratch { start_timestamps, hints, earlier, .. } = scratch;
        start_timestamps.clear();
        let is_buffered = decode_start_timestamps(payload, |series, timestamp_ms, start| {
            if let Some(location) = self.find(series, earlier, hints) {
                start_timestamps.add(location, timestamp_ms, start);
            }
        })?;
        start_timestamps.set_buffered(is_buffered);
        Some(())
    }

    /// Applies the samples in `scratch.column`.
    fn apply_samples(&mut self, scratch: &mut Scratch<'_>) {
        let Scratch { target, earlier, column, hints, bins, start_timestamps } = scratch;
        target.progress.add_samples(column.len() as u64);
        let has_starts = !start_timestamps.is_empty();
        if has_starts {
            bins.drain(&mut self.stats);
        }
        let (mut newest_ms, mut highest) = (i64::MIN, SeriesRef(0));
        for (&series, &sample) in column.refs.iter().zip(&column.samples) {
            highest = highest.max(series);
            let Some(location) = self.find(series, earlier, hints) else {
                self.stats.n_orphaned += 1;
                continue;
            };
            newest_ms = newest_ms.max(sample.timestamp_ms);
            if has_starts {
                self.apply_one(location, AnySample::Float(sample), start_timestamps, target);
            } else {
                bins.push(location, sample, &mut self.stats);
            }
        }
        self.reserve_ref(highest);
        target.newest_ms.fetch_max(newest_ms, Ordering::Relaxed);
        start_timestamps.clear();
    }

    fn apply_histograms(&mut self, payload: &[u8], scratch: &mut Scratch<'_>) -> Option<()> {
        let Scratch { target, earlier, hints, bins, start_timestamps, .. } = scratch;
        // Of a float and a histogram with the same timestamp the first one wins.
        bins.drain(&mut self.stats);
        let decoded = decode_histograms(payload, |of| {
            target.progress.add_samples(1);
            self.reserve_ref(of.series);
            match self.find(of.series, earlier, hints) {
                Some(location) => {
                    target.newest_ms.fetch_max(of.timestamp_ms, Ordering::Relaxed);
                    let sample = AnySample::Histogram(of.timestamp_ms, &of.histogram);
                    self.apply_one(location, sample, start_timestamps, target);
                }
                None => self.stats.n_orphaned += 1,
            }
        });
        start_timestamps.clear();
        decoded
    }

    /// Applies a sample without binning it. The bins are empty.
    fn apply_one(
        &mut self,
        location: SeriesLocation,
        sample: AnySample<'_>,
        start_timestamps: &RecordStartTimestamps,
        target: &Target<'_>,
    ) {
        let mut head = target.shards[usize::from(location.shard)].head_mut();
        let replayed = head.replay(location.slot, sample);
        start_timestamps.apply(&mut head, location, sample.timestamp_ms(), replayed);
        self.stats.count(replayed, 1);
    }

    fn apply_exemplars(&mut self, payload: &[u8], scratch: &mut Scratch<'_>) -> Option<()> {
        let Scratch { target, earlier, hints, .. } = scratch;
        decode_exemplars(payload, |id, series, exemplar| {
            self.reserve_ref(series);
            let location = self.find(series, earlier, hints);
            let labels = |of: SeriesLocation| target.shards[usize::from(of.shard)].head().labels(of.slot);
            self.restore_exemplar(id, exemplar, target, || location.map(labels));
        })
    }

    fn restore_exemplar(
        &mut self,
        id: u64,
        exemplar: Exemplar,
        target: &Target<'_>,
        series: impl FnOnce() -> Option<Labels>,
    ) {
        match target.exemplars.restore(id, exemplar, series) {
            Restored::Done => self.stats.n_exemplars += 1,
            Restored::Orphaned => self.stats.n_orphaned += 1,
            Restored::Passed => {}
        }
    }

    fn find(
        &self,
        series: SeriesRef,
        earlier: &SeriesLocations,
        hints: &mut (LookupHint, LookupHint),
    ) -> Option<SeriesLocation> {
        self.locations.find(series, &mut hints.0).or_else(|| earlier.find(series, &mut hints.1))
    }

    /// Notes a torn tail, which is cut off at the end of the replay.
    fn torn(&mut self, path: &Path, range: Range<u64>) {
        tracing::info!(?path, offset = range.start, bytes = range.end - range.start, "a WAL segment has a torn tail");
        self.stats.torn_bytes += range.end - range.start;
        self.torn.push((path.to_owned(), range.start));
    }

    fn damaged(&mut self, path: &Path, range: Range<u64>, target: &Target<'_>) -> Result<()> {
        let bytes = range.end - range.start;
        tracing::warn!(?path, offset = range.start, bytes, "skipped damaged bytes of the WAL");
        self.stats.damaged_bytes += bytes;
        quarantine::copy_range(target.fs, target.quarantine, path, range)
    }

    fn count_read(&mut self, n_bytes: u64, target: &Target<'_>) {
        self.stats.read_bytes += n_bytes;
        target.progress.add_bytes(n_bytes);
    }

    fn path(&self, kind: SegmentKind, number: u64) -> PathBuf {
        self.dir.join(kind.file_name(number))
    }
}

fn file_size(fs: &dyn Fs, path: &Path) -> Result<u64> {
    fs.open(path).and_then(|file| file.size()).map_err(Error::io("open", path))
}

fn set_metadata(target: &Target<'_>, family: &str, metadata: Metadata) {
    let mut all = target.metadata.lock().unwrap_or_else(PoisonError::into_inner);
    all.insert(family.to_owned(), metadata);
}

fn refuse(target: &Target<'_>, path: &Path, offset: u64, reason: &str) -> Result<()> {
    match target.on_corruption {
        WalOnCorruption::Quarantine => Ok(()),
        WalOnCorruption::Refuse => {
            let reason = format!("{reason}; restore the file, or set --storage.wal.on-corruption=quarantine");
            Err(Error::Corrupt { path: path.to_owned(), offset, reason })
        }
    }
}
