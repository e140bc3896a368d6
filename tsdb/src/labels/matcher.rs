//! Label matchers.

use std::fmt;

use crate::labels::regexp::{Regexp, RegexpError};

/// The operator of a matcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatchOp {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `=~`
    Regexp,
    /// `!~`
    NotRegexp,
}

impl MatchOp {
    /// Returns the operator in PromQL syntax.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Regexp => "=~",
            Self::NotRegexp => "!~",
        }
    }
}

/// A condition on one label; an absent label is treated as the empty string.
#[derive(Debug, Clone)]
pub struct Matcher {
    name: Box<str>,
    op: MatchOp,
    value: Box<str>,
    /// `Some` for the two regexp operators only.
    regexp: Option<Regexp>,
}

impl Matcher {
    /// Creates a matcher.
    ///
    /// # Errors
    /// [`RegexpError`] if `op` is a regexp operator and `value` is not a regular expression in Go's syntax.
    pub fn new(op: MatchOp, name: &str, value: &str) -> Result<Self, RegexpError> {
        let regexp = match op {
            MatchOp::Equal | MatchOp::NotEqual => None,
            MatchOp::Regexp | MatchOp::NotRegexp => Some(Regexp::parse(value)?),
        };
        Ok(Self { name: name.into(), op, value: value.into(), regexp })
    }

    /// Creates the matcher `name="value"`.
    #[must_use]
    pub fn equal(name: &str, value: &str) -> Self {
        Self { name: name.into(), op: MatchOp::Equal, value: value.into(), regexp: None }
    }

    /// Returns the label's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the operator.
    #[must_use]
    pub fn op(&self) -> MatchOp {
        self.op
    }

    /// Returns the value or the regular expression as a string.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Returns the regular expression of `=~` and `!~`.
    #[must_use]
    pub fn regexp(&self) -> Option<&Regexp> {
        self.regexp.as_ref()
    }

    /// Returns `true` if a label value matches; an absent label is `""`.
    #[must_use]
    pub fn matches(&self, value: &str) -> bool {
        match (self.op, &self.regexp) {
            (MatchOp::Equal, _) => *self.value == *value,
            (MatchOp::NotEqual, _) => *self.value != *value,
            (MatchOp::Regexp, Some(regexp)) => regexp.is_match(value),
            (MatchOp::NotRegexp, Some(regexp)) => !regexp.is_match(value),
            (MatchOp::Regexp | MatchOp::NotRegexp, None) => unreachable!("regexp operators hold a regexp: see new"),
        }
    }

    /// Returns `true` if series without the label match.
    #[must_use]
    pub fn matches_empty(&self) -> bool {
        self.matches("")
    }
}

impl PartialEq for Matcher {
    fn eq(&self, other: &Self) -> bool {
        (self.op, &self.name, &self.value) == (other.op, &other.name, &other.value)
    }
}

impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{:?}", self.name, self.op.as_str(), self.value)
    }
}
