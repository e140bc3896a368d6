//! The pieces of an expression: plain text and variables.

use super::variables::Variables;

/// Maximum number of variables in an expression. Further ones remain as text.
const VARIABLES_MAX: usize = 256;

/// A piece of an expression.
#[derive(Debug, Clone, Copy)]
pub(super) enum Piece<'a> {
    Text(&'a str),
    Variable { idx: usize, context: Context },
}

impl Piece<'_> {
    /// Returns the index of a variable outside of strings and durations.
    pub(super) fn open(&self) -> Option<usize> {
        match *self {
            Self::Variable {
                idx,
                context: Context::Expression,
            } => Some(idx),
            _ => None,
        }
    }
}

/// Where a variable stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Context {
    String,
    Duration,
    Expression,
}

/// Splits an expression at its variables. Grafana's built-in variables are replaced by a value.
pub(super) fn split<'a>(text: &'a str, variables: &Variables) -> (Vec<Piece<'a>>, Vec<&'a str>) {
    let mut pieces = Vec::new();
    let mut names = Vec::<&'a str>::new();
    let mut location = Syntax::default();
    let mut from = 0;
    let mut at = 0;
    while at < text.len() {
        let found = if location.in_comment {
            None
        } else {
            variable(&text[at..])
        };
        let Some((name, len)) = found else {
            let c = text[at..].chars().next().expect("at is before the end");
            location.step(c);
            at += c.len_utf8();
            continue;
        };
        let piece = match (
            built_in(name),
            names.iter().position(|known| *known == name),
        ) {
            (Some(value), _) => Some(Piece::Text(value)),
            // `$1` in a replacement refers to a group of a regular expression.
            _ if name.bytes().all(|b| b.is_ascii_digit())
                && !variables.values.contains_key(name) =>
            {
                None
            }
            (None, Some(idx)) => Some(Piece::Variable {
                idx,
                context: location.context(&text[..at]),
            }),
            (None, None) if names.len() == VARIABLES_MAX => None,
            (None, None) => {
                names.push(name);
                Some(Piece::Variable {
                    idx: names.len() - 1,
                    context: location.context(&text[..at]),
                })
            }
        };
        if let Some(piece) = piece {
            pieces.extend([Piece::Text(&text[from..at]), piece]);
            from = at + len;
        }
        at += len;
    }
    pieces.push(Piece::Text(&text[from..]));
    (pieces, names)
}

/// Returns the name and the size of the variable at the start of a text, if it is between `open`
/// and `close`.
fn enclosed_variable<'a>(text: &'a str, open: &str, close: &str) -> Option<(&'a str, usize)> {
    let inner = text.strip_prefix(open)?;
    let end = inner.find(close)?;
    let name = inner[..end].split([':', '.', '[']).next()?;
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    is_name.then_some((name, open.len() + end + close.len()))
}

/// Returns the name and the size of the variable at the start of a text: `$a`, `${a}`, `${a.b}`,
/// `${a:format}`, `[[a]]`, `[[a:format]]`.
fn variable(text: &str) -> Option<(&str, usize)> {
    for (open, close) in [("${", "}"), ("[[", "]]")] {
        if let Some(found) = enclosed_variable(text, open, close) {
            return Some(found);
        }
    }
    let rest = text.strip_prefix('$')?;
    let end = rest
        .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .unwrap_or(rest.len());
    (end > 0).then(|| (&rest[..end], 1 + end))
}

/// Returns a value of one of Grafana's built-in variables.
fn built_in(name: &str) -> Option<&'static str> {
    Some(match name {
        "__rate_interval" => "5m",
        "__interval" | "__auto" => "1m",
        "__range" => "1h",
        "__rate_interval_ms" => "300000",
        "__interval_ms" => "60000",
        "__range_s" => "3600",
        "__range_ms" => "3600000",
        "__from" | "__to" => "1700000000000",
        _ => return None,
    })
}

/// The syntactic context of a character.
#[derive(Debug, Default)]
struct Syntax {
    quote: Option<char>,
    is_escaped: bool,
    in_comment: bool,
    brackets: usize,
}

impl Syntax {
    fn step(&mut self, c: char) {
        match self.quote {
            _ if self.in_comment => self.in_comment = c != '\n',
            Some(_) if self.is_escaped => self.is_escaped = false,
            Some(quote) if c == '\\' && quote != '`' => self.is_escaped = true,
            Some(quote) if c == quote => self.quote = None,
            Some(_) => {}
            None => match c {
                '"' | '\'' | '`' => self.quote = Some(c),
                '#' => self.in_comment = true,
                '[' => self.brackets += 1,
                ']' => self.brackets = self.brackets.saturating_sub(1),
                _ => {}
            },
        }
    }

    fn context(&self, before: &str) -> Context {
        if self.quote.is_some() {
            Context::String
        } else if self.brackets > 0 || before.trim_end().ends_with("offset") {
            Context::Duration
        } else {
            Context::Expression
        }
    }
}
