//! A server with the protocol of S3, which Google Cloud Storage also has.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use data_encoding::BASE64;
use parking_lot::Mutex;
use varve_client::Secret;

use super::http_server::{self, Answer, Received, decode};
use crate::authorization::{Signer, Unsigned};
use crate::credentials::Credentials;

pub(super) const KEY: &str = "AKIDEXAMPLE";
pub(super) const SECRET: &str = "s3cret";
pub(super) const REGION: &str = "eu-test-1";
/// Objects per page of a list.
const PAGE_LEN: usize = 2;

/// What the server stores.
#[derive(Debug, Default)]
pub(super) struct Stored {
    pub(super) objects: BTreeMap<String, Vec<u8>>,
    /// Parts by upload, with its key.
    pub(super) uploads: BTreeMap<String, (String, BTreeMap<u32, Vec<u8>>)>,
    pub(super) n_uploads: usize,
    /// Number of requests that are still to fail with 500.
    pub(super) n_failures: usize,
    pub(super) n_requests: usize,
    /// Makes a page of a list from the number of requests, instead of what is stored.
    pub(super) list_page: Option<fn(usize) -> String>,
    /// The token that requests need. `None`: a signature.
    pub(super) token: Option<String>,
    /// Seconds that a failed request should wait.
    pub(super) retry_after: u32,
}

#[derive(Debug, Clone)]
pub(super) struct Server(Arc<Mutex<Stored>>, pub(super) String);

impl Server {
    pub(super) fn start() -> Self {
        let stored = Arc::default();
        let serving = Self(Arc::clone(&stored), String::new());
        Self(
            stored,
            http_server::start(move |request| serving.answer(request)),
        )
    }

    pub(super) fn stored(&self) -> parking_lot::MutexGuard<'_, Stored> {
        self.0.lock()
    }

    fn answer(&self, request: &Received) -> Answer {
        let (status, body) = self.respond(request);
        let mut answer = Answer::new(status, body);
        if request.method == "PUT" {
            answer.headers.push("etag: \"t&g\"".to_owned());
        }
        let retry_after = self.stored().retry_after;
        if status == 500 && retry_after > 0 {
            answer.headers.push(format!("retry-after: {retry_after}"));
        }
        answer
    }

    /// Returns status and body.
    fn respond(&self, request: &Received) -> (u16, Vec<u8>) {
        let mut stored = self.stored();
        stored.n_requests += 1;
        if stored.n_failures > 0 {
            stored.n_failures -= 1;
            return (
                500,
                b"<Error><Code>InternalError</Code><Message>again</Message></Error>".to_vec(),
            );
        }
        let is_allowed = match &stored.token {
            Some(token) => has_token(request, token),
            None => is_signed(request),
        };
        if !is_allowed {
            return (
                403,
                b"<Error><Code>SignatureDoesNotMatch</Code><Message>no</Message></Error>".to_vec(),
            );
        }
        let key = decode(request.path.strip_prefix("/my-bucket").unwrap());
        let key = key.trim_start_matches('/').to_owned();
        let query = request.params();
        let ok = |text: String| (200, text.into_bytes());
        match (
            request.method.as_str(),
            query.get("uploadId").map(String::as_str),
        ) {
            ("PUT", Some(id)) => {
                let number = query["partNumber"].parse().unwrap();
                stored
                    .uploads
                    .get_mut(id)
                    .unwrap()
                    .1
                    .insert(number, request.body.clone());
                ok(String::new())
            }
            ("PUT", None) => {
                stored.objects.insert(key, request.body.clone());
                ok(String::new())
            }
            ("POST", None) => {
                stored.n_uploads += 1;
                let id = format!("u{}", stored.n_uploads);
                stored.uploads.insert(id.clone(), (key, BTreeMap::new()));
                ok(format!("<R><UploadId>{id}</UploadId></R>"))
            }
            ("POST", Some(id)) => {
                let (key, parts) = stored.uploads.remove(id).unwrap();
                let named = String::from_utf8(request.body.clone())
                    .unwrap()
                    .matches("<ETag>&quot;t&amp;g")
                    .count();
                assert_eq!(named, parts.len(), "each part is named by its ETag");
                stored
                    .objects
                    .insert(key, parts.into_values().flatten().collect());
                ok("<R><ETag>x</ETag></R>".to_owned())
            }
            ("DELETE", Some(id)) => {
                stored.uploads.remove(id);
                ok(String::new())
            }
            ("DELETE", None) => {
                stored.objects.remove(&key);
                (204, vec![])
            }
            ("GET", None) if query.contains_key("uploads") => {
                let one = |(id, (key, _)): (&String, &(String, _))| {
                    format!("<Upload><Key>{key}</Key><UploadId>{id}</UploadId></Upload>")
                };
                ok(stored.uploads.iter().map(one).collect())
            }
            ("GET", None) if query.contains_key("list-type") => match stored.list_page {
                Some(page) => ok(page(stored.n_requests)),
                None => ok(list(&stored, &query)),
            },
            ("GET", None) => match stored.objects.get(&key) {
                None => (
                    404,
                    b"<Error><Code>NoSuchKey</Code><Message>none</Message></Error>".to_vec(),
                ),
                Some(object) => match request.range_of(object) {
                    Some(range) => (206, range),
                    None => (
                        416,
                        b"<Error><Code>InvalidRange</Code><Message>behind</Message></Error>"
                            .to_vec(),
                    ),
                },
            },
            other => panic!("{other:?}"),
        }
    }
}

fn list(stored: &Stored, query: &HashMap<String, String>) -> String {
    let prefix = &query["prefix"];
    let entries: Vec<_> = stored
        .objects
        .iter()
        .filter(|(key, _)| key.starts_with(prefix))
        .collect();
    let start = query
        .get("continuation-token")
        .map_or(0, |token| token.parse().unwrap());
    let one = |(key, object): &(&String, &Vec<u8>)| {
        format!(
            "<Contents><Key>{key}</Key><Size>{}</Size></Contents>",
            object.len()
        )
    };
    let page: String = entries.iter().skip(start).take(PAGE_LEN).map(one).collect();
    let is_truncated = start + PAGE_LEN < entries.len();
    let next = format!(
        "<NextContinuationToken>{}</NextContinuationToken>",
        start + PAGE_LEN
    );
    let next = if is_truncated { next } else { String::new() };
    format!("<R>{page}<IsTruncated>{is_truncated}</IsTruncated>{next}</R>")
}

/// Also checks what Google Cloud Storage requires of requests that send something.
#[expect(clippy::big_endian_bytes, reason = "the protocol demands it")]
fn has_token(request: &Received, token: &str) -> bool {
    if matches!(&*request.method, "PUT" | "POST") {
        assert!(request.headers.contains_key("content-length"), "a 411");
    }
    if request.method == "PUT" {
        let crc32c = BASE64.encode(&crc32c::crc32c(&request.body).to_be_bytes());
        assert_eq!(request.headers["x-goog-hash"], format!("crc32c={crc32c}"));
    }
    request.headers["authorization"] == format!("Bearer {token}")
}

/// Signs what was received again.
fn is_signed(request: &Received) -> bool {
    let given = &request.headers["authorization"];
    let names = given
        .split_once("SignedHeaders=")
        .unwrap()
        .1
        .split(',')
        .next()
        .unwrap();
    let added = ["x-amz-content-sha256", "x-amz-date"];
    let headers: Vec<_> = names
        .split(';')
        .filter(|name| !added.contains(name))
        .map(|name| (name.to_owned(), request.headers[name].clone()))
        .collect();
    let credentials = Credentials {
        access_key: KEY.to_owned(),
        secret_key: Secret(SECRET.to_owned()),
        session_token: Secret::default(),
    };
    let signer = Signer {
        credentials: &credentials,
        region: REGION,
    };
    let now =
        jiff::civil::DateTime::strptime("%Y%m%dT%H%M%SZ", &request.headers["x-amz-date"]).unwrap();
    let now = now.to_zoned(jiff::tz::TimeZone::UTC).unwrap().timestamp();
    let Received {
        method,
        path,
        query,
        body,
        ..
    } = request;
    let signed = signer.sign(
        Unsigned {
            method,
            path,
            query,
            headers: &headers,
            body,
        },
        now,
    );
    signed
        .iter()
        .any(|(name, value)| name == "authorization" && value == given)
}
