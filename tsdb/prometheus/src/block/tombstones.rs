//! Tombstones of a Prometheus block: time ranges deleted since it was written.
//!
//! ```text
//! u32         magic 0x0130ba30
//! u8          version 1, not part of the checksum
//! tombstones  varint series ref (as in postings), zigzag first and last timestamp
//! u32         CRC-32C of the tombstones
//! ```

use std::io::ErrorKind;
use std::path::Path;

use hashbrown::HashMap;
use varve_env::Fs;
use varve_model::TimeRange;
use varve_tsdb::{Error, Result};

use crate::cursor::Cursor;

const MAGIC: u32 = 0x0130_ba30;
const VERSION: u8 = 1;
const CRC_SIZE: usize = 4;
/// Maximum size of a file that is read.
const SIZE_MAX: u64 = 1 << 30;
/// Contents of a file without tombstones.
pub(super) const EMPTY_FILE: [u8; 9] = [0x01, 0x30, 0xba, 0x30, VERSION, 0, 0, 0, 0];

/// Time ranges by series ref.
pub(super) type Tombstones = HashMap<u64, Vec<TimeRange>>;

/// Reads the tombstones of a block. A missing file means none.
///
/// # Errors
/// [`Error::Io`]; [`Error::Version`]; [`Error::Corrupt`] if the file is damaged. Then nobody knows
/// which samples are deleted: with some or none of the tombstones, deleted samples would reappear,
/// with wrong ones others would be missing.
pub(super) fn read(fs: &dyn Fs, dir: &Path) -> Result<Tombstones> {
    let path = dir.join("tombstones");
    match fs.read(&path, SIZE_MAX) {
        Ok(bytes) => parse(&bytes, &path),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Tombstones::new()),
        Err(error) => Err(Error::io("read", &path)(error)),
    }
}

fn parse(bytes: &[u8], path: &Path) -> Result<Tombstones> {
    let mut header = Cursor::new(bytes);
    match (header.be_u32(), header.u8()) {
        (Some(MAGIC), Some(VERSION)) => {}
        (Some(MAGIC), Some(found)) => {
            return Err(Error::Version {
                path: path.to_owned(),
                found: u32::from(found),
                supported: u32::from(VERSION),
            });
        }
        _ => return Err(corrupt(path, 0, "not the header of a tombstone file")),
    }
    let Some((tombstones, checksum)) = header.rest.split_last_chunk::<CRC_SIZE>() else {
        return Err(corrupt(path, bytes.len(), "truncated tombstone file"));
    };
    if crc32c::crc32c(tombstones).to_be_bytes() != *checksum {
        let offset = bytes.len() - CRC_SIZE;
        return Err(corrupt(path, offset, "checksum mismatch of the tombstones"));
    }

    let mut src = Cursor::new(tombstones);
    let mut found = Tombstones::new();
    while !src.is_empty() {
        let offset = bytes.len() - CRC_SIZE - src.len();
        let Some((series, range)) = take(&mut src) else {
            return Err(corrupt(path, offset, "truncated tombstone"));
        };
        found.entry(series).or_default().push(range);
    }
    Ok(found)
}

fn corrupt(path: &Path, offset: usize, reason: &str) -> Error {
    Error::Corrupt {
        path: path.to_owned(),
        offset: offset as u64,
        reason: format!("{reason}: move the file away to read all samples, also deleted ones"),
    }
}

fn take(src: &mut Cursor<'_>) -> Option<(u64, TimeRange)> {
    let series = src.uvarint()?;
    let range = TimeRange {
        start_ms: src.varint()?,
        end_ms: src.varint()?,
    };
    Some((series, range))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of series with tombstones, or the error.
    fn parsed(bytes: &[u8]) -> std::result::Result<usize, String> {
        let parsed = parse(bytes, Path::new("t"));
        parsed
            .map(|found| found.len())
            .map_err(|error| error.to_string())
    }

    /// Some of the tombstones were applied, or wrong ones.
    #[test]
    fn damaged_tombstones_are_not_applied() {
        let mut one = EMPTY_FILE[..5].to_vec();
        one.extend_from_slice(&[7, 2, 4]);
        one.extend_from_slice(&crc32c::crc32c(&[7, 2, 4]).to_be_bytes());
        assert_eq!((parsed(&EMPTY_FILE), parsed(&one)), (Ok(0), Ok(1)));
        for len in 0..one.len() {
            assert!(parsed(&one[..len]).is_err(), "{len}");
        }
        for at in 0..one.len() {
            let mut damaged = one.clone();
            damaged[at] ^= 1;
            assert!(parsed(&damaged).is_err(), "{at}");
        }
        one[6] ^= 1;
        let error = parsed(&one).unwrap_err();
        assert!(
            error.contains("checksum mismatch of the tombstones"),
            "{error}"
        );
        let newer = [0x01, 0x30, 0xba, 0x30, 9, 0, 0, 0, 0];
        assert!(parsed(&newer).unwrap_err().contains("version"));
    }
}
