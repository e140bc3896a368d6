//! Appending to a log, with group commit, and cutting it.
//!
//! A record takes three steps, each under a lock of its own: encoded into [`Pending`] (under the lock of what is gathered, or of a head), written by
//! whoever comes first for all that wait (`files`), synced likewise (`syncing`). Locks are taken in the order
//! head, `syncing`, `files`, `pending`, and nothing waits for the disk to sync while it holds `files`: so
//! [`Wal::rotate`], for which all appends wait, waits for a write to the operating system at most.
//!
//! A cut falls between two requests, as none is in flight while a log is rotated: at that
//! moment all that was appended is in `pending`, in `files` or written. Rotating takes `files`, writes the rest and closes
//! both segments before it lets go: what was appended before is in segments below the cut, what comes after in others. A
//! commit that runs at the same time either had `files` first, then rotating finds nothing left of what it wrote, or
//! finds its records written. A write that fails closes nothing.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};

use super::exemplars::{EXEMPLARS, encode_exemplar};
use super::histograms::{LoggedHistogram, encode_histograms};
use super::record::{self, SampleColumn};
use super::samples::{RECORD_SAMPLES_MAX, Scratch, encode_samples};
use super::starts::{STARTS, ToldStarts, encode_starts};
use super::stream::{Frames, Refused, Stream, Unsynced};
use super::{Cut, Health, SegmentKind, checkpoint};
use crate::error::{Error, Result};
use crate::fs::{Fs, size_of_file};
use crate::head::SeriesRef;
use crate::labels::{Labels, Metadata};
use crate::options::WalSync;
use crate::sample::exemplar::{Exemplar, NumberedExemplars};

/// Size at which the definitions gathered in one frame are closed off.
const SERIES_FRAME_SIZE: usize = 1 << 20;
/// Size at which the exemplars gathered in one frame are closed off.
const EXEMPLARS_FRAME_SIZE: usize = 1 << 16;

/// The highest number of a file that is taken for one that a log has come to: it leaves room for as many again.
const NUMBER_MAX: u64 = u64::MAX / 2;

/// How the log is written.
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

/// A log, of one or several shards.
#[derive(Debug)]
pub(crate) struct Wal {
    options: WalOptions,
    pending: Mutex<Pending>,
    files: Mutex<Files>,
    /// Held by the one that syncs.
    syncing: Mutex<()>,
    /// Held by the one that writes a checkpoint.
    checkpointing: Mutex<()>,
    /// The positions up to which all is written, and synced.
    written: AtomicU64,
    synced: AtomicU64,
    /// A write failed; the next append tries again before it adds more.
    blocked: AtomicBool,
    /// Why, while `blocked`.
    blocked_by: Mutex<String>,
    poisoned: OnceLock<String>,
}

/// How much was appended to a log, in records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position(u64);

/// Records that were appended and not yet committed. Bounded by the requests that are in flight, as each commits
/// what it appended before it is answered, and none appends while the log is blocked.
#[derive(Debug, Default)]
struct Pending {
    series: Frames,
    samples: Frames,
    position: u64,
    scratch: Scratch,
}

#[derive(Debug)]
struct Files {
    series: Stream,
    samples: Stream,
}

impl Wal {
    /// Starts a log behind the segments and checkpoints that the folder already has. No file is made before the first
    /// write.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder cannot be made or read; [`Error::Corrupt`] if a file leaves no number for the next.
    pub(crate) fn open(options: WalOptions) -> Result<Self> {
        options.fs.create_dir(&options.dir).map_err(Error::io("create", &options.dir))?;
        let names = options.fs.list(&options.dir).map_err(Error::io("list", &options.dir))?;
        let last = |kind: SegmentKind| names.iter().filter_map(|name| kind.parse(name)).max();
        for kind in [SegmentKind::Series, SegmentKind::Samples, SegmentKind::Checkpoint] {
            if let Some(number) = last(kind).filter(|&number| number > NUMBER_MAX) {
                let path = options.dir.join(kind.file_name(number));
                let reason =
                    "no number is left behind that of this file, which is none of ours; move it away".to_owned();
                return Err(Error::Corrupt { path, offset: 0, reason });
            }
        }
        // A checkpoint's number is the first that still counts, whether there is such a segment or not.
        let first = last(SegmentKind::Checkpoint).unwrap_or(0);
        let stream = |kind| Stream::new(kind, last(kind).map_or(0, |last| last + 1).max(first));
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

    /// Returns `Ok` if the log takes appends; after a failed write it first tries to write what is left.
    ///
    /// # Errors
    /// [`Error::Poisoned`] for good, [`Error::Io`] while the disk is full.
    pub(crate) fn ready(&self) -> Result<()> {
        if self.blocked.load(Ordering::Acquire) {
            self.commit(self.end())?;
        }
        self.check_poison()
    }

    /// Tells whether the log takes appends, and why not. Waits for no disk.
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
            if let Some(starts) = column.starts.record(at..at + samples.len()) {
                let sample = |place: usize| (column.refs[place], column.samples[place].timestamp_ms);
                encode_starts(frames.begin(STARTS), starts, sample);
            }
            at += samples.len();
            encode_samples(frames.begin(record::SAMPLES), refs, samples, scratch);
            *position += 1;
        }
    }

    /// Appends histograms of series whose definitions were appended before, and what is told of their starts.
    pub(crate) fn append_histograms(&self, histograms: &[LoggedHistogram], starts: &ToldStarts) {
        let mut pending = self.pending();
        let sample = |place: usize| (histograms[place].series, histograms[place].timestamp_ms);
        let (mut at, mut encoded) = (0, Vec::new());
        while at < histograms.len() {
            let rest = &histograms[at..];
            // Starts come first, but how many there are is known only when the histograms are encoded.
            encoded.clear();
            let taken = &rest[..rest.len().min(RECORD_SAMPLES_MAX)];
            let end = at + taken.len() - encode_histograms(&mut encoded, taken).len();
            if let Some(starts) = starts.record(at..end) {
                encode_starts(pending.samples.begin(STARTS), starts, sample);
            }
            pending.samples.add(record::HISTOGRAMS, &encoded);
            pending.position += 1;
            at = end;
        }
    }

    /// Appends an exemplar, under its number, of a series whose definition was appended before.
    pub(crate) fn append_exemplar(&self, number: u64, series: SeriesRef, exemplar: &Exemplar) {
        let mut pending = self.pending();
        encode_exemplar(pending.samples.open(EXEMPLARS, EXEMPLARS_FRAME_SIZE), number, series, exemplar);
        pending.position += 1;
    }

    /// Returns the position behind everything that was appended.
    pub(crate) fn end(&self) -> Position {
        Position(self.pending().position)
    }

    /// Returns once everything before `position` is in the operating system's hands, and synced under
    /// [`WalSync::Always`]. Who comes first writes, or syncs, for all that wait.
    ///
    /// # Errors
    /// [`Error::Io`] if it could not be written: it stays in memory and the next commit tries again.
    /// [`Error::Poisoned`] if it could not be synced.
    pub(crate) fn commit(&self, position: Position) -> Result<()> {
        if self.written.load(Ordering::Acquire) < position.0 {
            let mut files = self.files();
            if self.written.load(Ordering::Acquire) < position.0 {
                self.write_pending(&mut files)?;
            }
        }
        if self.options.sync == WalSync::Always { self.sync_to(position.0) } else { Ok(()) }
    }

    /// Makes everything that was committed survive a power cut. Commits go on meanwhile.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if the disk refused, now or earlier.
    pub(crate) fn sync(&self) -> Result<()> {
        self.sync_to(self.written.load(Ordering::Acquire))?;
        self.check_poison()
    }

    /// Hands what was appended to the operating system, so that a cut finds little to write.
    ///
    /// # Errors
    /// As [`Wal::rotate`].
    pub(crate) fn write_out(&self) -> Result<()> {
        self.write_pending(&mut self.files())
    }

    /// Cuts the log: all that was appended lies in closed segments on return, and what comes next goes to new ones.
    /// No request is in flight; definitions may come before or after the cut. Nothing is synced.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Poisoned`]; the log is not cut then, and goes on as before.
    pub(crate) fn rotate(&self) -> Result<Cut> {
        let mut files = self.files();
        self.write_pending(&mut files)?;
        let Files { series, samples } = &mut *files;
        series.close();
        samples.close();
        // Never the number of an earlier cut, whose checkpoint may still be there.
        let cut = series.next_number.max(samples.next_number) + 1;
        (series.next_number, samples.next_number) = (cut, cut);
        Ok(Cut(cut))
    }

    /// Replaces all segments before `cut` by a checkpoint: the definitions of `series`, with their last times
    /// (`i64::MIN` if there is none), in label order, `next_ref` as the least number that no series ever had, and
    /// `metadata` and `exemplars`. `series` holds every series that samples behind the cut may name and that was defined before it.
    /// All samples before the cut are durable elsewhere.
    ///
    /// # Errors
    /// Those of `series`, [`Error::Io`], [`Error::Limit`] if a label set is larger than any the store accepts. The
    /// segments before the cut still count then. A segment that cannot be removed is no error; the next call tries again.
    pub(crate) fn checkpoint<'a>(
        &self,
        cut: Cut,
        series: impl Iterator<Item = Result<(SeriesRef, Labels, i64)>>,
        next_ref: u64,
        metadata: impl Iterator<Item = (&'a str, &'a Metadata)>,
        exemplars: &[NumberedExemplars],
    ) -> Result<()> {
        let _turn = self.checkpointing.lock();
        let WalOptions { fs, dir, .. } = &self.options;
        checkpoint::write(&**fs, dir, cut, next_ref, metadata, series, exemplars)?;
        let mut files = self.files();
        files.series.forget_before(cut.0);
        files.samples.forget_before(cut.0);
        drop(files);
        checkpoint::remove_before(&**fs, dir, cut);
        Ok(())
    }

    /// Counts the bytes that wait to be written.
    pub(crate) fn pending_size(&self) -> usize {
        let pending = self.pending();
        pending.series.size() + pending.samples.size()
    }

    /// Returns the bytes of the log's files.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder cannot be read.
    pub(crate) fn size(&self) -> Result<u64> {
        let WalOptions { fs, dir, .. } = &self.options;
        let names = fs.list(dir).map_err(Error::io("list", dir))?;
        // A file that a checkpoint removes meanwhile takes nothing.
        Ok(names.iter().map(|name| size_of_file(&**fs, &dir.join(name))).sum())
    }

    /// Writes all that was appended, definitions first.
    fn write_pending(&self, files: &mut Files) -> Result<()> {
        self.check_poison()?;
        let end = self.take_pending(files);
        files.series.frames.compress();
        let WalOptions { fs, dir, segment_size_bytes, .. } = &self.options;
        let write = |stream: &mut Stream| stream.write(&**fs, dir, *segment_size_bytes);
        match write(&mut files.series).and_then(|()| write(&mut files.samples)) {
            Ok(()) => {
                self.blocked.store(false, Ordering::Release);
                self.written.store(end, Ordering::Release);
                Ok(())
            }
            Err(Refused::Whole(e)) => {
                *self.blocked_by.lock() = e.to_string();
                self.blocked.store(true, Ordering::Release);
                Err(e)
            }
            Err(Refused::Half(reason)) => Err(self.poison(reason)),
        }
    }

    fn take_pending(&self, files: &mut Files) -> u64 {
        let mut pending = self.pending();
        files.series.frames.take(&mut pending.series);
        files.samples.frames.take(&mut pending.samples);
        pending.position
    }

    /// Returns once everything before `position`, which is written, is synced.
    fn sync_to(&self, position: u64) -> Result<()> {
        if self.synced.load(Ordering::Acquire) >= position {
            return Ok(());
        }
        let _turn = self.syncing.lock();
        if self.synced.load(Ordering::Acquire) >= position {
            return Ok(());
        }
        self.check_poison()?;
        let (end, unsynced, dir_dirty) = self.take_unsynced();
        for Unsynced { path, file, .. } in unsynced {
            file.sync().map_err(|e| self.poison(format!("sync {path:?}: {e}")))?;
        }
        if dir_dirty {
            let WalOptions { fs, dir, .. } = &self.options;
            fs.sync_dir(dir).map_err(|e| self.poison(format!("sync {dir:?}: {e}")))?;
        }
        self.synced.store(end, Ordering::Release);
        Ok(())
    }

    /// Returns how far is written and what of it needs a sync, definitions first: samples must not outlive them.
    fn take_unsynced(&self) -> (u64, Vec<Unsynced>, bool) {
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

    /// Ends all writing, and returns the error that says so. The first reason stands.
    fn poison(&self, reason: String) -> Error {
        tracing::error!(log = self.options.number, reason, "the log accepts no writes until a restart");
        let reason = self.poisoned.get_or_init(|| reason).clone();
        Error::Poisoned { log: self.options.number, reason }
    }

    // A panic while one of the two locks is held leaves whole records: both are sound after it.
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock()
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock()
    }
}

#[cfg(test)]
mod tests;
