//! Times and durations of requests and commands, parsed as in Go.
//!
//! A time is seconds since the epoch with a fraction, or RFC 3339 as Go's `time.Parse` accepts it:
//! an hour may have one digit, a fraction may follow a comma and have any number of digits, of
//! which nine count.

use jiff::civil::Date;
use varve_model::TimeRange;
use varve_promql::number::parse_float;
use varve_system::excerpt::quotable;
use varve_system::quantity::parse_duration;

const EPOCH: Date = Date::constant(1970, 1, 1);
const NANOS_PER_S: i128 = 1_000_000_000;
/// Nanoseconds of a millisecond.
pub const NANOS_PER_MS: i128 = 1_000_000;

/// The earliest time of Go. Clients of Prometheus send it and [`TIME_MAX`] to mean "all of time".
pub const TIME_MIN: &str = "-292273086-05-16T16:47:06Z";
/// The latest time of Go.
pub const TIME_MAX: &str = "292277025-08-18T07:12:54.999999999Z";

/// Parses seconds since the epoch or RFC 3339 into milliseconds since the epoch.
///
/// # Errors
/// The text is neither.
pub fn parse_time_ms(text: &str) -> Result<i64, String> {
    parse_time(text).map(to_ms)
}

/// Parses a time into nanoseconds since the epoch.
///
/// # Errors
/// The text is not a time.
pub fn parse_time(text: &str) -> Result<i128, String> {
    let invalid = || format!("cannot parse {:?} to a valid timestamp", quotable(text));
    if let Ok(seconds) = parse_float(text) {
        if !seconds.is_finite() {
            return Err(invalid());
        }
        // Go's arithmetic step by step: milliseconds are rounded, then cut to whole nanoseconds.
        let fraction = (seconds.fract() * 1000.0).round() / 1000.0;
        return Ok(i128::from(seconds.trunc() as i64) * NANOS_PER_S
            + (fraction * NANOS_PER_S as f64) as i128);
    }
    match text {
        TIME_MIN => Ok(i128::from(TimeRange::ALL.start_ms) * NANOS_PER_MS),
        TIME_MAX => Ok(i128::from(TimeRange::ALL.end_ms) * NANOS_PER_MS),
        _ => parse_rfc3339(text.as_bytes()).ok_or_else(invalid),
    }
}

/// Parses a duration, in seconds with a fraction or like `1h30m`, into nanoseconds.
///
/// # Errors
/// The text is not a duration, or it is too long.
pub fn parse_signed_duration(text: &str) -> Result<i64, String> {
    if let Ok(seconds) = parse_float(text) {
        let nanos = seconds * NANOS_PER_S as f64;
        // As a float, `i64::MAX` is 2^63, which an i64 cannot hold.
        if nanos.is_nan() || nanos >= i64::MAX as f64 || nanos < i64::MIN as f64 {
            return Err(format!(
                "cannot parse {:?} to a valid duration. It overflows int64",
                quotable(text)
            ));
        }
        return Ok(nanos as i64);
    }
    let duration = parse_duration(text)
        .map_err(|_| format!("cannot parse {:?} to a valid duration", quotable(text)))?;
    Ok(i64::try_from(duration.as_nanos()).expect("parse_duration ends at i64::MAX nanoseconds"))
}

/// Returns milliseconds since the epoch, saturating.
pub fn to_ms(nanos: i128) -> i64 {
    let ms = nanos.div_euclid(NANOS_PER_MS);
    ms.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

/// The remaining text of a time.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    /// Consumes a byte if it is one of these.
    fn take(&mut self, any_of: &[u8]) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        any_of.contains(first).then(|| self.0 = rest)?;
        Some(*first)
    }

    /// Consumes a number with exactly this many digits.
    fn number(&mut self, n_digits: usize) -> Option<i64> {
        let (digits, rest) = self.0.split_at_checked(n_digits)?;
        let all = digits.iter().try_fold(0, |n, b| {
            b.is_ascii_digit().then(|| 10 * n + i64::from(b - b'0'))
        })?;
        self.0 = rest;
        Some(all)
    }

    /// Consumes an optional fraction, in nanoseconds.
    fn fraction(&mut self) -> i64 {
        let [b'.' | b',', digits @ ..] = self.0 else {
            return 0;
        };
        let n_digits = digits.iter().take_while(|b| b.is_ascii_digit()).count();
        if n_digits == 0 {
            return 0;
        }
        let (fraction, rest) = digits.split_at(n_digits);
        self.0 = rest;
        (0..9).fold(0, |nanos, at| {
            10 * nanos + fraction.get(at).map_or(0, |b| i64::from(b - b'0'))
        })
    }

    /// Consumes the offset from UTC, in seconds.
    fn zone(&mut self) -> Option<i64> {
        let sign = match self.take(b"Z+-")? {
            b'Z' => return Some(0),
            b'+' => 1,
            _ => -1,
        };
        let hours = self.number(2).filter(|&hours| hours <= 24)?;
        self.take(b":")?;
        let minutes = self.number(2).filter(|&minutes| minutes <= 60)?;
        Some(sign * (3600 * hours + 60 * minutes))
    }
}

/// Parses `2006-01-02T15:04:05.999Z`, or with an offset.
fn parse_rfc3339(text: &[u8]) -> Option<i128> {
    let mut rest = Rest(text);
    let year = rest.number(4)?;
    rest.take(b"-")?;
    let month = rest.number(2)?;
    rest.take(b"-")?;
    let day = rest.number(2)?;
    let date = Date::new(
        year.try_into().ok()?,
        month.try_into().ok()?,
        day.try_into().ok()?,
    )
    .ok()?;
    rest.take(b"T")?;
    let hour = rest
        .number(2)
        .or_else(|| rest.number(1))
        .filter(|&hour| hour < 24)?;
    rest.take(b":")?;
    let minute = rest.number(2).filter(|&minute| minute < 60)?;
    rest.take(b":")?;
    let second = rest.number(2).filter(|&second| second < 60)?;
    let nanos = rest.fraction();
    let ahead = rest.zone()?;
    if !rest.0.is_empty() {
        return None;
    }
    let days = i64::from((date - EPOCH).get_days());
    let seconds = 86_400 * days + 3600 * hour + 60 * minute + second - ahead;
    Some(i128::from(seconds) * NANOS_PER_S + i128::from(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: Option<i128>) {
        assert_eq!(parse_time(text).ok(), expect, "{text}");
    }

    #[test]
    fn times_are_parsed_as_in_go() {
        const S: i128 = NANOS_PER_S;
        check("2023-11-14T22:13:20Z", Some(1_700_000_000 * S));
        check("2023-11-14T22:13:20.5Z", Some(1_700_000_000 * S + S / 2));
        check("2023-11-14T22:13:20,5Z", Some(1_700_000_000 * S + S / 2));
        check(
            "2023-11-14T22:13:20.1234567891Z",
            Some(1_700_000_000 * S + 123_456_789),
        );
        check("2023-11-14T23:13:20+01:00", Some(1_700_000_000 * S));
        check(
            "2023-11-14T22:13:20+24:60",
            Some(1_700_000_000 * S - 25 * 3600 * S),
        );
        check("2023-11-14T2:13:20Z", Some((1_700_000_000 - 20 * 3600) * S));
        check("1969-12-31T23:59:59Z", Some(-S));
        check("0000-01-01T00:00:00Z", Some(-62_167_219_200 * S));
        check("9999-12-31T23:59:59Z", Some(253_402_300_799 * S));
        check("2000-02-29T00:00:00Z", Some(951_782_400 * S));
        check("1_000", Some(1000 * S));
        check("1.00_5", Some(S + S / 200));
        for text in [
            "2023-11-14T22:13:20",
            "2023-11-14",
            "2023-11-14 22:13:20Z",
            "2023-11-14T22:13:20z",
            "2023-11-14T24:13:20Z",
            "2023-11-14T22:60:20Z",
            "2023-11-14T22:13:60Z",
            "2023-11-14T22:13:20.Z",
            "2023-11-14T22:13:20+25:00",
            "2023-11-14T22:13:20+01:61",
            "2023-11-14T22:13:20+0100",
            "2023-11-14T22:13:20Z ",
            "2023-02-29T00:00:00Z",
            "1900-02-29T00:00:00Z",
            "2023-13-01T00:00:00Z",
            "2023-00-01T00:00:00Z",
            "10000-01-01T00:00:00Z",
            "NaN",
            "Inf",
            "1e400",
            "_1",
            "1_",
            "1__0",
            "1_.5",
            "",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn a_number_out_of_range_is_invalid_but_infinity_is_valid() {
        let rejected = |text: &str| parse_signed_duration(text).unwrap_err();
        assert_eq!(
            rejected("1e400"),
            "cannot parse \"1e400\" to a valid duration"
        );
        assert_eq!(
            rejected("-1e400"),
            "cannot parse \"-1e400\" to a valid duration"
        );
        for text in ["Inf", "-inf", "+Infinity", "1e300"] {
            assert!(rejected(text).ends_with("It overflows int64"), "{text}");
        }
    }

    #[test]
    fn days_are_counted_since_the_epoch() {
        // 1 January 1600.
        let mut n_days = -135_140;
        for (year, month) in (1600..2401).flat_map(|year| (1..=12).map(move |month| (year, month)))
        {
            let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let last = [
                31,
                28 + i32::from(is_leap),
                31,
                30,
                31,
                30,
                31,
                31,
                30,
                31,
                30,
                31,
            ][month - 1];
            for day in 1..=31 {
                let expect = (day <= last).then_some(n_days * 86_400 * NANOS_PER_S);
                check(&format!("{year}-{month:02}-{day:02}T00:00:00Z"), expect);
                n_days += i128::from(day <= last);
            }
        }
    }
}
