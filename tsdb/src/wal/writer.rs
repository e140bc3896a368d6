//! Appending to a shard's log, with group commit.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::SegmentKind;
use super::frame::{SEGMENT_HEADER_SIZE, begin_frame, finish_frame, segment_header};
use super::record::{self, RECORD_SAMPLES_MAX, SampleColumn};
use crate::error::{Error, Result};
use crate::fs::{AppendFile, Fs};
use crate::head::SeriesRef;
use crate::labels::Labels;
use crate::metadata::Metadata;
use crate::options::WalSync;

/// Size at which the definitions gathered in one frame are closed off.
const SERIES_FRAME_SIZE: usize = 1 << 20;

/// How the log is written.
#[derive(Debug, Clone)]
pub(crate) struct WalOptions {
    /// The shard, for error messages.
    pub(crate) shard: usize,
    /// The folder of the shard's log.
    pub(crate) dir: PathBuf,
    /// The disk.
    pub(crate) fs: Arc<dyn Fs>,
    /// When a commit syncs.
    pub(crate) sync: WalSync,
    /// Size at which a segment is closed.
    pub(crate) segment_size_bytes: u64,
}

/// The log of one shard.
#[derive(Debug)]
pub(crate) struct Wal {
    options: WalOptions,
    pending: Mutex<Pending>,
    files: Mutex<Files>,
    /// The position up to which all is written, and synced where a commit syncs.
    committed: AtomicU64,
    /// A write failed; the next append tries again before it adds more.
    blocked: AtomicBool,
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
}

/// Frames whose headers are still to be written.
#[derive(Debug, Default)]
struct Frames {
    bytes: Vec<u8>,
    /// Where each frame begins, and what its record is.
    starts: Vec<(usize, u8)>,
}

#[derive(Debug)]
struct Files {
    series: Stream,
    samples: Stream,
}

/// The segments of one kind that this process writes.
#[derive(Debug)]
struct Stream {
    kind: SegmentKind,
    next_number: u64,
    segment: Option<Segment>,
    /// Closed segments that wait for their last sync, in order. Empty under [`WalSync::Never`].
    unsynced: Vec<Unsynced>,
    /// What is to be written next; after a failed write, what is still to be written.
    frames: Frames,
}

/// A file to sync, and its path for the error.
type Unsynced = (PathBuf, Arc<dyn AppendFile>);

#[derive(Debug)]
struct Segment {
    path: PathBuf,
    file: Arc<dyn AppendFile>,
    size: u64,
    salt: u64,
    next_sequence: u64,
    /// Not synced since the last write.
    dirty: bool,
}

impl Wal {
    /// Starts a log behind the segments that the folder already has. No file is made before the first write.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder cannot be made or read.
    pub(crate) fn open(options: WalOptions) -> Result<Self> {
        options.fs.create_dir(&options.dir).map_err(Error::io("create", &options.dir))?;
        let names = options.fs.list(&options.dir).map_err(Error::io("list", &options.dir))?;
        let stream = |kind: SegmentKind| Stream {
            kind,
            next_number: names.iter().filter_map(|name| kind.parse(name)).max().map_or(0, |last| last + 1),
            segment: None,
            unsynced: Vec::new(),
            frames: Frames::default(),
        };
        Ok(Self {
            pending: Mutex::default(),
            files: Mutex::new(Files { series: stream(SegmentKind::Series), samples: stream(SegmentKind::Samples) }),
            committed: AtomicU64::new(0),
            blocked: AtomicBool::new(false),
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
        let chunks = column.refs.chunks(RECORD_SAMPLES_MAX).zip(column.samples.chunks(RECORD_SAMPLES_MAX));
        for (refs, samples) in chunks {
            record::encode_samples(pending.samples.begin(record::SAMPLES), refs, samples);
            pending.position += 1;
        }
    }

    /// Returns the position behind everything that was appended.
    pub(crate) fn end(&self) -> Position {
        Position(self.pending().position)
    }

    /// Returns once everything before `position` is in the operating system's hands, and synced under
    /// [`WalSync::Always`]. Who comes first writes for all that wait.
    ///
    /// # Errors
    /// [`Error::Io`] if it could not be written: it stays in memory and the next commit tries again.
    /// [`Error::Poisoned`] if it could not be synced.
    pub(crate) fn commit(&self, position: Position) -> Result<()> {
        if self.committed.load(Ordering::Acquire) >= position.0 {
            return Ok(());
        }
        let mut files = self.files();
        if self.committed.load(Ordering::Acquire) >= position.0 {
            return Ok(());
        }
        self.check_poison()?;
        let end = self.take_pending(&mut files);
        let written = files.series.write(self).and_then(|()| files.samples.write(self));
        self.blocked.store(written.is_err(), Ordering::Release);
        written?;
        if self.options.sync == WalSync::Always {
            sync_all(files.take_unsynced(), self)?;
        }
        self.committed.store(end, Ordering::Release);
        Ok(())
    }

    /// Makes everything that was committed survive a power cut. Commits go on meanwhile.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if the disk refused, now or earlier.
    pub(crate) fn sync(&self) -> Result<()> {
        let unsynced = self.files().take_unsynced();
        sync_all(unsynced, self)?;
        self.check_poison()
    }

    /// Counts the bytes that wait to be written.
    pub(crate) fn pending_size(&self) -> usize {
        let pending = self.pending();
        pending.series.bytes.len() + pending.samples.bytes.len()
    }

    fn take_pending(&self, files: &mut Files) -> u64 {
        let mut pending = self.pending();
        files.series.frames.take(&mut pending.series);
        files.samples.frames.take(&mut pending.samples);
        pending.position
    }

    fn check_poison(&self) -> Result<()> {
        match self.poisoned.get() {
            None => Ok(()),
            Some(reason) => Err(Error::Poisoned { shard: self.options.shard, reason: reason.clone() }),
        }
    }

    /// Ends all writing, and returns the error that says so. The first reason stands.
    fn poison(&self, reason: String) -> Error {
        tracing::error!(shard = self.options.shard, reason, "the log accepts no writes until a restart");
        let reason = self.poisoned.get_or_init(|| reason).clone();
        Error::Poisoned { shard: self.options.shard, reason }
    }

    // A panic while one of the two locks was held leaves whole records: both are sound after it.
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Files {
    /// Returns what needs a sync, definitions first: samples must not outlive them. From now on it counts as synced.
    fn take_unsynced(&mut self) -> Vec<Unsynced> {
        let mut unsynced = Vec::new();
        for stream in [&mut self.series, &mut self.samples] {
            unsynced.append(&mut stream.unsynced);
            if let Some(segment) = stream.segment.as_mut().filter(|segment| segment.dirty) {
                segment.dirty = false;
                unsynced.push((segment.path.clone(), Arc::clone(&segment.file)));
            }
        }
        unsynced
    }
}

fn sync_all(unsynced: Vec<Unsynced>, wal: &Wal) -> Result<()> {
    for (path, file) in unsynced {
        file.sync().map_err(|e| wal.poison(format!("sync {path:?}: {e}")))?;
    }
    Ok(())
}

impl Frames {
    /// Begins a frame and returns the buffer to which its record is appended.
    fn begin(&mut self, record: u8) -> &mut Vec<u8> {
        self.starts.push((begin_frame(&mut self.bytes), record));
        &mut self.bytes
    }

    /// Returns the buffer of the last frame if it is of this record and smaller than `size`, else of a new one.
    fn open(&mut self, record: u8, size: usize) -> &mut Vec<u8> {
        match self.starts.last() {
            Some(&(start, last)) if last == record && self.bytes.len() - start < size => &mut self.bytes,
            _ => self.begin(record),
        }
    }

    /// Moves the frames of `other` behind these.
    fn take(&mut self, other: &mut Self) {
        if self.starts.is_empty() {
            std::mem::swap(self, other);
            return;
        }
        let offset = self.bytes.len();
        self.bytes.append(&mut other.bytes);
        self.starts.extend(other.starts.drain(..).map(|(start, record)| (start + offset, record)));
    }

    /// Writes the headers, numbered from `sequence`, and returns the number of the next frame.
    fn seal(&mut self, salt: u64, mut sequence: u64) -> u64 {
        for (i, &(start, record)) in self.starts.iter().enumerate() {
            let end = self.starts.get(i + 1).map_or(self.bytes.len(), |next| next.0);
            finish_frame(&mut self.bytes[..end], start, salt, sequence, record);
            sequence += 1;
        }
        sequence
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.starts.clear();
    }
}

impl Stream {
    /// Writes all frames to the current segment or the next one.
    fn write(&mut self, wal: &Wal) -> Result<()> {
        if self.frames.starts.is_empty() {
            return Ok(());
        }
        if self.segment.as_ref().is_some_and(|segment| segment.size >= wal.options.segment_size_bytes) {
            self.close_segment(wal.options.sync);
        }
        let segment = match &mut self.segment {
            Some(segment) => segment,
            none => none.insert(Segment::create(wal, self.kind, &mut self.next_number)?),
        };
        let next_sequence = self.frames.seal(segment.salt, segment.next_sequence);
        if let Err(refused) = segment.file.append(&self.frames.bytes) {
            segment.file.truncate(segment.size).map_err(|e| wal.poison(format!("cut {:?}: {e}", segment.path)))?;
            return Err(Error::io("write", &segment.path)(refused));
        }
        segment.size += self.frames.bytes.len() as u64;
        segment.next_sequence = next_sequence;
        segment.dirty = true;
        self.frames.clear();
        Ok(())
    }

    /// Closes the segment. Its last sync comes with the next one of the log, in order: never before that of definitions.
    fn close_segment(&mut self, sync: WalSync) {
        let dirty = self.segment.take().filter(|segment| segment.dirty && sync != WalSync::Never);
        self.unsynced.extend(dirty.map(|segment| (segment.path, segment.file)));
    }
}

impl Segment {
    /// Creates the segment of the next number. What a full disk leaves of it is removed.
    fn create(wal: &Wal, kind: SegmentKind, next_number: &mut u64) -> Result<Self> {
        let WalOptions { dir, fs, .. } = &wal.options;
        let path = dir.join(kind.file_name(*next_number));
        let salt = getrandom::u64().map_err(|e| Error::io("salt", &path)(e.into()))?;
        let file = fs.create(&path).map_err(Error::io("create", &path))?;
        if let Err(refused) = file.append(&segment_header(kind, salt)) {
            if fs.remove(&path).is_err() {
                // The number is used up by a file that replay passes over.
                *next_number += 1;
            }
            return Err(Error::io("write", &path)(refused));
        }
        *next_number += 1;
        fs.sync_dir(dir).map_err(Error::io("sync", dir))?;
        Ok(Self { path, file, size: SEGMENT_HEADER_SIZE as u64, salt, next_sequence: 0, dirty: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::{FaultFs, RealFs};
    use crate::sample::Sample;
    use crate::wal::reader::{Item, scan};

    fn wal(dir: &std::path::Path, fs: Arc<dyn Fs>, sync: WalSync, segment_size_bytes: u64) -> Wal {
        Wal::open(WalOptions { shard: 0, dir: dir.to_owned(), fs, sync, segment_size_bytes }).unwrap()
    }

    fn append(wal: &Wal, timestamp_ms: i64) -> Result<()> {
        wal.ready()?;
        let mut column = SampleColumn::default();
        column.push(SeriesRef(1), Sample { timestamp_ms, value: 1.5 });
        wal.append_samples(&column);
        wal.commit(wal.end())
    }

    /// Reads back the times of all samples, and asserts that the files are whole.
    fn times(dir: &std::path::Path) -> Vec<i64> {
        let mut times = Vec::new();
        for name in RealFs.list(dir).unwrap() {
            let bytes = std::fs::read(dir.join(name)).unwrap();
            for item in scan(&bytes, SegmentKind::Samples).unwrap() {
                let Item::Frame(frame) = item else { panic!("damaged: {item:?}") };
                let mut column = SampleColumn::default();
                record::decode_samples(frame.payload, &mut column).unwrap();
                times.extend(column.samples.iter().map(|s| s.timestamp_ms));
            }
        }
        times
    }

    #[test]
    fn segments_are_closed_at_their_size_and_a_new_process_starts_its_own() {
        let dir = tempfile::tempdir().unwrap();
        for round in 0..2 {
            let wal = wal(dir.path(), Arc::new(RealFs), WalSync::Always, 200);
            (0..10).for_each(|i| append(&wal, round * 10 + i).unwrap());
        }
        assert_eq!(times(dir.path()), (0..20).collect::<Vec<_>>());
        assert!(RealFs.list(dir.path()).unwrap().len() >= 4);
    }

    #[test]
    fn a_full_disk_leaves_whole_frames_and_heals_without_loss() {
        for room in 0..135 {
            let dir = tempfile::tempdir().unwrap();
            let fs = FaultFs::with_room(room);
            let wal = wal(dir.path(), Arc::new(fs.clone()), WalSync::Interval, 1 << 20);
            let appended: Vec<i64> = (0..3).filter(|&t| append(&wal, t).is_ok()).collect();
            assert!(appended.len() < 3, "room {room}");
            assert!(append(&wal, 3).is_err(), "blocked");
            let before = times(dir.path());
            assert_eq!(before, appended, "room {room}: only what was acknowledged is there");
            fs.set_room(u64::MAX);
            append(&wal, 4).unwrap();
            // The first refused one was kept in memory; those that came while blocked never got in.
            let refused = appended.len() as i64;
            let expected: Vec<i64> = appended.into_iter().chain([refused, 4]).collect();
            assert_eq!(times(dir.path()), expected, "room {room}");
        }
    }

    #[test]
    fn a_failed_sync_poisons() {
        let dir = tempfile::tempdir().unwrap();
        let fs = FaultFs::with_room(u64::MAX);
        let wal = wal(dir.path(), Arc::new(fs.clone()), WalSync::Always, 1 << 20);
        append(&wal, 1).unwrap();
        fs.set_sync_fails(true);
        assert!(matches!(append(&wal, 2), Err(Error::Poisoned { .. })));
        fs.set_sync_fails(false);
        assert!(matches!(append(&wal, 3), Err(Error::Poisoned { .. })), "a later success proves nothing");
    }

    #[test]
    fn large_requests_are_split_into_records() {
        let dir = tempfile::tempdir().unwrap();
        let wal = wal(dir.path(), Arc::new(RealFs), WalSync::Never, 1 << 30);
        let mut column = SampleColumn::default();
        let n_samples = RECORD_SAMPLES_MAX as i64 * 2 + 1;
        (0..n_samples).for_each(|timestamp_ms| column.push(SeriesRef(1), Sample { timestamp_ms, value: 0.1 }));
        wal.append_samples(&column);
        wal.commit(wal.end()).unwrap();
        assert_eq!(times(dir.path()).len(), n_samples as usize);
    }
}
