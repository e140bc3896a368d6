//! Writes a checkpoint.

use std::path::Path;

use varve_codec::varint::put_u64;
use varve_env::{Fs, remove_if_exists};
use varve_model::labels::LABELS_SIZE_MAX;
use varve_model::metadata::Metadata;

use super::exemplars;
use super::record::{BEGIN, END, EXEMPLARS, SERIES, SYMBOLS};
use super::series::{FRAME_SERIES_MAX, SeriesWriter};
use super::symbols::SymbolWriter;
use crate::batch::{NumberedExemplars, SeriesRef};
use crate::error::{Error, Result};
use crate::index::Pair;
use crate::wal::file_name::{CheckpointPosition, SegmentKind};
use crate::wal::frame_file::FrameFile;
use crate::wal::record::{METADATA, encode_metadata};

/// Payload bytes of symbols, labels of series, or metadata at which a frame is closed.
const FRAME_SIZE: usize = 512 << 10;

/// Writes a checkpoint and syncs it. `add_series` adds the series of all heads of the log. After an
/// error the checkpoint is either absent or complete.
pub(in crate::wal) fn write<'a>(
    fs: &dyn Fs,
    dir: &Path,
    position: CheckpointPosition,
    next_ref: u64,
    metadata: impl Iterator<Item = (&'a str, &'a Metadata)>,
    add_series: impl FnOnce(&mut CheckpointWriter<'_, '_>) -> Result<()>,
    exemplars: &[NumberedExemplars],
) -> Result<()> {
    let kind = SegmentKind::Checkpoint;
    let path = dir.join(kind.file_name(position.0));
    let tmp = dir.join(kind.tmp_name(position.0));
    let salt = getrandom::u64().map_err(|e| Error::io("salt", &tmp)(e.into()))?;
    // Remove the incomplete files that a crash left.
    for name in fs.list(dir).map_err(Error::io("list", dir))? {
        if kind.parse_tmp(&name).is_some() {
            let path = dir.join(name);
            remove_if_exists(fs, &path)?;
        }
    }
    let frames = |mut file: FrameFile<'_>| {
        put_u64(&mut file.payload, position.0);
        put_u64(&mut file.payload, next_ref);
        file.frame(BEGIN)?;
        write_metadata(&mut file, metadata)?;
        add_series(&mut CheckpointWriter {
            file: &mut file,
            symbols: SymbolWriter::new(salt),
            series: SeriesWriter::default(),
        })?;
        write_exemplars(&mut file, exemplars)?;
        put_u64(&mut file.payload, next_ref);
        file.frame(END)?;
        file.finish()
    };
    let written = FrameFile::create(fs, &tmp, kind, salt)
        .and_then(frames)
        .and_then(|()| fs.rename(&tmp, &path).map_err(Error::io("rename", &tmp)));
    written.inspect_err(|_| {
        // If the removal fails as well, the next checkpoint retries it.
        let _failed = remove_if_exists(fs, &tmp);
    })?;
    fs.sync_dir(dir).map_err(Error::io("sync", dir))
}

fn write_metadata<'a>(
    file: &mut FrameFile<'_>,
    metadata: impl Iterator<Item = (&'a str, &'a Metadata)>,
) -> Result<()> {
    for (family, metadata) in metadata {
        encode_metadata(&mut file.payload, family, metadata);
        if file.payload.len() >= FRAME_SIZE {
            file.frame(METADATA)?;
        }
    }
    file.frame(METADATA)
}

/// Writes the series of a checkpoint in frames, head by head. While the series of a head are added,
/// none of them is evicted: the ids of labels must not be reused.
#[derive(Debug)]
pub(crate) struct CheckpointWriter<'a, 'b> {
    file: &'a mut FrameFile<'b>,
    symbols: SymbolWriter,
    series: SeriesWriter,
}

impl CheckpointWriter<'_, '_> {
    /// Adds a series: its ref, its last timestamp (`i64::MIN` if there is none), and its labels in
    /// order of names, of at most [`LABELS_SIZE_MAX`] bytes. `text` returns the name and value of a
    /// label. Writes nothing to the file, so the caller may hold the lock of the head.
    ///
    /// # Errors
    /// [`Error::Limit`] if the checkpoint would have 2^32 different labels.
    pub(crate) fn add<'a>(
        &mut self,
        series: SeriesRef,
        last_ms: i64,
        labels: impl Iterator<Item = Pair>,
        text: impl Fn(Pair) -> (&'a str, &'a str),
    ) -> Result<()> {
        debug_assert!(self.has_room(), "the caller must call `make_room` first");
        let added = self
            .series
            .add(&mut self.symbols, series, last_ms, labels, text);
        added.ok_or(Error::Limit {
            what: varve_context::Limit::Other("labels of a WAL checkpoint"),
            used: 1 << 32,
            limit: u64::from(u32::MAX),
        })
    }

    /// Returns `true` if another series may be added before [`Self::make_room`] is called again.
    pub(crate) fn has_room(&self) -> bool {
        let is_full = self.series.len() == FRAME_SERIES_MAX
            || self.series.size() >= FRAME_SIZE
            || self.symbols.new_size() >= FRAME_SIZE;
        !is_full && self.symbols.has_room()
    }

    /// Writes the added series if they fill a frame, and makes room for others. The caller holds no
    /// lock of a head.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn make_room(&mut self) -> Result<()> {
        self.symbols.make_room();
        if self.has_room() {
            Ok(())
        } else {
            self.write()
        }
    }

    /// Writes the remaining series of a head. The next series are those of another head.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn end_head(&mut self) -> Result<()> {
        self.symbols.forget_ids();
        self.write()
    }

    fn write(&mut self) -> Result<()> {
        self.symbols.take_new(&mut self.file.payload);
        self.file.frame(SYMBOLS)?;
        self.series.take(&mut self.file.payload);
        self.file.frame(SERIES)
    }
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
