//! Decodes float samples: record types 2 and 11.

use varve_codec::varint::{VARINT_SIZE_MAX, short_u64, unzigzag};

use super::items::{RecordError, RefSample, decode_rest};
use super::refs::RefDecoder;
use crate::cursor::Cursor;

/// Decodes a record of type 2 or 11 and calls `each` with each sample.
#[inline]
pub(crate) fn for_each_sample(
    record: &[u8],
    mut each: impl FnMut(RefSample),
) -> Result<(), RecordError> {
    let mut series = RefDecoder::of(record);
    let mut src = Cursor::new(record.get(1..).unwrap_or_default());
    // Fast path: many samples of type 2.
    if src.len() > FIRST_SIZE + SAMPLE_SIZE_MAX
        && let RefDecoder::FromFirst(first) = &mut series
    {
        *first = src.be_u64().zip(src.be_u64().map(u64::cast_signed));
        if let Some((first_series, first_ms)) = *first {
            for_each_short(&mut src, first_series, first_ms, &mut each);
        }
    }
    decode_rest(record, src, |src| {
        let (series, timestamp_ms, start_ms) = series.take(src)?;
        each(RefSample {
            series,
            timestamp_ms,
            start_ms,
            value: src.f64()?,
        });
        Some(())
    })
}

/// Size of the base ref and timestamp of a record, and maximum size of a sample of type 2.
const FIRST_SIZE: usize = 16;
const SAMPLE_SIZE_MAX: usize = 2 * VARINT_SIZE_MAX + 8;

/// Decodes samples of type 2 whose varints have at most eight bytes, while at least the maximum
/// size of a sample is left.
#[inline]
fn for_each_short(
    src: &mut Cursor<'_>,
    first_series: u64,
    first_ms: i64,
    each: &mut impl FnMut(RefSample),
) {
    while let Some(bytes) = src.rest.first_chunk::<SAMPLE_SIZE_MAX>() {
        let Some((series_step, series_size)) = short_u64(u64::from_le_bytes(word(bytes, 0))) else {
            return;
        };
        let time = u64::from_le_bytes(word(bytes, series_size));
        let Some((time_step, time_size)) = short_u64(time) else {
            return;
        };
        let value_offset = series_size + time_size;
        each(RefSample {
            series: first_series.wrapping_add_signed(unzigzag(series_step)),
            timestamp_ms: first_ms.wrapping_add(unzigzag(time_step)),
            start_ms: 0,
            value: f64::from_be_bytes(word(bytes, value_offset)),
        });
        src.rest = &src.rest[value_offset + 8..];
    }
}

/// Returns the eight bytes at an offset.
#[inline]
fn word(bytes: &[u8; SAMPLE_SIZE_MAX], offset: usize) -> [u8; 8] {
    bytes[offset..offset + 8]
        .try_into()
        .expect("a slice of eight bytes")
}
