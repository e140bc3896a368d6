//! The parameters of a request.

use std::time::Duration;

use varve_model::TimeRange;
use varve_query::Steps;
use varve_server::requests::record::Parameters;
use varve_system::excerpt::quotable;
use varve_wire::time::{NANOS_PER_MS, parse_signed_duration, parse_time, to_ms};

use super::values::{parse_bool, parse_int};
use crate::error::{ApiError, ErrorKind, Result};

/// Maximum number of parameters of a request.
pub(super) const PARAMETERS_MAX: usize = 10_000;

/// The parameters of a request: those of the body, then those of the URL. The first parameter of a
/// name wins, as in Go.
#[derive(Debug, Default)]
pub(crate) struct Form {
    pairs: Vec<(String, String)>,
    /// The reason why a parameter was skipped. Most requests ignore it, as in Prometheus.
    pub(super) damage: Option<String>,
}

impl Form {
    /// Adds the parameters of an encoded form or query string: `a=1&b=2`.
    ///
    /// # Errors
    /// If there are more than [`PARAMETERS_MAX`].
    pub(crate) fn add(&mut self, encoded: &[u8]) -> Result<()> {
        for pair in encoded
            .split(|&b| b == b'&')
            .filter(|pair| !pair.is_empty())
        {
            if self.pairs.len() == PARAMETERS_MAX {
                let text = format!("more than {PARAMETERS_MAX} parameters");
                return Err(ApiError::bad_data(text).with_limit("parameters"));
            }
            match parse_pair(pair) {
                Ok(pair) => self.pairs.push(pair),
                Err(reason) => self.damage = self.damage.take().or(Some(reason)),
            }
        }
        Ok(())
    }

    /// Checks that no parameter was skipped because of invalid encoding.
    ///
    /// # Errors
    /// The first invalid encoding.
    pub(crate) fn check_encoding(&self) -> Result<()> {
        match &self.damage {
            None => Ok(()),
            Some(damage) => Err(ApiError::bad_data(format!(
                "error parsing form values: {damage}"
            ))),
        }
    }

    /// Returns the values of `match[]`.
    pub(crate) fn selectors(&self) -> Vec<String> {
        self.all("match[]").map(String::from).collect()
    }

    /// Returns the values of `match[]`, of which there must be at least one.
    pub(crate) fn required_selectors(&self) -> Result<Vec<String>> {
        Some(self.selectors())
            .filter(|selectors| !selectors.is_empty())
            .ok_or_else(|| ApiError::bad_data("no match[] parameter provided"))
    }

    /// Returns the parameters that lists and logs show.
    pub(crate) fn shown(&self) -> Parameters {
        let text = match [self.first("query"), self.first("name")] {
            ["", ""] => self.all("match[]").collect::<Vec<_>>().join(", "),
            ["", text] | [text, _] => text.to_owned(),
        };
        let start = if self.first("start").is_empty() {
            self.first("time")
        } else {
            self.first("start")
        };
        Parameters {
            text,
            start: quotable(start).to_owned(),
            end: quotable(self.first("end")).to_owned(),
            step: quotable(self.first("step")).to_owned(),
        }
    }

    /// Returns the bytes of all parameters.
    pub(crate) fn size(&self) -> usize {
        let mut size = 0;
        for (name, value) in &self.pairs {
            size += size_of::<(String, String)>() + name.capacity() + value.capacity();
        }
        size
    }

    /// Returns the first value of a parameter, or an empty string if it is missing.
    pub(crate) fn first(&self, name: &str) -> &str {
        self.pairs
            .iter()
            .find(|(n, _)| n == name)
            .map_or("", |(_, value)| value)
    }

    /// Returns all values of a parameter.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs
            .iter()
            .filter(move |(n, _)| n == name)
            .map(|(_, value)| value.as_str())
    }

    /// Parses `limit`; `None` means no limit.
    pub(crate) fn limit(&self) -> Result<Option<usize>> {
        let text = self.first("limit");
        if text.is_empty() {
            return Ok(None);
        }
        let limit =
            parse_int(text).map_err(|reason| ApiError::invalid_parameter("limit", reason))?;
        match usize::try_from(limit) {
            Ok(limit) => Ok(Some(limit).filter(|&limit| limit > 0)),
            Err(_) => Err(ApiError::invalid_parameter(
                "limit",
                "limit must be non-negative",
            )),
        }
    }

    /// Parses an optional time, in milliseconds.
    pub(crate) fn optional_time_ms(&self, name: &str) -> Result<Option<i64>> {
        self.time_ms_without_prefix(name)
            .map_err(|reason| ApiError::invalid_parameter(name, reason))
    }

    /// Parses an optional time, in milliseconds. The error lacks the prefix `invalid parameter`. Its
    /// reason names the parameter, too.
    pub(crate) fn time_ms_without_prefix(&self, name: &str) -> Result<Option<i64>, String> {
        match self.first(name) {
            "" => Ok(None),
            text => match parse_time(text) {
                Ok(nanos) => Ok(Some(to_ms(nanos))),
                Err(reason) => Err(format!("invalid time value for '{name}': {reason}")),
            },
        }
    }

    /// Parses the optional `start` and `end` of a metadata request.
    pub(crate) fn time_range(&self) -> Result<TimeRange> {
        let start_ms = self
            .optional_time_ms("start")?
            .unwrap_or(TimeRange::ALL.start_ms);
        let end_ms = self
            .optional_time_ms("end")?
            .unwrap_or(TimeRange::ALL.end_ms);
        Ok(TimeRange { start_ms, end_ms })
    }

    /// Parses an optional boolean as Go's `strconv.ParseBool` does.
    pub(crate) fn boolean(&self, name: &str) -> Result<bool> {
        match self.first(name) {
            "" => Ok(false),
            text => parse_bool(quotable(text)).map_err(|reason| {
                ApiError::invalid_parameter(name, format!("unable to parse boolean: {reason}"))
            }),
        }
    }

    /// Parses `start`, `end` and `step` of a range query of at most `points_max` steps.
    pub(crate) fn steps(&self, points_max: usize) -> Result<Steps> {
        let start = self.required_time("start")?;
        let end = self.required_time("end")?;
        if end < start {
            return Err(ApiError::invalid_parameter(
                "end",
                "end timestamp must not be before start time",
            ));
        }
        let step = parse_signed_duration(self.first("step"))
            .map_err(|reason| ApiError::invalid_parameter("step", reason))?;
        if step <= 0 {
            let reason = "zero or negative query resolution step widths are not accepted. Try a positive integer";
            return Err(ApiError::invalid_parameter("step", reason));
        }
        if (end - start) / i128::from(step) > points_max as i128 {
            let text = format!(
                "exceeded maximum resolution of {} points per timeseries. Try decreasing the query resolution (?step=XX)",
                grouped(points_max)
            );
            return Err(ApiError::bad_data(text).with_limit("--query.max-points"));
        }
        let step_ms = step / NANOS_PER_MS as i64;
        if step_ms == 0 {
            // Prometheus divides by zero here.
            let text = format!("step of {} is below the minimum of 1ms", seconds(step));
            return Err(ApiError::new(ErrorKind::Execution, text));
        }
        Ok(Steps::range(to_ms(start), to_ms(end), step_ms))
    }

    /// Parses a time, in nanoseconds.
    fn required_time(&self, name: &str) -> Result<i128> {
        parse_time(self.first(name)).map_err(|reason| ApiError::invalid_parameter(name, reason))
    }

    /// Parses `timeout`; `None` if it is missing.
    pub(crate) fn timeout(&self) -> Result<Option<Duration>> {
        let text = self.first("timeout");
        if text.is_empty() {
            return Ok(None);
        }
        let nanos = parse_signed_duration(text)
            .map_err(|reason| ApiError::invalid_parameter("timeout", reason))?;
        match u64::try_from(nanos) {
            Ok(nanos) if nanos > 0 => Ok(Some(Duration::from_nanos(nanos))),
            _ => {
                let reason = format!("timeout must be positive, got {}", seconds(nanos));
                Err(ApiError::invalid_parameter("timeout", reason))
            }
        }
    }

    /// Parses `lookback_delta` in milliseconds; `None` means the server's, as do values of 0 and
    /// less. A value below a millisecond is rounded up to one, which includes samples at exactly
    /// the time of a step.
    pub(crate) fn lookback_delta_ms(&self) -> Result<Option<i64>> {
        let text = self.first("lookback_delta");
        if text.is_empty() {
            return Ok(None);
        }
        let nanos = parse_signed_duration(text).map_err(|reason| {
            ApiError::bad_data(format!("error parsing lookback delta duration: {reason}"))
        })?;
        Ok(Some(nanos)
            .filter(|&nanos| nanos > 0)
            .map(|nanos| (nanos / NANOS_PER_MS as i64).max(1)))
    }
}

fn parse_pair(pair: &[u8]) -> Result<(String, String), String> {
    if pair.contains(&b';') {
        return Err("invalid semicolon separator in query".to_owned());
    }
    let mut parts = pair.splitn(2, |&b| b == b'=');
    let name = parts.next().unwrap_or_default();
    let value = parts.next().unwrap_or_default();
    Ok((unescape(name)?, unescape(value)?))
}

/// Decodes a form value. Bytes that are not UTF-8 become U+FFFD.
fn unescape(text: &[u8]) -> Result<String, String> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [byte, tail @ ..] = rest {
        rest = tail;
        match byte {
            b'+' => plain.push(b' '),
            b'%' => {
                let code = tail
                    .get(..2)
                    .and_then(|digits| Some(hex(digits[0])? << 4 | hex(digits[1])?));
                let Some(code) = code else {
                    let escape = String::from_utf8_lossy(&tail[..tail.len().min(2)]);
                    return Err(format!("invalid URL escape {:?}", format!("%{escape}")));
                };
                plain.push(code);
                rest = &tail[2..];
            }
            _ => plain.push(*byte),
        }
    }
    Ok(String::from_utf8(plain)
        .unwrap_or_else(|bytes| String::from_utf8_lossy(bytes.as_bytes()).into_owned()))
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

/// Formats nanoseconds as seconds.
fn seconds(nanos: i64) -> String {
    format!("{}s", nanos as f64 / 1e9)
}

/// Formats a number with thousands separators.
pub(super) fn grouped(number: usize) -> String {
    if number < 1000 {
        number.to_string()
    } else {
        format!("{},{:03}", grouped(number / 1000), number % 1000)
    }
}
