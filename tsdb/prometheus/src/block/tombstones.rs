//! Tombstones of a Prometheus block: time ranges deleted since it was written.
//!
//! ```text
//! u32         magic 0x0130ba30
//! u8          version 1, not part of the checksum
//! tombstones  varint series ref (as in postings), zigzag first and last timestamp
//! u32         CRC-32C of the tombstones
//! ```

use std::path::Path;

use hashbrown::HashMap;
use varve_env::Fs;
use varve_env::damage::{DamageKind, DamageReport};
use varve_model::TimeRange;

use crate::cursor::Cursor;

const MAGIC: u32 = 0x0130_ba30;
const VERSION: u8 = 1;
const HEADER_SIZE: usize = 5;
/// Maximum size of a file that is read.
const SIZE_MAX: u64 = 1 << 30;
/// Contents of a file without tombstones.
pub(super) const EMPTY_FILE: [u8; 9] = [0x01, 0x30, 0xba, 0x30, VERSION, 0, 0, 0, 0];

/// Time ranges by series ref.
pub(super) type Tombstones = HashMap<u64, Vec<TimeRange>>;

/// Reads the tombstones of a block. A missing file means none. Reports damage, and returns the
/// tombstones before it.
pub(super) fn read(fs: &dyn Fs, dir: &Path, damage: &mut DamageReport) -> Tombstones {
    let path = dir.join("tombstones");
    match fs.read(&path, SIZE_MAX) {
        Ok(bytes) => parse(&bytes, &path, damage),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Tombstones::new(),
        Err(error) => {
            damage.push(
                &path,
                0,
                DamageKind::Corrupt,
                format!("cannot read file: {error}"),
            );
            Tombstones::new()
        }
    }
}

fn parse(bytes: &[u8], path: &Path, damage: &mut DamageReport) -> Tombstones {
    let mut tombstones = Tombstones::new();
    let mut src = Cursor::new(bytes);
    match (
        src.be_u32(),
        src.u8(),
        bytes.len().checked_sub(HEADER_SIZE + 4),
    ) {
        (Some(MAGIC), Some(VERSION), Some(size)) => {
            src = Cursor::new(&bytes[HEADER_SIZE..HEADER_SIZE + size])
        }
        (Some(MAGIC), Some(version), Some(_)) => {
            damage.push(
                path,
                4,
                DamageKind::Unsupported,
                format!("unknown format version {version}"),
            );
            return tombstones;
        }
        _ => {
            damage.push(
                path,
                0,
                DamageKind::Corrupt,
                "not the header of a tombstone file",
            );
            return tombstones;
        }
    }
    let checksum = &bytes[bytes.len() - 4..];
    if crc32c::crc32c(src.rest).to_be_bytes() != checksum {
        damage.push(
            path,
            (bytes.len() - 4) as u64,
            DamageKind::Corrupt,
            "checksum mismatch of the tombstones",
        );
    }
    while !src.is_empty() {
        let offset = bytes.len() - 4 - src.len();
        let Some((series, range)) = take(&mut src) else {
            damage.push(
                path,
                offset as u64,
                DamageKind::Corrupt,
                "truncated tombstone",
            );
            break;
        };
        tombstones.entry(series).or_default().push(range);
    }
    tombstones
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

    fn check(bytes: &[u8], n: usize, n_damaged: u64) {
        let mut damage = DamageReport::default();
        assert_eq!(
            parse(bytes, Path::new("t"), &mut damage).len(),
            n,
            "{bytes:?}"
        );
        assert_eq!(damage.n_damaged(), n_damaged, "{damage:?}");
    }

    #[test]
    fn tombstones_before_damage_are_read() {
        check(&EMPTY_FILE, 0, 0);
        let mut one = EMPTY_FILE[..5].to_vec();
        one.extend_from_slice(&[7, 2, 4]);
        one.extend_from_slice(&crc32c::crc32c(&[7, 2, 4]).to_be_bytes());
        check(&one, 1, 0);
        one[6] ^= 1;
        check(&one, 1, 1);
        check(&one[..10], 0, 2);
        check(b"", 0, 1);
        check(&[0x01, 0x30, 0xba, 0x30, 9, 0, 0, 0, 0], 0, 1);
    }
}
