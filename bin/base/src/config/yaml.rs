//! Errors of YAML files, in the words of YAML.

use anyhow::Error;

/// Before the name of the type that a mapping is read into.
const TYPE_NAME: &str = "expected struct ";

/// Converts an error of the parser. It names the expected mapping, not the type that the mapping is read into.
pub fn yaml_error(error: serde_yaml_ng::Error) -> Error {
    let text = error.to_string();
    let Some((before, after)) = text.split_once(TYPE_NAME) else { return error.into() };
    let rest = after.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
    Error::msg(format!("{before}expected a mapping{rest}"))
}
