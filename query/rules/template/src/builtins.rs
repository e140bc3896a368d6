//! The functions of Go's `text/template`.

use std::cmp::Ordering;
use std::rc::Rc;

use varve_promql::quote::code_point;

use super::format::sprintf;
use super::print::{sprint, sprintln};
use super::value::{Basic, Value};

type Result<T> = std::result::Result<T, String>;

/// Calls a function with arguments of its types. `and` and `or` are evaluated elsewhere, because
/// they skip arguments.
pub(crate) fn call(name: &str, args: &[Value]) -> Result<Value> {
    match (name, args) {
        ("print", _) => Ok(Value::string(sprint(args))),
        ("println", _) => Ok(Value::string(sprintln(args))),
        ("printf", [format, args @ ..]) => Ok(Value::string(sprintf(
            format.as_str().unwrap_or_default(),
            args,
        ))),
        ("html", _) => Ok(Value::string(html_escaped(&text_of(args)))),
        ("js", _) => Ok(Value::string(js_escaped(&text_of(args)))),
        ("urlquery", _) => Ok(Value::string(query_escaped(&text_of(args)))),
        ("not", [value]) => Ok(Value::Bool(!value.is_true())),
        ("len", [value]) => length(value).map(|len| Value::Int(len as i64)),
        ("index", [Value::Nil, ..]) => Err("index of untyped nil".to_owned()),
        ("index", [value, keys @ ..]) => keys
            .iter()
            .try_fold(value.clone(), |value, key| index(&value, key)),
        ("slice", [value, bounds @ ..]) => slice(value, bounds),
        ("eq", [value, others @ ..]) => equals_any(value, others).map(Value::Bool),
        ("ne", [a, b]) => equals_any(a, std::slice::from_ref(b)).map(|equal| Value::Bool(!equal)),
        ("lt", [a, b]) => compare(a, b).map(|order| Value::Bool(order == Some(Ordering::Less))),
        ("le", [a, b]) => {
            compare(a, b).map(|order| Value::Bool(order.is_some_and(Ordering::is_le)))
        }
        // As in Go, each is the negation of its opposite, even for NaN.
        ("gt", [a, b]) => {
            compare(a, b).map(|order| Value::Bool(!order.is_some_and(Ordering::is_le)))
        }
        ("ge", [a, b]) => compare(a, b).map(|order| Value::Bool(order != Some(Ordering::Less))),
        ("call", [Value::Nil, ..]) => Err("call of nil".to_owned()),
        ("call", [value, ..]) => Err(format!(
            "non-function {} of type {}",
            sprint(std::slice::from_ref(value)),
            value.type_name()
        )),
        _ => Err(format!("{name} is not a function")),
    }
}

fn text_of(args: &[Value]) -> String {
    sprint(&args.iter().map(printable).collect::<Vec<_>>())
}

/// Returns the value to print for a pointer or nothing.
pub(crate) fn printable(value: &Value) -> Value {
    match value {
        Value::Nil => Value::string("<no value>"),
        // Without the `&` of a pointer.
        Value::Sample(_) => {
            Value::string(sprint(std::slice::from_ref(value)).trim_start_matches('&'))
        }
        value => value.clone(),
    }
}

fn length(value: &Value) -> Result<usize> {
    match value {
        Value::String(text) | Value::Html(text) => Ok(text.len()),
        Value::Labels(labels) => Ok(labels.len()),
        Value::Args(args) => Ok(args.values.len()),
        Value::Vector(samples) => Ok(samples.len()),
        Value::Nil => Err("len of nil pointer".to_owned()),
        value => Err(format!("len of type {}", element_type_name(value))),
    }
}

/// Returns the name of the type that a pointer points to.
fn element_type_name(value: &Value) -> &'static str {
    value.type_name().trim_start_matches('*')
}

fn index(value: &Value, key: &Value) -> Result<Value> {
    match value {
        Value::Nil => Err("index of nil pointer".to_owned()),
        Value::Labels(_) | Value::Args(_) => match key {
            Value::String(key) => Ok(value.entry(key).unwrap_or(Value::Nil)),
            Value::Nil => Err("value is nil; should be of type string".to_owned()),
            key => Err(format!(
                "value has type {}; should be string",
                key.type_name()
            )),
        },
        Value::Vector(samples) => {
            let idx = checked_index(key, samples.len())?;
            let sample = samples
                .get(idx)
                .ok_or("reflect: slice index out of range")?;
            Ok(Value::Sample(sample.clone().into()))
        }
        Value::String(text) | Value::Html(text) => {
            let idx = checked_index(key, text.len())?;
            let byte = text
                .as_bytes()
                .get(idx)
                .ok_or("reflect: string index out of range")?;
            Ok(Value::Byte(*byte))
        }
        value => Err(format!(
            "can't index item of type {}",
            element_type_name(value)
        )),
    }
}

fn checked_index(key: &Value, len: usize) -> Result<usize> {
    match (key, key.basic()) {
        (Value::Nil, _) => Err("cannot index slice/array with nil".to_owned()),
        (_, Some(Basic::Int | Basic::Uint)) => {
            let number = key.as_int().unwrap_or(0);
            let idx = usize::try_from(number).ok().filter(|&idx| idx <= len);
            idx.ok_or_else(|| format!("index out of range: {number}"))
        }
        _ => Err(format!(
            "cannot index slice/array with type {}",
            key.type_name()
        )),
    }
}

fn slice(value: &Value, bounds: &[Value]) -> Result<Value> {
    let len = match value {
        Value::Nil => return Err("slice of untyped nil".to_owned()),
        Value::String(text) | Value::Html(text) => text.len(),
        Value::Vector(samples) => samples.len(),
        value => {
            return Err(format!(
                "can't slice item of type {}",
                element_type_name(value)
            ));
        }
    };
    if bounds.len() > 3 {
        return Err(format!("too many slice indexes: {}", bounds.len()));
    }
    if bounds.len() == 3 && value.as_str().is_some() {
        return Err("cannot 3-index slice a string".to_owned());
    }
    let bounds = bounds
        .iter()
        .map(|bound| checked_index(bound, len))
        .collect::<Result<Vec<_>>>()?;
    let start = bounds.first().copied().unwrap_or(0);
    let end = bounds.get(1).copied().unwrap_or(len);
    let capacity = bounds.get(2).copied().unwrap_or(len);
    for (low, high) in [(start, end), (end, capacity)] {
        if low > high {
            return Err(format!("invalid slice index: {low} > {high}"));
        }
    }
    if let Value::Vector(samples) = value {
        return Ok(Value::Vector(samples[start..end].into()));
    }
    let text = value.as_str().unwrap_or_default();
    let part: Rc<str> = String::from_utf8_lossy(&text.as_bytes()[start..end]).into();
    Ok(match value {
        Value::Html(_) => Value::Html(part),
        _ => Value::String(part),
    })
}

fn equals_any(value: &Value, others: &[Value]) -> Result<bool> {
    if others.is_empty() {
        return Err("missing argument for comparison".to_owned());
    }
    for other in others {
        if equals(value, other)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn equals(a: &Value, b: &Value) -> Result<bool> {
    match (a.basic(), b.basic()) {
        (Some(a_type), Some(b_type)) if a_type == b_type || are_integers(a_type, b_type) => {
            Ok(match (a, b) {
                (Value::Bool(a), Value::Bool(b)) => a == b,
                (Value::Float(a), Value::Float(b)) => a == b,
                _ => (a.as_int(), a.as_str()) == (b.as_int(), b.as_str()),
            })
        }
        (None, None) => match (a, b) {
            (Value::Nil, _) | (_, Value::Nil) => Ok(matches!((a, b), (Value::Nil, Value::Nil))),
            (Value::Sample(a), Value::Sample(b)) => Ok(Rc::ptr_eq(a, b)),
            _ => Err(format!(
                "non-comparable type {}: {}",
                sprint(std::slice::from_ref(b)),
                b.type_name()
            )),
        },
        _ if matches!(a, Value::Nil) || matches!(b, Value::Nil) => Ok(false),
        _ => Err(incompatible(a, b)),
    }
}

fn are_integers(a: Basic, b: Basic) -> bool {
    [a, b]
        .iter()
        .all(|basic| matches!(basic, Basic::Int | Basic::Uint))
}

fn incompatible(a: &Value, b: &Value) -> String {
    format!(
        "incompatible types for comparison: {} and {}",
        a.type_name(),
        b.type_name()
    )
}

/// Returns the order of two values; `None` if one is NaN.
fn compare(a: &Value, b: &Value) -> Result<Option<Ordering>> {
    let (Some(a_type), Some(b_type)) = (a.basic(), b.basic()) else {
        return Err("invalid type for comparison".to_owned());
    };
    if a_type != b_type && !are_integers(a_type, b_type) {
        return Err(incompatible(a, b));
    }
    match (a, b) {
        (Value::Bool(_), _) => Err("invalid type for comparison".to_owned()),
        (Value::Float(a), Value::Float(b)) => Ok(a.partial_cmp(b)),
        _ => Ok(Some(
            (a.as_int(), a.as_str()).cmp(&(b.as_int(), b.as_str())),
        )),
    }
}

fn html_escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\0' => out.push('\u{fffd}'),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            c => out.push(c),
        }
    }
    out
}

fn js_escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '\'' | '"' => out.extend(['\\', c]),
            '<' | '>' | '&' | '=' | '\0'..' ' => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            // Only a printable character has more than a code point.
            c if c.is_ascii() || code_point(c).contains(' ') => out.push(c),
            c => out.push_str(&format!("\\u{:04X}", u32::from(c))),
        }
    }
    out
}

/// Escapes a text as Go's `url.QueryEscape` does.
#[must_use]
pub fn query_escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(byte))
            }
            b' ' => out.push('+'),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
