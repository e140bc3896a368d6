//! Doubles that are decimals of few digits: m / 10^e with an integer m.
//!
//! The encoder verifies each value with the arithmetic of the decoder, so that bit-exactness does
//! not depend on reasoning about rounding.

/// The number of decimals, from 0 to 15.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exponent(u8);

/// Powers of ten up to 10^22 are exact doubles.
const POWERS: [f64; 16] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
];

/// Adding this rounds a double of at most 2^51 in magnitude to an integer in its low bits. Unlike
/// casts, this compiles to vector instructions that every processor has.
const SHIFT: f64 = 1.5 * (1_u64 << 52) as f64;

/// Maximum distance of a value from a decimal, in ulps, to be encoded as a decimal with ulps.
const ULPS_MAX: u64 = 1 << 10;

/// If at most one value in this many has more digits than the others, these digits are encoded as
/// ulps.
const RARE_SHARE: usize = 32;

/// Maximum number of values that are sampled to guess the exponent of a row.
const PROBES: usize = 8;

impl Exponent {
    /// Iterates over this exponent and the greater ones.
    fn and_greater(self) -> impl Iterator<Item = Self> {
        (self.0..POWERS.len() as u8).map(Self)
    }

    /// Returns the exponent with a code. Uses only the low four bits.
    pub(super) fn from_code(code: u8) -> Self {
        Self(code % POWERS.len() as u8)
    }

    /// Returns the four bits of the exponent.
    pub(super) fn code(self) -> u8 {
        self.0
    }

    fn power(self) -> f64 {
        POWERS[usize::from(self.0)]
    }

    /// Returns m / 10^e.
    pub(super) fn double(self, integer: i64) -> f64 {
        if self.0 == 0 {
            integer as f64
        } else {
            decode(integer, self.power())
        }
    }

    /// Returns `true` if a value can be restored from its integer bit for bit.
    #[inline]
    pub(super) fn is_exact(self, value: f64) -> bool {
        is_same(self.double(self.integer(value)), value)
    }

    fn integer(self, value: f64) -> i64 {
        if self.0 == 0 {
            value as i64
        } else {
            encode(value, self.power())
        }
    }

    /// Appends the integers of all values. Returns the number of values that cannot be restored
    /// from them.
    pub(super) fn scale(self, values: &[f64], integers: &mut Vec<i64>) -> usize {
        let power = self.power();
        if self.0 == 0 {
            scale(
                values,
                integers,
                |value| value as i64,
                |integer| integer as f64,
            )
        } else {
            scale(
                values,
                integers,
                |value| encode(value, power),
                |integer| decode(integer, power),
            )
        }
    }

    /// Appends the doubles of all integers.
    pub(super) fn append_doubles(self, integers: &[i64], doubles: &mut Vec<f64>) {
        let power = self.power();
        if self.0 == 0 {
            doubles.extend(integers.iter().map(|&integer| integer as f64));
        } else {
            doubles.extend(integers.iter().map(|&integer| decode(integer, power)));
        }
    }

    /// Splits finite values into nearby decimals and the distances from these in ulps. Replaces the
    /// contents of both columns.
    pub(super) fn split_ulps(self, values: &[f64], integers: &mut Vec<i64>, ulps: &mut Vec<i64>) {
        integers.clear();
        self.scale(values, integers);
        ulps.clear();
        ulps.extend(
            values
                .iter()
                .zip(integers)
                .map(|(&value, integer)| ulps_between(self.double(*integer), value)),
        );
    }
}

#[inline(always)]
fn scale(
    values: &[f64],
    integers: &mut Vec<i64>,
    encode: impl Fn(f64) -> i64,
    decode: impl Fn(i64) -> f64,
) -> usize {
    let start = integers.len();
    integers.extend(values.iter().map(|&value| encode(value)));
    let mut n_inexact = 0;
    for (value, integer) in values.iter().zip(&integers[start..]) {
        n_inexact += usize::from(!is_same(decode(*integer), *value));
    }
    n_inexact
}

#[inline(always)]
fn encode(value: f64, power: f64) -> i64 {
    (value * power + SHIFT)
        .to_bits()
        .wrapping_sub(SHIFT.to_bits())
        .cast_signed()
}

#[inline(always)]
fn decode(integer: i64, power: f64) -> f64 {
    (f64::from_bits(integer.cast_unsigned().wrapping_add(SHIFT.to_bits())) - SHIFT) / power
}

/// Returns `true` if a value was decoded bit for bit. Returns `false` for NaN and infinities: the
/// effect of arithmetic on the bits of a NaN differs between processors.
#[inline(always)]
fn is_same(decoded: f64, value: f64) -> bool {
    (decoded.to_bits() == value.to_bits()) & value.is_finite()
}

/// Returns the number of steps from one double to another in the order of their bits.
fn ulps_between(from: f64, to: f64) -> i64 {
    to.to_bits().wrapping_sub(from.to_bits()).cast_signed()
}

/// Moves each double by its number of ulps.
pub(super) fn add_ulps(doubles: &mut [f64], ulps: &[i64]) {
    for (double, &ulps) in doubles.iter_mut().zip(ulps) {
        *double = f64::from_bits(double.to_bits().wrapping_add(ulps.cast_unsigned()));
    }
}

/// Returns a value as e and m, with the smallest possible e, or `None` if it is not a decimal.
pub(super) fn as_decimal(value: f64) -> Option<(Exponent, i64)> {
    let exponent = least_exact(value, Exponent(0))?;
    Some((exponent, exponent.integer(value)))
}

/// Finds an exponent with which all values of a row are decimals, and replaces `integers` with the
/// integers of the values. Returns `None` if a value is not a decimal, or if only few values have
/// more digits than the others.
pub(super) fn exact_exponent(values: &[f64], integers: &mut Vec<i64>) -> Option<Exponent> {
    let guess = probe(values, least_exact)?;
    integers.clear();
    let n_inexact = guess.scale(values, integers);
    // Fast path: the exponent of the probes fits all values.
    if n_inexact == 0 {
        return Some(guess);
    }
    if n_inexact <= values.len() / RARE_SHARE {
        return None;
    }
    let exponent = values
        .iter()
        .try_fold(guess, |least, &value| least_exact(value, least))?;
    integers.clear();
    (exponent.scale(values, integers) == 0).then_some(exponent)
}

/// Finds an exponent with which most values are close to decimals.
pub(super) fn nearest_exponent(values: &[f64]) -> Option<Exponent> {
    probe(values, |value, least| {
        least.and_greater().find(|exponent| {
            let near = exponent.double(exponent.integer(value));
            ulps_between(near, value).unsigned_abs() <= ULPS_MAX
        })
    })
}

/// Returns the smallest exponent, from `least` on, with which a value is a decimal.
fn least_exact(value: f64, least: Exponent) -> Option<Exponent> {
    least
        .and_greater()
        .find(|exponent| exponent.is_exact(value))
}

/// Returns the smallest exponent that suffices for a few sampled values. `find` returns the
/// exponent of one value. Returns `None` if `find` fails for more than a quarter of them.
fn probe(values: &[f64], find: impl Fn(f64, Exponent) -> Option<Exponent>) -> Option<Exponent> {
    let mut exponent = Exponent(0);
    let mut n_probed = 0;
    let mut n_failed = 0;
    let stride = values.len().div_ceil(PROBES);
    for &value in values.iter().skip(stride / 2).step_by(stride.max(1)) {
        n_probed += 1;
        match find(value, exponent) {
            Some(needed) => exponent = needed,
            None => n_failed += 1,
        }
    }
    (n_failed * 4 <= n_probed).then_some(exponent)
}
