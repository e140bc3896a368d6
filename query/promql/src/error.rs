//! Errors of the crate; parse errors and their positions.

use std::{fmt, io};

use varve_context::Limit;

/// Why a query is not parsed or printed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not a valid query.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// The thread for a deeply nested query cannot be started.
    #[error("start a thread for a nested query: {0}")]
    Thread(io::Error),
    /// The request was interrupted, or exceeds its memory limit.
    #[error(transparent)]
    Context(#[from] varve_context::Error),
}

/// A result with [`Error`].
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// The first error in a query, with Prometheus' message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError(Box<Problem>);

/// The error data, boxed because every function of the parser returns a result.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Problem {
    offset: usize,
    /// The position; `None` for an empty query.
    position: Option<Position>,
    message: String,
    limit: Option<Limit>,
}

/// A position in a query. Lines and columns count from 1; columns count bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    line: usize,
    column: usize,
}

impl ParseError {
    pub(crate) fn new(text: &str, offset: usize, message: impl Into<String>) -> Self {
        let offset = offset.min(text.len());
        let position = (!text.is_empty()).then(|| Position::of(text, offset));
        Self(Box::new(Problem {
            offset,
            position,
            message: message.into(),
            limit: None,
        }))
    }

    /// Adds the exceeded limit.
    pub(crate) fn with_limit(mut self, limit: Limit) -> Self {
        self.0.limit = Some(limit);
        self
    }

    /// Returns the byte offset of the error.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.0.offset
    }

    /// Returns the message without the position.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the exceeded limit, if the error is about a limit.
    #[must_use]
    pub fn limit(&self) -> Option<Limit> {
        self.0.limit
    }
}

impl Position {
    /// Returns the position of a byte offset.
    ///
    /// # Panics
    /// If `offset` exceeds the length of the text.
    #[must_use]
    pub fn of(text: &str, offset: usize) -> Self {
        let before = &text.as_bytes()[..offset];
        let line_start = before
            .iter()
            .rposition(|&b| b == b'\n')
            .map_or(0, |newline| newline + 1);
        let line = before.iter().filter(|&&b| b == b'\n').count() + 1;
        Self {
            line,
            column: offset - line_start + 1,
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.position {
            Some(position) => write!(f, "{position}: parse error: {}", self.0.message),
            None => write!(f, "unknown position: parse error: {}", self.0.message),
        }
    }
}

impl std::error::Error for ParseError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_count_bytes_from_1() {
        let check = |text: &str, offset, expect: &str| {
            assert_eq!(
                ParseError::new(text, offset, "x").to_string(),
                format!("{expect}: parse error: x")
            );
        };
        check("abc", 0, "1:1");
        check("a\nbc", 2, "2:1");
        check("é\n\né x", 7, "3:4");
        check("abc", 3, "1:4");
        check("", 0, "unknown position");
    }
}
