//! Null values of YAML files, and errors in the words of YAML.

use std::collections::BTreeMap;

use anyhow::Error;
use serde::{Deserialize, Deserializer};

/// Before the name of the type that a mapping is read into.
const TYPE_NAME: &str = "expected struct ";

/// Converts an error of the parser. It names the expected mapping, not the type that the mapping is
/// read into.
pub fn yaml_error(error: serde_yaml_ng::Error) -> Error {
    let text = error.to_string();
    let Some((before, after)) = text.split_once(TYPE_NAME) else {
        return error.into();
    };
    let rest = after.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
    Error::msg(format!("{before}expected a mapping{rest}"))
}

/// Reads a value whose null is the default, as in Prometheus. Without it, the string of `null` is
/// `"null"`.
pub fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Reads a mapping of strings. Null is an empty value.
pub fn labels<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let labels: BTreeMap<String, Option<String>> = null_is_default(deserializer)?;
    Ok(labels
        .into_iter()
        .map(|(name, value)| (name, value.unwrap_or_default()))
        .collect())
}
