//! Mends a log: every sound frame stays, all else is left out, and the original is kept in the quarantine.
//!
//! A server passes over damage by itself and copies it aside, at each start anew, until a checkpoint replaces the file. It
//! does not start on a frame that it does not know, and gives up a file without a header. Here a damaged file is written
//! anew with the frames that can be read and decoded, numbered from 0, and takes the place of the original, which gets a
//! second name first. A header is guessed ([`Framing::guesses`]); a checkpoint gets its first and last frame back if these
//! are lost, but is only set aside where an older one still has all that it had. Torn ends are left to the next start.
//!
//! Crash: at every moment each file is there, the original or the mended one. Unfinished ones are made anew.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::content::Content;
use super::files::{LogFile, Role, list};
use super::read::{FileEnd, FoundFrame, read_frames};
use crate::chunk::varint::put_u64;
use crate::error::{Error, Result};
use crate::fs::damage::{DamageKind, DamageReport};
use crate::fs::{AppendFile, Fs};
use crate::originals;
use crate::wal::frame::{Framing, HEADER_SIZE};
use crate::wal::reader::{LargeFrames, Opened, Reader, check_version};
use crate::wal::{SegmentKind, checkpoint};

/// Bytes that are gathered before they go to the file.
const BUFFER_SIZE: usize = 1 << 20;
/// What the name of a file ends with while it is being written.
const TMP_SUFFIX: &str = ".mended.tmp";

/// What was mended, or would be.
#[derive(Debug, Clone, Default)]
pub struct Repair {
    /// What is damaged, and where.
    pub damage: DamageReport,
    /// The files that are written anew or set aside.
    pub mended: Vec<Mended>,
}

/// A damaged file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mended {
    /// Where it is.
    pub path: PathBuf,
    /// Where the original is kept, or would be.
    pub original: PathBuf,
    /// Frames that stay; `None` if the file is set aside, as nothing of it is of use.
    pub n_kept: Option<u64>,
}

/// What is to be kept of a file.
#[derive(Debug, Clone, Copy, Default)]
struct Sound {
    n_frames: u64,
    /// Of a checkpoint: whether its first and its last frame are there.
    begins: bool,
    ends: bool,
    /// The least number that no series of it has.
    next_ref: u64,
    /// Of a checkpoint: frames with series whose labels are lost. They stay so, whatever is written.
    n_without_labels: u64,
}

/// Mends the log of a data directory that no server has open; without `write` it only says what it would do. `progress` is
/// told of the bytes of the files that were looked at, and of all of them.
///
/// # Errors
/// [`Error::Locked`] if a server has the directory open; [`Error::Version`] if the format version of a file is not supported: nothing was
/// changed then; [`Error::Io`].
pub fn repair(fs: &dyn Fs, dir: &Path, write: bool, progress: &mut dyn FnMut(u64, u64)) -> Result<Repair> {
    let lock_path = dir.join("lock");
    let _lock = match write {
        true => Some(fs.lock(&lock_path).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => Error::Locked { path: lock_path },
            _ => Error::io("lock", &lock_path)(error),
        })?),
        false => None,
    };
    let files = list(fs, dir)?;
    files.iter().try_for_each(|file| check_version(fs, &file.path, file.kind))?;
    let (quarantine, mut repair) = (dir.join("quarantine"), Repair::default());
    let counting: Vec<(&LogFile, u64)> =
        files.iter().filter(|file| file.role != Role::Replaced).map(|file| (file, file.size(fs))).collect();
    let (mut done, total) = (0, counting.iter().map(|(_, size)| size).sum());
    for (file, size) in counting {
        repair.file(fs, &quarantine, file, &files, write)?;
        done += size;
        progress(done, total);
    }
    Ok(repair)
}

impl Repair {
    fn file(&mut self, fs: &dyn Fs, quarantine: &Path, file: &LogFile, files: &[LogFile], write: bool) -> Result<()> {
        let (large, mut found) = (LargeFrames::default(), DamageReport::default());
        let reader = open(fs, file, &large, &mut found)?;
        let framing = reader.as_ref().map(Reader::framing);
        let sound = reader.map(|reader| examine(reader, file, &mut found)).transpose()?.unwrap_or_default();
        let is_cut = file.kind == SegmentKind::Checkpoint && !(sound.begins && sound.ends);
        if is_cut {
            found.push(&file.path, 0, DamageKind::Missing, "the first or the last frame of the checkpoint is missing");
        }
        if found.n_damaged() == 0 {
            return Ok(());
        }
        let n_mendable = found.n_damaged() - sound.n_without_labels;
        self.damage.append(found);
        if n_mendable == 0 {
            return Ok(());
        }
        let is_useless = sound.n_frames == 0 || file.role == Role::Unsound;
        if !is_useless && file.kind == SegmentKind::Checkpoint && !sound.begins && has_older_segments(file, files) {
            // A first frame would make segments go that are needed. A server takes what is sound of the checkpoint as it is.
            return Ok(());
        }
        let name = original_name(&file.path);
        let mut mended = Mended { path: file.path.clone(), original: quarantine.join(&name), n_kept: None };
        mended.n_kept = (!is_useless).then_some(sound.n_frames);
        if write {
            mended.original = originals::keep(fs, &file.path, quarantine, &name)?;
            match framing.filter(|_| !is_useless) {
                Some(framing) => write_anew(fs, file, framing, sound)?,
                None if file.kind == SegmentKind::Checkpoint => remove(fs, &file.path)?,
                // An empty segment keeps the number from being given again.
                None => empty(fs, file)?,
            }
        }
        self.mended.push(mended);
        Ok(())
    }
}

/// Opens a file, by a guessed header if need be; `None` if there is nothing in it to be kept.
fn open<'a>(
    fs: &dyn Fs,
    file: &LogFile,
    large: &'a LargeFrames,
    damage: &mut DamageReport,
) -> Result<Option<Reader<'a>>> {
    let path = &file.path;
    match Reader::open(fs, path, file.kind, large)? {
        Opened::Sound(reader) => return Ok(Some(reader)),
        // What a crash left: nothing was written to it.
        Opened::Empty if file.kind != SegmentKind::Checkpoint => return Ok(None),
        Opened::Empty | Opened::Damaged(_) => damage.push(path, 0, DamageKind::Corrupt, "no sound header"),
    }
    let mut header = [0; HEADER_SIZE];
    let read = fs.open(path).and_then(|file| file.read_at(&mut header, 0));
    if read.is_err() {
        return Ok(None);
    }
    for framing in Framing::guesses(&header, file.kind) {
        let mut n_frames = 0;
        let reader = Reader::open_as(fs, path, framing, large)?;
        read_frames(reader, file, FileEnd::default(), &mut DamageReport::default(), |_| {
            n_frames += 1;
            Ok(())
        })?;
        if n_frames > 0 {
            return Reader::open_as(fs, path, framing, large).map(Some);
        }
    }
    Ok(None)
}

fn examine(reader: Reader<'_>, file: &LogFile, damage: &mut DamageReport) -> Result<Sound> {
    let mut sound = Sound::default();
    read_frames(reader, file, FileEnd::default(), damage, |frame| {
        if matches!(frame.content, Content::Unknown) {
            return Ok(());
        }
        sound.n_frames += 1;
        sound.ends = matches!(frame.content, Content::End(_));
        match &frame.content {
            Content::Begin(next_ref) => {
                sound.begins = true;
                sound.next_ref = sound.next_ref.max(*next_ref);
            }
            Content::CheckpointSeries(found, n_lost) => {
                sound.n_without_labels += u64::from(*n_lost > 0);
                let newest = found.iter().map(|it| it.0).max().unwrap_or(0);
                sound.next_ref = sound.next_ref.max(newest.saturating_add(1));
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(sound)
}

/// Tells whether segments are there that the checkpoint replaces.
fn has_older_segments(checkpoint: &LogFile, files: &[LogFile]) -> bool {
    files.iter().any(|file| {
        let is_same_log = (file.epoch, file.log) == (checkpoint.epoch, checkpoint.log);
        is_same_log && file.kind != SegmentKind::Checkpoint && file.number < checkpoint.number
    })
}

/// Returns `<epoch>.<log>.<file>.original`.
fn original_name(path: &Path) -> String {
    let mut parts: Vec<_> = path.iter().rev().take(3).map(|part| part.to_string_lossy()).collect();
    parts.reverse();
    format!("{}.original", parts.join("."))
}

/// Puts an empty file in the place of one.
fn empty(fs: &dyn Fs, file: &LogFile) -> Result<()> {
    let tmp = tmp_of(fs, file)?;
    fs.create(&tmp).and_then(|file| file.sync()).map_err(Error::io("create", &tmp))?;
    originals::replace(fs, &tmp, &file.path)
}

/// Names the file that takes the place of one, and removes what an interrupted run left of it.
fn tmp_of(fs: &dyn Fs, file: &LogFile) -> Result<PathBuf> {
    let mut name = file.path.file_name().unwrap_or_default().to_owned();
    name.push(TMP_SUFFIX);
    let tmp = file.path.with_file_name(name);
    remove(fs, &tmp)?;
    Ok(tmp)
}

/// Writes the sound frames of a file to one that takes its place.
fn write_anew(fs: &dyn Fs, file: &LogFile, framing: Framing, sound: Sound) -> Result<()> {
    let tmp = tmp_of(fs, file)?;
    let large = LargeFrames::default();
    let reader = Reader::open_as(fs, &file.path, framing, &large)?;
    let mut anew = Anew::create(fs, &tmp, file.kind, framing)?;
    let is_checkpoint = file.kind == SegmentKind::Checkpoint;
    if is_checkpoint && !sound.begins {
        anew.put(checkpoint::BEGIN, &pair(file.number, sound.next_ref))?;
    }
    read_frames(reader, file, FileEnd::default(), &mut DamageReport::default(), |frame: FoundFrame<'_>| {
        match frame.content {
            Content::Unknown => Ok(()),
            _ => anew.put(frame.record, frame.payload),
        }
    })?;
    if is_checkpoint && !sound.ends {
        let mut payload = Vec::new();
        put_u64(&mut payload, sound.next_ref);
        anew.put(checkpoint::END, &payload)?;
    }
    anew.finish()?;
    originals::replace(fs, &tmp, &file.path)
}

fn pair(first: u64, second: u64) -> Vec<u8> {
    let mut payload = Vec::new();
    put_u64(&mut payload, first);
    put_u64(&mut payload, second);
    payload
}

/// A file that is being written.
struct Anew<'a> {
    path: &'a Path,
    file: std::sync::Arc<dyn AppendFile>,
    framing: Framing,
    bytes: Vec<u8>,
    sequence: u64,
}

impl<'a> Anew<'a> {
    fn create(fs: &dyn Fs, path: &'a Path, kind: SegmentKind, framing: Framing) -> Result<Self> {
        let file = fs.create(path).map_err(Error::io("create", path))?;
        Ok(Self { path, file, framing, bytes: framing.file_header(kind).to_vec(), sequence: 0 })
    }

    fn put(&mut self, record: u8, payload: &[u8]) -> Result<()> {
        self.framing.put_frame(&mut self.bytes, self.sequence, record, payload);
        self.sequence += 1;
        if self.bytes.len() >= BUFFER_SIZE { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        self.file.append(&self.bytes).map_err(Error::io("write", self.path))?;
        self.bytes.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        self.flush()?;
        self.file.sync().map_err(Error::io("sync", self.path))
    }
}

fn remove(fs: &dyn Fs, path: &Path) -> Result<()> {
    match fs.remove(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io("remove", path)(error)),
        _ => Ok(()),
    }
}
