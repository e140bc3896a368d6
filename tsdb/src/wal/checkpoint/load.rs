//! Reads a checkpoint.

use std::ops::Range;
use std::path::Path;

use varve_codec::varint::take_u64;
use varve_env::Fs;
use varve_model::metadata::Metadata;

use super::exemplars;
use super::record::{BEGIN, END, EXEMPLARS, SERIES, SYMBOLS};
use super::series::{self, CheckpointSeries};
use super::symbols::{Symbols, Texts};
use crate::batch::NumberedExemplars;
use crate::error::{Error, Result};
use crate::wal::compression::Decompressor;
use crate::wal::file_name::SegmentKind;
use crate::wal::frame::COMPRESSED;
use crate::wal::reader::{Frame, Item, LargeFrameLock, Opened, Reader};
use crate::wal::record::{METADATA, decode_metadata};

/// What [`examine`] found in a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Valid,
    /// Damaged after a valid first frame.
    Begun,
    /// Damaged from the first frame on: only the file name marks the file as a checkpoint.
    Unmarked,
}

/// An entry of a checkpoint.
#[derive(Debug)]
pub(crate) enum Entry<'a> {
    /// A live series.
    Series(CheckpointSeries<'a>),
    /// A series whose labels were in a damaged frame.
    LostSeries,
    /// Metadata of a metric family.
    Metadata(String, Metadata),
    /// Exemplars of a series.
    Exemplars(NumberedExemplars),
    /// The next free series ref.
    NextRef(u64),
}

/// The damage of a checkpoint.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    /// Byte ranges that are not a valid frame.
    pub(crate) ranges: Vec<Range<u64>>,
    /// Offset of the first damage.
    pub(crate) offset: u64,
    /// Description of the damage at `offset`.
    pub(crate) reason: &'static str,
    /// Whether the first frame is valid.
    begins: bool,
}

impl Damage {
    /// Returns the state of the checkpoint.
    pub(crate) fn state(&self) -> State {
        if self.begins {
            State::Begun
        } else {
            State::Unmarked
        }
    }
}

/// Checks that a checkpoint is complete and valid. Returns `None` if it is, and the damage
/// otherwise.
///
/// # Errors
/// [`Error::Io`]; [`Error::Version`] if the format version is not supported.
pub(crate) fn examine(fs: &dyn Fs, path: &Path, large: &LargeFrameLock) -> Result<Option<Damage>> {
    let mut reader = match Reader::open(fs, path, SegmentKind::Checkpoint, large)? {
        Opened::Valid(reader) => reader,
        Opened::Empty(_) => {
            let reason = "ends inside its header";
            return Ok(Some(Damage {
                ranges: Vec::new(),
                offset: 0,
                reason,
                begins: false,
            }));
        }
        Opened::Damaged(size) => {
            let ranges = std::iter::once(0..size).collect();
            return Ok(Some(Damage {
                ranges,
                offset: 0,
                reason: "has no valid header",
                begins: false,
            }));
        }
    };
    let mut ranges = Vec::new();
    let mut first = None;
    let mut begins = false;
    let mut end = 0;
    let mut last_record = None;
    while let Some(item) = reader.next()? {
        match item {
            Item::Frame(frame) => {
                if frame.n_missing > 0 {
                    first.get_or_insert((frame.offset, "frames are missing"));
                }
                let record = frame.record & !COMPRESSED;
                begins |= record == BEGIN;
                end = frame.offset + frame.size;
                last_record = Some(record);
            }
            // A checkpoint is complete when it gets its name, so nothing was written after its end.
            Item::Torn(_) if last_record == Some(END) => {}
            Item::Damaged(range) | Item::Torn(range) => {
                first.get_or_insert((range.start, "no valid frame"));
                ranges.push(range);
            }
        }
    }
    if first.is_none() && last_record != Some(END) {
        first = Some((end, "ends early"));
    }
    Ok(first.map(|(offset, reason)| Damage {
        ranges,
        offset,
        reason,
        begins,
    }))
}

/// Reads the valid frames of checkpoint `number`. Adds the texts of its symbols to `texts`, which
/// nothing else uses meanwhile.
///
/// # Errors
/// The errors of `each`, [`Error::Io`], [`Error::Version`], and [`Error::Corrupt`] if a valid frame
/// does not decode or the file contains a checkpoint with another number.
pub(crate) fn load(
    fs: &dyn Fs,
    path: &Path,
    number: u64,
    large: &LargeFrameLock,
    texts: &mut Texts,
    mut each: impl FnMut(Entry<'_>) -> Result<()>,
) -> Result<()> {
    let Opened::Valid(mut reader) = Reader::open(fs, path, SegmentKind::Checkpoint, large)? else {
        return Ok(());
    };
    let mut loader = Loader::new(number, std::mem::take(texts));
    let loaded = loader.read(&mut reader, path, &mut each);
    *texts = loader.symbols.into_texts();
    loaded
}

/// Returns the original name of a renamed checkpoint: if a frame is its *begin*, and has another
/// number than `number`.
pub(crate) fn other_name(frame: &Frame<'_>, number: u64) -> Option<String> {
    // Fast path: nothing is decompressed for the other frames.
    if frame.record & !COMPRESSED != BEGIN {
        return None;
    }
    let mut decompressor = Decompressor::default();
    let (_, mut payload) = decompressor.decompress(frame.record, frame.payload)?;
    let found = take_u64(&mut payload)?;
    (found != number).then(|| SegmentKind::Checkpoint.file_name(found))
}

/// Returns the name that checkpoint `number` had before it was renamed, or `None` if it was not.
///
/// # Errors
/// [`Error::Io`]; [`Error::Version`] if the format version is not supported.
pub(crate) fn name_before(
    fs: &dyn Fs,
    path: &Path,
    number: u64,
    large: &LargeFrameLock,
) -> Result<Option<String>> {
    let Opened::Valid(mut reader) = Reader::open(fs, path, SegmentKind::Checkpoint, large)? else {
        return Ok(None);
    };
    while let Some(item) = reader.next()? {
        if let Item::Frame(frame) = item {
            return Ok(other_name(&frame, number));
        }
    }
    Ok(None)
}

/// Returns the error for a renamed checkpoint.
fn renamed(path: &Path, offset: u64, name: &str) -> Error {
    let reason = format!(
        "this is {name}: the file was renamed; `varve wal repair DIR --write` gives it this name back"
    );
    Error::Corrupt {
        path: path.to_owned(),
        offset,
        reason,
    }
}

/// Decodes the frames of a checkpoint, in order.
#[derive(Debug)]
pub(crate) struct Loader {
    number: u64,
    symbols: Symbols,
    decompressor: Decompressor,
}

impl Loader {
    /// Creates the loader of checkpoint `number`, which adds the texts of its symbols to `texts`.
    pub(crate) fn new(number: u64, texts: Texts) -> Self {
        Self {
            number,
            symbols: Symbols::new(texts),
            decompressor: Decompressor::default(),
        }
    }

    fn read(
        &mut self,
        reader: &mut Reader<'_>,
        path: &Path,
        each: &mut impl FnMut(Entry<'_>) -> Result<()>,
    ) -> Result<()> {
        while let Some(item) = reader.next()? {
            if let Item::Frame(frame) = item {
                match other_name(&frame, self.number) {
                    Some(name) => return Err(renamed(path, frame.offset, &name)),
                    None => self
                        .frame(&frame, each)
                        .ok_or_else(|| frame.unknown_record(path))??,
                }
            }
        }
        Ok(())
    }

    /// Returns the number of symbols decoded so far.
    pub(crate) fn n_symbols(&self) -> u64 {
        self.symbols.len() as u64
    }

    /// Passes the entries of a frame to `each`. Returns `None` if the frame does not decode.
    pub(crate) fn frame(
        &mut self,
        frame: &Frame<'_>,
        each: &mut impl FnMut(Entry<'_>) -> Result<()>,
    ) -> Option<Result<()>> {
        let (record, mut payload) = self.decompressor.decompress(frame.record, frame.payload)?;
        if record == SERIES {
            return series::decode(payload, &self.symbols, |found| {
                each(found.map_or(Entry::LostSeries, Entry::Series))
            });
        }
        let mut result = Ok(());
        let mut pass = |entry: Entry<'_>| {
            if result.is_ok() {
                result = each(entry);
            }
        };
        match record {
            BEGIN | END => {
                if record == BEGIN && take_u64(&mut payload)? != self.number {
                    return None;
                }
                let next_ref = take_u64(&mut payload)?;
                if !payload.is_empty() {
                    return None;
                }
                pass(Entry::NextRef(next_ref));
            }
            SYMBOLS => return self.symbols.add(payload),
            METADATA => {
                decode_metadata(payload, |family, metadata| {
                    pass(Entry::Metadata(family.to_owned(), metadata))
                })?;
            }
            EXEMPLARS => exemplars::decode(payload, |numbered| pass(Entry::Exemplars(numbered)))?,
            _ => return None,
        }
        Some(result)
    }
}
