//! Durations in Prometheus' syntax: `1h30m`, `100ms`.

use std::fmt::{self, Write};

use super::quote;

/// The units in milliseconds, from longest to shortest. In a duration, each unit occurs at most
/// once, in this order.
const UNITS: [(&str, u64); 7] = [
    ("y", 365 * 24 * 3_600_000),
    ("w", 7 * 24 * 3_600_000),
    ("d", 24 * 3_600_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// Maximum duration in milliseconds. It is less than 2^63 nanoseconds, about 292 years.
const MILLISECONDS_MAX: u64 = (i64::MAX / 1_000_000) as u64;

/// Parses a duration such as `1h30m`, or `0`, in milliseconds.
///
/// # Errors
/// The error message of Prometheus' `ParseDuration`.
pub fn parse_duration(text: &str) -> Result<i64, String> {
    match text {
        "0" => Ok(0),
        "" => Err("empty duration string".to_owned()),
        _ => parse(text).map(|milliseconds| milliseconds as i64),
    }
}

/// Prints a duration in milliseconds, without units that are zero: `1h30m`.
#[must_use]
pub fn print_duration(milliseconds: i64) -> String {
    let mut text = String::new();
    write(&mut text, milliseconds).expect("writing to a string cannot fail");
    text
}

/// Parses a duration literal, in milliseconds.
///
/// # Errors
/// The error message of Prometheus' `ParseDuration`.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let malformed = || format!("not a valid duration string: {}", quote::quoted(text));
    let mut total = 0_u64;
    let mut units = UNITS.iter();
    let mut rest = text;
    while !rest.is_empty() {
        let (number, unit, after) = split_number_and_unit(rest);
        let number: u64 = number.parse().map_err(|_| malformed())?;
        if unit.is_empty() {
            return Err(malformed());
        }
        if UNITS.iter().all(|&(name, _)| name != unit) {
            return Err(format!(
                "unknown unit {} in duration {}",
                quote::quoted(unit),
                quote::quoted(text)
            ));
        }
        let &(_, milliseconds) = units
            .find(|&&(name, _)| name == unit)
            .ok_or_else(malformed)?;
        total = number.saturating_mul(milliseconds).saturating_add(total);
        if total > MILLISECONDS_MAX {
            return Err("duration out of range".to_owned());
        }
        rest = after;
    }
    Ok(total)
}

/// Converts milliseconds to seconds, with the rounding of Go's `Duration.Seconds`.
#[inline]
#[must_use]
pub fn seconds(duration_ms: i64) -> f64 {
    (duration_ms / 1000) as f64 + (duration_ms % 1000 * 1_000_000) as f64 / 1e9
}

fn split_number_and_unit(text: &str) -> (&str, &str, &str) {
    let unit_start = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, rest) = text.split_at(unit_start);
    let unit_end = rest
        .find(|c: char| c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(unit_end);
    (number, unit, rest)
}

/// Writes a duration. Uses years and weeks only if there is no remainder: `90d`, not `12w6d`.
pub(crate) fn write(out: &mut dyn Write, milliseconds: i64) -> fmt::Result {
    if milliseconds == 0 {
        return out.write_str("0s");
    }
    if milliseconds < 0 {
        out.write_char('-')?;
    }
    let mut rest = milliseconds.unsigned_abs();
    for (unit, length) in UNITS {
        let only_whole = matches!(unit, "y" | "w");
        if rest < length || (only_whole && !rest.is_multiple_of(length)) {
            continue;
        }
        write!(out, "{}{unit}", rest / length)?;
        rest %= length;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_unit_by_unit() {
        assert_eq!(
            parse("1y2w3d4h5m6s7ms"),
            Ok(((((365 + 14 + 3) * 24 + 4) * 60 + 5) * 60 + 6) * 1000 + 7)
        );
        assert_eq!(parse("90d"), Ok(90 * 86_400_000));
        assert_eq!(parse("0s"), Ok(0));
    }

    #[test]
    fn errors_quote_malformed_durations() {
        let check = |text: &str, expect: &str| assert_eq!(parse(text), Err(expect.to_owned()));
        check("1.5h", r#"unknown unit "." in duration "1.5h""#);
        check("1m1h", r#"not a valid duration string: "1m1h""#);
        check("1s1s", r#"not a valid duration string: "1s1s""#);
        check("5", r#"not a valid duration string: "5""#);
        check("300y", "duration out of range");
        check(
            "99999999999999999999y",
            r#"not a valid duration string: "99999999999999999999y""#,
        );
    }

    #[test]
    fn years_and_weeks_are_printed_only_without_a_remainder() {
        let check =
            |milliseconds: i64, expect: &str| assert_eq!(print_duration(milliseconds), expect);
        check(0, "0s");
        check(5_400_000, "1h30m");
        check(90 * 86_400_000, "90d");
        check(14 * 86_400_000, "2w");
        check(366 * 86_400_000, "366d");
        check(365 * 86_400_000, "1y");
        check(1001, "1s1ms");
        check(-300_000, "-5m");
        check(i64::MIN, "-106751991167d7h12m55s808ms");
    }
}
