//! Content negotiation of exposition formats, and escaping of names.

use std::borrow::Cow;
use std::fmt::Write;

use axum::http::{HeaderMap, header};
use varve_wire::exposition::{is_legacy_metric_char, is_legacy_metric_name};

const PROTOBUF: &str = "application/vnd.google.protobuf";
const MESSAGE: &str = "io.prometheus.client.MetricFamily";
const TEXT_VERSION: &str = "0.0.4";

/// An exposition format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Format {
    is_protobuf: bool,
    escaping: Escaping,
}

/// The escaping of names that are not legacy names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Escaping {
    /// UTF-8 names are allowed.
    AllowUtf8,
    Underscores,
    Dots,
    Values,
}

impl Escaping {
    const ALL: [Self; 4] = [Self::AllowUtf8, Self::Underscores, Self::Dots, Self::Values];

    fn name(self) -> &'static str {
        match self {
            Self::AllowUtf8 => "allow-utf-8",
            Self::Underscores => "underscores",
            Self::Dots => "dots",
            Self::Values => "values",
        }
    }
}

/// An element of `Accept`: a media type with parameters.
struct Clause<'a> {
    media_type: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    quality: f64,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default();
        let parameters: Vec<_> = parts
            .filter_map(|part| part.split_once('='))
            .map(|(name, value)| (name.trim(), value.trim().trim_matches('"')))
            .collect();
        let quality = parameters
            .iter()
            .find(|(name, _)| *name == "q")
            .and_then(|(_, q)| q.parse().ok())
            .unwrap_or(1.0);
        Self {
            media_type,
            parameters,
            quality,
        }
    }

    fn get(&self, name: &str) -> &'a str {
        self.parameters
            .iter()
            .find(|(n, _)| *n == name)
            .map_or("", |(_, value)| value)
    }
}

impl Format {
    /// Parses `Accept` as Prometheus does, except that protobuf in text form is not offered. The
    /// clause of the highest quality with a known format decides. `escaping` is taken from this
    /// clause or an earlier one.
    pub(super) fn negotiate(headers: &HeaderMap) -> Self {
        let accept = headers
            .get(header::ACCEPT)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let mut clauses: Vec<_> = accept.split(',').map(Clause::parse).collect();
        clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
        let mut escaping = Escaping::Underscores;
        for clause in &clauses {
            let wanted = clause.get("escaping");
            escaping = Escaping::ALL
                .into_iter()
                .find(|known| known.name() == wanted)
                .unwrap_or(escaping);
            let is_delimited =
                clause.get("proto") == MESSAGE && clause.get("encoding") == "delimited";
            if clause.media_type == PROTOBUF && is_delimited {
                return Self {
                    is_protobuf: true,
                    escaping,
                };
            }
            if clause.media_type == "text/plain"
                && matches!(clause.get("version"), "" | TEXT_VERSION)
            {
                return Self {
                    is_protobuf: false,
                    escaping,
                };
            }
        }
        Self {
            is_protobuf: false,
            escaping,
        }
    }

    /// Returns the text format with UTF-8 names.
    #[cfg(test)]
    pub(super) fn utf8() -> Self {
        Self {
            is_protobuf: false,
            escaping: Escaping::AllowUtf8,
        }
    }

    pub(super) fn is_protobuf(self) -> bool {
        self.is_protobuf
    }

    pub(super) fn content_type(self) -> String {
        let escaping = self.escaping.name();
        if self.is_protobuf {
            format!("{PROTOBUF}; proto={MESSAGE}; encoding=delimited; escaping={escaping}")
        } else {
            format!("text/plain; version={TEXT_VERSION}; charset=utf-8; escaping={escaping}")
        }
    }

    /// Returns the name with the negotiated escaping.
    pub(super) fn escape(self, name: &str) -> Cow<'_, str> {
        // Fast path: a legacy name.
        if self.escaping == Escaping::AllowUtf8 || is_legacy_metric_name(name) {
            return Cow::Borrowed(name);
        }
        let mut escaped = if self.escaping == Escaping::Values {
            "U__".to_owned()
        } else {
            String::new()
        };
        for (offset, c) in name.char_indices() {
            match (self.escaping, c) {
                (Escaping::Dots, '.') => escaped.push_str("_dot_"),
                (Escaping::Dots | Escaping::Values, '_') => escaped.push_str("__"),
                _ if is_legacy_metric_char(offset, c) => escaped.push(c),
                (Escaping::Dots, _) => escaped.push_str("__"),
                (Escaping::Values, _) => {
                    write!(escaped, "_{:x}_", u32::from(c)).expect("a String takes everything")
                }
                _ => escaped.push('_'),
            }
        }
        Cow::Owned(escaped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn check(accept: &str, expect: &str) {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_str(accept).unwrap());
        assert_eq!(
            Format::negotiate(&headers).content_type(),
            expect,
            "{accept}"
        );
    }

    #[test]
    fn formats_are_negotiated_as_in_prometheus() {
        let protobuf = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";
        check(
            "",
            "text/plain; version=0.0.4; charset=utf-8; escaping=underscores",
        );
        check(
            "*/*",
            "text/plain; version=0.0.4; charset=utf-8; escaping=underscores",
        );
        check(
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.4,*/*;q=0.3",
            "text/plain; version=0.0.4; charset=utf-8; escaping=allow-utf-8",
        );
        check(
            "text/plain;q=0.1;escaping=dots",
            "text/plain; version=0.0.4; charset=utf-8; escaping=dots",
        );
        let asked = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
        check(
            &format!("text/plain;q=0.5,{asked};q=0.6"),
            &format!("{protobuf}; escaping=underscores"),
        );
        check(
            &format!("text/plain;q=0.7,{asked};q=0.6"),
            "text/plain; version=0.0.4; charset=utf-8; escaping=underscores",
        );
        check(
            &format!("{asked};escaping=values"),
            &format!("{protobuf}; escaping=values"),
        );
    }

    #[test]
    fn names_are_escaped_as_in_prometheus() {
        for (escaping, name, expect) in [
            (Escaping::AllowUtf8, "a.b_c", "a.b_c"),
            (Escaping::Underscores, "a.b_c é", "a_b_c__"),
            (Escaping::Dots, "a.b_c é", "a_dot_b__c____"),
            (Escaping::Values, "a.b_c é", "U__a_2e_b__c_20__e9_"),
            (Escaping::Values, "a_b:c", "a_b:c"),
            (Escaping::Underscores, "1a", "_a"),
        ] {
            assert_eq!(
                Format {
                    is_protobuf: false,
                    escaping
                }
                .escape(name),
                expect
            );
        }
    }
}
