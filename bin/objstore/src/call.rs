//! A request to the server of a bucket, before it is authorized, and the path of the bucket.

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

/// The path of a bucket, with a final slash: what precedes the key of an object.
#[derive(Debug)]
pub(crate) struct BucketPath(String);

impl BucketPath {
    /// Returns the path of a bucket whose name is part of the host name.
    pub(crate) fn of_host() -> Self {
        Self("/".to_owned())
    }

    /// Returns the path of a bucket whose name follows the path of the server, which may be empty.
    pub(crate) fn below(server_path: &str, bucket: &str) -> Self {
        Self(format!("{server_path}/{}/", encode(bucket, false)))
    }

    /// Returns a request for an object, or for the bucket itself, without query, headers and body.
    pub(crate) fn call<'a>(
        &self,
        operation: &'static str,
        method: &'static str,
        key: Option<&str>,
    ) -> Call<'a> {
        let path = match key {
            Some(key) => format!("{}{}", self.0, encode(key, true)),
            None if self.0 == "/" => "/".to_owned(),
            // A bucket is named without the slash after it.
            None => self.0.trim_end_matches('/').to_owned(),
        };
        Call {
            operation,
            method,
            path,
            query: Vec::new(),
            headers: Vec::new(),
            body: Bytes::new(),
        }
    }
}

impl Call<'_> {
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
fn encode(text: &str, is_path: bool) -> String {
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

    #[test]
    fn a_bucket_is_named_by_host_or_path() {
        for (bucket, of_object, of_bucket) in [
            (BucketPath::of_host(), "/a/b", "/"),
            (BucketPath::below("", "x y"), "/x%20y/a/b", "/x%20y"),
            (
                BucketPath::below("/account", "x"),
                "/account/x/a/b",
                "/account/x",
            ),
        ] {
            assert_eq!(bucket.call("get", "GET", Some("a/b")).path, of_object);
            assert_eq!(bucket.call("list", "GET", None).path, of_bucket);
        }
    }
}
