//! Floats as text, exactly as Go formats them.
//!
//! All formats write the shortest number that parses to the same float. Among several such numbers,
//! the closest one is used, and in a tie the one with an even last digit. Rust does not handle ties
//! like this: it formats 2e14 + 5/8 as `200000000000000.63`, Go as `200000000000000.62`.

use std::fmt::{self, Display, Formatter};
use std::ops::Range;

/// Formats as Go's `'f', -1`: never with an exponent.
#[derive(Debug, Clone, Copy)]
pub struct Plain(pub f64);

/// Formats as Go's `'g', -1` and `%v`: with an exponent below 1e-4 and from 1e6 on.
#[derive(Debug, Clone, Copy)]
pub struct General(pub f64);

/// Formats as Go's `'e', -1`: with an exponent.
#[derive(Debug, Clone, Copy)]
pub struct Scientific(pub f64);

/// Formats as sample values in Prometheus' JSON: with an exponent below 1e-6 and from 1e21 on.
#[derive(Debug, Clone, Copy)]
pub struct Json(pub f64);

/// Maximum number of digits needed to identify a float.
const DIGITS_MAX: usize = 17;
/// Integers below this are exact as floats, so they are formatted as integers.
const INTEGERS_EXACT_BELOW: f64 = (1u64 << 53) as f64;

/// The digits of a finite float that is not zero: `0.d1d2d3... * 10^point`.
#[derive(Debug)]
struct Digits {
    text: [u8; DIGITS_MAX],
    len: usize,
    point: i32,
    is_negative: bool,
}

impl Digits {
    /// Returns the digits of `value`; `None` for zero, infinities and NaN.
    fn of(value: f64) -> Option<Self> {
        if value == 0.0 || !value.is_finite() {
            return None;
        }
        let mut buffer = zmij::Buffer::new();
        let printed = buffer.format_finite(value.abs()).as_bytes();
        let mut text = [0; DIGITS_MAX];
        let mut len = 0;
        let mut point = None;
        let mut exponent = 0;
        let mut n_leading = 0;
        for (at, &byte) in printed.iter().enumerate() {
            match byte {
                b'.' => point = Some(at),
                b'e' => {
                    exponent = parse_exponent(&printed[at + 1..]);
                    point = point.or(Some(at));
                    break;
                }
                b'0' if len == 0 => n_leading += 1,
                // Trailing zeros are not stored: there may be more of them than fit.
                digit if len < DIGITS_MAX => {
                    text[len] = digit;
                    len += 1;
                }
                _ => {}
            }
        }
        let n_before_point = point.unwrap_or(printed.len());
        // `0.001` has three leading zeros, one of them before the point.
        let point = n_before_point as i32 - n_leading + exponent;
        while len > 1 && text[len - 1] == b'0' {
            len -= 1;
        }
        Some(Self {
            text,
            len,
            point,
            is_negative: value < 0.0,
        })
    }

    /// Returns the decimal exponent of the first digit.
    fn exponent(&self) -> i32 {
        self.point - 1
    }

    fn digits(&self) -> &str {
        std::str::from_utf8(&self.text[..self.len]).expect("digits are ASCII")
    }

    /// Writes the number without an exponent.
    fn write_plain(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        self.write_sign(out)?;
        let digits = self.digits();
        match usize::try_from(self.point) {
            Err(_) => write_zeros(out, "0.", self.point.unsigned_abs() as usize)
                .and_then(|()| out.write_str(digits)),
            Ok(0) => write_zeros(out, "0.", 0).and_then(|()| out.write_str(digits)),
            Ok(point) if point >= digits.len() => write_zeros(out, digits, point - digits.len()),
            Ok(point) => {
                let (whole, fraction) = digits.split_at(point);
                out.write_str(whole)?;
                out.write_str(".")?;
                out.write_str(fraction)
            }
        }
    }

    /// Writes the number with an exponent of at least two digits.
    fn write_exponent(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        self.write_sign(out)?;
        let (first, rest) = self.digits().split_at(1);
        out.write_str(first)?;
        if !rest.is_empty() {
            out.write_str(".")?;
            out.write_str(rest)?;
        }
        let exponent = self.exponent();
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(out, "e{sign}{:02}", exponent.unsigned_abs())
    }

    fn write_sign(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        if self.is_negative {
            out.write_str("-")
        } else {
            Ok(())
        }
    }
}

fn parse_exponent(text: &[u8]) -> i32 {
    std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok())
        .expect("an exponent follows the e")
}

/// Writes a string followed by zeros.
fn write_zeros(out: &mut dyn fmt::Write, text: &str, mut n_zeros: usize) -> fmt::Result {
    const ZEROS: &str = "00000000000000000000000000000000";
    out.write_str(text)?;
    while n_zeros > 0 {
        let n = n_zeros.min(ZEROS.len());
        out.write_str(&ZEROS[..n])?;
        n_zeros -= n;
    }
    Ok(())
}

/// Writes values without digits: zero, infinities and NaN.
fn write_special(out: &mut dyn fmt::Write, value: f64) -> fmt::Result {
    out.write_str(match value {
        f64::INFINITY => "+Inf",
        f64::NEG_INFINITY => "-Inf",
        _ if value.is_nan() => "NaN",
        _ if value.is_sign_negative() => "-0",
        _ => "0",
    })
}

/// Values whose absolute value is in this range are formatted without an exponent by `zmij`, as by
/// Go.
const PLAIN_IN_ZMIJ: Range<f64> = 1e-5..1e16;

/// Returns the text of `value`, or `None` if it is an integer or outside [`PLAIN_IN_ZMIJ`].
fn as_fraction(value: f64, buffer: &mut zmij::Buffer) -> Option<&str> {
    let is_fraction = PLAIN_IN_ZMIJ.contains(&value.abs()) && value as i64 as f64 != value;
    is_fraction.then(|| buffer.format_finite(value))
}

/// Returns the integer with the same digits as `value`, or `None` if there is none.
fn as_integer(value: f64) -> Option<i64> {
    let integer = value as i64;
    let is_exact = integer as f64 == value && value.abs() < INTEGERS_EXACT_BELOW;
    (is_exact && value.to_bits() != (-0.0f64).to_bits()).then_some(integer)
}

impl Display for Plain {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // Fast path: integers, which most samples are.
        if let Some(integer) = as_integer(self.0) {
            return Display::fmt(&integer, f);
        }
        // Fast path: most other samples.
        if let Some(fraction) = as_fraction(self.0, &mut zmij::Buffer::new()) {
            return f.write_str(fraction);
        }
        match Digits::of(self.0) {
            Some(digits) => digits.write_plain(f),
            None => write_special(f, self.0),
        }
    }
}

impl Display for General {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_general(f, self.0, 6)
    }
}

/// Writes a number. Uses an exponent if it is less than -4 or at least `exponent_end`.
fn write_general(out: &mut dyn fmt::Write, value: f64, exponent_end: i32) -> fmt::Result {
    match Digits::of(value) {
        Some(digits) if (-4..exponent_end).contains(&digits.exponent()) => digits.write_plain(out),
        Some(digits) => digits.write_exponent(out),
        None => write_special(out, value),
    }
}

/// Formats a number with two significant digits (Go's `%.2g`).
#[must_use]
pub fn two_digits(value: f64) -> String {
    let rounded: f64 = format!("{value:.1e}").parse().unwrap_or(value);
    let mut out = String::new();
    write_general(&mut out, rounded, 2).expect("writing to a string cannot fail");
    out
}

/// Formats a number as in OpenMetrics: like [`General`], but with `.0` after integers.
#[must_use]
pub fn open_metrics(value: f64) -> String {
    let text = General(value).to_string();
    if value.is_finite() && !text.contains(['e', '.']) {
        text + ".0"
    } else {
        text
    }
}

/// Appends a number as [`Json`] formats it.
pub fn write_json(out: &mut Vec<u8>, value: f64) {
    // Fast paths without the formatting of `std`, which takes longer than the digits.
    if let Some(integer) = as_integer(value) {
        out.extend_from_slice(itoa::Buffer::new().format(integer).as_bytes());
    } else if let Some(fraction) = as_fraction(value, &mut zmij::Buffer::new()) {
        out.extend_from_slice(fraction.as_bytes());
    } else {
        out.extend_from_slice(Json(value).to_string().as_bytes());
    }
}

impl Display for Json {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0 == 0.0 || (1e-6..1e21).contains(&self.0.abs()) {
            return Plain(self.0).fmt(f);
        }
        match Digits::of(self.0) {
            Some(digits) => digits.write_exponent(f),
            None => write_special(f, self.0),
        }
    }
}

impl Display for Scientific {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match Digits::of(self.0) {
            Some(digits) => digits.write_exponent(f),
            None if self.0 == 0.0 => f.write_str(if self.0.is_sign_negative() {
                "-0e+00"
            } else {
                "0e+00"
            }),
            None => write_special(f, self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(value: f64, plain: &str, json: &str) {
        assert_eq!(
            (
                Plain(value).to_string().as_str(),
                Json(value).to_string().as_str()
            ),
            (plain, json),
            "{value:e}"
        );
    }

    #[test]
    fn floats_are_formatted_as_in_go() {
        check(0.0, "0", "0");
        check(-0.0, "-0", "-0");
        check(-42.0, "-42", "-42");
        check(0.1, "0.1", "0.1");
        check(-1.5e-6, "-0.0000015", "-0.0000015");
        check(9.99e-7, "0.000000999", "9.99e-07");
        check(9007199254740993.0, "9007199254740992", "9007199254740992");
        check(1e20, "100000000000000000000", "100000000000000000000");
        check(-1.5e21, "-1500000000000000000000", "-1.5e+21");
        check(1.0 / 3.0, "0.3333333333333333", "0.3333333333333333");
        check(
            f64::MAX,
            &format!("17976931348623157{}", "0".repeat(292)),
            "1.7976931348623157e+308",
        );
        check(5e-324, &format!("0.{}5", "0".repeat(323)), "5e-324");
        check(f64::INFINITY, "+Inf", "+Inf");
        check(f64::NEG_INFINITY, "-Inf", "-Inf");
        check(f64::NAN, "NaN", "NaN");
    }

    /// Prometheus' output for floats halfway between two shortest numbers.
    #[test]
    fn ties_are_formatted_with_an_even_last_digit() {
        for (value, expect) in TIES {
            assert_eq!(Plain(value).to_string(), expect);
        }
    }

    #[test]
    fn scientific_floats_have_an_exponent() {
        for (value, expect) in [
            (0.0, "0e+00"),
            (-0.0, "-0e+00"),
            (1.0, "1e+00"),
            (-1234.5, "-1.2345e+03"),
            (2e14 + 0.625, "2.0000000000000062e+14"),
            (f64::INFINITY, "+Inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(Scientific(value).to_string(), expect);
        }
    }

    const TIES: [(f64, &str); 9] = [
        (2e14 + 0.625, "200000000000000.62"),
        (2e14 + 0.875, "200000000000000.88"),
        (f64::from_bits(0x4319_26b1_a4fe_64d5), "1769854709242165.2"),
        (f64::from_bits(0x4311_b7b3_8a3c_3503), "1246764087577920.8"),
        (f64::from_bits(0x4313_9abe_0329_602b), "1379541361252362.8"),
        (f64::from_bits(0x431f_0e42_5975_00ff), "2185350602375231.8"),
        (f64::from_bits(0x4310_a34e_ba7f_42b1), "1170789539762348.2"),
        (f64::from_bits(0x4314_4eee_7306_47d5), "1429071393296885.2"),
        (f64::from_bits(0x431d_34b9_4558_ee17), "2055186165414789.8"),
    ];

    #[test]
    fn the_general_format_has_an_exponent_if_that_is_shorter() {
        for (value, expect) in [
            (1e6, "1e+06"),
            (1.5e-5, "1.5e-05"),
            (123_456.0, "123456"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1e23, "1e+23"),
            (1_234_567.0, "1.234567e+06"),
            (-0.0, "-0"),
        ] {
            assert_eq!(General(value).to_string(), expect);
        }
    }

    #[test]
    fn annotations_and_labels_have_their_own_formats() {
        let check = |value: f64, two: &str, open: &str| {
            assert_eq!(
                (two_digits(value).as_str(), open_metrics(value).as_str()),
                (two, open)
            );
        };
        check(1.0, "1", "1.0");
        check(0.25, "0.25", "0.25");
        check(123_456.0, "1.2e+05", "123456.0");
        check(1e6, "1e+06", "1e+06");
        check(20.0, "20", "20.0");
        check(-0.0, "-0", "-0.0");
        check(f64::NEG_INFINITY, "-Inf", "-Inf");
    }

    proptest! {
        #[test]
        fn any_float_parses_to_the_same_bits(bits: u64) {
            let value = f64::from_bits(bits);
            for text in [Plain(value).to_string(), General(value).to_string(), Json(value).to_string()] {
                let back: f64 = text.parse().unwrap();
                prop_assert!(back.to_bits() == bits || back.is_nan() && value.is_nan(), "{}", text);
            }
        }

        #[test]
        fn fast_paths_change_no_format(
            value in prop_oneof![any::<f64>(), -1e20..1e20, -1.0..1.0, (-1e4..1e4).prop_map(f64::round)],
        ) {
            let mut written = Vec::new();
            write_json(&mut written, value);
            prop_assert_eq!(String::from_utf8(written).unwrap(), Json(value).to_string());
            if let Some(digits) = Digits::of(value) {
                let mut plain = String::new();
                digits.write_plain(&mut plain).unwrap();
                prop_assert_eq!(plain, Plain(value).to_string());
            }
        }

        /// The number of digits is that of Rust.
        #[test]
        fn no_format_has_more_digits_than_needed(bits: u64) {
            let value = f64::from_bits(bits);
            prop_assume!(value.is_finite());
            let n_digits = |text: &str| text.bytes().filter(u8::is_ascii_digit).count();
            prop_assert_eq!(n_digits(&Plain(value).to_string()), n_digits(&format!("{value}")));
        }
    }
}
