//! Elementary functions whose results have the same bits as in Go's `math` package on amd64 with fused multiplication,
//! and so as in Prometheus. Also compensated sums, and floating-point operations of Go.
//!
//! The results of the C library differ from Go's in the last digits. Each function here performs the steps of Go in the
//! same order: the reductions and polynomials of Cephes and of FreeBSD's msun, and Go's own for powers. Quirks are the
//! same, too: [`exp`] overflows from 709.44 on, and [`ln`] treats numbers below 2.2e-308 as normal. Square roots and
//! rounding are exact on all platforms and come from the standard library.
//!
//! `golden.txt` contains results of Go 1.26.8. Tests compare them bit for bit.
#![expect(clippy::excessive_precision, reason = "coefficients stand as they are published")]

mod exponential;
pub(crate) mod float;
mod hyperbolic;
pub(crate) mod kahan;
mod logarithm;
mod power;
mod trigonometric;

pub(crate) use exponential::{exp, exp2};
pub(crate) use hyperbolic::{acosh, asinh, atanh, cosh, sinh, tanh};
pub(crate) use logarithm::{ln, log2, log10};
pub(crate) use power::pow;
pub(crate) use trigonometric::{acos, asin, atan, atan2, cos, deg, rad, sin, tan};

/// Number of fraction bits of a float.
const FRACTION_BITS: u32 = 52;
/// Exponent bias of a float.
const BIAS: i32 = 1023;
const EXPONENT_MASK: u64 = 0x7ff;

/// Returns the sign, 1 or -1. Returns 0, -0 and NaN unchanged.
pub(crate) fn sgn(value: f64) -> f64 {
    if value == 0.0 || value.is_nan() { value } else { 1.0_f64.copysign(value) }
}

/// Splits a finite nonzero number into a fraction in [0.5, 1) with its sign, and a power of two. 0, infinities and NaN
/// are returned as the fraction.
fn split(value: f64) -> (f64, i32) {
    if value == 0.0 || !value.is_finite() {
        return (value, 0);
    }
    let (value, shift) = normalized(value);
    let bits = value.to_bits();
    let fraction = bits & !(EXPONENT_MASK << FRACTION_BITS) | u64::from(BIAS.unsigned_abs() - 1) << FRACTION_BITS;
    (f64::from_bits(fraction), exponent(bits) + 1 + shift)
}

/// Returns `fraction` times 2^`shift`, rounded once.
fn scaled(fraction: f64, shift: i32) -> f64 {
    if fraction == 0.0 || !fraction.is_finite() {
        return fraction;
    }
    let (fraction, normal_shift) = normalized(fraction);
    let bits = fraction.to_bits();
    let power = shift.saturating_add(normal_shift).saturating_add(exponent(bits));
    if power < -1075 {
        return 0.0_f64.copysign(fraction);
    }
    if power > BIAS {
        return f64::INFINITY.copysign(fraction);
    }
    // A subnormal result is first scaled by 2^53. The last multiplication rounds it.
    let (power, unit) = if power < -1022 { (power + 53, 1.0 / (1_u64 << 53) as f64) } else { (power, 1.0) };
    let stored = u64::from((power + BIAS).unsigned_abs());
    unit * f64::from_bits(bits & !(EXPONENT_MASK << FRACTION_BITS) | stored << FRACTION_BITS)
}

/// Returns a normal number and a power of two whose product is the given finite number.
fn normalized(value: f64) -> (f64, i32) {
    if value.abs() < f64::MIN_POSITIVE { (value * (1_u64 << 52) as f64, -52) } else { (value, 0) }
}

/// Returns the exponent of a number.
fn exponent(bits: u64) -> i32 {
    (bits >> FRACTION_BITS & EXPONENT_MASK) as i32 - BIAS
}

/// Evaluates a polynomial by Horner's scheme, highest coefficient first.
fn polynomial(x: f64, coefficients: &[f64]) -> f64 {
    coefficients.iter().fold(0.0, |sum, coefficient| sum * x + coefficient)
}

#[cfg(test)]
mod tests;
