//! Parser for numbers in Go's syntax: literals, bounds of buckets, texts in templates, parameters of requests.

use crate::promql::quote;

/// Parses a number literal of PromQL: an integer in Go's syntax (decimal, `0x1f`, octal with a leading zero) or what
/// [`parse_float`] parses.
///
/// # Errors
/// The error message of Go's `strconv.ParseFloat`.
pub(crate) fn parse_literal(text: &str) -> Result<f64, String> {
    parse_integer(text).map_or_else(|| parse_float(text), |integer| Ok(integer as f64))
}

/// Parses a decimal floating-point number with an optional sign, and `_` between digits; `Inf`, `Infinity` and `NaN`
/// in any case. Unlike Go's `strconv.ParseFloat`, it rejects hexadecimal floating-point numbers.
///
/// # Errors
/// The error message of `strconv.ParseFloat`.
pub fn parse_float(text: &str) -> Result<f64, String> {
    let fail = |why: &str| Err(format!("strconv.ParseFloat: parsing {}: {why}", quote::quoted(text)));
    let has_digits = text.bytes().any(|byte| byte.is_ascii_digit());
    let value = match text.contains('_') {
        true if !underscores_separate_digits(text) => return fail("invalid syntax"),
        true => text.replace('_', "").parse(),
        false => text.parse(),
    };
    match value {
        Ok(value) if f64::is_infinite(value) && has_digits => fail("value out of range"),
        // Go has no NaN with a sign.
        Ok(value) if f64::is_nan(value) && text.len() > 3 => fail("invalid syntax"),
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

/// Returns `true` if each `_` is between two digits, or between `0x` and a digit.
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
        assert!(parse_literal("NAN").is_ok_and(f64::is_nan));
    }

    #[test]
    fn errors_quote_malformed_numbers() {
        let check = |text: &str, why: &str| {
            assert_eq!(parse_literal(text), Err(format!("strconv.ParseFloat: parsing \"{text}\": {why}")));
        };
        check("1e400", "value out of range");
        check("1_", "invalid syntax");
        check("1_.5", "invalid syntax");
        check("0x", "invalid syntax");
        check("0xfffffffffffffffff", "invalid syntax");
        check(".5.", "invalid syntax");
        check("-nan", "invalid syntax");
        check("", "invalid syntax");
    }
}
