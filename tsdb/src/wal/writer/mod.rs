//! Appending to a log, with group commit, and rotating it.
//!
//! A record takes three steps, each under its own lock. An append encodes it into [`Pending`] (also
//! under the lock of the shared log, or of a head). The first of the waiting requests writes the
//! records of all of them (`files`). In the same way one request syncs for all (`syncing`). The
//! lock order is head, `syncing`, `files`, `pending`. No sync happens under `files`. So
//! [`Log::rotate`], for which all appends wait, waits at most for a write to the operating system.
//!
//! A rotation falls between two requests, because none is in flight while a log is rotated. All
//! records appended before are in `pending`, in `files` or written. [`Log::rotate`] locks `files`,
//! writes the remaining records and closes both segments before it unlocks. So earlier records are
//! in segments below the rotation, later records in segments after it. If a concurrent commit locks
//! `files` first, `rotate` finds its records written. Otherwise `rotate` writes them, and the
//! commit finds them written. If the write fails, `rotate` changes nothing.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use varve_env::{Fs, is_out_of_files, size_of_file};
use varve_model::metadata::Metadata;
use varve_model::{Exemplar, Labels};

use super::checkpoint::{self, CheckpointWriter};
use super::file_name::{CheckpointPosition, SegmentKind, rotation_number};
use super::frame_buffer::FrameBuffer;
use super::record::{
    self, EXEMPLARS, LoggedHistogram, RECORD_SAMPLES_MAX, START_TIMESTAMPS, SampleColumn, Scratch,
    StartTimestamps, encode_exemplar, encode_histograms, encode_samples, encode_start_timestamps,
};
use super::segment::{SegmentWriter, UnsyncedFile, WriteError};
use crate::batch::{NumberedExemplars, SeriesRef};
use crate::error::{Error, Result};
use crate::options::WalSync;

/// Bytes at which a frame of definitions is closed.
const SERIES_FRAME_SIZE: usize = 1 << 20;
/// Bytes at which a frame of exemplars is closed.
const EXEMPLARS_FRAME_SIZE: usize = 1 << 16;

/// Maximum file number at open. It leaves as many numbers for new files.
const NUMBER_MAX: u64 = u64::MAX / 2;

/// Options of a log.
#[derive(Debug, Clone)]
pub(crate) struct LogOptions {
    /// Index of the log, for error messages.
    pub(crate) number: usize,
    /// Directory of the log.
    pub(crate) dir: PathBuf,
    /// File system of the data directory.
    pub(crate) fs: Arc<dyn Fs>,
    /// Whether a commit syncs.
    pub(crate) sync: WalSync,
    /// Bytes at which a segment is closed.
    pub(crate) segment_size_bytes: u64,
}

/// One of the logs of the WAL.
#[derive(Debug)]
pub(crate) struct Log {
    options: LogOptions,
    pending: Mutex<Pending>,
    files: Mutex<Files>,
    /// Held during a sync.
    syncing: Mutex<()>,
    /// Held while a checkpoint is written.
    checkpointing: Mutex<()>,
    /// Positions up to which all records are written, and synced.
    written: AtomicU64,
    synced: AtomicU64,
    /// A write failed; the next append retries it before it adds records.
    blocked: AtomicBool,
    /// The last error, while `blocked`.
    blocked_by: Mutex<String>,
    /// Size of the records whose write failed.
    blocked_bytes: AtomicUsize,
    poisoned: OnceLock<String>,
}

/// Whether a log accepts appends, and why not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Health {
    /// The log accepts appends.
    Ok,
    /// A write failed. Each append retries it. Contains the last error.
    Blocked(String),
    /// The log rejects appends until a restart. Contains the cause.
    Poisoned(String),
}

/// A position in a log: how many definitions, exemplars and records of samples were appended before
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position(u64);

/// Records that are appended but not written. The requests in flight bound their number: each
/// request commits its records before it completes, and none appends while the log is blocked.
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

impl Log {
    /// Opens a log for appending after the existing segments and checkpoints of its directory. The
    /// first write creates a file.
    ///
    /// # Errors
    /// [`Error::Io`] if the directory cannot be created or read; [`Error::Corrupt`] if a file
    /// number exceeds the maximum.
    pub(crate) fn open(options: LogOptions) -> Result<Self> {
        options
            .fs
            .create_dir(&options.dir)
            .map_err(Error::io("create", &options.dir))?;
        let names = options
            .fs
            .list(&options.dir)
            .map_err(Error::io("list", &options.dir))?;
        let last = |kind: SegmentKind| names.iter().filter_map(|name| kind.parse(name)).max();
        for kind in [
            SegmentKind::Series,
            SegmentKind::Samples,
            SegmentKind::Checkpoint,
        ] {
            if let Some(number) = last(kind).filter(|&number| number > NUMBER_MAX) {
                let path = options.dir.join(kind.file_name(number));
                let reason =
                    "the number of this file leaves none for new files; move it away".to_owned();
                return Err(Error::Corrupt {
                    path,
                    offset: 0,
                    reason,
                });
            }
        }
        // A checkpoint has the number of the first live segment, which may not exist.
        let first = last(SegmentKind::Checkpoint).unwrap_or(0);
        // Skips a number between the segments of two processes, see `is_closed`.
        let stream =
            |kind| SegmentWriter::new(kind, last(kind).map_or(0, |last| last + 2).max(first));
        Ok(Self {
            pending: Mutex::default(),
            files: Mutex::new(Files {
                series: stream(SegmentKind::Series),
                samples: stream(SegmentKind::Samples),
            }),
            syncing: Mutex::default(),
            checkpointing: Mutex::default(),
            written: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            blocked: AtomicBool::new(false),
            blocked_by: Mutex::default(),
            blocked_bytes: AtomicUsize::new(0),
            poisoned: OnceLock::new(),
            options,
        })
    }

    /// Returns `Ok` if the log accepts appends. After a failed write it first retries the write.
    ///
    /// # Errors
    /// [`Error::Poisoned`] until a restart; [`Error::Io`] if the retried write fails, for example
    /// on a full disk.
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
        let mut pending = self.pending.lock();
        record::encode_series(
            pending.series.open(record::SERIES, SERIES_FRAME_SIZE),
            series,
            labels,
        );
        pending.position += 1;
    }

    /// Appends the metadata of a metric family.
    pub(crate) fn append_metadata(&self, family: &str, metadata: &Metadata) {
        let mut pending = self.pending.lock();
        record::encode_metadata(
            pending.series.open(record::METADATA, SERIES_FRAME_SIZE),
            family,
            metadata,
        );
        pending.position += 1;
    }

    /// Appends samples. The definitions of their series must have been appended before.
    pub(crate) fn append_samples(&self, column: &SampleColumn) {
        let mut pending = self.pending.lock();
        let Pending {
            samples: frames,
            position,
            scratch,
            ..
        } = &mut *pending;
        let chunks = column
            .refs
            .chunks(RECORD_SAMPLES_MAX)
            .zip(column.samples.chunks(RECORD_SAMPLES_MAX));
        let mut first = 0;
        for (refs, samples) in chunks {
            let record = first..first + samples.len();
            if let Some(starts) = column.start_timestamps.record(record) {
                encode_start_timestamps(frames.begin(START_TIMESTAMPS), starts, |idx| {
                    (column.refs[idx], column.samples[idx].timestamp_ms)
                });
            }
            first += samples.len();
            encode_samples(frames.begin(record::SAMPLES), refs, samples, scratch);
            *position += 1;
        }
    }

    /// Appends histograms and their start timestamps. The definitions of their series must have
    /// been appended before.
    pub(crate) fn append_histograms(
        &self,
        histograms: &[LoggedHistogram],
        start_timestamps: &StartTimestamps,
    ) {
        let mut pending = self.pending.lock();
        let mut first = 0;
        let mut encoded = Vec::new();
        while first < histograms.len() {
            let rest = &histograms[first..];
            // Start timestamps precede the histograms, but which ones is known only after the
            // histograms are encoded.
            encoded.clear();
            let taken = &rest[..rest.len().min(RECORD_SAMPLES_MAX)];
            let end = first + taken.len() - encode_histograms(&mut encoded, taken).len();
            if let Some(starts) = start_timestamps.record(first..end) {
                encode_start_timestamps(pending.samples.begin(START_TIMESTAMPS), starts, |idx| {
                    (histograms[idx].series, histograms[idx].timestamp_ms)
                });
            }
            pending.samples.add(record::HISTOGRAMS, &encoded);
            pending.position += 1;
            first = end;
        }
    }

    /// Appends an exemplar with its id. The definition of its series must have been appended
    /// before.
    pub(crate) fn append_exemplar(&self, id: u64, series: SeriesRef, exemplar: &Exemplar) {
        let mut pending = self.pending.lock();
        encode_exemplar(
            pending.samples.open(EXEMPLARS, EXEMPLARS_FRAME_SIZE),
            id,
            series,
            exemplar,
        );
        pending.position += 1;
    }

    /// Returns the position after all records.
    pub(crate) fn end(&self) -> Position {
        Position(self.pending.lock().position)
    }

    /// Writes all records before `position` to the operating system, and syncs them under
    /// [`WalSync::Always`]. The first of concurrent callers writes, or syncs, for all of them.
    ///
    /// # Errors
    /// [`Error::Io`] if the write failed: the records stay in memory and the next commit retries;
    /// or if no file descriptor is left to sync the directory: a later sync retries.
    /// [`Error::Poisoned`] if a write or a sync failed for good, now or earlier.
    pub(crate) fn commit(&self, position: Position) -> Result<()> {
        self.write_to(position)?;
        if self.is_synced_by_commits() {
            self.sync_to(position.0)
        } else {
            Ok(())
        }
    }

    /// Returns `true` if a commit includes a sync.
    pub(crate) fn is_synced_by_commits(&self) -> bool {
        self.options.sync == WalSync::Always
    }

    /// Writes all records before `position` to the operating system. The first of concurrent
    /// callers writes for all.
    ///
    /// # Errors
    /// The errors of [`Log::commit`].
    pub(crate) fn write_to(&self, position: Position) -> Result<()> {
        if self.written.load(Ordering::Acquire) < position.0 {
            let mut files = self.files.lock();
            if self.written.load(Ordering::Acquire) < position.0 {
                self.write_pending(&mut files)?;
            }
        }
        Ok(())
    }

    /// Syncs all committed records, so that they survive a power cut. Does not block commits.
    ///
    /// # Errors
    /// [`Error::Io`] if no file descriptor is left to sync the directory: a later sync retries.
    /// [`Error::Poisoned`] if a write or a sync failed for good, now or earlier.
    pub(crate) fn sync(&self) -> Result<()> {
        self.sync_to(self.written.load(Ordering::Acquire))?;
        self.check_poison()
    }

    /// Writes all records to the operating system, so that a rotation finds little to write.
    ///
    /// # Errors
    /// The errors of [`Log::rotate`].
    pub(crate) fn write_out(&self) -> Result<()> {
        self.write_pending(&mut self.files.lock())
    }

    /// Rotates the log: on return all records are in closed segments, and later records go to new
    /// segments. The caller ensures that no request is in flight. Concurrent definitions may be
    /// before or after the rotation. Syncs nothing.
    ///
    /// # Errors
    /// [`Error::Io`] if records could not be written: they stay in memory, and the next commit
    /// retries. [`Error::Poisoned`]. After an error the log is not rotated.
    pub(crate) fn rotate(&self) -> Result<CheckpointPosition> {
        let mut files = self.files.lock();
        self.write_pending(&mut files)?;
        let Files { series, samples } = &mut *files;
        series.close();
        samples.close();
        let position = rotation_number(series.next_number.max(samples.next_number));
        series.next_number = position;
        samples.next_number = position;
        Ok(CheckpointPosition(position))
    }

    /// Replaces all segments before `position` with a checkpoint: the definitions of series with
    /// their last timestamps, the next free series ref, `metadata` and `exemplars`. `add_series`
    /// must add every series that was defined before the rotation and that samples after the
    /// rotation may refer to. All samples before the rotation must be durable in blocks.
    ///
    /// # Errors
    /// The errors of `add_series`. [`Error::Io`]. [`Error::Limit`] if the labels of an exemplar are
    /// larger than the store accepts. After an error all segments exist, and the checkpoint is
    /// either complete or absent. A segment that cannot be removed is no error: the next call
    /// retries the removal.
    pub(crate) fn checkpoint<'a>(
        &self,
        position: CheckpointPosition,
        add_series: impl FnOnce(&mut CheckpointWriter<'_, '_>) -> Result<()>,
        next_ref: u64,
        metadata: impl Iterator<Item = (&'a str, &'a Metadata)>,
        exemplars: &[NumberedExemplars],
    ) -> Result<()> {
        let _guard = self.checkpointing.lock();
        let LogOptions { fs, dir, .. } = &self.options;
        checkpoint::write(
            &**fs, dir, position, next_ref, metadata, add_series, exemplars,
        )?;
        let mut files = self.files.lock();
        files.series.discard_before(position.0);
        files.samples.discard_before(position.0);
        drop(files);
        checkpoint::remove_before(&**fs, dir, position);
        Ok(())
    }

    /// Returns the size of the records that are not written yet, in bytes. Does not wait for the
    /// disk.
    pub(crate) fn pending_size(&self) -> usize {
        let pending = self.pending.lock();
        pending.series.size() + pending.samples.size() + self.blocked_bytes.load(Ordering::Relaxed)
    }

    /// Returns the size of the log's files in bytes.
    ///
    /// # Errors
    /// [`Error::Io`] if the directory cannot be read.
    pub(crate) fn size(&self) -> Result<u64> {
        let LogOptions { fs, dir, .. } = &self.options;
        let names = fs.list(dir).map_err(Error::io("list", dir))?;
        // A file that a concurrent checkpoint removes counts as empty.
        Ok(names
            .iter()
            .map(|name| size_of_file(&**fs, &dir.join(name)))
            .sum())
    }

    /// Writes all records, definitions first.
    fn write_pending(&self, files: &mut Files) -> Result<()> {
        self.check_poison()?;
        let end = self.take_pending(files);
        files.series.frames.compress();
        let LogOptions {
            fs,
            dir,
            segment_size_bytes,
            ..
        } = &self.options;
        let write = |stream: &mut SegmentWriter| stream.write(&**fs, dir, *segment_size_bytes);
        match write(&mut files.series).and_then(|()| write(&mut files.samples)) {
            Ok(()) => {
                self.blocked_bytes.store(0, Ordering::Relaxed);
                self.blocked.store(false, Ordering::Release);
                self.written.store(end, Ordering::Release);
                Ok(())
            }
            Err(WriteError::Retryable(e)) => {
                *self.blocked_by.lock() = e.to_string();
                let size = files.series.frames.size() + files.samples.frames.size();
                self.blocked_bytes.store(size, Ordering::Relaxed);
                self.blocked.store(true, Ordering::Release);
                Err(e)
            }
            Err(WriteError::Torn(reason)) => Err(self.poison(reason)),
        }
    }

    fn take_pending(&self, files: &mut Files) -> u64 {
        let mut pending = self.pending.lock();
        files.series.frames.append(&mut pending.series);
        files.samples.frames.append(&mut pending.samples);
        pending.position
    }

    /// Syncs all records before `position`, which must be written.
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
            file.sync()
                .map_err(|e| self.poison(format!("sync {path:?}: {e}")))?;
        }
        if dir_dirty {
            let LogOptions { fs, dir, .. } = &self.options;
            fs.sync_dir(dir).map_err(|error| {
                if is_out_of_files(&error) {
                    // The sync did not begin. A later one can still succeed.
                    self.files.lock().series.note_new_file();
                    return Error::io("sync", dir)(error);
                }
                self.poison(format!("sync {dir:?}: {error}"))
            })?;
        }
        self.synced.store(end, Ordering::Release);
        Ok(())
    }

    /// Returns the written position and the files that need a sync, definitions first: samples must
    /// not outlive them.
    fn take_unsynced(&self) -> (u64, Vec<UnsyncedFile>, bool) {
        let mut files = self.files.lock();
        let mut unsynced = Vec::new();
        let series = files.series.take_unsynced(&mut unsynced);
        let samples = files.samples.take_unsynced(&mut unsynced);
        (
            self.written.load(Ordering::Acquire),
            unsynced,
            series || samples,
        )
    }

    fn check_poison(&self) -> Result<()> {
        match self.poisoned.get() {
            None => Ok(()),
            Some(reason) => Err(Error::Poisoned {
                log: self.options.number,
                reason: reason.clone(),
            }),
        }
    }

    /// Rejects all further writes. Returns the error for them; it contains the first reason.
    fn poison(&self, reason: String) -> Error {
        tracing::error!(
            log = self.options.number,
            reason,
            "the WAL accepts no writes until a restart"
        );
        let reason = self.poisoned.get_or_init(|| reason).clone();
        Error::Poisoned {
            log: self.options.number,
            reason,
        }
    }
}

#[cfg(test)]
mod tests;
