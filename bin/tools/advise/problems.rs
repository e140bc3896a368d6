//! Inputs that could not be parsed.

use std::fmt;

use serde::Serialize;

use super::needs::Location;

/// An input that could not be parsed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Problem {
    /// The file, or the URL.
    pub(super) file: String,
    /// The part of the file, in words.
    pub(super) place: String,
    /// The reason.
    pub(super) reason: String,
    /// The expression, if it is one.
    pub(super) text: String,
}

impl Problem {
    pub(super) fn new(location: &Location, reason: impl Into<String>, text: &str) -> Self {
        Self {
            file: location.file.to_string(),
            place: location.within.clone(),
            reason: reason.into(),
            text: text.to_owned(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [&self.file, &self.place, &self.reason, &self.text].map(String::as_str);
        let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        f.write_str(&parts.join(": ").replace('\n', " "))
    }
}
