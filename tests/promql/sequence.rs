//! Sequences of values: `1 2x3 0+10x5 _x2 {{count:2 sum:3}} stale`.

use varve_query::FloatHistogram;
use varve_tsdb::staleness::STALE_NAN_BITS;

use super::histogram::Literal;

/// Values at consecutive times; `None` stands for no sample.
#[derive(Debug, Clone, Default)]
pub(super) struct Sequence {
    pub(super) values: Vec<Option<Item>>,
    /// How far from each of them its start timestamp lies; empty if there are none.
    pub(super) starts_ms: Vec<Option<i64>>,
}

/// A value.
#[derive(Debug, Clone)]
pub(super) enum Item {
    Float(f64),
    Histogram(Literal),
}

/// Parses a sequence.
///
/// # Errors
/// The item that is none.
pub(super) fn parse(text: &str) -> Result<Sequence, String> {
    let mut sequence = Sequence::default();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (item, after) = rest.split_at(item_len(rest));
        sequence.push(item).map_err(|why| format!("{item:?}: {why}"))?;
        rest = after.trim_start();
    }
    Ok(sequence)
}

/// Parses the start timestamps of a sequence: `_x2 -30s-1mx4 0s`.
///
/// # Errors
/// The item that is none.
pub(super) fn parse_starts(text: &str) -> Result<Vec<Option<i64>>, String> {
    let mut starts_ms = Vec::new();
    for item in text.split_whitespace() {
        let (body, n) = match item.rsplit_once('x') {
            Some((body, n)) => (body, n.parse().map_err(|_| format!("no count behind x: {item}"))?),
            None => (item, 0),
        };
        if body == "_" {
            starts_ms.extend(std::iter::repeat_n(None, n.max(1)));
            continue;
        }
        let (mut offset_ms, step_ms) = match operator(body) {
            Some(at) => (signed_ms(&body[..at])?, signed_ms(&body[at..])?),
            None => (signed_ms(body)?, 0),
        };
        for _ in 0..=n {
            starts_ms.push(Some(offset_ms));
            offset_ms += step_ms;
        }
    }
    Ok(starts_ms)
}

fn signed_ms(text: &str) -> Result<i64, String> {
    match text.strip_prefix('-') {
        Some(duration) => Ok(-duration_ms(duration)?),
        None => duration_ms(text.trim_start_matches('+')),
    }
}

/// Returns the length of the first item; inside of a histogram there may be spaces.
fn item_len(text: &str) -> usize {
    let mut end = 0;
    loop {
        let open = text[end..].find("{{").map(|at| end + at);
        let space = text[end..].find([' ', '\t']).map(|at| end + at);
        match (open, space) {
            (Some(open), space) if space.is_none_or(|space| open < space) => {
                end = text[open..].find("}}").map_or(text.len(), |at| open + at + 2);
            }
            (_, space) => return space.unwrap_or(text.len()),
        }
    }
}

impl Sequence {
    fn push(&mut self, item: &str) -> Result<(), String> {
        if item.starts_with("{{") {
            return self.push_histograms(item);
        }
        match item {
            "_" => self.values.push(None),
            "stale" => self.values.push(Some(Item::Float(f64::from_bits(STALE_NAN_BITS)))),
            _ => self.push_numbers(item)?,
        }
        Ok(())
    }

    /// Reads `{{..}}`, `{{..}}x5` and `{{..}}+{{..}}x5`.
    fn push_histograms(&mut self, item: &str) -> Result<(), String> {
        let literal_end = |from: usize| item[from..].find("}}").map(|at| from + at + 2).ok_or("no end of a histogram");
        let first_end = literal_end(0)?;
        let first = Literal::parse(&item[..first_end])?;
        let (step, n) = match item[first_end..].chars().next() {
            Some(sign @ ('+' | '-')) => {
                let step_end = literal_end(first_end)?;
                (Some((sign, Literal::parse(&item[first_end + 1..step_end])?)), &item[step_end..])
            }
            _ => (None, &item[first_end..]),
        };
        let n: usize = match n.strip_prefix('x') {
            Some(n) => n.parse().map_err(|_| "no count behind x")?,
            None if n.is_empty() => 0,
            None => return Err(format!("unknown {n:?}")),
        };
        let mut value = FloatHistogram::from(&first.histogram);
        for _ in 0..=n {
            let literal = Literal { histogram: value.to_stored(), ..first };
            self.values.push(Some(Item::Histogram(literal)));
            if let Some((sign, step)) = &step {
                let step = FloatHistogram::from(&step.histogram);
                let combined = if *sign == '+' { value.add(&step) } else { value.subtract(&step) };
                combined.map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    fn push_numbers(&mut self, item: &str) -> Result<(), String> {
        let Some((body, n)) = item.rsplit_once('x') else {
            self.values.push(Some(Item::Float(number(item)?)));
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
            self.values.push(Some(Item::Float(value)));
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
pub(super) fn number(text: &str) -> Result<f64, String> {
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
