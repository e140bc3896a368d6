//! The parts of a float, and polynomials.

/// Number of fraction bits of a float.
pub(super) const FRACTION_BITS: u32 = 52;
/// Exponent bias of a float.
pub(super) const BIAS: i32 = 1023;
pub(super) const EXPONENT_MASK: u64 = 0x7ff;

/// Returns the exponent of a number.
pub(super) fn exponent(bits: u64) -> i32 {
    (bits >> FRACTION_BITS & EXPONENT_MASK) as i32 - BIAS
}

/// Evaluates a polynomial by Horner's scheme, highest coefficient first.
pub(super) fn polynomial(x: f64, coefficients: &[f64]) -> f64 {
    coefficients
        .iter()
        .fold(0.0, |sum, coefficient| sum * x + coefficient)
}
