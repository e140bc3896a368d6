//! Hyperbolic functions and their inverses: ports of those of Go's `math`, with the same results bit
//! for bit.

use std::f64::consts::LN_2;

use super::exponential::exp;
use super::logarithm::{ln, ln_1p};
use super::parts::polynomial;

/// From this value on, exp(-x) is negligible beside exp(x).
const LARGE: f64 = 21.0;
/// From this value on, 1 is negligible compared with the square, so the inverse is the logarithm of
/// twice the value.
const ONE_IS_NEGLIGIBLE: f64 = (1_u64 << 28) as f64;
/// Below this value, an odd function with slope 1 at 0 returns its argument.
const NEAR_ZERO: f64 = 1.0 / (1_u64 << 28) as f64;

/// Hyperbolic sine.
pub(crate) fn sinh(value: f64) -> f64 {
    /// The coefficients are those of Hart and Cheney, Computer Approximations, function 2029.
    const P: [f64; 4] = [
        -0.263_056_321_339_749_706_281_948_9e2,
        -0.289_421_135_598_956_380_728_466_036_6e4,
        -0.899_127_202_203_950_935_539_801_351_1e5,
        -0.630_767_364_049_771_699_118_478_725_1e6,
    ];
    const Q: [f64; 4] = [
        1.0,
        -0.173_678_953_558_233_699_533_450_911e3,
        0.152_151_737_879_001_907_069_648_517_6e5,
        -0.630_767_364_049_771_699_121_207_727_7e6,
    ];
    let size = value.abs();
    let result = if size > LARGE {
        exp(size) * 0.5
    } else if size > 0.5 {
        let exponential = exp(size);
        (exponential - 1.0 / exponential) * 0.5
    } else {
        let square = size * size;
        polynomial(square, &P) * size / polynomial(square, &Q)
    };
    result.copysign(value)
}

/// Hyperbolic cosine.
pub(crate) fn cosh(value: f64) -> f64 {
    let exponential = exp(value.abs());
    if value.abs() > LARGE {
        exponential * 0.5
    } else {
        (exponential + 1.0 / exponential) * 0.5
    }
}

/// Hyperbolic tangent.
pub(crate) fn tanh(value: f64) -> f64 {
    /// Half of the logarithm of 2^127. From this value on, the result is 1.
    const TANH_IS_ONE: f64 = 0.5 * 88.029_691_931_113_05;
    const P: [f64; 3] = [
        -9.643_991_794_250_523e-1,
        -9.928_772_310_019_186e1,
        -1.614_687_684_417_084_5e3,
    ];
    const Q: [f64; 4] = [
        1.0,
        1.128_116_784_916_329_3e2,
        2.235_488_390_601_004_5e3,
        4.844_063_053_251_255e3,
    ];
    let size = value.abs();
    if size > TANH_IS_ONE {
        return 1.0_f64.copysign(value);
    }
    if size >= 0.625 {
        return (1.0 - 2.0 / (exp(2.0 * size) + 1.0)).copysign(value);
    }
    if value == 0.0 {
        return value;
    }
    let square = value * value;
    value + value * square * polynomial(square, &P) / polynomial(square, &Q)
}

/// Inverse hyperbolic sine.
pub(crate) fn asinh(value: f64) -> f64 {
    if !value.is_finite() {
        return value;
    }
    let size = value.abs();
    let result = if size > ONE_IS_NEGLIGIBLE {
        ln(size) + LN_2
    } else if size > 2.0 {
        ln(2.0 * size + 1.0 / ((size * size + 1.0).sqrt() + size))
    } else if size < NEAR_ZERO {
        size
    } else {
        ln_1p(size + size * size / (1.0 + (1.0 + size * size).sqrt()))
    };
    result.copysign(value)
}

/// Inverse hyperbolic cosine.
pub(crate) fn acosh(value: f64) -> f64 {
    if value < 1.0 || value.is_nan() {
        f64::NAN
    } else if value == 1.0 {
        0.0
    } else if value >= ONE_IS_NEGLIGIBLE {
        ln(value) + LN_2
    } else if value > 2.0 {
        ln(2.0 * value - 1.0 / (value + (value * value - 1.0).sqrt()))
    } else {
        let t = value - 1.0;
        ln_1p(t + (2.0 * t + t * t).sqrt())
    }
}

/// Inverse hyperbolic tangent.
pub(crate) fn atanh(value: f64) -> f64 {
    let size = value.abs();
    if size > 1.0 || value.is_nan() {
        return f64::NAN;
    }
    if size == 1.0 {
        return f64::INFINITY.copysign(value);
    }
    let result = if size < NEAR_ZERO {
        size
    } else if size < 0.5 {
        let double = size + size;
        0.5 * ln_1p(double + double * size / (1.0 - size))
    } else {
        0.5 * ln_1p((size + size) / (1.0 - size))
    };
    result.copysign(value)
}
