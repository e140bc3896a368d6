//! The file of the leaders. Format: docs/format/ha.md, version 1.

use varve_env::StateFile;

use super::cluster_name::{ClusterName, NAME_SIZE_MAX};
use super::election::{Cluster, Election};
use crate::limits::CLUSTERS_MAX;
use crate::persisted_state::{Cursor, put_string};

/// The file. The maximum payload has [`CLUSTERS_MAX`] clusters with names of maximum length.
pub(super) const FILE: StateFile = StateFile {
    magic: *b"VHAP",
    version: 1,
    payload_size_max: 2 + CLUSTERS_MAX * (2 * (2 + NAME_SIZE_MAX) + 16),
};

/// Returns the payload of the file.
pub(super) fn encode(election: &Election) -> Vec<u8> {
    let n_clusters = u16::try_from(election.iter().len()).expect("CLUSTERS_MAX is within 16 bits");
    let mut bytes = n_clusters.to_le_bytes().to_vec();
    for (name, cluster) in election.iter() {
        put_string(&mut bytes, name);
        put_string(&mut bytes, &cluster.leader);
        bytes.extend_from_slice(&cluster.since_ms.to_le_bytes());
        bytes.extend_from_slice(&cluster.n_changes.to_le_bytes());
    }
    bytes
}

/// Decodes a payload. Returns `None` if it is invalid.
pub(super) fn decode(payload: &[u8]) -> Option<Election> {
    let mut cursor = Cursor::new(payload);
    let mut election = Election::default();
    for _ in 0..cursor.len(CLUSTERS_MAX)? {
        let name = cursor.string(NAME_SIZE_MAX)?;
        let leader = cursor.string(NAME_SIZE_MAX)?;
        if election
            .iter()
            .next_back()
            .is_some_and(|(before, _)| before >= name)
        {
            return None;
        }
        let since_ms = i64::from_le_bytes(cursor.bytes()?);
        let n_changes = u64::from_le_bytes(cursor.bytes()?);
        election.restore(
            ClusterName::persisted(name),
            Cluster::restored(leader.into(), since_ms, n_changes),
        );
    }
    cursor.is_at_end().then_some(election)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;
    use varve_env::Fs;
    use varve_env::testing::{MemFs, assert_shown};

    use super::*;

    fn election() -> Election {
        let mut election = Election::default();
        election.restore(
            ClusterName::persisted("a"),
            Cluster::restored("r1".into(), -1, 0),
        );
        election.restore(
            ClusterName::persisted(&"é".repeat(128)),
            Cluster::restored("r2".into(), 1_700_000_000_000, u64::MAX),
        );
        election
    }

    fn contents(election: &Election) -> Vec<(String, String, i64, u64)> {
        let mut contents = Vec::new();
        for (name, cluster) in election.iter() {
            let leader = cluster.leader.to_string();
            contents.push((name.to_owned(), leader, cluster.since_ms, cluster.n_changes));
        }
        contents
    }

    #[test]
    fn the_format_page_shows_the_written_bytes() {
        let mut election = Election::default();
        election.restore(
            ClusterName::persisted("eu"),
            Cluster::restored("r1".into(), 1_763_683_200_000, 4),
        );
        let payload = encode(&election);
        let fs = MemFs::new();
        FILE.replace(&fs, Path::new("/ha"), &payload).unwrap();
        let bytes = fs.read(Path::new("/ha"), 1 << 10).unwrap();
        assert_shown(include_str!("../../../docs/format/ha.md"), &bytes);
        assert_eq!(contents(&decode(&payload).unwrap()), contents(&election));
    }

    #[test]
    fn elections_round_trip() {
        for election in [Election::default(), election()] {
            assert_eq!(
                contents(&decode(&encode(&election)).unwrap()),
                contents(&election)
            );
        }
    }

    proptest! {
        #[test]
        fn any_elections_round_trip_and_damaged_bytes_never_panic(
            clusters in proptest::collection::btree_map("\\PC{0,20}", ("\\PC{0,20}", any::<i64>(), any::<u64>()), 0..6),
            at: usize, byte: u8,
        ) {
            let mut election = Election::default();
            for (name, (leader, since_ms, n_changes)) in clusters {
                election.restore(ClusterName::persisted(&name), Cluster::restored(leader.into(), since_ms, n_changes));
            }
            let mut payload = encode(&election);
            prop_assert_eq!(contents(&decode(&payload).unwrap()), contents(&election));
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
        let descending = [
            &[2, 0, 1, 0, b'b', 0, 0][..],
            &[0; 16],
            &[1, 0, b'a', 0, 0],
            &[0; 16],
        ]
        .concat();
        assert!(
            decode(&[&[1, 0][..], &descending[2..23]].concat()).is_some(),
            "the first of these alone"
        );
        for payload in [
            &too_many[..],
            &[1, 0, 1, 1],
            &[0, 0, 0],
            &name_that_is_no_text,
            &descending,
        ] {
            assert!(decode(payload).is_none(), "{payload:?}");
        }
    }
}
