//! Finds the end of a string literal, and checks its escapes.

use super::{Lexer, Result};
use crate::quote::code_point;
use crate::token::TokenKind;

impl Lexer<'_> {
    /// Reads a string in `"` or `'` after its opening quote.
    pub(super) fn quoted_string(&mut self, start: usize, quote: char) -> Result<TokenKind> {
        loop {
            match self.next_char() {
                Some('\\') => self.escape(start, quote)?,
                Some(char::REPLACEMENT_CHARACTER) => return self.fail(start, "invalid UTF-8 rune"),
                None | Some('\n') => return self.fail(start, "unterminated quoted string"),
                Some(c) if c == quote => return Ok(TokenKind::String),
                Some(_) => {}
            }
        }
    }

    /// Reads a string in backquotes after its opening quote.
    pub(super) fn raw_string(&mut self, start: usize) -> Result<TokenKind> {
        loop {
            match self.next_char() {
                Some(char::REPLACEMENT_CHARACTER) => return self.fail(start, "invalid UTF-8 rune"),
                None => return self.fail(start, "unterminated raw string"),
                Some('`') => return Ok(TokenKind::String),
                Some(_) => {}
            }
        }
    }

    fn escape(&mut self, start: usize, quote: char) -> Result<()> {
        let escape = self.next_char();
        let (len, radix, max) = match escape {
            Some('a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '\\') => return Ok(()),
            Some(c) if c == quote => return Ok(()),
            Some('0'..='7') => {
                self.at -= 1;
                (3, 8, 255)
            }
            Some('x') => (2, 16, 255),
            Some('u') => (4, 16, u32::from(char::MAX)),
            Some('U') => (8, 16, u32::from(char::MAX)),
            Some(c) => {
                return self.fail(start, format!("unknown escape sequence {}", code_point(c)));
            }
            None => return self.fail(start, "escape sequence not terminated"),
        };
        let mut code = 0_u32;
        for _ in 0..len {
            let Some(c) = self.next_char() else {
                return self.fail(start, "escape sequence not terminated");
            };
            let Some(digit) = c.to_digit(radix) else {
                return self.fail(
                    start,
                    format!("illegal character {} in escape sequence", code_point(c)),
                );
            };
            // There are at most eight hexadecimal digits, so this cannot overflow.
            code = code * radix + digit;
        }
        if code > max || (0xd800..0xe000).contains(&code) {
            return self.fail(start, "escape sequence is an invalid Unicode code point");
        }
        Ok(())
    }

    fn next_char(&mut self) -> Option<char> {
        let c = self.char_at(self.at)?;
        self.at += c.len_utf8();
        Some(c)
    }
}
