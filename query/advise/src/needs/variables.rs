//! The variables of a dashboard.

use std::collections::BTreeMap;

use varve_regexp::Regexp;

/// The values of a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Values {
    /// Known values, the current one first.
    Known(Vec<String>),
    /// All values that match a regular expression.
    Pattern(String),
    /// A number that viewers may replace by any text: outside of a string, by another number.
    Number(String),
}

/// The variables of a dashboard.
#[derive(Debug, Clone, Default)]
pub(super) struct Variables {
    pub(super) values: BTreeMap<String, Values>,
    /// Whether viewers can add matchers on any label to all queries.
    pub(super) has_filters: bool,
}

impl Values {
    /// Returns a regular expression that matches each value. With `escape`, a value is plain text.
    pub(super) fn pattern(&self, escape: bool) -> String {
        match self {
            Self::Pattern(pattern) => format!("(?:{pattern})"),
            Self::Number(_) => "(?:.*)".to_owned(),
            Self::Known(values) => {
                let patterns: Vec<_> = values
                    .iter()
                    .map(|value| {
                        if !escape && Regexp::parse(value).is_ok() {
                            value.clone()
                        } else {
                            Regexp::escape(value)
                        }
                    })
                    .collect();
                format!("(?:{})", patterns.join("|"))
            }
        }
    }
}
