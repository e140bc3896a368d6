//! Finds the end of a number or duration.
//!
//! The accepted text may still be invalid; the parser then rejects the value. Text that is rejected
//! here is rejected by Prometheus' lexer, too, with the same part of the text in the message.

/// The kind of literal found, and its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scan {
    Number(usize),
    Duration(usize),
    /// Neither. Holds the end of the text in the error message.
    Malformed(usize),
}

/// Scans text that begins with a digit, or with a dot and a digit.
pub(super) fn scan(text: &[u8], start: usize) -> Scan {
    let mut scanner = Scanner { text, at: start };
    if scanner.number() {
        return Scan::Number(scanner.at);
    }
    if scanner.rest_of_duration() {
        return Scan::Duration(scanner.at);
    }
    Scan::Malformed(scanner.at)
}

struct Scanner<'q> {
    text: &'q [u8],
    at: usize,
}

impl Scanner<'_> {
    /// Consumes digits, `.`, `e` and `_`. Returns `false` if a character cannot follow the previous
    /// one.
    fn number(&mut self) -> bool {
        let hexadecimal = self.accept(b"0") && self.accept(b"xX");
        if hexadecimal {
            self.accept(b"_");
        }
        self.accept(b".");
        self.accept_digit(hexadecimal);
        let mut dot = false;
        let mut exponent = false;
        while let Some(byte) = self.peek() {
            let ok = match byte {
                b'.' => self.dot(&mut dot, hexadecimal),
                b'e' | b'E' => self.exponent(&mut exponent),
                b'_' => self.underscore(),
                _ if is_digit(byte, hexadecimal) => {
                    while self.accept_digit(hexadecimal) {}
                    true
                }
                _ => break,
            };
            if !ok {
                return false;
            }
        }
        !self.peek().is_some_and(super::is_identifier)
    }

    fn dot(&mut self, seen: &mut bool, hexadecimal: bool) -> bool {
        self.at += 1;
        !std::mem::replace(seen, true) && !self.accept(b"_.") && !hexadecimal
    }

    fn exponent(&mut self, seen: &mut bool) -> bool {
        self.at += 1;
        if std::mem::replace(seen, true) {
            return false;
        }
        self.accept(b"+-");
        !self.accept(b"._eE") && self.peek().is_some()
    }

    fn underscore(&mut self) -> bool {
        self.at += 1;
        !self.accept(b"._eE") && self.peek().is_some()
    }

    /// Consumes units and numbers after the first number of a duration. The parser checks the units
    /// and their order (`hs`).
    fn rest_of_duration(&mut self) -> bool {
        if !self.accept(b"smhdwy") {
            return false;
        }
        self.accept(b"s");
        while self.accept_digit(false) {
            while self.accept_digit(false) {}
            // Years can only be first.
            if !self.accept(b"smhdw") {
                return false;
            }
            self.accept(b"s");
        }
        let ends = !self.peek().is_some_and(super::is_identifier);
        self.at += usize::from(!ends);
        ends
    }

    fn accept(&mut self, bytes: &[u8]) -> bool {
        let found = self.peek().is_some_and(|b| bytes.contains(&b));
        self.at += usize::from(found);
        found
    }

    fn accept_digit(&mut self, hexadecimal: bool) -> bool {
        let found = self.peek().is_some_and(|b| is_digit(b, hexadecimal));
        self.at += usize::from(found);
        found
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }
}

fn is_digit(byte: u8, hexadecimal: bool) -> bool {
    if hexadecimal {
        byte.is_ascii_hexdigit()
    } else {
        byte.is_ascii_digit()
    }
}
