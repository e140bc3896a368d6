//! Sequences of values: `1 2x3 0+10x5 _x2 stale`.

use varve_tsdb::STALE_NAN_BITS;

/// Values at consecutive times; `None` stands for no sample.
#[derive(Debug, Clone, Default)]
pub(super) struct Sequence {
    pub(super) values: Vec<Option<f64>>,
    /// Native histograms are among the values, as `None`.
    pub(super) has_histograms: bool,
}

/// Parses a sequence.
///
/// # Errors
/// The item that is none.
pub(super) fn parse(text: &str) -> Result<Sequence, String> {
    let mut sequence = Sequence::default();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let in_braces = if rest.starts_with("{{") { rest.find("}}").unwrap_or(0) } else { 0 };
        let end = rest[in_braces..].find([' ', '\t']).map_or(rest.len(), |end| in_braces + end);
        let second =
            rest[..end].matches("{{").count() == 2 || rest[..end].ends_with("+{{") || rest[..end].contains("}}+{{");
        let end = if second { histogram_step_end(rest) } else { end };
        let (item, after) = rest.split_at(end);
        sequence.push(item)?;
        rest = after.trim_start();
    }
    Ok(sequence)
}

/// Returns the end of `{{...}}+{{...}}x5`.
fn histogram_step_end(text: &str) -> usize {
    let second = text.find("}}").map_or(0, |end| end + 3);
    let close = text[second..].find("}}").map_or(text.len(), |end| second + end);
    text[close..].find([' ', '\t']).map_or(text.len(), |end| close + end)
}

impl Sequence {
    fn push(&mut self, item: &str) -> Result<(), String> {
        if item.starts_with("{{") {
            self.has_histograms = true;
            let repeat =
                item.rsplit_once("}}x").map_or(Ok(0), |(_, n)| n.parse::<usize>().map_err(|e| e.to_string()))?;
            self.values.extend(std::iter::repeat_n(None, repeat + 1));
            return Ok(());
        }
        match item {
            "_" => self.values.push(None),
            "stale" => self.values.push(Some(f64::from_bits(STALE_NAN_BITS))),
            _ => self.push_numbers(item).map_err(|why| format!("{item:?}: {why}"))?,
        }
        Ok(())
    }

    fn push_numbers(&mut self, item: &str) -> Result<(), String> {
        let Some((body, n)) = item.rsplit_once('x') else {
            self.values.push(Some(number(item)?));
            return Ok(());
        };
        let n: usize = n.parse().map_err(|_| "no count behind x".to_owned())?;
        if body == "_" {
            self.values.extend(std::iter::repeat_n(None, n));
            return Ok(());
        }
        let (mut value, step) = match operator(body) {
            Some(at) => (number(&body[..at])?, number(body[at..].trim_start_matches('+'))?),
            None => (number(body)?, 0.0),
        };
        for _ in 0..=n {
            self.values.push(Some(value));
            value += step;
        }
        Ok(())
    }
}

/// Finds the `+` or `-` between two numbers.
fn operator(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    (1..bytes.len()).find(|&at| matches!(bytes[at], b'+' | b'-') && !matches!(bytes[at - 1], b'e' | b'E' | b'+' | b'-'))
}

/// Reads a number or a duration.
fn number(text: &str) -> Result<f64, String> {
    let plain = text.replace('_', "");
    if let Ok(value) = plain.parse() {
        return Ok(value);
    }
    let (sign, duration) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text),
    };
    Ok(sign * duration_ms(duration)? as f64 / 1000.0)
}

/// Reads a number that is a line of its own.
pub(super) fn whole_number(text: &str) -> Result<f64, String> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text),
    };
    if let Some(hexadecimal) = digits.strip_prefix("0x") {
        return i64::from_str_radix(hexadecimal, 16).map(|n| sign * n as f64).map_err(|e| e.to_string());
    }
    text.replace('_', "").parse().map_err(|_| format!("no number: {text}"))
}

/// Reads a Prometheus duration, in milliseconds.
pub(super) fn duration_ms(text: &str) -> Result<i64, String> {
    const UNITS: [(&str, i64); 7] = [
        ("y", 31_536_000_000),
        ("w", 604_800_000),
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1000),
        ("ms", 1),
    ];
    let bad = || format!("no duration: {text:?}");
    if text == "0" {
        return Ok(0);
    }
    let (mut rest, mut total_ms) = (text, 0);
    while !rest.is_empty() {
        let (digits, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?);
        let (unit, after) = after.split_at(after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len()));
        let (_, unit_ms) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(bad)?;
        total_ms += digits.parse::<i64>().map_err(|_| bad())? * unit_ms;
        rest = after;
    }
    if text.is_empty() { Err(bad()) } else { Ok(total_ms) }
}
