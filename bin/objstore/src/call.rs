//! A request to the server of a bucket, before it is authorized.

use bytes::Bytes;
use percent_encoding::{AsciiSet, utf8_percent_encode};
use varve_client::PERCENT_ENCODED;

/// A request before it is authorized.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) operation: &'static str,
    pub(crate) method: &'static str,
    /// The encoded path.
    pub(crate) path: String,
    /// In ascending order of names.
    pub(crate) query: Vec<(&'a str, &'a str)>,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Bytes,
}

impl Call<'_> {
    /// Creates a request without query, headers and body.
    pub(crate) fn new(operation: &'static str, method: &'static str, path: String) -> Self {
        Self {
            operation,
            method,
            path,
            query: Vec::new(),
            headers: Vec::new(),
            body: Bytes::new(),
        }
    }

    pub(crate) fn encoded_query(&self) -> String {
        let query: Vec<_> = self
            .query
            .iter()
            .map(|(name, value)| format!("{name}={}", encode(value, false)))
            .collect();
        query.join("&")
    }
}

/// Encodes text for a path, where slashes stay, or for a query.
pub(crate) fn encode(text: &str, is_path: bool) -> String {
    const IN_PATH: &AsciiSet = &PERCENT_ENCODED.remove(b'/');
    let escaped = if is_path { IN_PATH } else { PERCENT_ENCODED };
    utf8_percent_encode(text, escaped).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_queries_are_encoded() {
        assert_eq!(encode("a/b c~é$", true), "a/b%20c~%C3%A9%24");
        assert_eq!(encode("a/b=", false), "a%2Fb%3D");
    }
}
