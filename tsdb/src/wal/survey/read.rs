//! The frames of a file of the log, decoded; what is none of them is noted and passed over.

use std::io::ErrorKind;

use super::content::{Content, Decoder};
use super::files::{LogFile, Role};
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::fs::damage::{DamageKind, DamageReport};
use crate::wal::frame::{COMPRESSED, HEADER_SIZE, VERSION};
use crate::wal::reader::{Frame, Item, LargeFrames, Opened, Reader};

/// A sound frame.
#[derive(Debug)]
pub struct FoundFrame<'a> {
    /// Where it begins in the file.
    pub offset: u64,
    /// Bytes that it takes there.
    pub size: u64,
    /// Its number in the file.
    pub sequence: u64,
    /// Whether its payload is compressed.
    pub is_compressed: bool,
    /// What it holds.
    pub content: Content<'a>,
    pub(super) record: u8,
    pub(super) payload: &'a [u8],
}

/// What is known of a file when it was read to its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileEnd {
    /// Bytes.
    pub size: u64,
    /// The version of its format; `None` if its header is not sound.
    pub version: Option<u8>,
    /// Bytes that are no sound frame, with sound ones behind them, or in a file without a header.
    pub damaged_bytes: u64,
    /// Bytes at its end that are no sound frame.
    pub torn_bytes: u64,
    /// Frames that are missing, going by the numbers of those around.
    pub n_missing_frames: u64,
    /// The file was removed before it was opened: a server is at work.
    pub is_gone: bool,
}

/// Reads a file and hands out its sound frames, in order. What is wrong is noted in `damage`.
///
/// # Errors
/// Those of `each`.
pub fn read_file(
    fs: &dyn Fs,
    file: &LogFile,
    damage: &mut DamageReport,
    each: impl FnMut(FoundFrame<'_>) -> Result<()>,
) -> Result<FileEnd> {
    let (path, large) = (&file.path, LargeFrames::default());
    let size = file.size(fs);
    let end = FileEnd { size, ..FileEnd::default() };
    match Reader::open(fs, path, file.kind, &large) {
        Ok(Opened::Sound(reader)) => read_frames(reader, file, end, damage, each),
        Ok(Opened::Empty) => Ok(end),
        Ok(Opened::Damaged(size)) => {
            let reason = format!("no sound header: none of {size} bytes can be trusted as they are");
            damage.push(path, 0, DamageKind::Corrupt, reason);
            Ok(FileEnd { damaged_bytes: size, ..end })
        }
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(FileEnd { is_gone: true, ..end }),
        Err(error) => {
            let is_newer = matches!(error, Error::Version { .. });
            let kind = if is_newer { DamageKind::Unsupported } else { DamageKind::Corrupt };
            damage.push(path, 0, kind, error.to_string());
            Ok(end)
        }
    }
}

/// Reads a file that was opened.
pub(super) fn read_frames(
    mut reader: Reader<'_>,
    file: &LogFile,
    mut end: FileEnd,
    damage: &mut DamageReport,
    mut each: impl FnMut(FoundFrame<'_>) -> Result<()>,
) -> Result<FileEnd> {
    end.version = Some(VERSION);
    let mut decoder = Decoder::new(file.kind, file.number);
    let (path, mut behind) = (&file.path, HEADER_SIZE as u64);
    loop {
        let item = match reader.next() {
            Ok(Some(item)) => item,
            Ok(None) => return Ok(end),
            Err(error) => {
                // A bad sector: nothing is known of what lies behind it.
                damage.push(path, behind, DamageKind::Corrupt, format!("cannot be read on: {error}"));
                end.damaged_bytes += end.size.saturating_sub(behind);
                return Ok(end);
            }
        };
        behind += item.size();
        match item {
            Item::Frame(frame) => {
                end.n_missing_frames += frame.n_missing;
                let content = decoder.decode(&frame);
                note_frame(file, &frame, &content, damage);
                let (is_compressed, record) = (frame.record & COMPRESSED != 0, frame.record);
                let Frame { offset, size, sequence, payload, .. } = frame;
                each(FoundFrame { offset, size, sequence, is_compressed, content, record, payload })?;
            }
            Item::Damaged(range) => {
                end.damaged_bytes += range.end - range.start;
                let reason = format!("{} bytes are no sound frame", range.end - range.start);
                damage.push(path, range.start, DamageKind::Corrupt, reason);
            }
            Item::Torn(range) => {
                end.torn_bytes += range.end - range.start;
                let reason = format!("the last {} bytes are no sound frame", range.end - range.start);
                damage.push(path, range.start, DamageKind::TornTail, reason);
            }
        }
    }
}

/// Notes what is wrong though the frame itself is sound.
fn note_frame(file: &LogFile, frame: &Frame<'_>, content: &Content<'_>, damage: &mut DamageReport) {
    let mut note = |kind, reason| damage.push(&file.path, frame.offset, kind, reason);
    if frame.n_missing > 0 {
        let reason = format!("{} frames are missing before frame {}", frame.n_missing, frame.sequence);
        note(DamageKind::Missing, reason);
    }
    match content {
        Content::Unknown => {
            let reason = format!("frame {} holds no record that this program knows", frame.sequence);
            note(DamageKind::Unsupported, reason);
        }
        Content::CheckpointSeries(_, n_lost @ 1..) => {
            note(DamageKind::Missing, format!("labels of {n_lost} series are lost: a frame of symbols is missing"));
        }
        _ => {}
    }
}

impl LogFile {
    /// Tells whether damage in the file costs nothing.
    #[must_use]
    pub fn is_replaced(&self) -> bool {
        self.role == Role::Replaced
    }
}
