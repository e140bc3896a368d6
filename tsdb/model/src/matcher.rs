//! Label matchers.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};

use varve_context::{QueryContext, Result};
use varve_regexp::{Regexp, RegexpError};

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
    /// The value if it is not UTF-8.
    bytes: Option<Box<[u8]>>,
    /// `Some` for the two regexp operators, and for a value that is not UTF-8, which no label value
    /// equals.
    regexp: Option<Regexp>,
}

impl Matcher {
    /// Creates a matcher.
    ///
    /// # Errors
    /// [`RegexpError`] if `op` is a regexp operator and `value` is not a regular expression in Go's
    /// syntax.
    pub fn new(op: MatchOp, name: &str, value: &str) -> Result<Self, RegexpError> {
        let regexp = match op {
            MatchOp::Equal | MatchOp::NotEqual => None,
            MatchOp::Regexp | MatchOp::NotRegexp => Some(Regexp::parse(value)?),
        };
        Ok(Self {
            name: name.into(),
            op,
            value: value.into(),
            bytes: None,
            regexp,
        })
    }

    /// Creates a matcher for a value that need not be UTF-8. No label value equals a value that is
    /// not UTF-8.
    ///
    /// # Errors
    /// [`RegexpError`] as for [`Matcher::new`]. A regular expression must be UTF-8.
    pub fn from_bytes(op: MatchOp, name: &str, value: &[u8]) -> Result<Self, RegexpError> {
        let text = String::from_utf8_lossy(value);
        if let Cow::Borrowed(text) = text {
            return Self::new(op, name, text);
        }
        if matches!(op, MatchOp::Regexp | MatchOp::NotRegexp) {
            return Err(RegexpError(format!("invalid UTF-8: `{text}`")));
        }
        let nothing = Regexp::parse(r"[^\x00-\x{10FFFF}]")?;
        Ok(Self {
            name: name.into(),
            op,
            value: text.into(),
            bytes: Some(value.into()),
            regexp: Some(nothing),
        })
    }

    /// Creates the matcher `name="value"`.
    #[must_use]
    pub fn equal(name: &str, value: &str) -> Self {
        Self {
            name: name.into(),
            op: MatchOp::Equal,
            value: value.into(),
            bytes: None,
            regexp: None,
        }
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

    /// Returns the value or the regular expression as a string. Bytes that are not UTF-8 are
    /// replaced.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Returns the bytes of the value or of the regular expression.
    #[must_use]
    pub fn value_bytes(&self) -> &[u8] {
        self.bytes.as_deref().unwrap_or(self.value.as_bytes())
    }

    /// Returns the regular expression that label values are compared with, if there is one.
    #[must_use]
    pub fn regexp(&self) -> Option<&Regexp> {
        self.regexp.as_ref()
    }

    /// Compiles the regular expression, if there is one and it is not compiled yet. See
    /// [`Regexp::compile`].
    ///
    /// # Errors
    /// If the request is interrupted or exceeds its memory limit.
    pub fn compile(&self, ctx: &QueryContext) -> Result<()> {
        self.regexp
            .iter()
            .try_for_each(|regexp| regexp.compile(ctx))
    }

    /// Returns `true` if a label value matches. An absent label is `""`. For matchers of requests,
    /// see [`Matcher::matches_in`].
    #[must_use]
    pub fn matches(&self, value: &str) -> bool {
        self.is_positive()
            == self
                .regexp
                .as_ref()
                .map_or_else(|| *self.value == *value, |regexp| regexp.is_match(value))
    }

    /// Returns the result of [`Matcher::matches`], within the limits of a request.
    ///
    /// # Errors
    /// If the request is interrupted or exceeds its memory limit.
    pub fn matches_in(&self, ctx: &QueryContext, value: &str) -> Result<bool> {
        let found = self
            .regexp
            .as_ref()
            .map_or(Ok(*self.value == *value), |regexp| {
                regexp.is_match_in(ctx, value)
            })?;
        Ok(self.is_positive() == found)
    }

    /// Returns `true` if series without the label match. Does not compile the regular expression.
    #[must_use]
    pub fn matches_empty(&self) -> bool {
        self.is_positive()
            == self
                .regexp
                .as_ref()
                .map_or(self.value.is_empty(), Regexp::matches_empty)
    }

    /// Returns `true` for `=` and `=~`.
    fn is_positive(&self) -> bool {
        matches!(self.op, MatchOp::Equal | MatchOp::Regexp)
    }
}

impl PartialEq for Matcher {
    fn eq(&self, other: &Self) -> bool {
        (self.op, &self.name, self.value_bytes()) == (other.op, &other.name, other.value_bytes())
    }
}

impl Eq for Matcher {}

impl Hash for Matcher {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.op, &self.name, self.value_bytes()).hash(state);
    }
}

impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{:?}", self.name, self.op.as_str(), self.value)
    }
}
