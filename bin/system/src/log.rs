//! Structured logs on standard error, one event per line, in the format of Prometheus 3.
//!
//! ```text
//! logfmt  time=2026-08-21T10:00:00.123Z level=INFO msg="Listening" address=127.0.0.1:9898
//! json    {"time":"2026-08-21T10:00:00.123Z","level":"INFO","msg":"Listening","address":"127.0.0.1:9898"}
//! ```

use std::fmt::{self, Write as _};
use std::sync::OnceLock;

use clap::ValueEnum;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::Registry;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;

/// The minimum severity of log messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "documentation would appear in the help text")]
pub enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

/// The format of log messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[expect(missing_docs, reason = "documentation would appear in the help text")]
pub enum Format {
    Logfmt,
    Json,
}

impl From<Level> for LevelFilter {
    fn from(level: Level) -> Self {
        match level {
            Level::Debug => Self::DEBUG,
            Level::Info => Self::INFO,
            Level::Warn => Self::WARN,
            Level::Error => Self::ERROR,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        })
    }
}

/// The level of the command line, and the one in force.
static LEVEL: OnceLock<(Level, Handle<LevelFilter, Registry>)> = OnceLock::new();

/// Writes the log events of the process, including panics, to standard error.
pub fn start(level: Level, format: Format) {
    let (filter, handle) = reload::Layer::new(LevelFilter::from(level));
    let log = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .event_format(format);
    if tracing_subscriber::registry()
        .with(filter)
        .with(log)
        .try_init()
        .is_ok()
    {
        LEVEL.get_or_init(|| (level, handle));
        std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
    }
}

/// Sets the minimum severity; `None`: that of the command line.
pub fn set_level(level: Option<Level>) {
    if let Some((default, handle)) = LEVEL.get() {
        // Fails only if the subscriber is gone.
        let _set = handle.reload(LevelFilter::from(level.unwrap_or(*default)));
    }
}

impl<S, N> FormatEvent<S, N> for Format
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let level = event.metadata().level().as_str();
        let time = format!("{:.3}", Timestamp::now());
        let head = [
            ("time", time.as_str()),
            ("level", level),
            ("msg", &fields.message),
        ];
        let all = head.into_iter().chain(
            fields
                .others
                .iter()
                .map(|(name, value)| (*name, value.as_str())),
        );
        let mut line = String::new();
        match self {
            Self::Logfmt => write_logfmt(&mut line, all),
            Self::Json => write_json(&mut line, all),
        }
        writeln!(out, "{line}")
    }
}

/// The fields of an event, as strings.
#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(&'static str, String)>,
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_text(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_text(field, unquoted(format!("{value:?}")));
    }
}

/// Returns the contents of a text that is a string literal. The formats quote values themselves.
fn unquoted(text: String) -> String {
    let literal = if text.starts_with('"') {
        serde_json::from_str(&text).ok()
    } else {
        None
    };
    literal.unwrap_or(text)
}

impl Fields {
    fn record_text(&mut self, field: &Field, text: String) {
        match field.name() {
            "message" => self.message = text,
            name => self.others.push((name, text)),
        }
    }
}

fn write_logfmt<'a>(line: &mut String, fields: impl Iterator<Item = (&'a str, &'a str)>) {
    for (i, (name, value)) in fields.enumerate() {
        let space = if i == 0 { "" } else { " " };
        let plain = !value.is_empty()
            && value
                .bytes()
                .all(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'='));
        // Readers of logfmt know the escapes of JSON.
        let quoted = serde_json::Value::from(value);
        let written = if plain {
            write!(line, "{space}{name}={value}")
        } else {
            write!(line, "{space}{name}={quoted}")
        };
        written.expect("a String takes everything");
    }
}

fn write_json<'a>(line: &mut String, fields: impl Iterator<Item = (&'a str, &'a str)>) {
    for (i, (name, value)) in fields.enumerate() {
        let value = serde_json::Value::from(value);
        write!(line, "{}\"{name}\":{value}", if i == 0 { '{' } else { ',' })
            .expect("a String takes everything");
    }
    line.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_debug_text_is_quoted_once() {
        for (text, expect) in [("/a b", "/a b"), ("\"", "\"")] {
            assert_eq!(
                unquoted(format!("{:?}", std::path::Path::new(text))),
                expect
            );
        }
        for text in ["Some(\"a\")", "\"a\" is damaged", "5ms", "\"\\u{7f}\""] {
            assert_eq!(
                unquoted(text.to_owned()),
                text,
                "not a literal, or not one of JSON"
            );
        }
    }

    #[test]
    fn ambiguous_values_are_quoted() {
        let fields = [
            ("msg", "two words"),
            ("path", "/a"),
            ("none", ""),
            ("sly", "a=\"b\"\n"),
        ];
        let mut line = String::new();
        write_logfmt(&mut line, fields.into_iter());
        assert_eq!(line, r#"msg="two words" path=/a none="" sly="a=\"b\"\n""#);
        line.clear();
        write_json(&mut line, fields.into_iter());
        assert_eq!(
            line,
            r#"{"msg":"two words","path":"/a","none":"","sly":"a=\"b\"\n"}"#
        );
    }
}
