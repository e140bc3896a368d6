//! The active-request log. Its decoder belongs to the binary, as that of the usage record does.

#[path = "../../../bin/server/active_requests/log/read.rs"]
#[expect(dead_code, reason = "the file on the disk is opened by the binary")]
mod read;
#[path = "../../../bin/server/active_requests/log/slot.rs"]
mod slot;

/// Reads a active-request log; if the first byte is odd, under checksums that are right.
pub fn request_ring(input: &[u8]) {
    let Some((first, ring)) = input.split_first() else { return };
    let mut ring = ring.to_vec();
    if first % 2 == 1 {
        let header_size = slot::HEADER_SIZE.min(ring.len());
        let (header, slots) = ring.split_at_mut(header_size);
        seal(header, 0..60, 60);
        slots.chunks_mut(slot::SIZE).for_each(|of| seal(of, 4..slot::SIZE, 0));
    }
    let Ok(found) = read::decode(&ring) else { return };
    assert!(found.records.len() <= ring.len() / slot::SIZE, "requests from nowhere");
    assert!(found.n_damaged <= 1 << 16);
    assert!(found.active().len() <= found.records.len());
}

fn seal(bytes: &mut [u8], what: std::ops::Range<usize>, at: usize) {
    if let Some(sealed) = bytes.get(what.clone()).filter(|_| at + 4 <= bytes.len()) {
        let crc = crc32c::crc32c(sealed).to_le_bytes();
        bytes[at..at + 4].copy_from_slice(&crc);
    }
}

/// Logs of some requests.
#[cfg(test)]
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let header = slot::Header { n_slots: 3, pid: 1, started_ms: 0, is_clean_shutdown: false }.encode();
    let record = |id| slot::Record { id, text: "sum(up)".into(), client: "::1".into(), ..slot::Record::default() };
    let ring = [&header[..], &record(2).encode(), &record(1).encode(), &[0; slot::SIZE]].concat();
    [0, 1].map(|first| [&[first], &ring[..]].concat()).to_vec()
}
