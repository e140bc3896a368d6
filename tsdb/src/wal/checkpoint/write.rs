//! Writes a checkpoint.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use super::series::{FRAME_SERIES_MAX, SeriesWriter};
use super::symbols::SymbolWriter;
use super::{BEGIN, END, EXEMPLARS, SERIES, SYMBOLS, exemplars};
use crate::chunk::varint::put_u64;
use crate::error::{Error, Result};
use crate::fs::{AppendFile, Fs};
use crate::labels::{LABELS_SIZE_MAX, Labels, Metadata};
use crate::sample::SeriesRef;
use crate::sample::exemplar::NumberedExemplars;
use crate::wal::file_name::{Cut, SegmentKind};
use crate::wal::frame::file_header;
use crate::wal::frame_buffer::FrameBuffer;
use crate::wal::record::{METADATA, encode_metadata};

/// Payload bytes of symbols or metadata at which a frame is closed.
const FRAME_SIZE: usize = 512 << 10;
/// Buffered bytes at which frames are written to the file.
const WRITE_SIZE: usize = 1 << 20;

/// Writes a checkpoint and syncs it. After an error the checkpoint is either absent or complete.
pub(in crate::wal) fn write<'a>(
    fs: &dyn Fs,
    dir: &Path,
    cut: Cut,
    next_ref: u64,
    metadata: impl Iterator<Item = (&'a str, &'a Metadata)>,
    series: impl Iterator<Item = Result<(SeriesRef, Labels, i64)>>,
    exemplars: &[NumberedExemplars],
) -> Result<()> {
    let kind = SegmentKind::Checkpoint;
    let (path, tmp) = (dir.join(kind.file_name(cut.0)), dir.join(kind.tmp_name(cut.0)));
    // Remove the incomplete files that a crash left.
    for name in fs.list(dir).map_err(Error::io("list", dir))? {
        if kind.parse_tmp(&name).is_some() {
            remove(fs, &dir.join(name))?;
        }
    }
    let written = write_file(fs, &tmp, cut, next_ref, metadata, series, exemplars);
    if let Err(failed) = written.and_then(|()| fs.rename(&tmp, &path).map_err(Error::io("rename", &tmp))) {
        // If the removal fails as well, the next checkpoint retries it.
        let _failed = remove(fs, &tmp);
        return Err(failed);
    }
    fs.sync_dir(dir).map_err(Error::io("sync", dir))
}

fn remove(fs: &dyn Fs, path: &Path) -> Result<()> {
    match fs.remove(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io("remove", path)(e)),
        _ => Ok(()),
    }
}

fn write_file<'a>(
    fs: &dyn Fs,
    path: &Path,
    cut: Cut,
    next_ref: u64,
    metadata: impl Iterator<Item = (&'a str, &'a Metadata)>,
    series: impl Iterator<Item = Result<(SeriesRef, Labels, i64)>>,
    exemplars: &[NumberedExemplars],
) -> Result<()> {
    let mut file = File::create(fs, path)?;
    put_u64(&mut file.payload, cut.0);
    put_u64(&mut file.payload, next_ref);
    file.frame(BEGIN)?;
    for (family, metadata) in metadata {
        encode_metadata(&mut file.payload, family, metadata);
        if file.payload.len() >= FRAME_SIZE {
            file.frame(METADATA)?;
        }
    }
    file.frame(METADATA)?;
    write_series(&mut file, series)?;
    write_exemplars(&mut file, exemplars)?;
    put_u64(&mut file.payload, next_ref);
    file.frame(END)?;
    file.finish()
}

fn write_series(file: &mut File<'_>, all: impl Iterator<Item = Result<(SeriesRef, Labels, i64)>>) -> Result<()> {
    let mut symbols = SymbolWriter::new(file.salt);
    let mut series = SeriesWriter::default();
    for one in all {
        let (series_ref, labels, last_ms) = one?;
        limit("bytes of a label set", labels.size(), LABELS_SIZE_MAX)?;
        let added = series.add(&mut symbols, series_ref, labels, last_ms);
        added.ok_or(Error::Limit { what: "labels of a WAL checkpoint", used: 1 << 32, limit: u64::from(u32::MAX) })?;
        if series.len() == FRAME_SERIES_MAX || symbols.new_size() >= FRAME_SIZE {
            write_frames(file, &mut symbols, &mut series)?;
        }
    }
    write_frames(file, &mut symbols, &mut series)
}

fn write_frames(file: &mut File<'_>, symbols: &mut SymbolWriter, series: &mut SeriesWriter) -> Result<()> {
    symbols.take_new(&mut file.payload);
    file.frame(SYMBOLS)?;
    series.take(&mut file.payload);
    file.frame(SERIES)
}

fn write_exemplars(file: &mut File<'_>, all: &[NumberedExemplars]) -> Result<()> {
    for (labels, of_series) in all {
        limit("bytes of a label set", labels.size(), LABELS_SIZE_MAX)?;
        for group in of_series.chunks(exemplars::GROUP_MAX) {
            exemplars::encode(&mut file.payload, labels, group);
            if file.payload.len() >= FRAME_SIZE {
                file.frame(EXEMPLARS)?;
            }
        }
    }
    file.frame(EXEMPLARS)
}

fn limit(what: &'static str, used: usize, limit: usize) -> Result<()> {
    if used > limit { Err(Error::Limit { what, used: used as u64, limit: limit as u64 }) } else { Ok(()) }
}

/// A checkpoint that is being written.
struct File<'a> {
    file: Arc<dyn AppendFile>,
    path: &'a Path,
    salt: u64,
    next_sequence: u64,
    frames: FrameBuffer,
    /// The payload of the next frame.
    payload: Vec<u8>,
}

impl<'a> File<'a> {
    fn create(fs: &dyn Fs, path: &'a Path) -> Result<Self> {
        let salt = getrandom::u64().map_err(|e| Error::io("salt", path)(e.into()))?;
        let file = fs.create(path).map_err(Error::io("create", path))?;
        file.append(&file_header(SegmentKind::Checkpoint, salt)).map_err(Error::io("write", path))?;
        Ok(Self { file, path, salt, next_sequence: 0, frames: FrameBuffer::default(), payload: Vec::new() })
    }

    /// Completes a frame with `payload`. Writes no frame if the payload is empty.
    fn frame(&mut self, record: u8) -> Result<()> {
        if self.payload.is_empty() {
            return Ok(());
        }
        self.frames.add(record, &self.payload);
        self.payload.clear();
        if self.frames.size() >= WRITE_SIZE { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        self.next_sequence = self.frames.seal(self.salt, self.next_sequence);
        self.file.append(self.frames.bytes()).map_err(Error::io("write", self.path))?;
        self.frames.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        self.write()?;
        self.file.sync().map_err(Error::io("sync", self.path))
    }
}
