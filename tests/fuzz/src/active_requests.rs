//! The active-request log. Its decoder belongs to `varve-wire`, which has dependencies that are
//! not needed here: the files are compiled into this crate.

#[path = "../../../bin/wire/src/active_requests/read.rs"]
#[expect(dead_code, reason = "only the server opens the file")]
mod read;
#[path = "../../../bin/wire/src/active_requests/slot.rs"]
#[expect(dead_code, reason = "only the server and the tools name states")]
mod slot;

/// Decodes an active-request log, under valid checksums if the first byte is odd.
pub fn active_requests(input: &[u8]) {
    let Some((first, log)) = input.split_first() else {
        return;
    };
    let mut log = log.to_vec();
    if first % 2 == 1 {
        let header_size = slot::HEADER_SIZE.min(log.len());
        let (header, slots) = log.split_at_mut(header_size);
        seal(header, 0..60, 60);
        slots
            .chunks_mut(slot::SIZE)
            .for_each(|of| seal(of, 4..slot::SIZE, 0));
    }
    let Ok(found) = read::decode(&log) else {
        return;
    };
    assert!(
        found.records.len() <= log.len() / slot::SIZE,
        "more requests than slots"
    );
    assert!(found.n_damaged <= 1 << 16);
    assert!(found.active().len() <= found.records.len());
}

fn seal(bytes: &mut [u8], what: std::ops::Range<usize>, at: usize) {
    if let Some(sealed) = bytes.get(what.clone()).filter(|_| at + 4 <= bytes.len()) {
        let crc = crc32c::crc32c(sealed).to_le_bytes();
        bytes[at..at + 4].copy_from_slice(&crc);
    }
}

/// Returns logs with two requests.
#[cfg(test)]
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let header = slot::Header {
        n_slots: 3,
        pid: 1,
        started_ms: 0,
        is_clean_shutdown: false,
    }
    .encode();
    let record = |id| slot::Record {
        id,
        text: "sum(up)".into(),
        client: "::1".into(),
        ..slot::Record::default()
    };
    let log = [
        &header[..],
        &record(2).encode(),
        &record(1).encode(),
        &[0; slot::SIZE],
    ]
    .concat();
    [0, 1].map(|first| [&[first], &log[..]].concat()).to_vec()
}
