//! Trigonometric functions and their inverses.

use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, PI};

use super::parts::{BIAS, FRACTION_BITS, exponent, polynomial};

const SINE: [f64; 6] = [
    1.589_623_015_765_465_7e-10,
    -2.505_074_776_285_780_7e-8,
    2.755_731_362_138_572_2e-6,
    -1.984_126_982_958_954e-4,
    8.333_333_333_322_119e-3,
    -1.666_666_666_666_663e-1,
];
const COSINE: [f64; 6] = [
    -1.135_853_652_138_768_2e-11,
    2.087_570_084_197_473e-9,
    -2.755_731_417_929_674e-7,
    2.480_158_728_885_170_5e-5,
    -1.388_888_888_887_305_6e-3,
    4.166_666_666_666_659_5e-2,
];

/// An angle as an even octant and a remainder of at most pi/4 around 0.
#[derive(Debug, Clone, Copy)]
struct Reduced {
    octant: u64,
    rest: f64,
}

impl Reduced {
    fn sine_of_rest(self) -> f64 {
        let square = self.rest * self.rest;
        self.rest + self.rest * square * polynomial(square, &SINE)
    }

    fn cosine_of_rest(self) -> f64 {
        let square = self.rest * self.rest;
        1.0 - 0.5 * square + square * square * polynomial(square, &COSINE)
    }

    /// Returns `true` if sine and cosine are swapped.
    fn is_turned(self) -> bool {
        self.octant & 2 == 2
    }

    fn is_in_lower_half(self) -> bool {
        self.octant & 4 == 4
    }
}

/// Sine.
pub(crate) fn sin(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return if value.is_infinite() { f64::NAN } else { value };
    }
    let reduced = reduce(value.abs());
    let size = if reduced.is_turned() {
        reduced.cosine_of_rest()
    } else {
        reduced.sine_of_rest()
    };
    if (value < 0.0) != reduced.is_in_lower_half() {
        -size
    } else {
        size
    }
}

/// Cosine.
pub(crate) fn cos(value: f64) -> f64 {
    if !value.is_finite() {
        return f64::NAN;
    }
    let reduced = reduce(value.abs());
    let size = if reduced.is_turned() {
        reduced.sine_of_rest()
    } else {
        reduced.cosine_of_rest()
    };
    if reduced.is_turned() != reduced.is_in_lower_half() {
        -size
    } else {
        size
    }
}

/// Tangent.
pub(crate) fn tan(value: f64) -> f64 {
    const P: [f64; 3] = [
        -1.309_369_391_813_837_8e4,
        1.153_516_648_385_874_2e6,
        -1.795_652_519_764_848_8e7,
    ];
    const Q: [f64; 5] = [
        1.0,
        1.368_129_634_706_929_6e4,
        -1.320_892_344_402_109_7e6,
        2.500_838_018_233_579e7,
        -5.386_957_559_294_546_4e7,
    ];
    if value == 0.0 || !value.is_finite() {
        return if value.is_infinite() { f64::NAN } else { value };
    }
    let reduced = reduce(value.abs());
    let z = reduced.rest;
    let square = z * z;
    let tangent = if square > 1e-14 {
        z + z * (square * polynomial(square, &P) / polynomial(square, &Q))
    } else {
        z
    };
    let size = if reduced.is_turned() {
        -1.0 / tangent
    } else {
        tangent
    };
    if value < 0.0 { -size } else { size }
}

/// From this angle on, reduction needs more bits of pi than three floats hold.
const LARGE: f64 = (1_u64 << 29) as f64;
/// pi/4 in three parts. Products of the parts with the octants of angles below `LARGE` are exact.
const FRAC_PI_4_PARTS: [f64; 3] = [
    7.853_981_256_484_985e-1,
    3.774_894_707_930_798e-8,
    2.695_151_429_079_059_5e-15,
];

/// Reduces a finite, non-negative angle by whole octants.
fn reduce(angle: f64) -> Reduced {
    if angle >= LARGE {
        return reduce_large(angle);
    }
    let octant = (angle * (4.0 / PI)) as u64;
    let octant = octant + (octant & 1);
    let n_octants = octant as f64;
    let rest = FRAC_PI_4_PARTS
        .iter()
        .fold(angle, |rest, part| rest - n_octants * part);
    Reduced {
        octant: octant & 7,
        rest,
    }
}

/// 4/pi in digits of 64 bits. The point is after the first digit.
const FOUR_OVER_PI: [u64; 20] = [
    0x0000_0000_0000_0001,
    0x45f3_06dc_9c88_2a53,
    0xf84e_afa3_ea69_bb81,
    0xb6c5_2b32_7887_2083,
    0xfca2_c757_bd77_8ac3,
    0x6e48_dc74_849b_a5c0,
    0x0c92_5dd4_13a3_2439,
    0xfc3b_d639_6253_4e7d,
    0xd104_6bea_5d76_8909,
    0xd338_e04d_68be_fc82,
    0x7323_ac73_06a6_73e9,
    0x3908_bf17_7bf2_5076,
    0x3ff1_2fff_bc0b_301f,
    0xde5e_2316_b414_da3e,
    0xda6c_fd9e_4f96_136e,
    0x9e8c_7ecd_3cbf_d45a,
    0xea4f_758f_d7cb_e2f6,
    0x7a0e_73ef_14a5_25d4,
    0xd7f6_bf62_3f1a_ba10,
    0xac06_608d_f8f6_d757,
];

/// Reduces a large angle by multiplying it with the relevant digits of 4/pi (Payne-Hanek
/// reduction).
fn reduce_large(angle: f64) -> Reduced {
    let bits = angle.to_bits();
    let mantissa = bits & ((1 << FRACTION_BITS) - 1) | 1 << FRACTION_BITS;
    let first_bit = (exponent(bits) - 52 + 61).unsigned_abs() as usize;
    let digit = first_bit / 64;
    let shift = first_bit % 64;
    // A shift by 64 gives 0, as in Go.
    let digit_at = |i: usize| {
        FOUR_OVER_PI[digit + i] << shift
            | FOUR_OVER_PI[digit + i + 1]
                .checked_shr(64 - shift as u32)
                .unwrap_or(0)
    };
    let wide = |digit: u64| u128::from(digit) * u128::from(mantissa);
    let product = (wide(digit_at(0)) << 64)
        .wrapping_add(wide(digit_at(1)))
        .wrapping_add(wide(digit_at(2)) >> 64);
    let octant = (product >> 125) as u64;
    let fraction = fraction_of((product << 3 >> 64) as u64, product as u64);
    let (octant, fraction) = if octant & 1 == 1 {
        ((octant + 1) & 7, fraction - 1.0)
    } else {
        (octant, fraction)
    };
    Reduced {
        octant,
        rest: fraction * FRAC_PI_4,
    }
}

/// Converts 128 bits to a binary fraction, truncated to the precision of a float. As in Go, `low`
/// starts with the last three bits of `high`.
fn fraction_of(high: u64, low: u64) -> f64 {
    let leading = high.leading_zeros();
    let bits = u128::from(high) << 64 | u128::from(low);
    let fraction = (bits << (leading + 1) >> (128 - FRACTION_BITS)) as u64;
    let stored = u64::from(BIAS.unsigned_abs() - (leading + 1));
    f64::from_bits(stored << FRACTION_BITS | fraction)
}

/// Converts radians to degrees.
pub(crate) fn deg(angle: f64) -> f64 {
    angle * (180.0 / PI)
}

/// Converts degrees to radians.
pub(crate) fn rad(angle: f64) -> f64 {
    angle * (PI / 180.0)
}

/// Arc sine.
pub(crate) fn asin(value: f64) -> f64 {
    if value == 0.0 {
        return value;
    }
    let size = value.abs();
    if size > 1.0 {
        return f64::NAN;
    }
    let other = (1.0 - size * size).sqrt();
    let angle = if size > 0.7 {
        FRAC_PI_2 - atan_of_positive(other / size)
    } else {
        atan_of_positive(size / other)
    };
    if value < 0.0 { -angle } else { angle }
}

/// Arc cosine.
pub(crate) fn acos(value: f64) -> f64 {
    FRAC_PI_2 - asin(value)
}

/// Arc tangent.
pub(crate) fn atan(value: f64) -> f64 {
    if value == 0.0 {
        value
    } else if value > 0.0 {
        atan_of_positive(value)
    } else {
        -atan_of_positive(-value)
    }
}

/// Returns the angle of a point, from -pi to pi.
pub(crate) fn atan2(y: f64, x: f64) -> f64 {
    if y.is_nan() || x.is_nan() {
        return f64::NAN;
    }
    if y == 0.0 || x == 0.0 || y.is_infinite() || x.is_infinite() {
        return on_axis_or_diagonal(y, x).copysign(y);
    }
    let angle = atan(y / x);
    if x >= 0.0 {
        angle
    } else if angle <= 0.0 {
        angle + PI
    } else {
        angle - PI
    }
}

/// Returns the absolute angle of a point on an axis or at infinity.
fn on_axis_or_diagonal(y: f64, x: f64) -> f64 {
    if y != 0.0 && x != 0.0 && x.is_infinite() == y.is_infinite() {
        return if x > 0.0 { FRAC_PI_4 } else { 3.0 * PI / 4.0 };
    }
    if y == 0.0 || x.is_infinite() {
        return if x.is_sign_negative() { PI } else { 0.0 };
    }
    FRAC_PI_2
}

fn atan_of_positive(value: f64) -> f64 {
    /// The rounding error of pi/2 as a float.
    const FRAC_PI_2_REST: f64 = 6.123_233_995_736_766e-17;
    const TAN_3_PI_8: f64 = 2.414_213_562_373_095;
    if value <= 0.66 {
        atan_of_small(value)
    } else if value > TAN_3_PI_8 {
        FRAC_PI_2 - atan_of_small(1.0 / value) + FRAC_PI_2_REST
    } else {
        FRAC_PI_4 + atan_of_small((value - 1.0) / (value + 1.0)) + 0.5 * FRAC_PI_2_REST
    }
}

/// Arc tangent of a number that is at most 0.66.
fn atan_of_small(value: f64) -> f64 {
    const P: [f64; 5] = [
        -8.750_608_600_031_904e-1,
        -1.615_753_718_733_365_2e1,
        -7.500_855_792_314_705e1,
        -1.228_866_684_490_136_1e2,
        -6.485_021_904_942_025e1,
    ];
    const Q: [f64; 6] = [
        1.0,
        2.485_846_490_142_306_2e1,
        1.650_270_098_316_988_6e2,
        4.328_810_604_912_902_7e2,
        4.853_903_996_359_137e2,
        1.945_506_571_482_614e2,
    ];
    let square = value * value;
    value * (square * polynomial(square, &P) / polynomial(square, &Q)) + value
}
