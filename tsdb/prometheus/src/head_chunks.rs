//! Head chunks: chunks that Prometheus mmaps until it writes their block, `chunks_head/000001` and
//! so on.
//!
//! ```text
//! u32      magic 0x0130bc91
//! u8       version 1; then three zeros
//! chunks   u64 series ref, u64 min time, u64 max time, u8 encoding (bit 7: out of order), varint size, data,
//!          u32 CRC-32C of all fields
//! ```
//! Files are preallocated: zeros may follow the last chunk. Source: Prometheus
//! `tsdb/docs/format/head_chunks.md`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use varve_env::damage::{DamageKind, DamageReport};
use varve_env::{Fs, ReadFile, list_if_exists};
use varve_tsdb::{Error, Result};

use super::chunk::{Encoding, n_samples};
use super::cursor::Cursor;

/// Maximum size of a file that is read. Prometheus cuts files at 128 MiB.
pub const FILE_SIZE_MAX: u64 = 1 << 30;
const MAGIC: u32 = 0x0130_bc91;
const VERSION: u8 = 1;
const FILE_HEADER_SIZE: usize = 8;
const OUT_OF_ORDER: u8 = 0x80;
const CRC_SIZE: usize = 4;
/// Maximum duration of a chunk that is searched for after damage.
const CHUNK_SPAN_MAX_MS: i64 = 1 << 40;

/// The header of a head chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadChunk {
    /// Series ref.
    pub series: u64,
    /// Timestamp of the first sample.
    pub min_ms: i64,
    /// Timestamp of the last sample.
    pub max_ms: i64,
    /// Number of samples.
    pub n_samples: u32,
    /// Encoding of the data.
    pub encoding: Encoding,
    /// `true` for out-of-order samples.
    pub is_out_of_order: bool,
    /// Index of the file.
    pub file: u32,
    /// Offset of the data.
    pub offset: u32,
    /// Size of the data in bytes.
    pub size: u32,
}

/// The head chunk files of a data directory.
#[derive(Debug, Default)]
pub struct HeadChunkFiles {
    files: Vec<(PathBuf, Arc<dyn ReadFile>)>,
}

impl HeadChunkFiles {
    /// Lists the chunks in `dir` by file and offset. A missing directory has none. Reports damage,
    /// and continues with the next valid chunk.
    ///
    /// # Errors
    /// [`Error::Io`] if the directory cannot be listed.
    pub fn scan(
        fs: &dyn Fs,
        dir: &Path,
        damage: &mut DamageReport,
    ) -> Result<(Self, Vec<HeadChunk>)> {
        let names = list_if_exists(fs, dir)?;
        let mut found = Self::default();
        let mut chunks = Vec::new();
        let names: Vec<_> = names.iter().filter(|name| is_number(name)).collect();
        for (i, name) in names.iter().enumerate() {
            let path = dir.join(name);
            let is_last = i + 1 == names.len();
            if let Err(error) = found.scan_file(fs, &path, is_last, &mut chunks, damage) {
                damage.push(
                    &path,
                    0,
                    DamageKind::Corrupt,
                    format!("cannot read file: {error}"),
                );
            }
        }
        Ok((found, chunks))
    }

    /// Reads the data of a chunk. The scan verified its checksum.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn read(&self, chunk: &HeadChunk, dst: &mut Vec<u8>) -> Result<()> {
        let (path, file) = &self.files[chunk.file as usize];
        dst.resize(chunk.size as usize, 0);
        file.read_at(dst, u64::from(chunk.offset))
            .map_err(Error::io("read", path))
    }

    /// Returns the path of the file of a chunk.
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
            let reason =
                format!("{size} bytes exceed the limit of {FILE_SIZE_MAX} for a head chunk file");
            damage.push(path, 0, DamageKind::Unsupported, reason);
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

fn is_number(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit())
}

/// Finds the chunks in a file.
fn scan(
    bytes: &[u8],
    path: &Path,
    file: u32,
    is_last: bool,
    chunks: &mut Vec<HeadChunk>,
    damage: &mut DamageReport,
) {
    if !has_chunks(bytes, path, damage) {
        return;
    }
    let mut offset = FILE_HEADER_SIZE;
    while offset < bytes.len() {
        let rest = &bytes[offset..];
        if let Some((chunk, size)) = take(rest) {
            chunks.push(HeadChunk {
                file,
                offset: chunk.offset + offset as u32,
                ..chunk
            });
            offset += size;
            continue;
        }
        if rest.iter().all(|&byte| byte == 0) {
            return;
        }
        match (1..rest.len())
            .find(|&skip| looks_like_chunk(&rest[skip..]) && take(&rest[skip..]).is_some())
        {
            Some(skip) => {
                damage.push(
                    path,
                    offset as u64,
                    DamageKind::Corrupt,
                    format!("{skip} bytes are not a chunk"),
                );
                offset += skip;
            }
            None => {
                let kind = if is_last {
                    DamageKind::TornTail
                } else {
                    DamageKind::Corrupt
                };
                damage.push(
                    path,
                    offset as u64,
                    kind,
                    format!("the last {} bytes are not a chunk", rest.len()),
                );
                return;
            }
        }
    }
}

/// Checks the header of a file. Returns `true` if chunks may follow it, even after damage.
fn has_chunks(bytes: &[u8], path: &Path, damage: &mut DamageReport) -> bool {
    let mut header = Cursor::new(bytes);
    match (header.be_u32(), header.u8()) {
        // A file without content has just been created.
        _ if bytes.iter().all(|&byte| byte == 0) => return false,
        (Some(MAGIC), Some(VERSION)) => {}
        (Some(MAGIC), Some(version)) => {
            damage.push(
                path,
                4,
                DamageKind::Unsupported,
                format!("unknown format version {version}"),
            );
            return false;
        }
        _ => damage.push(
            path,
            0,
            DamageKind::Corrupt,
            "not the header of a head chunk file",
        ),
    }
    true
}

/// Returns `true` if a chunk may begin here. Does not verify its checksum, which would cost too
/// much for every byte.
fn looks_like_chunk(bytes: &[u8]) -> bool {
    let mut src = Cursor::new(bytes);
    let times = (src.be_u64(), src.be_u64(), src.be_u64());
    let (Some(_), Some(min_ms), Some(max_ms)) = times else {
        return false;
    };
    matches!(
        max_ms.cast_signed().checked_sub(min_ms.cast_signed()),
        Some(0..CHUNK_SPAN_MAX_MS)
    )
}

/// Reads a chunk if it is valid. Returns it with its size in the file.
fn take(bytes: &[u8]) -> Option<(HeadChunk, usize)> {
    let mut src = Cursor::new(bytes);
    let series = src.be_u64().filter(|&series| series > 0)?;
    let min_ms = src.be_u64()?.cast_signed();
    let max_ms = src.be_u64()?.cast_signed();
    let code = src.u8()?;
    let encoding = Encoding::from_code(code & !OUT_OF_ORDER)?;
    if min_ms > max_ms {
        return None;
    }
    let size = src.n_items()?;
    let offset = bytes.len() - src.len();
    let data = src.bytes(size)?;
    let checksum = src.be_u32()?;
    if crc32c::crc32c(&bytes[..offset + size]) != checksum {
        return None;
    }
    let chunk = HeadChunk {
        series,
        min_ms,
        max_ms,
        n_samples: n_samples(encoding, data).ok()?,
        encoding,
        is_out_of_order: code & OUT_OF_ORDER != 0,
        file: 0,
        offset: u32::try_from(offset).ok()?,
        size: u32::try_from(size).ok()?,
    };
    Some((chunk, offset + size + CRC_SIZE))
}
