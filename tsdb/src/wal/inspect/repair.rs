//! Repairs a WAL: valid frames are retained, everything else is dropped, and the original is saved
//! in the quarantine.
//!
//! At each start, until a checkpoint supersedes the file, a server skips damage and copies it to
//! the quarantine. It fails to start if a record is unknown, and skips a file without a valid
//! header. A repair rewrites a damaged file with the frames that decode, numbered from 0. First it
//! links the original into the quarantine. A damaged header is reconstructed
//! ([`Framing::guesses`]). A lost first or last frame of a checkpoint is restored. If an older
//! checkpoint is complete, the damaged one is only moved to the quarantine. A renamed checkpoint, with
//! which a server does not start, gets its name back, or is moved to the quarantine if the name is
//! taken. The next start truncates torn tails.
//!
//! Crash: at every moment each file is either the original or the repaired one. The next run
//! replaces incomplete files.

use std::path::{Path, PathBuf};

use varve_codec::varint::put_u64;
use varve_env::damage::{DamageKind, DamageReport};
use varve_env::{Fs, remove_if_exists, replace_file, save_original};

use super::content::Content;
use super::files::{Role, WalFile, list};
use super::read::{FileIntegrity, FoundFrame, NO_HEADER, read_frames};
use crate::error::{Error, Result};
use crate::wal::checkpoint;
use crate::wal::file_name::SegmentKind;
use crate::wal::frame::{Framing, HEADER_SIZE};
use crate::wal::frame_file::FrameFile;
use crate::wal::quarantine::qualified_name;
use crate::wal::reader::{LargeFrameLock, Opened, Reader, check_version};

/// The suffix of a file that is being written.
const TMP_SUFFIX: &str = ".repaired.tmp";

/// The result of a repair, or of a dry run.
#[derive(Debug, Clone, Default)]
pub struct WalRepair {
    /// The damage found.
    pub damage: DamageReport,
    /// The checkpoints that get their names back, before all else.
    pub renamed: Vec<RenamedFile>,
    /// The files that are rewritten or moved to the quarantine.
    pub repaired: Vec<RepairedFile>,
}

/// A renamed file that gets its name back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenamedFile {
    /// The path that it has.
    pub path: PathBuf,
    /// The path that it gets.
    pub renamed_to: PathBuf,
}

/// A damaged file that is repaired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairedFile {
    /// The path.
    pub path: PathBuf,
    /// The path of the saved original.
    pub original: PathBuf,
    /// Number of frames retained; `None` if the file is useless and moved to the quarantine.
    pub n_frames: Option<u64>,
}

/// The valid part of a file.
#[derive(Debug, Clone, Copy, Default)]
struct ValidFrames {
    n_frames: u64,
    /// For a checkpoint: whether the first and the last frame are valid.
    begins: bool,
    ends: bool,
    /// The next series ref after all series of the file.
    next_ref: u64,
    /// For a checkpoint: number of frames with series whose labels are lost. A repair cannot
    /// restore these labels.
    n_without_labels: u64,
}

/// Repairs the WAL of a data directory that no server has open. If `write` is `false`, only reports
/// what it would do. `progress` gets the bytes checked so far and the total.
///
/// # Errors
/// [`Error::Locked`] if a server has the directory open; [`Error::Version`] if the format version
/// of a file is not supported: nothing was changed then; [`Error::Io`].
pub fn repair(
    fs: &dyn Fs,
    dir: &Path,
    write: bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<WalRepair> {
    let lock_path = dir.join("lock");
    let _lock = write
        .then(|| fs.lock(&lock_path).map_err(Error::lock(&lock_path)))
        .transpose()?;
    let mut files = list(fs, dir)?;
    files
        .iter()
        .try_for_each(|file| check_version(fs, &file.path, file.kind))?;
    let quarantine = dir.join("quarantine");
    let mut repair = WalRepair::default();
    for file in &files {
        repair.rename_back(fs, &quarantine, file, write)?;
    }
    // Names decide what a replay does with the files.
    if write && repair.damage.n_damaged() > 0 {
        files = list(fs, dir)?;
    }
    files.retain(|file| !repair.is_reported(file));
    let unsuperseded: Vec<(&WalFile, u64)> = files
        .iter()
        .filter(|file| file.role != Role::Superseded)
        .map(|file| (file, file.size(fs)))
        .collect();
    let mut done = 0;
    let total = unsuperseded.iter().map(|(_, size)| size).sum();
    for (file, size) in unsuperseded {
        repair.repair_file(fs, &quarantine, file, &files, write)?;
        done += size;
        progress(done, total);
    }
    Ok(repair)
}

impl WalRepair {
    /// Gives a renamed checkpoint its name back. Moves it to the quarantine if there is another file of
    /// this name, of which it is a copy.
    fn rename_back(
        &mut self,
        fs: &dyn Fs,
        quarantine: &Path,
        file: &WalFile,
        write: bool,
    ) -> Result<()> {
        let large = LargeFrameLock::default();
        if file.kind != SegmentKind::Checkpoint {
            return Ok(());
        }
        let path = &file.path;
        let Some(name) = checkpoint::name_before(fs, path, file.number, &large)? else {
            return Ok(());
        };
        let reason = format!("this is {name}: the file was renamed");
        self.damage.push(path, 0, DamageKind::Corrupt, reason);
        let renamed_to = path.with_file_name(name);
        if fs.open(&renamed_to).is_err() {
            if write {
                replace_file(fs, path, &renamed_to)?;
            }
            self.renamed.push(RenamedFile {
                path: path.clone(),
                renamed_to,
            });
            return Ok(());
        }
        let name = format!("{}.original", qualified_name(path));
        let mut original = quarantine.join(&name);
        if write {
            original = save_original(fs, path, quarantine, &name)?;
            fs.remove(path).map_err(Error::io("remove", path))?;
        }
        self.repaired.push(RepairedFile {
            path: path.clone(),
            original,
            n_frames: None,
        });
        Ok(())
    }

    /// Returns `true` if damage of a file is reported.
    fn is_reported(&self, file: &WalFile) -> bool {
        self.damage
            .entries()
            .iter()
            .any(|damage| damage.path == file.path)
    }

    fn repair_file(
        &mut self,
        fs: &dyn Fs,
        quarantine: &Path,
        file: &WalFile,
        files: &[WalFile],
        write: bool,
    ) -> Result<()> {
        let large = LargeFrameLock::default();
        let mut found = DamageReport::default();
        let reader = open(fs, file, &large, &mut found)?;
        let framing = reader.as_ref().map(Reader::framing);
        let valid = reader
            .map(|reader| examine(reader, file, &mut found))
            .transpose()?
            .unwrap_or_default();
        let is_checkpoint = file.kind == SegmentKind::Checkpoint;
        let is_incomplete = is_checkpoint && !(valid.begins && valid.ends);
        if is_incomplete {
            found.push(
                &file.path,
                0,
                DamageKind::Missing,
                "the first or the last frame of the checkpoint is missing",
            );
        }
        if found.n_damaged() == 0 {
            return Ok(());
        }
        let n_repairable = found.n_damaged() - valid.n_without_labels;
        self.damage.append(found);
        if n_repairable == 0 {
            return Ok(());
        }
        let is_useless = valid.n_frames == 0 || file.role == Role::Damaged;
        let has_no_begin = is_checkpoint && !valid.begins;
        if !is_useless && has_no_begin && has_older_segments(file, files) {
            // A restored first frame would supersede segments that are needed. A server uses the
            // valid frames of the file unchanged.
            return Ok(());
        }
        let name = format!("{}.original", qualified_name(&file.path));
        let mut repaired = RepairedFile {
            path: file.path.clone(),
            original: quarantine.join(&name),
            n_frames: (!is_useless).then_some(valid.n_frames),
        };
        if write {
            repaired.original = save_original(fs, &file.path, quarantine, &name)?;
            match framing {
                Some(framing) if !is_useless => rewrite(fs, file, framing, valid)?,
                _ if is_checkpoint => {
                    fs.remove(&file.path)
                        .map_err(Error::io("remove", &file.path))?;
                }
                // A segment without frames reserves its number.
                _ => replace_with_empty(fs, file)?,
            }
        }
        self.repaired.push(repaired);
        Ok(())
    }
}

/// Opens a file, with a reconstructed header if necessary. Returns `None` if it has no valid
/// frames.
fn open<'a>(
    fs: &dyn Fs,
    file: &WalFile,
    large: &'a LargeFrameLock,
    damage: &mut DamageReport,
) -> Result<Option<Reader<'a>>> {
    let path = &file.path;
    match Reader::open(fs, path, file.kind, large)? {
        Opened::Valid(reader) => return Ok(Some(reader)),
        Opened::Empty(_) if file.kind != SegmentKind::Checkpoint => {
            damage.push(path, 0, DamageKind::Missing, NO_HEADER);
            return Ok(None);
        }
        Opened::Empty(_) | Opened::Damaged(_) => {
            damage.push(path, 0, DamageKind::Corrupt, "no valid header")
        }
    }
    let mut header = [0; HEADER_SIZE];
    let read = fs.open(path).and_then(|file| file.read_at(&mut header, 0));
    if read.is_err() {
        return Ok(None);
    }
    for framing in Framing::guesses(&header, file.kind) {
        let mut n_frames = 0;
        let reader = Reader::open_as(fs, path, file.kind, framing, large)?;
        read_frames(
            reader,
            file,
            FileIntegrity::default(),
            &mut DamageReport::default(),
            |_| {
                n_frames += 1;
                Ok(())
            },
        )?;
        if n_frames > 0 {
            return Reader::open_as(fs, path, file.kind, framing, large).map(Some);
        }
    }
    Ok(None)
}

fn examine(reader: Reader<'_>, file: &WalFile, damage: &mut DamageReport) -> Result<ValidFrames> {
    let mut valid = ValidFrames::default();
    read_frames(reader, file, FileIntegrity::default(), damage, |frame| {
        if matches!(frame.content, Content::Unknown) {
            return Ok(());
        }
        valid.n_frames += 1;
        valid.ends = matches!(frame.content, Content::End(_));
        match &frame.content {
            Content::Begin(next_ref) => {
                valid.begins = true;
                valid.next_ref = valid.next_ref.max(*next_ref);
            }
            Content::CheckpointSeries(found, n_lost) => {
                valid.n_without_labels += u64::from(*n_lost > 0);
                let newest = found.iter().map(|it| it.0).max().unwrap_or(0);
                valid.next_ref = valid.next_ref.max(newest.saturating_add(1));
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(valid)
}

/// Returns `true` if there are segments that the checkpoint supersedes.
fn has_older_segments(checkpoint: &WalFile, files: &[WalFile]) -> bool {
    files.iter().any(|file| {
        let is_same_log = (file.epoch, file.log) == (checkpoint.epoch, checkpoint.log);
        is_same_log && file.kind != SegmentKind::Checkpoint && file.number < checkpoint.number
    })
}

/// Replaces a file by one without frames.
fn replace_with_empty(fs: &dyn Fs, file: &WalFile) -> Result<()> {
    let tmp = tmp_path(fs, file)?;
    let salt = getrandom::u64().map_err(|e| Error::io("salt", &tmp)(e.into()))?;
    FrameFile::create(fs, &tmp, file.kind, salt)?.finish()?;
    Ok(replace_file(fs, &tmp, &file.path)?)
}

/// Returns the temporary path of the replacement for `file`. Removes a replacement that an
/// interrupted run left there.
fn tmp_path(fs: &dyn Fs, file: &WalFile) -> Result<PathBuf> {
    let mut name = file.path.file_name().unwrap_or_default().to_owned();
    name.push(TMP_SUFFIX);
    let tmp = file.path.with_file_name(name);
    remove_if_exists(fs, &tmp)?;
    Ok(tmp)
}

/// Replaces a file with a file of its valid frames.
fn rewrite(fs: &dyn Fs, file: &WalFile, framing: Framing, valid: ValidFrames) -> Result<()> {
    let tmp = tmp_path(fs, file)?;
    let large = LargeFrameLock::default();
    let reader = Reader::open_as(fs, &file.path, file.kind, framing, &large)?;
    let mut repaired = FrameFile::create(fs, &tmp, file.kind, framing.salt())?;
    let is_checkpoint = file.kind == SegmentKind::Checkpoint;
    if is_checkpoint && !valid.begins {
        put_u64(&mut repaired.payload, file.number);
        put_u64(&mut repaired.payload, valid.next_ref);
        repaired.frame(checkpoint::BEGIN)?;
    }
    read_frames(
        reader,
        file,
        FileIntegrity::default(),
        &mut DamageReport::default(),
        |frame: FoundFrame<'_>| match frame.content {
            Content::Unknown => Ok(()),
            _ => repaired.put(frame.record, frame.payload),
        },
    )?;
    if is_checkpoint && !valid.ends {
        put_u64(&mut repaired.payload, valid.next_ref);
        repaired.frame(checkpoint::END)?;
    }
    repaired.finish()?;
    Ok(replace_file(fs, &tmp, &file.path)?)
}
