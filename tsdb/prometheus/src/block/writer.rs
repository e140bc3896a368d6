//! Writes a block to a temporary directory, which is renamed once everything is synced.
//!
//! The ULID is derived from the content and the external labels: the same content gives the same
//! block. Crash: Prometheus and [`BlockWriter::create`] remove an unfinished directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use varve_env::Fs;
use varve_tsdb::{Error, Result};
use xxhash_rust::xxh3::xxh3_128;

use super::chunks::{CHUNK_SEGMENT_SIZE_MAX, ChunkWriter};
use super::group::SeriesGroup;
use super::index::{IndexEntries, IndexWriter, PostingsWriter};
use super::meta::{BlockMeta, BlockStats, ThanosMeta};
use super::reader::BlockReader;
use super::tombstones;
use super::ulid::Ulid;
use crate::chunk::Chunk;

/// Suffix of the directory of an unfinished block, which Prometheus removes when it starts.
const UNFINISHED: &str = "tmp-for-creation";
/// Number of bytes of two files that are compared at once.
const COMPARED_SIZE: usize = 1 << 20;

/// Fields of the description that do not follow from the content.
#[derive(Debug, Clone, Default)]
pub struct Description {
    /// First timestamp.
    pub min_ms: i64,
    /// Last timestamp plus 1.
    pub max_ms: i64,
    /// Compaction hints.
    pub hints: Vec<String>,
    /// External labels for Thanos. Without any, there is no Thanos section.
    pub external_labels: Vec<(String, String)>,
}

/// Writes a block.
#[derive(Debug)]
pub struct BlockWriter<'a> {
    fs: Arc<dyn Fs>,
    out: PathBuf,
    dir: PathBuf,
    index: IndexWriter<'a>,
    chunks: ChunkWriter,
    stats: BlockStats,
}

impl<'a> BlockWriter<'a> {
    /// Creates a block in the directory `out`, which is created if needed. `name` distinguishes
    /// blocks that are written at the same time. `symbols` are all label names and values,
    /// ascending.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Limit`] if an index cannot hold the symbols.
    pub fn create(
        fs: &Arc<dyn Fs>,
        out: &Path,
        name: &str,
        symbols: &'a [&'a str],
    ) -> Result<Self> {
        Self::with_segment_size(fs, out, name, symbols, CHUNK_SEGMENT_SIZE_MAX)
    }

    /// Creates a block with another size of chunk files.
    ///
    /// # Errors
    /// Like [`BlockWriter::create`].
    pub(super) fn with_segment_size(
        fs: &Arc<dyn Fs>,
        out: &Path,
        name: &str,
        symbols: &'a [&'a str],
        segment_size_max: u64,
    ) -> Result<Self> {
        let dir = out.join(format!("{name}.{UNFINISHED}"));
        remove_block(&**fs, &dir)?;
        fs.create_dir(&dir).map_err(Error::io("create", &dir))?;
        let index = IndexWriter::create(&**fs, &dir.join("index"), symbols)?;
        let chunks = ChunkWriter::create(fs, &dir.join("chunks"), segment_size_max)?;
        Ok(Self {
            fs: Arc::clone(fs),
            out: out.to_owned(),
            dir,
            index,
            chunks,
            stats: BlockStats::default(),
        })
    }

    /// Appends a series with at least one chunk, unless one of its labels is not among the symbols.
    /// Labels are in ascending order of names, series in label order, chunks ascend in time.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Limit`] if the index exceeds 64 GiB.
    pub fn add<'l>(
        &mut self,
        labels: impl Iterator<Item = (&'l str, &'l str)>,
        chunks: &[Chunk],
    ) -> Result<()> {
        let Some(labels) = self.index.symbols(labels) else {
            return Ok(());
        };
        let mut group = SeriesGroup::default();
        for chunk in chunks {
            group.push(chunk);
        }
        group.end_series();
        self.write_chunks(&mut group)?;
        self.index
            .add(&labels, &group.entries(|_| labels.iter().copied()))
    }

    /// Writes the chunks of prepared series and assigns their refs.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn write_chunks(&mut self, group: &mut SeriesGroup) -> Result<()> {
        let SeriesGroup {
            bytes,
            ends,
            chunks,
            stats,
            ..
        } = group;
        self.stats.merge(stats);
        self.chunks
            .add(bytes, ends, |i, chunk_ref| chunks[i].chunk_ref = chunk_ref)
    }

    /// Writes the index entries of series whose chunks are written. [`BlockWriter::finish_with`]
    /// writes their postings.
    ///
    /// # Errors
    /// Like [`BlockWriter::add`].
    pub(crate) fn add_entries(&mut self, entries: &IndexEntries) -> Result<()> {
        self.index.add_entries(entries)
    }

    /// Returns about the bytes of memory that the block needs until it is finished, without its
    /// symbols and the series that is added.
    #[must_use]
    pub fn memory_size(&self) -> usize {
        self.index.memory_size()
    }

    /// Returns the statistics so far.
    #[must_use]
    pub fn stats(&self) -> BlockStats {
        self.stats
    }

    /// Finishes the block. An existing block with the same content is kept. It replaces a damaged one.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn finish(self, description: Description) -> Result<BlockMeta> {
        self.end(description, IndexWriter::finish)
    }

    /// Finishes a block of [`BlockWriter::add_entries`]: `postings` writes the postings of all
    /// labels, for series with the numbers it is given.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn finish_with(
        self,
        description: Description,
        postings: impl FnOnce(&mut PostingsWriter<'_>, &[u32]) -> Result<()>,
    ) -> Result<BlockMeta> {
        self.end(description, |index| index.finish_with(postings))
    }

    fn end(
        self,
        description: Description,
        finish_index: impl FnOnce(IndexWriter<'a>) -> Result<(u64, u128)>,
    ) -> Result<BlockMeta> {
        let index = self.index;
        let chunks = self.chunks;
        let series_size_max = index.entry_size_max();
        let chunk_size_max = chunks.chunk_size_max();
        // Chunks are synced while the rest of the index is written.
        let (chunk_files, finished_index) = std::thread::scope(|scope| {
            let chunks = scope.spawn(|| chunks.finish());
            let index = finish_index(index);
            (chunks.join().expect("syncing does not panic"), index)
        });
        let (index_size, mut hash) = finished_index?;
        let mut files = Vec::new();
        for (path, size, chunk_hash) in chunk_files? {
            hash = hash.rotate_left(1) ^ chunk_hash;
            files.push((path, size));
        }
        files.push(("index".to_owned(), index_size));
        files.push(("meta.json".to_owned(), 0));
        let labels = description.external_labels;
        // Blocks of replicas with equal samples differ in their external labels only.
        for text in labels.iter().flat_map(|(name, value)| [name, value]) {
            hash = hash.rotate_left(1) ^ xxh3_128(text.as_bytes());
        }
        let ulid = Ulid::new(description.max_ms, hash ^ hash >> 64);
        let meta = BlockMeta {
            ulid,
            min_ms: description.min_ms,
            max_ms: description.max_ms,
            stats: self.stats,
            level: 1,
            sources: vec![ulid],
            hints: description.hints,
            thanos: (!labels.is_empty()).then_some(ThanosMeta {
                labels,
                files,
                series_size_max,
                chunk_size_max,
                resolution_ms: 0,
            }),
        };
        put_in_place(&*self.fs, &self.dir, &self.out, &meta)?;
        Ok(meta)
    }

    /// Removes the unfinished block.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn abandon(self) -> Result<()> {
        remove_block(&*self.fs, &self.dir)
    }
}

/// Writes the last files of a block, and renames its directory. A block that exists already stays,
/// unless it is damaged.
fn put_in_place(fs: &dyn Fs, dir: &Path, out: &Path, meta: &BlockMeta) -> Result<()> {
    write(fs, &dir.join("tombstones"), &tombstones::EMPTY_FILE)?;
    write(fs, &dir.join("meta.json"), &meta.to_json())?;
    fs.sync_dir(dir).map_err(Error::io("sync", dir))?;
    let target = out.join(meta.ulid.to_string());
    if is_whole(fs, &target, dir, meta)? {
        remove_block(fs, dir)?;
    } else {
        remove_block(fs, &target)?;
        fs.rename(dir, &target).map_err(Error::io("rename", dir))?;
    }
    // An existing block may be of a process that ended before it could do this.
    fs.sync_dir(out).map_err(Error::io("sync", out))
}

/// Returns `true` if the block `existing` has the content of the block `new`: the same index and
/// chunks, and readable other files, which Prometheus may have changed.
fn is_whole(fs: &dyn Fs, existing: &Path, new: &Path, meta: &BlockMeta) -> Result<bool> {
    let has_description = BlockReader::read_meta(fs, existing).is_ok_and(|found| {
        (found.ulid, found.min_ms, found.max_ms) == (meta.ulid, meta.min_ms, meta.max_ms)
            && found.stats.n_samples == meta.stats.n_samples
    });
    if !has_description || tombstones::read(fs, existing).is_err() {
        return Ok(false);
    }
    let chunks = new.join("chunks");
    let mut paths = vec![PathBuf::from("index")];
    for name in fs.list(&chunks).map_err(Error::io("list", &chunks))? {
        paths.push(Path::new("chunks").join(name));
    }
    for path in paths {
        if !has_content(fs, &existing.join(&path), &new.join(&path))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns `true` if the file `existing` can be read and has the bytes of the file `new`.
fn has_content(fs: &dyn Fs, existing: &Path, new: &Path) -> Result<bool> {
    let file = fs.open(new).map_err(Error::io("open", new))?;
    let size = file.size().map_err(Error::io("read the size of", new))?;
    let Ok(other) = fs.open(existing) else {
        return Ok(false);
    };
    if other.size().ok() != Some(size) {
        return Ok(false);
    }
    let mut bytes = vec![0; COMPARED_SIZE];
    let mut other_bytes = vec![0; COMPARED_SIZE];
    let mut offset = 0;
    while offset < size {
        let len =
            usize::try_from(size - offset).map_or(COMPARED_SIZE, |left| left.min(COMPARED_SIZE));
        file.read_at(&mut bytes[..len], offset)
            .map_err(Error::io("read", new))?;
        let read = other.read_at(&mut other_bytes[..len], offset);
        if read.is_err() || bytes[..len] != other_bytes[..len] {
            return Ok(false);
        }
        offset += len as u64;
    }
    Ok(true)
}

fn write(fs: &dyn Fs, path: &Path, bytes: &[u8]) -> Result<()> {
    let file = fs.create(path).map_err(Error::io("create", path))?;
    file.append(bytes).map_err(Error::io("write", path))?;
    file.sync().map_err(Error::io("sync", path))
}

/// Removes a block if it exists.
fn remove_block(fs: &dyn Fs, dir: &Path) -> Result<()> {
    for dir in [dir.join("chunks"), dir.to_owned()] {
        let Ok(names) = fs.list(&dir) else { continue };
        for name in names {
            let path = dir.join(name);
            fs.remove(&path).map_err(Error::io("remove", &path))?;
        }
        fs.remove_dir(&dir).map_err(Error::io("remove", &dir))?;
    }
    Ok(())
}
