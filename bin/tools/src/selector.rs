//! Selectors as arguments of the tools, and label sets that they match.

use anyhow::{Result, anyhow};
use varve_model::Matcher;
use varve_promql::parse_selector;

/// Parses a selector.
///
/// # Errors
/// The parser's error.
pub(crate) fn parse_matchers(selector: &str) -> Result<Vec<Matcher>> {
    parse_selector(selector).map_err(|error| anyhow!("{selector:?}: {error}"))
}

/// Parses a selector. Without one, returns no matchers, which match all series.
///
/// # Errors
/// The parser's error.
pub(crate) fn parse_optional(selector: Option<&str>) -> Result<Vec<Matcher>> {
    match selector {
        Some(selector) => parse_matchers(selector),
        None => Ok(Vec::new()),
    }
}

/// Returns `true` if a label set matches all matchers.
pub(crate) fn matches(matchers: &[Matcher], labels: &[(&str, &str)]) -> bool {
    matchers
        .iter()
        .all(|matcher| matcher.matches(value(labels, matcher.name())))
}

/// Returns the value of a label. A missing label equals the empty string.
fn value<'l>(labels: &[(&'l str, &'l str)], name: &str) -> &'l str {
    for (other, value) in labels {
        if *other == name {
            return value;
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_label_equals_the_empty_string() {
        let labels = [("__name__", "up"), ("job", "a")];
        for (selector, expect) in [
            ("up", true),
            ("{job!='a'}", false),
            ("up{x=''}", true),
            ("up{x!=''}", false),
        ] {
            assert_eq!(
                matches(&parse_matchers(selector).unwrap(), &labels),
                expect,
                "{selector}"
            );
        }
    }
}
