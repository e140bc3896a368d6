//! Writes an index sequentially.
//!
//! The postings of series added one by one are collected in memory: four bytes per label and
//! series. Recovery already has the labels. It adds encoded entries, and writes the postings at the
//! end with a [`PostingsWriter`].

use std::path::Path;

use hashbrown::HashMap;
use varve_codec::varint::put_u64;
use varve_context::Limit;
use varve_env::Fs;
use varve_tsdb::{Error, Result};

use super::entries::{IndexEntries, MAGIC, SERIES_ALIGN, VERSION};
use crate::block::buffered_file::BufferedFile;

/// Name of the size limit, for errors.
const SIZE: &str = "size of an index in units of 16 bytes";

/// Writes an index.
#[derive(Debug)]
pub(in crate::block) struct IndexWriter<'a> {
    file: BufferedFile,
    symbols: &'a [&'a str],
    symbols_offset: u64,
    series_offset: u64,
    all: Vec<u32>,
    /// Size of the largest entry of a series, with its padding.
    entry_size_max: u64,
    /// Series refs by name and value, both symbols.
    postings: HashMap<(u32, u32), Vec<u32>>,
    /// Symbols by text, collected when the first series is added.
    by_text: HashMap<&'a str, u32>,
    /// Bytes of the postings, and of their table at the end.
    postings_size: usize,
}

/// Bytes of a symbol in a table by text that is at least half full.
const SYMBOL_SIZE: usize = 2 * (size_of::<(&str, u32)>() + 1);
/// Bytes of the postings of a name and value, and of their entry in the table at the end, besides
/// series and texts: a map that is at least half full, a key in a sorted list, an allocation, and
/// numbers in the table.
const POSTINGS_SIZE: usize = 2 * (size_of::<((u32, u32), Vec<u32>)>() + 1) + 64;

impl<'a> IndexWriter<'a> {
    /// Creates an index with its symbols, in ascending order.
    pub(in crate::block) fn create(
        fs: &dyn Fs,
        path: &Path,
        symbols: &'a [&'a str],
    ) -> Result<Self> {
        debug_assert!(symbols.is_sorted_by(|a, b| a < b), "symbols ascend");
        let mut file = BufferedFile::create(fs, path)?;
        file.write(&MAGIC.to_be_bytes())?;
        file.write(&[VERSION])?;
        let symbols_offset = file.position();
        let mut table = to_u32(symbols.len(), "symbols of a block")?
            .to_be_bytes()
            .to_vec();
        for symbol in symbols {
            put_string(&mut table, symbol);
        }
        write_section(&mut file, &table)?;
        let series_offset = file.position();
        Ok(Self {
            file,
            symbols,
            symbols_offset,
            series_offset,
            all: Vec::new(),
            entry_size_max: 0,
            postings: HashMap::new(),
            by_text: HashMap::new(),
            postings_size: 0,
        })
    }

    /// Returns labels as symbols, or `None` if one of them is not a symbol.
    pub(in crate::block) fn symbols<'l>(
        &mut self,
        labels: impl Iterator<Item = (&'l str, &'l str)>,
    ) -> Option<Vec<(u32, u32)>> {
        if self.by_text.is_empty() {
            self.by_text = self.symbols.iter().copied().zip(0..).collect();
        }
        let mut symbols = Vec::new();
        for (name, value) in labels {
            symbols.push((*self.by_text.get(name)?, *self.by_text.get(value)?));
        }
        Some(symbols)
    }

    /// Appends the encoded entry of a series with its postings.
    pub(in crate::block) fn add(
        &mut self,
        labels: &[(u32, u32)],
        entries: &IndexEntries,
    ) -> Result<()> {
        self.add_entries(entries)?;
        let series = *self.all.last().expect("an entry was just added");
        for label @ (name, value) in labels {
            let postings = self.postings.entry(*label).or_default();
            if postings.is_empty() {
                let texts = [name, value].map(|symbol| self.symbols[*symbol as usize].len());
                // The table at the end grows by doubling.
                self.postings_size += POSTINGS_SIZE + 2 * texts.iter().sum::<usize>();
            }
            postings.push(series);
            self.postings_size += 2 * size_of::<u32>();
        }
        Ok(())
    }

    /// Returns about the bytes of memory that the index needs until it is finished, without its
    /// symbols.
    pub(in crate::block) fn memory_size(&self) -> usize {
        self.by_text.len() * SYMBOL_SIZE
            + self.postings_size
            + self.all.len() * 2 * size_of::<u32>()
    }

    /// Appends encoded entries. [`IndexWriter::finish_with`] writes their postings.
    pub(in crate::block) fn add_entries(&mut self, entries: &IndexEntries) -> Result<()> {
        self.file.pad(SERIES_ALIGN)?;
        let first = to_u32((self.file.position() / SERIES_ALIGN) as usize, SIZE)?;
        self.all.extend(
            entries
                .starts
                .iter()
                .map(|start| first.wrapping_add(*start)),
        );
        let ends = entries
            .starts
            .iter()
            .skip(1)
            .map(|start| u64::from(*start) * SERIES_ALIGN);
        let ends = ends.chain([entries.bytes.len() as u64]);
        let sizes = entries
            .starts
            .iter()
            .zip(ends)
            .map(|(start, end)| end - u64::from(*start) * SERIES_ALIGN);
        self.entry_size_max = sizes.fold(self.entry_size_max, u64::max);
        self.file.write(&entries.bytes)?;
        // The last ref is the largest: if it did not overflow, no other did.
        to_u32((self.file.position() / SERIES_ALIGN) as usize, SIZE).map(|_| ())
    }

    /// Returns the size of the largest entry of a series so far.
    pub(in crate::block) fn entry_size_max(&self) -> u64 {
        self.entry_size_max
    }

    /// Writes collected postings and tables. Returns size and hash of the file.
    pub(in crate::block) fn finish(mut self) -> Result<(u64, u128)> {
        let mut postings = std::mem::take(&mut self.postings);
        let symbols = self.symbols;
        self.finish_with(|writer, _| {
            let mut keys: Vec<_> = postings.keys().copied().collect();
            keys.sort_unstable();
            let mut section = Vec::new();
            for (name, value) in keys {
                let series = postings
                    .remove(&(name, value))
                    .expect("its key was just listed");
                section.clear();
                put_postings(&mut section, &series);
                writer.add(
                    &section,
                    [(
                        (symbols[name as usize], symbols[value as usize]),
                        section.len(),
                    )]
                    .into_iter(),
                )?;
            }
            Ok(())
        })
    }

    /// Writes tables, and the postings that `postings` adds, given the refs of all series in order.
    /// Returns size and hash of the file.
    pub(in crate::block) fn finish_with(
        mut self,
        postings: impl FnOnce(&mut PostingsWriter<'_>, &[u32]) -> Result<()>,
    ) -> Result<(u64, u128)> {
        // The label indices and their offset table are no longer written. Their entries in the
        // table of contents point to the postings and to the offset table of the postings.
        let labels_offset = self.file.position();
        self.file.pad(4)?;
        let postings_offset = self.file.position();
        let all = std::mem::take(&mut self.all);
        to_u32(all.len(), "series of a block")?;
        let mut writer = PostingsWriter {
            file: &mut self.file,
            table: vec![0; 4],
            n_postings: 0,
        };
        let mut section = Vec::new();
        put_postings(&mut section, &all);
        writer.add(&section, [(("", ""), section.len())].into_iter())?;
        drop(section);
        postings(&mut writer, &all)?;
        let PostingsWriter {
            mut table,
            n_postings,
            ..
        } = writer;
        table[..4].copy_from_slice(&to_u32(n_postings, "postings of a block")?.to_be_bytes());
        let table_offset = self.file.position();
        write_section(&mut self.file, &table)?;
        let offsets = [
            self.symbols_offset,
            self.series_offset,
            labels_offset,
            table_offset,
            postings_offset,
            table_offset,
        ];
        let mut toc: Vec<u8> = offsets
            .iter()
            .flat_map(|offset| offset.to_be_bytes())
            .collect();
        toc.extend_from_slice(&crc32c::crc32c(&toc).to_be_bytes());
        self.file.write(&toc)?;
        self.file.finish()
    }
}

/// Writes postings in the order of names and values.
#[derive(Debug)]
pub(crate) struct PostingsWriter<'a> {
    file: &'a mut BufferedFile,
    table: Vec<u8>,
    n_postings: usize,
}

impl PostingsWriter<'_> {
    /// Writes encoded sections with the name, value and size of each.
    pub(crate) fn add<'t>(
        &mut self,
        sections: &[u8],
        each: impl Iterator<Item = ((&'t str, &'t str), usize)>,
    ) -> Result<()> {
        let mut offset = self.file.position();
        for ((name, value), size) in each {
            put_u64(&mut self.table, 2);
            put_string(&mut self.table, name);
            put_string(&mut self.table, value);
            put_u64(&mut self.table, offset);
            offset += size as u64;
            self.n_postings += 1;
        }
        self.file.write(sections)
    }

    /// Returns the size of a section of `n_series` series: a multiple of four, which keeps the next
    /// section aligned.
    pub(crate) fn section_size(n_series: usize) -> usize {
        3 * size_of::<u32>() + n_series * size_of::<u32>()
    }

    /// Completes a section of [`PostingsWriter::section_size`] bytes with series refs after the
    /// first eight bytes.
    pub(crate) fn end_section(section: &mut [u8]) {
        let size = section.len();
        let n_series = (size - Self::section_size(0)) / size_of::<u32>();
        // Series refs are unique and have 32 bits, so the number of series has, too: see
        // `add_entries`.
        section[..4].copy_from_slice(&((size - 8) as u32).to_be_bytes());
        section[4..8].copy_from_slice(&(n_series as u32).to_be_bytes());
        let checksum = crc32c::crc32c(&section[4..size - 4]);
        section[size - 4..].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Appends the section of some series.
fn put_postings(dst: &mut Vec<u8>, series: &[u32]) {
    let start = dst.len();
    dst.resize(start + 8, 0);
    for series in series {
        dst.extend_from_slice(&series.to_be_bytes());
    }
    dst.extend_from_slice(&[0; 4]);
    PostingsWriter::end_section(&mut dst[start..]);
}

/// Writes size, content and checksum.
fn write_section(file: &mut BufferedFile, content: &[u8]) -> Result<()> {
    file.write(&to_u32(content.len(), "bytes of a section of an index")?.to_be_bytes())?;
    file.write(content)?;
    file.write(&crc32c::crc32c(content).to_be_bytes())
}

fn put_string(dst: &mut Vec<u8>, text: &str) {
    put_u64(dst, text.len() as u64);
    dst.extend_from_slice(text.as_bytes());
}

fn to_u32(n: usize, what: &'static str) -> Result<u32> {
    u32::try_from(n).map_err(|_| Error::Limit {
        what: Limit::Other(what),
        used: n as u64,
        limit: u64::from(u32::MAX),
    })
}
