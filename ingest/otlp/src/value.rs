//! Converts attribute values to strings, like the collector's `pdata`: numbers as in JavaScript,
//! arrays and maps as JSON as Go encodes it without escapes for HTML.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};

use super::message::{AnyValue, KeyValue, Value};

/// Returns an attribute's value as a string.
pub(crate) fn print(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.as_ref()) {
        None => String::new(),
        Some(Value::String(text)) => String::from_utf8_lossy(text).into_owned(),
        Some(Value::Bool(value)) => value.to_string(),
        Some(Value::Int(value)) => value.to_string(),
        Some(Value::Double(value)) if value.is_nan() => "NaN".to_owned(),
        Some(Value::Double(value)) if value.is_infinite() => if *value > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        }
        .to_owned(),
        Some(Value::Double(value)) => float(*value),
        Some(Value::Bytes(bytes)) => BASE64.encode(bytes),
        Some(nested @ (Value::Array(_) | Value::Map(_))) => {
            let mut json = String::new();
            // Go rejects NaN and infinities in JSON. `pdata` then returns an empty string.
            if put_json(&mut json, nested) {
                json
            } else {
                String::new()
            }
        }
    }
}

/// Writes a value as JSON; returns `false` if it has a NaN or an infinity. Recurses to the depth
/// that prost decodes.
fn put_json(json: &mut String, value: &Value) -> bool {
    match value {
        Value::String(text) => put_string(json, &String::from_utf8_lossy(text)),
        Value::Bool(value) => json.push_str(if *value { "true" } else { "false" }),
        Value::Int(value) => json.push_str(&value.to_string()),
        Value::Double(value) if !value.is_finite() => return false,
        Value::Double(value) => json.push_str(&float(*value)),
        // Go's encoding of a slice that is nil.
        Value::Bytes(bytes) if bytes.is_empty() => json.push_str("null"),
        Value::Bytes(bytes) => put_string(json, &BASE64.encode(bytes)),
        Value::Array(array) => {
            json.push('[');
            for (i, value) in array.values.iter().enumerate() {
                json.push_str(if i == 0 { "" } else { "," });
                if !put_any(json, Some(value)) {
                    return false;
                }
            }
            json.push(']');
        }
        Value::Map(map) => return put_map(json, &map.attributes),
    }
    true
}

fn put_any(json: &mut String, value: Option<&AnyValue>) -> bool {
    match value.and_then(|value| value.value.as_ref()) {
        Some(value) => put_json(json, value),
        None => {
            json.push_str("null");
            true
        }
    }
}

fn put_map(json: &mut String, attributes: &[KeyValue]) -> bool {
    // Go sorts the keys. The last of equal keys wins.
    let sorted: BTreeMap<_, _> = attributes
        .iter()
        .map(|attribute| (attribute.key(), attribute.value.as_ref()))
        .collect();
    json.push('{');
    for (i, (key, value)) in sorted.into_iter().enumerate() {
        json.push_str(if i == 0 { "" } else { "," });
        put_string(json, &key);
        json.push(':');
        if !put_any(json, value) {
            return false;
        }
    }
    json.push('}');
    true
}

/// Appends a string as Go encodes it: unlike `serde_json`, Go escapes the line separators of
/// Unicode.
fn put_string(json: &mut String, text: &str) {
    let quoted = serde_json::Value::from(text).to_string();
    json.push_str(
        &quoted
            .replace('\u{2028}', "\\u2028")
            .replace('\u{2029}', "\\u2029"),
    );
}

/// Prints a finite number as in JavaScript.
fn float(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{value:e}");
        return if text.contains("e-") {
            text
        } else {
            text.replace('e', "e+")
        };
    }
    value.to_string()
}

/// Base64 with padding. As in Go, unused bits of the last digit may be set.
pub(super) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

#[cfg(test)]
mod tests {
    use super::super::message::{ArrayValue, Attributes};
    use super::*;

    fn any(value: Value) -> AnyValue {
        AnyValue { value: Some(value) }
    }

    #[track_caller]
    fn check(value: Value, expect: &str) {
        assert_eq!(print(Some(&any(value))), expect);
    }

    #[test]
    fn values_are_printed_like_in_the_collector() {
        assert_eq!(print(None), "");
        check(Value::String("a<b".into()), "a<b");
        check(Value::Bool(true), "true");
        check(Value::Int(-5), "-5");
        for (value, expect) in [
            (1.0, "1"),
            (0.1, "0.1"),
            (1e21, "1e+21"),
            (1.5e-7, "1.5e-7"),
            (1e20, "100000000000000000000"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            check(Value::Double(value), expect);
        }
        for (bytes, expect) in [
            (&b""[..], ""),
            (b"a", "YQ=="),
            (b"ab", "YWI="),
            (b"abc", "YWJj"),
        ] {
            check(Value::Bytes(bytes.to_vec()), expect);
            assert_eq!(BASE64.decode(expect).ok().as_deref(), Some(bytes));
        }
        assert_eq!(
            BASE64.decode("YR==").ok().as_deref(),
            Some(&b"a"[..]),
            "unused bits"
        );
        for invalid in ["YQ", "YQ=", "Y===", "*Q==", "=QQ="] {
            assert_eq!(BASE64.decode(invalid).ok(), None, "{invalid}");
        }
        let entry = |key: &str, value| KeyValue {
            key: key.into(),
            value,
        };
        let list = Value::Array(ArrayValue {
            values: vec![any(Value::Int(1)), AnyValue { value: None }],
        });
        let map = vec![
            entry("b", Some(any(list))),
            entry("a", Some(any(Value::String("<\n\u{2028}\u{1}".into())))),
        ];
        check(
            Value::Map(Attributes { attributes: map }),
            r#"{"a":"<\n\u2028\u0001","b":[1,null]}"#,
        );
        let bytes = ["", "a"]
            .map(|bytes| any(Value::Bytes(bytes.into())))
            .into();
        check(
            Value::Array(ArrayValue { values: bytes }),
            r#"[null,"YQ=="]"#,
        );
        check(
            Value::Array(ArrayValue {
                values: vec![any(Value::Double(f64::NAN))],
            }),
            "",
        );
    }
}
