//! The lexer: from text to tokens.
//!
//! The meaning of a character depends on the state. In braces, `or` is a name and `=~` an operator.
//! In brackets, there are only durations. Positions and messages of errors are those of Prometheus'
//! lexer, which reports some errors after the character that causes them.

mod number;
mod string;

use std::sync::OnceLock;

use varve_regexp::Regexp;

use super::ast::BinaryOp;
use super::quote::{quoted, quoted_char};
use super::token::{Keyword, Token, TokenKind};

/// An error in the text, and its byte offset.
#[derive(Debug)]
pub(super) struct LexError {
    pub(super) offset: usize,
    pub(super) message: String,
}

/// Produces one token at a time. Must not be used after an error.
#[derive(Debug)]
pub(super) struct Lexer<'q> {
    text: &'q str,
    at: usize,
    paren_depth: usize,
    state: State,
    /// The open bracket contains a `:`.
    after_colon: bool,
    /// A previous bracket or this one contained a number. As in Prometheus, the next bracket does
    /// not reset this.
    after_duration: bool,
    /// Names may have Unicode letters and, except at the start, dots.
    unquoted_utf8_names: bool,
}

/// The state of the lexer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Expression,
    Braces,
    /// In brackets, before the first number.
    BracketStart,
    Brackets,
}

type Result<T> = std::result::Result<T, LexError>;

impl<'q> Lexer<'q> {
    /// Creates a lexer. With `unquoted_utf8_names`, names may have Unicode letters and dots.
    pub(super) fn new(text: &'q str, unquoted_utf8_names: bool) -> Self {
        let state = State::Expression;
        Self {
            text,
            at: 0,
            paren_depth: 0,
            state,
            after_colon: false,
            after_duration: false,
            unquoted_utf8_names,
        }
    }

    /// Returns the next token; at the end of the text, always [`TokenKind::EndOfInput`].
    pub(super) fn next_token(&mut self) -> Result<Token> {
        self.skip_blanks();
        let start = self.at;
        let kind = match self.state {
            State::Expression | State::Brackets => self.expression_token()?,
            State::Braces => self.brace_token()?,
            State::BracketStart => self.bracket_start_token()?,
        };
        Ok(Token {
            kind,
            start,
            end: self.at,
        })
    }

    fn expression_token(&mut self) -> Result<TokenKind> {
        let start = self.at;
        let Some(byte) = self.next_byte() else {
            return self.end_of_input();
        };
        Ok(match byte {
            b',' => TokenKind::Comma,
            b'*' | b'/' | b'%' | b'+' | b'-' | b'^' => arithmetic_operator(byte),
            b'@' => TokenKind::At,
            b'=' | b'!' | b'<' | b'>' => return self.comparison(byte, start),
            b'0'..=b'9' => return self.number_or_duration(start),
            b'.' if self.peek_byte().is_some_and(|b| b.is_ascii_digit()) => {
                return self.number_or_duration(start);
            }
            b'"' | b'\'' => return self.quoted_string(start, char::from(byte)),
            b'`' => return self.raw_string(start),
            _ if self.starts_name(byte, start) || byte == b':' => return self.identifier(start),
            b'(' | b')' => return self.paren(byte),
            b'{' => {
                self.state = State::Braces;
                TokenKind::LeftBrace
            }
            b'[' if self.state == State::Brackets => {
                return self.fail(start, "unexpected left bracket '['");
            }
            b'[' => {
                self.state = State::BracketStart;
                self.after_colon = false;
                self.after_duration = false;
                TokenKind::LeftBracket
            }
            b']' if self.state != State::Brackets => {
                return self.fail(start, "unexpected right bracket ']'");
            }
            b']' => {
                self.state = State::Expression;
                TokenKind::RightBracket
            }
            _ => {
                return self.fail(
                    start,
                    format!("unexpected character: {}", quoted_char(self.char_at(start))),
                );
            }
        })
    }

    fn end_of_input(&self) -> Result<TokenKind> {
        if self.paren_depth != 0 {
            return self.fail(self.at, "unclosed left parenthesis");
        }
        if self.state == State::Brackets {
            return self.fail(self.at, "unclosed left bracket");
        }
        Ok(TokenKind::EndOfInput)
    }

    fn comparison(&mut self, byte: u8, start: usize) -> Result<TokenKind> {
        let op = match (byte, self.peek_byte()) {
            (b'=', Some(b'=')) => BinaryOp::Eq,
            (b'=', Some(b'~')) => return self.fail(start, "unexpected character after '=': '~'"),
            (b'=', _) => return Ok(TokenKind::Equal),
            (b'!', Some(b'=')) => BinaryOp::Ne,
            (b'!', _) => {
                let found = quoted_char(self.char_at(self.at));
                return self.fail(start, format!("unexpected character after '!': {found}"));
            }
            (b'<', Some(b'=')) => BinaryOp::Le,
            (b'<', Some(b'/')) => BinaryOp::TrimUpper,
            (b'<', _) => return Ok(TokenKind::Operator(BinaryOp::Lt)),
            (_, Some(b'=')) => BinaryOp::Ge,
            (_, Some(b'/')) => BinaryOp::TrimLower,
            _ => return Ok(TokenKind::Operator(BinaryOp::Gt)),
        };
        self.at += 1;
        Ok(TokenKind::Operator(op))
    }

    fn paren(&mut self, byte: u8) -> Result<TokenKind> {
        if byte == b'(' {
            self.paren_depth += 1;
            return Ok(TokenKind::LeftParen);
        }
        match self.paren_depth.checked_sub(1) {
            Some(depth) => self.paren_depth = depth,
            None => return self.fail(self.at, "unexpected right parenthesis ')'"),
        }
        Ok(TokenKind::RightParen)
    }

    /// Reads an identifier or a keyword.
    fn identifier(&mut self, start: usize) -> Result<TokenKind> {
        if self.state == State::Brackets {
            return self.bracket_identifier(start);
        }
        self.skip_name(true);
        let text = &self.text[start..self.at];
        let kind = TokenKind::of_identifier(text);
        let is_fill = matches!(
            kind,
            TokenKind::Keyword(Keyword::Fill | Keyword::FillLeft | Keyword::FillRight)
        );
        // `fill` is a modifier only before `(`; otherwise it may be a metric name.
        if is_fill
            && !self.text[self.at..]
                .trim_start_matches(is_space)
                .starts_with('(')
        {
            return Ok(TokenKind::Identifier);
        }
        Ok(kind)
    }

    fn bracket_identifier(&mut self, start: usize) -> Result<TokenKind> {
        let first = self.text.as_bytes()[start];
        if first == b':' && self.after_colon {
            return self.fail(start, "unexpected colon ':'");
        }
        if first == b':' {
            self.after_colon = true;
            return Ok(TokenKind::Colon);
        }
        match first
            .is_ascii()
            .then(|| self.duration_function(start))
            .flatten()
        {
            Some(kind) => Ok(kind),
            None => {
                let found = quoted_char(self.char_at(start));
                self.fail(
                    start,
                    format!("unexpected character: {found}, expected ':'"),
                )
            }
        }
    }

    /// Reads `step`, `range`, `min_of` or `max_of`.
    fn duration_function(&mut self, start: usize) -> Option<TokenKind> {
        use super::token::Preprocessor::{End, Start};
        self.skip_while(is_identifier_start);
        match TokenKind::of_identifier(&self.text[start..self.at]) {
            TokenKind::Preprocessor(Start | End) => None,
            kind @ TokenKind::Preprocessor(_) => Some(kind),
            _ => None,
        }
    }

    fn bracket_start_token(&mut self) -> Result<TokenKind> {
        let start = self.at;
        let Some(byte) = self.next_byte() else {
            return self.fail(start, "unexpected end of input in duration expression");
        };
        Ok(match byte {
            b']' => {
                self.state = State::Expression;
                TokenKind::RightBracket
            }
            b':' if !self.after_duration => {
                return self.fail(
                    self.at,
                    "unexpected colon before duration in duration expression",
                );
            }
            b':' if self.after_colon => {
                return self.fail(self.at, "unexpected repeated colon in duration expression");
            }
            b':' => {
                self.after_colon = true;
                TokenKind::Colon
            }
            b'(' | b')' => return self.paren(byte),
            b'*' | b'/' | b'%' | b'+' | b'-' | b'^' => arithmetic_operator(byte),
            b',' => TokenKind::Comma,
            b'0'..=b'9' => return self.first_duration(start),
            b'.' if self.peek_byte().is_some_and(|b| b.is_ascii_digit()) => {
                return self.first_duration(start);
            }
            _ => {
                let function = if is_identifier_start(byte) {
                    self.duration_function(start)
                } else {
                    None
                };
                if let Some(kind) = function {
                    self.after_duration = true;
                    return Ok(kind);
                }
                let found = quoted_char(self.char_at(start));
                let message = format!("unexpected character in duration expression: {found}");
                return self.fail(start, message);
            }
        })
    }

    fn first_duration(&mut self, start: usize) -> Result<TokenKind> {
        self.state = State::Brackets;
        self.after_duration = true;
        self.number_or_duration(start)
    }

    fn brace_token(&mut self) -> Result<TokenKind> {
        let start = self.at;
        let Some(byte) = self.next_byte() else {
            return self.fail(start, "unexpected end of input inside braces");
        };
        Ok(match byte {
            b',' => TokenKind::Comma,
            b'"' | b'\'' => return self.quoted_string(start, char::from(byte)),
            b'`' => return self.raw_string(start),
            b'=' if self.eat(b'~') => TokenKind::EqualRegexp,
            b'=' => TokenKind::Equal,
            b'!' if self.eat(b'~') => TokenKind::NotEqualRegexp,
            b'!' if self.eat(b'=') => TokenKind::Operator(BinaryOp::Ne),
            b'!' => {
                let found = quoted_char(self.char_at(self.at));
                return self.fail(
                    start,
                    format!("unexpected character after '!' inside braces: {found}"),
                );
            }
            b'{' => return self.fail(start, "unexpected left brace '{'"),
            b'}' => {
                self.state = State::Expression;
                TokenKind::RightBrace
            }
            _ if self.starts_name(byte, start) => {
                self.skip_name(false);
                TokenKind::Identifier
            }
            _ => {
                let found = quoted_char(self.char_at(start));
                return self.fail(
                    start,
                    format!("unexpected character inside braces: {found}"),
                );
            }
        })
    }

    /// Reads a number or duration after its first byte.
    fn number_or_duration(&mut self, start: usize) -> Result<TokenKind> {
        match number::scan(self.text.as_bytes(), start) {
            number::Scan::Number(end) => {
                self.at = end;
                Ok(TokenKind::Number)
            }
            number::Scan::Duration(end) => {
                self.at = end;
                Ok(TokenKind::Duration)
            }
            number::Scan::Malformed(end) => {
                let found = quoted(&self.text[start..end]);
                self.fail(start, format!("bad number or duration syntax: {found}"))
            }
        }
    }

    fn skip_blanks(&mut self) {
        self.skip_while(|b| is_space(char::from(b)));
        // There are no comments in brackets before the first number.
        while self.state != State::BracketStart && self.peek_byte() == Some(b'#') {
            self.skip_while(|b| !matches!(b, b'\n' | b'\r'));
            self.skip_while(|b| is_space(char::from(b)));
        }
    }

    /// Returns `true` if `byte`, at offset `start`, begins a name.
    fn starts_name(&self, byte: u8, start: usize) -> bool {
        is_identifier_start(byte) || (!byte.is_ascii() && self.letter_size_at(start) > 0)
    }

    /// Skips the rest of a name; its first byte was read.
    fn skip_name(&mut self, with_colons: bool) {
        let dots = self.unquoted_utf8_names;
        self.at -= usize::from(!self.text.is_char_boundary(self.at));
        loop {
            self.skip_while(|b| {
                is_identifier(b) || (with_colons && b == b':') || (dots && b == b'.')
            });
            match self.letter_size_at(self.at) {
                0 => return,
                size => self.at += size,
            }
        }
    }

    /// Returns the size of the letter at an offset if letters other than ASCII may be in names;
    /// otherwise 0.
    fn letter_size_at(&self, at: usize) -> usize {
        let letter = self
            .char_at(at)
            .filter(|c| self.unquoted_utf8_names && !c.is_ascii() && is_letter(*c));
        letter.map_or(0, char::len_utf8)
    }

    fn skip_while(&mut self, keep: impl Fn(u8) -> bool) {
        let rest = &self.text.as_bytes()[self.at..];
        self.at += rest.iter().position(|&b| !keep(b)).unwrap_or(rest.len());
    }

    fn next_byte(&mut self) -> Option<u8> {
        let byte = self.peek_byte()?;
        self.at += 1;
        Some(byte)
    }

    fn peek_byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek_byte() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn char_at(&self, at: usize) -> Option<char> {
        self.text[at..].chars().next()
    }

    fn fail<T>(&self, offset: usize, message: impl Into<String>) -> Result<T> {
        Err(LexError {
            offset,
            message: message.into(),
        })
    }
}

fn arithmetic_operator(byte: u8) -> TokenKind {
    TokenKind::Operator(match byte {
        b'*' => BinaryOp::Mul,
        b'/' => BinaryOp::Div,
        b'%' => BinaryOp::Mod,
        b'+' => BinaryOp::Add,
        b'-' => BinaryOp::Sub,
        _ => BinaryOp::Pow,
    })
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}

/// Returns `true` if a character is a letter, like Go's `unicode.IsLetter`.
fn is_letter(c: char) -> bool {
    static LETTER: OnceLock<Option<Regexp>> = OnceLock::new();
    let letter = LETTER.get_or_init(|| Regexp::parse(r"\pL").ok());
    letter
        .as_ref()
        .is_some_and(|letter| letter.is_match(c.encode_utf8(&mut [0; 4])))
}

fn is_identifier_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_'
}

fn is_identifier(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}
