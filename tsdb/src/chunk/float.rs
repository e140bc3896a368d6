//! The encoding of float samples in chunks of the head.
//!
//! A chunk is decoded backwards from its newest sample, which is known: each sample encodes the
//! difference from the sample before it. Recent samples, which are read most often, are in the last
//! slab of a chunk. Older slabs are not read for them.
//!
//! ```text
//! sample   tag byte, [timestamp], [value], in decoding order
//! tag      bit 7: a zigzag varint follows, the delta of deltas of the timestamp
//!          bits 0..7: 0           the value repeats bit for bit
//!                     1           both values are integers: their difference as zigzag varint
//!                     2 + 8L + S  the XOR of both values: L zero bytes, then S + 1 bytes (stored), then zero bytes
//!                     65 + R      R samples, from 1 to 30, with the delta and the value of the sample before; bit 7 is 0
//!                     96 + E      both values have at most E decimals, from 1 to 9: the difference of both values times
//!                                 10^E, as zigzag varint
//! ```
//! The first sample follows a value of 0 with a delta of 0. Every double round-trips bit for bit,
//! because differences of integers and decimals are exact in both directions. Counters that grow by
//! integers take two or three bytes per sample, constants about one bit.

use varve_codec::varint::{take_byte, take_bytes, take_i64, zigzag};

use crate::error::Damaged;

/// Maximum number of samples in a run.
pub(super) const RUN_MAX: u8 = 30;

const TIMESTAMP_FOLLOWS: u8 = 0x80;
const VALUE_SAME: u8 = 0;
const VALUE_INTEGER: u8 = 1;
const VALUE_XOR: u8 = 2;
const RUN: u8 = 65;
const VALUE_DECIMAL: u8 = 96;

/// Integers up to this magnitude have differences that are exact both in 64 bits and as doubles.
const INTEGER_MAX: f64 = (1_u64 << 52) as f64;
/// Scaled decimals stay below this, so that adding [`ROUND`] results in an integer.
const DECIMAL_MAX: f64 = (1_u64 << 50) as f64;
/// Doubles near this value are integers: adding and then subtracting it rounds.
const ROUND: f64 = 1.5 * (1_u64 << 52) as f64;
const POWERS_OF_TEN: [f64; 10] = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];

/// The newest sample of a chunk, from which it is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Newest {
    pub(crate) timestamp_ms: i64,
    pub(super) bits: u64,
    pub(super) delta_ms: u32,
    /// Samples of the chunk, including this one.
    pub(crate) n_samples: u8,
}

/// The number of decimals that the encoder tries first for the next value of a chunk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Scale(pub(super) u8);

impl Scale {
    const UNKNOWN: Self = Self(0);
    /// After a value that is not a decimal, this many values are not tried as decimals.
    const PAUSE: u8 = 15;
    /// From here on, a scale counts the rest of a pause.
    const PAUSE_BEGIN: u8 = POWERS_OF_TEN.len() as u8;

    /// Finds a number of decimals that fits both values: quickly if it is the same as before.
    /// Returns it and the difference of the scaled integers.
    #[inline]
    fn difference(&mut self, last: f64, value: f64) -> Option<(u8, i64)> {
        if *self == Self::UNKNOWN {
            let found = (1..POWERS_OF_TEN.len() as u8)
                .find_map(|e| Some((e, decimal_difference(last, value, e)?)));
            *self = found.map_or(Self(Self::PAUSE_BEGIN + Self::PAUSE), |(e, _)| Self(e));
            return found;
        }
        if self.0 >= Self::PAUSE_BEGIN {
            self.0 = if self.0 == Self::PAUSE_BEGIN {
                0
            } else {
                self.0 - 1
            };
            return None;
        }
        if let Some(difference) = decimal_difference(last, value, self.0) {
            return Some((self.0, difference));
        }
        *self = Self::UNKNOWN;
        self.difference(last, value)
    }
}

/// Returns the tag of a run.
#[inline]
pub(super) fn run_tag(n_samples: u8) -> u8 {
    RUN + n_samples
}

/// An encoded sample. The lowest byte is stored first.
#[derive(Debug, Clone, Copy)]
pub(super) struct Encoded {
    bytes: u128,
    size: u32,
}

impl Encoded {
    /// Returns the bytes in memory order, and their number.
    #[inline]
    pub(super) fn bytes(self) -> ([u8; 16], usize) {
        (self.bytes.to_le_bytes(), self.size as usize)
    }

    /// Prepends `size` bytes, at most 8.
    #[inline]
    fn put(&mut self, bytes: u64, size: u32) {
        self.bytes = self.bytes << (8 * size) | u128::from(bytes);
        self.size += size;
    }

    /// Prepends a zigzag varint of at most 56 bits, last byte first.
    #[inline]
    fn put_varint(&mut self, value: i64) {
        let rest = zigzag(value);
        debug_assert!(rest >> 56 == 0, "differences are at most 2^53");
        // Branch-free, as the size differs from sample to sample.
        let halves = rest & 0x0fff_ffff | (rest & 0x00ff_ffff_f000_0000) << 4;
        let quarters = halves & 0x0000_3fff_0000_3fff | (halves & 0x0fff_c000_0fff_c000) << 2;
        let sevens = quarters & 0x007f_007f_007f_007f | (quarters & 0x3f80_3f80_3f80_3f80) << 1;
        let size = (u64::BITS - (rest | 1).leading_zeros()).div_ceil(7);
        // All bytes except the last have the continuation bit. The first byte is stored last.
        let more = 0x8080_8080_8080_8080 & ((1 << (8 * (size - 1))) - 1);
        self.put((sevens | more).swap_bytes() >> (u64::BITS - 8 * size), size);
    }
}

/// Encodes a sample. `delta_of_delta_ms` has at most 33 bits.
#[inline]
pub(super) fn encode(delta_of_delta_ms: i64, last: f64, value: f64, scale: &mut Scale) -> Encoded {
    let mut encoded = Encoded { bytes: 0, size: 0 };
    let mut tag = 0;
    if delta_of_delta_ms != 0 {
        tag = TIMESTAMP_FOLLOWS;
        encoded.put_varint(delta_of_delta_ms);
    }
    tag |= encode_value(&mut encoded, last, value, scale);
    Encoded {
        bytes: encoded.bytes | u128::from(tag) << (8 * encoded.size),
        size: encoded.size + 1,
    }
}

/// Prepends a value and returns the tag of its form.
#[inline]
fn encode_value(encoded: &mut Encoded, last: f64, value: f64, scale: &mut Scale) -> u8 {
    let xor = last.to_bits() ^ value.to_bits();
    if xor == 0 {
        return VALUE_SAME;
    }
    if let (Some(last), Some(value)) = (as_integer(last), as_integer(value)) {
        encoded.put_varint(value - last);
        return VALUE_INTEGER;
    }
    if let Some((decimals, difference)) = scale.difference(last, value) {
        encoded.put_varint(difference);
        return VALUE_DECIMAL + decimals;
    }
    let leading = xor.leading_zeros() / 8;
    let trailing = xor.trailing_zeros() / 8;
    let size = 8 - leading - trailing;
    // The lowest byte is read first, so it is stored last.
    encoded.put(
        (xor >> (8 * trailing)).swap_bytes() >> (u64::BITS - 8 * size),
        size,
    );
    VALUE_XOR + (8 * leading) as u8 + size as u8 - 1
}

/// Returns a value as an integer if it is an integer of at most 2^52 in magnitude. -0 is not an
/// integer.
#[inline]
fn as_integer(value: f64) -> Option<i64> {
    let integer = value as i64;
    (value.abs() <= INTEGER_MAX && (integer as f64).to_bits() == value.to_bits()).then_some(integer)
}

/// Returns a value times 10^`decimals` if this is an integer from which the value can be restored
/// bit for bit.
#[inline]
fn as_decimal(value: f64, decimals: u8) -> Option<i64> {
    let power = POWERS_OF_TEN[usize::from(decimals)];
    let scaled = value * power;
    if scaled.is_nan() || scaled.abs() > DECIMAL_MAX {
        return None;
    }
    let rounded = (scaled + ROUND) - ROUND;
    ((rounded / power).to_bits() == value.to_bits()).then_some(rounded as i64)
}

#[inline]
fn decimal_difference(last: f64, value: f64, decimals: u8) -> Option<i64> {
    Some(as_decimal(value, decimals)? - as_decimal(last, decimals)?)
}

/// Appends the samples of a chunk from `from_ms` on to the two columns, in order of time. `src` was
/// written by [`Chunk::copy_to`](super::Chunk::copy_to), newest sample first.
///
/// # Errors
/// [`Damaged`] if the bytes do not decode to that many samples. Nothing is appended then.
pub(crate) fn decode(
    newest: Newest,
    from_ms: i64,
    src: &[u8],
    timestamps_ms: &mut Vec<i64>,
    values: &mut Vec<f64>,
) -> Result<(), Damaged> {
    let start = values.len();
    if decode_back(newest, from_ms, src, timestamps_ms, values).is_none() {
        timestamps_ms.truncate(start);
        values.truncate(start);
        return Err(Damaged);
    }
    // A run may contain samples before `from_ms`.
    while timestamps_ms.len() > start
        && timestamps_ms
            .last()
            .is_some_and(|&oldest_ms| oldest_ms < from_ms)
    {
        timestamps_ms.pop();
        values.pop();
    }
    timestamps_ms[start..].reverse();
    values[start..].reverse();
    Ok(())
}

/// Appends samples, newest first, down to `from_ms`. Returns `None` if the bytes are truncated or
/// invalid.
#[inline]
fn decode_back(
    newest: Newest,
    from_ms: i64,
    mut src: &[u8],
    timestamps_ms: &mut Vec<i64>,
    values: &mut Vec<f64>,
) -> Option<()> {
    let src = &mut src;
    let mut timestamp_ms = newest.timestamp_ms;
    let mut delta_ms = i64::from(newest.delta_ms);
    let mut value = Value {
        number: f64::from_bits(newest.bits),
        scaled: None,
    };
    let mut left = usize::from(newest.n_samples);
    // Backwards, as the bytes are stored: the timestamp and the value are always those of the next
    // older sample that is not appended yet.
    //
    //   tag of a run      n samples, with the same value and the same distance
    //   any other tag     one sample, then the bytes by which the sample before it differs
    while left > 0 && timestamp_ms >= from_ms {
        let tag = take_byte(src)?;
        let is_run = tag > RUN && tag <= RUN + RUN_MAX;
        let n_samples = if is_run {
            usize::from(tag - RUN).min(left)
        } else {
            1
        };
        for _ in 0..n_samples {
            timestamps_ms.push(timestamp_ms);
            values.push(value.number);
            timestamp_ms = timestamp_ms.wrapping_sub(delta_ms);
            left -= 1;
        }
        if is_run {
            continue;
        }
        if tag & TIMESTAMP_FOLLOWS != 0 {
            delta_ms = delta_ms.wrapping_sub(take_i64(src)?);
        }
        value.step_back(src, tag & !TIMESTAMP_FOLLOWS)?;
    }
    Some(())
}

/// A value while a chunk is decoded backwards.
struct Value {
    number: f64,
    /// The last number of decimals and the scaled integer. With the same number of decimals, the
    /// value before results from a subtraction.
    scaled: Option<(u8, i64)>,
}

impl Value {
    /// Decodes the difference from the value before, and becomes that value. Returns `None` if the
    /// bytes are invalid.
    #[inline]
    fn step_back(&mut self, src: &mut &[u8], form: u8) -> Option<()> {
        match form {
            VALUE_SAME => {}
            VALUE_XOR..=RUN => {
                let leading = u32::from((form - VALUE_XOR) / 8);
                let size = u32::from((form - VALUE_XOR) % 8 + 1);
                let trailing = 8_u32.checked_sub(leading + size)?;
                let xor = take_le(src, size as usize)? << (8 * trailing);
                *self = Self {
                    number: f64::from_bits(self.number.to_bits() ^ xor),
                    scaled: None,
                };
            }
            _ => {
                let decimals = if form == VALUE_INTEGER {
                    0
                } else {
                    form.checked_sub(VALUE_DECIMAL)?
                };
                let power = POWERS_OF_TEN.get(usize::from(decimals))?;
                let scaled = match self.scaled {
                    Some((same, scaled)) if same == decimals => scaled,
                    _ if decimals == 0 => as_integer(self.number)?,
                    _ => as_decimal(self.number, decimals)?,
                };
                let before = scaled.checked_sub(take_i64(src)?)?;
                *self = Self {
                    number: before as f64 / power,
                    scaled: Some((decimals, before)),
                };
            }
        }
        Some(())
    }
}

/// Decodes an integer of `size` bytes, at most 8, lowest byte first.
#[inline]
fn take_le(src: &mut &[u8], size: usize) -> Option<u64> {
    let mut bytes = [0; 8];
    bytes[..size].copy_from_slice(take_bytes(src, size)?);
    Some(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn damaged_bytes_are_rejected_or_decode_to_that_many_samples(
            bytes in proptest::collection::vec(any::<u8>(), 0..200), n_samples in 1..=u8::MAX,
            (timestamp_ms, bits, delta_ms) in any::<(i64, u64, u32)>(),
        ) {
            let mut timestamps = Vec::new();
            let mut values = Vec::new();
            let newest = Newest { timestamp_ms, bits, delta_ms, n_samples };
            if decode(newest, i64::MIN, &bytes, &mut timestamps, &mut values).is_ok() {
                prop_assert_eq!((timestamps.len(), values.len()), (usize::from(n_samples), usize::from(n_samples)));
            }
        }

        #[test]
        fn decimals_round_trip(integer in -(1_i64 << 50)..1 << 50, decimals in 1..10_u8) {
            let value = integer as f64 / POWERS_OF_TEN[usize::from(decimals)];
            if let Some(scaled) = as_decimal(value, decimals) {
                prop_assert_eq!((scaled as f64 / POWERS_OF_TEN[usize::from(decimals)]).to_bits(), value.to_bits());
            }
        }
    }
}
