//! Reads an active-request log, with any contents.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use varve_env::{Fs, RealFs};

use super::slot::{HEADER_SIZE, Header, Record, RequestState, SIZE};

/// Maximum number of slots that are read.
const N_SLOTS_MAX: u32 = 1 << 16;

/// The contents of a log.
#[derive(Debug)]
pub struct RecordedRequests {
    /// The process that wrote the log.
    pub pid: u32,
    /// Start of this process.
    pub started_ms: i64,
    /// Whether this process has shut down.
    pub is_clean_shutdown: bool,
    /// By id.
    pub records: Vec<Record>,
    /// Slots that cannot be read.
    pub n_damaged: usize,
}

impl RecordedRequests {
    /// Returns the requests that had not ended, the heaviest first.
    pub fn active(&self) -> Vec<&Record> {
        let mut active: Vec<_> = self
            .records
            .iter()
            .filter(|record| matches!(record.state, RequestState::Waiting | RequestState::Working))
            .collect();
        active.sort_by_key(|record| std::cmp::Reverse((record.held_bytes, record.peak_bytes)));
        active
    }
}

/// Reads a log. Slots that are damaged, or missing because the file was truncated, are counted and
/// skipped.
///
/// # Errors
/// If the file cannot be read, or is not a log of this version.
pub fn read(path: &Path) -> Result<RecordedRequests> {
    let size_max = HEADER_SIZE as u64 + u64::from(N_SLOTS_MAX) * SIZE as u64;
    // Rejects a pipe, which would block.
    let bytes = RealFs
        .read(path, size_max)
        .with_context(|| format!("read {path:?}"))?;
    decode(&bytes).map_err(|reason| anyhow!("{path:?}: {reason}"))
}

/// Decodes a log.
pub(super) fn decode(bytes: &[u8]) -> Result<RecordedRequests, String> {
    let Header {
        version,
        n_slots,
        pid,
        started_ms,
        is_clean_shutdown,
    } = Header::decode(bytes)?;
    let slots = bytes[HEADER_SIZE..].as_chunks::<SIZE>().0;
    let slots = &slots[..slots.len().min(n_slots as usize)];
    let mut n_damaged = n_slots.min(N_SLOTS_MAX) as usize - slots.len().min(N_SLOTS_MAX as usize);
    let mut records = Vec::new();
    for slot in slots {
        match Record::decode(slot, version) {
            Ok(record) => records.extend(record),
            Err(_damaged) => n_damaged += 1,
        }
    }
    records.sort_by_key(|record| record.id);
    Ok(RecordedRequests {
        pid,
        started_ms,
        is_clean_shutdown,
        records,
        n_damaged,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::active_requests::Version;

    fn file() -> Vec<u8> {
        let header = Header {
            version: Version::V2,
            n_slots: 3,
            pid: 1,
            started_ms: 0,
            is_clean_shutdown: false,
        };
        let record = |id| Record {
            state: RequestState::Working,
            id,
            text: "up".into(),
            ..Record::default()
        };
        [
            &header.encode()[..],
            &record(2).encode(),
            &record(1).encode(),
            &[0; SIZE],
        ]
        .concat()
    }

    #[test]
    fn damage_loses_only_the_damaged_slots() {
        let ids = |found: &RecordedRequests| {
            found
                .records
                .iter()
                .map(|record| record.id)
                .collect::<Vec<_>>()
        };
        let whole = decode(&file()).unwrap();
        assert_eq!((ids(&whole), whole.n_damaged), (vec![1, 2], 0));
        for at in HEADER_SIZE..HEADER_SIZE + SIZE {
            let mut bytes = file();
            bytes[at] ^= 0x40;
            let found = decode(&bytes).unwrap();
            assert_eq!((ids(&found), found.n_damaged), (vec![1], 1), "byte {at}");
        }
    }

    #[test]
    fn a_truncated_file_is_read_up_to_its_end() {
        let bytes = file();
        for size in 0..bytes.len() {
            match decode(&bytes[..size]) {
                Ok(found) => assert_eq!(found.records.len() + found.n_damaged, 3, "{size}"),
                Err(_) => assert!(size < HEADER_SIZE, "{size}"),
            }
        }
        for at in 0..HEADER_SIZE {
            let mut damaged = file();
            damaged[at] ^= 1;
            decode(&damaged).unwrap_err();
        }
    }
}
