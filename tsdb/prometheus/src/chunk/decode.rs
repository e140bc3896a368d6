//! Decodes chunks into columns of samples.

use std::sync::Arc;

use varve_model::histogram::ResetHint;
use varve_model::{Sample, SampleColumns};

use super::bstream::BitReader;
use super::encoding::{Encoding, n_samples};
use super::error::{ChunkError, VALUES_MAX};
use super::histogram::{CountCodec, CounterResetHeader, HEADER_SIZE, HistogramState};
use super::histogram_layout::HistogramLayout;
use super::value_codec::{DeltaOfDelta, XorCodec};
use super::xor::XorState;
use super::xor2::Xor2State;

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
        Encoding::Histogram | Encoding::HistogramSt => {
            decode_histograms::<DeltaOfDelta>(encoding, bytes, dst)
        }
        Encoding::FloatHistogram | Encoding::FloatHistogramSt => {
            decode_histograms::<XorCodec>(encoding, bytes, dst)
        }
    }
}

/// Returns the timestamps of the first and the last sample of a chunk of encoding 1 after decoding
/// all of it, or `None` if it is empty.
///
/// # Errors
/// The errors of [`decode`].
pub(crate) fn float_time_range(bytes: &[u8]) -> Result<Option<(i64, i64)>, ChunkError> {
    let mut times: Option<(i64, i64)> = None;
    for_each_float(bytes, |Sample { timestamp_ms, .. }| {
        check_order(times.map(|(_, last_ms)| last_ms), timestamp_ms)?;
        times = Some((
            times.map_or(timestamp_ms, |(first_ms, _)| first_ms),
            timestamp_ms,
        ));
        Ok(())
    })?;
    Ok(times)
}

#[inline]
fn for_each_float(
    bytes: &[u8],
    mut each: impl FnMut(Sample) -> Result<(), ChunkError>,
) -> Result<(), ChunkError> {
    let n_samples = n_samples(Encoding::Xor, bytes)?;
    let mut src = BitReader::new(&bytes[2..]);
    let mut state = XorState::default();
    (0..n_samples).try_for_each(|idx| each(state.take(&mut src, idx)?))
}

fn decode_floats(bytes: &[u8], dst: &mut SampleColumns) -> Result<(), ChunkError> {
    // A chunk before may have start timestamps.
    dst.push_start(0);
    for_each_float(bytes, |sample| {
        check_order(dst.timestamps_ms.last().copied(), sample.timestamp_ms)?;
        dst.push(sample);
        Ok(())
    })
}

fn decode_floats_with_starts(bytes: &[u8], dst: &mut SampleColumns) -> Result<(), ChunkError> {
    let n_samples = n_samples(Encoding::Xor2, bytes)?;
    let (&[_, _, header], rest) = bytes
        .split_first_chunk::<HEADER_SIZE>()
        .ok_or(ChunkError::Truncated)?;
    let mut src = BitReader::new(rest);
    let mut state = Xor2State::with_header(header);
    for _ in 0..n_samples {
        let (sample, start_ms) = state.take(&mut src)?;
        check_order(dst.timestamps_ms.last().copied(), sample.timestamp_ms)?;
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
    let (&[first, _, third], rest) = bytes
        .split_first_chunk::<HEADER_SIZE>()
        .ok_or(ChunkError::Truncated)?;
    if n_samples == 0 {
        return Ok(());
    }
    let reset = if encoding.has_starts() { first } else { third } & CounterResetHeader::MASK;
    let is_gauge = reset == CounterResetHeader::Gauge as u8;
    let mut src = BitReader::new(rest);
    let layout = HistogramLayout::take(&mut src)?;
    let mut state = HistogramState::<C>::of(encoding, third);
    let mut values_left = VALUES_MAX;
    for idx in 0..n_samples {
        values_left = values_left
            .checked_sub(layout.n_values())
            .ok_or(ChunkError::TooLarge)?;
        let (timestamp_ms, start_ms, mut histogram) = state.take(&mut src, &layout)?;
        check_order(dst.timestamps_ms.last().copied(), timestamp_ms)?;
        // The header tells about a reset since a chunk before this one, which may not exist any
        // more.
        histogram.reset_hint = match (is_gauge, idx) {
            _ if histogram.is_stale() => ResetHint::Unknown,
            (true, _) => ResetHint::Gauge,
            (false, 0) => ResetHint::Unknown,
            (false, _) => ResetHint::NoReset,
        };
        dst.push_start(start_ms);
        dst.push_histogram(timestamp_ms, Arc::new(histogram));
    }
    Ok(())
}

fn check_order(last_ms: Option<i64>, timestamp_ms: i64) -> Result<(), ChunkError> {
    if last_ms.is_some_and(|last_ms| last_ms >= timestamp_ms) {
        Err(ChunkError::OutOfOrder)
    } else {
        Ok(())
    }
}
