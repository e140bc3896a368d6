//! Pages: the unit in which a block is compressed, verified and read.
//!
//! ```text
//! 0   4  crc       CRC-32C of the bytes from 4 to the end of the page
//! 4   4  size      of the page, header included, u32
//! 8   4  raw size  of the payload, u32; bit 31: the payload is compressed with zstd
//! 12  -  payload
//! ```
//! A page is found through a [`PageRef`], which contains its size. Nothing in the page is used
//! before its checksum is verified. The payload is compressed only if that makes it smaller. Pages
//! are consecutive and contain their sizes, so [`Pages::check`] can walk through a file without
//! knowing the contents.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::Weighter;
use quick_cache::sync::Cache;
use varve_codec::varint::{put_u64, take_int, take_u64};
use varve_env::{AppendFile, ReadFile};

use super::version::{Unreadable, VERSION};
use crate::error::{Error, Result};

/// Maximum size of a page's payload. A reader allocates no more for one page.
pub(crate) const PAGE_SIZE_MAX: usize = 64 << 20;

const SIZE_OFFSET: usize = 4;
const RAW_SIZE_OFFSET: usize = 8;
const PAGE_HEADER_SIZE: usize = 12;
const COMPRESSED: u32 = 1 << 31;
/// Higher levels take much longer and compress little better: see COMPRESSION in
/// docs/performance.md.
const ZSTD_LEVEL: i32 = 1;

/// The position of a page in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PageRef {
    /// Offset of the page's header in the file.
    pub(crate) offset: u64,
    /// Size in bytes, including the header.
    pub(crate) size: u32,
}

impl PageRef {
    /// Appends the reference as two varints.
    pub(crate) fn encode(self, dst: &mut Vec<u8>) {
        put_u64(dst, self.offset);
        put_u64(dst, self.size.into());
    }

    /// Decodes a reference from the front of `src`. Returns `None` if it is damaged.
    pub(crate) fn decode(src: &mut &[u8]) -> Option<Self> {
        Some(Self {
            offset: take_u64(src)?,
            size: take_int(src)?,
        })
    }

    /// Appends a list of references, preceded by their number.
    pub(crate) fn encode_list(pages: &[Self], dst: &mut Vec<u8>) {
        put_u64(dst, pages.len() as u64);
        for page in pages {
            page.encode(dst);
        }
    }

    /// Decodes a list of references from the front of `src`. Returns `None` if it is damaged.
    pub(crate) fn decode_list(src: &mut &[u8]) -> Option<Vec<Self>> {
        // Nothing is reserved in advance: the number is not trusted.
        (0..take_u64(src)?).map(|_| Self::decode(src)).collect()
    }
}

/// Writes consecutive pages to a new file.
pub(crate) struct PageWriter {
    path: PathBuf,
    file: Arc<dyn AppendFile>,
    /// Number of bytes written, including the buffered ones.
    size: u64,
    /// Bytes that are not yet written to the file.
    buffer: Vec<u8>,
    /// `true` if a write failed, so that the contents of the file are unknown.
    failed: bool,
    compressor: zstd::bulk::Compressor<'static>,
}

/// Buffered bytes at which the buffer is written.
const WRITE_SIZE: usize = 1 << 20;

impl PageWriter {
    /// Creates a writer at the beginning of an empty file. `path` is for errors.
    ///
    /// # Errors
    /// [`Error::Io`] if the compressor cannot be created.
    pub(crate) fn new(path: &Path, file: Arc<dyn AppendFile>) -> Result<Self> {
        let compressor =
            zstd::bulk::Compressor::new(ZSTD_LEVEL).map_err(Error::io("compress for", path))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            size: 0,
            buffer: Vec::new(),
            failed: false,
            compressor,
        })
    }

    /// Returns the number of bytes written so far.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Writes raw bytes: the header or the trailer of the file.
    pub(crate) fn write_raw(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        self.size += bytes.len() as u64;
    }

    /// Writes a page with this payload, compressed if that makes it smaller.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Limit`] if the payload exceeds [`PAGE_SIZE_MAX`].
    pub(crate) fn write(&mut self, payload: &[u8]) -> Result<PageRef> {
        Error::check_limit("bytes of a page of a block", payload.len(), PAGE_SIZE_MAX)?;
        let start = self.buffer.len();
        let offset = self.size;
        let compressed = self.pack(payload)?;
        let page = &mut self.buffer[start..];
        let size = page.len() as u32;
        let raw_size = payload.len() as u32 | if compressed { COMPRESSED } else { 0 };
        page[SIZE_OFFSET..RAW_SIZE_OFFSET].copy_from_slice(&size.to_le_bytes());
        page[RAW_SIZE_OFFSET..PAGE_HEADER_SIZE].copy_from_slice(&raw_size.to_le_bytes());
        let crc = crc32c::crc32c(&page[SIZE_OFFSET..]);
        page[..SIZE_OFFSET].copy_from_slice(&crc.to_le_bytes());
        self.size += u64::from(size);
        self.flush_if_full()?;
        Ok(PageRef { offset, size })
    }

    /// Appends room for a header, and the payload, compressed if that makes it smaller. Returns
    /// `true` if it was compressed.
    fn pack(&mut self, payload: &[u8]) -> Result<bool> {
        let start = self.buffer.len() + PAGE_HEADER_SIZE;
        self.buffer
            .resize(start + zstd::zstd_safe::compress_bound(payload.len()), 0);
        let compressed = self
            .compressor
            .compress_to_buffer(payload, &mut self.buffer[start..]);
        let size = compressed.map_err(Error::io("compress for", &self.path))?;
        let smaller = size < payload.len();
        self.buffer.truncate(start + if smaller { size } else { 0 });
        if !smaller {
            self.buffer.extend_from_slice(payload);
        }
        Ok(smaller)
    }

    /// Writes the buffer to the file if it is large.
    ///
    /// # Errors
    /// The errors of [`PageWriter::flush`].
    fn flush_if_full(&mut self) -> Result<()> {
        if self.buffer.len() >= WRITE_SIZE {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes the buffer to the file and syncs the file.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.flush()?;
        self.file.sync().map_err(Error::io("sync", &self.path))
    }

    /// Writes the buffer to the file.
    ///
    /// # Errors
    /// [`Error::Io`].
    ///
    /// # Panics
    /// If an earlier write failed.
    pub(crate) fn flush(&mut self) -> Result<()> {
        assert!(
            !self.failed,
            "a failed writer must be dropped: its page references are invalid"
        );
        self.failed = true;
        self.file
            .append(&self.buffer)
            .map_err(Error::io("write", &self.path))?;
        self.failed = false;
        self.buffer.clear();
        Ok(())
    }
}

/// Writes a list of entries in pages of whole entries.
pub(crate) struct ListWriter {
    /// Encoded size at which a page is written.
    page_size: usize,
    entries: Vec<u8>,
    pages: Vec<PageRef>,
}

impl ListWriter {
    /// Creates an empty list with pages of about `page_size` bytes.
    pub(crate) fn new(page_size: usize) -> Self {
        Self {
            page_size,
            entries: Vec::new(),
            pages: Vec::new(),
        }
    }

    /// Adds an entry. `put` appends it to the current page, which is empty for the first entry of a
    /// page.
    ///
    /// # Errors
    /// The errors of [`PageWriter::write`].
    pub(crate) fn push(
        &mut self,
        pages: &mut PageWriter,
        put: impl FnOnce(&mut Vec<u8>),
    ) -> Result<()> {
        put(&mut self.entries);
        if self.entries.len() >= self.page_size {
            self.end_page(pages)
        } else {
            Ok(())
        }
    }

    fn end_page(&mut self, pages: &mut PageWriter) -> Result<()> {
        self.pages.push(pages.write(&self.entries)?);
        self.entries.clear();
        Ok(())
    }

    /// Writes the remaining entries and returns the pages of the list.
    ///
    /// # Errors
    /// The errors of [`PageWriter::write`].
    pub(crate) fn finish(mut self, pages: &mut PageWriter) -> Result<Vec<PageRef>> {
        if !self.entries.is_empty() {
            self.end_page(pages)?;
        }
        Ok(self.pages)
    }
}

/// The pages of an open file, read by position through the cache of the store.
#[derive(Debug)]
pub(crate) struct Pages {
    path: PathBuf,
    file: Arc<dyn ReadFile>,
    /// Identifies this file among all files that the process ever opened through the cache.
    file_id: u64,
    cache: Arc<PageCache>,
}

/// How pages are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Through the cache.
    Cached,
    /// Without the cache, for merges and verification, which read each page once.
    Scan,
}

/// Decoded payloads of pages, shared by all blocks of a store and bounded in bytes.
#[derive(Debug)]
pub(crate) struct PageCache {
    pages: Cache<(u64, u64), Arc<[u8]>, PageWeighter>,
    next_file: AtomicU64,
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
    pub(crate) fn new(size_max: usize) -> Self {
        let pages_max = size_max / (16 << 10) + 1;
        Self {
            pages: Cache::with_weighter(pages_max, size_max as u64, PageWeighter),
            next_file: AtomicU64::new(0),
        }
    }

    /// Returns the current size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.pages.weight()
    }
}

impl Pages {
    /// Creates a reader of the pages of `file`. `path` is for errors.
    pub(crate) fn new(path: &Path, file: Arc<dyn ReadFile>, cache: Arc<PageCache>) -> Self {
        let file_id = cache.next_file.fetch_add(1, Ordering::Relaxed);
        Self {
            path: path.to_owned(),
            file,
            file_id,
            cache,
        }
    }

    /// Returns the payload of a page, with or without the cache.
    ///
    /// # Errors
    /// The errors of [`Pages::cached_page`].
    pub(crate) fn page(&self, page: PageRef, access: Access) -> Result<Arc<[u8]>> {
        match access {
            Access::Cached => self.cached_page(page),
            Access::Scan => self.read_page(page),
        }
    }

    /// Returns the payload of a page through the cache.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Corrupt`] with path and offset.
    pub(crate) fn cached_page(&self, page: PageRef) -> Result<Arc<[u8]>> {
        let key = (self.file_id, page.offset);
        if let Some(payload) = self.cache.pages.get(&key) {
            return Ok(payload);
        }
        let payload = self.read_page(page)?;
        self.cache.pages.insert(key, Arc::clone(&payload));
        Ok(payload)
    }

    /// Reads and verifies a page without the cache, and returns its payload.
    ///
    /// # Errors
    /// The errors of [`Pages::cached_page`].
    pub(crate) fn read_page(&self, page: PageRef) -> Result<Arc<[u8]>> {
        let size = (page.size as usize).saturating_sub(PAGE_HEADER_SIZE);
        if !(DIRECT_SIZE_MIN..=PAGE_SIZE_MAX).contains(&size) {
            return self.with_stored(page, |stored| stored.unpack());
        }
        let mut header = [0; PAGE_HEADER_SIZE];
        self.read_at(&mut header, page.offset)?;
        if u32_at(&header, RAW_SIZE_OFFSET) as usize != size {
            // It is compressed, or damaged.
            return self.with_stored(page, |stored| stored.unpack());
        }
        // Most large pages are not compressed: they are read into their place.
        let mut payload: Arc<[u8]> = std::iter::repeat_n(0, size).collect();
        if let Some(bytes) = Arc::get_mut(&mut payload) {
            self.read_at(bytes, page.offset + PAGE_HEADER_SIZE as u64)?;
        }
        Stored::is_intact(&header, &payload)
            .then_some(payload)
            .ok_or_else(|| self.corrupt(page.offset, WRONG_CHECKSUM))
    }

    /// Verifies the checksum of the page at `offset`, which must end at or before `end`. Returns
    /// its reference.
    ///
    /// # Errors
    /// The errors of [`Pages::cached_page`].
    pub(crate) fn check(&self, offset: u64, end: u64) -> Result<PageRef> {
        let page = self.find_page(offset, end)?;
        self.with_stored(page, |_| Some(page))
    }

    /// Verifies the checksum of the page at `offset`, which must end at or before `end`, and
    /// appends it to `dst` as it is. Returns its size.
    ///
    /// # Errors
    /// The errors of [`Pages::cached_page`] and [`PageWriter::flush`].
    pub(crate) fn copy_page(&self, offset: u64, end: u64, dst: &mut PageWriter) -> Result<u32> {
        let page = self.find_page(offset, end)?;
        self.with_bytes(page, |bytes| {
            Stored::verify(bytes).ok_or(WRONG_CHECKSUM)?;
            dst.write_raw(bytes);
            Ok(())
        })?;
        dst.flush_if_full()?;
        Ok(page.size)
    }

    /// Returns the reference of the page at `offset`, which must end at or before `end`. Does not
    /// verify the page.
    fn find_page(&self, offset: u64, end: u64) -> Result<PageRef> {
        let mut header = [0; PAGE_HEADER_SIZE];
        self.read_at(&mut header, offset)?;
        let page = PageRef {
            offset,
            size: u32_at(&header, SIZE_OFFSET),
        };
        if u64::from(page.size) > end.saturating_sub(offset) {
            return Err(self.corrupt(offset, "a page extends beyond the pages"));
        }
        Ok(page)
    }

    /// Reads and verifies a page, and passes it to `unpack`, which returns `None` if it is invalid.
    fn with_stored<T>(
        &self,
        page: PageRef,
        unpack: impl FnOnce(Stored<'_>) -> Option<T>,
    ) -> Result<T> {
        self.with_bytes(page, |bytes| match Stored::verify(bytes) {
            None => Err(WRONG_CHECKSUM),
            Some(stored) => unpack(stored).ok_or("a page does not decompress to its size"),
        })
    }

    /// Reads a page and passes its bytes to `read`, which returns why they are damaged.
    fn with_bytes<T>(
        &self,
        page: PageRef,
        read: impl FnOnce(&[u8]) -> Result<T, &'static str>,
    ) -> Result<T> {
        if !(PAGE_HEADER_SIZE..=PAGE_SIZE_MAX + PAGE_HEADER_SIZE).contains(&(page.size as usize)) {
            return Err(self.corrupt(
                page.offset,
                format!("{} bytes cannot be the size of a page", page.size),
            ));
        }
        let mut room = STORED.take();
        if room.len() < page.size as usize {
            room.resize(page.size as usize, 0);
        }
        let bytes = &mut room[..page.size as usize];
        self.read_at(bytes, page.offset)?;
        let found = read(bytes);
        if room.len() <= STORED_SIZE_MAX {
            STORED.set(room);
        }
        found.map_err(|reason| self.corrupt(page.offset, reason))
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        self.file
            .read_at(bytes, offset)
            .map_err(|e| match e.kind() {
                io::ErrorKind::UnexpectedEof => {
                    self.corrupt(offset, "the file ends inside a page: it was truncated")
                }
                kind => Error::io("read", &self.path)(io::Error::new(
                    kind,
                    format!("at byte {offset}: {e}"),
                )),
            })
    }

    /// Returns the error for a page whose payload cannot be read.
    pub(crate) fn unreadable(&self, page: PageRef, why: impl Into<Unreadable>) -> Error {
        match why.into() {
            Unreadable::Damaged => self.corrupt(page.offset, "a page does not decode"),
            Unreadable::Newer => Error::Version {
                path: self.path.clone(),
                found: u32::from(VERSION) + 1,
                supported: u32::from(VERSION),
            },
        }
    }

    /// Returns the error for damage in this file, with a hint to the user.
    pub(crate) fn corrupt(&self, offset: u64, reason: impl Into<String>) -> Error {
        corrupt(&self.path, offset, reason)
    }
}

/// Returns the error for damage in a block, with a hint to the user.
pub(crate) fn corrupt(path: &Path, offset: u64, reason: impl Into<String>) -> Error {
    let reason = format!(
        "{}; restore the file from a snapshot, or move it away to continue without it",
        reason.into()
    );
    Error::Corrupt {
        path: path.to_owned(),
        offset,
        reason,
    }
}

/// A page with a correct checksum.
struct Stored<'a> {
    payload: &'a [u8],
    raw_size: usize,
    compressed: bool,
}

impl<'a> Stored<'a> {
    fn verify(page: &'a [u8]) -> Option<Self> {
        let (header, payload) = page.split_first_chunk()?;
        if !Self::is_intact(header, payload) {
            return None;
        }
        let raw_size = u32_at(header, RAW_SIZE_OFFSET);
        let compressed = raw_size & COMPRESSED != 0;
        let raw_size = (raw_size & !COMPRESSED) as usize;
        let plausible = if compressed {
            raw_size <= PAGE_SIZE_MAX
        } else {
            raw_size == payload.len()
        };
        plausible.then_some(Self {
            payload,
            raw_size,
            compressed,
        })
    }

    /// Returns `true` if the size and the checksum in the header are those of the page.
    fn is_intact(header: &[u8; PAGE_HEADER_SIZE], payload: &[u8]) -> bool {
        let crc = crc32c::crc32c(&header[SIZE_OFFSET..]);
        u32_at(header, SIZE_OFFSET) as usize == PAGE_HEADER_SIZE + payload.len()
            && u32_at(header, 0) == crc32c::crc32c_append(crc, payload)
    }

    /// Returns the payload, or `None` if it does not decompress to the given size.
    fn unpack(self) -> Option<Arc<[u8]>> {
        if !self.compressed {
            return Some(self.payload.into());
        }
        let mut payload: Arc<[u8]> = std::iter::repeat_n(0, self.raw_size).collect();
        let dst = Arc::get_mut(&mut payload)?;
        let size = DECOMPRESSOR.with_borrow_mut(|decompressor| {
            if decompressor.is_none() {
                *decompressor = Some(zstd::bulk::Decompressor::new().ok()?);
            }
            decompressor
                .as_mut()?
                .decompress_to_buffer(self.payload, dst)
                .ok()
        })?;
        (size == self.raw_size).then_some(payload)
    }
}

thread_local! {
    /// One per thread: creating it takes longer than decompressing a page.
    static DECOMPRESSOR: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
    /// Buffer for stored pages: without it, each read would allocate memory and return it to the
    /// operating system.
    static STORED: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

const WRONG_CHECKSUM: &str = "the checksum of a page is wrong";

/// Maximum size of the buffer that a thread keeps. Few pages are larger.
const STORED_SIZE_MAX: usize = 256 << 10;

/// Size of a payload from which it is read into its place, unless it is compressed. Reading the
/// header first takes longer than copying a smaller payload.
const DIRECT_SIZE_MIN: usize = 16 << 10;

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(bytes[offset..offset + 4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use varve_env::{Fs, RealFs};

    fn written(payloads: &[Vec<u8>]) -> (tempfile::TempDir, PathBuf, Vec<PageRef>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pages");
        let mut writer = PageWriter::new(&path, RealFs.create(&path).unwrap()).unwrap();
        let refs = payloads
            .iter()
            .map(|payload| writer.write(payload).unwrap())
            .collect();
        writer.sync().unwrap();
        (dir, path, refs)
    }

    fn open(path: &Path) -> Pages {
        Pages::new(
            path,
            RealFs.open(path).unwrap(),
            Arc::new(PageCache::new(1 << 20)),
        )
    }

    proptest! {
        #[test]
        fn pages_round_trip(payloads in proptest::collection::vec(proptest::collection::vec(0..4_u8, 0..300), 1..10)) {
            let (_dir, path, refs) = written(&payloads);
            let pages = open(&path);
            for _ in 0..2 {
                for (payload, &page) in payloads.iter().zip(&refs) {
                    prop_assert_eq!(&*pages.cached_page(page).unwrap(), &payload[..]);
                }
            }
        }
    }

    /// Returns bytes that do not compress.
    fn noise(size: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let mut bytes = Vec::with_capacity(size);
        while bytes.len() < size {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.push((state >> 32) as u8);
        }
        bytes
    }

    #[test]
    fn large_pages_round_trip_whether_they_are_compressed_or_not() {
        let sizes = [
            DIRECT_SIZE_MIN - 1,
            DIRECT_SIZE_MIN,
            3 * DIRECT_SIZE_MIN + 1,
        ];
        let mut payloads: Vec<_> = sizes.into_iter().map(noise).collect();
        payloads.extend(sizes.map(|size| vec![7; size]));
        let (_dir, path, refs) = written(&payloads);
        let pages = open(&path);
        for (payload, &page) in payloads.iter().zip(&refs) {
            assert_eq!(&*pages.read_page(page).unwrap(), &payload[..]);
        }
        assert_eq!(refs[2].size as usize, payloads[2].len() + PAGE_HEADER_SIZE);
        let beyond = PageRef {
            size: u32::MAX,
            ..refs[0]
        };
        let error = pages.read_page(beyond).unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    }

    #[test]
    fn every_flipped_bit_is_detected_with_its_position() {
        check_flipped_bits(&[7; 100], 1);
        check_flipped_bits(&noise(DIRECT_SIZE_MIN), 1009);
    }

    /// Flips every `step`-th bit of a page, and all bits of its header.
    fn check_flipped_bits(payload: &[u8], step: usize) {
        let (_dir, path, refs) = written(&[b"first".to_vec(), payload.to_vec()]);
        let good = std::fs::read(&path).unwrap();
        let second = refs[1];
        let bits = (0..PAGE_HEADER_SIZE * 8).chain((0..second.size as usize * 8).step_by(step));
        for bit in bits {
            let mut bad = good.clone();
            bad[second.offset as usize + bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, &bad).unwrap();
            let error = open(&path).cached_page(second).unwrap_err();
            assert!(
                matches!(error, Error::Corrupt { offset, .. } if offset == second.offset),
                "bit {bit}: {error}"
            );
        }
        std::fs::write(&path, &good[..good.len() - 1]).unwrap();
        assert!(
            matches!(open(&path).cached_page(second), Err(Error::Corrupt { .. })),
            "truncated"
        );
    }
}
