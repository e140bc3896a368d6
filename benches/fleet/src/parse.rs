//! Values of the command line: durations, times, shares, numbers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns a number that may be larger than this machine can address.
pub(crate) fn to_usize(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// Returns the current time in milliseconds.
pub(crate) fn now_ms() -> i64 {
    millis(
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default(),
    )
}

pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Parses a duration such as `1h30m` or `3d`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    duration(text).ok_or_else(|| "expected a duration, for example 1h30m or 3d".to_owned())
}

fn duration(text: &str) -> Option<Duration> {
    // jiff's durations without a time zone have no days.
    let mut days = Duration::ZERO;
    let mut rest = text;
    if let Some((before, after)) = text.split_once('d')
        && let Ok(n_days) = before.parse::<u32>()
    {
        days = Duration::from_secs(86_400 * u64::from(n_days));
        rest = after;
    }
    if rest.is_empty() && !days.is_zero() {
        return Some(days);
    }
    let rest: jiff::SignedDuration = rest.parse().ok()?;
    days.checked_add(Duration::try_from(rest).ok()?)
}

pub(crate) fn parse_interval(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        interval if interval.as_millis() == 0 => Err("must be at least 1ms".to_owned()),
        interval => Ok(interval),
    }
}

pub(crate) fn parse_share(text: &str) -> Result<f64, String> {
    let share: f64 = text
        .parse()
        .map_err(|_| "expected a number, for example 0.05".to_owned())?;
    if (0.0..=100.0).contains(&share) {
        Ok(share)
    } else {
        Err("must be within 0 and 100".to_owned())
    }
}

/// Parses a time into milliseconds.
pub(crate) fn parse_time(text: &str) -> Result<i64, String> {
    if let Ok(seconds) = text.parse::<i64>() {
        return seconds
            .checked_mul(1000)
            .ok_or_else(|| "out of range".to_owned());
    }
    let time: jiff::Timestamp = text.parse().map_err(|_| {
        "expected RFC 3339 or Unix seconds, for example 2026-01-01T00:00:00Z".to_owned()
    })?;
    Ok(time.as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(parse_duration("1h30m"), Ok(Duration::from_secs(5_400)));
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("3d"), Ok(Duration::from_secs(259_200)));
        assert_eq!(parse_duration("1d12h"), Ok(Duration::from_secs(129_600)));
        for wrong in ["-1s", "5", "", "d", "-1d", "1d-1h", "1dd", "3 days"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_are_rfc_3339_or_unix_seconds() {
        assert_eq!(parse_time("1767225600"), Ok(1_767_225_600_000));
        assert_eq!(parse_time("2026-01-01T00:00:00.5Z"), Ok(1_767_225_600_500));
        assert!(parse_time("yesterday").is_err());
    }
}
