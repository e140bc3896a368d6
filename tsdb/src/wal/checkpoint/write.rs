//! Writes a checkpoint.

use std::path::Path;

use varve_codec::varint::put_u64;
use varve_fs::{Fs, remove_if_exists};

use super::series::{FRAME_SERIES_MAX, SeriesWriter};
use super::symbols::SymbolWriter;
use super::{BEGIN, END, EXEMPLARS, SERIES, SYMBOLS, exemplars};
use crate::error::{Error, Result};
use crate::labels::{LABELS_SIZE_MAX, Labels, Metadata};
use crate::sample::{SeriesRef, exemplar::NumberedExemplars};
use crate::wal::file_name::{CheckpointPosition, SegmentKind};
use crate::wal::frame_file::FrameFile;
use crate::wal::record::{METADATA, encode_metadata};

/// Payload bytes of symbols or metadata at which a frame is closed.
const FRAME_SIZE: usize = 512 << 10;

/// Writes a checkpoint and syncs it. After an error the checkpoint is either absent or complete.
pub(in crate::wal) fn write<'a>(
    fs: &dyn Fs,
    dir: &Path,
    position: CheckpointPosition,
    next_ref: u64,
    metadata: impl Iterator<Item = (&'a str, &'a Metadata)>,
    series: impl Iterator<Item = Result<(SeriesRef, Labels, i64)>>,
    exemplars: &[NumberedExemplars],
) -> Result<()> {
    let kind = SegmentKind::Checkpoint;
    let (path, tmp) = (dir.join(kind.file_name(position.0)), dir.join(kind.tmp_name(position.0)));
    let salt = getrandom::u64().map_err(|e| Error::io("salt", &tmp)(e.into()))?;
    // Remove the incomplete files that a crash left.
    for name in fs.list(dir).map_err(Error::io("list", dir))? {
        if kind.parse_tmp(&name).is_some() {
            let path = dir.join(name);
            remove_if_exists(fs, &path)?;
        }
    }
    let written = || {
        let mut file = FrameFile::create(fs, &tmp, kind, salt)?;
        put_u64(&mut file.payload, position.0);
        put_u64(&mut file.payload, next_ref);
        file.frame(BEGIN)?;
        write_metadata(&mut file, metadata)?;
        write_series(&mut file, SymbolWriter::new(salt), series)?;
        write_exemplars(&mut file, exemplars)?;
        put_u64(&mut file.payload, next_ref);
        file.frame(END)?;
        file.finish()?;
        fs.rename(&tmp, &path).map_err(Error::io("rename", &tmp))
    };
    written().inspect_err(|_| {
        // If the removal fails as well, the next checkpoint retries it.
        let _failed = remove_if_exists(fs, &tmp);
    })?;
    fs.sync_dir(dir).map_err(Error::io("sync", dir))
}

fn write_metadata<'a>(file: &mut FrameFile<'_>, metadata: impl Iterator<Item = (&'a str, &'a Metadata)>) -> Result<()> {
    for (family, metadata) in metadata {
        encode_metadata(&mut file.payload, family, metadata);
        if file.payload.len() >= FRAME_SIZE {
            file.frame(METADATA)?;
        }
    }
    file.frame(METADATA)
}

fn write_series(
    file: &mut FrameFile<'_>,
    mut symbols: SymbolWriter,
    all: impl Iterator<Item = Result<(SeriesRef, Labels, i64)>>,
) -> Result<()> {
    let mut series = SeriesWriter::default();
    for one in all {
        let (series_ref, labels, last_ms) = one?;
        Error::check_limit("bytes of a label set", labels.size(), LABELS_SIZE_MAX)?;
        let added = series.add(&mut symbols, series_ref, labels, last_ms);
        added.ok_or(Error::Limit { what: "labels of a WAL checkpoint", used: 1 << 32, limit: u64::from(u32::MAX) })?;
        if series.len() == FRAME_SERIES_MAX || symbols.new_size() >= FRAME_SIZE {
            write_frames(file, &mut symbols, &mut series)?;
        }
    }
    write_frames(file, &mut symbols, &mut series)
}

fn write_frames(file: &mut FrameFile<'_>, symbols: &mut SymbolWriter, series: &mut SeriesWriter) -> Result<()> {
    symbols.take_new(&mut file.payload);
    file.frame(SYMBOLS)?;
    series.take(&mut file.payload);
    file.frame(SERIES)
}

fn write_exemplars(file: &mut FrameFile<'_>, all: &[NumberedExemplars]) -> Result<()> {
    for (labels, numbered) in all {
        Error::check_limit("bytes of a label set", labels.size(), LABELS_SIZE_MAX)?;
        for group in numbered.chunks(exemplars::GROUP_MAX) {
            exemplars::encode(&mut file.payload, labels, group);
            if file.payload.len() >= FRAME_SIZE {
                file.frame(EXEMPLARS)?;
            }
        }
    }
    file.frame(EXEMPLARS)
}
