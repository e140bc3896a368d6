//! Head chunks: chunks that left Prometheus' memory before their block was written, `chunks_head/000001` and so on.
//!
//! ```text
//! u32      magic 0x0130bc91
//! u8       version 1; then three zeros
//! chunks   u64 series, u64 first time, u64 last time, u8 encoding (bit 7: out of order), varint size, data,
//!          u32 CRC-32C of all that
//! ```
//! The file is made large beforehand: behind the last chunk it may go on with zeros. Source: Prometheus
//! `tsdb/docs/format/head_chunks.md`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use varve_tsdb::fs::damage::{DamageKind, DamageReport};
use varve_tsdb::fs::{Fs, ReadFile};
use varve_tsdb::{Error, Result};

use super::chunk::{Encoding, n_samples};
use super::cursor::Cursor;

/// Most bytes of a file that are read: Prometheus ends one at 128 MiB.
pub const FILE_SIZE_MAX: u64 = 1 << 30;
const MAGIC: u32 = 0x0130_bc91;
const VERSION: u8 = 1;
const FILE_HEADER_SIZE: usize = 8;
const OUT_OF_ORDER: u8 = 0x80;
const CRC_SIZE: usize = 4;
/// No chunk covers so much time.
const CHUNK_SPAN_MAX_MS: i64 = 1 << 40;

/// A chunk, as the file says of it; its samples were not looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadChunk {
    /// The number of the series.
    pub series: u64,
    /// Of the first sample.
    pub min_ms: i64,
    /// Of the last sample.
    pub max_ms: i64,
    /// Samples.
    pub n_samples: u32,
    /// How they are encoded.
    pub encoding: Encoding,
    /// Samples that came late.
    pub is_late: bool,
    /// The file's place in the list.
    pub file: u32,
    /// Where the data begin.
    pub offset: u32,
    /// Bytes of data.
    pub size: u32,
}

/// The files of head chunks.
#[derive(Debug, Default)]
pub struct HeadChunkFiles {
    files: Vec<(PathBuf, Arc<dyn ReadFile>)>,
}

impl HeadChunkFiles {
    /// Reads what chunks there are in `dir`, in the order of files and offsets; none if there is no such folder.
    ///
    /// Damage is noted, and the next sound chunk looked for.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder cannot be listed.
    pub fn scan(fs: &dyn Fs, dir: &Path, damage: &mut DamageReport) -> Result<(Self, Vec<HeadChunk>)> {
        let names = match fs.list(dir) {
            Ok(names) => names,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(Error::io("list", dir)(error)),
        };
        let (mut found, mut chunks) = (Self::default(), Vec::new());
        let is_number = |name: &&String| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
        let names: Vec<_> = names.iter().filter(is_number).collect();
        for (i, name) in names.iter().enumerate() {
            let path = dir.join(name);
            let is_last = i + 1 == names.len();
            match found.scan_file(fs, &path, is_last, &mut chunks, damage) {
                Ok(()) => {}
                Err(error) => damage.push(&path, 0, DamageKind::Corrupt, format!("cannot be read: {error}")),
            }
        }
        Ok((found, chunks))
    }

    /// Reads the data of a chunk, whose checksum was right at the scan.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn read(&self, chunk: &HeadChunk, dst: &mut Vec<u8>) -> Result<()> {
        let (path, file) = &self.files[chunk.file as usize];
        dst.resize(chunk.size as usize, 0);
        file.read_at(dst, u64::from(chunk.offset)).map_err(Error::io("read", path))
    }

    /// Returns the path of the file that a chunk is in.
    #[must_use]
    pub fn path(&self, chunk: &HeadChunk) -> &Path {
        &self.files[chunk.file as usize].0
    }

    fn scan_file(
        &mut self,
        fs: &dyn Fs,
        path: &Path,
        is_last: bool,
        chunks: &mut Vec<HeadChunk>,
        damage: &mut DamageReport,
    ) -> std::io::Result<()> {
        let file = fs.open(path)?;
        let size = file.size()?;
        if size > FILE_SIZE_MAX {
            damage.push(
                path,
                0,
                DamageKind::Unsupported,
                format!("{size} bytes are more than a file of head chunks has"),
            );
            return Ok(());
        }
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
        file.read_at(&mut bytes, 0)?;
        let number = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
        self.files.push((path.to_owned(), file));
        scan(&bytes, path, number, is_last, chunks, damage);
        Ok(())
    }
}

/// Finds the chunks in the bytes of a file.
fn scan(bytes: &[u8], path: &Path, file: u32, is_last: bool, chunks: &mut Vec<HeadChunk>, damage: &mut DamageReport) {
    let mut header = Cursor::new(bytes);
    match (header.be_u32(), header.u8()) {
        // An empty file, or one of zeros, was just made.
        _ if bytes.iter().all(|&byte| byte == 0) => return,
        (Some(MAGIC), Some(VERSION)) => {}
        (Some(MAGIC), Some(version)) => {
            damage.push(path, 4, DamageKind::Unsupported, format!("format version {version} is not known"));
            return;
        }
        _ => damage.push(path, 0, DamageKind::Corrupt, "the header is not that of a file of head chunks"),
    }
    let mut at = FILE_HEADER_SIZE;
    while at < bytes.len() {
        let rest = &bytes[at..];
        if let Some((chunk, size)) = take(rest) {
            chunks.push(HeadChunk { file, offset: chunk.offset + at as u32, ..chunk });
            at += size;
            continue;
        }
        if rest.iter().all(|&byte| byte == 0) {
            return;
        }
        match (1..rest.len()).find(|&skip| looks_like_chunk(&rest[skip..]) && take(&rest[skip..]).is_some()) {
            Some(skip) => {
                damage.push(path, at as u64, DamageKind::Corrupt, format!("{skip} bytes are no chunk"));
                at += skip;
            }
            None => {
                let kind = if is_last { DamageKind::TornTail } else { DamageKind::Corrupt };
                damage.push(path, at as u64, kind, format!("the last {} bytes are no chunk", rest.len()));
                return;
            }
        }
    }
}

/// Tells whether a chunk may begin here, without its checksum: else every byte of a damaged file would cost one.
fn looks_like_chunk(bytes: &[u8]) -> bool {
    let mut src = Cursor::new(bytes);
    let times = (src.be_u64(), src.be_u64(), src.be_u64());
    let (Some(_), Some(min_ms), Some(max_ms)) = times else { return false };
    matches!(max_ms.cast_signed().checked_sub(min_ms.cast_signed()), Some(0..CHUNK_SPAN_MAX_MS))
}

/// Takes a chunk off the front, if there is a sound one; returns it and the bytes that it takes.
fn take(bytes: &[u8]) -> Option<(HeadChunk, usize)> {
    let mut src = Cursor::new(bytes);
    let series = src.be_u64().filter(|&series| series > 0)?;
    let (min_ms, max_ms) = (src.be_u64()?.cast_signed(), src.be_u64()?.cast_signed());
    let code = src.u8()?;
    let encoding = Encoding::from_code(code & !OUT_OF_ORDER)?;
    let size = src.n_items().filter(|_| min_ms <= max_ms)?;
    let offset = bytes.len() - src.len();
    let data = src.bytes(size)?;
    let checksum = src.be_u32()?;
    (crc32c::crc32c(&bytes[..offset + size]) == checksum).then_some(())?;
    let n_samples = n_samples(encoding, data).ok()? as u32;
    let is_late = code & OUT_OF_ORDER != 0;
    let (offset, size) = (u32::try_from(offset).ok()?, u32::try_from(size).ok()?);
    let chunk = HeadChunk { series, min_ms, max_ms, n_samples, encoding, is_late, file: 0, offset, size };
    Some((chunk, offset as usize + size as usize + CRC_SIZE))
}
