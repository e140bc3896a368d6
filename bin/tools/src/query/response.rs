//! Responses of Prometheus' HTTP API.

use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value as Json;
use varve_client::Response;

/// Label names and values, sorted by name.
pub(crate) type Labels = BTreeMap<String, String>;

/// The data, warnings and infos of a response.
#[derive(Debug)]
pub(crate) struct Data {
    data: Json,
    warnings: Vec<String>,
    infos: Vec<String>,
}

/// The result of a query.
#[derive(Debug, Deserialize)]
#[serde(tag = "resultType", content = "result", rename_all = "lowercase")]
pub(crate) enum Value {
    Vector(Vec<Sample>),
    Matrix(Vec<Stream>),
    Scalar(Point),
    String(Text),
}

/// A float or histogram of a series at one time.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Sample {
    pub(crate) metric: Labels,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) value: Option<Point>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) histogram: Option<HistogramPoint>,
}

/// The samples of a series.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Stream {
    pub(crate) metric: Labels,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) values: Vec<Point>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) histograms: Vec<HistogramPoint>,
}

/// A time in seconds and a float.
#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
pub(crate) struct Point(
    #[serde(serialize_with = "time")] pub(crate) f64,
    #[serde(with = "float")] pub(crate) f64,
);

/// A time in seconds and a string.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Text(
    #[serde(serialize_with = "time")] pub(crate) f64,
    pub(crate) String,
);

/// A time in seconds and a histogram.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct HistogramPoint(
    #[serde(serialize_with = "time")] pub(crate) f64,
    pub(crate) Histogram,
);

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Histogram {
    #[serde(with = "float")]
    pub(crate) count: f64,
    #[serde(with = "float")]
    pub(crate) sum: f64,
    #[serde(default)]
    pub(crate) buckets: Vec<Bucket>,
}

/// The inclusive bounds (0: upper, 1: lower, 2: none, 3: both), the bounds, and the count.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Bucket(
    pub(crate) i32,
    #[serde(with = "float")] pub(crate) f64,
    #[serde(with = "float")] pub(crate) f64,
    #[serde(with = "float")] pub(crate) f64,
);

#[derive(Deserialize)]
struct Envelope {
    status: String,
    #[serde(default)]
    data: Json,
    #[serde(default, rename = "errorType")]
    error_type: String,
    #[serde(default)]
    error: String,
    #[serde(default)]
    warnings: Vec<String>,
    #[serde(default)]
    infos: Vec<String>,
}

impl Data {
    /// Parses a response.
    ///
    /// # Errors
    /// The server's error as `kind: message`, or `bad_response` if it is not a response of
    /// Prometheus' API.
    pub(crate) fn parse(response: &Response) -> Result<Self> {
        let envelope: Envelope = match serde_json::from_slice(&response.body) {
            Ok(envelope) => envelope,
            Err(_) if !response.is_success() => {
                let kind = if response.status / 100 == 5 {
                    "server_error"
                } else {
                    "client_error"
                };
                bail!("{kind}: {} (detail: {})", response.status, response.text())
            }
            Err(error) => return Err(anyhow!("bad_response: {error}")),
        };
        match envelope.status.as_str() {
            "success" if response.is_success() => Ok(Self {
                data: envelope.data,
                warnings: envelope.warnings,
                infos: envelope.infos,
            }),
            "error" => bail!("{}: {}", envelope.error_type, envelope.error),
            _ => bail!("bad_response: inconsistent body for response code"),
        }
    }

    /// Prints the warnings and infos to standard error. promtool prints warnings of label values
    /// only.
    pub(crate) fn print_annotations(&self) {
        for warning in &self.warnings {
            eprintln!("query warning: {warning}");
        }
        for info in &self.infos {
            eprintln!("query info: {info}");
        }
    }

    /// Returns the warnings.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the data as a type of this module.
    ///
    /// # Errors
    /// If it is of another type.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T> {
        T::deserialize(&self.data).context("query error: bad_response")
    }
}

/// Returns the data of a successful response as a type of this module, without the tree that [`Data`] holds in
/// between: for large results.
///
/// # Errors
/// If it is another type.
pub(crate) fn read_data<T: DeserializeOwned>(response: &Response) -> Result<T> {
    #[derive(Deserialize)]
    struct Success<T> {
        data: T,
    }

    let success: Success<T> =
        serde_json::from_slice(&response.body).context("parse the response of a query")?;
    Ok(success.data)
}

/// Serializes a time rounded to milliseconds, without a fraction if it is a whole number of
/// seconds.
fn time<S: Serializer>(time_s: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    let rounded_s = (time_s * 1000.0).round() / 1000.0;
    match rounded_s.fract() {
        0.0 => serializer.serialize_i64(rounded_s as i64),
        _ => serializer.serialize_f64(rounded_s),
    }
}

/// A float as a string, as Go prints it.
mod float {
    use std::fmt;

    use serde::{Deserializer, Serializer, de};
    use varve_promql::decimal::Plain;

    pub(crate) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Plain(*value))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        deserializer.deserialize_str(FloatVisitor)
    }

    /// Parses the string without a copy: results have millions.
    struct FloatVisitor;

    impl de::Visitor<'_> for FloatVisitor {
        type Value = f64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a number as a string")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<f64, E> {
            text.parse()
                .map_err(|_| E::custom(format!("{text:?} is not a number")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(status: u16, body: &'static str) -> Result<Data> {
        Data::parse(&Response {
            status,
            headers: hyper::HeaderMap::new(),
            body: body.into(),
        })
    }

    #[test]
    fn errors_have_a_kind() {
        let check =
            |status, body, expect| assert_eq!(parse(status, body).unwrap_err().to_string(), expect);
        check(
            400,
            r#"{"status":"error","errorType":"bad_data","error":"no"}"#,
            "bad_data: no",
        );
        check(502, "gone", "server_error: 502 (detail: gone)");
        check(
            200,
            r#"{"status":"error","errorType":"execution","error":"x"}"#,
            "execution: x",
        );
        check(
            400,
            r#"{"status":"success"}"#,
            "bad_response: inconsistent body for response code",
        );
        assert!(
            parse(200, "<html>")
                .unwrap_err()
                .to_string()
                .starts_with("bad_response: ")
        );
    }

    #[test]
    fn all_types_of_results_are_parsed() {
        let value = |data: &str| {
            Data {
                data: serde_json::from_str(data).unwrap(),
                warnings: Vec::new(),
                infos: Vec::new(),
            }
            .read::<Value>()
        };
        assert!(
            matches!(value(r#"{"resultType":"scalar","result":[1.5,"+Inf"]}"#), Ok(Value::Scalar(Point(t, v)))
            if t == 1.5 && v == f64::INFINITY)
        );
        assert!(matches!(
            value(r#"{"resultType":"string","result":[1,"a"]}"#),
            Ok(Value::String(_))
        ));
        let histogram = r#"{"count":"1","sum":"2","buckets":[[3,"-1","1","1"]]}"#;
        let vector = format!(
            r#"{{"resultType":"vector","result":[{{"metric":{{}},"histogram":[1,{histogram}]}}]}}"#
        );
        assert!(
            matches!(value(&vector), Ok(Value::Vector(samples)) if samples[0].histogram.is_some())
        );
        assert!(
            value(r#"{"resultType":"matrix","result":[{"metric":{},"values":[[1,"x"]]}]}"#)
                .is_err()
        );
        assert!(value("[]").is_err());
    }
}
