//! Tombstones: which samples were deleted from blocks that still contain them.
//!
//! Used by deletes, which add a tombstone, by reads and merges, which apply the tombstones of a
//! block, and by `Db::open`. Format: docs/format/tombstones.md, version 1.
//!
//! Invariants
//! 1. A tombstone is durable when [`Tombstones::add`] has returned. The file is replaced as a
//!    whole: the new file is written under another name, synced and renamed, and the directory is
//!    synced.
//! 2. Ids ascend and are never reused, even after all tombstones were dropped: each block records
//!    the last tombstone that was applied to it.
//! 3. A file that is damaged or has a newer format is rejected: deleted samples must not reappear
//!    unnoticed.
//! 4. A tombstone is kept while it affects a block, or a file that the next start may add to the
//!    blocks. The newest tombstones are kept until there is a block of a later flush.
//!
//! A tombstone applies to blocks of flushes up to [`Tombstone::flush`]. So the samples in the heads
//! must be flushed before a delete, and the WAL truncated: the tombstone would not apply to a later
//! flush of the same samples.
//!
//! Threads: one owner. Crash: leaves the old or the new file, and possibly a temporary file, which
//! the next change replaces.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use varve_codec::varint::{
    put_i64, put_sized, put_u64, take_bytes, take_i64, take_int, take_sized, take_u64,
};
use varve_env::damage::{DamageKind, DamageReport};
use varve_env::{Fs, is_out_of_files, remove_if_exists, replace_file};
use varve_model::{MatchOp, Matcher, TimeRange};

use crate::block::footer::with_crc;
use crate::block::meta::{BlockMeta, NUMBER_MAX};
use crate::error::{Error, Result};

/// Maximum number of pending tombstones.
pub(crate) const TOMBSTONES_MAX: usize = 4096;
/// Maximum size of an encoded tombstone in bytes.
pub(crate) const TOMBSTONE_SIZE_MAX: usize = 64 << 10;
/// Maximum size of the file in bytes.
pub(crate) const FILE_SIZE_MAX: usize = 16 << 20;

/// The newest version of the format.
const VERSION: u8 = 1;
const MAGIC: [u8; 4] = *b"VTMB";

const VERSION_OFFSET: usize = 4;
const ZERO_OFFSET: usize = 5;
const LAST_NUMBER_OFFSET: usize = 8;
const N_TOMBSTONES_OFFSET: usize = 16;
const CRC_OFFSET: usize = 20;
const HEADER_SIZE: usize = 24;
/// Size of the checksum and the size of a tombstone.
const TOMBSTONE_HEADER_SIZE: usize = 8;

/// A tombstone.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tombstone {
    /// The id, which ascends from 1 over the life of the store.
    pub(crate) number: u64,
    /// The tombstone affects series that all matchers select.
    pub(crate) matchers: Vec<Matcher>,
    /// The tombstone affects samples in this range.
    pub(crate) range: TimeRange,
    /// The tombstone affects blocks whose last flush is at most this flush.
    pub(crate) flush: u64,
}

impl Tombstone {
    /// Returns `true` if a block may contain samples that the tombstone deletes.
    pub(crate) fn applies_to(&self, block: &BlockMeta) -> bool {
        block.origin.flushes.1 <= self.flush
            && block.origin.deletions < self.number
            && block.range.overlaps(self.range)
    }

    /// Returns `true` if the tombstone deletes all samples that an older tombstone deletes.
    fn covers(&self, older: &Self) -> bool {
        self.matchers == older.matchers
            && self.range.covers(older.range)
            && self.flush >= older.flush
    }
}

/// The tombstones of a store.
#[derive(Debug)]
pub(crate) struct Tombstones {
    fs: Arc<dyn Fs>,
    path: PathBuf,
    last_number: u64,
    /// In ascending order of ids.
    list: Vec<Tombstone>,
}

impl Tombstones {
    /// Reads the tombstones of the data directory `dir`. `applied` is the highest id of a tombstone
    /// that was applied to a block. The id of the next tombstone is above it even if the file is
    /// missing.
    ///
    /// # Errors
    /// - [`Error::Io`].
    /// - [`Error::Corrupt`] if the file is damaged.
    /// - [`Error::Version`] if the file has a newer format.
    pub(crate) fn open(fs: Arc<dyn Fs>, dir: &Path, applied: u64) -> Result<Self> {
        let path = dir.join("tombstones");
        let (last_number, tombstones) = match fs.read(&path, FILE_SIZE_MAX as u64) {
            Ok(bytes) => decode(&bytes).map_err(|bad| bad.error(&path))?,
            Err(missing) if missing.kind() == ErrorKind::NotFound => (0, Vec::new()),
            Err(large) if large.kind() == ErrorKind::FileTooLarge => {
                return Err(
                    Bad::at(FILE_SIZE_MAX, "the file is larger than the maximum size").error(&path),
                );
            }
            Err(error) => return Err(Error::io("read", &path)(error)),
        };
        Ok(Self {
            fs,
            path,
            last_number: last_number.max(applied),
            list: tombstones,
        })
    }

    /// Adds a tombstone for blocks of flushes up to `flush`, durably, and returns its id. Drops
    /// older tombstones that it covers.
    ///
    /// # Errors
    /// - [`Error::Limit`] above [`TOMBSTONES_MAX`], [`TOMBSTONE_SIZE_MAX`] or [`FILE_SIZE_MAX`].
    /// - [`Error::Io`]. The tombstone is not added, but may exist after a restart.
    pub(crate) fn add(
        &mut self,
        matchers: Vec<Matcher>,
        range: TimeRange,
        flush: u64,
    ) -> Result<u64> {
        let number = self.last_number + 1;
        let tombstone = Tombstone {
            number,
            matchers,
            range,
            flush,
        };
        let mut tombstones: Vec<_> = self
            .list
            .iter()
            .filter(|older| !tombstone.covers(older))
            .cloned()
            .collect();
        tombstones.push(tombstone);
        // The id is not reused even after an error: the file may contain it.
        self.last_number = number;
        self.replace(tombstones)?;
        Ok(number)
    }

    /// Returns all tombstones, in ascending order of ids.
    pub(crate) fn as_slice(&self) -> &[Tombstone] {
        &self.list
    }

    /// Returns the id of the newest tombstone, which may have been dropped.
    pub(crate) fn last_number(&self) -> u64 {
        self.last_number
    }

    /// Returns the tombstones that may affect a block.
    pub(crate) fn affecting<'a>(
        &'a self,
        block: &'a BlockMeta,
    ) -> impl Iterator<Item = &'a Tombstone> {
        self.list
            .iter()
            .filter(|tombstone| tombstone.applies_to(block))
    }

    /// Writes the tombstones to another data directory, which must not have tombstones.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn copy_to(&self, dir: &Path) -> Result<()> {
        Self::open(Arc::clone(&self.fs), dir, self.last_number)?.replace(self.list.clone())
    }

    /// Drops the tombstones that are not needed. Returns the number of dropped tombstones.
    ///
    /// # Errors
    /// [`Error::Io`]. All tombstones stay then.
    pub(crate) fn prune(&mut self, is_needed: impl Fn(&Tombstone) -> bool) -> Result<usize> {
        let needed: Vec<_> = self
            .list
            .iter()
            .filter(|tombstone| is_needed(tombstone))
            .cloned()
            .collect();
        let n_dropped = self.list.len() - needed.len();
        if n_dropped > 0 {
            self.replace(needed)?;
        }
        Ok(n_dropped)
    }

    /// Replaces the tombstones in the file, then in memory.
    fn replace(&mut self, tombstones: Vec<Tombstone>) -> Result<()> {
        let bytes = encode(self.last_number, &tombstones)?;
        let tmp = self.path.with_extension("tmp");
        remove_if_exists(&*self.fs, &tmp)?;
        let file = self.fs.create(&tmp).map_err(Error::io("create", &tmp))?;
        file.append(&bytes).map_err(Error::io("write", &tmp))?;
        file.sync().map_err(Error::io("sync", &tmp))?;
        replace_file(&*self.fs, &tmp, &self.path)?;
        self.list = tombstones;
        Ok(())
    }
}

/// Records the damage of the file of tombstones of a data directory. Takes no lock and changes
/// nothing.
///
/// # Errors
/// [`Error::Io`] if there are too many open files, and [`Error::Version`] if the file has a newer
/// format.
pub(crate) fn check_in(fs: Arc<dyn Fs>, data_dir: &Path, damage: &mut DamageReport) -> Result<()> {
    match Tombstones::open(fs, data_dir, 0) {
        Ok(_) => Ok(()),
        Err(Error::Corrupt {
            path,
            offset,
            reason,
        }) => {
            damage.push(&path, offset, DamageKind::Corrupt, reason);
            Ok(())
        }
        // For example a directory, or a bad sector.
        Err(Error::Io { path, source, .. }) if !is_out_of_files(&source) => {
            damage.push(&path, 0, DamageKind::Corrupt, source.to_string());
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn encode(last_number: u64, tombstones: &[Tombstone]) -> Result<Vec<u8>> {
    Error::check_limit("pending tombstones", tombstones.len(), TOMBSTONES_MAX)?;
    let n_tombstones = u32::try_from(tombstones.len()).expect("at most TOMBSTONES_MAX");
    let mut bytes = with_crc(&[
        &MAGIC,
        &[VERSION, 0, 0, 0],
        &last_number.to_le_bytes(),
        &n_tombstones.to_le_bytes(),
    ]);
    for tombstone in tombstones {
        let payload = encode_tombstone(tombstone);
        Error::check_limit("bytes of a tombstone", payload.len(), TOMBSTONE_SIZE_MAX)?;
        let size = u32::try_from(payload.len())
            .expect("at most TOMBSTONE_SIZE_MAX")
            .to_le_bytes();
        let crc = crc32c::crc32c_append(crc32c::crc32c(&size), &payload);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes.extend_from_slice(&size);
        bytes.extend_from_slice(&payload);
    }
    Error::check_limit("bytes of pending tombstones", bytes.len(), FILE_SIZE_MAX)?;
    Ok(bytes)
}

fn encode_tombstone(tombstone: &Tombstone) -> Vec<u8> {
    let mut dst = Vec::new();
    put_u64(&mut dst, tombstone.number);
    put_u64(&mut dst, tombstone.flush);
    put_i64(&mut dst, tombstone.range.start_ms);
    put_i64(&mut dst, tombstone.range.end_ms);
    put_u64(&mut dst, tombstone.matchers.len() as u64);
    for matcher in &tombstone.matchers {
        let op = OPS
            .iter()
            .position(|op| *op == matcher.op())
            .expect("all operators are in the table");
        put_u64(&mut dst, op as u64);
        put_sized(&mut dst, matcher.name().as_bytes());
        put_sized(&mut dst, matcher.value().as_bytes());
    }
    dst
}

/// The operators by their number in the file.
const OPS: [MatchOp; 4] = [
    MatchOp::Equal,
    MatchOp::NotEqual,
    MatchOp::Regexp,
    MatchOp::NotRegexp,
];

/// The reason why a file is rejected.
#[derive(Debug)]
enum Bad {
    Damaged { offset: usize, reason: &'static str },
    Version(u8),
}

impl Bad {
    fn at(offset: usize, reason: &'static str) -> Self {
        Self::Damaged { offset, reason }
    }

    fn error(self, path: &Path) -> Error {
        let path = path.to_owned();
        match self {
            Self::Damaged { offset, reason } => {
                let hint =
                    "restore the file, or move it away, which makes deleted samples reappear";
                let reason = format!("{reason}; {hint}");
                Error::Corrupt {
                    path,
                    offset: offset as u64,
                    reason,
                }
            }
            Self::Version(found) => Error::Version {
                path,
                found: found.into(),
                supported: VERSION.into(),
            },
        }
    }
}

/// Returns the id of the newest tombstone, and the tombstones.
fn decode(bytes: &[u8]) -> Result<(u64, Vec<Tombstone>), Bad> {
    let (last_number, n_tombstones) = decode_header(bytes)?;
    let mut tombstones: Vec<Tombstone> = Vec::new();
    let mut offset = HEADER_SIZE;
    for _ in 0..n_tombstones {
        let mut src = &bytes[offset..];
        let payload = take_payload(&mut src)
            .ok_or(Bad::at(offset, "the checksum of a tombstone is wrong"))?;
        let tombstone =
            decode_tombstone(payload).ok_or(Bad::at(offset, "a tombstone does not decode"))?;
        if tombstone.flush > NUMBER_MAX {
            return Err(Bad::at(
                offset,
                "the flush of a tombstone exceeds the maximum",
            ));
        }
        if tombstone.number > last_number
            || tombstones
                .last()
                .is_some_and(|before| before.number >= tombstone.number)
        {
            return Err(Bad::at(offset, "the ids of tombstones do not ascend"));
        }
        tombstones.push(tombstone);
        offset = bytes.len() - src.len();
    }
    if offset < bytes.len() {
        return Err(Bad::at(offset, "excess bytes after the last tombstone"));
    }
    Ok((last_number, tombstones))
}

/// Returns the id of the newest tombstone, and the number of tombstones, at most
/// [`TOMBSTONES_MAX`].
fn decode_header(bytes: &[u8]) -> Result<(u64, usize), Bad> {
    let header = bytes
        .get(..HEADER_SIZE)
        .ok_or(Bad::at(bytes.len(), "the file ends inside its header"))?;
    let u32_at = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
    if header[..VERSION_OFFSET] != MAGIC {
        return Err(Bad::at(0, "the file is not a file of tombstones"));
    }
    if u32_at(CRC_OFFSET) != crc32c::crc32c(&header[..CRC_OFFSET]) {
        return Err(Bad::at(0, "the checksum of the header is wrong"));
    }
    if header[VERSION_OFFSET] != VERSION {
        return Err(Bad::Version(header[VERSION_OFFSET]));
    }
    if header[ZERO_OFFSET..LAST_NUMBER_OFFSET] != [0; 3] {
        return Err(Bad::at(
            ZERO_OFFSET,
            "reserved bytes of the header are not zero",
        ));
    }
    let n_tombstones = u32_at(N_TOMBSTONES_OFFSET) as usize;
    if n_tombstones > TOMBSTONES_MAX {
        return Err(Bad::at(
            N_TOMBSTONES_OFFSET,
            "the number of tombstones exceeds the maximum",
        ));
    }
    let last_number = header[LAST_NUMBER_OFFSET..N_TOMBSTONES_OFFSET]
        .try_into()
        .expect("eight bytes");
    let last_number = u64::from_le_bytes(last_number);
    if last_number > NUMBER_MAX {
        return Err(Bad::at(
            LAST_NUMBER_OFFSET,
            "the id of the newest tombstone exceeds the maximum",
        ));
    }
    Ok((last_number, n_tombstones))
}

/// Takes a tombstone from the front of `src` and verifies its checksum. Returns the payload.
fn take_payload<'a>(src: &mut &'a [u8]) -> Option<&'a [u8]> {
    let header = src.get(..TOMBSTONE_HEADER_SIZE)?;
    let crc = u32::from_le_bytes(header[..4].try_into().ok()?);
    let size = u32::from_le_bytes(header[4..].try_into().ok()?) as usize;
    if size > TOMBSTONE_SIZE_MAX || crc != crc32c::crc32c(src.get(4..TOMBSTONE_HEADER_SIZE + size)?)
    {
        return None;
    }
    let tombstone = take_bytes(src, TOMBSTONE_HEADER_SIZE + size)?;
    Some(&tombstone[TOMBSTONE_HEADER_SIZE..])
}

fn decode_tombstone(mut src: &[u8]) -> Option<Tombstone> {
    let number = take_u64(&mut src)?;
    let flush = take_u64(&mut src)?;
    let range = TimeRange {
        start_ms: take_i64(&mut src)?,
        end_ms: take_i64(&mut src)?,
    };
    let mut matchers = Vec::new();
    for _ in 0..take_u64(&mut src)? {
        let op = *OPS.get(take_int::<usize>(&mut src)?)?;
        let name = str::from_utf8(take_sized(&mut src)?).ok()?;
        let value = str::from_utf8(take_sized(&mut src)?).ok()?;
        matchers.push(Matcher::new(op, name, value).ok()?);
    }
    src.is_empty().then_some(Tombstone {
        number,
        matchers,
        range,
        flush,
    })
}

#[cfg(test)]
mod tests;
