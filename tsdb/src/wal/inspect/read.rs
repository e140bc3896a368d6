//! Reads and decodes the frames of a file; records and skips damage.

use std::io::ErrorKind;

use varve_env::Fs;
use varve_env::damage::{DamageKind, DamageReport};

use super::content::{Content, Decoder};
use super::files::WalFile;
use crate::error::{Error, Result};
use crate::wal::checkpoint;
use crate::wal::file_name::SegmentKind;
use crate::wal::frame::{COMPRESSED, HEADER_SIZE, VERSION};
use crate::wal::reader::{Frame, Item, LargeFrameLock, Opened, Reader};

/// Damage of a segment that is shorter than its header.
pub(super) const NO_HEADER: &str =
    "the segment has no header: an unknown number of samples is lost";

/// A valid frame.
#[derive(Debug)]
pub struct FoundFrame<'a> {
    /// Offset in the file.
    pub offset: u64,
    /// Size in the file, header included.
    pub size: u64,
    /// Sequence number.
    pub sequence: u64,
    /// Whether the payload is compressed.
    pub is_compressed: bool,
    /// The decoded record.
    pub content: Content<'a>,
    pub(super) record: u8,
    pub(super) payload: &'a [u8],
}

/// Size, version and damage of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileIntegrity {
    /// Size in bytes.
    pub size: u64,
    /// The format version; `None` if the header is damaged.
    pub version: Option<u8>,
    /// Bytes that are not a valid frame, before the last valid frame or in a closed segment; all
    /// bytes if the header is damaged.
    pub damaged_bytes: u64,
    /// Bytes at the end of a segment that is not closed, or of a checkpoint, that are not a valid
    /// frame.
    pub torn_bytes: u64,
    /// Missing frames according to the sequence numbers around them.
    pub n_missing_frames: u64,
    /// The segment is shorter than a header.
    pub has_no_header: bool,
    /// The file was removed before it was opened: a server is running.
    pub is_removed: bool,
}

/// Reads a file and passes its valid frames to `each`, in order. Damage is recorded in `damage`.
///
/// # Errors
/// The errors of `each`; [`Error::Io`] if there are too many open files.
pub fn read_file(
    fs: &dyn Fs,
    file: &WalFile,
    damage: &mut DamageReport,
    each: impl FnMut(FoundFrame<'_>) -> Result<()>,
) -> Result<FileIntegrity> {
    let path = &file.path;
    let large = LargeFrameLock::default();
    let size = file.size(fs);
    let end = FileIntegrity {
        size,
        ..FileIntegrity::default()
    };
    match Reader::open(fs, path, file.kind, &large) {
        Ok(Opened::Valid(reader)) => read_frames(reader, file, end, damage, each),
        // `checkpoint::examine` reports an empty checkpoint.
        Ok(Opened::Empty(_)) if file.kind == SegmentKind::Checkpoint => Ok(end),
        Ok(Opened::Empty(_)) => {
            damage.push(path, 0, DamageKind::Missing, NO_HEADER);
            Ok(FileIntegrity {
                has_no_header: true,
                ..end
            })
        }
        Ok(Opened::Damaged(size)) => {
            let reason = format!("no valid header: none of {size} bytes can be verified");
            damage.push(path, 0, DamageKind::Corrupt, reason);
            Ok(FileIntegrity {
                damaged_bytes: size,
                ..end
            })
        }
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
            Ok(FileIntegrity {
                is_removed: true,
                ..end
            })
        }
        Err(error) if error.is_out_of_files() => Err(error),
        Err(error) => {
            let is_unsupported = matches!(error, Error::Version { .. });
            let kind = if is_unsupported {
                DamageKind::Unsupported
            } else {
                DamageKind::Corrupt
            };
            damage.push(path, 0, kind, error.to_string());
            Ok(end)
        }
    }
}

/// Reads the frames of an open file.
pub(super) fn read_frames(
    mut reader: Reader<'_>,
    file: &WalFile,
    mut end: FileIntegrity,
    damage: &mut DamageReport,
    mut each: impl FnMut(FoundFrame<'_>) -> Result<()>,
) -> Result<FileIntegrity> {
    end.version = Some(VERSION);
    let mut decoder = Decoder::new(file.kind, file.number);
    let path = &file.path;
    let mut offset = HEADER_SIZE as u64;
    loop {
        let item = match reader.next() {
            Ok(Some(item)) => item,
            Ok(None) => return Ok(end),
            Err(error) => {
                // For example a bad sector. The rest of the file cannot be read.
                damage.push(
                    path,
                    offset,
                    DamageKind::Corrupt,
                    format!("cannot be read from here on: {error}"),
                );
                end.damaged_bytes += end.size.saturating_sub(offset);
                return Ok(end);
            }
        };
        offset += item.size();
        match item {
            Item::Frame(frame) => {
                end.n_missing_frames += frame.n_missing;
                let content = decoder.decode(&frame);
                check_frame(file, &frame, &content, damage);
                each(FoundFrame {
                    offset: frame.offset,
                    size: frame.size,
                    sequence: frame.sequence,
                    is_compressed: frame.record & COMPRESSED != 0,
                    content,
                    record: frame.record,
                    payload: frame.payload,
                })?;
            }
            Item::Torn(range) if !file.is_closed => {
                end.torn_bytes += range.end - range.start;
                let reason = format!(
                    "the last {} bytes are not a valid frame",
                    range.end - range.start
                );
                damage.push(path, range.start, DamageKind::TornTail, reason);
            }
            Item::Damaged(range) | Item::Torn(range) => {
                end.damaged_bytes += range.end - range.start;
                let reason = format!("{} bytes are not a valid frame", range.end - range.start);
                damage.push(path, range.start, DamageKind::Corrupt, reason);
            }
        }
    }
}

/// Records damage of a valid frame.
fn check_frame(
    file: &WalFile,
    frame: &Frame<'_>,
    content: &Content<'_>,
    damage: &mut DamageReport,
) {
    let mut note = |kind, reason| damage.push(&file.path, frame.offset, kind, reason);
    if frame.n_missing > 0 {
        let reason = format!(
            "{} frames are missing before frame {}",
            frame.n_missing, frame.sequence
        );
        note(DamageKind::Missing, reason);
    }
    match content {
        Content::Unknown
            if file.kind == SegmentKind::Checkpoint
                && let Some(name) = checkpoint::other_name(frame, file.number) =>
        {
            note(
                DamageKind::Corrupt,
                format!("this is {name}: the file was renamed"),
            );
        }
        Content::Unknown => {
            let reason = format!("frame {} holds an unknown record", frame.sequence);
            note(DamageKind::Unsupported, reason);
        }
        Content::CheckpointSeries(_, n_lost @ 1..) => {
            note(
                DamageKind::Missing,
                format!("labels of {n_lost} series are lost: a symbols frame is missing"),
            );
        }
        _ => {}
    }
}
