//! Inputs that could not be parsed.

use std::fmt;

/// An input that could not be parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file, or the URL.
    pub file: String,
    /// The part of the file, in words.
    pub place: String,
    /// The reason.
    pub reason: String,
    /// The expression, if it is one.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [&self.file, &self.place, &self.reason, &self.text].map(String::as_str);
        let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        f.write_str(&parts.join(": ").replace('\n', " "))
    }
}
