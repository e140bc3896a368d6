//! A YAML text that a client sends, bounded and rewritten before the library of serde reads it.
//!
//! That library knows no deadline. For each token it takes time in proportion to the depth of
//! nesting. For each alias it copies what the alias refers to. So another parser, which has limits and stops
//! between events, reads the text first. It rejects aliases, and its events are written in a form
//! that all parsers read alike: an event on each line, flow collections, quoted strings. Only this
//! text is read further, because two parsers may read one text differently
//! (docs/decisions/rules/0035-yaml-of-clients.md).

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Tag};
use varve_context::QueryContext;

use super::error::{FileError, Position};

/// Maximum number of mappings and sequences of a text within each other. A PrometheusRule in a list
/// has 8.
pub const YAML_DEPTH_MAX: usize = 64;
/// Maximum bytes of a word that may be a number, a boolean or null.
const WORD_SIZE_MAX: usize = 64;

/// A text that is safe to read.
#[derive(Debug)]
pub struct CanonicalYaml {
    text: String,
    /// The position of each line in the text of the client.
    positions: Vec<Position>,
}

impl CanonicalYaml {
    /// Rewrites a text.
    ///
    /// # Errors
    /// A syntax error, an alias, a tag other than `!`, `!!str`, `!!seq` and `!!map`, more than
    /// [`YAML_DEPTH_MAX`] levels of nesting, or the reason why the request must end.
    pub fn new(ctx: &QueryContext, text: &str) -> Result<Self, FileError> {
        let options = granit_parser::options! {
            flow_nesting_limit: YAML_DEPTH_MAX,
            block_nesting_limit: YAML_DEPTH_MAX,
            block_scalar_eof_without_line_feed: true,
            emit_unresolved_aliases: true,
        };
        let mut writer = Writer::default();
        for event in Parser::new_from_str_with_options(text, options) {
            if let Err(interrupted) = ctx.check() {
                return Err(FileError::new(Vec::new(), interrupted.to_string()));
            }
            let (event, span) = event.map_err(|error| syntax_error(&error))?;
            let position = Position::of_marker(span.start);
            writer
                .write(&event, position)
                .map_err(|reason| FileError::new(vec![position], reason))?;
        }
        Ok(Self {
            text: writer.text,
            positions: writer.positions,
        })
    }

    /// Returns the text that is safe to read.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the position in the text of the client.
    pub(super) fn original(&self, position: Position) -> Position {
        let line = position.line.wrapping_sub(1);
        self.positions.get(line).copied().unwrap_or(position)
    }

    /// Returns an error of the library with the position in the text of the client.
    #[must_use]
    pub fn with_original_position(&self, error: &str) -> String {
        let Some((message, at)) = error.rsplit_once(" at line ") else {
            return error.to_owned();
        };
        let Some((line, column)) = at.split_once(" column ") else {
            return error.to_owned();
        };
        match (line.parse(), column.parse()) {
            (Ok(line), Ok(column)) => {
                let Position { line, column } = self.original(Position { line, column });
                format!("{message} at line {line} column {column}")
            }
            _ => error.to_owned(),
        }
    }
}

fn syntax_error(error: &ScanError) -> FileError {
    let position = Position::of_marker(*error.marker());
    FileError::new(vec![position], error.info())
}

/// A collection that is being written.
enum Open {
    Sequence { is_empty: bool },
    Mapping { is_empty: bool, has_key: bool },
}

#[derive(Default)]
struct Writer {
    text: String,
    positions: Vec<Position>,
    open: Vec<Open>,
}

impl Writer {
    /// Writes an event.
    ///
    /// # Errors
    /// It is an alias, or has a tag that is not supported.
    fn write(&mut self, event: &Event<'_>, position: Position) -> Result<(), String> {
        match event {
            Event::DocumentStart(..) => self.line(position, "---"),
            Event::DocumentEnd => self.line(position, "..."),
            Event::Scalar(value, style, _, tag) => {
                let is_text = has_tag(tag.as_deref(), "str")? || *style != ScalarStyle::Plain;
                match word(value) {
                    Some(word) if !is_text => self.node(position, word),
                    _ => self.node(position, &quoted(value)),
                }
            }
            Event::SequenceStart(_, _, tag) => {
                has_tag(tag.as_deref(), "seq")?;
                self.node(position, "[");
                self.open(Open::Sequence { is_empty: true })?;
            }
            Event::MappingStart(_, _, tag) => {
                has_tag(tag.as_deref(), "map")?;
                self.node(position, "{");
                self.open(Open::Mapping {
                    is_empty: true,
                    has_key: false,
                })?;
            }
            Event::SequenceEnd => {
                self.open.pop();
                self.line(position, " ]");
            }
            Event::MappingEnd => {
                self.open.pop();
                self.line(position, " }");
            }
            Event::Alias(_) | Event::UnresolvedAlias(_) => {
                return Err("YAML aliases are not supported".to_owned());
            }
            _ => {}
        }
        Ok(())
    }

    /// Opens a collection.
    ///
    /// # Errors
    /// There are [`YAML_DEPTH_MAX`] around it. The parser bounds only those of one kind.
    fn open(&mut self, collection: Open) -> Result<(), String> {
        if self.open.len() == YAML_DEPTH_MAX {
            return Err("recursion limit exceeded".to_owned());
        }
        self.open.push(collection);
        Ok(())
    }

    /// Writes a node in a line of its own, which begins with a space: a line without one may be a
    /// marker of documents.
    fn node(&mut self, position: Position, token: &str) {
        let separator = match self.open.last() {
            None => " ",
            Some(Open::Sequence { is_empty: true }) => " ",
            Some(Open::Sequence { is_empty: false }) => " , ",
            Some(Open::Mapping { has_key: true, .. }) => " : ",
            Some(Open::Mapping { is_empty: true, .. }) => " ? ",
            Some(Open::Mapping { .. }) => " , ? ",
        };
        match self.open.last_mut() {
            None => {}
            Some(Open::Sequence { is_empty }) => *is_empty = false,
            Some(Open::Mapping { is_empty, has_key }) => {
                *is_empty = false;
                *has_key = !*has_key;
            }
        }
        self.text.push_str(separator);
        self.line(position, token);
    }

    fn line(&mut self, position: Position, token: &str) {
        self.text.push_str(token);
        self.text.push('\n');
        self.positions.push(position);
    }
}

/// Returns `true` if a node has a tag: that of its kind, or `!`.
///
/// # Errors
/// It has another tag.
fn has_tag(tag: Option<&Tag>, kind: &str) -> Result<bool, String> {
    match tag {
        None => Ok(false),
        Some(tag) if tag.core_suffix() == Some(kind) || tag.original() == "!" => Ok(true),
        Some(tag) => Err(format!("the YAML tag {} is not supported", tag.original())),
    }
}

/// Returns a plain scalar as it may be written without quotes, if it may be a number, a boolean or
/// null.
fn word(value: &str) -> Option<&str> {
    if matches!(value, "" | "~") {
        return Some("~");
    }
    let is_word = value.len() <= WORD_SIZE_MAX
        && value != "-"
        && value
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_.+-".contains(&byte));
    is_word.then_some(value)
}

/// Returns a text in double quotes.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            ' '..='~' => out.push(c),
            // All of these are printable in YAML.
            '\u{a1}'..='\u{2027}' | '\u{202a}'..='\u{d7ff}' => out.push(c),
            c => out.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use serde::Deserialize as _;
    use serde_yaml_ng::Value;
    use varve_context::{Interrupt, Limit, MemoryBudget};

    use super::*;

    fn rewrite(text: &str) -> Result<CanonicalYaml, String> {
        let rewritten = CanonicalYaml::new(&QueryContext::unbounded(), text);
        rewritten.map_err(|error| error.to_string())
    }

    /// Returns the documents of a text.
    fn read(text: &str) -> Result<Vec<Value>, String> {
        serde_yaml_ng::Deserializer::from_str(text)
            .map(|document| Value::deserialize(document).map_err(|error| error.to_string()))
            .collect()
    }

    #[test]
    fn the_rewritten_text_has_the_same_values() {
        for text in [
            "expr: a * b\nfor: 5m\nlimit: 010\nx: 0x1F\ny: 1_000\nz: -.inf\n",
            "a: ~\nb:\nc: null\nd: 'null'\ne: \"true\"\nf: True\ng: -\n",
            "- a\n- - b\n  - c\n-\n- {d: e, f: [g, {}], ? [x] : y, h}\n- []\n",
            "a: |\n  *e\n  b\nb: >-\n  c\n  d\n\n  e\nc: |+\n  f\n\n",
            "a: |\n  no line feed at the end",
            "a: \"\\u00e9 \\x01 \\\" \\\\ \\n \u{1f600}\"\né: ü\n",
            "---\na: b\n---\n- c\n...\n---\n",
            "%YAML 1.1\n---\na: !!str 5\nb: !!map {c: d}\n",
            "a: &e x\n",
            "? |\n  long key\n: v\n",
            "<<: {a: b}\n",
            "{\"a\":[1,2.5,true,null]}",
            "a: b: c",
            "plain\n text",
            "# only a comment\n",
            "",
        ] {
            match read(text) {
                Ok(expect) => {
                    let rewritten = rewrite(text).unwrap();
                    let found = read(rewritten.text());
                    assert_eq!(found, Ok(expect), "{text}:\n{}", rewritten.text());
                }
                Err(error) => drop(rewrite(text).map(|_| panic!("{text}: {error}"))),
            }
        }
    }

    #[test]
    fn aliases_are_rejected() {
        for (text, position) in [
            ("a: &e x\nb: *e\n", "2:4"),
            ("- &e x\n- *e", "2:3"),
            ("[&e x, *e]", "1:8"),
            ("{a: &e x, *e : y}", "1:11"),
            ("? &e k\n? *e\n", "2:3"),
            ("a: &e x\n<<: *e\n", "2:5"),
            // A scan for aliases missed these.
            ("{a: &s x, \"b\":*s}", "1:15"),
            ("a: &s x\r*s : y", "2:1"),
            ("a: *unknown", "1:4"),
        ] {
            let expect = format!("{position}: YAML aliases are not supported");
            assert_eq!(rewrite(text).unwrap_err(), expect, "{text:?}");
        }
    }

    /// 80 kB took the library two seconds of CPU, 950 kB a minute.
    #[test]
    fn nesting_is_bounded() {
        let check = |text: &str| {
            let error = rewrite(text).unwrap_err();
            let start = &text[..8];
            assert!(
                error.ends_with("recursion limit exceeded"),
                "{start}: {error}"
            );
        };
        for open in ["[", "{a: ", "- ", "{a: #}\n", "[\n"] {
            check(&open.repeat(300_000));
        }
        // Flow collections in block collections.
        let half = YAML_DEPTH_MAX / 2;
        check(
            &[
                "- ".repeat(half),
                "[".repeat(half + 1),
                "]".repeat(half + 1),
            ]
            .concat(),
        );
        let deep = "[".repeat(YAML_DEPTH_MAX) + &"]".repeat(YAML_DEPTH_MAX);
        rewrite(&deep).unwrap();
        rewrite(&"%TAG !a! x\n".repeat(80_000)).unwrap_err();
    }

    #[test]
    fn the_deadline_of_the_request_ends_it() {
        let memory = MemoryBudget::new(Limit::Other("memory"), 0);
        let ctx = QueryContext::new(Duration::ZERO, memory);
        let error = CanonicalYaml::new(&ctx, "a: b").unwrap_err();
        assert_eq!(error.to_string(), Interrupt::Deadline.to_string());
    }

    #[test]
    fn positions_are_those_of_the_client() {
        let rewritten = rewrite("# comment\na:\n- b\n-  c: {d: e}\n").unwrap();
        let read = serde_yaml_ng::from_str::<std::collections::BTreeMap<String, Vec<String>>>;
        let error = read(rewritten.text()).unwrap_err().to_string();
        assert_eq!(
            rewritten.with_original_position(&error),
            "a[1]: invalid type: map, expected a string at line 4 column 4"
        );
        let error = rewrite("a: [b\nc: d").unwrap_err();
        assert!(error.starts_with("2:2: "), "{error}");
    }

    /// Tokens of which parsers may have different notions.
    fn text() -> impl Strategy<Value = String> {
        let token = prop::sample::select(vec![
            "*a", "&a ", "a", "\"k\"", "'k'", ":", ": ", " ", "  ", "\n", "\r", "\t", ",", "[",
            "]", "{", "}", "- ", "? ", "|\n", ">", "#", "!t ", "!!str ", "---", "...", "\u{2028}",
            "\u{85}", "%", "\\", "<<", "\u{feff}", "=", "5", "~", "null", "-",
        ]);
        prop::collection::vec(token, 0..16).prop_map(|tokens| tokens.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2048))]

        /// Whatever the text is, the library reads what is written, and finds no alias in it.
        #[test]
        fn the_library_reads_every_rewritten_text(text in text()) {
            if let Ok(rewritten) = rewrite(&text) {
                let found = read(rewritten.text());
                // Serde refuses a key that is repeated.
                let is_read = match &found {
                    Ok(_) => true,
                    Err(error) => error.contains("duplicate entry"),
                };
                prop_assert!(
                    is_read,
                    "{text:?}: {found:?}\n{}",
                    rewritten.text()
                );
            }
        }
    }
}
