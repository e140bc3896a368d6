//! Parser of one line of the text format 0.0.4 or of OpenMetrics 1.0.

use std::borrow::Cow;

use varve_model::metadata::MetricType;

use super::line::{ExemplarPart, Line, MetadataLine, Pairs, SampleLine};
use super::number::{float, milliseconds};

/// Parses a line without its line break.
///
/// # Errors
/// The reason why the line is invalid.
pub(super) fn parse(text: &str, is_openmetrics: bool) -> Result<Line<'_>, String> {
    let mut cursor = Cursor {
        rest: text,
        is_openmetrics,
    };
    if !is_openmetrics {
        cursor.rest = text
            .strip_suffix('\r')
            .unwrap_or(text)
            .trim_start_matches([' ', '\t']);
    }
    match cursor.rest.strip_prefix('#') {
        Some(rest) => {
            cursor.rest = rest;
            cursor.comment()
        }
        None if cursor.rest.is_empty() && !is_openmetrics => Ok(Line::Nothing),
        None => cursor.sample().map(Line::Sample),
    }
}

/// The rest of a line, with a method for each part of it.
pub(super) struct Cursor<'a> {
    pub(super) rest: &'a str,
    /// Whether the format is OpenMetrics.
    is_openmetrics: bool,
}

impl<'a> Cursor<'a> {
    /// Creates the cursor of a line of OpenMetrics.
    pub(super) fn openmetrics(rest: &'a str) -> Self {
        Self {
            rest,
            is_openmetrics: true,
        }
    }

    /// Reads a comment behind its `#`.
    pub(super) fn comment(mut self) -> Result<Line<'a>, String> {
        let rest = self.rest;
        let spaced = rest.starts_with([' ', '\t']);
        let is_openmetrics = self.is_openmetrics;
        self.skip_space();
        let (word, after) = match self.rest.split_once([' ', '\t']) {
            Some(parts) => parts,
            // As in Prometheus, a keyword without anything behind it is a comment.
            None if !is_openmetrics => return Ok(Line::Nothing),
            None => (self.rest, ""),
        };
        if !spaced || !(matches!(word, "HELP" | "TYPE") || word == "UNIT" && is_openmetrics) {
            return if is_openmetrics {
                Err(format!("invalid comment {:?}", excerpt(rest)))
            } else {
                Ok(Line::Nothing)
            };
        }
        self.rest = after;
        self.skip_space();
        let name = self.family_name()?;
        let text = self.rest.strip_prefix([' ', '\t']).unwrap_or(self.rest);
        Ok(Line::Metadata(match word {
            "HELP" => MetadataLine::Help(
                name,
                unescape(text.trim_start_matches([' ', '\t']), is_openmetrics),
            ),
            "UNIT" => MetadataLine::Unit(name, text.trim()),
            _ => MetadataLine::Type(name, kind(text.trim())?),
        }))
    }

    fn family_name(&mut self) -> Result<Cow<'a, str>, String> {
        if self.rest.starts_with('"') {
            return self.quoted();
        }
        let end = self.rest.find([' ', '\t']).unwrap_or(self.rest.len());
        let name = self.split(end);
        if name.is_empty() {
            Err("metadata without a metric name".to_owned())
        } else {
            Ok(Cow::Borrowed(name))
        }
    }

    fn sample(mut self) -> Result<SampleLine<'a>, String> {
        let mut labels = self.metric_name();
        self.skip_space();
        if self.rest.starts_with('{') {
            self.labels(&mut labels)?;
        }
        self.metric_name_of(&labels)?;
        let value = self.value("sample")?;
        let timestamp_ms = self.time("sample")?;
        let mut exemplars = Vec::new();
        if self.is_openmetrics && self.eat('#') {
            exemplars.push(self.exemplar()?);
        }
        self.end()?;
        Ok(SampleLine {
            labels,
            value,
            timestamp_ms,
            start_ms: 0,
            exemplars,
        })
    }

    /// Reads the metric name before the labels, if there is one.
    pub(super) fn metric_name(&mut self) -> Pairs<'a> {
        let mut labels = Vec::with_capacity(8);
        let name = self.name(|c| c == ':');
        if !name.is_empty() {
            labels.push((Cow::Borrowed("__name__"), Cow::Borrowed(name)));
        }
        labels
    }

    /// Returns the metric name among the labels.
    pub(super) fn metric_name_of<'l>(&self, labels: &'l Pairs<'_>) -> Result<&'l str, String> {
        let name = labels.iter().find(|(name, _)| name == "__name__");
        let (_, name) =
            name.ok_or_else(|| format!("expected a metric name, got {:?}", excerpt(self.rest)))?;
        Ok(name)
    }

    /// Reads an exemplar behind its `#`.
    pub(super) fn exemplar(&mut self) -> Result<ExemplarPart<'a>, String> {
        self.skip_space();
        let mut labels = Vec::new();
        self.labels(&mut labels)?;
        let value = self.value("exemplar")?;
        let timestamp_ms = self.time("exemplar")?;
        labels.sort();
        Ok(ExemplarPart {
            labels,
            value,
            timestamp_ms,
        })
    }

    /// Reads `{name="value", ...}`. A quoted string without a value is the metric name. As in
    /// Prometheus, the text format needs no comma between two labels; OpenMetrics does.
    pub(super) fn labels(&mut self, to: &mut Pairs<'a>) -> Result<(), String> {
        if !self.eat('{') {
            return Err(format!(
                "expected labels in braces, got {:?}",
                excerpt(self.rest)
            ));
        }
        loop {
            self.skip_space();
            if self.eat('}') {
                return Ok(());
            }
            let is_quoted = self.rest.starts_with('"');
            let name = if is_quoted {
                self.quoted()?
            } else {
                Cow::Borrowed(self.name(|_| false))
            };
            if name.is_empty() {
                return Err(format!(
                    "expected a label name, got {:?}",
                    excerpt(self.rest)
                ));
            }
            self.skip_space();
            let mut needs_comma = true;
            if self.eat('=') {
                self.skip_space();
                let value = self.quoted()?;
                to.push((name, value));
                needs_comma = self.is_openmetrics;
            } else if is_quoted && !to.iter().any(|(name, _)| name == "__name__") {
                to.push((Cow::Borrowed("__name__"), name));
            } else {
                return Err(format!(
                    "expected = after a label name, got {:?}",
                    excerpt(self.rest)
                ));
            }
            self.skip_space();
            if !self.eat(',') && needs_comma && !self.rest.starts_with('}') {
                return Err(format!(
                    "expected , or }} after a label, got {:?}",
                    excerpt(self.rest)
                ));
            }
        }
    }

    /// Reads the value of a sample or an exemplar.
    pub(super) fn value(&mut self, owner: &str) -> Result<f64, String> {
        self.skip_space();
        let word = self.word();
        float(word).ok_or_else(|| format!("invalid value {:?} of a {owner}", excerpt(word)))
    }

    /// Reads the timestamp of a sample or an exemplar, if there is one.
    pub(super) fn time(&mut self, owner: &str) -> Result<Option<i64>, String> {
        self.skip_space();
        if self.rest.is_empty() || self.rest.starts_with('#') {
            return Ok(None);
        }
        let word = self.word();
        let time = if self.is_openmetrics {
            float(word).and_then(milliseconds)
        } else {
            word.parse().ok()
        };
        self.skip_space();
        time.map(Some)
            .ok_or_else(|| format!("invalid timestamp {:?} of a {owner}", excerpt(word)))
    }

    /// Checks that nothing is left of the line.
    pub(super) fn end(&self) -> Result<(), String> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(format!(
            "expected the end of the line, got {:?}",
            excerpt(self.rest)
        ))
    }

    pub(super) fn word(&mut self) -> &'a str {
        let end = self.rest.find([' ', '\t']).unwrap_or(self.rest.len());
        self.split(end)
    }

    /// Reads a name of legacy characters and the characters that `other` allows.
    fn name(&mut self, other: impl Fn(char) -> bool) -> &'a str {
        let mut is_first = true;
        let end = self.rest.find(|c: char| {
            let is_start = std::mem::replace(&mut is_first, false);
            !(c == '_' || other(c) || c.is_ascii_alphabetic() || c.is_ascii_digit() && !is_start)
        });
        self.split(end.unwrap_or(self.rest.len()))
    }

    /// Reads a quoted string.
    fn quoted(&mut self) -> Result<Cow<'a, str>, String> {
        let Some(text) = self.rest.strip_prefix('"') else {
            return Err(format!(
                "expected a quoted string, got {:?}",
                excerpt(self.rest)
            ));
        };
        let mut is_escaped = false;
        let end = text.find(|c: char| {
            let is_plain = !std::mem::replace(&mut is_escaped, false);
            is_escaped = is_plain && c == '\\';
            is_plain && c == '"'
        });
        let end = end.ok_or("unterminated quoted string")?;
        self.rest = &text[end + 1..];
        Ok(unescape(&text[..end], true))
    }

    /// Reads a character.
    pub(super) fn expect(&mut self, c: char, what: &str) -> Result<(), String> {
        if self.eat(c) {
            return Ok(());
        }
        Err(format!(
            "expected {c} of {what}, got {:?}",
            excerpt(self.rest)
        ))
    }

    pub(super) fn eat(&mut self, c: char) -> bool {
        let rest = self.rest.strip_prefix(c);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    pub(super) fn skip_space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
    }

    pub(super) fn split(&mut self, at: usize) -> &'a str {
        let (text, rest) = self.rest.split_at(at);
        self.rest = rest;
        text
    }
}

/// Replaces `\n`, `\\` and, if `quotes`, `\"`. Other backslashes are literal.
fn unescape(text: &str, quotes: bool) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let replaced = match (c, chars.peek()) {
            ('\\', Some('n')) => '\n',
            ('\\', Some('\\')) => '\\',
            ('\\', Some('"')) if quotes => '"',
            _ => {
                plain.push(c);
                continue;
            }
        };
        plain.push(replaced);
        chars.next();
    }
    Cow::Owned(plain)
}

fn kind(name: &str) -> Result<MetricType, String> {
    MetricType::parse(name).ok_or_else(|| format!("invalid metric type {:?}", excerpt(name)))
}

/// Returns the start of a text, for errors.
pub(super) fn excerpt(text: &str) -> String {
    text.chars().take(EXCERPT_LEN_MAX).collect()
}

const EXCERPT_LEN_MAX: usize = 32;
