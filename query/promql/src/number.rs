//! Parser for numbers in Go's syntax: literals, bounds of buckets, texts in templates, parameters
//! of requests.

use std::borrow::Cow;

use crate::quote;

/// Parses a number literal of PromQL: an integer in Go's syntax (decimal, `0x1f`, octal with a
/// leading zero) or what [`parse_float`] parses.
///
/// # Errors
/// The error message of Go's `strconv.ParseFloat`.
pub fn parse_literal(text: &str) -> Result<f64, String> {
    parse_integer(text).map_or_else(|| parse_float(text), |integer| Ok(integer as f64))
}

/// Parses a floating-point number as Go's `strconv.ParseFloat` does: decimal, or hexadecimal with
/// an exponent of 2 (`0x1.8p-1`), with an optional sign, and `_` between digits; `Inf`, `Infinity`
/// and `NaN` in any case.
///
/// # Errors
/// The error message of `strconv.ParseFloat`.
pub fn parse_float(text: &str) -> Result<f64, String> {
    let fail = |why: &str| {
        Err(format!(
            "strconv.ParseFloat: parsing {}: {why}",
            quote::quoted(text)
        ))
    };
    let has_digits = text.bytes().any(|byte| byte.is_ascii_digit());
    let plain = if !text.contains('_') {
        Cow::from(text)
    } else if underscores_separate_digits(text) {
        Cow::from(text.replace('_', ""))
    } else {
        return fail("invalid syntax");
    };
    let unsigned = plain.strip_prefix(['+', '-']).unwrap_or(&plain);
    let value = match unsigned.strip_prefix("0x").or(unsigned.strip_prefix("0X")) {
        Some(_) if unsigned.len() + 1 < plain.len() => None,
        Some(digits) => parse_hexadecimal(digits).map(|value| {
            if plain.starts_with('-') {
                -value
            } else {
                value
            }
        }),
        None => plain.parse().ok(),
    };
    match value {
        Some(value) if f64::is_infinite(value) && has_digits => fail("value out of range"),
        // Go has no NaN with a sign.
        Some(value) if f64::is_nan(value) && text.len() > 3 => fail("invalid syntax"),
        Some(value) => Ok(value),
        None => fail("invalid syntax"),
    }
}

/// Parses a hexadecimal floating-point number after its `0x`: `1.8p-1`. Rounds to the nearest
/// double, ties to even.
fn parse_hexadecimal(text: &str) -> Option<f64> {
    let (digits, exponent) = text.split_once(['p', 'P'])?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if unsigned.is_empty()
        || !unsigned.bytes().all(|byte| byte.is_ascii_digit())
        || whole.len() + fraction.len() == 0
    {
        return None;
    }
    // Higher exponents overflow and lower ones underflow, whatever the digits are.
    let exponent = exponent.parse().unwrap_or(if exponent.starts_with('-') {
        i32::MIN
    } else {
        i32::MAX
    });
    let mut exponent =
        i64::from(exponent.clamp(-EXPONENT_MAX, EXPONENT_MAX)) - 4 * fraction.len() as i64;
    let mut mantissa = 0_u64;
    for c in whole.chars().chain(fraction.chars()) {
        let digit = u64::from(c.to_digit(16)?);
        if mantissa < 1 << 59 {
            mantissa = mantissa << 4 | digit;
        } else {
            // The lowest bit shows that there are further ones.
            mantissa |= u64::from(digit != 0);
            exponent += 4;
        }
    }
    Some(scale(mantissa, exponent))
}

/// Larger than the exponent of any double of a text of this size.
const EXPONENT_MAX: i32 = 1 << 30;

/// Returns `mantissa * 2^exponent`, rounded. The mantissa is below 2^63.
fn scale(mantissa: u64, exponent: i64) -> f64 {
    let width = i64::from(u64::BITS - mantissa.leading_zeros());
    // A subnormal number holds fewer bits.
    let n_bits = (exponent + width + 1074).clamp(-1, 53);
    if mantissa == 0 || n_bits < 0 {
        return 0.0;
    }
    let n_dropped = (width - n_bits).max(0);
    let kept = mantissa >> n_dropped;
    let rest = mantissa & ((1 << n_dropped) - 1);
    let half = (1 << n_dropped) >> 1;
    let rounds_up = n_dropped > 0 && (rest > half || (rest == half && kept & 1 == 1));
    let exponent = (exponent + n_dropped).clamp(-1074, 1024) as i32;
    // Two factors: 2^-1074 alone would be the inverse of infinity.
    let rounded = (kept + u64::from(rounds_up)) as f64;
    rounded * 2.0_f64.powi(exponent / 2) * 2.0_f64.powi(exponent - exponent / 2)
}

fn parse_integer(text: &str) -> Option<i64> {
    let hexadecimal = text.len() > 2 && (text.starts_with("0x") || text.starts_with("0X"));
    let (digits, radix) = match text.as_bytes() {
        _ if hexadecimal => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    if !digits.contains('_') {
        return i64::from_str_radix(digits, radix).ok();
    }
    underscores_separate_digits(text)
        .then(|| i64::from_str_radix(&digits.replace('_', ""), radix).ok())?
}

/// Returns `true` if each `_` is between two digits, or between `0x` and a digit.
fn underscores_separate_digits(text: &str) -> bool {
    let bytes = text.as_bytes();
    let hexadecimal = bytes.len() > 1 && bytes[0] == b'0' && bytes[1].eq_ignore_ascii_case(&b'x');
    let is_digit = |idx: usize| match bytes.get(idx) {
        Some(b'x' | b'X') => hexadecimal && idx == 1,
        Some(byte) if hexadecimal => byte.is_ascii_hexdigit(),
        Some(byte) => byte.is_ascii_digit(),
        None => false,
    };
    (0..bytes.len())
        .filter(|&idx| bytes[idx] == b'_')
        .all(|idx| idx > 0 && is_digit(idx - 1) && is_digit(idx + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_parsed_as_in_go() {
        let check = |text: &str, expect: f64| assert_eq!(parse_literal(text), Ok(expect), "{text}");
        check("0", 0.0);
        check("017", 15.0);
        check("08", 8.0);
        check("0_7", 7.0);
        check("0X_1f", 31.0);
        check("1_000.5", 1000.5);
        check("1.", 1.0);
        check(".5", 0.5);
        check("1E-3", 0.001);
        check("9223372036854775808", 9_223_372_036_854_775_808.0);
        check("iNf", f64::INFINITY);
        check("-Infinity", f64::NEG_INFINITY);
        check("+1_0", 10.0);
        check("0x1p3", 8.0);
        check("-0X.8p1", -1.0);
        check("0x1_0p-4", 1.0);
        check("0x123456789abcdef01p0", 20_988_295_479_420_645_138.0);
        check("0x1.00000000000008p0", 1.0);
        check("0x1.000000000000080000001p0", 1.0 + f64::EPSILON);
        check("0x1.fffffffffffff8p0", 2.0);
        check("0x1p-1074", f64::from_bits(1));
        check("0x1p-1075", 0.0);
        check("0x1.8p-1075", f64::from_bits(1));
        check("0x3p-1075", f64::from_bits(2));
        check("0x1.fffffffffffffp1023", f64::MAX);
        check("0x0p99999999999", 0.0);
        assert!(parse_literal("NAN").is_ok_and(f64::is_nan));
    }

    #[test]
    fn errors_quote_malformed_numbers() {
        let check = |text: &str, why: &str| {
            assert_eq!(
                parse_literal(text),
                Err(format!("strconv.ParseFloat: parsing \"{text}\": {why}"))
            );
        };
        check("1e400", "value out of range");
        check("1_", "invalid syntax");
        check("1_.5", "invalid syntax");
        check("0x", "invalid syntax");
        for malformed in [
            "0x1.8",
            "0xp1",
            "0x1p",
            "0x1p+",
            "0x1p1.5",
            "0x1.8.1p1",
            "+-0x1p1",
            "0x-1p1",
        ] {
            check(malformed, "invalid syntax");
        }
        check("0x1p1024", "value out of range");
        check("-0x1p99999999999", "value out of range");
        check("0xfffffffffffffffff", "invalid syntax");
        check(".5.", "invalid syntax");
        check("-nan", "invalid syntax");
        check("", "invalid syntax");
    }
}
