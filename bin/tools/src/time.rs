//! Times in arguments, the same for all commands.

use jiff::Timestamp;
use varve_system::quantity::{millis, parse_duration};
use varve_wire::time;

/// From this number on, a time is in milliseconds. As seconds it would be in the year 5138, as
/// milliseconds it is in 1973.
const MILLISECONDS_MIN: f64 = 1e11;

/// Parses a time: RFC 3339, Unix seconds, Unix milliseconds, which have more digits, `now`, or
/// a duration before now such as `-1h30m` or `now-1h30m`. Returns milliseconds since the epoch.
///
/// # Errors
/// If the text is not a time.
pub(crate) fn parse_time_ms(text: &str) -> Result<i64, String> {
    parse_time_at(text, Timestamp::now().as_millisecond())
}

fn parse_time_at(text: &str, now_ms: i64) -> Result<i64, String> {
    let relative = text.strip_prefix("now").unwrap_or(text);
    if relative.is_empty() && !text.is_empty() {
        return Ok(now_ms);
    }
    // `-5` is a number: Unix seconds.
    if let Some(before) = relative.strip_prefix('-')
        && before.parse::<f64>().is_err()
        && let Ok(before) = parse_duration(before)
    {
        return Ok(now_ms.saturating_sub(millis(before)));
    }
    if let Ok(number_ms) = text.parse::<i64>()
        && number_ms.unsigned_abs() as f64 >= MILLISECONDS_MIN
    {
        return Ok(number_ms);
    }
    let time_ms = time::parse_time_ms(text)?;
    // A number with a fraction.
    match text.parse::<f64>() {
        Ok(number) if number.abs() >= MILLISECONDS_MIN => Ok(number.round() as i64),
        _ => Ok(time_ms),
    }
}

/// Parses a time like [`parse_time_ms`], which must be in the calendar.
///
/// # Errors
/// If the text is not a time, or outside of the calendar.
pub(crate) fn parse_timestamp(text: &str) -> Result<Timestamp, String> {
    let time_ms = parse_time_ms(text)?;
    Timestamp::from_millisecond(time_ms).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `tsdb export --end` took milliseconds only: seconds exported nothing, with exit code 0.
    #[test]
    fn times_are_rfc_3339_or_unix_seconds_or_milliseconds() {
        for (text, expect) in [
            ("2023-11-14T22:13:20Z", Some(1_700_000_000_000)),
            ("2023-11-14T23:13:20.25+01:00", Some(1_700_000_000_250)),
            ("1700000000", Some(1_700_000_000_000)),
            ("1700000000.5", Some(1_700_000_000_500)),
            ("1700000000500", Some(1_700_000_000_500)),
            ("1700000000500.0", Some(1_700_000_000_500)),
            ("-1", Some(-1000)),
            ("0", Some(0)),
            ("99999999999", Some(99_999_999_999_000)),
            ("100000000000", Some(100_000_000_000)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("", None),
            ("yesterday", None),
            ("NaN", None),
            ("inf", None),
            ("2023-11-14", None),
        ] {
            assert_eq!(parse_time_ms(text).ok(), expect, "{text}");
        }
        for (text, expect) in [
            ("now", Some(1_000_000)),
            ("-1m", Some(940_000)),
            ("now-1m30s", Some(910_000)),
            ("now+1m", None),
            ("-1x", None),
            ("now-", None),
        ] {
            assert_eq!(parse_time_at(text, 1_000_000).ok(), expect, "{text}");
        }
        let at = parse_timestamp("1700000000").unwrap();
        assert_eq!(at, parse_timestamp("2023-11-14T22:13:20Z").unwrap());
        assert!(parse_timestamp("9223372036854775807").is_err());
    }
}
