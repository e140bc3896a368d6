//! The file of who leads, docs/format/ha.md, version 1.

use std::io::{self, ErrorKind};
use std::path::Path;

use varve_tsdb::Fs;

use super::election::{CLUSTERS_MAX, Cluster, Election, NAME_SIZE_MAX};

const MAGIC: &[u8; 4] = b"VHAP";
const VERSION: u8 = 1;
const VERSION_OFFSET: usize = 4;
const RESERVED_OFFSET: usize = 5;
const CHECKSUM_OFFSET: usize = 8;
const PAYLOAD_OFFSET: usize = 12;
/// The largest file: all clusters with names of full length.
const FILE_SIZE_MAX: usize = PAYLOAD_OFFSET + 2 + CLUSTERS_MAX * (2 * (2 + NAME_SIZE_MAX) + 16);

/// Why nothing is known.
#[derive(Debug)]
pub(super) enum ReadError {
    /// Of this version.
    Newer(u8),
    Unreadable(String),
}

/// Reads the file; none is no election yet.
pub(super) fn read(fs: &dyn Fs, path: &Path) -> Result<Election, ReadError> {
    match fs.read(path, FILE_SIZE_MAX as u64) {
        Ok(bytes) => decode(&bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Election::default()),
        Err(error) => Err(ReadError::Unreadable(error.to_string())),
    }
}

/// Replaces the file, so that at any time the old or the new one is there.
pub(super) fn write(fs: &dyn Fs, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    // Of a write that a crash or a full disk has ended.
    match fs.remove(&temporary) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = fs.create(&temporary)?;
    file.append(bytes)?;
    file.sync()?;
    fs.rename(&temporary, path)?;
    fs.sync_dir(path.parent().expect("the file lies in the data directory"))
}

/// Returns the bytes of the file.
pub(super) fn encode(election: &Election) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&[VERSION, 0, 0, 0, 0, 0, 0, 0]);
    put_len(&mut bytes, election.iter().len());
    for (name, cluster) in election.iter() {
        for text in [name, &cluster.leader] {
            put_len(&mut bytes, text.len());
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes.extend_from_slice(&cluster.since_ms.to_le_bytes());
        bytes.extend_from_slice(&cluster.n_changes.to_le_bytes());
    }
    let checksum = crc32c::crc32c(&bytes[PAYLOAD_OFFSET..]);
    bytes[CHECKSUM_OFFSET..PAYLOAD_OFFSET].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn put_len(bytes: &mut Vec<u8>, len: usize) {
    let len = u16::try_from(len).expect("clusters and their names are bounded");
    bytes.extend_from_slice(&len.to_le_bytes());
}

fn decode(bytes: &[u8]) -> Result<Election, ReadError> {
    let damaged = |reason: &str| ReadError::Unreadable(reason.to_owned());
    if bytes.get(..VERSION_OFFSET) != Some(MAGIC) {
        return Err(damaged("it does not begin as a file of HA pairs"));
    }
    match bytes.get(VERSION_OFFSET) {
        Some(&VERSION) => {}
        Some(&version) if version > VERSION => return Err(ReadError::Newer(version)),
        _ => return Err(damaged("its version is unknown")),
    }
    let reserved = bytes.get(RESERVED_OFFSET..CHECKSUM_OFFSET);
    let checksum = bytes.get(CHECKSUM_OFFSET..PAYLOAD_OFFSET);
    let (Some([0, 0, 0]), Some(checksum)) = (reserved, checksum) else { return Err(damaged("its head is damaged")) };
    let payload = &bytes[PAYLOAD_OFFSET..];
    if crc32c::crc32c(payload).to_le_bytes() != checksum {
        return Err(damaged("its checksum is wrong"));
    }
    let mut cursor = Cursor(payload);
    let election = cursor.election().ok_or_else(|| damaged("it holds what no election can"))?;
    if cursor.0.is_empty() { Ok(election) } else { Err(damaged("there is more than elections")) }
}

/// The bytes that are still to be read; every read is `None` past their end or beyond a bound.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn election(&mut self) -> Option<Election> {
        let mut election = Election::default();
        for _ in 0..self.len(CLUSTERS_MAX)? {
            let (name, leader) = (self.name()?, self.name()?);
            let (since_ms, n_changes) = (i64::from_le_bytes(self.take()?), u64::from_le_bytes(self.take()?));
            election.restore(name, Cluster::restored(leader, since_ms, n_changes));
        }
        Some(election)
    }

    fn name(&mut self) -> Option<Box<str>> {
        let size = self.len(NAME_SIZE_MAX)?;
        let (text, rest) = self.0.split_at_checked(size)?;
        self.0 = rest;
        Some(std::str::from_utf8(text).ok()?.into())
    }

    fn len(&mut self, len_max: usize) -> Option<usize> {
        let len = usize::from(u16::from_le_bytes(self.take()?));
        (len <= len_max).then_some(len)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn election() -> Election {
        let mut election = Election::default();
        election.restore("a".into(), Cluster::restored("r1".into(), -1, 0));
        election.restore("é".repeat(128).into(), Cluster::restored("r2".into(), 1_700_000_000_000, u64::MAX));
        election
    }

    fn told(election: &Election) -> Vec<(String, String, i64, u64)> {
        let told = |(name, of): (&str, &Cluster)| (name.to_owned(), of.leader.to_string(), of.since_ms, of.n_changes);
        election.iter().map(told).collect()
    }

    #[test]
    fn elections_come_back() {
        for election in [Election::default(), election()] {
            assert_eq!(told(&decode(&encode(&election)).unwrap()), told(&election));
        }
    }

    #[test]
    fn any_cut_and_any_flipped_byte_is_refused() {
        let bytes = encode(&election());
        for at in 0..bytes.len() {
            assert!(decode(&bytes[..at]).is_err(), "{at}");
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x80;
            assert!(decode(&flipped).is_err(), "{at}");
        }
    }

    #[test]
    fn what_is_beyond_a_bound_is_refused_under_a_right_checksum() {
        let check = |payload: &[u8]| {
            let mut bytes = encode(&Election::default());
            bytes.truncate(PAYLOAD_OFFSET);
            bytes.extend_from_slice(payload);
            let checksum = crc32c::crc32c(payload).to_le_bytes();
            bytes[CHECKSUM_OFFSET..PAYLOAD_OFFSET].copy_from_slice(&checksum);
            assert!(decode(&bytes).is_err(), "{payload:?}");
        };
        check(&(CLUSTERS_MAX as u16 + 1).to_le_bytes());
        check(&[1, 0, 1, 1]);
        check(&[0, 0, 0]);
        check(&[&[1, 0, 1, 0, 0xff, 1, 0, b'r'][..], &[0; 16]].concat());
    }
}
