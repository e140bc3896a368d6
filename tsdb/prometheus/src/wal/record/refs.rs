//! Decodes the refs and timestamps of samples, histograms and exemplars, which are stored as
//! differences.

use super::record_type::RecordType;
use crate::cursor::Cursor;

/// Decoder of the refs and timestamps of a record.
pub(super) enum RefDecoder {
    /// Relative to a base.
    FromFirst(Option<(u64, i64)>),
    /// Relative to the item before (ref, start timestamp) and to the first item (timestamp).
    FromLast(Option<LastItem>),
}

pub(super) struct LastItem {
    first_ms: i64,
    first_start_ms: i64,
    series: u64,
    start_ms: i64,
}

/// Flags: no start timestamp, or the same as the item before.
const NO_START: u8 = 0;
const SAME_START: u8 = 1;

impl RefDecoder {
    pub(super) fn of(record: &[u8]) -> Self {
        match RecordType::of(record) {
            Some(
                RecordType::SamplesV2 | RecordType::HistogramsV2 | RecordType::FloatHistogramsV2,
            ) => Self::FromLast(None),
            _ => Self::FromFirst(None),
        }
    }

    #[inline]
    pub(super) fn take(&mut self, src: &mut Cursor<'_>) -> Option<(u64, i64, i64)> {
        match self {
            Self::FromFirst(first) => {
                let (series, time) = match *first {
                    Some(first) => first,
                    None => *first.insert((src.be_u64()?, src.be_u64()?.cast_signed())),
                };
                let series_step = src.varint()?;
                let time_step = src.varint()?;
                Some((
                    series.wrapping_add_signed(series_step),
                    time.wrapping_add(time_step),
                    0,
                ))
            }
            Self::FromLast(Some(last)) => {
                last.series = last.series.wrapping_add_signed(src.varint()?);
                let timestamp_ms = last.first_ms.wrapping_add(src.varint()?);
                last.start_ms = match src.u8()? {
                    NO_START => 0,
                    SAME_START => last.start_ms,
                    _ => last.first_start_ms.wrapping_add(src.varint()?),
                };
                Some((last.series, timestamp_ms, last.start_ms))
            }
            Self::FromLast(none) => {
                let series = src.varint()?.cast_unsigned();
                let first_ms = src.varint()?;
                let start_ms = src.varint()?;
                *none = Some(LastItem {
                    first_ms,
                    first_start_ms: start_ms,
                    series,
                    start_ms,
                });
                Some((series, first_ms, start_ms))
            }
        }
    }
}
