//! Numbers: Go's way of reading and printing them.

use std::fmt::{self, Write};

use super::quote;
use crate::decimal::{Digits, General, Plain, write_special};

/// Returns the value of a number as PromQL writes it: an integer in Go's syntax (decimal, `0x1f`, octal with a leading
/// zero) or else a decimal floating-point number; `_` between digits; `Inf` and `NaN` in any case.
///
/// # Errors
/// The message of Go's `strconv.ParseFloat`.
pub(super) fn parse(text: &str) -> Result<f64, String> {
    if let Some(integer) = parse_integer(text) {
        return Ok(integer as f64);
    }
    let fail = |why: &str| Err(format!("strconv.ParseFloat: parsing {}: {why}", quote::quoted(text)));
    let value = match text.contains('_') {
        true if !underscores_separate_digits(text) => return fail("invalid syntax"),
        true => text.replace('_', "").parse(),
        false => text.parse(),
    };
    match value {
        Ok(value) if f64::is_infinite(value) && !text.eq_ignore_ascii_case("inf") => fail("value out of range"),
        Ok(value) => Ok(value),
        Err(_) => fail("invalid syntax"),
    }
}

fn parse_integer(text: &str) -> Option<i64> {
    let hexadecimal = text.len() > 2 && (text.starts_with("0x") || text.starts_with("0X"));
    let (digits, radix) = match text.as_bytes() {
        _ if hexadecimal => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    if !digits.contains('_') {
        return i64::from_str_radix(digits, radix).ok();
    }
    underscores_separate_digits(text).then(|| i64::from_str_radix(&digits.replace('_', ""), radix).ok())?
}

/// Tells whether each `_` stands between two digits, or between `0x` and a digit.
fn underscores_separate_digits(text: &str) -> bool {
    let bytes = text.as_bytes();
    let hexadecimal = bytes.len() > 1 && bytes[0] == b'0' && bytes[1].eq_ignore_ascii_case(&b'x');
    let is_digit = |at: usize| match bytes.get(at) {
        Some(b'x' | b'X') => hexadecimal && at == 1,
        Some(byte) if hexadecimal => byte.is_ascii_hexdigit(),
        Some(byte) => byte.is_ascii_digit(),
        None => false,
    };
    (0..bytes.len()).filter(|&at| bytes[at] == b'_').all(|at| at > 0 && is_digit(at - 1) && is_digit(at + 1))
}

/// Returns a number as [`write`] writes it.
pub(crate) fn plain(value: f64) -> String {
    printed(|out| write(out, value))
}

/// Returns a number as [`write_short`] writes it.
pub(crate) fn short(value: f64) -> String {
    printed(|out| write_short(out, value))
}

/// Returns a number with two significant digits (Go's `%.2g`).
pub(crate) fn two_digits(value: f64) -> String {
    let rounded: f64 = format!("{value:.1e}").parse().unwrap_or(value);
    printed(|out| write_general(out, rounded, 2))
}

/// Returns a number as the OpenMetrics format has it: as [`short`], with `.0` behind integers.
pub(crate) fn open_metrics(value: f64) -> String {
    let text = short(value);
    if value.is_finite() && !text.contains(['e', '.']) { text + ".0" } else { text }
}

fn printed(write: impl Fn(&mut String) -> fmt::Result) -> String {
    let mut out = String::new();
    let _ = write(&mut out);
    out
}

/// Writes a number without an exponent, with as many digits as tell it from its neighbours (Go's `'f', -1`).
pub(super) fn write(out: &mut dyn Write, value: f64) -> fmt::Result {
    write!(out, "{}", Plain(value))
}

/// Writes a number with an exponent where that is much shorter (Go's `%v` and `%g`).
pub(super) fn write_short(out: &mut dyn Write, value: f64) -> fmt::Result {
    write!(out, "{}", General(value))
}

/// Writes a number with an exponent if that is below -4, or `exponent_end` and more.
fn write_general(out: &mut dyn Write, value: f64, exponent_end: i32) -> fmt::Result {
    match Digits::of(value) {
        Some(digits) if (-4..exponent_end).contains(&digits.exponent()) => digits.write_plain(out),
        Some(digits) => digits.write_exponent(out),
        None => write_special(out, value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_in_go() {
        let check = |text: &str, expect: f64| assert_eq!(parse(text), Ok(expect), "{text}");
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
        assert!(parse("NAN").is_ok_and(f64::is_nan));
    }

    #[test]
    fn malformed_numbers_are_named() {
        let check = |text: &str, why: &str| {
            assert_eq!(parse(text), Err(format!("strconv.ParseFloat: parsing \"{text}\": {why}")));
        };
        check("1e400", "value out of range");
        check("1_", "invalid syntax");
        check("1_.5", "invalid syntax");
        check("0x", "invalid syntax");
        check("0xfffffffffffffffff", "invalid syntax");
        check(".5.", "invalid syntax");
    }

    #[test]
    fn numbers_are_printed_as_in_go() {
        let check = |value: f64, expect_long: &str, expect_short: &str| {
            assert_eq!((plain(value).as_str(), short(value).as_str()), (expect_long, expect_short));
        };
        check(0.1, "0.1", "0.1");
        check(-0.0, "-0", "-0");
        check(1e6, "1000000", "1e+06");
        check(123_456.0, "123456", "123456");
        check(1.5e-5, "0.000015", "1.5e-05");
        check(1e23, "100000000000000000000000", "1e+23");
        check(f64::INFINITY, "+Inf", "+Inf");
        check(f64::NEG_INFINITY, "-Inf", "-Inf");
        check(f64::NAN, "NaN", "NaN");
    }

    #[test]
    fn annotations_and_labels_have_forms_of_their_own() {
        let check = |value: f64, two: &str, open: &str| {
            assert_eq!((two_digits(value).as_str(), open_metrics(value).as_str()), (two, open));
        };
        check(1.0, "1", "1.0");
        check(0.25, "0.25", "0.25");
        check(123_456.0, "1.2e+05", "123456.0");
        check(1e6, "1e+06", "1e+06");
        check(20.0, "20", "20.0");
        check(-0.0, "-0", "-0.0");
        check(f64::NEG_INFINITY, "-Inf", "-Inf");
    }
}
