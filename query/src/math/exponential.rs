//! Exponential functions with base e and 2.

use libm::ldexp;

use super::parts::{BIAS, FRACTION_BITS};

/// 1/k! for k from 8 to 2, and 1: the coefficients of the Taylor series of (e^x - 1) / x.
const TAYLOR: [f64; 8] = [
    2.480_158_730_158_730_2e-5,
    1.984_126_984_126_984e-4,
    1.388_888_888_888_889e-3,
    8.333_333_333_333_333e-3,
    4.166_666_666_666_666_4e-2,
    1.666_666_666_666_666_6e-1,
    0.5,
    1.0,
];
/// From this value on, e^x overflows.
const OVERFLOW: f64 = 7.097_827_128_933_84e2;
/// ln 2 in two parts. The upper part has so few bits that its product with an exponent is exact.
const LN2_UPPER: f64 = 0.693_147_180_559_662_956_511_601_805_686_950_683_593_75;
const LN2_LOWER: f64 = 0.282_352_905_630_315_771_225_884_481_750_134_360_255_254_120_68e-12;

/// Returns e to the power of a number. Extracts the nearest power of two, divides the remainder by
/// 16, and doubles the result of the series, minus one, four times. A power of two of 1,024 counts
/// as overflow even if the result would be finite.
pub(crate) fn exp(value: f64) -> f64 {
    if !value.is_finite() {
        return if value == f64::NEG_INFINITY {
            0.0
        } else {
            value
        };
    }
    if value > OVERFLOW {
        return f64::INFINITY;
    }
    let power = (value * std::f64::consts::LOG2_E).round_ties_even();
    // The result underflows to 0.
    if power < f64::from(-BIAS - i32::try_from(FRACTION_BITS).expect("52")) {
        return 0.0;
    }
    let rest = (-LN2_LOWER).mul_add(power, (-LN2_UPPER).mul_add(power, value)) * 0.0625;
    let series = TAYLOR[1..].iter().fold(TAYLOR[0], |sum, &coefficient| {
        sum.mul_add(rest, coefficient)
    });
    // With y = e^x - 1, e^2x - 1 is y (y + 2).
    let mut less_one = rest * series;
    for _ in 0..3 {
        less_one *= less_one + 2.0;
    }
    times_power((less_one + 2.0).mul_add(less_one, 1.0), power as i32)
}

/// Returns a number near 1 times a power of two, in two steps if the result is subnormal.
fn times_power(value: f64, power: i32) -> f64 {
    let power_of_two =
        |stored: i32| f64::from_bits(u64::from(stored.unsigned_abs()) << FRACTION_BITS);
    let stored = power + BIAS;
    match stored {
        0x7ff.. => f64::INFINITY,
        1.. => value * power_of_two(stored),
        _ => value * power_of_two(stored + BIAS - 1) * power_of_two(1),
    }
}

/// Returns 2 to the power of a number.
pub(crate) fn exp2(value: f64) -> f64 {
    const LN2_HIGH: f64 = 6.931_471_803_691_238e-1;
    const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    if value.is_nan() || value == f64::INFINITY {
        return value;
    }
    if value > 1_023.999_999_999_999_9 {
        return f64::INFINITY;
    }
    if value < -1074.0 {
        return 0.0;
    }
    let whole = (value + 0.5_f64.copysign(value)).trunc();
    let rest = value - whole;
    exp_difference(rest * LN2_HIGH, -rest * LN2_LOW, whole as i32)
}

/// Returns e^(`high` - `low`) times 2^`power`, by a polynomial.
fn exp_difference(high: f64, low: f64, power: i32) -> f64 {
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
    ldexp(1.0 - ((low - (r * c) / (2.0 - c)) - high), power)
}
