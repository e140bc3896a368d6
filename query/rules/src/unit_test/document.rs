//! Files of unit tests, as Prometheus reads them with version 2 of Go's YAML.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Unexpected, Visitor};
use varve_promql::duration::parse_duration;

use crate::file::Texts;
use crate::file::mapping::{Fields, InOrder, Number, ReadInOrder, Text, next_ordered, number};

/// A file of unit tests.
#[derive(Debug, Default)]
pub struct TestFile {
    /// Patterns of rule files, relative to this file.
    pub rule_files: Vec<String>,
    pub(super) evaluation_interval: i64,
    pub(super) group_eval_order: Vec<String>,
    pub(super) tests: Vec<TestGroup>,
    pub(super) fuzzy_compare: bool,
}

/// Input series, and tests on them.
#[derive(Debug, Default)]
pub(super) struct TestGroup {
    pub(super) interval: i64,
    pub(super) input_series: Vec<InputSeries>,
    pub(super) alert_rule_test: Vec<AlertTest>,
    pub(super) promql_expr_test: Vec<ExprTest>,
    pub(super) external_labels: Texts,
    pub(super) external_url: String,
    pub(super) name: String,
    /// RFC 3339, or seconds since the epoch.
    pub(super) start_timestamp: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct InputSeries {
    pub(super) series: String,
    pub(super) values: String,
}

#[derive(Debug, Default)]
pub(super) struct AlertTest {
    pub(super) eval_time: i64,
    pub(super) alertname: String,
    pub(super) exp_alerts: Vec<ExpectedAlert>,
}

#[derive(Debug, Default)]
pub(super) struct ExpectedAlert {
    pub(super) exp_labels: Texts,
    pub(super) exp_annotations: Texts,
}

#[derive(Debug, Default)]
pub(super) struct ExprTest {
    pub(super) expr: String,
    pub(super) eval_time: i64,
    pub(super) exp_samples: Vec<ExpectedSample>,
}

#[derive(Debug, Default)]
pub(super) struct ExpectedSample {
    pub(super) labels: String,
    pub(super) value: f64,
    /// Replaces the value if it is not empty.
    pub(super) histogram: String,
}

impl TestFile {
    /// Parses a file.
    ///
    /// # Errors
    /// A message with line and column.
    pub fn parse(text: &str) -> Result<Self, String> {
        // As in Prometheus, further documents are ignored.
        let document = serde_yaml_ng::Deserializer::from_str(text).next();
        let file = document.map_or_else(
            || Ok(ReadInOrder(Self::default())),
            ReadInOrder::deserialize,
        );
        file.map(|ReadInOrder(file)| file)
            .map_err(|error| error.to_string())
    }
}

impl Fields for TestFile {
    const WHAT: &str = "a file of unit tests";
    const KEYS: &[&str] = &[
        "rule_files",
        "evaluation_interval",
        "group_eval_order",
        "tests",
        "fuzzy_compare",
    ];

    fn set<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "rule_files" => self.rule_files = next_texts(values)?,
            "evaluation_interval" => self.evaluation_interval = next_duration(values)?,
            "group_eval_order" => self.group_eval_order = next_texts(values)?,
            "tests" => self.tests = next_ordered(values)?,
            "fuzzy_compare" => self.fuzzy_compare = values.next_value::<Scalar>()?.boolean()?,
            _ => return unknown(key),
        }
        Ok(())
    }
}

impl Fields for TestGroup {
    const WHAT: &str = "a group of tests";
    const KEYS: &[&str] = &[
        "interval",
        "input_series",
        "alert_rule_test",
        "promql_expr_test",
        "external_labels",
        "external_url",
        "name",
        "start_timestamp",
    ];

    fn set<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "interval" => self.interval = next_duration(values)?,
            "input_series" => self.input_series = next_ordered(values)?,
            "alert_rule_test" => self.alert_rule_test = next_ordered(values)?,
            "promql_expr_test" => self.promql_expr_test = next_ordered(values)?,
            "external_labels" => values.next_value_seed(InOrder(&mut self.external_labels))?,
            "external_url" => self.external_url = values.next_value::<Text>()?.0,
            "name" => self.name = values.next_value::<Text>()?.0,
            "start_timestamp" => self.start_timestamp = values.next_value()?,
            _ => return unknown(key),
        }
        Ok(())
    }
}

impl Fields for InputSeries {
    const WHAT: &str = "a series";
    const KEYS: &[&str] = &["series", "values"];

    fn set<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "series" => self.series = values.next_value::<Text>()?.0,
            "values" => self.values = values.next_value::<Text>()?.0,
            _ => return unknown(key),
        }
        Ok(())
    }
}

impl Fields for AlertTest {
    const WHAT: &str = "a test of alerts";
    const KEYS: &[&str] = &["eval_time", "alertname", "exp_alerts"];

    fn set<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "eval_time" => self.eval_time = next_duration(values)?,
            "alertname" => self.alertname = values.next_value::<Text>()?.0,
            "exp_alerts" => self.exp_alerts = next_ordered(values)?,
            _ => return unknown(key),
        }
        Ok(())
    }
}

impl Fields for ExpectedAlert {
    const WHAT: &str = "an alert";
    const KEYS: &[&str] = &["exp_labels", "exp_annotations"];

    fn set<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "exp_labels" => values.next_value_seed(InOrder(&mut self.exp_labels)),
            "exp_annotations" => values.next_value_seed(InOrder(&mut self.exp_annotations)),
            _ => unknown(key),
        }
    }
}

impl Fields for ExprTest {
    const WHAT: &str = "a test of an expression";
    const KEYS: &[&str] = &["expr", "eval_time", "exp_samples"];

    fn set<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "expr" => self.expr = values.next_value::<Text>()?.0,
            "eval_time" => self.eval_time = next_duration(values)?,
            "exp_samples" => self.exp_samples = next_ordered(values)?,
            _ => return unknown(key),
        }
        Ok(())
    }
}

impl Fields for ExpectedSample {
    const WHAT: &str = "a sample";
    const KEYS: &[&str] = &["labels", "value", "histogram"];

    fn set<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "labels" => self.labels = values.next_value::<Text>()?.0,
            "value" => self.value = values.next_value::<Scalar>()?.float()?,
            "histogram" => self.histogram = values.next_value::<Text>()?.0,
            _ => return unknown(key),
        }
        Ok(())
    }
}

fn unknown<T, E: Error>(key: &str) -> Result<T, E> {
    Err(E::custom(format!("field {key} is unknown")))
}

fn next_texts<'de, A: MapAccess<'de>>(values: &mut A) -> Result<Vec<String>, A::Error> {
    let texts = values
        .next_value::<Option<Vec<Text>>>()?
        .unwrap_or_default();
    Ok(texts.into_iter().map(|Text(text)| text).collect())
}

/// Reads a duration in milliseconds. Null is 0.
fn next_duration<'de, A: MapAccess<'de>>(values: &mut A) -> Result<i64, A::Error> {
    let text = values.next_value::<Option<String>>()?;
    text.map_or(Ok(0), |text| {
        parse_duration(&text).map_err(A::Error::custom)
    })
}

/// A scalar as serde reads it.
enum Scalar {
    Null,
    Boolean(bool),
    Float(f64),
    Text(String),
}

impl Scalar {
    /// Returns the boolean in YAML 1.1.
    fn boolean<E: Error>(self) -> Result<bool, E> {
        match self {
            Self::Null => Ok(false),
            Self::Boolean(boolean) => Ok(boolean),
            Self::Text(text) => match text.to_lowercase().as_str() {
                "y" | "yes" | "on" => Ok(true),
                "n" | "no" | "off" => Ok(false),
                _ => Err(E::invalid_type(Unexpected::Str(&text), &"a boolean")),
            },
            Self::Float(number) => Err(E::invalid_type(Unexpected::Float(number), &"a boolean")),
        }
    }

    fn float<E: Error>(self) -> Result<f64, E> {
        let found = match &self {
            Self::Null => return Ok(0.0),
            Self::Float(float) => return Ok(*float),
            Self::Text(text) => match number(text) {
                Some(Number::Integer(integer)) => return Ok(integer as f64),
                Some(Number::Float(float)) => return Ok(float),
                None => Unexpected::Str(text),
            },
            Self::Boolean(boolean) => Unexpected::Bool(*boolean),
        };
        Err(E::invalid_type(found, &"a number"))
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl Visitor<'_> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a scalar")
    }

    fn visit_unit<E: Error>(self) -> Result<Scalar, E> {
        Ok(Scalar::Null)
    }

    fn visit_bool<E: Error>(self, boolean: bool) -> Result<Scalar, E> {
        Ok(Scalar::Boolean(boolean))
    }

    fn visit_i64<E: Error>(self, integer: i64) -> Result<Scalar, E> {
        Ok(Scalar::Float(integer as f64))
    }

    fn visit_u64<E: Error>(self, integer: u64) -> Result<Scalar, E> {
        Ok(Scalar::Float(integer as f64))
    }

    fn visit_f64<E: Error>(self, float: f64) -> Result<Scalar, E> {
        Ok(Scalar::Float(float))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Scalar, E> {
        Ok(Scalar::Text(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The position was that of the mapping with the key, or there was none.
    #[test]
    fn an_unknown_or_repeated_key_has_its_own_position() {
        for (text, expect) in [
            (
                "tests:\n- name: a\n  input_series:\n  - series: up\n    value: 1\n",
                "tests[0].input_series[0]: field value is unknown at line 5 column 5",
            ),
            (
                "tests:\n- name: a\n  interval: 1m\n  name: b\n",
                "tests[0]: key \"name\" is repeated at line 4 column 3",
            ),
            (
                "tests: []\nfuzzy_compare: true\ntests: []\n",
                "key \"tests\" is repeated at line 3 column 1",
            ),
            (
                "tests:\n- external_labels:\n    a: b\n    a: c\n",
                "tests[0].external_labels: key \"a\" is repeated at line 4 column 5",
            ),
            ("\nrules: []\n", "field rules is unknown at line 2 column 1"),
        ] {
            assert_eq!(TestFile::parse(text).unwrap_err(), expect, "{text}");
        }
    }

    /// `KEYS` and the arms of `set` name the same keys twice: a key that only one of them has would
    /// be unknown.
    #[test]
    fn keys_are_the_arms_of_set() {
        let source = include_str!("document.rs");
        let (code, _) = source.split_once("#[cfg(test)]").unwrap();
        let mut n_types = 0;
        for block in code.split("impl Fields for ").skip(1) {
            let (keys, rest) = block.split_once("fn set<").unwrap();
            let (_, keys) = keys.split_once("const KEYS").unwrap();
            let keys: Vec<&str> = keys.split('"').skip(1).step_by(2).collect();
            let (arms, _) = rest.split_once("_ =>").unwrap();
            let arms: Vec<&str> = arms
                .lines()
                .filter(|line| line.contains("=>"))
                .filter_map(|arm| arm.split('"').nth(1))
                .collect();
            assert!(!keys.is_empty());
            assert_eq!(keys, arms, "{block}");
            n_types += 1;
        }
        assert_eq!(n_types, 7);
    }
}
