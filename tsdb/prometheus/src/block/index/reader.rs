//! Reads the series of an index of version 1 or 2.
//!
//! Series can be read even without the table of contents: they follow the symbols. The whole file
//! is in memory.
//!
//! Invariants
//! 1. No byte that a checksum covers is used before the checksum was verified. Without sound symbols, no series has
//!    labels, so an index with damaged ones is not opened.
//! 2. The version has no checksum. The first ref of the postings proves it: version 1 counts refs in
//!    bytes, version 2 in units of 16. Without a table of contents nothing proves it.

use std::ops::Range;
use std::path::{Path, PathBuf};

use varve_env::Fs;
use varve_env::damage::{DamageKind, DamageReport};
use varve_tsdb::{Error, Result};

use super::entries::{IndexedChunk, MAGIC, SERIES_ALIGN};
use crate::cursor::Cursor;

/// Maximum size of an index that is read: its refs can address 64 GiB.
const INDEX_SIZE_MAX: u64 = 64 << 30;
const VERSION_OFFSET: u64 = 4;
const HEADER_SIZE: usize = 5;
/// Size of the size of a section.
const SIZE_SIZE: usize = 4;
const CONTENTS_SIZE: usize = 6 * 8 + CRC_SIZE;
const CRC_SIZE: usize = 4;
/// Maximum size of a series that is searched for after damage.
const FOUND_SIZE_MAX: u64 = 64 << 10;

/// An index in memory.
#[derive(Debug)]
pub(in crate::block) struct IndexReader {
    path: PathBuf,
    bytes: Vec<u8>,
    is_v1: bool,
    /// Location of each symbol.
    symbols: Vec<Symbol>,
    series: Range<usize>,
    /// Offset of the table of postings, if the table of contents is valid.
    postings_table: Option<usize>,
}

/// What the table of contents says.
#[derive(Debug)]
struct Contents {
    series: Range<usize>,
    /// Offset of the table of postings.
    postings_table: usize,
}

#[derive(Debug, Clone, Copy)]
struct Symbol {
    /// Offset of its length, by which version 1 refers to it.
    offset: u32,
    start: u32,
    size: u32,
}

/// A series of an index.
#[derive(Debug, Clone, Default)]
pub(in crate::block) struct IndexedSeries<'a> {
    /// Offset of the series.
    pub(in crate::block) offset: u64,
    /// Names and values in ascending order of names.
    pub(in crate::block) labels: Vec<(&'a str, &'a str)>,
    /// Chunks in ascending order of time.
    pub(in crate::block) chunks: Vec<IndexedChunk>,
}

impl IndexReader {
    /// Reads the index of the block in `dir`.
    pub(in crate::block) fn open(
        fs: &dyn Fs,
        dir: &Path,
        damage: &mut DamageReport,
    ) -> Result<Self> {
        let path = dir.join("index");
        let bytes = fs
            .read(&path, INDEX_SIZE_MAX)
            .map_err(Error::io("read", &path))?;
        let mut header = Cursor::new(&bytes);
        let version = match (header.be_u32(), header.u8()) {
            (Some(MAGIC), Some(version @ (1 | 2))) => version,
            (Some(MAGIC), Some(version)) => {
                return Err(Error::Version {
                    path,
                    found: u32::from(version),
                    supported: 2,
                });
            }
            _ => return Err(corrupt(&path, 0, "not the header of an index")),
        };
        let table = section(&bytes, HEADER_SIZE).ok_or_else(|| {
            let reason = "checksum mismatch of the symbol table";
            corrupt(&path, HEADER_SIZE as u64, reason)
        })?;
        let symbols = read_symbols(table)
            .ok_or_else(|| corrupt(&path, HEADER_SIZE as u64, "invalid symbol table"))?;
        let behind_symbols = HEADER_SIZE + SIZE_SIZE + table.len() + CRC_SIZE;
        let is_v1 = version == 1;
        let contents = Contents::read(&bytes, behind_symbols);
        if let Some(contents) = &contents
            && contents.contradicts_version(&bytes, is_v1)
        {
            let reason = "the version of the index contradicts its refs of series";
            return Err(corrupt(&path, VERSION_OFFSET, reason));
        }
        if contents.is_none() {
            let offset = bytes.len().saturating_sub(CONTENTS_SIZE);
            damage.push(
                &path,
                offset as u64,
                DamageKind::Corrupt,
                "invalid table of contents",
            );
        }
        let series = match &contents {
            Some(contents) => contents.series.clone(),
            None => behind_symbols..bytes.len(),
        };
        Ok(Self {
            path,
            is_v1,
            symbols,
            series,
            postings_table: contents.map(|contents| contents.postings_table),
            bytes,
        })
    }

    /// Returns the start for [`IndexReader::next`].
    pub(in crate::block) fn start(&self) -> usize {
        self.series.start
    }

    /// Reads the first valid series from `offset` on that follows `last` in label order, and advances
    /// both. Reports damage before it.
    pub(in crate::block) fn next<'a>(
        &'a self,
        offset: &mut usize,
        last: &mut Option<Vec<(&'a str, &'a str)>>,
        damage: &mut DamageReport,
    ) -> Option<IndexedSeries<'a>> {
        while *offset < self.series.end {
            if self.is_padding(*offset) {
                *offset += 1;
                continue;
            }
            if let Some((series, size)) = self.take(*offset) {
                *offset += size;
                if last.as_ref().is_some_and(|last| *last >= series.labels) {
                    damage.push(
                        &self.path,
                        series.offset,
                        DamageKind::Corrupt,
                        "series does not follow the previous one in label order",
                    );
                    continue;
                }
                last.get_or_insert_default().clone_from(&series.labels);
                return Some(series);
            }
            let step = if self.is_v1 { 1 } else { SERIES_ALIGN as usize };
            let next = (1..)
                .map(|i| *offset / step * step + i * step)
                .take_while(|&candidate| candidate < self.series.end);
            let found = next.into_iter().find(|&candidate| {
                self.bytes[candidate] != 0 && self.take_small(candidate).is_some()
            });
            // Without a table of contents, the end of the series is unknown: these bytes are the
            // section that follows.
            if self.postings_table.is_some() || found.is_some() {
                damage.push(
                    &self.path,
                    *offset as u64,
                    DamageKind::Corrupt,
                    "invalid series",
                );
            }
            *offset = found.unwrap_or(self.series.end);
        }
        None
    }

    /// Returns `true` if a position is in the padding between or after series. A series starts with
    /// its length, which is not 0, so zeros in its place are damage.
    fn is_padding(&self, offset: usize) -> bool {
        let align = SERIES_ALIGN as usize;
        let rest = &self.bytes[offset..self.series.end];
        let is_aligned = self.is_v1 || offset.is_multiple_of(align);
        self.bytes[offset] == 0
            && (!is_aligned || rest.len() < align && rest.iter().all(|&byte| byte == 0))
    }

    /// Verifies the postings and their table. Returns the number of postings.
    pub(in crate::block) fn check_postings(&self, damage: &mut DamageReport) -> u64 {
        let Some(table) = self.postings_table else {
            return 0;
        };
        let Some(content) = section(&self.bytes, table) else {
            damage.push(
                &self.path,
                table as u64,
                DamageKind::Corrupt,
                "invalid postings offset table",
            );
            return 0;
        };
        let mut src = Cursor::new(content);
        let mut n = 0;
        let n_entries = src.be_u32().unwrap_or(0);
        for _ in 0..n_entries {
            let fields = (src.uvarint(), src.string(), src.string(), src.uvarint());
            let (Some(2), Some(name), Some(value), Some(offset)) = fields else {
                damage.push(
                    &self.path,
                    table as u64,
                    DamageKind::Corrupt,
                    "invalid postings offset table",
                );
                break;
            };
            n += 1;
            if usize::try_from(offset)
                .ok()
                .and_then(|offset| section(&self.bytes, offset))
                .is_none()
            {
                let reason = format!("invalid postings of {name}={value:?}");
                damage.push(&self.path, offset, DamageKind::Corrupt, reason);
            }
        }
        n
    }

    /// Returns the ref of the series at an offset, as postings and tombstones use it.
    pub(in crate::block) fn series_ref(&self, offset: u64) -> u64 {
        if self.is_v1 {
            offset
        } else {
            offset / SERIES_ALIGN
        }
    }

    /// Reads a series while searching: limits the size, since every candidate costs a checksum.
    fn take_small(&self, offset: usize) -> Option<()> {
        let size = Cursor::new(&self.bytes[offset..self.series.end]).uvarint()?;
        if size > FOUND_SIZE_MAX {
            return None;
        }
        self.take(offset).map(|_| ())
    }

    /// Reads the series at an offset. Returns it with its size.
    fn take(&self, offset: usize) -> Option<(IndexedSeries<'_>, usize)> {
        let mut src = Cursor::new(self.bytes.get(offset..self.series.end)?);
        let whole = src.len();
        let size = src.n_items()?;
        let content = src.bytes(size)?;
        if src.be_u32()? != crc32c::crc32c(content) {
            return None;
        }
        let used = whole - src.len();
        let mut src = Cursor::new(content);
        let mut series = IndexedSeries {
            offset: offset as u64,
            ..IndexedSeries::default()
        };
        for _ in 0..src.n_items()? {
            series
                .labels
                .push((self.symbol(src.uvarint()?)?, self.symbol(src.uvarint()?)?));
        }
        let has_empty = series
            .labels
            .iter()
            .any(|(name, value)| name.is_empty() || value.is_empty());
        if has_empty || !series.labels.is_sorted_by(|a, b| a.0 < b.0) {
            return None;
        }
        let mut before: Option<IndexedChunk> = None;
        for _ in 0..src.n_items()? {
            let min_ms = match before {
                None => src.varint()?,
                Some(before) => before.max_ms.wrapping_add_unsigned(src.uvarint()?),
            };
            let max_ms = min_ms.wrapping_add_unsigned(src.uvarint()?);
            let chunk_ref = match before {
                None => src.uvarint()?,
                Some(before) => before.chunk_ref.wrapping_add_signed(src.varint()?),
            };
            let chunk = IndexedChunk {
                min_ms,
                max_ms,
                chunk_ref,
            };
            series.chunks.push(chunk);
            before = Some(chunk);
        }
        Some((series, used))
    }

    fn symbol(&self, symbol_ref: u64) -> Option<&str> {
        let idx = if self.is_v1 {
            let offset = u32::try_from(symbol_ref).ok()?;
            self.symbols
                .binary_search_by_key(&offset, |symbol| symbol.offset)
                .ok()?
        } else {
            usize::try_from(symbol_ref).ok()?
        };
        let symbol = self.symbols.get(idx)?;
        std::str::from_utf8(&self.bytes[symbol.start as usize..][..symbol.size as usize]).ok()
    }
}

impl Contents {
    /// Reads the table of contents of an index whose symbols end at `behind_symbols`. Returns `None`
    /// if its checksum is wrong, or if its offsets do not fit the symbols and the file.
    fn read(bytes: &[u8], behind_symbols: usize) -> Option<Self> {
        let table = bytes.get(bytes.len().checked_sub(CONTENTS_SIZE)?..)?;
        let (offsets, checksum) = table.split_at(CONTENTS_SIZE - CRC_SIZE);
        if crc32c::crc32c(offsets).to_be_bytes() != checksum {
            return None;
        }
        let mut src = Cursor::new(offsets);
        let mut offsets = [0; 6];
        for offset in &mut offsets {
            *offset = usize::try_from(src.be_u64()?).ok()?;
        }

        let [symbols, start, behind_series @ ..] = offsets;
        let [_, _, _, postings_table] = behind_series;
        // An unused section may have no offset.
        let end = behind_series
            .into_iter()
            .filter(|&offset| offset >= start)
            .min()?;
        let is_in_place = symbols == HEADER_SIZE
            && is_padded(behind_symbols, start)
            && (end..bytes.len()).contains(&postings_table);
        is_in_place.then_some(Self {
            series: start..end,
            postings_table,
        })
    }

    /// Returns `true` if the first ref of the postings is not that of the first series, in the unit
    /// of the version.
    fn contradicts_version(&self, bytes: &[u8], is_v1: bool) -> bool {
        let Some(series_ref) = self.first_series_ref(bytes) else {
            return false;
        };
        let unit = if is_v1 { 1 } else { SERIES_ALIGN as usize };
        !is_padded(self.series.start, series_ref as usize * unit)
    }

    /// Returns the first ref of the postings of all series, which come first. `None` if there is
    /// none, or if they are damaged.
    fn first_series_ref(&self, bytes: &[u8]) -> Option<u32> {
        let mut table = Cursor::new(section(bytes, self.postings_table)?);
        let _n_entries = table.be_u32()?;
        let is_of_label =
            table.uvarint()? != 2 || !table.string()?.is_empty() || !table.string()?.is_empty();
        if is_of_label {
            return None;
        }
        let offset = usize::try_from(table.uvarint()?).ok()?;
        let mut postings = Cursor::new(section(bytes, offset)?);
        let _n_series = postings.be_u32()?;
        postings.be_u32()
    }
}

/// Returns `true` if only padding is between the end of a section or series and the next one.
fn is_padded(end: usize, next: usize) -> bool {
    (end..end + SERIES_ALIGN as usize).contains(&next)
}

/// Returns the symbols of a table with a valid checksum.
fn read_symbols(table: &[u8]) -> Option<Vec<Symbol>> {
    let mut src = Cursor::new(table);
    let n_symbols = usize::try_from(src.be_u32()?)
        .ok()
        .filter(|&n| n <= src.len())?;
    let mut symbols = Vec::with_capacity(n_symbols);
    let content_end = HEADER_SIZE + SIZE_SIZE + table.len();
    for _ in 0..n_symbols {
        let offset = u32::try_from(content_end - src.len()).ok()?;
        let text = src.string()?;
        let start = u32::try_from(content_end - src.len() - text.len()).ok()?;
        symbols.push(Symbol {
            offset,
            start,
            size: u32::try_from(text.len()).ok()?,
        });
    }
    src.is_empty().then_some(symbols)
}

/// Returns the content of the section at an offset, if its checksum is valid.
fn section(bytes: &[u8], offset: usize) -> Option<&[u8]> {
    let mut src = Cursor::new(bytes.get(offset..)?);
    let size = usize::try_from(src.be_u32()?).ok()?;
    let content = src.bytes(size)?;
    (src.be_u32()? == crc32c::crc32c(content)).then_some(content)
}

fn corrupt(path: &Path, offset: u64, reason: &str) -> Error {
    Error::Corrupt {
        path: path.to_owned(),
        offset,
        reason: reason.to_owned(),
    }
}
