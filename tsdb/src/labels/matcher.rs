//! Label matchers.

use std::fmt;

use crate::context::QueryContext;
use crate::error::Result;
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

/// A condition on one label. An absent label is treated as the empty string.
#[derive(Debug, Clone)]
pub struct Matcher {
    name: Box<str>,
    op: MatchOp,
    value: Box<str>,
    /// `Some` only for the two regexp operators.
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

    /// Compiles the regular expression, if there is one and it is not compiled yet. See [`Regexp::compile`].
    ///
    /// # Errors
    /// If the request is interrupted or exceeds its memory limit.
    pub fn compile(&self, ctx: &QueryContext) -> Result<()> {
        self.regexp.iter().try_for_each(|regexp| regexp.compile(ctx))
    }

    /// Returns `true` if a label value matches. An absent label is `""`. For matchers of requests, see
    /// [`Matcher::matches_in`].
    #[must_use]
    pub fn matches(&self, value: &str) -> bool {
        self.is_positive()
            == self.regexp.as_ref().map_or_else(|| *self.value == *value, |regexp| regexp.is_match(value))
    }

    /// Returns the result of [`Matcher::matches`], within the limits of a request.
    ///
    /// # Errors
    /// If the request is interrupted or exceeds its memory limit.
    pub fn matches_in(&self, ctx: &QueryContext, value: &str) -> Result<bool> {
        let found = self.regexp.as_ref().map_or(Ok(*self.value == *value), |regexp| regexp.is_match_in(ctx, value))?;
        Ok(self.is_positive() == found)
    }

    /// Returns `true` if series without the label match. Does not compile the regular expression.
    #[must_use]
    pub fn matches_empty(&self) -> bool {
        self.is_positive() == self.regexp.as_ref().map_or(self.value.is_empty(), Regexp::matches_empty)
    }

    /// Returns `true` for `=` and `=~`.
    fn is_positive(&self) -> bool {
        matches!(self.op, MatchOp::Equal | MatchOp::Regexp)
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
