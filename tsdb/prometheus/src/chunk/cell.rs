//! Numbers of which each is encoded by what came before it in the same place: doubles by the bits that changed, integers
//! by the change of their step.
//!
//! A histogram has one such number for each of its fields and buckets; a float sample has one for its value.

use super::ChunkError;
use super::bits::{BitReader, BitSink, BitWriter};

/// A place in the samples of a chunk, and how its numbers follow each other.
pub(super) trait Cell: Default {
    /// What the numbers are.
    type Value: Copy + Default + PartialOrd;

    /// Appends the first number; one that is never negative where `is_total`.
    fn put_first(&mut self, dst: &mut BitWriter, value: Self::Value, is_total: bool);

    /// Appends a later number.
    fn put(&mut self, dst: &mut BitWriter, value: Self::Value);

    /// Takes the first number.
    fn take_first(&mut self, src: &mut BitReader<'_>, is_total: bool) -> Result<Self::Value, ChunkError>;

    /// Takes a later number.
    fn take(&mut self, src: &mut BitReader<'_>) -> Result<Self::Value, ChunkError>;
}

/// Integers: the change of the step from one to the next, wrapping.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Steps {
    value: i64,
    step: i64,
}

impl Steps {
    /// Returns the last value.
    pub(super) fn value(self) -> i64 {
        self.value
    }

    /// Appends the same step again, and goes on from `value`: what Prometheus does to the totals of a staleness marker.
    pub(super) fn put_no_change(&mut self, dst: &mut BitWriter, value: i64) {
        dst.put(0, 1);
        *self = Self { value, step: value.wrapping_sub(self.value) };
    }
}

impl Cell for Steps {
    type Value = i64;

    fn put_first(&mut self, dst: &mut BitWriter, value: i64, is_total: bool) {
        match is_total {
            true => dst.put_varbit_unsigned(value.cast_unsigned()),
            false => dst.put_varbit(value),
        }
        self.value = value;
    }

    #[inline]
    fn put(&mut self, dst: &mut BitWriter, value: i64) {
        let step = value.wrapping_sub(self.value);
        dst.put_varbit(step.wrapping_sub(self.step));
        *self = Self { value, step };
    }

    fn take_first(&mut self, src: &mut BitReader<'_>, is_total: bool) -> Result<i64, ChunkError> {
        self.value = match is_total {
            true => src.take_varbit_unsigned()?.cast_signed(),
            false => src.take_varbit()?,
        };
        Ok(self.value)
    }

    #[inline]
    fn take(&mut self, src: &mut BitReader<'_>) -> Result<i64, ChunkError> {
        self.step = self.step.wrapping_add(src.take_varbit()?);
        self.value = self.value.wrapping_add(self.step);
        Ok(self.value)
    }
}

/// Doubles: the bits that differ from the one before, and where they lie if not within those of the last time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Xor {
    bits: u64,
    window: Option<Window>,
}

/// Where the bits that differ lie: zeros before them and behind them, fewer than 64 together. Bytes, as there may be a
/// million of them at once.
#[derive(Debug, Clone, Copy)]
struct Window {
    leading: u8,
    trailing: u8,
}

/// Bits that differ, at most, that fit into a word with three more before them.
const FEW_MAX: u32 = 61;
/// Most zeros before the bits that differ: what five bits hold.
const LEADING_MAX: u32 = 31;

impl Window {
    /// What a reader has before a window came.
    const WHOLE: Self = Self { leading: 0, trailing: 0 };

    fn of(delta: u64) -> Self {
        Self { leading: delta.leading_zeros().min(LEADING_MAX) as u8, trailing: delta.trailing_zeros() as u8 }
    }

    fn covers(self, other: Self) -> bool {
        (self.leading <= other.leading) & (self.trailing <= other.trailing)
    }

    fn width(self) -> u32 {
        64 - u32::from(self.leading + self.trailing)
    }
}

impl Xor {
    pub(super) const NEW: Self = Self { bits: 0, window: None };

    /// Starts from a value.
    pub(super) fn set(&mut self, value: f64) {
        self.bits = value.to_bits();
    }

    /// Returns the last value.
    pub(super) fn value(&self) -> f64 {
        f64::from_bits(self.bits)
    }

    /// Returns the bits by which a value differs from the last one.
    #[inline]
    pub(super) fn delta(&self, value: f64) -> u64 {
        value.to_bits() ^ self.bits
    }

    /// Appends a value in the way of encodings 1 to 3.
    #[inline]
    pub(super) fn put_next(&mut self, dst: &mut impl BitSink, value: f64) {
        match self.delta(value) {
            0 => dst.put(0, 1),
            delta => self.put_delta(dst, delta, (0b10, 2), (0b11, 2)),
        }
    }

    /// Goes on to a value and returns what [`Xor::put_next`] would append, as bits and their number; `None`, and nothing is
    /// changed, if they are many or in a new window.
    ///
    /// Whether a value changes cannot be foretold: there is no branch for it.
    #[inline]
    pub(super) fn next_few(&mut self, value: f64) -> Option<(u64, u32)> {
        let delta = self.delta(value);
        let (is_changed, window) = (delta != 0, self.window.unwrap_or(Window::WHOLE));
        let width = window.width();
        let is_few = self.window.is_some() & (width <= FEW_MAX) & window.covers(Window::of(delta));
        if is_changed & !is_few {
            return None;
        }
        self.bits ^= delta;
        // A one that says that it changes, a zero for the same window, and the difference; or a single zero.
        let bits = u64::from(is_changed) << ((width + 1) % u64::BITS) | delta >> (window.trailing % 64);
        Some((bits, 1 + u32::from(is_changed) * (1 + width)))
    }

    /// Appends a difference that is not zero: whether it is in a new window, behind `same` or `new` as bits and their
    /// number, then the difference.
    #[inline]
    pub(super) fn put_delta(&mut self, dst: &mut impl BitSink, delta: u64, same: (u64, u32), new: (u64, u32)) {
        self.bits ^= delta;
        let needed = Window::of(delta);
        match self.window {
            Some(window) if window.covers(needed) => {
                dst.put(same.0, same.1);
                dst.put(delta >> window.trailing, window.width());
            }
            _ => {
                dst.put(new.0, new.1);
                dst.put(u64::from(needed.leading), 5);
                // All 64 bits are written as 0: there is no difference of no bits.
                dst.put(u64::from(needed.width()), 6);
                dst.put(delta >> needed.trailing, needed.width());
                self.window = Some(needed);
            }
        }
    }

    /// Takes a difference in the last window or, where `is_new`, in one that comes first.
    #[inline]
    pub(super) fn take_delta(&mut self, src: &mut BitReader<'_>, is_new: bool) -> Result<(), ChunkError> {
        if is_new {
            let header = src.take(11)?;
            let (leading, width) = ((header >> 6) as u8, (header & 63) as u8);
            let width = if width == 0 { 64 } else { width };
            let trailing = (64 - leading).checked_sub(width).ok_or(ChunkError::Invalid)?;
            self.window = Some(Window { leading, trailing });
        }
        let window = self.window.unwrap_or(Window::WHOLE);
        self.bits ^= src.take(window.width())? << window.trailing;
        Ok(())
    }
}

impl Cell for Xor {
    type Value = f64;

    fn put_first(&mut self, dst: &mut BitWriter, value: f64, _is_total: bool) {
        dst.put(value.to_bits(), 64);
        self.set(value);
    }

    #[inline]
    fn put(&mut self, dst: &mut BitWriter, value: f64) {
        self.put_next(dst, value);
    }

    fn take_first(&mut self, src: &mut BitReader<'_>, _is_total: bool) -> Result<f64, ChunkError> {
        self.bits = src.take(64)?;
        Ok(self.value())
    }

    #[inline]
    fn take(&mut self, src: &mut BitReader<'_>) -> Result<f64, ChunkError> {
        if src.take_bit()? {
            let is_new = src.take_bit()?;
            self.take_delta(src, is_new)?;
        }
        Ok(self.value())
    }
}
