//! Replay of one log of an epoch: its files, and their damage. `log_definitions` and `log_samples`
//! replay what the files contain.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use varve_context::Interrupt;
use varve_env::{Fs, list_if_exists};
use varve_model::{Exemplar, Labels};

use super::context::ReplayContext;
use super::locations::SeriesLocations;
use super::stats::ReplayStats;
use crate::batch::SeriesRef;
use crate::error::{Error, Result};
use crate::options::WalOnCorruption;
use crate::shard::exemplars::Restored;
use crate::wal::checkpoint;
use crate::wal::reader::{Frame, Item, Opened, Reader};
use crate::wal::{HEADER_SIZE, MissingFiles, SegmentKind, missing_segments, quarantine};

/// State of the replay of one log.
pub(super) struct LogReplay {
    dir: PathBuf,
    /// The shard of all series of the log, if there are as many shards as logs.
    pub(super) only_shard: Option<usize>,
    /// Number of the checkpoint to load, if any.
    pub(super) checkpoint: Option<u64>,
    /// Numbers of the live segments of series, ascending.
    pub(super) series_segments: Vec<u64>,
    /// Numbers of the live segments of samples, ascending.
    pub(super) samples_segments: Vec<u64>,
    /// A number above those of all samples segments that ever existed.
    pub(super) next_samples: u64,
    /// Locations of the series that the log defines.
    pub(super) locations: SeriesLocations,
    pub(super) next_ref: u64,
    pub(super) stats: ReplayStats,
    /// Files with a torn tail, and the offset of the tail.
    torn_tails: Vec<(PathBuf, u64)>,
    /// Number of damaged ranges.
    n_damaged: usize,
}

/// Maximum number of damaged ranges of a log of which each is logged.
const DAMAGE_LOGGED_MAX: usize = 10;

impl LogReplay {
    /// Lists the files of a log and chooses its checkpoint. A flush may be removing the files of a
    /// replaced log.
    pub(super) fn open(
        dir: PathBuf,
        only_shard: Option<usize>,
        is_replaced: bool,
        context: &ReplayContext<'_>,
    ) -> Result<Self> {
        // The directory is missing if the process ended after it created only the directory of the
        // epoch.
        let names = list_if_exists(context.fs, &dir)?;
        let checkpoints = SegmentKind::Checkpoint.numbers(&names);
        let mut log = Self {
            dir,
            only_shard,
            checkpoint: None,
            series_segments: SegmentKind::Series.numbers(&names),
            samples_segments: SegmentKind::Samples.numbers(&names),
            next_samples: 0,
            locations: SeriesLocations::default(),
            next_ref: 0,
            stats: ReplayStats::default(),
            torn_tails: Vec::new(),
            n_damaged: 0,
        };
        let last = log
            .samples_segments
            .last()
            .map_or(0, |last| last.saturating_add(1));
        log.next_samples = checkpoints.last().map_or(last, |&newest| last.max(newest));
        let first_live_segment = log.choose_checkpoint(&checkpoints, context)?;
        log.series_segments
            .retain(|&number| number >= first_live_segment);
        log.samples_segments
            .retain(|&number| number >= first_live_segment);
        if !is_replaced {
            log.report_missing(&checkpoints, context)?;
        }
        log.add_to_progress_total(context)?;
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
                self.quarantine_damage(&path, range, context)?;
            }
            Ok(state)
        })?;
        self.checkpoint = start.checkpoint;
        Ok(start.first_segment)
    }

    /// Counts and logs segments that are missing.
    fn report_missing(&mut self, checkpoints: &[u64], context: &ReplayContext<'_>) -> Result<()> {
        let mut missing = Vec::new();
        for (kind, numbers) in [
            (SegmentKind::Series, &self.series_segments),
            (SegmentKind::Samples, &self.samples_segments),
        ] {
            missing.extend(missing_segments(&self.dir, kind, numbers, checkpoints));
        }
        for MissingFiles { path, reason } in missing {
            tracing::error!(?path, "files of the WAL are missing: {reason}");
            fail_on_damage(context, &path, 0, &reason)?;
            self.stats.n_file_gaps += 1;
        }
        Ok(())
    }

    /// Adds the files to read to the total of the progress.
    fn add_to_progress_total(&self, context: &ReplayContext<'_>) -> Result<()> {
        let kinds = [
            (SegmentKind::Checkpoint, self.checkpoint.as_slice()),
            (SegmentKind::Series, &self.series_segments),
            (SegmentKind::Samples, &self.samples_segments),
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
            .series_segments
            .iter()
            .map(|&number| self.path(SegmentKind::Series, number));
        series.chain(
            self.samples_segments
                .iter()
                .map(|&number| self.path(SegmentKind::Samples, number)),
        )
    }

    /// Truncates the files with torn tails.
    pub(super) fn truncate_torn_tails(&self, fs: &dyn Fs) -> Result<()> {
        for (path, size) in &self.torn_tails {
            fs.truncate(path, *size)
                .map_err(Error::io("truncate", path))?;
        }
        Ok(())
    }

    /// Reads a segment and passes its frames to `each`, which returns `None` if a frame does not
    /// decode. A closed segment was completely written, so it has no torn tail.
    pub(super) fn replay_segment(
        &mut self,
        kind: SegmentKind,
        number: u64,
        is_closed: bool,
        context: &ReplayContext<'_>,
        mut each: impl FnMut(&mut Self, &Frame<'_>) -> Result<Option<()>>,
    ) -> Result<()> {
        let path = self.path(kind, number);
        match Reader::open(context.fs, &path, kind, &context.large_frames)? {
            Opened::Empty(size) => {
                tracing::error!(
                    ?path,
                    "a WAL segment has no header, an unknown number of samples is lost"
                );
                self.stats.n_file_gaps += 1;
                self.count_read(size, context);
            }
            Opened::Damaged(size) => {
                fail_on_damage(context, &path, 0, "no valid header")?;
                self.quarantine_damage(&path, 0..size, context)?;
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
                        Item::Torn(range) if !is_closed => self.note_torn_tail(&path, range),
                        Item::Damaged(range) | Item::Torn(range) => {
                            fail_on_damage(context, &path, range.start, "no valid frame")?;
                            self.quarantine_damage(&path, range, context)?;
                        }
                    }
                }
            }
        }
        context.progress.finish_file();
        Ok(())
    }

    /// Ensures that `series` is not assigned to a new series, even if its definition is lost.
    pub(super) fn reserve_ref(&mut self, series: SeriesRef) {
        self.next_ref = self.next_ref.max(series.0.saturating_add(1));
    }

    pub(super) fn restore_exemplar(
        &mut self,
        id: u64,
        exemplar: Exemplar,
        context: &ReplayContext<'_>,
        series: impl FnOnce() -> Option<Labels>,
    ) {
        match context.exemplars.restore(id, exemplar, series) {
            Restored::Added => self.stats.n_exemplars += 1,
            Restored::UnknownSeries => self.stats.n_unknown_exemplars += 1,
            Restored::Skipped => {}
        }
    }

    /// Notes a torn tail, which is truncated at the end of the replay.
    fn note_torn_tail(&mut self, path: &Path, range: Range<u64>) {
        tracing::info!(
            ?path,
            offset = range.start,
            bytes = range.end - range.start,
            "a WAL segment has a torn tail"
        );
        self.stats.torn_bytes += range.end - range.start;
        self.torn_tails.push((path.to_owned(), range.start));
    }

    /// Counts and logs damaged bytes, and copies them to the quarantine.
    fn quarantine_damage(
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

    pub(super) fn count_read(&mut self, n_bytes: u64, context: &ReplayContext<'_>) {
        self.stats.read_bytes += n_bytes;
        context.progress.add_bytes(n_bytes);
    }

    pub(super) fn path(&self, kind: SegmentKind, number: u64) -> PathBuf {
        self.dir.join(kind.file_name(number))
    }
}

pub(super) fn file_size(fs: &dyn Fs, path: &Path) -> Result<u64> {
    fs.open(path)
        .and_then(|file| file.size())
        .map_err(Error::io("open", path))
}

fn fail_on_damage(
    context: &ReplayContext<'_>,
    path: &Path,
    offset: u64,
    reason: &str,
) -> Result<()> {
    check_policy(context.on_corruption, path, offset, reason)
}

/// Rejects damage under [`WalOnCorruption::Refuse`].
pub(super) fn check_policy(
    on_corruption: WalOnCorruption,
    path: &Path,
    offset: u64,
    reason: &str,
) -> Result<()> {
    match on_corruption {
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
