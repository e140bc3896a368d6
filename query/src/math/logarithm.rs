//! Logarithms.

use std::f64::consts::{FRAC_1_SQRT_2, LOG2_E, LOG10_E, SQRT_2};

use libm::frexp;

use super::parts::{BIAS, EXPONENT_MASK, FRACTION_BITS};

const LN2_HIGH: f64 = 6.931_471_803_691_238e-1;
const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
/// Coefficients of the series in s^2 after the first term, where s is f / (2 + f).
const L: [f64; 7] = [
    6.666_666_666_666_735e-1,
    3.999_999_999_940_942e-1,
    2.857_142_874_366_239e-1,
    2.222_219_843_214_978_4e-1,
    1.818_357_216_161_805e-1,
    1.531_383_769_920_937_3e-1,
    1.479_819_860_511_658_6e-1,
];

/// Returns the natural logarithm. Treats subnormal numbers as normal.
pub(crate) fn ln(value: f64) -> f64 {
    if value == 0.0 {
        return f64::NEG_INFINITY;
    }
    if value.is_nan() || value < 0.0 {
        return if value < 0.0 { f64::NAN } else { value };
    }
    if value == f64::INFINITY {
        return value;
    }
    let bits = value.to_bits();
    let fraction = f64::from_bits(bits & ((1 << FRACTION_BITS) - 1) | 0.5_f64.to_bits());
    let power = f64::from((bits >> FRACTION_BITS & EXPONENT_MASK) as i32 - (BIAS - 1));
    let (f, k) = if fraction <= FRAC_1_SQRT_2 {
        (fraction * 2.0 - 1.0, power - 1.0)
    } else {
        (fraction - 1.0, power)
    };
    let s = f / (2.0 + f);
    let s2 = s * s;
    let s4 = s2 * s2;
    let odd = s2 * (L[0] + s4 * (L[2] + s4 * (L[4] + s4 * L[6])));
    let even = s4 * (L[1] + s4 * (L[3] + s4 * L[5]));
    let half_square = 0.5 * f * f;
    k * LN2_HIGH - ((half_square - (s * (half_square + (odd + even)) + k * LN2_LOW)) - f)
}

/// Returns the logarithm to base 2; exact for powers of 2.
pub(crate) fn log2(value: f64) -> f64 {
    let (fraction, power) = frexp(value);
    if fraction == 0.5 {
        return f64::from(power - 1);
    }
    ln(fraction) * LOG2_E + f64::from(power)
}

/// Logarithm to base 10.
pub(crate) fn log10(value: f64) -> f64 {
    ln(value) * LOG10_E
}

/// Natural logarithm of `1 + value`.
pub(super) fn ln_1p(value: f64) -> f64 {
    const SMALL: f64 = 1.0 / (1_u64 << 29) as f64;
    const TINY: f64 = 1.0 / (1_u64 << 54) as f64;
    if value < -1.0 || value.is_nan() {
        return f64::NAN;
    }
    if value == -1.0 || value == f64::INFINITY {
        return if value < 0.0 {
            f64::NEG_INFINITY
        } else {
            value
        };
    }
    let size = value.abs();
    if size < TINY {
        return value;
    }
    if size < SMALL {
        return value - value * value * 0.5;
    }
    if size < SQRT_2 - 1.0 && value > FRAC_1_SQRT_2 - 1.0 {
        ln_1p_small(value)
    } else {
        ln_1p_reduced(value)
    }
}

/// Returns ln (1 + f) for an `f` near 0, without extracting a power of two.
fn ln_1p_small(f: f64) -> f64 {
    let half_square = 0.5 * f * f;
    f - (half_square - series(f, half_square))
}

/// Returns ln (1 + value) after extracting a power of two.
fn ln_1p_reduced(value: f64) -> f64 {
    /// Fraction bits of the square root of two.
    const SQRT2_FRACTION: u64 = 0x6_a09e_667f_3bcd;
    const FRACTION_MASK: u64 = (1 << FRACTION_BITS) - 1;
    let (sum, lost) = if value.abs() < (1_u64 << 53) as f64 {
        let sum = 1.0 + value;
        let lost = if sum >= 2.0 {
            1.0 - (sum - value)
        } else {
            value - (sum - 1.0)
        };
        (sum, lost / sum)
    } else {
        (value, 0.0)
    };
    let bits = sum.to_bits();
    let power = (bits >> FRACTION_BITS) as i32 - BIAS;
    let fraction = bits & FRACTION_MASK;
    let (u, power, is_near_one) = if fraction < SQRT2_FRACTION {
        (
            f64::from_bits(fraction | 1.0_f64.to_bits()),
            power,
            fraction == 0,
        )
    } else {
        (
            f64::from_bits(fraction | 0.5_f64.to_bits()),
            power + 1,
            ((1 << FRACTION_BITS) - fraction) >> 2 == 0,
        )
    };
    let f = u - 1.0;
    let k = f64::from(power);
    if is_near_one {
        return ln_near_power_of_two(f, k, lost);
    }
    let half_square = 0.5 * f * f;
    if power == 0 {
        return f - (half_square - series(f, half_square));
    }
    k * LN2_HIGH - ((half_square - (series(f, half_square) + (k * LN2_LOW + lost))) - f)
}

/// Returns ln of a number near 2^`k`.
fn ln_near_power_of_two(f: f64, k: f64, lost: f64) -> f64 {
    if f == 0.0 {
        return if k == 0.0 {
            0.0
        } else {
            k * LN2_HIGH + (lost + k * LN2_LOW)
        };
    }
    let rest = 0.5 * f * f * (1.0 - 0.666_666_666_666_666_66 * f);
    if k == 0.0 {
        f - rest
    } else {
        k * LN2_HIGH - ((rest - (k * LN2_LOW + lost)) - f)
    }
}

fn series(f: f64, half_square: f64) -> f64 {
    let s = f / (2.0 + f);
    let z = s * s;
    let rest =
        z * (L[0] + z * (L[1] + z * (L[2] + z * (L[3] + z * (L[4] + z * (L[5] + z * L[6]))))));
    s * (half_square + rest)
}
