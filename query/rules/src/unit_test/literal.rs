//! Native histograms in sequences: `{{schema:1 count:5 sum:7 buckets:[2 3]}}`.
//!
//! Deliberately different: Prometheus skips text between the numbers of buckets that is no number.

use std::collections::BTreeSet;

use varve_model::histogram::{BucketSpan, Histogram, HistogramCounts, ResetHint};
use varve_query::histogram::FloatHistogram;

use super::scanner::Scanner;

/// A histogram literal.
#[derive(Debug, Clone)]
pub struct Literal {
    /// The histogram, with float counts.
    pub histogram: Histogram,
    /// `true` if the literal has a counter reset hint.
    pub has_hint: bool,
}

impl Literal {
    /// Returns the histogram with the counter reset hint that Prometheus' storage computes when it
    /// appends the histogram after `before`. Varve stores the hint of the sender.
    #[must_use]
    pub fn appended_after(&self, before: Option<&Histogram>) -> Histogram {
        let mut histogram = self.histogram.clone();
        if matches!(
            histogram.reset_hint,
            ResetHint::Unknown | ResetHint::NoReset
        ) {
            let counter = before.filter(|before| before.reset_hint != ResetHint::Gauge);
            let known = if counter.is_some_and(|before| {
                FloatHistogram::from(&histogram).continues(&FloatHistogram::from(before))
            }) {
                ResetHint::NoReset
            } else {
                ResetHint::Unknown
            };
            histogram.reset_hint = known;
        }
        histogram
    }
}

/// The fields of a literal.
#[derive(Default)]
struct Fields {
    histogram: Histogram,
    hint: Option<ResetHint>,
    count: f64,
    zero_count: f64,
    /// Positive and negative buckets, and the indexes of their first ones.
    sides: [Vec<f64>; 2],
    offsets: [i32; 2],
}

impl Literal {
    /// Parses a literal after its opening braces. The histogram may be invalid.
    pub(super) fn parse(scanner: &mut Scanner<'_>) -> Result<Self, String> {
        let mut fields = Fields::default();
        let mut seen = BTreeSet::new();
        let mut is_separate = !scanner.eat_spaces();
        while !scanner.eat("}}") {
            if !is_separate {
                return Err(scanner.unexpected("}}"));
            }
            let key = scanner.letters().to_lowercase();
            if !scanner.eat(":") {
                return Err(scanner.unexpected("a key and a colon"));
            }
            fields.set(&key, scanner)?;
            if !seen.insert(key.clone()) {
                return Err(format!("duplicate key {key:?} in histogram"));
            }
            is_separate = scanner.eat_spaces();
        }
        Ok(fields.literal())
    }
}

impl Fields {
    /// Reads the value of a field.
    fn set(&mut self, key: &str, scanner: &mut Scanner<'_>) -> Result<(), String> {
        match key {
            // As in Prometheus, the higher bits are lost.
            "schema" => {
                let schema = scanner.integer()? as i32;
                self.histogram.schema =
                    i8::try_from(schema).map_err(|_| format!("invalid schema {schema}"))?;
            }
            "count" => self.count = scanner.histogram_number()?,
            "sum" => self.histogram.sum = scanner.histogram_number()?,
            "z_bucket" => self.zero_count = scanner.histogram_number()?,
            "z_bucket_w" if scanner.is_signed() => return Err(scanner.unexpected("a digit")),
            "z_bucket_w" => self.histogram.zero_threshold = scanner.histogram_number()?,
            "buckets" => self.sides[0] = list(scanner)?,
            "n_buckets" => self.sides[1] = list(scanner)?,
            "offset" => self.offsets[0] = scanner.integer()? as i32,
            "n_offset" => self.offsets[1] = scanner.integer()? as i32,
            "custom_values" => self.histogram.custom_bounds = list(scanner)?,
            "counter_reset_hint" => self.hint = Some(hint(scanner.letters())?),
            key => return Err(format!("unknown key {key:?} in histogram")),
        }
        Ok(())
    }

    fn literal(self) -> Literal {
        let Self {
            mut histogram,
            hint,
            count,
            zero_count,
            sides: [positive, negative],
            offsets,
        } = self;
        histogram.positive_spans = span(offsets[0], &positive);
        histogram.negative_spans = span(offsets[1], &negative);
        histogram.counts = HistogramCounts::Float {
            count,
            zero_count,
            positive,
            negative,
        };
        histogram.reset_hint = hint.unwrap_or_default();
        Literal {
            histogram,
            has_hint: hint.is_some(),
        }
    }
}

/// Reads numbers in brackets.
fn list(scanner: &mut Scanner<'_>) -> Result<Vec<f64>, String> {
    if !scanner.eat("[") {
        return Err(scanner.unexpected("["));
    }
    let mut numbers = vec![scanner.histogram_number()?];
    loop {
        let is_separate = scanner.eat_spaces();
        if scanner.eat("]") {
            return Ok(numbers);
        }
        if !is_separate {
            return Err(scanner.unexpected("]"));
        }
        numbers.push(scanner.histogram_number()?);
    }
}

/// Returns the span of adjacent buckets.
#[must_use]
pub fn span(offset: i32, counts: &[f64]) -> Vec<BucketSpan> {
    let length = counts.len() as u32;
    if length == 0 {
        Vec::new()
    } else {
        vec![BucketSpan { offset, length }]
    }
}

fn hint(text: &str) -> Result<ResetHint, String> {
    match text.to_lowercase().as_str() {
        "unknown" => Ok(ResetHint::Unknown),
        "reset" => Ok(ResetHint::Reset),
        "not_reset" => Ok(ResetHint::NoReset),
        "gauge" => Ok(ResetHint::Gauge),
        _ => Err(format!("unknown counter reset hint {text:?}")),
    }
}
