//! Writes an index from front to back. Postings are gathered in memory: four bytes for each label of each series.

use std::path::Path;

use hashbrown::HashMap;

use super::{MAGIC, SERIES_ALIGN, VERSION};
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::prometheus::block::buffered::BufferedFile;
use crate::varint::{put_i64, put_u64};

/// A chunk as the index knows it.
#[derive(Debug, Clone, Copy)]
pub(in crate::prometheus::block) struct IndexedChunk {
    pub(in crate::prometheus::block) min_ms: i64,
    pub(in crate::prometheus::block) max_ms: i64,
    pub(in crate::prometheus::block) name: u64,
}

/// An index under way.
#[derive(Debug)]
pub(in crate::prometheus::block) struct IndexWriter<'a> {
    file: BufferedFile,
    symbols: &'a [&'a str],
    symbols_offset: u64,
    series_offset: u64,
    all: Vec<u32>,
    /// By name and value, both symbols.
    postings: HashMap<(u32, u32), Vec<u32>>,
    scratch: Vec<u8>,
}

impl<'a> IndexWriter<'a> {
    /// Starts with the symbols, which ascend.
    pub(in crate::prometheus::block) fn create(fs: &dyn Fs, path: &Path, symbols: &'a [&'a str]) -> Result<Self> {
        debug_assert!(symbols.is_sorted_by(|a, b| a < b), "symbols ascend");
        let mut file = BufferedFile::create(fs, path)?;
        file.write(&MAGIC.to_be_bytes())?;
        file.write(&[VERSION])?;
        let symbols_offset = file.position();
        let mut table = to_u32(symbols.len(), "symbols of a block")?.to_be_bytes().to_vec();
        for symbol in symbols {
            put_text(&mut table, symbol);
        }
        write_section(&mut file, &table)?;
        let series_offset = file.position();
        let (all, postings, scratch) = (Vec::new(), HashMap::new(), Vec::new());
        Ok(Self { file, symbols, symbols_offset, series_offset, all, postings, scratch })
    }

    /// Appends a series; labels are symbols, in ascending order of names.
    pub(in crate::prometheus::block) fn add(&mut self, labels: &[(u32, u32)], chunks: &[IndexedChunk]) -> Result<()> {
        self.file.pad(SERIES_ALIGN)?;
        let series = to_u32((self.file.position() / SERIES_ALIGN) as usize, "size of an index in 16 bytes")?;
        self.all.push(series);
        let entry = &mut self.scratch;
        entry.clear();
        put_u64(entry, labels.len() as u64);
        for &(name, value) in labels {
            put_u64(entry, u64::from(name));
            put_u64(entry, u64::from(value));
            self.postings.entry((name, value)).or_default().push(series);
        }
        put_u64(entry, chunks.len() as u64);
        let mut before: Option<IndexedChunk> = None;
        for chunk in chunks {
            match before {
                None => put_i64(entry, chunk.min_ms),
                Some(before) => put_u64(entry, chunk.min_ms.wrapping_sub(before.max_ms).cast_unsigned()),
            }
            put_u64(entry, chunk.max_ms.wrapping_sub(chunk.min_ms).cast_unsigned());
            match before {
                None => put_u64(entry, chunk.name),
                Some(before) => put_i64(entry, chunk.name.wrapping_sub(before.name).cast_signed()),
            }
            before = Some(*chunk);
        }
        let mut size = Vec::with_capacity(5);
        put_u64(&mut size, entry.len() as u64);
        let checksum = crc32c::crc32c(entry);
        entry.extend_from_slice(&checksum.to_be_bytes());
        self.file.write(&size)?;
        self.file.write(&self.scratch)
    }

    /// Writes postings and tables; returns size and hash of the file.
    pub(in crate::prometheus::block) fn finish(mut self) -> Result<(u64, u128)> {
        // The two sections that are not written any more are empty, and lie in front of the postings and of the table.
        let labels_offset = self.file.position();
        let mut names: Vec<_> = self.postings.keys().copied().collect();
        names.sort_unstable();
        let mut table = to_u32(names.len() + 1, "postings of a block")?.to_be_bytes().to_vec();
        self.file.pad(4)?;
        let postings_offset = self.file.position();
        let all = std::mem::take(&mut self.all);
        self.put_postings(&mut table, "", "", &all)?;
        drop(all);
        for (name, value) in names {
            let series = self.postings.remove(&(name, value)).expect("its key was just listed");
            self.put_postings(&mut table, self.symbols[name as usize], self.symbols[value as usize], &series)?;
        }
        let table_offset = self.file.position();
        write_section(&mut self.file, &table)?;
        let offsets =
            [self.symbols_offset, self.series_offset, labels_offset, table_offset, postings_offset, table_offset];
        let mut contents: Vec<u8> = offsets.iter().flat_map(|offset| offset.to_be_bytes()).collect();
        contents.extend_from_slice(&crc32c::crc32c(&contents).to_be_bytes());
        self.file.write(&contents)?;
        self.file.finish()
    }

    fn put_postings(&mut self, table: &mut Vec<u8>, name: &str, value: &str, series: &[u32]) -> Result<()> {
        self.file.pad(4)?;
        put_u64(table, 2);
        put_text(table, name);
        put_text(table, value);
        put_u64(table, self.file.position());
        self.scratch.clear();
        self.scratch.extend_from_slice(&to_u32(series.len(), "series of a block")?.to_be_bytes());
        series.iter().for_each(|series| self.scratch.extend_from_slice(&series.to_be_bytes()));
        write_section(&mut self.file, &self.scratch)
    }
}

/// Writes the size of `content`, `content`, and its checksum.
fn write_section(file: &mut BufferedFile, content: &[u8]) -> Result<()> {
    file.write(&to_u32(content.len(), "bytes of a section of an index")?.to_be_bytes())?;
    file.write(content)?;
    file.write(&crc32c::crc32c(content).to_be_bytes())
}

fn put_text(dst: &mut Vec<u8>, text: &str) {
    put_u64(dst, text.len() as u64);
    dst.extend_from_slice(text.as_bytes());
}

fn to_u32(n: usize, what: &'static str) -> Result<u32> {
    u32::try_from(n).map_err(|_| Error::Limit { what, used: n as u64, limit: u64::from(u32::MAX) })
}
