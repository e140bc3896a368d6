//! The functions that Prometheus adds to templates, and the types of all functions.

use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;

use varve_promql::decimal::General;
use varve_promql::duration::parse_duration;
use varve_promql::number;
use varve_promql::quote::quoted;
use varve_regexp::{Regexp, Rewrite};

use super::builtins::{self, query_escaped};
use super::environment::Environment;
use super::format;
use super::limits::SIZE_MAX;
use super::print::significant;
use super::time::{Duration, Time};
use super::value::{Args, Type, Value};

type Result<T> = std::result::Result<T, String>;

/// The types of a function's parameters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signature {
    pub(crate) fixed: &'static [Type],
    /// The type of all further arguments.
    pub(crate) variadic: Option<Type>,
}

impl Signature {
    /// Returns the type of an argument.
    pub(crate) fn type_of(self, arg_idx: usize) -> Option<Type> {
        self.fixed.get(arg_idx).copied().or(self.variadic)
    }
}

/// The functions that Prometheus adds to those of Go, sorted.
pub const FUNCTIONS: [&str; 29] = [
    "args",
    "externalURL",
    "first",
    "graphLink",
    "humanize",
    "humanize1024",
    "humanizeDuration",
    "humanizePercentage",
    "humanizeTimestamp",
    "label",
    "match",
    "now",
    "parseDuration",
    "pathPrefix",
    "query",
    "reReplaceAll",
    "safeHtml",
    "sortByLabel",
    "stripDomain",
    "stripPort",
    "strvalue",
    "tableLink",
    "title",
    "toDuration",
    "toLower",
    "toTime",
    "toUpper",
    "urlQueryEscape",
    "value",
];

const NIL_SAMPLE: &str = "runtime error: invalid memory address or nil pointer dereference";

/// Returns the types of a function; `None` if there is no such function.
pub(crate) fn signature(name: &str) -> Option<Signature> {
    use Type::{Any, Reflect, Sample, String, Vector};
    let (fixed, variadic): (&[Type], _) = match name {
        "now" | "pathPrefix" | "externalURL" => (&[], None),
        "query" | "safeHtml" | "title" | "toUpper" | "toLower" | "graphLink" | "tableLink"
        | "stripPort" | "stripDomain" | "parseDuration" | "urlQueryEscape" => (&[String], None),
        "first" => (&[Vector], None),
        "label" => (&[String, Sample], None),
        "value" | "strvalue" => (&[Sample], None),
        "sortByLabel" => (&[String, Vector], None),
        "match" => (&[String, String], None),
        "reReplaceAll" => (&[String, String, String], None),
        "humanize" | "humanize1024" | "humanizeDuration" | "humanizePercentage"
        | "humanizeTimestamp" | "toTime" | "toDuration" => (&[Any], None),
        "args" | "html" | "js" | "print" | "println" | "urlquery" => (&[], Some(Any)),
        "printf" => (&[String], Some(Any)),
        "and" | "or" | "call" | "index" | "slice" | "eq" => (&[Reflect], Some(Reflect)),
        "len" | "not" => (&[Reflect], None),
        "ne" | "lt" | "le" | "gt" | "ge" => (&[Reflect, Reflect], None),
        _ => return None,
    };
    Some(Signature { fixed, variadic })
}

/// Returns the bytes of text that a call reads or, if more, prints; at most [`SIZE_MAX`].
pub(crate) fn text_size_max(name: &str, args: &[Value]) -> usize {
    let prints = matches!(
        name,
        "print" | "println" | "printf" | "html" | "js" | "urlquery" | "call"
    );
    let size_of = if prints {
        Value::printed_size
    } else {
        Value::text_size
    };
    let mut size: usize = 0;
    for arg in args {
        size += size_of(arg);
        if size > SIZE_MAX {
            return SIZE_MAX;
        }
    }
    if name == "printf"
        && let Some(format) = args.first().and_then(Value::as_str)
    {
        size += format::padding_max(format);
    }
    size.min(SIZE_MAX)
}

/// Calls a function with arguments of its types.
///
/// # Errors
/// The message of the function.
pub(crate) fn call(environment: &Environment<'_>, name: &str, args: &[Value]) -> Result<Value> {
    let text = |i: usize| args.get(i).and_then(Value::as_str).unwrap_or_default();
    let string = |text: String| Ok(Value::string(text));
    match (name, args) {
        ("query", _) => (environment.query)(text(0)).map(|samples| Value::Vector(samples.into())),
        ("first", [Value::Vector(samples)]) if !samples.is_empty() => {
            Ok(Value::Sample(samples[0].clone().into()))
        }
        ("first", _) => Err("first() called on vector with no elements".to_owned()),
        ("label", [label, Value::Sample(sample)]) => string(
            sample
                .labels
                .get(label.as_str().unwrap_or_default())
                .unwrap_or("")
                .to_owned(),
        ),
        ("value", [Value::Sample(sample)]) => Ok(Value::of_sample(sample)),
        ("strvalue", [Value::Sample(sample)]) => {
            string(sample.labels.get("__value__").unwrap_or("").to_owned())
        }
        ("label" | "value" | "strvalue", _) => Err(NIL_SAMPLE.to_owned()),
        ("sortByLabel", [_, Value::Vector(samples)]) => {
            let mut sorted = samples.to_vec();
            sorted.sort_by(|a, b| {
                a.labels
                    .get(text(0))
                    .unwrap_or("")
                    .cmp(b.labels.get(text(0)).unwrap_or(""))
            });
            Ok(Value::Vector(sorted.into()))
        }
        ("sortByLabel", _) => Ok(Value::Vector(Rc::new([]))),
        ("args", _) => Ok(Value::Args(Rc::new(Args::new(args)?))),
        ("now", _) => Ok(Value::Float(environment.timestamp_ms as f64 / 1000.0)),
        ("externalURL", _) => string(environment.external_url.to_owned()),
        ("pathPrefix", _) => string(path(environment.external_url).to_owned()),
        ("safeHtml", _) => Ok(Value::Html(text(0).into())),
        ("toUpper", _) => string(map_chars(text(0), char::to_uppercase)),
        ("toLower", _) => string(map_chars(text(0), char::to_lowercase)),
        ("title", _) => string(title(text(0))),
        ("graphLink", _) => string(format!(
            "/graph?g0.expr={}&g0.tab=0",
            query_escaped(text(0))
        )),
        ("tableLink", _) => string(format!(
            "/graph?g0.expr={}&g0.tab=1",
            query_escaped(text(0))
        )),
        ("urlQueryEscape", _) => string(query_escaped(text(0))),
        ("stripPort", _) => string(
            split_host_port(text(0))
                .map_or(text(0), |(host, _)| host)
                .to_owned(),
        ),
        ("stripDomain", _) => string(strip_domain(text(0))),
        ("match", _) => matches(environment, text(0), text(1)).map(Value::Bool),
        ("reReplaceAll", _) => {
            replace_all(environment, text(0), text(1), text(2)).map(Value::string)
        }
        ("parseDuration", _) => {
            let (sign, text) = text(0)
                .strip_prefix('-')
                .map_or((1, text(0)), |text| (-1, text));
            Ok(Value::Float((sign * parse_duration(text)?) as f64 / 1000.0))
        }
        ("humanize", [value]) => to_float(value).and_then(|number| string(humanize(number))),
        ("humanize1024", [value]) => {
            to_float(value).and_then(|number| string(humanize_1024(number)))
        }
        ("humanizeDuration", [value]) => {
            to_float(value).and_then(|number| string(humanize_duration(number)))
        }
        ("humanizePercentage", [value]) => {
            to_float(value).and_then(|number| string(significant(number * 100.0, 4) + "%"))
        }
        ("humanizeTimestamp", [value]) => match to_float(value)? {
            number if !number.is_finite() => string(significant(number, 4)),
            number => string(to_time(number)?.to_string()),
        },
        ("toTime", [value]) => to_float(value).and_then(to_time).map(Value::Time),
        ("toDuration", [value]) => {
            let nanos = to_float(value)? * 1e9;
            // As in Go on amd64, numbers out of range become the lowest integer.
            let is_in_range = nanos >= i64::MIN as f64 && nanos < i64::MAX as f64;
            let nanos = if is_in_range { nanos as i64 } else { i64::MIN };
            Ok(Value::Duration(Duration {
                nanos,
                is_pointer: true,
            }))
        }
        _ => builtins::call(name, args),
    }
}

fn to_float(value: &Value) -> Result<f64> {
    match value {
        Value::Float(number) => Ok(*number),
        Value::Int(number) | Value::Int64(number) => Ok(*number as f64),
        Value::Duration(Duration {
            nanos,
            is_pointer: false,
        }) => Ok((nanos / 1_000_000_000) as f64 + (nanos % 1_000_000_000) as f64 / 1e9),
        Value::String(text) => number::parse_float(text),
        value => Err(format!("can't convert {} to float", value.type_name())),
    }
}

fn to_time(seconds: f64) -> Result<Time> {
    if !seconds.is_finite() {
        return Err("value is NaN or Inf".to_owned());
    }
    let nanos = seconds * 1e9;
    if nanos.abs() > i64::MAX as f64 {
        let seconds = General(seconds);
        return Err(format!(
            "{seconds} cannot be represented as a nanoseconds timestamp since it overflows int64"
        ));
    }
    let milliseconds = nanos as i64 / 1_000_000;
    Ok(Time {
        nanos: i128::from(milliseconds) * 1_000_000,
        is_pointer: true,
    })
}

/// Divides or multiplies by 1000 until a prefix fits. Returns the number and the prefix.
fn with_prefix(mut number: f64) -> (f64, &'static str) {
    let mut prefix = "";
    if number.abs() >= 1.0 {
        for larger in ["k", "M", "G", "T", "P", "E", "Z", "Y"] {
            if number.abs() < 1000.0 {
                break;
            }
            prefix = larger;
            number /= 1000.0;
        }
    } else {
        for smaller in ["m", "u", "n", "p", "f", "a", "z", "y"] {
            if number.abs() >= 1.0 {
                break;
            }
            prefix = smaller;
            number *= 1000.0;
        }
    }
    (number, prefix)
}

fn humanize(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return significant(number, 4);
    }
    let (number, prefix) = with_prefix(number);
    significant(number, 4) + prefix
}

fn humanize_1024(mut number: f64) -> String {
    if number.abs() <= 1.0 || !number.is_finite() {
        return significant(number, 4);
    }
    let mut prefix = "";
    for larger in ["ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"] {
        if number.abs() < 1024.0 {
            break;
        }
        prefix = larger;
        number /= 1024.0;
    }
    significant(number, 4) + prefix
}

fn humanize_duration(seconds: f64) -> String {
    if !seconds.is_finite() {
        return significant(seconds, 4);
    }
    if seconds.abs() < 1.0 {
        let (number, prefix) = if seconds == 0.0 {
            (seconds, "")
        } else {
            with_prefix(seconds)
        };
        return format!("{}{prefix}s", significant(number, 4));
    }
    // What does not fit becomes the least integer, as in Go on most machines.
    let whole = if seconds.abs() < i64::MAX as f64 {
        seconds.abs() as i64
    } else {
        i64::MIN
    };
    let sign = if seconds < 0.0 { "-" } else { "" };
    let s = whole % 60;
    let m = whole / 60 % 60;
    let h = whole / 3600 % 24;
    let d = whole / 86_400;
    match (d, h, m) {
        (0, 0, 0) => format!("{sign}{}s", significant(seconds.abs(), 4)),
        (0, 0, _) => format!("{sign}{m}m {s}s"),
        (0, _, _) => format!("{sign}{h}h {m}m {s}s"),
        _ => format!("{sign}{d}d {h}h {m}m {s}s"),
    }
}

/// Converts characters that have a single counterpart. Others remain unchanged, as in Go.
fn map_chars<I: Iterator<Item = char>>(text: &str, convert: impl Fn(char) -> I) -> String {
    text.chars()
        .map(|c| {
            let mut converted = convert(c);
            match (converted.next(), converted.next()) {
                (Some(single), None) => single,
                _ => c,
            }
        })
        .collect()
}

/// Converts the first letter of each word to upper case.
fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut is_inside = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if !is_inside && c.is_alphabetic() {
            out.push_str(&map_chars(&c.to_string(), char::to_uppercase));
        } else {
            out.push(c);
        }
        is_inside = match c {
            _ if c.is_alphabetic() => true,
            _ if c == '_' || c.is_numeric() => is_inside,
            '\'' | '.' | ':' | '\u{2019}' | '\u{b7}' => {
                is_inside && chars.peek().is_some_and(|next| next.is_alphabetic())
            }
            _ => false,
        };
    }
    out
}

/// Returns the path of a URL.
fn path(url: &str) -> &str {
    let after_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
    let path = after_scheme.find('/').map_or("", |at| &after_scheme[at..]);
    path.split(['?', '#']).next().unwrap_or_default()
}

/// Splits `host:port` and `[host]:port`.
fn split_host_port(text: &str) -> Option<(&str, &str)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = match host.strip_prefix('[') {
        Some(bracketed) => bracketed.strip_suffix(']')?,
        None if host.contains(':') => return None,
        None => host,
    };
    (!host.contains(['[', ']']) && !port.contains(['[', ']'])).then_some((host, port))
}

fn strip_domain(text: &str) -> String {
    let (host, port) = split_host_port(text).unwrap_or((text, ""));
    let is_address = host.parse::<IpAddr>().is_ok()
        || host
            .split_once('%')
            .is_some_and(|(address, zone)| address.parse::<Ipv6Addr>().is_ok() && !zone.is_empty());
    if is_address {
        return text.to_owned();
    }
    let name = host.split('.').next().unwrap_or_default();
    match port {
        "" => name.to_owned(),
        port if name.contains(':') => format!("[{name}]:{port}"),
        port => format!("{name}:{port}"),
    }
}

/// Returns `true` if a part of the text matches.
fn matches(environment: &Environment<'_>, pattern: &str, text: &str) -> Result<bool> {
    Regexp::parse(pattern).map_err(|error| error.to_string())?;
    let anywhere = Regexp::parse(&format!("(?s:.*)(?-s:{pattern})(?s:.*)"))
        .map_err(|error| error.to_string())?;
    anywhere
        .is_match_in(environment.ctx, text)
        .map_err(|error| error.to_string())
}

fn replace_all(
    environment: &Environment<'_>,
    pattern: &str,
    replacement: &str,
    text: &str,
) -> Result<String> {
    // Prometheus panics if the pattern is invalid. This is the text of the panic.
    let rewrite = Rewrite::parse_anywhere(pattern, replacement)
        .map_err(|error| format!("regexp: Compile({}): {error}", backquoted(pattern)))?;
    rewrite
        .replace_all_in(environment.ctx, text, SIZE_MAX)
        .map_err(|error| error.to_string())
}

fn backquoted(text: &str) -> String {
    if text.contains('`') {
        quoted(text)
    } else {
        format!("`{text}`")
    }
}
