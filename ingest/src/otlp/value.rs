//! Converts attribute values to strings, like the collector's `pdata`: numbers as in JavaScript, arrays and maps as
//! JSON as Go encodes it without escapes for HTML.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::message::{AnyValue, KeyValue, Value};

/// Returns an attribute's value as a string.
pub(crate) fn print(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.as_ref()) {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(value)) => value.to_string(),
        Some(Value::Int(value)) => value.to_string(),
        Some(Value::Double(value)) if !value.is_finite() => {
            let name = if value.is_nan() {
                "NaN"
            } else if *value > 0.0 {
                "+Inf"
            } else {
                "-Inf"
            };
            format!("json: unsupported value: {name}")
        }
        Some(Value::Double(value)) => float(*value),
        Some(Value::Bytes(bytes)) => base64(bytes),
        Some(nested @ (Value::Array(_) | Value::Map(_))) => {
            let mut json = String::new();
            // Go rejects NaN and infinities in JSON. `pdata` then returns an empty string.
            if put_json(&mut json, nested) { json } else { String::new() }
        }
    }
}

/// Writes a value as JSON; returns `false` if it has a NaN or an infinity. Recurses to the depth that prost decodes.
fn put_json(json: &mut String, value: &Value) -> bool {
    match value {
        Value::String(text) => put_string(json, text),
        Value::Bool(value) => json.push_str(if *value { "true" } else { "false" }),
        Value::Int(value) => json.push_str(&value.to_string()),
        Value::Double(value) if !value.is_finite() => return false,
        Value::Double(value) => json.push_str(&float(*value)),
        Value::Bytes(bytes) => put_string(json, &base64(bytes)),
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
    let sorted: BTreeMap<_, _> =
        attributes.iter().map(|attribute| (&attribute.key, attribute.value.as_ref())).collect();
    json.push('{');
    for (i, (key, value)) in sorted.into_iter().enumerate() {
        json.push_str(if i == 0 { "" } else { "," });
        put_string(json, key);
        json.push(':');
        if !put_any(json, value) {
            return false;
        }
    }
    json.push('}');
    true
}

fn put_string(json: &mut String, text: &str) {
    json.push('"');
    for c in text.chars() {
        match c {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            '\u{8}' => json.push_str("\\b"),
            '\u{c}' => json.push_str("\\f"),
            '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                write!(json, "\\u{:04x}", u32::from(c)).expect("writing to a String cannot fail");
            }
            _ => json.push(c),
        }
    }
    json.push('"');
}

/// Prints a finite number as in JavaScript.
fn float(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{value:e}");
        return if text.contains("e-") { text } else { text.replace('e', "e+") };
    }
    value.to_string()
}

/// Decodes base64 with padding. Returns `None` if the text is invalid.
pub(super) fn base64_bytes(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let unpadded = text.trim_end_matches('=');
    if !text.len().is_multiple_of(4) || text.len() - unpadded.len() > 2 {
        return None;
    }
    for chunk in unpadded.as_bytes().chunks(4) {
        let digit = |byte: &u8| DIGITS.iter().position(|digit| digit == byte);
        let bits = chunk.iter().try_fold(0, |bits, byte| Some(bits << 6 | digit(byte)?))? << (6 * (4 - chunk.len()));
        bytes.extend((0..chunk.len() - 1).map(|i| (bits >> (16 - 8 * i)) as u8));
    }
    Some(bytes)
}

fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().chain(&[0, 0]).take(3).fold(0_u32, |bits, &byte| bits << 8 | u32::from(byte));
        for i in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * i) & 63) as usize];
            text.push(if i <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

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
            (f64::NAN, "json: unsupported value: NaN"),
        ] {
            check(Value::Double(value), expect);
        }
        for (bytes, expect) in [(&b""[..], ""), (b"a", "YQ=="), (b"ab", "YWI="), (b"abc", "YWJj")] {
            check(Value::Bytes(bytes.to_vec()), expect);
            assert_eq!(base64_bytes(expect).as_deref(), Some(bytes));
        }
        for invalid in ["YQ", "YQ=", "Y===", "*Q==", "=QQ="] {
            assert_eq!(base64_bytes(invalid), None, "{invalid}");
        }
        let entry = |key: &str, value| KeyValue { key: key.into(), value };
        let list = Value::Array(ArrayValue { values: vec![any(Value::Int(1)), AnyValue { value: None }] });
        let map = vec![entry("b", Some(any(list))), entry("a", Some(any(Value::String("<\n".into()))))];
        check(Value::Map(Attributes { attributes: map }), r#"{"a":"<\n","b":[1,null]}"#);
        check(Value::Array(ArrayValue { values: vec![any(Value::Double(f64::NAN))] }), "");
    }
}
