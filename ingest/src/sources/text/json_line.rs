//! Parses a line of VictoriaMetrics' JSON line format, a series with samples:
//! `{"metric":{"__name__":"up","job":"a"},"values":[1,0.5],"timestamps":[1700000000000,1700000015000]}`
//!
//! Timestamps are in milliseconds. A value is a number, `null` for the staleness marker, or one of
//! the strings `Infinity`, `-Infinity` and `NaN`. VictoriaMetrics writes `null` for NaN, and stores
//! no NaN but the marker. Unknown fields are skipped.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use varve_model::staleness::STALE_NAN_BITS;

use super::line::{Line, SeriesLine};
use super::nan::NORMAL_NAN_BITS;

#[derive(serde::Deserialize)]
struct JsonLine<'a> {
    #[serde(borrow)]
    metric: BTreeMap<Label<'a>, Label<'a>>,
    values: Vec<Value>,
    timestamps: Vec<i64>,
}

/// A string that is borrowed unless it has escapes.
#[derive(serde::Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Label<'a>(#[serde(borrow)] Cow<'a, str>);

struct Value(f64);

/// Parses a line, which may be blank.
///
/// # Errors
/// The reason why it is invalid.
pub(super) fn parse(line: &str) -> Result<Line<'_>, String> {
    if line.trim().is_empty() {
        return Ok(Line::Nothing);
    }
    let JsonLine {
        metric,
        values,
        timestamps,
    } = serde_json::from_str(line).map_err(|error| error.to_string())?;
    if values.len() != timestamps.len() {
        return Err(format!(
            "{} values and {} timestamps",
            values.len(),
            timestamps.len()
        ));
    }
    let labels = metric
        .into_iter()
        .map(|(name, value)| (name.0, value.0))
        .collect();
    let samples = timestamps
        .into_iter()
        .zip(values.into_iter().map(|value| value.0))
        .collect();
    Ok(Line::Series(SeriesLine { labels, samples }))
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl Visitor<'_> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, null, \"Infinity\", \"-Infinity\" or \"NaN\"")
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value(value as f64))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value(value as f64))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value(f64::from_bits(STALE_NAN_BITS)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        match text {
            "Infinity" => Ok(Value(f64::INFINITY)),
            "-Infinity" => Ok(Value(f64::NEG_INFINITY)),
            "NaN" => Ok(Value(f64::from_bits(NORMAL_NAN_BITS))),
            _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed() {
        let line = r#"{"x":[{}],"metric":{"b":"\u00e9","__name__":"a"},
            "values":[1,-0.5,1e300,null,"NaN","Infinity","-Infinity"],"timestamps":[-1,2,3,4,5,6,7]}"#;
        let Line::Series(SeriesLine { labels, samples }) = parse(line).unwrap() else {
            panic!("{line}")
        };
        assert_eq!(
            labels,
            [("__name__", "a"), ("b", "é")].map(|(name, value)| (name.into(), value.into()))
        );
        let values: Vec<_> = samples
            .iter()
            .map(|(time, value)| match value.to_bits() {
                STALE_NAN_BITS => format!("{time} marker"),
                _ => format!("{time} {value}"),
            })
            .collect();
        let expect = [
            "-1 1",
            "2 -0.5",
            &format!("3 {}", 1e300),
            "4 marker",
            "5 NaN",
            "6 inf",
            "7 -inf",
        ];
        assert_eq!(values, expect);
    }

    #[test]
    fn floats_are_exact() {
        let mut state = 1_u64;
        for _ in 0..10_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let value = Some(f64::from_bits(state))
                .filter(|value| value.is_finite())
                .unwrap_or(0.090_350_328_657_326_17);
            let line = format!(
                "{{\"metric\":{{\"__name__\":\"a\"}},\"values\":[{value:e}],\"timestamps\":[1]}}"
            );
            let Line::Series(series) = parse(&line).unwrap() else {
                panic!("{line}")
            };
            assert_eq!(series.samples[0].1.to_bits(), value.to_bits(), "{line}");
        }
    }

    #[test]
    fn blank_lines_are_skipped() {
        assert_eq!(parse(" \r"), Ok(Line::Nothing));
    }

    #[test]
    fn invalid_lines_are_rejected() {
        for (line, expect) in [
            ("{", "EOF"),
            ("{}", "missing field `metric`"),
            (
                r#"{"metric":{"a":1},"values":[],"timestamps":[]}"#,
                "invalid type: integer",
            ),
            (
                r#"{"metric":{},"values":[1,2],"timestamps":[1]}"#,
                "2 values and 1 timestamps",
            ),
            (
                r#"{"metric":{},"values":["x"],"timestamps":[1]}"#,
                "expected a number, null",
            ),
            (
                r#"{"metric":{},"values":[1],"timestamps":[1.5]}"#,
                "invalid type: floating point",
            ),
            (
                r#"{"metric":{},"values":[1],"timestamps":[1]} {}"#,
                "trailing characters",
            ),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(expect), "{line}: {error}");
        }
    }
}
