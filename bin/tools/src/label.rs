//! Labels in arguments and in the output of the tools.

use std::collections::BTreeMap;

use serde_json::json;
use varve_model::labels::METRIC_NAME;

/// Parses a label, `name=value` or `name="value"`.
///
/// # Errors
/// A sentence that says what is expected.
pub(super) fn parse_label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .filter(|(name, _)| !name.is_empty())
        .ok_or("expected NAME=VALUE")?;
    let unquoted = value
        .strip_prefix('"')
        .and_then(|value| value.strip_suffix('"'));
    Ok((name.to_owned(), unquoted.unwrap_or(value).to_owned()))
}

/// Parses an external label, whose name is not `__name__` and whose value is not empty.
///
/// # Errors
/// A sentence that says what is expected.
pub(super) fn parse_external_label(text: &str) -> Result<(String, String), String> {
    let (name, value) = parse_label(text)?;
    if name == METRIC_NAME || value.is_empty() {
        return Err("expected NAME=VALUE, with another name than __name__ and a value".to_owned());
    }
    Ok((name, value))
}

/// Prints labels as a selector.
pub(super) fn label_set(labels: &BTreeMap<String, String>) -> String {
    let pairs: Vec<_> = labels
        .iter()
        .map(|(name, value)| format!("{name}={}", json!(value)))
        .collect();
    format!("{{{}}}", pairs.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_external_label_is_no_metric_name_and_not_empty() {
        assert_eq!(
            parse_external_label("cluster=eu-1"),
            Ok(("cluster".to_owned(), "eu-1".to_owned()))
        );
        for text in ["__name__=a", "cluster=", "cluster=\"\"", "cluster"] {
            assert!(parse_external_label(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_value_may_be_quoted_empty_and_contain_an_equals_sign() {
        for (text, value) in [
            ("a=b", "b"),
            ("a=\"b\"", "b"),
            ("a=\"b", "\"b"),
            ("a=", ""),
            ("a=b=c", "b=c"),
        ] {
            assert_eq!(
                parse_label(text),
                Ok(("a".to_owned(), value.to_owned())),
                "{text}"
            );
        }
        for text in ["a", "=b", ""] {
            assert_eq!(
                parse_label(text),
                Err("expected NAME=VALUE".to_owned()),
                "{text}"
            );
        }
    }
}
