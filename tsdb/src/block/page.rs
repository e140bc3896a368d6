//! Pages: the unit in which a block is compressed, verified and read.
//!
//! ```text
//! 0   4  crc       CRC-32C of the bytes from 4 to the end of the page
//! 4   4  size      of the page, header included, u32
//! 8   4  raw size  of the payload, u32; bit 31: the payload is compressed with zstd
//! 12  -  payload
//! ```
//! A page is found through a [`PageRef`], which contains its size; nothing in the page is used before its checksum is
//! verified. The payload is stored compressed only if that makes it smaller. Pages are consecutive and contain their
//! sizes, so [`Pages::check`] can walk through a file without knowing the contents.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::{Unreadable, VERSION};
use crate::chunk::varint::{put_u64, take_u64};
use crate::error::{Error, Result};
use crate::fs::{AppendFile, ReadFile};

/// Maximum size of a page's payload. A reader allocates no more for one page.
pub(in crate::block) const PAGE_SIZE_MAX: usize = 64 << 20;

const SIZE_OFFSET: usize = 4;
const RAW_SIZE_OFFSET: usize = 8;
const PAGE_HEADER_SIZE: usize = 12;
const COMPRESSED: u32 = 1 << 31;
/// Higher levels cost much time and gain little: see COMPRESSION in docs/performance.md.
const ZSTD_LEVEL: i32 = 1;

/// The position of a page in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::block) struct PageRef {
    /// Offset of the page's header in the file.
    pub(in crate::block) offset: u64,
    /// Includes the header.
    pub(in crate::block) size: u32,
}

impl PageRef {
    /// Appends the reference as two varints.
    pub(in crate::block) fn encode(self, dst: &mut Vec<u8>) {
        put_u64(dst, self.offset);
        put_u64(dst, self.size.into());
    }

    /// Decodes a reference from the front of `src`. Returns `None` if there is none.
    pub(in crate::block) fn decode(src: &mut &[u8]) -> Option<Self> {
        Some(Self { offset: take_u64(src)?, size: take_u64(src)?.try_into().ok()? })
    }
}

/// Writes consecutive pages to a new file.
pub(in crate::block) struct PageWriter {
    path: PathBuf,
    file: Arc<dyn AppendFile>,
    /// Bytes written and buffered.
    size: u64,
    /// Bytes not yet handed to the operating system.
    gathered: Vec<u8>,
    /// A write failed, so that the contents of the file are unknown.
    failed: bool,
    compressor: zstd::bulk::Compressor<'static>,
}

/// Bytes handed to the operating system at once.
const WRITE_SIZE: usize = 1 << 20;

impl PageWriter {
    /// Starts at the beginning of an empty file; `path` is for errors.
    ///
    /// # Errors
    /// [`Error::Io`] if the compressor cannot be created.
    pub(in crate::block) fn new(path: &Path, file: Arc<dyn AppendFile>) -> Result<Self> {
        let compressor = zstd::bulk::Compressor::new(ZSTD_LEVEL).map_err(Error::io("compress for", path))?;
        Ok(Self { path: path.to_owned(), file, size: 0, gathered: Vec::new(), failed: false, compressor })
    }

    /// Returns the number of bytes written so far.
    pub(in crate::block) fn size(&self) -> u64 {
        self.size
    }

    /// Writes raw bytes: the header and the trailer of the file.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(in crate::block) fn write_raw(&mut self, bytes: &[u8]) -> Result<()> {
        self.gathered.extend_from_slice(bytes);
        self.size += bytes.len() as u64;
        if self.gathered.len() >= WRITE_SIZE { self.flush() } else { Ok(()) }
    }

    /// Writes a page with this payload, compressed if that makes it smaller.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Limit`] if the payload exceeds [`PAGE_SIZE_MAX`].
    pub(in crate::block) fn write(&mut self, payload: &[u8]) -> Result<PageRef> {
        if payload.len() > PAGE_SIZE_MAX {
            let (used, limit) = (payload.len() as u64, PAGE_SIZE_MAX as u64);
            return Err(Error::Limit { what: "bytes of a page of a block", used, limit });
        }
        let start = self.gathered.len();
        let offset = self.size;
        let compressed = self.pack(payload)?;
        let page = &mut self.gathered[start..];
        let size = page.len() as u32;
        let raw_size = payload.len() as u32 | if compressed { COMPRESSED } else { 0 };
        page[SIZE_OFFSET..RAW_SIZE_OFFSET].copy_from_slice(&size.to_le_bytes());
        page[RAW_SIZE_OFFSET..PAGE_HEADER_SIZE].copy_from_slice(&raw_size.to_le_bytes());
        let crc = crc32c::crc32c(&page[SIZE_OFFSET..]);
        page[..SIZE_OFFSET].copy_from_slice(&crc.to_le_bytes());
        self.size += u64::from(size);
        if self.gathered.len() >= WRITE_SIZE {
            self.flush()?;
        }
        Ok(PageRef { offset, size })
    }

    /// Appends room for a header and the payload, compressed if that makes it smaller. Returns `true` if it was
    /// compressed.
    fn pack(&mut self, payload: &[u8]) -> Result<bool> {
        let start = self.gathered.len() + PAGE_HEADER_SIZE;
        self.gathered.resize(start + zstd::zstd_safe::compress_bound(payload.len()), 0);
        let compressed = self.compressor.compress_to_buffer(payload, &mut self.gathered[start..]);
        let size = compressed.map_err(Error::io("compress for", &self.path))?;
        self.gathered.truncate(start + size);
        let smaller = size < payload.len();
        if !smaller {
            self.gathered.truncate(start);
            self.gathered.extend_from_slice(payload);
        }
        Ok(smaller)
    }

    /// Hands all bytes to the operating system and syncs the file.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(in crate::block) fn sync(&mut self) -> Result<()> {
        self.flush()?;
        self.file.sync().map_err(Error::io("sync", &self.path))
    }

    /// Hands all bytes to the operating system.
    ///
    /// # Errors
    /// [`Error::Io`].
    ///
    /// # Panics
    /// If an earlier write failed.
    pub(in crate::block) fn flush(&mut self) -> Result<()> {
        assert!(!self.failed, "a failed writer must be dropped: its page references are invalid");
        self.failed = true;
        self.file.append(&self.gathered).map_err(Error::io("write", &self.path))?;
        self.failed = false;
        self.gathered.clear();
        Ok(())
    }
}

/// The pages of one open block, read by position through the store's cache.
#[derive(Debug)]
pub(in crate::block) struct Pages {
    path: PathBuf,
    file: Arc<dyn ReadFile>,
    /// Identifies this file among all that were ever opened by the process.
    file_id: u64,
    cache: Arc<PageCache>,
}

/// Decoded payloads of pages, shared by all blocks of a store and bounded in bytes.
#[derive(Debug)]
pub(crate) struct PageCache {
    pages: Cache<(u64, u64), Arc<[u8]>, PageWeighter>,
    next_file: std::sync::atomic::AtomicU64,
}

#[derive(Debug, Clone)]
struct PageWeighter;

/// Memory of an entry besides its payload.
const ENTRY_SIZE: usize = 96;

impl Weighter<(u64, u64), Arc<[u8]>> for PageWeighter {
    fn weight(&self, _key: &(u64, u64), payload: &Arc<[u8]>) -> u64 {
        (payload.len() + ENTRY_SIZE) as u64
    }
}

impl PageCache {
    /// Creates a cache of about `size_max` bytes.
    #[must_use]
    pub(crate) fn new(size_max: usize) -> Self {
        let pages_max = size_max / (16 << 10) + 1;
        let pages = Cache::with_weighter(pages_max, size_max as u64, PageWeighter);
        Self { pages, next_file: std::sync::atomic::AtomicU64::new(0) }
    }

    /// Returns the present size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.pages.weight()
    }
}

impl Pages {
    /// Reads pages of `file` through `cache`; `path` is for errors.
    pub(in crate::block) fn new(path: &Path, file: Arc<dyn ReadFile>, cache: Arc<PageCache>) -> Self {
        let file_id = cache.next_file.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Self { path: path.to_owned(), file, file_id, cache }
    }

    /// Returns the payload of a page, from the cache if it is there.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Corrupt`] with path and offset.
    pub(in crate::block) fn get(&self, page: PageRef) -> Result<Arc<[u8]>> {
        let key = (self.file_id, page.offset);
        if let Some(payload) = self.cache.pages.get(&key) {
            return Ok(payload);
        }
        let payload = self.with_stored(page, |stored| {
            let mut payload: Arc<[u8]> = std::iter::repeat_n(0, stored.raw_size).collect();
            stored.unpack(Arc::get_mut(&mut payload)?)?;
            Some(payload)
        })?;
        self.cache.pages.insert(key, Arc::clone(&payload));
        Ok(payload)
    }

    /// Reads and verifies a page without the cache: for merges and verification, which read it once.
    ///
    /// # Errors
    /// The errors of [`Pages::get`].
    pub(in crate::block) fn read(&self, page: PageRef) -> Result<Vec<u8>> {
        self.with_stored(page, |stored| {
            let mut payload = vec![0; stored.raw_size];
            stored.unpack(&mut payload)?;
            Some(payload)
        })
    }

    /// Verifies the checksum of the page at `offset`, which must end at or before `end`, and returns its reference.
    ///
    /// # Errors
    /// The errors of [`Pages::get`].
    pub(in crate::block) fn check(&self, offset: u64, end: u64) -> Result<PageRef> {
        let mut header = [0; PAGE_HEADER_SIZE];
        self.read_at(&mut header, offset)?;
        let page = PageRef { offset, size: u32_at(&header, SIZE_OFFSET) };
        if u64::from(page.size) > end.saturating_sub(offset) {
            return Err(self.corrupt(offset, "a page extends beyond the pages"));
        }
        self.with_stored(page, |_| Some(page))
    }

    /// Reads and verifies a stored page and passes it to `unpack`, which returns `None` if it is invalid.
    fn with_stored<T>(&self, page: PageRef, unpack: impl FnOnce(&Stored<'_>) -> Option<T>) -> Result<T> {
        if !(PAGE_HEADER_SIZE..=PAGE_SIZE_MAX + PAGE_HEADER_SIZE).contains(&(page.size as usize)) {
            return Err(self.corrupt(page.offset, format!("{} bytes cannot be the size of a page", page.size)));
        }
        let mut room = STORED.take();
        if room.len() < page.size as usize {
            room.resize(page.size as usize, 0);
        }
        let bytes = &mut room[..page.size as usize];
        self.read_at(bytes, page.offset)?;
        let unpacked = Stored::verify(bytes).and_then(|stored| unpack(&stored));
        if room.len() <= STORED_SIZE_MAX {
            STORED.set(room);
        }
        unpacked.ok_or_else(|| self.corrupt(page.offset, "the checksum of a page is wrong"))
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_at(bytes, offset).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => self.corrupt(offset, "the file ends inside a page: it was truncated"),
            kind => Error::io("read", &self.path)(io::Error::new(kind, format!("at byte {offset}: {e}"))),
        })
    }

    /// Returns the error for a page whose contents cannot be read.
    pub(in crate::block) fn unreadable(&self, page: PageRef, why: Unreadable) -> Error {
        match why {
            Unreadable::Damaged => self.corrupt(page.offset, "a page does not decode"),
            Unreadable::Newer => {
                Error::Version { path: self.path.clone(), found: u32::from(VERSION) + 1, supported: u32::from(VERSION) }
            }
        }
    }

    /// Returns the error for damage in this file, with advice.
    pub(in crate::block) fn corrupt(&self, offset: u64, reason: impl Into<String>) -> Error {
        corrupt(&self.path, offset, reason)
    }
}

/// Returns the error for damage in a block, with advice.
pub(in crate::block) fn corrupt(path: &Path, offset: u64, reason: impl Into<String>) -> Error {
    let reason = format!("{}; restore the file from a snapshot, or move it away to continue without it", reason.into());
    Error::Corrupt { path: path.to_owned(), offset, reason }
}

/// A page with a correct checksum.
struct Stored<'a> {
    payload: &'a [u8],
    raw_size: usize,
    compressed: bool,
}

impl<'a> Stored<'a> {
    fn verify(page: &'a [u8]) -> Option<Self> {
        let (header, payload) = page.split_at_checked(PAGE_HEADER_SIZE)?;
        if u32_at(header, 0) != crc32c::crc32c(&page[SIZE_OFFSET..])
            || u32_at(header, SIZE_OFFSET) as usize != page.len()
        {
            return None;
        }
        let raw_size = u32_at(header, RAW_SIZE_OFFSET);
        let compressed = raw_size & COMPRESSED != 0;
        let raw_size = (raw_size & !COMPRESSED) as usize;
        let plausible = if compressed { raw_size <= PAGE_SIZE_MAX } else { raw_size == payload.len() };
        plausible.then_some(Self { payload, raw_size, compressed })
    }

    /// Unpacks the payload into `dst`, which has its size. Returns `None` if the payload has another size.
    fn unpack(&self, dst: &mut [u8]) -> Option<()> {
        if !self.compressed {
            dst.copy_from_slice(self.payload);
            return Some(());
        }
        (decompress(self.payload, dst)? == dst.len()).then_some(())
    }
}

thread_local! {
    /// One per thread: creating one takes longer than decompressing a page.
    static DECOMPRESSOR: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
    /// Buffer for stored pages: freed memory would go back to the operating system at once.
    static STORED: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Maximum size of the buffer that a thread keeps. Few pages are larger.
const STORED_SIZE_MAX: usize = 256 << 10;

fn decompress(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    DECOMPRESSOR.with_borrow_mut(|kept| {
        if kept.is_none() {
            *kept = Some(zstd::bulk::Decompressor::new().ok()?);
        }
        kept.as_mut()?.decompress_to_buffer(src, dst).ok()
    })
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(bytes[offset..offset + 4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::{Fs, RealFs};
    use proptest::prelude::*;

    fn written(payloads: &[Vec<u8>]) -> (tempfile::TempDir, PathBuf, Vec<PageRef>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pages");
        let mut writer = PageWriter::new(&path, RealFs.create(&path).unwrap()).unwrap();
        let refs = payloads.iter().map(|payload| writer.write(payload).unwrap()).collect();
        writer.sync().unwrap();
        (dir, path, refs)
    }

    fn open(path: &Path) -> Pages {
        Pages::new(path, RealFs.open(path).unwrap(), Arc::new(PageCache::new(1 << 20)))
    }

    proptest! {
        #[test]
        fn pages_round_trip(payloads in proptest::collection::vec(proptest::collection::vec(0..4_u8, 0..300), 1..10)) {
            let (_dir, path, refs) = written(&payloads);
            let pages = open(&path);
            for _ in 0..2 {
                for (payload, &page) in payloads.iter().zip(&refs) {
                    prop_assert_eq!(&*pages.get(page).unwrap(), &payload[..]);
                }
            }
        }
    }

    #[test]
    fn every_flipped_bit_is_detected_with_its_position() {
        let (_dir, path, refs) = written(&[b"first".to_vec(), vec![7; 100]]);
        let good = std::fs::read(&path).unwrap();
        let second = refs[1];
        for bit in 0..second.size as usize * 8 {
            let mut bad = good.clone();
            bad[second.offset as usize + bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, &bad).unwrap();
            let refused = open(&path).get(second).unwrap_err();
            assert!(
                matches!(refused, Error::Corrupt { offset, .. } if offset == second.offset),
                "bit {bit}: {refused}"
            );
        }
        std::fs::write(&path, &good[..good.len() - 1]).unwrap();
        assert!(matches!(open(&path).get(second), Err(Error::Corrupt { .. })), "cut");
    }
}
