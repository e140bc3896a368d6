//! Signatures of S3 requests: AWS Signature Version 4, with the SHA-256 of the body, which the
//! server checks.
//!
//! Source: "Authenticating Requests: Using the Authorization Header (AWS Signature Version 4)" in
//! the Amazon S3 API reference.

use std::fmt::Write as _;

use data_encoding::HEXLOWER;
use jiff::Timestamp;
use ring::hmac;

use crate::checksum::checksum;
use crate::credentials::Credentials;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const SERVICE: &str = "s3";

/// Credentials, and the region that their signatures are valid for.
pub(crate) struct Signer<'a> {
    pub(crate) credentials: &'a Credentials,
    pub(crate) region: &'a str,
}

/// The signed parts of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unsigned<'a> {
    pub(crate) method: &'a str,
    /// The encoded path.
    pub(crate) path: &'a str,
    /// The encoded query, ascending by name.
    pub(crate) query: &'a str,
    /// Names in lower case, and values, including `host`, in any order.
    pub(crate) headers: &'a [(String, String)],
    pub(crate) body: &'a [u8],
}

impl Signer<'_> {
    /// Returns the headers that sign a request: its time, the checksum of its body, and the
    /// signature.
    pub(crate) fn sign(&self, request: Unsigned<'_>, now: Timestamp) -> Vec<(String, String)> {
        let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
        let day = &time[..8];
        let body = checksum(request.body);
        let mut added = vec![
            ("x-amz-content-sha256", body.clone()),
            ("x-amz-date", time.clone()),
        ];
        let session_token = &self.credentials.session_token.0;
        if !session_token.is_empty() {
            added.push(("x-amz-security-token", session_token.clone()));
        }
        let mut added: Vec<_> = added
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        let mut headers = [request.headers, &added].concat();
        headers.sort_unstable();
        let names: Vec<_> = headers.iter().map(|(name, _)| name.as_str()).collect();
        let names = names.join(";");
        let lines = headers
            .iter()
            .fold(String::new(), |mut lines, (name, value)| {
                let _ = writeln!(lines, "{name}:{}", value.trim());
                lines
            });
        let Unsigned {
            method,
            path,
            query,
            ..
        } = request;
        let canonical = format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{body}");
        let scope = format!("{day}/{}/{SERVICE}/aws4_request", self.region);
        let text = format!(
            "{ALGORITHM}\n{time}\n{scope}\n{}",
            checksum(canonical.as_bytes())
        );
        let start = format!("AWS4{}", self.credentials.secret_key.0).into_bytes();
        let parts = [day, self.region, SERVICE, "aws4_request", &text];
        let signature = HEXLOWER.encode(
            &parts
                .iter()
                .fold(start, |key, part| hmac_sha256(&key, part)),
        );
        let value = format!(
            "{ALGORITHM} Credential={}/{scope},SignedHeaders={names},Signature={signature}",
            self.credentials.access_key
        );
        added.push(("authorization".to_owned(), value));
        added
    }
}

fn hmac_sha256(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes())
        .as_ref()
        .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_client::Secret;

    /// Signs a request of the examples in the Amazon S3 API reference.
    fn check(
        method: &str,
        path: &str,
        query: &str,
        headers: &[(&str, &str)],
        body: &str,
        expect: &str,
    ) {
        let credentials = Credentials {
            access_key: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret_key: Secret("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned()),
            session_token: Secret::default(),
        };
        let signer = Signer {
            credentials: &credentials,
            region: "us-east-1",
        };
        let mut headers: Vec<_> = headers
            .iter()
            .map(|&(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        headers.push((
            "host".to_owned(),
            "examplebucket.s3.amazonaws.com".to_owned(),
        ));
        let request = Unsigned {
            method,
            path,
            query,
            headers: &headers,
            body: body.as_bytes(),
        };
        let now: Timestamp = "2013-05-24T00:00:00Z".parse().unwrap();
        let signed = signer.sign(request, now);
        let (_, value) = signed
            .iter()
            .find(|(name, _)| name == "authorization")
            .unwrap();
        assert!(
            value.ends_with(&format!("Signature={expect}")),
            "{method} {path}?{query}: {value}"
        );
        assert!(
            value.contains("Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"),
            "{value}"
        );
    }

    #[test]
    fn signatures_equal_the_examples_of_aws() {
        check(
            "GET",
            "/test.txt",
            "",
            &[("range", "bytes=0-9")],
            "",
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        );
        check(
            "PUT",
            "/test%24file.text",
            "",
            &[
                ("date", "Fri, 24 May 2013 00:00:00 GMT"),
                ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
            ],
            "Welcome to Amazon S3.",
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        );
        check(
            "GET",
            "/",
            "lifecycle=",
            &[],
            "",
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        );
        check(
            "GET",
            "/",
            "max-keys=2&prefix=J",
            &[],
            "",
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        );
    }
}
