//! Codecs of consecutive values: integers as delta of delta, doubles as XOR with the value before.
//!
//! A histogram has one codec for each of its fields and buckets. A float sample has one for its
//! value.

use super::bstream::{BitReader, BitSink, BitWriter};
use super::error::ChunkError;

/// Whether a value is the first one of its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nth {
    First,
    /// The first one, which is never negative.
    FirstTotal,
    Later,
}

/// State of one column of values in a chunk.
pub(super) trait ValueCodec: Default {
    /// Type of the values.
    type Value: Copy + Default + PartialOrd;

    /// Appends a value.
    fn put(&mut self, dst: &mut BitWriter, value: Self::Value, nth: Nth);

    /// Reads a value.
    fn take(&mut self, src: &mut BitReader<'_>, nth: Nth) -> Result<Self::Value, ChunkError>;
}

/// Integers as delta of delta, wrapping.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DeltaOfDelta {
    value: i64,
    delta: i64,
}

impl DeltaOfDelta {
    /// Returns the last value.
    pub(super) fn value(self) -> i64 {
        self.value
    }

    /// Appends a zero, and continues from `value`: Prometheus does so for the totals of a staleness
    /// marker.
    pub(super) fn put_no_change(&mut self, dst: &mut BitWriter, value: i64) {
        dst.put(0, 1);
        *self = Self {
            value,
            delta: value.wrapping_sub(self.value),
        };
    }
}

impl ValueCodec for DeltaOfDelta {
    type Value = i64;

    #[inline]
    fn put(&mut self, dst: &mut BitWriter, value: i64, nth: Nth) {
        match nth {
            Nth::First => dst.put_varbit(value),
            Nth::FirstTotal => dst.put_varbit_unsigned(value.cast_unsigned()),
            Nth::Later => {
                let delta = value.wrapping_sub(self.value);
                dst.put_varbit(delta.wrapping_sub(self.delta));
                self.delta = delta;
            }
        }
        self.value = value;
    }

    #[inline]
    fn take(&mut self, src: &mut BitReader<'_>, nth: Nth) -> Result<i64, ChunkError> {
        self.value = match nth {
            Nth::First => src.take_varbit()?,
            Nth::FirstTotal => src.take_varbit_unsigned()?.cast_signed(),
            Nth::Later => {
                self.delta = self.delta.wrapping_add(src.take_varbit()?);
                self.value.wrapping_add(self.delta)
            }
        };
        Ok(self.value)
    }
}

/// Doubles as XOR with the value before, in a window of significant bits that is reused where
/// possible.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct XorCodec {
    bits: u64,
    window: Option<Window>,
}

/// Number of leading and trailing zeros of an XOR, together less than 64. Bytes, since recovery
/// holds a million of them at once.
#[derive(Debug, Clone, Copy)]
struct Window {
    leading: u8,
    trailing: u8,
}

/// Maximum width of an XOR that fits a word together with its three control bits.
const FEW_MAX: u32 = 61;
/// Maximum number of leading zeros: five bits.
const LEADING_MAX: u32 = 31;

impl Window {
    /// The window of a reader before the first one was read.
    const WHOLE: Self = Self {
        leading: 0,
        trailing: 0,
    };

    fn of(delta: u64) -> Self {
        Self {
            leading: delta.leading_zeros().min(LEADING_MAX) as u8,
            trailing: delta.trailing_zeros() as u8,
        }
    }

    fn covers(self, other: Self) -> bool {
        (self.leading <= other.leading) & (self.trailing <= other.trailing)
    }

    fn union(self, other: Self) -> Self {
        Self {
            leading: self.leading.min(other.leading),
            trailing: self.trailing.min(other.trailing),
        }
    }

    fn width(self) -> u32 {
        64 - u32::from(self.leading + self.trailing)
    }
}

impl XorCodec {
    pub(super) const NEW: Self = Self {
        bits: 0,
        window: None,
    };

    /// Sets the value before without writing it.
    pub(super) fn set(&mut self, value: f64) {
        self.bits = value.to_bits();
    }

    /// Returns the last value.
    pub(super) fn value(&self) -> f64 {
        f64::from_bits(self.bits)
    }

    /// Returns the XOR of a value with the last one.
    #[inline]
    pub(super) fn xor(&self, value: f64) -> u64 {
        value.to_bits() ^ self.bits
    }

    /// Appends a value as encodings 1 to 3 do.
    #[inline]
    pub(super) fn put_next(&mut self, dst: &mut impl BitSink, value: f64) {
        match self.xor(value) {
            0 => dst.put(0, 1),
            delta => self.put_xor(dst, delta, (0b10, 2), (0b11, 2), None),
        }
    }

    /// Returns what [`XorCodec::put_next`] would append, as bits and their number, and advances to
    /// `value`. Returns `None`, without advancing, if the XOR is wide or needs a new window.
    /// Branch-free in whether the value changes, which cannot be predicted.
    #[inline]
    pub(super) fn next_short(&mut self, value: f64) -> Option<(u64, u32)> {
        let delta = self.xor(value);
        let is_changed = delta != 0;
        let window = self.window.unwrap_or(Window::WHOLE);
        let width = window.width();
        let is_few = self.window.is_some() & (width <= FEW_MAX) & window.covers(Window::of(delta));
        if is_changed & !is_few {
            return None;
        }
        self.bits ^= delta;
        // A one (changed), a zero (same window) and the XOR, or a single zero (unchanged).
        let bits =
            u64::from(is_changed) << ((width + 1) % u64::BITS) | delta >> (window.trailing % 64);
        Some((bits, 1 + u32::from(is_changed) * (1 + width)))
    }

    /// Appends a non-zero XOR: the prefix `same` or `new` (bits and their number), the new window
    /// if any, then the XOR. With a `window_cost`, the number of bits that a new window takes, the
    /// last window is used again only if that is not longer, and a wider window keeps bounds of the
    /// last one for up to half of that cost.
    #[inline]
    pub(super) fn put_xor(
        &mut self,
        dst: &mut impl BitSink,
        delta: u64,
        same: (u64, u32),
        new: (u64, u32),
        window_cost: Option<u32>,
    ) {
        self.bits ^= delta;
        let mut needed = Window::of(delta);
        if let Some(window) = self.window {
            let covers = window.covers(needed);
            if covers && window_cost.is_none_or(|cost| window.width() - needed.width() <= cost) {
                dst.put(same.0, same.1);
                return dst.put(delta >> window.trailing, window.width());
            }
            let union = window.union(needed);
            if !covers && window_cost.is_some_and(|cost| union.width() - needed.width() <= cost / 2)
            {
                needed = union;
            }
        }
        dst.put(new.0, new.1);
        dst.put(u64::from(needed.leading), 5);
        // A width of 64 is written as 0, which no XOR has.
        dst.put(u64::from(needed.width()), 6);
        dst.put(delta >> needed.trailing, needed.width());
        self.window = Some(needed);
    }

    /// Reads an XOR in the last window, or in a new one if `is_new`.
    #[inline]
    pub(super) fn take_xor(
        &mut self,
        src: &mut BitReader<'_>,
        is_new: bool,
    ) -> Result<(), ChunkError> {
        if is_new {
            let header = src.take(11)?;
            let leading = (header >> 6) as u8;
            let width = (header & 63) as u8;
            let width = if width == 0 { 64 } else { width };
            let trailing = (64 - leading)
                .checked_sub(width)
                .ok_or(ChunkError::Invalid)?;
            self.window = Some(Window { leading, trailing });
        }
        let window = self.window.unwrap_or(Window::WHOLE);
        self.bits ^= src.take(window.width())? << window.trailing;
        Ok(())
    }
}

impl ValueCodec for XorCodec {
    type Value = f64;

    #[inline]
    fn put(&mut self, dst: &mut BitWriter, value: f64, nth: Nth) {
        match nth {
            Nth::Later => self.put_next(dst, value),
            Nth::First | Nth::FirstTotal => {
                dst.put(value.to_bits(), 64);
                self.set(value);
            }
        }
    }

    #[inline]
    fn take(&mut self, src: &mut BitReader<'_>, nth: Nth) -> Result<f64, ChunkError> {
        match nth {
            Nth::First | Nth::FirstTotal => self.bits = src.take(64)?,
            Nth::Later if src.take_bit()? => {
                let is_new = src.take_bit()?;
                self.take_xor(src, is_new)?;
            }
            Nth::Later => {}
        }
        Ok(self.value())
    }
}
