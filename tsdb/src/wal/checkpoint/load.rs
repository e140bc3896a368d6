//! Reading a checkpoint.

use std::ops::Range;
use std::path::Path;

use super::series::{self, Described};
use super::symbols::Symbols;
use super::{BEGIN, END, EXEMPLARS, SERIES, SYMBOLS, exemplars};
use crate::chunk::varint::take_u64;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::labels::Metadata;
use crate::sample::exemplar::NumberedExemplars;
use crate::wal::SegmentKind;
use crate::wal::frame::COMPRESSED;
use crate::wal::payload::Unpacker;
use crate::wal::reader::{Frame, Item, LargeFrames, Opened, Reader};
use crate::wal::record::{METADATA, decode_metadata};

/// What a checkpoint holds.
#[derive(Debug)]
pub(in crate::wal) enum Entry<'a> {
    /// A live series.
    Series(Described<'a>),
    /// A series whose labels were lost with a damaged frame.
    LostSeries,
    /// A metric family's metadata.
    Metadata(String, Metadata),
    /// Exemplars of a series.
    Exemplars(NumberedExemplars),
    /// The least number that no series ever had.
    NextRef(u64),
}

/// Where a checkpoint is damaged.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::wal) struct Damage {
    /// The ranges of bytes that are no sound frame.
    pub(in crate::wal) ranges: Vec<Range<u64>>,
    /// The first place, and what is wrong there.
    pub(in crate::wal) offset: u64,
    /// What is wrong there.
    pub(in crate::wal) reason: &'static str,
    /// Whether its beginning is sound. Without, nothing but its name says that segments before it no longer count.
    pub(in crate::wal) begins: bool,
}

/// Reads a checkpoint and checks that all its frames are there and sound; `None` if they are.
///
/// # Errors
/// [`Error::Io`], and [`Error::Version`] if its format version is not supported.
pub(in crate::wal) fn examine(fs: &dyn Fs, path: &Path, large: &LargeFrames) -> Result<Option<Damage>> {
    let mut reader = match Reader::open(fs, path, SegmentKind::Checkpoint, large)? {
        Opened::Sound(reader) => reader,
        Opened::Empty => {
            let reason = "is cut off in its header";
            return Ok(Some(Damage { ranges: Vec::new(), offset: 0, reason, begins: false }));
        }
        Opened::Damaged(size) => {
            let ranges = std::iter::once(0..size).collect();
            return Ok(Some(Damage { ranges, offset: 0, reason: "has no sound header", begins: false }));
        }
    };
    let (mut ranges, mut first, mut begins) = (Vec::new(), None, false);
    let (mut end, mut last_record) = (0, None);
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
            Item::Damaged(range) | Item::Torn(range) => {
                first.get_or_insert((range.start, "no sound frame"));
                ranges.push(range);
            }
        }
    }
    if first.is_none() && last_record != Some(END) {
        first = Some((end, "ends early"));
    }
    Ok(first.map(|(offset, reason)| Damage { ranges, offset, reason, begins }))
}

/// Reads what decodes of a checkpoint of a number.
///
/// # Errors
/// Those of `each`, [`Error::Io`], [`Error::Version`], and [`Error::Corrupt`] if a sound frame does not decode or the
/// file was given the name of another.
pub(in crate::wal) fn load(
    fs: &dyn Fs,
    path: &Path,
    number: u64,
    large: &LargeFrames,
    mut each: impl FnMut(Entry<'_>) -> Result<()>,
) -> Result<()> {
    let Opened::Sound(mut reader) = Reader::open(fs, path, SegmentKind::Checkpoint, large)? else { return Ok(()) };
    let mut loader = Loader::new(number);
    while let Some(item) = reader.next()? {
        if let Item::Frame(frame) = item {
            loader.frame(&frame, &mut each).ok_or_else(|| Error::Corrupt {
                path: path.to_owned(),
                offset: frame.offset,
                reason: format!(
                    "frame {} of this checkpoint holds nothing that this program knows; open it with the program that \
                     wrote it, or move the file away to go on without it",
                    frame.sequence
                ),
            })??;
        }
    }
    Ok(())
}

/// Reads the frames of a checkpoint, one after the other.
#[derive(Debug)]
pub(in crate::wal) struct Loader {
    number: u64,
    symbols: Symbols,
    unpacker: Unpacker,
}

impl Loader {
    /// Starts a checkpoint of a number.
    pub(in crate::wal) fn new(number: u64) -> Self {
        Self { number, symbols: Symbols::default(), unpacker: Unpacker::default() }
    }

    /// Counts the symbols so far.
    pub(in crate::wal) fn n_symbols(&self) -> u64 {
        self.symbols.len() as u64
    }

    /// Hands out what a frame holds; `None` if it does not decode.
    pub(in crate::wal) fn frame(
        &mut self,
        frame: &Frame<'_>,
        each: &mut impl FnMut(Entry<'_>) -> Result<()>,
    ) -> Option<Result<()>> {
        let (record, mut payload) = self.unpacker.unpack(frame.record, frame.payload)?;
        match record {
            BEGIN => {
                let sound = take_u64(&mut payload)? == self.number;
                let next_ref = take_u64(&mut payload)?;
                (sound && payload.is_empty()).then(|| each(Entry::NextRef(next_ref)))
            }
            END => {
                let next_ref = take_u64(&mut payload)?;
                payload.is_empty().then(|| each(Entry::NextRef(next_ref)))
            }
            SYMBOLS => self.symbols.add(payload).map(Ok),
            SERIES => {
                series::decode(payload, &self.symbols, |found| each(found.map_or(Entry::LostSeries, Entry::Series)))
            }
            METADATA => {
                let mut refused = Ok(());
                decode_metadata(payload, |family, metadata| {
                    if refused.is_ok() {
                        refused = each(Entry::Metadata(family.to_owned(), metadata));
                    }
                })?;
                Some(refused)
            }
            EXEMPLARS => {
                let mut refused = Ok(());
                exemplars::decode(payload, |of_series| {
                    if refused.is_ok() {
                        refused = each(Entry::Exemplars(of_series));
                    }
                })?;
                Some(refused)
            }
            _ => None,
        }
    }
}
