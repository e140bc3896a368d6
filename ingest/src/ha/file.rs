//! The file of who leads, docs/format/ha.md, version 1.

use varve_tsdb::fs::StateFile;

use crate::limits::CLUSTERS_MAX;

use super::election::{Cluster, Election, NAME_SIZE_MAX};

/// The file; the largest has all clusters with names of full length.
pub(super) const FILE: StateFile =
    StateFile { magic: *b"VHAP", version: 1, payload_size_max: 2 + CLUSTERS_MAX * (2 * (2 + NAME_SIZE_MAX) + 16) };

/// Returns the payload of the file.
pub(super) fn encode(election: &Election) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_len(&mut bytes, election.iter().len());
    for (name, cluster) in election.iter() {
        for text in [name, &cluster.leader] {
            put_len(&mut bytes, text.len());
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes.extend_from_slice(&cluster.since_ms.to_le_bytes());
        bytes.extend_from_slice(&cluster.n_changes.to_le_bytes());
    }
    bytes
}

fn put_len(bytes: &mut Vec<u8>, len: usize) {
    let len = u16::try_from(len).expect("clusters and their names are bounded");
    bytes.extend_from_slice(&len.to_le_bytes());
}

/// Returns the elections of a payload; `None` if no elections have such a payload.
pub(super) fn decode(payload: &[u8]) -> Option<Election> {
    let mut cursor = Cursor(payload);
    let election = cursor.election()?;
    cursor.0.is_empty().then_some(election)
}

/// The bytes that are still to be read; every read is `None` past their end or beyond a bound.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn election(&mut self) -> Option<Election> {
        let mut election = Election::default();
        for _ in 0..self.len(CLUSTERS_MAX)? {
            let (name, leader) = (self.name()?, self.name()?);
            if election.iter().next_back().is_some_and(|(before, _)| before >= &*name) {
                return None;
            }
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
    use std::path::Path;

    use proptest::prelude::*;
    use varve_tsdb::fs::{Fs, MemFs};

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
    fn the_example_of_the_page_is_what_is_written() {
        let mut election = Election::default();
        election.restore("eu".into(), Cluster::restored("r1".into(), 1_763_683_200_000, 4));
        let payload = encode(&election);
        let fs = MemFs::new();
        FILE.replace(&fs, Path::new("/ha"), &payload).unwrap();
        let bytes = fs.read(Path::new("/ha"), 1 << 10).unwrap();
        let shown: String = bytes.chunks(16).map(|row| format!("{row:02x?}\n").replace(['[', ',', ']'], "")).collect();
        assert!(include_str!("../../../docs/format/ha.md").contains(&shown), "the page does not show\n{shown}");
    }

    #[test]
    fn elections_come_back() {
        for election in [Election::default(), election()] {
            assert_eq!(told(&decode(&encode(&election)).unwrap()), told(&election));
        }
    }

    proptest! {
        #[test]
        fn any_elections_come_back_and_any_bytes_are_refused_or_do(
            clusters in proptest::collection::btree_map("\\PC{0,20}", ("\\PC{0,20}", any::<i64>(), any::<u64>()), 0..6),
            at: usize, byte: u8,
        ) {
            let mut election = Election::default();
            for (name, (leader, since_ms, n_changes)) in clusters {
                election.restore(name.into(), Cluster::restored(leader.into(), since_ms, n_changes));
            }
            let mut payload = encode(&election);
            prop_assert_eq!(told(&decode(&payload).unwrap()), told(&election));
            let at = at % payload.len();
            payload[at] = byte;
            if let Some(read) = decode(&payload) {
                prop_assert_eq!(encode(&read), payload);
            }
        }
    }

    #[test]
    fn a_payload_that_is_cut_or_beyond_a_bound_is_refused() {
        let payload = encode(&election());
        for size in 0..payload.len() {
            assert!(decode(&payload[..size]).is_none(), "{size}");
        }
        let name_that_is_no_text = [&[1, 0, 1, 0, 0xff, 1, 0, b'r'][..], &[0; 16]].concat();
        let too_many = (CLUSTERS_MAX as u16 + 1).to_le_bytes();
        let descending = [&[2, 0, 1, 0, b'b', 0, 0][..], &[0; 16], &[1, 0, b'a', 0, 0], &[0; 16]].concat();
        assert!(decode(&[&[1, 0][..], &descending[2..23]].concat()).is_some(), "the first of these alone");
        for payload in [&too_many[..], &[1, 0, 1, 1], &[0, 0, 0], &name_that_is_no_text, &descending] {
            assert!(decode(payload).is_none(), "{payload:?}");
        }
    }
}
