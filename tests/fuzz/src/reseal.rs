//! Valid checksums for damaged files. With invalid checksums, random damage never reaches the
//! decoders behind them.

use std::path::Path;

/// Recomputes the checksums of a damaged file wherever its structure is still recognizable; see
/// docs/format.
pub(crate) fn reseal(path: &Path, bytes: &mut [u8]) {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy())
        .unwrap_or_default();
    if name.ends_with(".block") {
        block(bytes);
    } else if name == "tombstones" {
        tombstones(bytes);
    } else {
        log(bytes);
    }
}

/// Writes the checksum of the bytes from `from` to `at` at `at`.
fn seal(bytes: &mut [u8], from: usize, at: usize) {
    if at + 4 <= bytes.len() && from <= at {
        let crc = crc32c::crc32c(&bytes[from..at]);
        bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize)
}

fn block(bytes: &mut [u8]) {
    seal(bytes, 0, 12);
    let Some(end) = bytes.len().checked_sub(24) else {
        return;
    };
    let mut at = 16;
    while let Some(size) = u32_at(bytes, at + 4).filter(|&size| size >= 12 && at + size <= end) {
        let crc = crc32c::crc32c(&bytes[at + 4..at + size]);
        bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
        at += size;
    }
    seal(bytes, end, end + 16);
}

fn tombstones(bytes: &mut [u8]) {
    seal(bytes, 0, 20);
    let mut at = 24;
    while let Some(size) =
        u32_at(bytes, at + 4).filter(|&size| size <= bytes.len().saturating_sub(at + 8))
    {
        let crc = crc32c::crc32c(&bytes[at + 4..at + 8 + size]);
        bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
        at += 8 + size;
    }
}

fn log(bytes: &mut [u8]) {
    seal(bytes, 0, 20);
    let Some(salt) = bytes.get(8..16).map(<[u8]>::to_vec) else {
        return;
    };
    let (mut at, mut sequence) = (24, 0_u64);
    while let Some(header) = bytes.get(at..at + 12) {
        let size =
            usize::from(header[3]) | usize::from(header[4]) << 8 | usize::from(header[5]) << 16;
        let end = (at + 12 + size).min(bytes.len());
        let frame = &mut bytes[at..end];
        let stored = u32::try_from(frame.len() - 12).unwrap_or(0).to_le_bytes();
        frame[0] = 0xf5;
        frame[3..6].copy_from_slice(&stored[..3]);
        frame[6..8].copy_from_slice(&sequence.to_le_bytes()[..2]);
        frame[1] = crc32c::crc32c_append(crc32c::crc32c(&salt), &frame[2..8]).to_le_bytes()[0];
        let crc = crc32c::crc32c_append(crc32c::crc32c(&salt), &sequence.to_le_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c_append(crc, &frame[2..8]), &frame[12..]);
        frame[8..12].copy_from_slice(&crc.to_le_bytes());
        (at, sequence) = (end, sequence + 1);
    }
}

/// Gives the index of a block of Prometheus, or a file of its chunks, checksums that are right.
pub(crate) fn reseal_prometheus(path: &Path, bytes: &mut [u8]) {
    if !path.ends_with("index") {
        return entries(bytes, 8, usize::MAX, 1);
    }
    let Some(toc) = bytes.len().checked_sub(52) else {
        return;
    };
    let place = |i: usize| {
        bytes[toc + 8 * i..][..8]
            .try_into()
            .map_or(u64::MAX, u64::from_be_bytes)
    };
    // Symbols, series, two tables of older versions, the first list of postings, the table of
    // postings.
    let places: [u64; 6] = std::array::from_fn(place);
    let place = |i: usize| usize::try_from(places[i]).unwrap_or(usize::MAX).min(toc);
    let (symbols, series, postings, table) = (place(0), place(1), place(4), place(5));
    section(bytes, symbols, toc);
    entries(bytes, series, postings.min(toc), 16);
    let mut at = postings;
    while let Some(next) = section(bytes, at, toc) {
        at = next.next_multiple_of(4);
    }
    section(bytes, table, toc);
    seal_be(bytes, toc, bytes.len() - 4);
}

/// Seals a size of four bytes and so many bytes; returns where they end.
fn section(bytes: &mut [u8], at: usize, end: usize) -> Option<usize> {
    let size = u32::from_be_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?) as usize;
    let crc = at
        .checked_add(4)?
        .checked_add(size)
        .filter(|crc| crc.checked_add(4).is_some_and(|of| of <= end))?;
    seal_be(bytes, at + 4, crc);
    Some(crc + 4)
}

/// Seals entries that begin with their size as a varint, each at a multiple of `step`. Of chunks
/// the size is that of what follows the byte of the encoding, which is sealed too.
fn entries(bytes: &mut [u8], mut at: usize, end: usize, step: usize) {
    let n_uncounted = usize::from(step == 1);
    while at < end.min(bytes.len()) {
        let (mut size, mut shift) = (0, 0);
        while let Some(&byte) = bytes.get(at).filter(|_| shift < 28) {
            (size, shift, at) = (size | usize::from(byte & 0x7f) << shift, shift + 7, at + 1);
            if byte < 0x80 {
                break;
            }
        }
        let crc = at + size + n_uncounted;
        if crc + 4 > end.min(bytes.len()) {
            return;
        }
        seal_be(bytes, at, crc);
        at = (crc + 4).next_multiple_of(step);
    }
}

fn seal_be(bytes: &mut [u8], from: usize, at: usize) {
    if from <= at && at + 4 <= bytes.len() {
        let crc = crc32c::crc32c(&bytes[from..at]);
        bytes[at..at + 4].copy_from_slice(&crc.to_be_bytes());
    }
}
