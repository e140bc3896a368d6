//! Powers with arbitrary exponents.

use libm::{frexp, ldexp};

use super::exponential::exp;
use super::logarithm::ln;

/// Powers of two with larger exponents overflow or underflow.
const POWER_MAX: i32 = 1 << 12;
/// All floats from this value on are even integers.
const ALL_EVEN: f64 = (1_u64 << 53) as f64;

/// Returns `base` to the power of `exponent`. Computes the power of the integer part by repeated
/// squaring, and that of the fraction by the logarithm.
pub(crate) fn pow(base: f64, exponent: f64) -> f64 {
    if let Some(result) = special(base, exponent) {
        return result;
    }
    let size = exponent.abs();
    let mut whole = size.trunc();
    let mut rest = size.fract();
    if rest != 0.0 && base < 0.0 {
        return f64::NAN;
    }
    if whole >= (1_u64 << 63) as f64 {
        return pow_infinite(base, exponent > 0.0);
    }
    let mut start = 1.0;
    if rest != 0.0 {
        if rest > 0.5 {
            rest -= 1.0;
            whole += 1.0;
        }
        start = exp(rest * ln(base));
    }
    let (product, power) = times_whole_power(start, base, whole as u64);
    if exponent < 0.0 {
        ldexp(1.0 / product, -power)
    } else {
        ldexp(product, power)
    }
}

/// Multiplies `product` by `base` to the power of `exponent`. Returns the product and a separate
/// power of two.
fn times_whole_power(mut product: f64, base: f64, mut exponent: u64) -> (f64, i32) {
    let (mut square, mut square_power) = frexp(base);
    let mut power = 0;
    while exponent != 0 {
        if square_power.abs() > POWER_MAX {
            return (product, power + square_power);
        }
        if exponent & 1 == 1 {
            product *= square;
            power += square_power;
        }
        square *= square;
        square_power <<= 1;
        if square < 0.5 {
            square += square;
            square_power -= 1;
        }
        exponent >>= 1;
    }
    (product, power)
}

/// Returns the result for special cases.
fn special(base: f64, exponent: f64) -> Option<f64> {
    if exponent == 0.0 || base == 1.0 {
        return Some(1.0);
    }
    if exponent == 1.0 {
        return Some(base);
    }
    if base.is_nan() || exponent.is_nan() {
        return Some(f64::NAN);
    }
    if base == 0.0 {
        return Some(pow_zero(base, exponent));
    }
    if exponent.is_infinite() {
        return Some(pow_infinite(base, exponent > 0.0));
    }
    if base.is_infinite() {
        // A power of -Inf is the power of its inverse, -0, with the negated exponent.
        let of_positive_infinity = if exponent < 0.0 { 0.0 } else { f64::INFINITY };
        return Some(if base < 0.0 {
            pow(-0.0, -exponent)
        } else {
            of_positive_infinity
        });
    }
    if exponent == 0.5 {
        return Some(base.sqrt());
    }
    (exponent == -0.5).then(|| 1.0 / base.sqrt())
}

fn pow_zero(base: f64, exponent: f64) -> f64 {
    let keeps_sign = exponent.abs() < ALL_EVEN && exponent % 2.0 != 0.0 && exponent.fract() == 0.0;
    let size = if exponent < 0.0 { f64::INFINITY } else { 0.0 };
    if keeps_sign {
        size.copysign(base)
    } else {
        size
    }
}

/// Returns a power whose exponent is infinite, or an even number so large that it has the same
/// effect.
fn pow_infinite(base: f64, is_positive: bool) -> f64 {
    if base == -1.0 {
        1.0
    } else if (base.abs() < 1.0) == is_positive {
        0.0
    } else {
        f64::INFINITY
    }
}
