//! Tokens of a template, with Go's rules for delimiters, trimming and comments.

use std::borrow::Cow;
use std::fmt;

use varve_promql::quote::{code_point, quoted};

/// A token.
#[derive(Debug, Clone)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind,
    /// Byte offset in the template.
    pub(crate) start: usize,
    /// The text, or the message of an error.
    pub(crate) text: Cow<'a, str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Error,
    Bool,
    /// A printable ASCII character without a meaning of its own.
    Char,
    CharConstant,
    Assign,
    Declare,
    End,
    Field,
    Identifier,
    LeftDelim,
    LeftParen,
    Number,
    Pipe,
    RightDelim,
    RightParen,
    Space,
    String,
    Text,
    Variable,
    Keyword(Keyword),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keyword {
    Block,
    Break,
    Continue,
    Define,
    Dot,
    Else,
    End,
    If,
    Nil,
    Range,
    Template,
    With,
}

impl Keyword {
    fn of(word: &str) -> Option<Self> {
        Some(match word {
            "block" => Self::Block,
            "break" => Self::Break,
            "continue" => Self::Continue,
            "define" => Self::Define,
            "else" => Self::Else,
            "end" => Self::End,
            "if" => Self::If,
            "nil" => Self::Nil,
            "range" => Self::Range,
            "template" => Self::Template,
            "with" => Self::With,
            _ => return None,
        })
    }
}

impl fmt::Display for Token<'_> {
    /// Formats for error messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::End => f.write_str("EOF"),
            Kind::Error => f.write_str(&self.text),
            Kind::Keyword(_) => write!(f, "<{}>", self.text),
            _ if self.text.len() > 10 => {
                let short: String = self.text.chars().take(10).collect();
                write!(f, "{}...", quoted(short))
            }
            _ => f.write_str(&quoted(&*self.text)),
        }
    }
}

const LEFT_DELIM: &str = "{{";
const RIGHT_DELIM: &str = "}}";
/// The characters that trimming removes.
pub(crate) const SPACES: [char; 4] = [' ', '\t', '\r', '\n'];

/// Reads tokens.
#[derive(Debug)]
pub(crate) struct Lexer<'a> {
    text: &'a str,
    at: usize,
    /// Start of the current token.
    start: usize,
    is_inside_action: bool,
    paren_depth: usize,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            start: 0,
            is_inside_action: false,
            paren_depth: 0,
        }
    }

    /// Returns the next token. After an error or the end, it is always the end.
    pub(crate) fn next(&mut self) -> Token<'a> {
        self.start = self.at;
        if self.is_inside_action {
            self.inside_action()
        } else {
            self.outside()
        }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn skip_while(&mut self, skips: impl Fn(char) -> bool) {
        self.at = self.text.len() - self.rest().trim_start_matches(skips).len();
    }

    fn token(&mut self, kind: Kind) -> Token<'a> {
        Token {
            kind,
            start: self.start,
            text: self.text[self.start..self.at].into(),
        }
    }

    fn error(&mut self, message: impl Into<Cow<'a, str>>) -> Token<'a> {
        let token = Token {
            kind: Kind::Error,
            start: self.start,
            text: message.into(),
        };
        self.at = self.text.len();
        self.is_inside_action = false;
        token
    }

    fn outside(&mut self) -> Token<'a> {
        loop {
            self.start = self.at;
            let Some(len) = self.rest().find(LEFT_DELIM) else {
                self.at = self.text.len();
                return self.token(if self.start == self.at {
                    Kind::End
                } else {
                    Kind::Text
                });
            };
            let delim_end = self.at + len + LEFT_DELIM.len();
            let trims = has_left_trim_marker(&self.text[delim_end..]);
            let text = &self.rest()[..len];
            let text = if trims {
                text.trim_end_matches(SPACES)
            } else {
                text
            };
            self.at += len;
            if !text.is_empty() {
                return Token {
                    kind: Kind::Text,
                    start: self.start,
                    text: text.into(),
                };
            }
            self.start = self.at;
            self.at = delim_end;
            let after_marker = delim_end + if trims { 2 } else { 0 };
            if !self.text[after_marker..].starts_with("/*") {
                let token = self.token(Kind::LeftDelim);
                self.at = after_marker;
                self.is_inside_action = true;
                self.paren_depth = 0;
                return token;
            }
            self.at = after_marker;
            self.start = after_marker;
            if let Some(error) = self.comment() {
                return error;
            }
        }
    }

    /// Skips a comment. Returns an error if it is malformed.
    fn comment(&mut self) -> Option<Token<'a>> {
        let Some(len) = self.rest()[2..].find("*/") else {
            return Some(self.error("unclosed comment"));
        };
        self.at += 2 + len + 2;
        match self.right_delim_len() {
            Some((len, trims)) => self.close_action(len, trims),
            None => return Some(self.error("comment ends before closing delimiter")),
        }
        None
    }

    /// Returns the length of a right delimiter, and whether it trims.
    fn right_delim_len(&self) -> Option<(usize, bool)> {
        let rest = self.rest();
        let trimming = rest
            .strip_prefix(SPACES)
            .and_then(|rest| rest.strip_prefix('-'));
        if trimming.is_some_and(|rest| rest.starts_with(RIGHT_DELIM)) {
            return Some((2 + RIGHT_DELIM.len(), true));
        }
        rest.starts_with(RIGHT_DELIM)
            .then_some((RIGHT_DELIM.len(), false))
    }

    fn close_action(&mut self, len: usize, trims: bool) {
        self.at += len;
        self.is_inside_action = false;
        if trims {
            self.skip_while(|c| SPACES.contains(&c));
        }
    }

    fn inside_action(&mut self) -> Token<'a> {
        if let Some((len, trims)) = self.right_delim_len() {
            if self.paren_depth > 0 {
                return self.error("unclosed left paren");
            }
            let start = self.at + len - RIGHT_DELIM.len();
            let token = Token {
                kind: Kind::RightDelim,
                start,
                text: RIGHT_DELIM.into(),
            };
            self.close_action(len, trims);
            return token;
        }
        let Some(c) = self.bump() else {
            return self.error("unclosed action");
        };
        match c {
            ' ' | '\t' | '\r' | '\n' => self.space(),
            '=' => self.token(Kind::Assign),
            ':' if self.bump() == Some('=') => self.token(Kind::Declare),
            ':' => self.error("expected :="),
            '|' => self.token(Kind::Pipe),
            '"' => self.quote('"', Kind::String, "unterminated quoted string"),
            '\'' => self.quote('\'', Kind::CharConstant, "unterminated character constant"),
            '`' => match self.rest().find('`') {
                Some(len) => {
                    self.at += len + 1;
                    self.token(Kind::String)
                }
                None => self.error("unterminated raw quoted string"),
            },
            '$' => self.field_or_variable(Kind::Variable),
            '.' if !self.peek().is_some_and(|c| c.is_ascii_digit()) => {
                self.field_or_variable(Kind::Field)
            }
            '.' | '+' | '-' | '0'..='9' => {
                self.at -= 1;
                self.number()
            }
            _ if is_alphanumeric(c) => self.identifier(),
            '(' => {
                self.paren_depth += 1;
                self.token(Kind::LeftParen)
            }
            ')' if self.paren_depth == 0 => self.error("unexpected right paren"),
            ')' => {
                self.paren_depth -= 1;
                self.token(Kind::RightParen)
            }
            '!'..='~' => self.token(Kind::Char),
            _ => self.error(format!(
                "unrecognized character in action: {}",
                code_point(c)
            )),
        }
    }

    /// Reads spaces, except one before a right delimiter that trims.
    fn space(&mut self) -> Token<'a> {
        self.skip_while(|c| SPACES.contains(&c));
        self.at -= 1;
        if !matches!(self.right_delim_len(), Some((_, true))) {
            self.at += 1;
        }
        self.token(Kind::Space)
    }

    fn quote(&mut self, quote: char, kind: Kind, unterminated: &'static str) -> Token<'a> {
        loop {
            match self.bump() {
                Some('\\') if self.peek().is_some_and(|c| c != '\n') => drop(self.bump()),
                None | Some('\\' | '\n') => return self.error(unterminated),
                Some(c) if c == quote => return self.token(kind),
                Some(_) => {}
            }
        }
    }

    fn identifier(&mut self) -> Token<'a> {
        self.skip_while(is_alphanumeric);
        if !self.is_at_terminator() {
            return self.bad_character();
        }
        let word = &self.text[self.start..self.at];
        let kind = match Keyword::of(word) {
            Some(keyword) => Kind::Keyword(keyword),
            None if matches!(word, "true" | "false") => Kind::Bool,
            None => Kind::Identifier,
        };
        self.token(kind)
    }

    fn field_or_variable(&mut self, kind: Kind) -> Token<'a> {
        if self.is_at_terminator() {
            return self.token(if kind == Kind::Field {
                Kind::Keyword(Keyword::Dot)
            } else {
                kind
            });
        }
        self.skip_while(is_alphanumeric);
        if self.is_at_terminator() {
            self.token(kind)
        } else {
            self.bad_character()
        }
    }

    fn bad_character(&mut self) -> Token<'a> {
        let c = self.peek().expect("the end of the text is a terminator");
        self.error(format!("bad character {}", code_point(c)))
    }

    fn is_at_terminator(&self) -> bool {
        self.peek()
            .is_none_or(|c| SPACES.contains(&c) || matches!(c, '.' | ',' | '|' | ':' | ')' | '('))
            || self.rest().starts_with(RIGHT_DELIM)
    }

    fn accept(&mut self, accepts: impl Fn(char) -> bool) -> Option<char> {
        let c = self.peek().filter(|&c| accepts(c))?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn number(&mut self) -> Token<'a> {
        self.accept(|c| matches!(c, '+' | '-'));
        let mut radix = 10;
        if self.accept(|c| c == '0').is_some() {
            radix = match self.accept(|c| matches!(c, 'x' | 'X' | 'o' | 'O' | 'b' | 'B')) {
                Some('x' | 'X') => 16,
                Some('o' | 'O') => 8,
                Some(_) => 2,
                None => 10,
            };
        }
        let is_digit = |radix| move |c: char| c == '_' || c.is_digit(radix);
        self.skip_while(is_digit(radix));
        if self.accept(|c| c == '.').is_some() {
            self.skip_while(is_digit(radix));
        }
        if self
            .accept(|c| matches!((radix, c), (10, 'e' | 'E') | (16, 'p' | 'P')))
            .is_some()
        {
            self.accept(|c| matches!(c, '+' | '-'));
            self.skip_while(is_digit(10));
        }
        self.accept(|c| c == 'i');
        // Complex numbers end in another sign and number.
        if self
            .accept(|c| is_alphanumeric(c) || matches!(c, '+' | '-'))
            .is_some()
        {
            let text = quoted(&self.text[self.start..self.at]);
            return self.error(format!("bad number syntax: {text}"));
        }
        self.token(Kind::Number)
    }
}

fn has_left_trim_marker(text: &str) -> bool {
    text.strip_prefix('-')
        .is_some_and(|rest| rest.starts_with(SPACES))
}

fn is_alphanumeric(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}
