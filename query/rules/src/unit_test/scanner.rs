//! Reads parts of a sequence of values, as Prometheus' lexer does.

use varve_promql::number::parse_literal;
use varve_promql::quote::quoted;

/// The text that is not read yet.
#[derive(Debug)]
pub(super) struct Scanner<'t>(&'t str);

impl<'t> Scanner<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self(text)
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns `true` if the text begins with `+` or `-`.
    pub(super) fn is_signed(&self) -> bool {
        self.0.starts_with(['+', '-'])
    }

    /// Skips a prefix. Returns `true` if the text has it.
    pub(super) fn eat(&mut self, prefix: &str) -> bool {
        let rest = self.0.strip_prefix(prefix);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// Skips spaces. Returns `true` if there are any.
    pub(super) fn eat_spaces(&mut self) -> bool {
        let rest = self.0.trim_start_matches([' ', '\t', '\n', '\r']);
        let found = rest.len() < self.0.len();
        self.0 = rest;
        found
    }

    /// Skips a word. Returns `true` if the text begins with it, and it ends there.
    pub(super) fn eat_word(&mut self, word: &str) -> bool {
        let found = self.word() == word;
        if found {
            self.take(word.len());
        }
        found
    }

    /// Reads letters and underscores.
    pub(super) fn letters(&mut self) -> &'t str {
        let end = self.0.find(|c: char| !c.is_ascii_alphabetic() && c != '_');
        self.take(end.unwrap_or(self.0.len()))
    }

    /// Reads `x` and a number of repetitions, if the text begins with `x`.
    pub(super) fn repetitions(&mut self) -> Result<Option<usize>, String> {
        if self.eat("x") {
            Ok(Some(self.unsigned()?))
        } else {
            Ok(None)
        }
    }

    /// Reads an integer without `+`.
    pub(super) fn integer(&mut self) -> Result<i64, String> {
        let sign = if self.eat("-") { -1 } else { 1 };
        let integer = i64::try_from(self.unsigned()?).map_err(|error| error.to_string())?;
        Ok(sign * integer)
    }

    fn unsigned(&mut self) -> Result<usize, String> {
        let text = self.digits()?;
        text.parse()
            .map_err(|_| format!("not a number of repetitions or an index: {text}"))
    }

    /// Reads a number with an optional sign.
    pub(super) fn signed_number(&mut self) -> Result<f64, String> {
        let is_negative = self.eat("-");
        if !is_negative {
            self.eat("+");
        }
        let number = self.number()?;
        Ok(if is_negative { -number } else { number })
    }

    /// Reads a number of a histogram: it begins with `-` or a digit, or is `Inf` or `NaN`.
    pub(super) fn histogram_number(&mut self) -> Result<f64, String> {
        let is_negative = self.eat("-");
        if self.0.starts_with('.') {
            return Err(self.unexpected("a digit"));
        }
        self.number()
            .map(|number| if is_negative { -number } else { number })
    }

    /// Reads a number without sign, `Inf` or `NaN`.
    fn number(&mut self) -> Result<f64, String> {
        let word = self.word();
        let is_named = ["inf", "nan"]
            .iter()
            .any(|name| word.eq_ignore_ascii_case(name));
        let text = if is_named {
            self.take(word.len())
        } else {
            self.digits()?
        };
        parse_literal(text)
    }

    /// Reads the text of a number that begins with a digit or a dot.
    fn digits(&mut self) -> Result<&'t str, String> {
        let bytes = self.0.as_bytes();
        if !matches!(bytes, [b'0'..=b'9', ..] | [b'.', b'0'..=b'9', ..]) {
            return Err(self.unexpected("a number"));
        }
        let mut len = 0;
        while let Some(b'0'..=b'9' | b'.' | b'_' | b'e' | b'E') = bytes.get(len) {
            let is_exponent = bytes[len].eq_ignore_ascii_case(&b'e');
            len += 1;
            len += usize::from(is_exponent && matches!(bytes.get(len), Some(b'+' | b'-')));
        }
        // A number of repetitions may follow.
        match bytes.get(len) {
            Some(next) if next.is_ascii_alphanumeric() && *next != b'x' => {
                Err(self.unexpected("a number"))
            }
            _ => Ok(self.take(len)),
        }
    }

    /// Returns the letters, digits, underscores and colons at the start of the text.
    fn word(&self) -> &'t str {
        let end = self
            .0
            .find(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | ':' | '.'));
        &self.0[..end.unwrap_or(self.0.len())]
    }

    fn take(&mut self, len: usize) -> &'t str {
        let (text, rest) = self.0.split_at(len);
        self.0 = rest;
        text
    }

    /// Returns an error about the text up to the next space.
    pub(super) fn unexpected(&self, expected: &str) -> String {
        match self.0.split([' ', '\t']).next() {
            None | Some("") => format!("unexpected end of a value, expected {expected}"),
            Some(found) => format!("unexpected {}, expected {expected}", quoted(found)),
        }
    }
}
