//! Errors in rule files.

use std::fmt;

/// An error in a rule file. Prints as `line:column: message`; an error about two fields has two
/// positions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileError {
    positions: Vec<Position>,
    message: String,
}

/// A position in a text. Lines and columns count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) line: usize,
    pub(super) column: usize,
}

impl FileError {
    pub(super) fn new(positions: Vec<Position>, message: String) -> Self {
        Self { positions, message }
    }

    /// Returns the error with a prefix of its message. The prefix locates the text in the file.
    pub(super) fn within(self, location: &str) -> Self {
        Self {
            message: format!("{location}: {}", self.message),
            ..self
        }
    }

    /// Returns the error with other positions.
    pub(super) fn at(self, position: impl Fn(Position) -> Position) -> Self {
        Self {
            positions: self.positions.into_iter().map(position).collect(),
            ..self
        }
    }

    /// Returns the message without positions.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl From<serde_yaml_ng::Error> for FileError {
    fn from(error: serde_yaml_ng::Error) -> Self {
        let message = error.to_string();
        let position = Position::of(&error);
        // The parser appends the position, which this error prints first.
        let suffix =
            position.map(|Position { line, column }| format!(" at line {line} column {column}"));
        let message = suffix
            .and_then(|suffix| message.strip_suffix(&suffix))
            .unwrap_or(&message)
            .to_owned();
        Self {
            positions: position.into_iter().collect(),
            message,
        }
    }
}

impl Position {
    /// Returns the position of an event of the parser, whose columns count from 0.
    pub(super) fn of_marker(marker: granit_parser::Marker) -> Self {
        Self {
            line: marker.line(),
            column: marker.col() + 1,
        }
    }

    fn of(error: &serde_yaml_ng::Error) -> Option<Self> {
        let location = error.location()?;
        Some(Self {
            line: location.line(),
            column: location.column(),
        })
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for position in &self.positions {
            write!(f, "{position}: ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for FileError {}
