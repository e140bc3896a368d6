//! Elementary functions with the same results, bit for bit, as Go's `math` package on amd64 with
//! fused multiply-add, and therefore as Prometheus. Also compensated sums, and floating-point
//! operations of Go.
//!
//! The results of the C library differ from Go's in the last digits. Each function here performs
//! the steps of Go in the same order: the reductions and polynomials of Cephes and of FreeBSD's
//! msun, and Go's own for powers. The quirks are the same: [`exp`] overflows from 709.44 on, and
//! [`ln`] treats numbers below 2.2e-308 as normal. Square roots and rounding are exact on all
//! platforms and come from the standard library.
//!
//! `golden.txt` contains results of Go 1.26.8. Tests compare them bit for bit.
#![expect(
    clippy::excessive_precision,
    reason = "coefficients stand as they are published"
)]

mod exponential;
pub(crate) mod float;
mod hyperbolic;
pub(crate) mod kahan;
mod logarithm;
mod parts;
mod power;
mod trigonometric;

pub(crate) use exponential::{exp, exp2};
pub(crate) use hyperbolic::{acosh, asinh, atanh, cosh, sinh, tanh};
pub(crate) use logarithm::{ln, log2, log10};
pub(crate) use power::pow;
pub(crate) use trigonometric::{acos, asin, atan, atan2, cos, deg, rad, sin, tan};

/// Returns the sign, 1 or -1. Returns 0, -0 and NaN unchanged.
pub(crate) fn sgn(value: f64) -> f64 {
    if value == 0.0 || value.is_nan() {
        value
    } else {
        1.0_f64.copysign(value)
    }
}

#[cfg(test)]
mod tests;
