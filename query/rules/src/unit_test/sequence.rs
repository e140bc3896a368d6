//! Sequences of values: `1 2x3 0+10x5 _x2 {{count:2 sum:3}} stale`.

use varve_query::histogram::FloatHistogram;
use varve_query::promql::ast::{ExprKind, VectorSelector};
use varve_query::promql::{self, Features};
use varve_tsdb::staleness::STALE_NAN_BITS;

pub use super::literal::{Literal, span};
use varve_tsdb::labels::METRIC_NAME;
use varve_tsdb::{Labels, MatchOp};

/// Values at consecutive times; `None` stands for no sample.
#[derive(Debug, Clone, Default)]
pub struct Sequence {
    /// The values.
    pub values: Vec<Option<Item>>,
}

/// A value.
#[derive(Debug, Clone)]
pub enum Item {
    /// A float.
    Float(f64),
    /// A native histogram.
    Histogram(Literal),
}

/// Parses a sequence.
///
/// # Errors
/// The first invalid item.
pub fn parse(text: &str) -> Result<Sequence, String> {
    let mut sequence = Sequence::default();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (item, after) = rest.split_at(item_len(rest));
        sequence.push(item).map_err(|why| format!("{item:?}: {why}"))?;
        rest = after.trim_start();
    }
    Ok(sequence)
}

/// Returns the length of the first item; histograms may contain spaces.
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

    /// Parses `{{..}}`, `{{..}}x5` and `{{..}}+{{..}}x5`.
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
            Some(n) => n.parse().map_err(|_| "no count after x")?,
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
        let n: usize = n.parse().map_err(|_| "no count after x".to_owned())?;
        if body == "_" {
            self.values.extend(std::iter::repeat_n(None, n));
            return Ok(());
        }
        let (mut value, step) = match operator(body) {
            Some(at) => (number(&body[..at])?, number(&body[at..])?),
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
#[must_use]
pub fn operator(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    (1..bytes.len()).find(|&at| matches!(bytes[at], b'+' | b'-') && !matches!(bytes[at - 1], b'e' | b'E' | b'+' | b'-'))
}

/// Parses a number, or a duration as its number of seconds.
///
/// # Errors
/// The text is neither.
pub fn number(text: &str) -> Result<f64, String> {
    match promql::parse(text, &Features::default()).map(|expr| expr.kind) {
        Ok(ExprKind::Number(literal)) => Ok(literal.value),
        _ => Err(format!("not a number: {text}")),
    }
}

/// Parses a duration, in milliseconds.
///
/// # Errors
/// The text is not a duration.
pub fn duration_ms(text: &str) -> Result<i64, String> {
    Ok((number(text)? * 1000.0).round() as i64)
}

/// Parses a metric: `up{job="a"}`.
///
/// # Errors
/// The text is not a metric, or its labels are invalid.
pub fn parse_labels(metric: &str, features: &Features) -> Result<Labels, String> {
    // A name may be a keyword.
    let name_len = metric.find('{').unwrap_or(metric.len());
    let (name, braces) = metric.split_at(name_len);
    let braces = if braces.is_empty() { "{}" } else { braces };
    // Only a selector with a matcher that needs a value parses as a query.
    let selector = format!("{{needed!=\"\", {}", &braces[1..]);
    let expr = promql::parse(&selector, features).map_err(|error| format!("{metric}: {error}"))?;
    let ExprKind::Vector(VectorSelector { matchers, .. }) = expr.kind else {
        return Err(format!("{metric}: not a series"));
    };
    let matchers = &matchers[1..];
    if matchers.iter().any(|matcher| matcher.op() != MatchOp::Equal) {
        return Err(format!("{metric}: labels have values, not matchers"));
    }
    let pairs = matchers.iter().map(|matcher| (matcher.name(), matcher.value()));
    let name = (!name.is_empty()).then_some((METRIC_NAME, name));
    Labels::from_pairs(name.into_iter().chain(pairs)).map_err(|error| format!("{metric}: {error}"))
}
