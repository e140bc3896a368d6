//! Decodes chunks into columns of samples.

use std::sync::Arc;

use varve_tsdb::SampleColumns;
use varve_tsdb::histogram::ResetHint;

use super::bstream::BitReader;
use super::histogram::{CountCodec, HistogramState};
use super::histogram_header::{CounterResetHeader, HEADER_SIZE};
use super::histogram_layout::HistogramLayout;
use super::start_timestamps::StartTimestampCodec;
use super::value_codec::{DeltaOfDelta, XorCodec};
use super::xor::XorState;
use super::xor2::Xor2State;
use super::{ChunkError, Encoding, VALUES_MAX, n_samples};

/// Appends the samples of a chunk to `dst`, whose last sample must be older.
///
/// Bytes after the last sample are ignored, as Prometheus does.
///
/// # Errors
/// [`ChunkError`]; the samples before the damage have been appended.
pub fn decode(encoding: Encoding, bytes: &[u8], dst: &mut SampleColumns) -> Result<(), ChunkError> {
    match encoding {
        Encoding::Xor => decode_floats(bytes, dst),
        Encoding::Xor2 => decode_floats_with_starts(bytes, dst),
        Encoding::Histogram | Encoding::HistogramSt => decode_histograms::<DeltaOfDelta>(encoding, bytes, dst),
        Encoding::FloatHistogram | Encoding::FloatHistogramSt => decode_histograms::<XorCodec>(encoding, bytes, dst),
    }
}

/// Returns the timestamps of the first and the last sample of a chunk of encoding 1 after decoding all of it, or `None`
/// if it is empty.
///
/// # Errors
/// The errors of [`decode`].
pub(crate) fn float_time_range(bytes: &[u8]) -> Result<Option<(i64, i64)>, ChunkError> {
    let n_samples = n_samples(Encoding::Xor, bytes)?;
    let mut src = BitReader::new(&bytes[2..]);
    let (mut state, mut times) = (XorState::default(), None);
    for idx in 0..n_samples {
        let timestamp_ms = state.take(&mut src, idx)?.timestamp_ms;
        times = match times {
            None => Some((timestamp_ms, timestamp_ms)),
            Some((first_ms, last_ms)) if last_ms < timestamp_ms => Some((first_ms, timestamp_ms)),
            Some(_) => return Err(ChunkError::OutOfOrder),
        };
    }
    Ok(times)
}

fn decode_floats(bytes: &[u8], dst: &mut SampleColumns) -> Result<(), ChunkError> {
    let n_samples = n_samples(Encoding::Xor, bytes)?;
    let mut src = BitReader::new(&bytes[2..]);
    let mut state = XorState::default();
    for idx in 0..n_samples {
        let sample = state.take(&mut src, idx)?;
        check_order(dst, sample.timestamp_ms)?;
        dst.push(sample);
    }
    Ok(())
}

fn decode_floats_with_starts(bytes: &[u8], dst: &mut SampleColumns) -> Result<(), ChunkError> {
    let n_samples = n_samples(Encoding::Xor2, bytes)?;
    let (&[_, _, header], rest) = bytes.split_first_chunk::<HEADER_SIZE>().ok_or(ChunkError::Truncated)?;
    let mut src = BitReader::new(rest);
    let (mut state, mut starts) = (Xor2State::default(), StartTimestampCodec::with_header(header));
    let mut before_ms = 0;
    for idx in 0..n_samples {
        let sample = state.take(&mut src)?;
        check_order(dst, sample.timestamp_ms)?;
        let start_ms = starts.take(&mut src, idx, if idx == 0 { sample.timestamp_ms } else { before_ms })?;
        before_ms = sample.timestamp_ms;
        dst.push_with_start(sample, start_ms);
    }
    Ok(())
}

fn decode_histograms<C: CountCodec>(
    encoding: Encoding,
    bytes: &[u8],
    dst: &mut SampleColumns,
) -> Result<(), ChunkError> {
    let n_samples = n_samples(encoding, bytes)?;
    let (&[first, _, third], rest) = bytes.split_first_chunk::<HEADER_SIZE>().ok_or(ChunkError::Truncated)?;
    let has_starts = encoding.has_starts();
    let is_gauge =
        (if has_starts { first } else { third }) & CounterResetHeader::MASK == CounterResetHeader::Gauge as u8;
    if n_samples == 0 {
        return Ok(());
    }
    let mut src = BitReader::new(rest);
    let layout = HistogramLayout::take(&mut src)?;
    let (mut state, mut starts) = (HistogramState::<C>::default(), StartTimestampCodec::with_header(third));
    let (mut before_ms, mut values_left) = (0, VALUES_MAX);
    for idx in 0..n_samples {
        values_left = values_left.checked_sub(layout.n_values()).ok_or(ChunkError::TooLarge)?;
        let (timestamp_ms, mut histogram) = state.take(&mut src, &layout)?;
        check_order(dst, timestamp_ms)?;
        if has_starts {
            let start_ms = starts.take(&mut src, idx, if idx == 0 { timestamp_ms } else { before_ms })?;
            dst.push_start(start_ms);
        }
        before_ms = timestamp_ms;
        // The header tells about a reset since a chunk before this one, which may not exist any more.
        histogram.reset_hint = match (is_gauge, idx) {
            _ if histogram.is_stale() => ResetHint::Unknown,
            (true, _) => ResetHint::Gauge,
            (false, 0) => ResetHint::Unknown,
            (false, _) => ResetHint::NoReset,
        };
        dst.push_histogram(timestamp_ms, Arc::new(histogram));
    }
    Ok(())
}

fn check_order(dst: &SampleColumns, timestamp_ms: i64) -> Result<(), ChunkError> {
    match dst.timestamps_ms.last() {
        Some(&last_ms) if last_ms >= timestamp_ms => Err(ChunkError::OutOfOrder),
        _ => Ok(()),
    }
}
