//! The error of an invalid pattern.

/// The reason why a string is not a regular expression, in the words of Go's `regexp` package.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("error parsing regexp: {0}")]
pub struct RegexpError(pub String);
