//! Functions of single numbers that the standard library has not, or not as Go has them.

/// Logarithm to base 2 in Go's way: exact for powers of 2, else through the natural logarithm of the mantissa.
pub(crate) fn log2(value: f64) -> f64 {
    if !(value > 0.0 && value.is_finite()) {
        return value.log2();
    }
    let (mantissa, exponent) = split(value);
    if mantissa == 0.5 {
        return f64::from(exponent - 1);
    }
    // The constants are rounded once, as Go's are.
    mantissa.ln() * std::f64::consts::LOG2_E + f64::from(exponent)
}

/// 2 to the power of a number, in Go's way.
pub(crate) fn exp2(value: f64) -> f64 {
    const LN2_HIGH: f64 = 6.931_471_803_691_238e-1;
    const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    if value.is_nan() || value == f64::INFINITY || value > 1_023.999_999_999_999_9 {
        return if value.is_nan() { value } else { f64::INFINITY };
    }
    if value < -1074.0 {
        return 0.0;
    }
    let whole = (value + 0.5_f64.copysign(value)).trunc();
    let rest = value - whole;
    exponential(rest * LN2_HIGH, -rest * LN2_LOW, whole as i32)
}

/// Returns e^(`high` - `low`) times 2^`exponent`, by a polynomial.
fn exponential(high: f64, low: f64, exponent: i32) -> f64 {
    const P: [f64; 5] = [
        1.666_666_666_666_666_6e-1,
        -2.777_777_777_701_559_3e-3,
        6.613_756_321_437_934e-5,
        -1.653_390_220_546_525_2e-6,
        4.138_136_797_057_238_5e-8,
    ];
    let r = high - low;
    let t = r * r;
    let c = r - t * (P[0] + t * (P[1] + t * (P[2] + t * (P[3] + t * P[4]))));
    let y = 1.0 - ((low - (r * c) / (2.0 - c)) - high);
    // Two exact steps and one that rounds: the result may be subnormal.
    let half = exponent / 2;
    y * 2.0_f64.powi(half) * 2.0_f64.powi(exponent - half)
}

/// Logarithm to base 10 in Go's way: through that to base 2.
pub(super) fn log10(value: f64) -> f64 {
    log2(value) * std::f64::consts::LOG10_2
}

/// Splits a positive finite number into a mantissa in [0.5, 1) and an exponent.
fn split(value: f64) -> (f64, i32) {
    // A subnormal number is scaled up first.
    let (value, shift) = if value < f64::MIN_POSITIVE { (value * (1u64 << 52) as f64, -52) } else { (value, 0) };
    let bits = value.to_bits();
    let exponent = (bits >> 52 & 0x7ff) as i32 - 1022;
    (f64::from_bits(bits & !(0x7ff << 52) | 1022 << 52), exponent + shift)
}

/// From here on the square of a number swallows 1: an inverse hyperbolic function is the logarithm of the double.
const SQUARE_SWALLOWS_ONE: f64 = (1u64 << 28) as f64;

/// Inverse hyperbolic sine that survives numbers whose double overflows.
pub(super) fn asinh(value: f64) -> f64 {
    if value.abs() > SQUARE_SWALLOWS_ONE {
        return (value.abs().ln() + std::f64::consts::LN_2).copysign(value);
    }
    value.asinh()
}

/// Inverse hyperbolic cosine that survives numbers whose double overflows.
pub(super) fn acosh(value: f64) -> f64 {
    if value >= SQUARE_SWALLOWS_ONE {
        return value.ln() + std::f64::consts::LN_2;
    }
    value.acosh()
}

/// From here on a hyperbolic function is half of the exponential, and overflows with it.
const HALF_EXPONENTIAL: f64 = 21.0;

/// Hyperbolic sine that overflows where Go's does.
pub(super) fn sinh(value: f64) -> f64 {
    if value.abs() > HALF_EXPONENTIAL { (value.abs().exp() * 0.5).copysign(value) } else { value.sinh() }
}

/// Hyperbolic cosine that overflows where Go's does.
pub(super) fn cosh(value: f64) -> f64 {
    if value.abs() > HALF_EXPONENTIAL { value.abs().exp() * 0.5 } else { value.cosh() }
}

pub(super) fn deg(value: f64) -> f64 {
    value * 180.0 / std::f64::consts::PI
}

pub(super) fn rad(value: f64) -> f64 {
    value * std::f64::consts::PI / 180.0
}

/// The sign; 0, -0 and NaN stay as they are.
pub(super) fn sgn(value: f64) -> f64 {
    if value < 0.0 {
        -1.0
    } else if value > 0.0 {
        1.0
    } else {
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_of_powers_of_two_are_exact() {
        for exponent in [-1074, -1023, -1022, -1, 0, 1, 52, 1023] {
            let power = if exponent < -1022 { f64::from_bits(1 << (exponent + 1074)) } else { 2f64.powi(exponent) };
            assert_eq!(log2(power), f64::from(exponent));
        }
        assert!((log2(10.0) - std::f64::consts::LOG2_10).abs() < 1e-15);
        assert_eq!((log2(0.0), log10(f64::INFINITY)), (f64::NEG_INFINITY, f64::INFINITY));
        assert_eq!([1e3, 1e9, 1e16].map(log10), [3.0, 9.0, 16.0]);
        assert!(log2(-1.0).is_nan() && log10(f64::NAN).is_nan());
    }

    #[test]
    fn inverse_hyperbolic_functions_do_not_overflow() {
        assert!((asinh(f64::MAX) - 710.475_860_073_943_9).abs() < 1e-9);
        assert_eq!((asinh(-f64::MAX), acosh(f64::MAX)), (-asinh(f64::MAX), asinh(f64::MAX)));
        assert_eq!((asinh(f64::NEG_INFINITY), acosh(f64::INFINITY)), (f64::NEG_INFINITY, f64::INFINITY));
        assert!(acosh(0.5).is_nan() && asinh(f64::NAN).is_nan());
        assert!(asinh(-0.0).is_sign_negative());
    }
}
