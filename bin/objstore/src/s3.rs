//! A bucket of S3 or of a compatible server.
//!
//! A request is repeated, with growing pauses, if the server does not respond or responds with 5xx,
//! 408 or 429. Objects larger than a part are sent in parts. An interrupted upload is aborted when
//! the same key is sent again. For other keys, the bucket needs a lifecycle rule that aborts
//! incomplete uploads.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use bytes::Bytes;
use hyper::Request;
use hyper::header::ETAG;
use jiff::Timestamp;
use varve_client::{Client, ClientOptions, Response, Url};
use varve_system::excerpt::quotable;
use varve_system::printing::error_chain;
use varve_system::version::USER_AGENT;

use crate::config::S3Config;
use crate::credentials::CachedCredentials;
use crate::limits::{EMPTY_PAGES_MAX, MIB};
use crate::metrics::ObjstoreMetrics;
use crate::object::{Object, check_listed};
use crate::pace::{Pace, Stop};
use crate::sign::{Signer, Unsigned, encode};
use crate::xml;

/// Maximum time of a request: a part of the default size, 16 MiB, at 128 KiB/s. Larger parts need a
/// faster connection.
const TIMEOUT: Duration = Duration::from_secs(128);
/// Maximum size of a response: a range, or a list of 1,000 long keys.
const RESPONSE_SIZE_MAX: usize = 16 << 20;
/// Pause before the first repetition. Each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(20);
/// Status of a range that begins at the end of an object, or later.
const BEHIND_THE_END: u16 = 416;
/// Maximum number of parts of an object.
const PARTS_MAX: u64 = 10_000;

pub(super) struct S3 {
    client: Client,
    credentials: CachedCredentials,
    region: String,
    /// The `Host` header.
    host: String,
    /// What precedes a key in a path.
    root: String,
    encryption: Vec<(String, String)>,
    part_size: u64,
    retries_max: u32,
    stop: Arc<Stop>,
    metrics: ObjstoreMetrics,
}

/// A request before it is signed.
struct Call<'a> {
    operation: &'static str,
    method: &'static str,
    /// `None` for the bucket itself.
    key: Option<&'a str>,
    /// In ascending order of names.
    query: &'a [(&'a str, &'a str)],
    headers: Vec<(String, String)>,
    body: Bytes,
}

impl std::fmt::Debug for S3 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("S3")
            .field("host", &self.host)
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}

impl S3 {
    pub(super) fn new(
        config: &S3Config,
        stop: Arc<Stop>,
        metrics: ObjstoreMetrics,
    ) -> Result<Self> {
        let (host, root) = if config.is_virtual_hosted {
            (
                format!("{}.{}", config.bucket, config.endpoint),
                "/".to_owned(),
            )
        } else {
            (
                config.endpoint.clone(),
                format!("/{}/", encode(&config.bucket, false)),
            )
        };
        let scheme = if config.is_insecure { "http" } else { "https" };
        let url = Url::parse(&format!("{scheme}://{host}"))
            .map_err(|error| anyhow!("endpoint {host:?}: {error}"))?;
        let options = ClientOptions {
            timeout: TIMEOUT,
            response_size_max: RESPONSE_SIZE_MAX,
            user_agent: USER_AGENT,
        };
        Ok(Self {
            client: Client::new(&url, config.access.clone(), options)?,
            credentials: CachedCredentials::new(config.credentials.clone()),
            region: config.region.clone(),
            host,
            root,
            encryption: config.encryption.clone(),
            part_size: config.part_size,
            retries_max: config.retries_max,
            stop,
            metrics,
        })
    }

    pub(super) fn put(
        &mut self,
        key: &str,
        size: u64,
        source: &mut dyn Read,
        pace: &mut Pace,
    ) -> Result<()> {
        // Larger parts for an object that would have too many.
        let part_size = self
            .part_size
            .max(size.div_ceil(PARTS_MAX).next_multiple_of(MIB));
        if size > part_size {
            return self.put_parts(key, size, part_size, source, pace);
        }
        let body = next_part(size, source, pace)?;
        let headers = self.encryption.clone();
        self.expect(Call {
            headers,
            body,
            ..Call::new("put", "PUT", key)
        })
        .map(drop)
    }

    fn put_parts(
        &mut self,
        key: &str,
        size: u64,
        part_size: u64,
        source: &mut dyn Read,
        pace: &mut Pace,
    ) -> Result<()> {
        self.abort_uploads(key)?;
        let query = [("uploads", "")];
        let headers = self.encryption.clone();
        let begun = self.expect(Call {
            query: &query,
            headers,
            ..Call::new("multipart", "POST", key)
        })?;
        let upload = xml::required(&text(&begun), "UploadId")?;
        let mut list = String::from("<CompleteMultipartUpload>");
        for (number, start) in (1_u32..).zip((0..size).step_by(part_size as usize)) {
            let body = next_part(part_size.min(size - start), source, pace)?;
            let number = number.to_string();
            let query = [("partNumber", &*number), ("uploadId", &*upload)];
            let sent = self.expect(Call {
                query: &query,
                body,
                ..Call::new("put", "PUT", key)
            })?;
            let tag = sent
                .headers
                .get(ETAG)
                .and_then(|tag| tag.to_str().ok())
                .context("a part has no ETag")?;
            let tag = xml::escape(tag);
            list.push_str(&format!(
                "<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>"
            ));
        }
        list.push_str("</CompleteMultipartUpload>");
        let query = [("uploadId", &*upload)];
        let ended = self.expect(Call {
            query: &query,
            body: list.into(),
            ..Call::new("multipart", "POST", key)
        })?;
        // This response begins before the server has finished, so an error may follow the status 200.
        let body = text(&ended);
        ensure!(
            !body.contains("<Error>"),
            "finish the upload: {}",
            reason(&ended)
        );
        xml::required(&body, "ETag").map(drop)
    }

    /// Removes the parts of interrupted uploads of a key.
    fn abort_uploads(&mut self, key: &str) -> Result<()> {
        let query = [("prefix", key), ("uploads", "")];
        let found = self.expect(Call {
            key: None,
            query: &query,
            ..Call::new("multipart", "GET", "")
        })?;
        let body = text(&found);
        for upload in xml::elements(&body, "Upload")
            .filter(|upload| xml::text(upload, "Key").as_deref() == Some(key))
        {
            let id = xml::required(upload, "UploadId")?;
            let query = [("uploadId", &*id)];
            // 404: the server has removed it meanwhile.
            self.call(&Call {
                query: &query,
                ..Call::new("multipart", "DELETE", key)
            })?;
        }
        Ok(())
    }

    pub(super) fn get_range(&mut self, key: &str, offset: u64, size: u64) -> Result<Option<Bytes>> {
        let range = format!("bytes={offset}-{}", offset + size - 1);
        let headers = vec![("range".to_owned(), range)];
        let response = self.call(&Call {
            headers,
            ..Call::new("get", "GET", key)
        })?;
        Ok(match response.status {
            404 => None,
            BEHIND_THE_END => Some(Bytes::new()),
            _ => {
                self.metrics.count_received(response.body.len());
                Some(response.body)
            }
        })
    }

    pub(super) fn list(&mut self, prefix: &str) -> Result<Vec<Object>> {
        let mut objects = Vec::new();
        let mut token = String::new();
        let mut n_empty_pages = 0;
        loop {
            let mut query = Vec::new();
            if !token.is_empty() {
                query.push(("continuation-token", &*token));
            }
            query.extend([("list-type", "2"), ("prefix", prefix)]);
            let page = self.expect(Call {
                key: None,
                query: &query,
                ..Call::new("list", "GET", "")
            })?;
            let page = text(&page);
            let n_before = objects.len();
            for object in xml::elements(&page, "Contents") {
                let size = xml::required(object, "Size")?
                    .parse()
                    .context("the size of an object")?;
                objects.push(Object {
                    key: xml::required(object, "Key")?,
                    size,
                });
            }
            check_listed(&objects)?;
            if xml::text(&page, "IsTruncated").as_deref() != Some("true") {
                return Ok(objects);
            }

            // A page may be empty, but a listing without progress would never end.
            n_empty_pages = if objects.len() > n_before {
                0
            } else {
                n_empty_pages + 1
            };
            ensure!(
                n_empty_pages < EMPTY_PAGES_MAX,
                "{} returned {EMPTY_PAGES_MAX} empty pages of a list in a row",
                self.host
            );
            let next = xml::required(&page, "NextContinuationToken").with_context(|| {
                format!(
                    "{} returned a truncated list of objects without a continuation token",
                    self.host
                )
            })?;
            ensure!(
                next != token,
                "{} returned the continuation token {:?} of a list twice",
                self.host,
                quotable(&next)
            );
            token = next;
        }
    }

    pub(super) fn delete(&mut self, key: &str) -> Result<()> {
        self.call(&Call::new("delete", "DELETE", key)).map(drop)
    }

    /// Sends a request. A missing object or bucket is an error.
    fn expect(&mut self, call: Call<'_>) -> Result<Response> {
        let response = self.call(&call)?;
        ensure!(
            response.status != 404,
            "{} returned 404: {}",
            self.host,
            reason(&response)
        );
        Ok(response)
    }

    /// Sends a request, and repeats it after temporary failures. Returns a response with a status
    /// of 2xx, 404 or 416.
    fn call(&mut self, call: &Call<'_>) -> Result<Response> {
        let metrics = self.metrics.clone();
        metrics.observe(call.operation, || {
            let mut n_retries = 0;
            loop {
                let failed = match self.send(call) {
                    Ok(response)
                        if response.is_success()
                            || matches!(response.status, 404 | BEHIND_THE_END) =>
                    {
                        return Ok(response);
                    }
                    Ok(response) => {
                        let error = anyhow!(
                            "{} returned {}: {}",
                            self.host,
                            response.status,
                            reason(&response)
                        );
                        if response.status < 500 && !matches!(response.status, 408 | 429) {
                            return Err(error);
                        }
                        error
                    }
                    Err(error) => error,
                };
                if n_retries == self.retries_max {
                    return Err(
                        failed.context(format!("after {n_retries} retries (config.max_retries)"))
                    );
                }
                let pause = PAUSE.saturating_mul(1 << n_retries.min(16)).min(PAUSE_MAX);
                tracing::debug!(
                    operation = call.operation,
                    error = error_chain(&failed),
                    ?pause,
                    "Retrying a request"
                );
                self.stop.wait(pause)?;
                n_retries += 1;
                self.metrics.retries.inc();
            }
        })
    }

    fn send(&mut self, call: &Call<'_>) -> Result<Response> {
        let path = format!("{}{}", self.root, encode(call.key.unwrap_or(""), true));
        // A bucket is named without the slash after it.
        let path = if call.key.is_none() && path.len() > 1 {
            path.trim_end_matches('/')
        } else {
            &path
        };
        let query: Vec<_> = call
            .query
            .iter()
            .map(|(name, value)| format!("{name}={}", encode(value, false)))
            .collect();
        let query = query.join("&");
        let mut headers = call.headers.clone();
        headers.push(("host".to_owned(), self.host.clone()));
        let unsigned = Unsigned {
            method: call.method,
            path,
            query: &query,
            headers: &headers,
            body: &call.body,
        };
        let now = Timestamp::now();
        let signer = Signer {
            credentials: self.credentials.get(now)?,
            region: &self.region,
        };
        let signed = signer.sign(unsigned, now);
        let uri = if query.is_empty() {
            path.to_owned()
        } else {
            format!("{path}?{query}")
        };
        let mut request = Request::builder().method(call.method).uri(uri);
        for (name, value) in headers.iter().chain(&signed) {
            request = request.header(name, value);
        }
        let response = self.client.send(request, call.body.clone())?;
        self.metrics.count_sent(call.body.len());
        Ok(response)
    }
}

impl<'a> Call<'a> {
    fn new(operation: &'static str, method: &'static str, key: &'a str) -> Self {
        Self {
            operation,
            method,
            key: Some(key),
            query: &[],
            headers: Vec::new(),
            body: Bytes::new(),
        }
    }
}

fn next_part(size: u64, source: &mut dyn Read, pace: &mut Pace) -> Result<Bytes> {
    pace.wait_for(size)?;
    let mut part = vec![0; usize::try_from(size)?];
    source.read_exact(&mut part).context("read the source")?;
    Ok(part.into())
}

fn text(response: &Response) -> String {
    String::from_utf8_lossy(&response.body).into_owned()
}

/// Returns code and message of an error, or the beginning of another body.
fn reason(response: &Response) -> String {
    let body = text(response);
    match (xml::text(&body, "Code"), xml::text(&body, "Message")) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        _ => response.text(),
    }
}
