//! Series in promtool's notation: `up{job="a"} 1 2x3 0+10x5 _x2 {{count:2 sum:3}} stale`.
//!
//! The grammar is that of `ParseSeriesDesc` in Prometheus 3.16.

use varve_model::Labels;
use varve_model::staleness::STALE_NAN_BITS;
use varve_promql::Features;
use varve_query::histogram::FloatHistogram;

pub use super::literal::{Literal, span};
use super::scanner::Scanner;

/// Values at consecutive times; `None` stands for no sample.
#[derive(Debug, Clone, Default)]
pub struct Sequence {
    /// The values.
    pub values: Vec<Option<Item>>,
}

/// A value. A sequence can have millions of them, so a histogram stands behind a pointer.
#[derive(Debug, Clone)]
pub enum Item {
    /// A float.
    Float(f64),
    /// A native histogram.
    Histogram(Box<Literal>),
}

/// Maximum number of values of a sequence.
const VALUES_MAX: usize = 10_000_000;

/// Parses the labels and the values of a series.
///
/// # Errors
/// The first error of the text.
pub fn parse_series(text: &str) -> Result<(Labels, Sequence), String> {
    let (labels, values) = varve_promql::parse_description(text, &Features::all())
        .map_err(|error| error.to_string())?;
    Ok((labels, parse(values)?))
}

/// Parses the values of a series. A space precedes each of them.
///
/// # Errors
/// The first invalid value.
pub fn parse(text: &str) -> Result<Sequence, String> {
    let mut sequence = Sequence::default();
    let mut scanner = Scanner::new(text);
    while !scanner.is_at_end() {
        if !scanner.eat_spaces() {
            return Err(scanner.unexpected("a space"));
        }
        if !scanner.is_at_end() {
            sequence.push(&mut scanner)?;
        }
    }
    Ok(sequence)
}

impl Sequence {
    /// Parses a value, or several values with `x`.
    fn push(&mut self, scanner: &mut Scanner<'_>) -> Result<(), String> {
        if scanner.eat("{{") {
            return self.push_histograms(scanner);
        }
        if scanner.eat("_") {
            let n = scanner.repetitions()?.unwrap_or(1);
            return self.extend(n, || Ok(None));
        }
        let is_stale = scanner.eat_word("stale");
        let mut value = if is_stale {
            f64::from_bits(STALE_NAN_BITS)
        } else {
            scanner.signed_number()?
        };
        let step = if scanner.is_signed() {
            Some(scanner.signed_number()?)
        } else {
            None
        };
        let n = n_values(scanner, step.is_some())?;
        self.extend(n, || {
            let item = Item::Float(value);
            // Without a step the value keeps its bits: it may be a staleness marker.
            if let Some(step) = step {
                value += step;
            }
            Ok(Some(item))
        })
    }

    /// Parses `{{..}}`, `{{..}}x5` and `{{..}}+{{..}}x5` after the first opening.
    fn push_histograms(&mut self, scanner: &mut Scanner<'_>) -> Result<(), String> {
        let first = Literal::parse(scanner)?;
        let plus = scanner.eat("+");
        let step = if !plus && !scanner.eat("-") {
            None
        } else if scanner.eat("{{") {
            Some(Literal::parse(scanner)?)
        } else {
            return Err(scanner.unexpected("{{"));
        };
        let n = n_values(scanner, step.is_some())?;
        let from = first.histogram.schema;
        let to = step.as_ref().map_or(i8::MAX, |step| step.histogram.schema);
        if from > to && n > 1 {
            return Err(format!(
                "error combining histograms: cannot merge from schema {to} to {from}"
            ));
        }
        let has_hint = step.as_ref().map_or(first.has_hint, |step| step.has_hint);
        let step = step.map(|step| FloatHistogram::from(&step.histogram));
        let mut value = FloatHistogram::from(&first.histogram);
        let mut is_first = true;
        self.extend(n, || {
            if !is_first && let Some(step) = &step {
                let combined = if plus {
                    value.add(step)
                } else {
                    value.subtract(step)
                };
                combined.map_err(|error| error.to_string())?;
            }
            let histogram = if is_first {
                first.histogram.clone()
            } else {
                value.to_stored()
            };
            is_first = is_first && step.is_none();
            Ok(Some(Item::Histogram(Box::new(Literal {
                histogram,
                has_hint,
            }))))
        })
    }

    fn extend(
        &mut self,
        n: usize,
        mut next: impl FnMut() -> Result<Option<Item>, String>,
    ) -> Result<(), String> {
        if n > VALUES_MAX - self.values.len() {
            return Err(format!("a series has more than {VALUES_MAX} values"));
        }
        (0..n).try_for_each(|_| {
            self.values.push(next()?);
            Ok(())
        })
    }
}

/// Reads the repetitions after a value, which a step needs. Returns the number of values, the first
/// one included.
fn n_values(scanner: &mut Scanner<'_>, has_step: bool) -> Result<usize, String> {
    match scanner.repetitions()? {
        Some(n) => Ok(n.saturating_add(1)),
        None if has_step => Err(scanner.unexpected("x")),
        None => Ok(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the values as text, or the error.
    fn values(text: &str) -> String {
        let print = |item: &Option<Item>| match item {
            None => "_".to_owned(),
            Some(Item::Float(value)) if value.to_bits() == STALE_NAN_BITS => "stale".to_owned(),
            Some(Item::Float(value)) => value.to_string(),
            Some(Item::Histogram(literal)) => {
                FloatHistogram::from(&literal.histogram).test_expression()
            }
        };
        match parse(&format!(" {text}")) {
            Ok(sequence) => sequence
                .values
                .iter()
                .map(print)
                .collect::<Vec<_>>()
                .join(" "),
            Err(error) => error,
        }
    }

    #[test]
    fn values_are_parsed_as_in_promtool() {
        for (text, expect) in [
            ("", ""),
            (
                "1 -1  +1.5 .5 5. 010 08 1_000 1e3",
                "1 -1 1.5 0.5 5 8 8 1000 1000",
            ),
            ("Inf -inf NaN stale _", "inf -inf NaN stale _"),
            ("1x2 _x2 stalex", "unexpected \"stalex\", expected a number"),
            ("1x2 _x2 _x0 _", "1 1 1 _ _ _"),
            (
                "1+1x2 -1-.5x1 1e1+1x1 stale+1x1",
                "1 2 3 -1 -1.5 10 11 stale NaN",
            ),
            ("{{}}x1", "{{}} {{}}"),
            (
                "{{count:1}}+{{count:2}}x2",
                "{{count:1}} {{count:3}} {{count:5}}",
            ),
            ("{{count:3}}-{{count:1}}x1", "{{count:3}} {{count:2}}"),
            (
                "{{schema:1}}+{{}}x2",
                "error combining histograms: cannot merge from schema 0 to 1",
            ),
            ("1x99999999", "a series has more than 10000000 values"),
        ] {
            assert_eq!(values(text), expect, "{text}");
        }
    }

    #[test]
    fn invalid_values_are_rejected() {
        let numbers = "0x1F 1_ 1__0 1e 1e+ .e3 1.5.2 1,5 infinity 1m 1h30m Stale -stale __ _X3 x 1x 1X3 1x-1 1x1.5 1x1_0 \
                       1+1 1+-1x3 Infx3 1e400 1f \"1\" 1*2 1# a m{} {} --1 1x3x2 1x3+1 _x3_ _1";
        let histograms = [
            "{{ schema:0}}",
            "{{schema: 0}}",
            "{{schema:+0}}",
            "{{schema:0.5}}",
            "{{schema:256}}",
            "{{count:.5}}",
            "{{count:1 count:2}}",
            "{{count}}",
            "{{z_bucket_w:-1}}",
            "{{buckets:[]}}",
            "{{buckets:[1, 2]}}",
            "{{buckets:[ 1]}}",
            "{{buckets:[1 2}}",
            "{{foo:1}}",
            "{{count:1",
            "{{count:1}} x2",
            "{{count:1}}+{{count:1}}",
            "{{count:1}}{{count:1}}",
        ];
        for text in numbers.split_whitespace().chain(histograms) {
            assert!(parse(&format!(" {text}")).is_err(), "{text}");
        }
        assert!(parse("1").is_err(), "no space");
    }

    #[test]
    fn a_series_has_labels_and_values() {
        let (labels, sequence) = parse_series("m{a=\"b\"} 1 2").unwrap();
        assert_eq!(
            (labels.to_string().as_str(), sequence.values.len()),
            ("{__name__=\"m\", a=\"b\"}", 2)
        );
        for invalid in ["m[5m] 1", "m {a=\"b\"} 1", "m{a!=\"b\"} 1", "m-x 1", "1"] {
            assert!(parse_series(invalid).is_err(), "{invalid}");
        }
    }
}
