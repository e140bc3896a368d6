//! Appending to a log, with group commit, and cutting it.
//!
//! A record takes three steps, each under a lock of its own: it is encoded into [`Pending`] (also under the lock of the
//! shards' log, or of a head), written by the first of the waiting requests for all of them (`files`), and synced likewise
//! (`syncing`). The lock order is head, `syncing`, `files`, `pending`. No sync happens under `files`: so [`Wal::rotate`],
//! for which all appends wait, waits at most for a write to the operating system.
//!
//! A cut falls between two requests, as none is in flight while a log is rotated: all records appended before are in
//! `pending`, in `files` or written. Rotating locks `files`, writes the remaining records and closes both segments before
//! it unlocks: earlier records are in segments below the cut, later ones in others. A concurrent commit either locked
//! `files` first, then rotating finds its records written, or it finds them written by rotating. A failed write closes no
//! segment.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};

use super::checkpoint;
use super::file_name::{Cut, SegmentKind};
use super::frame_buffer::FrameBuffer;
use super::record::{
    self, EXEMPLARS, LoggedHistogram, RECORD_SAMPLES_MAX, START_TIMESTAMPS, SampleColumn, Scratch, StartTimestamps,
    encode_exemplar, encode_histograms, encode_samples, encode_start_timestamps,
};
use super::segment::{SegmentWriter, UnsyncedFile, WriteError};
use crate::error::{Error, Result};
use crate::fs::{Fs, size_of_file};
use crate::labels::{Labels, Metadata};
use crate::options::WalSync;
use crate::sample::SeriesRef;
use crate::sample::exemplar::{Exemplar, NumberedExemplars};

/// Size at which a frame of definitions is closed.
const SERIES_FRAME_SIZE: usize = 1 << 20;
/// Size at which a frame of exemplars is closed.
const EXEMPLARS_FRAME_SIZE: usize = 1 << 16;

/// The highest valid file number: as many again are left for new files.
const NUMBER_MAX: u64 = u64::MAX / 2;

/// Options of a log.
#[derive(Debug, Clone)]
pub(crate) struct WalOptions {
    /// The number of the log, for error messages.
    pub(crate) number: usize,
    /// The folder of the log.
    pub(crate) dir: PathBuf,
    /// The disk.
    pub(crate) fs: Arc<dyn Fs>,
    /// When a commit syncs.
    pub(crate) sync: WalSync,
    /// Size at which a segment is closed.
    pub(crate) segment_size_bytes: u64,
}

/// A log of one or several shards.
#[derive(Debug)]
pub(crate) struct Wal {
    options: WalOptions,
    pending: Mutex<Pending>,
    files: Mutex<Files>,
    /// Held during a sync.
    syncing: Mutex<()>,
    /// Held while a checkpoint is written.
    checkpointing: Mutex<()>,
    /// The positions up to which all records are written, and synced.
    written: AtomicU64,
    synced: AtomicU64,
    /// A write failed; the next append retries it before it adds records.
    blocked: AtomicBool,
    /// The last error, while `blocked`.
    blocked_by: Mutex<String>,
    poisoned: OnceLock<String>,
}

/// Whether a log accepts appends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Health {
    /// It does.
    Ok,
    /// A write failed; each append retries it. The last error.
    Blocked(String),
    /// Not until a restart. The failure that caused it.
    Poisoned(String),
}

/// A position in a log: the number of records appended before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position(u64);

/// Records that are appended and not written. Bounded by the requests in flight: each commits its records before it
/// completes, and none appends while the log is blocked.
#[derive(Debug, Default)]
struct Pending {
    series: FrameBuffer,
    samples: FrameBuffer,
    position: u64,
    scratch: Scratch,
}

#[derive(Debug)]
struct Files {
    series: SegmentWriter,
    samples: SegmentWriter,
}

impl Wal {
    /// Opens a log for appending after the segments and checkpoints that the folder already has. The first write creates
    /// a file.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder cannot be created or read; [`Error::Corrupt`] if a file leaves no number for the next.
    pub(crate) fn open(options: WalOptions) -> Result<Self> {
        options.fs.create_dir(&options.dir).map_err(Error::io("create", &options.dir))?;
        let names = options.fs.list(&options.dir).map_err(Error::io("list", &options.dir))?;
        let last = |kind: SegmentKind| names.iter().filter_map(|name| kind.parse(name)).max();
        for kind in [SegmentKind::Series, SegmentKind::Samples, SegmentKind::Checkpoint] {
            if let Some(number) = last(kind).filter(|&number| number > NUMBER_MAX) {
                let path = options.dir.join(kind.file_name(number));
                let reason = "the number of this file leaves none for new files; move it away".to_owned();
                return Err(Error::Corrupt { path, offset: 0, reason });
            }
        }
        // A checkpoint has the number of the first live segment, whether that exists or not.
        let first = last(SegmentKind::Checkpoint).unwrap_or(0);
        let stream = |kind| SegmentWriter::new(kind, last(kind).map_or(0, |last| last + 1).max(first));
        Ok(Self {
            pending: Mutex::default(),
            files: Mutex::new(Files { series: stream(SegmentKind::Series), samples: stream(SegmentKind::Samples) }),
            syncing: Mutex::default(),
            checkpointing: Mutex::default(),
            written: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            blocked: AtomicBool::new(false),
            blocked_by: Mutex::default(),
            poisoned: OnceLock::new(),
            options,
        })
    }

    /// Returns `Ok` if the log accepts appends. After a failed write it first retries the write.
    ///
    /// # Errors
    /// [`Error::Poisoned`] until a restart, [`Error::Io`] while the disk is full.
    pub(crate) fn ready(&self) -> Result<()> {
        if self.blocked.load(Ordering::Acquire) {
            self.commit(self.end())?;
        }
        self.check_poison()
    }

    /// Returns whether the log accepts appends. Does not wait for the disk.
    pub(crate) fn health(&self) -> Health {
        if let Some(reason) = self.poisoned.get() {
            return Health::Poisoned(reason.clone());
        }
        if self.blocked.load(Ordering::Acquire) {
            return Health::Blocked(self.blocked_by.lock().clone());
        }
        Health::Ok
    }

    /// Appends a series definition.
    pub(crate) fn append_series(&self, series: SeriesRef, labels: &Labels) {
        let mut pending = self.pending();
        record::encode_series(pending.series.open(record::SERIES, SERIES_FRAME_SIZE), series, labels);
        pending.position += 1;
    }

    /// Appends the metadata of a metric family.
    pub(crate) fn append_metadata(&self, family: &str, metadata: &Metadata) {
        let mut pending = self.pending();
        record::encode_metadata(pending.series.open(record::METADATA, SERIES_FRAME_SIZE), family, metadata);
        pending.position += 1;
    }

    /// Appends samples of series whose definitions were appended before.
    pub(crate) fn append_samples(&self, column: &SampleColumn) {
        let mut pending = self.pending();
        let Pending { samples: frames, position, scratch, .. } = &mut *pending;
        let chunks = column.refs.chunks(RECORD_SAMPLES_MAX).zip(column.samples.chunks(RECORD_SAMPLES_MAX));
        let mut at = 0;
        for (refs, samples) in chunks {
            if let Some(starts) = column.start_timestamps.record(at..at + samples.len()) {
                let sample = |place: usize| (column.refs[place], column.samples[place].timestamp_ms);
                encode_start_timestamps(frames.begin(START_TIMESTAMPS), starts, sample);
            }
            at += samples.len();
            encode_samples(frames.begin(record::SAMPLES), refs, samples, scratch);
            *position += 1;
        }
    }

    /// Appends histograms of series whose definitions were appended before, and their start timestamps.
    pub(crate) fn append_histograms(&self, histograms: &[LoggedHistogram], start_timestamps: &StartTimestamps) {
        let mut pending = self.pending();
        let sample = |place: usize| (histograms[place].series, histograms[place].timestamp_ms);
        let (mut at, mut encoded) = (0, Vec::new());
        while at < histograms.len() {
            let rest = &histograms[at..];
            // Start timestamps come first, but their number is known only once the histograms are encoded.
            encoded.clear();
            let taken = &rest[..rest.len().min(RECORD_SAMPLES_MAX)];
            let end = at + taken.len() - encode_histograms(&mut encoded, taken).len();
            if let Some(starts) = start_timestamps.record(at..end) {
                encode_start_timestamps(pending.samples.begin(START_TIMESTAMPS), starts, sample);
            }
            pending.samples.add(record::HISTOGRAMS, &encoded);
            pending.position += 1;
            at = end;
        }
    }

    /// Appends an exemplar with its id, of a series whose definition was appended before.
    pub(crate) fn append_exemplar(&self, id: u64, series: SeriesRef, exemplar: &Exemplar) {
        let mut pending = self.pending();
        encode_exemplar(pending.samples.open(EXEMPLARS, EXEMPLARS_FRAME_SIZE), id, series, exemplar);
        pending.position += 1;
    }

    /// Returns the position after all records.
    pub(crate) fn end(&self) -> Position {
        Position(self.pending().position)
    }

    /// Writes all records before `position` to the operating system, and syncs them under [`WalSync::Always`]. The first
    /// of concurrent callers writes, or syncs, for all of them.
    ///
    /// # Errors
    /// [`Error::Io`] if the write failed: the records stay in memory and the next commit retries.
    /// [`Error::Poisoned`] if the sync failed.
    pub(crate) fn commit(&self, position: Position) -> Result<()> {
        if self.written.load(Ordering::Acquire) < position.0 {
            let mut files = self.files();
            if self.written.load(Ordering::Acquire) < position.0 {
                self.write_pending(&mut files)?;
            }
        }
        if self.options.sync == WalSync::Always { self.sync_to(position.0) } else { Ok(()) }
    }

    /// Syncs all committed records, so that they survive a power cut. Does not block commits.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if a sync failed, now or earlier.
    pub(crate) fn sync(&self) -> Result<()> {
        self.sync_to(self.written.load(Ordering::Acquire))?;
        self.check_poison()
    }

    /// Writes all records to the operating system, so that a cut finds little to write.
    ///
    /// # Errors
    /// As [`Wal::rotate`].
    pub(crate) fn write_out(&self) -> Result<()> {
        self.write_pending(&mut self.files())
    }

    /// Cuts the log: on return all records are in closed segments, and later ones go to new segments. No request is in
    /// flight; definitions may be before or after the cut. Nothing is synced.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Poisoned`]; the log is not cut then and stays usable.
    pub(crate) fn rotate(&self) -> Result<Cut> {
        let mut files = self.files();
        self.write_pending(&mut files)?;
        let Files { series, samples } = &mut *files;
        series.close();
        samples.close();
        // Never the number of an earlier cut, whose checkpoint may still exist.
        let cut = series.next_number.max(samples.next_number) + 1;
        (series.next_number, samples.next_number) = (cut, cut);
        Ok(Cut(cut))
    }

    /// Replaces all segments before `cut` by a checkpoint: the definitions of `series` with their last timestamps
    /// (`i64::MIN` if there is none), `next_ref` as the lowest ref that no series has ever had, `metadata` and
    /// `exemplars`. `series` has every series that was defined before the cut and that samples after it may name. All
    /// samples before the cut are durable elsewhere.
    ///
    /// # Errors
    /// Those of `series`, [`Error::Io`], [`Error::Limit`] if a label set is larger than any the store accepts. The
    /// segments before the cut are still live then. A segment that cannot be removed is no error; the next call retries.
    pub(crate) fn checkpoint<'a>(
        &self,
        cut: Cut,
        series: impl Iterator<Item = Result<(SeriesRef, Labels, i64)>>,
        next_ref: u64,
        metadata: impl Iterator<Item = (&'a str, &'a Metadata)>,
        exemplars: &[NumberedExemplars],
    ) -> Result<()> {
        let _guard = self.checkpointing.lock();
        let WalOptions { fs, dir, .. } = &self.options;
        checkpoint::write(&**fs, dir, cut, next_ref, metadata, series, exemplars)?;
        let mut files = self.files();
        files.series.discard_before(cut.0);
        files.samples.discard_before(cut.0);
        drop(files);
        checkpoint::remove_before(&**fs, dir, cut);
        Ok(())
    }

    /// Returns the size of the records that are not written yet, in bytes.
    pub(crate) fn pending_size(&self) -> usize {
        let pending = self.pending();
        pending.series.size() + pending.samples.size()
    }

    /// Returns the size of the log's files in bytes.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder cannot be read.
    pub(crate) fn size(&self) -> Result<u64> {
        let WalOptions { fs, dir, .. } = &self.options;
        let names = fs.list(dir).map_err(Error::io("list", dir))?;
        // A file that a checkpoint removes meanwhile counts as empty.
        Ok(names.iter().map(|name| size_of_file(&**fs, &dir.join(name))).sum())
    }

    /// Writes all records, definitions first.
    fn write_pending(&self, files: &mut Files) -> Result<()> {
        self.check_poison()?;
        let end = self.take_pending(files);
        files.series.frames.compress();
        let WalOptions { fs, dir, segment_size_bytes, .. } = &self.options;
        let write = |stream: &mut SegmentWriter| stream.write(&**fs, dir, *segment_size_bytes);
        match write(&mut files.series).and_then(|()| write(&mut files.samples)) {
            Ok(()) => {
                self.blocked.store(false, Ordering::Release);
                self.written.store(end, Ordering::Release);
                Ok(())
            }
            Err(WriteError::Retryable(e)) => {
                *self.blocked_by.lock() = e.to_string();
                self.blocked.store(true, Ordering::Release);
                Err(e)
            }
            Err(WriteError::Torn(reason)) => Err(self.poison(reason)),
        }
    }

    fn take_pending(&self, files: &mut Files) -> u64 {
        let mut pending = self.pending();
        files.series.frames.append(&mut pending.series);
        files.samples.frames.append(&mut pending.samples);
        pending.position
    }

    /// Syncs all records before `position`. They are written already.
    fn sync_to(&self, position: u64) -> Result<()> {
        if self.synced.load(Ordering::Acquire) >= position {
            return Ok(());
        }
        let _guard = self.syncing.lock();
        if self.synced.load(Ordering::Acquire) >= position {
            return Ok(());
        }
        self.check_poison()?;
        let (end, unsynced, dir_dirty) = self.take_unsynced();
        for UnsyncedFile { path, file, .. } in unsynced {
            file.sync().map_err(|e| self.poison(format!("sync {path:?}: {e}")))?;
        }
        if dir_dirty {
            let WalOptions { fs, dir, .. } = &self.options;
            fs.sync_dir(dir).map_err(|e| self.poison(format!("sync {dir:?}: {e}")))?;
        }
        self.synced.store(end, Ordering::Release);
        Ok(())
    }

    /// Returns the written position and the files that need a sync, definitions first: samples must not outlive them.
    fn take_unsynced(&self) -> (u64, Vec<UnsyncedFile>, bool) {
        let mut files = self.files();
        let mut unsynced = Vec::new();
        let series = files.series.take_unsynced(&mut unsynced);
        let samples = files.samples.take_unsynced(&mut unsynced);
        (self.written.load(Ordering::Acquire), unsynced, series || samples)
    }

    fn check_poison(&self) -> Result<()> {
        match self.poisoned.get() {
            None => Ok(()),
            Some(reason) => Err(Error::Poisoned { log: self.options.number, reason: reason.clone() }),
        }
    }

    /// Rejects all writes from now on, and returns the error for that. The first reason is retained.
    fn poison(&self, reason: String) -> Error {
        tracing::error!(log = self.options.number, reason, "the WAL accepts no writes until a restart");
        let reason = self.poisoned.get_or_init(|| reason).clone();
        Error::Poisoned { log: self.options.number, reason }
    }

    // A panic under one of these two locks leaves whole records, so both stay usable.
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock()
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock()
    }
}

#[cfg(test)]
mod tests;
