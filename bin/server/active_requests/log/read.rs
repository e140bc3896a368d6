//! Reading a request ring, whatever is in the file.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, anyhow};

use super::slot::{HEADER_SIZE, Header, Record, SIZE, State};

/// Most slots that are read of a file.
const N_SLOTS_MAX: u32 = 1 << 16;

/// What a ring holds.
#[derive(Debug)]
pub(crate) struct RingFile {
    pub(crate) pid: u32,
    pub(crate) started_ms: i64,
    pub(crate) ended_in_order: bool,
    /// By number.
    pub(crate) records: Vec<Record>,
    /// Slots that cannot be read.
    pub(crate) n_damaged: usize,
}

impl RingFile {
    /// Returns the requests that had not ended, the heaviest first.
    pub(crate) fn at_work(&self) -> Vec<&Record> {
        let mut at_work: Vec<_> =
            self.records.iter().filter(|record| matches!(record.state, State::Waiting | State::Working)).collect();
        at_work.sort_by_key(|record| std::cmp::Reverse((record.held_bytes, record.peak_bytes)));
        at_work
    }
}

/// Reads a ring. Slots that are damaged, or missing because the file was cut, are counted and passed over.
///
/// # Errors
/// If the file cannot be read, or is no ring of this version.
pub(crate) fn read(path: &Path) -> Result<RingFile> {
    let file = File::open(path).with_context(|| format!("open {path:?}"))?;
    let size_max = HEADER_SIZE as u64 + u64::from(N_SLOTS_MAX) * SIZE as u64;
    let mut bytes = Vec::new();
    file.take(size_max).read_to_end(&mut bytes).with_context(|| format!("read {path:?}"))?;
    decode(&bytes).map_err(|reason| anyhow!("{path:?}: {reason}"))
}

/// Reads the bytes of a ring.
pub(super) fn decode(bytes: &[u8]) -> Result<RingFile, String> {
    let Header { n_slots, pid, started_ms, ended_in_order } = Header::decode(bytes)?;
    let slots = bytes[HEADER_SIZE..].as_chunks::<SIZE>().0;
    let slots = &slots[..slots.len().min(n_slots as usize)];
    let mut n_damaged = n_slots.min(N_SLOTS_MAX) as usize - slots.len().min(N_SLOTS_MAX as usize);
    let mut records = Vec::new();
    for slot in slots {
        match Record::decode(slot) {
            Ok(record) => records.extend(record),
            Err(_damaged) => n_damaged += 1,
        }
    }
    records.sort_by_key(|record| record.id);
    Ok(RingFile { pid, started_ms, ended_in_order, records, n_damaged })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Vec<u8> {
        let header = Header { n_slots: 3, pid: 1, started_ms: 0, ended_in_order: false };
        let record = |id| Record { state: State::Working, id, text: "up".into(), ..Record::default() };
        [&header.encode()[..], &record(2).encode(), &record(1).encode(), &[0; SIZE]].concat()
    }

    #[test]
    fn damage_costs_the_slots_that_it_concerns() {
        let ids = |found: &RingFile| found.records.iter().map(|record| record.id).collect::<Vec<_>>();
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
    fn a_file_that_was_cut_is_read_as_far_as_it_goes() {
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
