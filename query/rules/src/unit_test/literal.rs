//! Native histograms in sequences: `{{schema:1 count:5 sum:7 buckets:[2 3]}}`.

use varve_tsdb::histogram::{BucketSpan, Histogram, HistogramCounts, ResetHint};

use super::sequence::number;

/// A histogram literal.
#[derive(Debug, Clone)]
pub struct Literal {
    /// The histogram, with float counts.
    pub histogram: Histogram,
    /// `true` if the literal has a counter reset hint.
    pub has_hint: bool,
}

impl Literal {
    /// Parses a literal, braces included.
    ///
    /// # Errors
    /// The first invalid field.
    pub fn parse(text: &str) -> Result<Self, String> {
        let inner = text.strip_prefix("{{").and_then(|text| text.strip_suffix("}}")).ok_or("not a histogram")?;
        let (mut histogram, mut has_hint) = (Histogram::default(), false);
        let (mut count, mut zero_count, mut sides, mut offsets) = (0.0, 0.0, [Vec::new(), Vec::new()], [0, 0]);
        let mut rest = inner.trim();
        while !rest.is_empty() {
            let (key, after) = rest.split_once(':').ok_or("no value")?;
            let len = match after.find(']').filter(|_| after.starts_with('[')) {
                Some(close) => close + 1,
                None => after.find(' ').unwrap_or(after.len()),
            };
            let value = &after[..len];
            let integer = || value.parse::<i32>().map_err(|_| format!("not an integer: {value}"));
            match key.to_lowercase().as_str() {
                "schema" => histogram.schema = i8::try_from(integer()?).map_err(|error| error.to_string())?,
                "count" => count = number(value)?,
                "sum" => histogram.sum = number(value)?,
                "z_bucket" => zero_count = number(value)?,
                "z_bucket_w" => histogram.zero_threshold = number(value)?,
                "buckets" => sides[0] = list(value)?,
                "n_buckets" => sides[1] = list(value)?,
                "offset" => offsets[0] = integer()?,
                "n_offset" => offsets[1] = integer()?,
                "custom_values" => histogram.custom_bounds = list(value)?,
                "counter_reset_hint" => (histogram.reset_hint, has_hint) = (hint(value)?, true),
                key => return Err(format!("unknown key {key:?}")),
            }
            rest = after[len..].trim_start();
        }
        let [positive, negative] = sides;
        (histogram.positive_spans, histogram.negative_spans) =
            (span(offsets[0], &positive), span(offsets[1], &negative));
        histogram.counts = HistogramCounts::Float { count, zero_count, positive, negative };
        Ok(Self { histogram, has_hint })
    }
}

fn list(text: &str) -> Result<Vec<f64>, String> {
    text.trim_matches(['[', ']']).split_whitespace().map(number).collect()
}

/// Returns the span of adjacent buckets.
#[must_use]
pub fn span(offset: i32, counts: &[f64]) -> Vec<BucketSpan> {
    let length = counts.len() as u32;
    if length == 0 { Vec::new() } else { vec![BucketSpan { offset, length }] }
}

fn hint(text: &str) -> Result<ResetHint, String> {
    match text {
        "unknown" => Ok(ResetHint::Unknown),
        "reset" => Ok(ResetHint::Reset),
        "not_reset" => Ok(ResetHint::NoReset),
        "gauge" => Ok(ResetHint::Gauge),
        _ => Err(format!("unknown hint {text:?}")),
    }
}
