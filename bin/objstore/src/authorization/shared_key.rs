//! Signatures of requests to Azure by the key of a storage account: the scheme `SharedKey`.
//!
//! The signature covers the header `content-md5`, with which the server checks the body.
//!
//! Source: "Authorize with Shared Key" in the REST API reference of Azure Storage, for version
//! 2015-02-21 and later.

use std::fmt::Write as _;

use anyhow::{Result, anyhow};
use data_encoding::BASE64;
use jiff::Timestamp;
use ring::hmac;
use varve_client::Secret;

use crate::call::Call;

/// The headers whose values are signed after the method, in this order. `date` is empty: requests
/// have `x-ms-date`.
const SIGNED_HEADERS: [&str; 11] = [
    "content-encoding",
    "content-language",
    CONTENT_LENGTH,
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
];
const CONTENT_LENGTH: &str = "content-length";

/// A storage account and its key.
#[derive(Debug, Clone)]
pub(crate) struct SharedKey {
    account: String,
    key: hmac::Key,
}

impl SharedKey {
    /// # Errors
    /// If the key is not Base64.
    pub(crate) fn new(account: &str, key: &Secret) -> Result<Self> {
        let key = BASE64
            .decode(key.0.as_bytes())
            .map_err(|_| anyhow!("the key of storage account {account:?} is not Base64"))?;
        Ok(Self {
            account: account.to_owned(),
            key: hmac::Key::new(hmac::HMAC_SHA256, &key),
        })
    }

    /// Returns the headers that sign a request: its time and the signature. `headers` are all
    /// others, with names in lower case.
    pub(crate) fn sign(
        &self,
        call: &Call<'_>,
        headers: &[(String, String)],
        now: Timestamp,
    ) -> Vec<(String, String)> {
        let time = now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        let mut added = vec![("x-ms-date".to_owned(), time)];
        let text = self.string_to_sign(call, &[headers, &added].concat());
        let signature = BASE64.encode(hmac::sign(&self.key, text.as_bytes()).as_ref());
        let value = format!("SharedKey {}:{signature}", self.account);
        added.push(("authorization".to_owned(), value));
        added
    }

    fn string_to_sign(&self, call: &Call<'_>, headers: &[(String, String)]) -> String {
        let mut text = format!("{}\n", call.method);
        for name in SIGNED_HEADERS {
            if name == CONTENT_LENGTH {
                // The length of an empty body is signed as no length.
                if !call.body.is_empty() {
                    text.push_str(&call.body.len().to_string());
                }
            } else if let Some((_, value)) = headers.iter().find(|(header, _)| header == name) {
                text.push_str(value.trim());
            }
            text.push('\n');
        }

        let mut own_headers: Vec<_> = headers
            .iter()
            .filter(|(name, _)| name.starts_with("x-ms-"))
            .collect();
        own_headers.sort_unstable();
        for (name, value) in own_headers {
            let _ = writeln!(text, "{name}:{}", value.trim());
        }

        let _ = write!(text, "/{}{}", self.account, call.path);
        // The names are in ascending order; the values are not encoded.
        for (name, value) in &call.query {
            let _ = write!(text, "\n{name}:{value}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// Compares a signature with that of Microsoft's SDK for JavaScript (`@azure/storage-blob`
    /// 12.32.0) for the same request.
    fn check(
        method: &'static str,
        path: &str,
        query: Vec<(&str, &str)>,
        headers: &[(&str, &str)],
        body: &'static str,
        expect: &str,
    ) {
        let key = Secret(BASE64.encode(b"a key of a storage account that only tests have"));
        let key = SharedKey::new("account1", &key).unwrap();
        let call = Call {
            operation: "test",
            method,
            path: path.to_owned(),
            query,
            headers: Vec::new(),
            body: Bytes::from_static(body.as_bytes()),
        };
        let mut headers: Vec<_> = headers
            .iter()
            .map(|&(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        headers.push(("x-ms-version".to_owned(), "2020-10-02".to_owned()));
        headers.push(("host".to_owned(), "account1.example".to_owned()));
        let added = key.sign(&call, &headers, "2026-01-01T00:00:00Z".parse().unwrap());
        let time = "Thu, 01 Jan 2026 00:00:00 GMT".to_owned();
        assert_eq!(added[0], ("x-ms-date".to_owned(), time));
        let value = format!("SharedKey account1:{expect}");
        assert_eq!(added[1], ("authorization".to_owned(), value), "{path}");
    }

    #[test]
    fn signatures_equal_those_of_the_sdk() {
        check(
            "GET",
            "/metrics/a%20b/3",
            vec![],
            &[("range", "bytes=0-9")],
            "",
            "9j3+BsDQzq58VsbdvQsK14g2oV3Vut81sNN5jD8NYjQ=",
        );
        check(
            "PUT",
            "/metrics/a/1",
            vec![],
            &[
                ("x-ms-blob-type", "BlockBlob"),
                ("content-md5", "+XxdKZQb+xsv2rCHSQargg=="),
            ],
            "one",
            "/VhmUve/CFrWR2RC1Bae1p+Cuvgrhx+ve76exwPe/DE=",
        );
        check(
            "PUT",
            "/metrics/a/2",
            vec![("blockid", "MDAwMDAwMDE="), ("comp", "block")],
            &[
                ("content-length", "0"),
                ("content-md5", "1B2M2Y8AsgTpgAmY7PhCfg=="),
            ],
            "",
            "M5NGl+6nuqeTNcwWvSo1geGtP1A9LpM125MwqFucQrI=",
        );
        check(
            "GET",
            "/metrics",
            vec![
                ("comp", "list"),
                ("marker", "2!19"),
                ("prefix", "in/side/"),
                ("restype", "container"),
            ],
            &[],
            "",
            "Wa7j1n3TwAH5PYYCXDhHpLUb4bJhtDCL7cMtw55LVv4=",
        );
        // The path of the emulator has the name of the account.
        check(
            "DELETE",
            "/account1/metrics/%C3%A9",
            vec![],
            &[("x-ms-delete-snapshots", "include")],
            "",
            "kXrg+bsTzUdycQYQTcRfbNsZc2q7nX2I5cbicOZcqyI=",
        );
    }

    #[test]
    fn a_key_is_base64_and_is_not_printed() {
        let secret = Secret("c2VjcmV0IGtleQ==".to_owned());
        let key = SharedKey::new("account1", &secret).unwrap();
        assert!(!format!("{key:?}").contains("c2Vj"));
        let error = SharedKey::new("account1", &Secret("s3cret".to_owned())).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the key of storage account \"account1\" is not Base64"
        );
    }
}
