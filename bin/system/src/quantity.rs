//! Durations and sizes as people type them: `2m`, `1h30m`, `250ms`; `64KiB`, `1GiB`. Times as logs
//! have them.
//!
//! Used by the command line, the configuration file and the parameters of the HTTP API.

use std::time::Duration;

use jiff::Timestamp;

use crate::excerpt::quotable;

/// Parses a duration as Prometheus writes it: whole numbers with units from the largest down, or
/// `0`.
///
/// # Errors
/// A sentence that quotes the text.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let shown = quotable(text);
    if shown.len() < text.len() {
        return Err(format!("not a valid duration string: {shown:?}"));
    }
    let milliseconds = varve_promql::duration::parse_duration(text)?;
    Ok(Duration::from_millis(milliseconds.cast_unsigned()))
}

/// Prints a duration as Prometheus does. A fraction of a millisecond is left out.
pub fn print_duration(duration: Duration) -> String {
    varve_promql::duration::print_duration(millis(duration))
}

/// Returns a duration in milliseconds.
pub fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Parses a size in bytes: a whole number, then nothing or `B`, `KB`, `KiB`, `MB`, ... A K is 1024
/// in all of them.
///
/// # Errors
/// A sentence that quotes the text.
pub fn parse_size(text: &str) -> Result<usize, String> {
    let (number, unit) = split_while(text, |c| c.is_ascii_digit());
    let shift = match unit {
        "" | "B" => 0,
        "KB" | "KiB" => 10,
        "MB" | "MiB" => 20,
        "GB" | "GiB" => 30,
        "TB" | "TiB" => 40,
        _ => {
            return Err(format!(
                "unknown unit {unit:?} in size {text:?}; use B, KiB, MiB, GiB or TiB"
            ));
        }
    };
    let number: usize = number
        .parse()
        .map_err(|_| format!("not a valid size: {text:?}"))?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("size out of range: {text:?}"))
}

/// Prints a size in bytes as Prometheus does, in parts from the largest unit down: `1GiB512MiB`.
pub fn print_size(size: usize) -> String {
    const UNITS: [(&str, u32); 7] = [
        ("EiB", 60),
        ("PiB", 50),
        ("TiB", 40),
        ("GiB", 30),
        ("MiB", 20),
        ("KiB", 10),
        ("B", 0),
    ];
    let mut text = String::new();
    let mut rest = size as u64;
    for (unit, shift) in UNITS {
        if rest >> shift > 0 {
            text.push_str(&format!("{}{unit}", rest >> shift));
            rest &= (1 << shift) - 1;
        }
    }
    if text.is_empty() {
        "0B".to_owned()
    } else {
        text
    }
}

/// Prints a size in bytes rounded, for people: `5.5 KiB`.
pub fn print_rounded_size(bytes: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let exponent = (0..units.len() - 1).find(|&exponent| bytes < 1024f64.powi(exponent as i32 + 1));
    let exponent = exponent.unwrap_or(units.len() - 1);
    format!(
        "{:.1} {}",
        bytes / 1024f64.powi(exponent as i32),
        units[exponent]
    )
}

/// Prints milliseconds since the epoch in RFC 3339, or as a number if there is no such date.
pub fn print_time(ms: i64) -> String {
    Timestamp::from_millisecond(ms).map_or_else(|_| ms.to_string(), |time| format!("{time:.3}"))
}

fn split_while(text: &str, keep: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !keep(c)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_duration(text: &str, expect: Result<u64, &str>) {
        let got = parse_duration(text).map(|duration| duration.as_millis() as u64);
        assert_eq!(got, expect.map_err(str::to_owned), "{text}");
    }

    #[test]
    fn durations_are_read_as_prometheus_reads_them() {
        check_duration("0", Ok(0));
        check_duration("250ms", Ok(250));
        check_duration("1h30m", Ok(5_400_000));
        check_duration("1y2w3d4h5m6s7ms", Ok(33_019_506_007));
        check_duration("", Err("empty duration string"));
        check_duration("5", Err("not a valid duration string: \"5\""));
        check_duration("1m1h", Err("not a valid duration string: \"1m1h\""));
        check_duration("1s1s", Err("not a valid duration string: \"1s1s\""));
        check_duration("-1s", Err("not a valid duration string: \"-1s\""));
        check_duration("1.5h", Err("unknown unit \".\" in duration \"1.5h\""));
        check_duration("3µ", Err("unknown unit \"µ\" in duration \"3µ\""));
        check_duration("300y", Err("duration out of range"));
        check_duration(
            "99999999999999999999s",
            Err("not a valid duration string: \"99999999999999999999s\""),
        );
    }

    #[test]
    fn durations_are_printed_as_prometheus_prints_them() {
        for text in ["0s", "250ms", "2m", "1h30m", "90d", "2w", "1y", "1m1s1ms"] {
            assert_eq!(print_duration(parse_duration(text).unwrap()), text);
        }
    }

    #[test]
    fn sizes_are_printed_in_parts() {
        for (size, expect) in [
            (0, "0B"),
            (1, "1B"),
            (1536 << 20, "1GiB512MiB"),
            (512 << 30, "512GiB"),
        ] {
            assert_eq!(print_size(size), expect);
        }
    }

    #[test]
    fn sizes_are_rounded_in_the_largest_unit_below() {
        for (bytes, expect) in [
            (0.0, "0.0 B"),
            (1023.0, "1023.0 B"),
            (5632.0, "5.5 KiB"),
            (2e15, "1819.0 TiB"),
        ] {
            assert_eq!(print_rounded_size(bytes), expect);
        }
    }

    #[test]
    fn sizes_have_binary_units() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("1MiB"), Ok(1 << 20));
        assert_eq!(parse_size("3GB"), Ok(3 << 30));
        assert_eq!(
            parse_size("x").unwrap_err(),
            "unknown unit \"x\" in size \"x\"; use B, KiB, MiB, GiB or TiB"
        );
        assert_eq!(parse_size("").unwrap_err(), "not a valid size: \"\"");
        assert_eq!(
            parse_size("99999999TiB").unwrap_err(),
            "size out of range: \"99999999TiB\""
        );
    }
}
