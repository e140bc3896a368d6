//! Replay of one log of an epoch.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use varve_context::Interrupt;
use varve_env::{Fs, list_if_exists};
use varve_model::metadata::Metadata;
use varve_model::{Exemplar, Labels};

use super::context::ReplayContext;
use super::definitions::{CheckpointLoader, SegmentLoader};
use super::locations::{LookupHint, SeriesLocation, SeriesLocations};
use super::sample_bins::SampleBins;
use super::start_timestamps::RecordStartTimestamps;
use super::stats::ReplayStats;
use crate::batch::SeriesRef;
use crate::error::{Error, Result};
use crate::head::AnySample;
use crate::options::WalOnCorruption;
use crate::shard::exemplars::Restored;
use crate::shard::shard_of;
use crate::wal::checkpoint::{self, Entry};
use crate::wal::reader::{Frame, Item, Opened, Reader};
use crate::wal::record::{
    self, DefinedLabel, EXEMPLARS, START_TIMESTAMPS, SampleColumn, decode_exemplars,
    decode_histograms, decode_start_timestamps,
};
use crate::wal::{Decompressor, HEADER_SIZE, SegmentKind, is_closed, quarantine};

/// State of the replay of one log.
pub(super) struct LogReplay {
    dir: PathBuf,
    /// The shard of all series of the log, if there are as many shards as logs.
    home: Option<usize>,
    /// Number of the checkpoint to load, if any.
    checkpoint: Option<u64>,
    /// Numbers of the live segments, ascending.
    series: Vec<u64>,
    samples: Vec<u64>,
    /// A number above those of all samples segments that ever existed.
    pub(super) next_samples: u64,
    /// Locations of the series that the log defines.
    pub(super) locations: SeriesLocations,
    pub(super) next_ref: u64,
    pub(super) stats: ReplayStats,
    /// Files with a torn tail, and the offset of the tail.
    torn: Vec<(PathBuf, u64)>,
    /// Number of damaged ranges.
    n_damaged: usize,
}

/// Maximum number of damaged ranges of a log of which each is logged.
const DAMAGE_LOGGED_MAX: usize = 10;

/// The state of a worker that replays samples segments. Its memory is reused for all frames.
struct Scratch<'a> {
    context: &'a ReplayContext<'a>,
    /// Locations of the series of earlier epochs.
    earlier: &'a SeriesLocations,
    column: SampleColumn,
    /// Lookup hints: for the series of this log, and for the series of earlier epochs.
    hints: (LookupHint, LookupHint),
    /// Float samples of previous records that are not applied yet.
    bins: SampleBins<'a>,
    /// Start timestamps of the samples of the next record.
    start_timestamps: RecordStartTimestamps,
}

impl LogReplay {
    /// Lists the files of a log and chooses its checkpoint.
    pub(super) fn open(
        dir: PathBuf,
        home: Option<usize>,
        context: &ReplayContext<'_>,
    ) -> Result<Self> {
        // The directory is missing if the process ended after it created only the directory of the
        // epoch.
        let names = list_if_exists(context.fs, &dir)?;
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
            n_damaged: 0,
        };
        let last = log.samples.last().map_or(0, |last| last.saturating_add(1));
        log.next_samples = checkpoints.last().map_or(last, |&newest| last.max(newest));
        let chosen = log.choose_checkpoint(&checkpoints, context)?;
        log.series.retain(|&number| number >= chosen);
        log.samples.retain(|&number| number >= chosen);
        log.announce(context)?;
        Ok(log)
    }

    /// Chooses the checkpoint to load, and reports the damage of newer ones. Returns the number of
    /// the first live segment.
    fn choose_checkpoint(&mut self, numbers: &[u64], context: &ReplayContext<'_>) -> Result<u64> {
        let start = checkpoint::choose(numbers, |number| {
            let path = self.path(SegmentKind::Checkpoint, number);
            let Some(damage) = checkpoint::examine(context.fs, &path, &context.large_frames)?
            else {
                return Ok(checkpoint::State::Valid);
            };
            tracing::error!(
                ?path,
                offset = damage.offset,
                "a WAL checkpoint is damaged: {}",
                damage.reason
            );
            fail_on_damage(context, &path, damage.offset, damage.reason)?;
            self.stats.n_damaged_checkpoints += 1;
            let state = damage.state();
            for range in damage.ranges {
                self.damaged(&path, range, context)?;
            }
            Ok(state)
        })?;
        self.checkpoint = start.checkpoint;
        Ok(start.first_segment)
    }

    fn announce(&self, context: &ReplayContext<'_>) -> Result<()> {
        let kinds = [
            (SegmentKind::Checkpoint, self.checkpoint.as_slice()),
            (SegmentKind::Series, &self.series),
            (SegmentKind::Samples, &self.samples),
        ];
        for (kind, numbers) in kinds {
            for &number in numbers {
                context
                    .progress
                    .expect_file(file_size(context.fs, &self.path(kind, number))?);
            }
        }
        Ok(())
    }

    /// Returns the paths of the live segments.
    pub(super) fn segments(&self) -> impl Iterator<Item = PathBuf> {
        let series = self
            .series
            .iter()
            .map(|&number| self.path(SegmentKind::Series, number));
        series.chain(
            self.samples
                .iter()
                .map(|&number| self.path(SegmentKind::Samples, number)),
        )
    }

    /// Loads the checkpoint, then the series segments.
    pub(super) fn definitions(&mut self, context: &ReplayContext<'_>) -> Result<()> {
        if let Some(number) = self.checkpoint {
            let path = self.path(SegmentKind::Checkpoint, number);
            let size = file_size(context.fs, &path)?;
            let mut loader = CheckpointLoader::default();
            checkpoint::load(context.fs, &path, number, &context.large_frames, |entry| {
                self.load_entry(entry, &mut loader, context)
            })?;
            self.count_read(size, context);
            context.progress.finish_file();
        }
        let mut loader = SegmentLoader::default();
        let mut decompressor = Decompressor::default();
        let numbers = std::mem::take(&mut self.series);
        for &number in &numbers {
            let is_closed = is_closed(&numbers, number);
            self.segment(
                SegmentKind::Series,
                number,
                is_closed,
                context,
                |log, frame| {
                    let Some((record, payload)) =
                        decompressor.decompress(frame.record, frame.payload)
                    else {
                        return Ok(None);
                    };
                    match record {
                        record::SERIES => log.load_series(payload, &mut loader, context),
                        record::METADATA => {
                            Ok(record::decode_metadata(payload, |family, metadata| {
                                set_metadata(context, family, metadata);
                            }))
                        }
                        _ => Ok(None),
                    }
                },
            )?;
        }
        self.locations.sort();
        self.stats.n_series += self.locations.len() as u64;
        Ok(())
    }

    /// Replays the samples segments. `earlier` contains the series of earlier epochs.
    pub(super) fn samples(
        &mut self,
        context: &ReplayContext<'_>,
        earlier: &SeriesLocations,
    ) -> Result<()> {
        // A series that an earlier epoch defined may be in any shard.
        let home = if earlier.len() == 0 { self.home } else { None };
        let mut decompressor = Decompressor::default();
        let mut scratch = Scratch {
            context,
            earlier,
            column: SampleColumn::default(),
            hints: Default::default(),
            bins: SampleBins::new(context.shards, home, context.sample_bins_bytes),
            start_timestamps: RecordStartTimestamps::default(),
        };
        let numbers = std::mem::take(&mut self.samples);
        for &number in &numbers {
            let n_unknown_samples = self.stats.n_unknown_samples;
            let is_closed = is_closed(&numbers, number);
            self.segment(
                SegmentKind::Samples,
                number,
                is_closed,
                context,
                |log, frame| {
                    let decompressed = decompressor.decompress(frame.record, frame.payload);
                    Ok(decompressed.and_then(|(record, payload)| {
                        log.apply_record(record, payload, &mut scratch)
                    }))
                },
            )?;
            // The next flush removes the log; samples without a series must not be lost with it.
            if self.stats.n_unknown_samples > n_unknown_samples {
                quarantine::link_file(
                    context.fs,
                    context.quarantine,
                    &self.path(SegmentKind::Samples, number),
                )?;
            }
        }
        scratch.bins.drain(&mut self.stats);
        Ok(())
    }

    /// Cuts off the torn tails.
    pub(super) fn cut_torn_tails(&self, fs: &dyn Fs) -> Result<()> {
        for (path, size) in &self.torn {
            fs.truncate(path, *size).map_err(Error::io("cut", path))?;
        }
        Ok(())
    }

    /// Reads a segment and passes its frames to `each`, which returns `None` if a frame does not
    /// decode. A closed segment was completely written, so it has no torn tail.
    fn segment(
        &mut self,
        kind: SegmentKind,
        number: u64,
        is_closed: bool,
        context: &ReplayContext<'_>,
        mut each: impl FnMut(&mut Self, &Frame<'_>) -> Result<Option<()>>,
    ) -> Result<()> {
        let path = self.path(kind, number);
        match Reader::open(context.fs, &path, kind, &context.large_frames)? {
            Opened::Empty => {
                tracing::info!(
                    ?path,
                    "a WAL segment has no header: nothing was written to it, or it was truncated"
                );
            }
            Opened::Damaged(size) => {
                fail_on_damage(context, &path, 0, "no valid header")?;
                self.damaged(&path, 0..size, context)?;
                self.count_read(size, context);
            }
            Opened::Valid(mut reader) => {
                self.count_read(HEADER_SIZE as u64, context);
                while let Some(item) = reader.next()? {
                    if context.stop.load(Ordering::Relaxed) {
                        return Err(Error::Interrupted(Interrupt::Shutdown));
                    }
                    self.count_read(item.size(), context);
                    match item {
                        Item::Frame(frame) => {
                            self.stats.n_missing_frames += frame.n_missing;
                            // The checksum is valid, so another version of the program wrote this
                            // record.
                            each(self, &frame)?.ok_or_else(|| frame.unknown_record(&path))?;
                        }
                        Item::Torn(range) if !is_closed => self.torn(&path, range),
                        Item::Damaged(range) | Item::Torn(range) => {
                            fail_on_damage(context, &path, range.start, "no valid frame")?;
                            self.damaged(&path, range, context)?;
                        }
                    }
                }
            }
        }
        context.progress.finish_file();
        Ok(())
    }

    fn load_entry(
        &mut self,
        entry: Entry<'_>,
        loader: &mut CheckpointLoader,
        context: &ReplayContext<'_>,
    ) -> Result<()> {
        match entry {
            Entry::Series(series) => {
                let (shard, labels) = self.shard(|| series.labels(), context);
                let mut head = context.shards[shard].head_mut();
                let slot = match labels {
                    None => loader.load(&mut head, series)?,
                    Some(labels) => head.load_labels(&labels, series.series)?,
                };
                if series.last_ms != i64::MIN {
                    head.set_last(slot, series.last_ms);
                }
                drop(head);
                self.defined(
                    series.series,
                    SeriesLocation {
                        shard: shard as u16,
                        slot,
                    },
                );
            }
            Entry::LostSeries => self.stats.n_lost_series += 1,
            Entry::Exemplars((labels, exemplars)) => {
                for (id, exemplar) in exemplars {
                    self.restore_exemplar(id, exemplar, context, || Some(labels.clone()));
                }
            }
            Entry::Metadata(family, metadata) => set_metadata(context, &family, metadata),
            Entry::NextRef(next_ref) => self.next_ref = self.next_ref.max(next_ref),
        }
        Ok(())
    }

    fn load_series(
        &mut self,
        payload: &[u8],
        loader: &mut SegmentLoader,
        context: &ReplayContext<'_>,
    ) -> Result<Option<()>> {
        let mut failed = Ok(());
        let decoded = record::decode_series(payload, |series, labels| {
            if failed.is_ok() {
                failed = self.define(series, labels, loader, context);
            }
        });
        failed.map(|()| decoded)
    }

    fn define(
        &mut self,
        series: SeriesRef,
        labels: &[DefinedLabel<'_>],
        loader: &mut SegmentLoader,
        context: &ReplayContext<'_>,
    ) -> Result<()> {
        let (shard, set) = self.shard(|| record::to_labels(labels), context);
        let mut head = context.shards[shard].head_mut();
        let slot = match set {
            None => loader.load(&mut head, series, labels)?,
            Some(set) => head.load_labels(&set, series)?,
        };
        drop(head);
        self.defined(
            series,
            SeriesLocation {
                shard: shard as u16,
                slot,
            },
        );
        Ok(())
    }

    /// Returns the shard of a series, and its labels if they had to be decoded to find it.
    fn shard(
        &self,
        labels: impl FnOnce() -> Labels,
        context: &ReplayContext<'_>,
    ) -> (usize, Option<Labels>) {
        match self.home {
            Some(home) => (home, None),
            None => {
                let labels = labels();
                (shard_of(&labels, context.shards.len()), Some(labels))
            }
        }
    }

    fn defined(&mut self, series: SeriesRef, location: SeriesLocation) {
        self.reserve_ref(series);
        self.locations.push(series, location);
    }

    /// Ensures that `series` is not assigned to a new series, even if its definition is lost.
    fn reserve_ref(&mut self, series: SeriesRef) {
        self.next_ref = self.next_ref.max(series.0.saturating_add(1));
    }

    /// Applies a record of a samples segment. Returns `None` if it does not decode.
    fn apply_record(
        &mut self,
        record: u8,
        payload: &[u8],
        scratch: &mut Scratch<'_>,
    ) -> Option<()> {
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
        let Scratch {
            start_timestamps,
            hints,
            earlier,
            ..
        } = scratch;
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
        let Scratch {
            context,
            earlier,
            column,
            hints,
            bins,
            start_timestamps,
        } = scratch;
        context.progress.add_samples(column.len() as u64);
        let has_starts = !start_timestamps.is_empty();
        if has_starts {
            bins.drain(&mut self.stats);
        }
        let mut newest_ms = i64::MIN;
        let mut highest = SeriesRef(0);
        for (&series, &sample) in column.refs.iter().zip(&column.samples) {
            highest = highest.max(series);
            let Some(location) = self.find(series, earlier, hints) else {
                self.stats.n_unknown_samples += 1;
                continue;
            };
            newest_ms = newest_ms.max(sample.timestamp_ms);
            if has_starts {
                self.apply_one(
                    location,
                    AnySample::Float(sample),
                    start_timestamps,
                    context,
                );
            } else {
                bins.push(location, sample, &mut self.stats);
            }
        }
        self.reserve_ref(highest);
        context.newest_ms.fetch_max(newest_ms, Ordering::Relaxed);
        start_timestamps.clear();
    }

    fn apply_histograms(&mut self, payload: &[u8], scratch: &mut Scratch<'_>) -> Option<()> {
        let Scratch {
            context,
            earlier,
            hints,
            bins,
            start_timestamps,
            ..
        } = scratch;
        // If a float and a histogram have the same timestamp, the first wins: apply the earlier
        // floats now.
        bins.drain(&mut self.stats);
        let decoded = decode_histograms(payload, |logged| {
            context.progress.add_samples(1);
            self.reserve_ref(logged.series);
            match self.find(logged.series, earlier, hints) {
                Some(location) => {
                    context
                        .newest_ms
                        .fetch_max(logged.timestamp_ms, Ordering::Relaxed);
                    let sample = AnySample::Histogram(logged.timestamp_ms, &logged.histogram);
                    self.apply_one(location, sample, start_timestamps, context);
                }
                None => self.stats.n_unknown_samples += 1,
            }
        });
        start_timestamps.clear();
        decoded
    }

    /// Applies a sample directly. The bins must be empty.
    fn apply_one(
        &mut self,
        location: SeriesLocation,
        sample: AnySample<'_>,
        start_timestamps: &RecordStartTimestamps,
        context: &ReplayContext<'_>,
    ) {
        let mut head = context.shards[usize::from(location.shard)].head_mut();
        let replayed = head.replay(location.slot, sample);
        start_timestamps.apply(&mut head, location, sample.timestamp_ms(), replayed);
        self.stats.count(replayed, 1);
    }

    fn apply_exemplars(&mut self, payload: &[u8], scratch: &mut Scratch<'_>) -> Option<()> {
        let Scratch {
            context,
            earlier,
            hints,
            ..
        } = scratch;
        decode_exemplars(payload, |id, series, exemplar| {
            self.reserve_ref(series);
            let location = self.find(series, earlier, hints);
            self.restore_exemplar(id, exemplar, context, || {
                let SeriesLocation { shard, slot, .. } = location?;
                Some(context.shards[usize::from(shard)].head().labels(slot))
            });
        })
    }

    fn restore_exemplar(
        &mut self,
        id: u64,
        exemplar: Exemplar,
        context: &ReplayContext<'_>,
        series: impl FnOnce() -> Option<Labels>,
    ) {
        match context.exemplars.restore(id, exemplar, series) {
            Restored::Done => self.stats.n_exemplars += 1,
            Restored::UnknownSeries => self.stats.n_unknown_samples += 1,
            Restored::Passed => {}
        }
    }

    fn find(
        &self,
        series: SeriesRef,
        earlier: &SeriesLocations,
        hints: &mut (LookupHint, LookupHint),
    ) -> Option<SeriesLocation> {
        self.locations
            .find(series, &mut hints.0)
            .or_else(|| earlier.find(series, &mut hints.1))
    }

    /// Records a torn tail, which is cut off at the end of the replay.
    fn torn(&mut self, path: &Path, range: Range<u64>) {
        tracing::info!(
            ?path,
            offset = range.start,
            bytes = range.end - range.start,
            "a WAL segment has a torn tail"
        );
        self.stats.torn_bytes += range.end - range.start;
        self.torn.push((path.to_owned(), range.start));
    }

    fn damaged(
        &mut self,
        path: &Path,
        range: Range<u64>,
        context: &ReplayContext<'_>,
    ) -> Result<()> {
        let bytes = range.end - range.start;
        if self.n_damaged < DAMAGE_LOGGED_MAX {
            tracing::warn!(
                ?path,
                offset = range.start,
                bytes,
                "skipped damaged bytes of the WAL"
            );
        } else if self.n_damaged == DAMAGE_LOGGED_MAX {
            tracing::warn!(dir = ?self.dir, "more damage in this log is skipped and not logged");
        }
        self.n_damaged += 1;
        self.stats.damaged_bytes += bytes;
        quarantine::copy_range(context.fs, context.quarantine, path, range)
    }

    fn count_read(&mut self, n_bytes: u64, context: &ReplayContext<'_>) {
        self.stats.read_bytes += n_bytes;
        context.progress.add_bytes(n_bytes);
    }

    fn path(&self, kind: SegmentKind, number: u64) -> PathBuf {
        self.dir.join(kind.file_name(number))
    }
}

pub(super) fn file_size(fs: &dyn Fs, path: &Path) -> Result<u64> {
    fs.open(path)
        .and_then(|file| file.size())
        .map_err(Error::io("open", path))
}

fn set_metadata(context: &ReplayContext<'_>, family: &str, metadata: Metadata) {
    let mut all = context.metadata.lock();
    all.set(family, metadata);
}

fn fail_on_damage(
    context: &ReplayContext<'_>,
    path: &Path,
    offset: u64,
    reason: &str,
) -> Result<()> {
    match context.on_corruption {
        WalOnCorruption::Quarantine => Ok(()),
        WalOnCorruption::Refuse => {
            let reason = format!(
                "{reason}; restore the file, or set --storage.wal.on-corruption=quarantine"
            );
            Err(Error::Corrupt {
                path: path.to_owned(),
                offset,
                reason,
            })
        }
    }
}
