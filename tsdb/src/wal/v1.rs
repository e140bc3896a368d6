//! Version 1 of the log, as far as reading it goes: its frames and its samples record. The rest is as in version 2.
//!
//! ```text
//! frame                                        samples record
//! 0   4  marker   E9 56 52 46                  n, then three columns of n:
//! 4   4  size     of the payload, u32          refs        each less the one before, zigzag
//! 8   8  sequence number in the file, u64      timestamps  0 and the one that all have, zigzag;
//! 16  1  record   what the payload is                      or 1 and each less the one before, zigzag
//! 17  3  zero                                  values      an even number: an integer, zigzag, times 2;
//! 20  4  crc      CRC-32C of salt, bytes 4..20,            or 1 and the double's 8 bytes
//!                 payload
//! 24  -  payload
//! ```

use super::frame::{read_u32, read_u64};
use super::record::SampleColumn;
use super::samples::RECORD_SAMPLES_MAX;
use crate::head::SeriesRef;
use crate::sample::Sample;
use crate::varint::{take_bytes, take_i64, take_u64, unzigzag};

/// The first byte of a frame.
pub(super) const MARKER_FIRST: u8 = 0xe9;
const MARKER: [u8; 4] = [MARKER_FIRST, b'V', b'R', b'F'];
/// Bytes of a frame before its payload.
pub(super) const FRAME_HEADER_SIZE: usize = 24;
/// The largest payload.
const PAYLOAD_SIZE_MAX: usize = 16 << 20;

/// Returns how large the frame is whose header this is; `None` if it is none.
pub(super) fn frame_size(header: &[u8; FRAME_HEADER_SIZE]) -> Option<usize> {
    let size = read_u32(header, 4) as usize;
    let sound = header[..4] == MARKER && header[17..20] == [0; 3] && size <= PAYLOAD_SIZE_MAX;
    sound.then_some(FRAME_HEADER_SIZE + size)
}

/// Returns the number and the record of a whole frame if its checksum is right.
pub(super) fn check_frame(frame: &[u8], salt: u64) -> Option<(u64, u8)> {
    let crc = crc32c::crc32c(&salt.to_le_bytes());
    let crc = crc32c::crc32c_append(crc, &frame[4..20]);
    let crc = crc32c::crc32c_append(crc, &frame[FRAME_HEADER_SIZE..]);
    (read_u32(frame, 20) == crc).then(|| (read_u64(frame, 8), frame[16]))
}

/// Appends a frame with a payload that a frame had.
pub(super) fn put_frame(dst: &mut Vec<u8>, salt: u64, sequence: u64, record: u8, payload: &[u8]) {
    let mut header = [0; FRAME_HEADER_SIZE];
    header[..4].copy_from_slice(&MARKER);
    // A payload that was read has at most PAYLOAD_SIZE_MAX bytes.
    header[4..8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    header[8..16].copy_from_slice(&sequence.to_le_bytes());
    header[16] = record;
    let crc = crc32c::crc32c(&salt.to_le_bytes());
    let crc = crc32c::crc32c_append(crc, &header[4..20]);
    header[20..].copy_from_slice(&crc32c::crc32c_append(crc, payload).to_le_bytes());
    dst.extend_from_slice(&header);
    dst.extend_from_slice(payload);
}

/// Decodes samples into `out`, which is emptied first; `None` if the record is damaged.
pub(super) fn decode_samples(mut src: &[u8], out: &mut SampleColumn) -> Option<()> {
    let src = &mut src;
    out.clear();
    let n_samples = usize::try_from(take_u64(src)?).ok().filter(|&n| n <= RECORD_SAMPLES_MAX)?;
    let mut series = 0_i64;
    for _ in 0..n_samples {
        series = series.wrapping_add(take_i64(src)?);
        out.refs.push(SeriesRef(series as u64));
    }
    decode_timestamps(src, n_samples, &mut out.samples)?;
    for sample in &mut out.samples {
        sample.value = decode_value(src)?;
    }
    src.is_empty().then_some(())
}

fn decode_timestamps(src: &mut &[u8], n_samples: usize, out: &mut Vec<Sample>) -> Option<()> {
    match take_u64(src)? {
        0 => {
            let timestamp_ms = take_i64(src)?;
            out.resize(n_samples, Sample { timestamp_ms, value: 0.0 });
        }
        1 => {
            let mut timestamp_ms = 0_i64;
            for _ in 0..n_samples {
                timestamp_ms = timestamp_ms.wrapping_add(take_i64(src)?);
                out.push(Sample { timestamp_ms, value: 0.0 });
            }
        }
        _ => return None,
    }
    Some(())
}

fn decode_value(src: &mut &[u8]) -> Option<f64> {
    match take_u64(src)? {
        even if even % 2 == 0 => Some(unzigzag(even >> 1) as f64),
        1 => Some(f64::from_bits(u64::from_le_bytes(take_bytes(src, 8)?.try_into().ok()?))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::varint::{put_i64, put_u64, zigzag};
    use proptest::prelude::*;

    /// As version 1 wrote them.
    fn encoded(refs: &[u64], samples: &[Sample]) -> Vec<u8> {
        let mut dst = Vec::new();
        put_u64(&mut dst, refs.len() as u64);
        let mut before = 0;
        for &series in refs {
            put_i64(&mut dst, series.wrapping_sub(before).cast_signed());
            before = series;
        }
        put_u64(&mut dst, 1);
        let mut before = 0;
        for sample in samples {
            put_i64(&mut dst, sample.timestamp_ms.wrapping_sub(before));
            before = sample.timestamp_ms;
        }
        for Sample { value, .. } in samples {
            let integer = *value as i32;
            if f64::from(integer).to_bits() == value.to_bits() {
                put_u64(&mut dst, zigzag(integer.into()) << 1);
            } else {
                put_u64(&mut dst, 1);
                dst.extend_from_slice(&value.to_bits().to_le_bytes());
            }
        }
        dst
    }

    proptest! {
        #[test]
        fn samples_come_back_and_other_bytes_are_refused_or_as_many_as_they_say(
            all in proptest::collection::vec((any::<u64>(), any::<i64>(), any::<u64>(), any::<i32>()), 0..50),
            cut: usize, bytes in proptest::collection::vec(prop_oneof![0..4_u8, any::<u8>()], 0..60),
        ) {
            let value = |bits: u64, integer| {
                if bits.is_multiple_of(2) { f64::from_bits(bits) } else { f64::from(integer) }
            };
            let sample = |of: &(u64, i64, u64, i32)| Sample { timestamp_ms: of.1, value: value(of.2, of.3) };
            let samples: Vec<_> = all.iter().map(sample).collect();
            let refs: Vec<_> = all.iter().map(|of| of.0).collect();
            let (record, mut out) = (encoded(&refs, &samples), SampleColumn::default());
            prop_assert_eq!(decode_samples(&record, &mut out), Some(()));
            let bits = |of: &Sample| (of.timestamp_ms, of.value.to_bits());
            prop_assert!(out.samples.iter().map(bits).eq(samples.iter().map(bits)));
            prop_assert_eq!(out.refs.iter().map(|of| of.0).collect::<Vec<_>>(), refs);
            prop_assert_eq!(decode_samples(&record[..cut % record.len()], &mut out), None);
            if decode_samples(&bytes, &mut out).is_some() {
                prop_assert_eq!(out.refs.len(), out.samples.len());
            }
        }
    }
}
