//! Requests to the server of a bucket: authorized, counted, and repeated after temporary failures.
//!
//! A request is repeated, with growing pauses, if the server does not respond or responds with 5xx,
//! 408 or 429. A pause is at least as long as the response asks for, up to [`RETRY_AFTER_MAX`]. A
//! token that the server refuses is renewed once for each request.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow};
use bytes::Bytes;
use hyper::Request;
use hyper::header::RETRY_AFTER;
use jiff::Timestamp;
use varve_client::{Access, Client, ClientOptions, Remedies, Response, Url};
use varve_system::printing::error_chain;
use varve_system::version::USER_AGENT;

use crate::authorization::Authorization;
use crate::call::Call;
use crate::limits::MIB;
use crate::metrics::ObjstoreMetrics;
use crate::pace::{Pace, Stop};
use crate::xml;

/// Maximum time of a request: a part of the default size, 16 MiB, at 128 KiB/s. Larger parts need a
/// faster connection.
const TIMEOUT: Duration = Duration::from_secs(128);
/// Maximum size of a response: a range, or a page of a list with long keys.
const RESPONSE_SIZE_MAX: usize = 16 << 20;
/// Pause before the first repetition. Each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(20);
/// Maximum of a pause that a server asks for. A longer one would delay the end of a tool and the
/// next look for finished blocks.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);
/// Status of a range that begins at the end of an object, or later.
const BEHIND_THE_END: u16 = 416;
const AZURE_ERROR_CODE: &str = "x-ms-error-code";
/// Maximum number of parts of an object: that of S3 and of Google Cloud Storage. Azure allows more.
const PARTS_MAX: u64 = 10_000;

/// The server of a bucket.
pub(crate) struct Server {
    /// Host and optional port: the `Host` header.
    pub(crate) host: String,
    pub(crate) is_insecure: bool,
    pub(crate) access: Access,
    pub(crate) authorization: Authorization,
    pub(crate) retries_max: u32,
}

/// Sends requests to a server.
pub(crate) struct Requests {
    client: Client,
    host: String,
    authorization: Authorization,
    retries_max: u32,
    stop: Arc<Stop>,
    metrics: ObjstoreMetrics,
}

impl Requests {
    /// # Errors
    /// If the host or a certificate is invalid.
    pub(crate) fn new(server: Server, stop: Arc<Stop>, metrics: ObjstoreMetrics) -> Result<Self> {
        let scheme = if server.is_insecure { "http" } else { "https" };
        let host = server.host;
        let url = Url::parse(&format!("{scheme}://{host}"))
            .map_err(|error| anyhow!("endpoint {host:?}: {error}"))?;
        let options = ClientOptions {
            timeout: TIMEOUT,
            response_size_max: RESPONSE_SIZE_MAX,
            user_agent: USER_AGENT,
            remedies: Remedies::default(),
        };
        Ok(Self {
            client: Client::new(&url, server.access, options)?,
            host,
            authorization: server.authorization,
            retries_max: server.retries_max,
            stop,
            metrics,
        })
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Sends a request. A missing object or bucket is an error.
    pub(crate) fn expect(&mut self, call: &Call<'_>) -> Result<Response> {
        let response = self.send(call)?;
        if response.status == 404 {
            return Err(self.rejection(&response));
        }
        Ok(response)
    }

    /// Reads at most `size` bytes of an object, fewer at its end. `call` asks for the whole object.
    /// Returns `None` if it does not exist.
    pub(crate) fn get_range(
        &mut self,
        mut call: Call<'_>,
        offset: u64,
        size: u64,
    ) -> Result<Option<Bytes>> {
        let range = format!("bytes={offset}-{}", offset + size - 1);
        call.headers.push(("range".to_owned(), range));
        let response = self.send(&call)?;
        Ok(match response.status {
            404 => None,
            BEHIND_THE_END => Some(Bytes::new()),
            _ => {
                self.metrics.count_received(response.body.len());
                Some(response.body)
            }
        })
    }

    /// Sends a request, and repeats it after temporary failures. Returns a response with a status
    /// of 2xx, 404 or 416.
    pub(crate) fn send(&mut self, call: &Call<'_>) -> Result<Response> {
        let metrics = self.metrics.clone();
        metrics.observe(call.operation, || {
            let mut n_retries = 0;
            let mut is_renewed = false;
            loop {
                let mut pause = PAUSE.saturating_mul(1 << n_retries.min(16)).min(PAUSE_MAX);
                let failed = match self.attempt(call) {
                    Ok(response) if is_expected(&response) => return Ok(response),
                    Ok(response) => {
                        let is_refused = matches!(response.status, 401 | 403);
                        if is_refused && !is_renewed && self.authorization.renew() {
                            is_renewed = true;
                            self.metrics.retries.inc();
                            continue;
                        }
                        if !is_temporary(response.status) {
                            return Err(self.rejection(&response));
                        }
                        pause = pause.max(retry_after(&response));
                        self.rejection(&response)
                    }
                    Err(error) => error,
                };
                if n_retries == self.retries_max {
                    return Err(
                        failed.context(format!("after {n_retries} retries (config.max_retries)"))
                    );
                }
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

    fn attempt(&mut self, call: &Call<'_>) -> Result<Response> {
        let mut headers = call.headers.clone();
        headers.push(("host".to_owned(), self.host.clone()));
        // HTTP does not require the length of an empty body, but the servers of buckets do. hyper
        // adds that of others.
        let has_length = matches!(call.method, "PUT" | "POST");
        if has_length && call.body.is_empty() {
            headers.push(("content-length".to_owned(), "0".to_owned()));
        }
        let added = self
            .authorization
            .headers(call, &headers, Timestamp::now())?;

        let queries = [&*call.encoded_query(), self.authorization.query()]
            .into_iter()
            .filter(|query| !query.is_empty())
            .collect::<Vec<_>>()
            .join("&");
        let uri = if queries.is_empty() {
            call.path.clone()
        } else {
            format!("{}?{queries}", call.path)
        };
        let mut request = Request::builder().method(call.method).uri(uri);
        for (name, value) in headers.iter().chain(&added) {
            request = request.header(name, value);
        }
        let response = self.client.send(request, call.body.clone())?;
        self.metrics.count_sent(call.body.len());
        Ok(response)
    }

    /// Returns the error of a response.
    pub(crate) fn rejection(&self, response: &Response) -> Error {
        anyhow!(
            "{} returned {}: {}",
            self.host,
            response.status,
            reason(response)
        )
    }
}

/// Returns the size of the parts of an object: larger than configured for an object that would have
/// too many.
pub(crate) fn part_size(configured: u64, size: u64) -> u64 {
    configured.max(size.div_ceil(PARTS_MAX).next_multiple_of(MIB))
}

/// Returns numbers, from 1, and sizes of the parts of an object.
pub(crate) fn parts(size: u64, part_size: u64) -> impl Iterator<Item = (u32, u64)> {
    let starts = (0..size).step_by(part_size as usize);
    (1..).zip(starts.map(move |start| part_size.min(size - start)))
}

/// Reads the next part of an object, when the pace allows to send it.
pub(crate) fn next_part(size: u64, source: &mut dyn Read, pace: &mut Pace) -> Result<Bytes> {
    pace.wait_for(size)?;
    let mut part = vec![0; usize::try_from(size)?];
    source.read_exact(&mut part).context("read the source")?;
    Ok(part.into())
}

pub(crate) fn text(response: &Response) -> String {
    String::from_utf8_lossy(&response.body).into_owned()
}

/// Returns code and message of an error, or the beginning of another body.
pub(crate) fn reason(response: &Response) -> String {
    let body = text(response);
    match (error_code(response), xml::text(&body, "Message")) {
        // Azure appends lines with the ID and the time of the request.
        (Some(code), Some(message)) => format!("{code}: {}", message.replace('\n', " ")),
        (Some(code), None) => format!("{code}: {}", response.text()),
        _ => response.text(),
    }
}

/// Returns the code of an error: an element of the body, or a header of Azure, which also has it if
/// there is no body.
pub(crate) fn error_code(response: &Response) -> Option<String> {
    let header = response.headers.get(AZURE_ERROR_CODE);
    xml::text(&text(response), "Code").or_else(|| Some(header?.to_str().ok()?.to_owned()))
}

fn is_expected(response: &Response) -> bool {
    response.is_success() || matches!(response.status, 404 | BEHIND_THE_END)
}

fn is_temporary(status: u16) -> bool {
    status >= 500 || matches!(status, 408 | 429)
}

/// Returns the pause that a response asks for in seconds, up to [`RETRY_AFTER_MAX`]. A date counts
/// as no pause: these servers do not send one.
fn retry_after(response: &Response) -> Duration {
    let value = response.headers.get(RETRY_AFTER);
    let seconds = value
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.trim().parse().ok())
        .unwrap_or(0);
    Duration::from_secs(seconds).min(RETRY_AFTER_MAX)
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderMap;

    use super::*;

    #[test]
    fn a_server_may_ask_for_a_minute_at_most() {
        for (value, seconds) in [
            ("7", 7),
            ("60", 60),
            ("61", 60),
            ("99999999999", 60),
            ("-1", 0),
            ("Wed, 21 Oct 2026 07:28:00 GMT", 0),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, value.parse().unwrap());
            let response = Response {
                status: 503,
                headers,
                body: Bytes::new(),
            };
            assert_eq!(
                retry_after(&response),
                Duration::from_secs(seconds),
                "{value}"
            );
        }
    }

    #[test]
    fn errors_have_code_and_message() {
        let azure = "<?xml?><Error><Code>BlobNotFound</Code><Message>It is not there.\nRequestId:1\nTime:2</Message></Error>";
        for (code, body, expect) in [
            (
                "",
                "<Error><Code>A</Code><Message>b</Message></Error>",
                "A: b",
            ),
            (
                "",
                azure,
                "BlobNotFound: It is not there. RequestId:1 Time:2",
            ),
            ("ServerBusy", "", "ServerBusy: "),
            ("ServerBusy", "busy", "ServerBusy: busy"),
            ("", "bad gateway", "bad gateway"),
        ] {
            let mut headers = HeaderMap::new();
            if !code.is_empty() {
                headers.insert(AZURE_ERROR_CODE, code.parse().unwrap());
            }
            let response = Response {
                status: 503,
                headers,
                body: Bytes::from_static(body.as_bytes()),
            };
            assert_eq!(reason(&response), expect);
        }
    }

    #[test]
    fn parts_have_numbers_and_sizes() {
        let all: Vec<_> = parts(12, 5).collect();
        assert_eq!(all, [(1, 5), (2, 5), (3, 2)]);
        assert_eq!(parts(10, 5).last(), Some((2, 5)));
    }

    #[test]
    fn large_objects_have_larger_parts() {
        for (configured, size, expect) in [
            (5 * MIB, 0, 5 * MIB),
            (5 * MIB, 50_000 * MIB, 5 * MIB),
            (5 * MIB, 50_000 * MIB + 1, 6 * MIB),
            (64 * MIB, 50_000 * MIB, 64 * MIB),
        ] {
            assert_eq!(part_size(configured, size), expect, "{size}");
        }
    }
}
