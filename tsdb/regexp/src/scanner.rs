//! The position in a pattern. Reads characters and escapes for the parser and for character
//! classes.

use super::error::RegexpError;

/// A pattern, the position in it, and the flags that apply there.
pub(crate) struct Scanner<'p> {
    pub(crate) pattern: &'p str,
    pub(crate) position: usize,
    pub(crate) flags: Flags,
    /// `false` if classes are only checked and counted.
    pub(crate) builds: bool,
    /// `true` once a search for `:]` has failed. Later searches would fail, too, and repeating them
    /// would be quadratic.
    pub(crate) has_no_posix_end: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Flags {
    /// `i`
    pub(crate) fold_case: bool,
    /// `m`
    pub(crate) multi_line: bool,
    /// `s`
    pub(crate) dot_newline: bool,
    /// `U`: repetitions are lazy without a `?` and greedy with it.
    pub(crate) lazy: bool,
}

impl<'p> Scanner<'p> {
    /// Returns a scanner at the start of a pattern.
    pub(crate) fn new(pattern: &'p str, builds: bool) -> Self {
        let flags = Flags {
            fold_case: false,
            multi_line: false,
            dot_newline: true,
            lazy: false,
        };
        Self {
            pattern,
            position: 0,
            flags,
            builds,
            has_no_posix_end: false,
        }
    }

    /// Parses an escape for one character.
    pub(crate) fn escape(&mut self) -> Result<u32, RegexpError> {
        let start = self.position;
        self.position += 1;
        let Some(c) = self.next_char() else {
            return Err(failure("trailing backslash at end of expression", ""));
        };
        let code = match c {
            '1'..='7' if !self.peek().is_some_and(|c| c.is_digit(8)) => None,
            '0'..='7' => Some(self.octal(c)),
            'x' => self.hexadecimal(),
            'a' => Some(0x07),
            'f' => Some(0x0c),
            'n' => Some(0x0a),
            'r' => Some(0x0d),
            't' => Some(0x09),
            'v' => Some(0x0b),
            _ if c.is_ascii() && !c.is_ascii_alphanumeric() => Some(u32::from(c)),
            _ => None,
        };
        code.ok_or_else(|| {
            failure(
                "invalid escape sequence",
                &self.pattern[start..self.position],
            )
        })
    }

    /// Parses up to two more octal digits.
    fn octal(&mut self, first: char) -> u32 {
        let mut code = first.to_digit(8).unwrap_or(0);
        for _ in 0..2 {
            let Some(digit) = self.peek().and_then(|c| c.to_digit(8)) else {
                break;
            };
            code = code * 8 + digit;
            self.position += 1;
        }
        code
    }

    /// Parses `41` or `{1F600}`. On failure, the consumed text is the part that Go's message shows.
    fn hexadecimal(&mut self) -> Option<u32> {
        let first = self.next_char()?;
        if first != '{' {
            let second = self.next_char();
            return Some(first.to_digit(16)? * 16 + second?.to_digit(16)?);
        }
        let mut code = None;
        loop {
            let c = self.next_char()?;
            if c == '}' {
                return code;
            }
            let next = code.unwrap_or(0) * 16 + c.to_digit(16)?;
            code = (next <= u32::from(char::MAX)).then_some(next);
            code?;
        }
    }

    pub(crate) fn rest(&self) -> &'p str {
        &self.pattern[self.position..]
    }

    pub(crate) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(crate) fn next_char(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.position += c.len_utf8();
        Some(c)
    }

    pub(crate) fn eat(&mut self, text: &str) -> bool {
        let found = self.rest().starts_with(text);
        self.position += if found { text.len() } else { 0 };
        found
    }
}

/// Returns the error in Go's words.
pub(crate) fn failure(what: &str, part: &str) -> RegexpError {
    RegexpError(format!("{what}: `{part}`"))
}
