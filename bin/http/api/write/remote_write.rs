//! /api/v1/write: remote write 1.0 and 2.0, as the content type says. Answers are plain text, as the remote-write specification has it.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use varve_ingest::remote_write::Version;
use varve_ingest::{Origin, Receiver, WriteError, Written};
use varve_tsdb::{Error, QueryContext};

use crate::http::api::status::teams::named_team;
use crate::http::error::{LimitHit, RETRY_AFTER_S};
use crate::http::serving::log_limiter::Muffler;
use crate::http::serving::request_body::{BodyError, BodyLimits, read};
use crate::http::{App, plain};
use crate::server::active_requests::Class;
use crate::server::request_context::Call;

/// How long a write request may wait for a place; its sender gives up at about this age.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// The longest that a sender is told to hold back, in seconds: its samples of known series wait too.
const RETRY_AFTER_MAX_S: u128 = 30;

/// The messages of both versions, as content types name them.
const MESSAGE_V1: &str = "prometheus.WriteRequest";
const MESSAGE_V2: &str = "io.prometheus.write.v2.Request";

const MEDIA_TYPE: &str = "application/x-protobuf";

/// POST /api/v1/write.
pub(crate) async fn write(State(app): State<Arc<App>>, request: Request) -> Response {
    let version = match negotiate(request.headers()) {
        Ok(version) => version,
        Err(reason) => return plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, format!("{reason}\n")),
    };
    let outcome = ingest(app, request, move |receiver, origin, body| receiver.write(origin, version, body)).await;
    // A request that is to be repeated confirms nothing.
    let counts = outcome.as_ref().map(Counts::of).unwrap_or_default();
    let mut response = match outcome {
        Ok(written) if written.rejects.is_empty() => StatusCode::NO_CONTENT.into_response(),
        Ok(written) => answer(StatusCode::BAD_REQUEST, &written.rejects.to_string()),
        Err(response) => response,
    };
    if version == Version::V2 {
        counts.tell(&mut response);
    }
    response
}

/// Reads the body of a write request, waits for a place and does the work on a blocking thread. The error is the answer.
pub(crate) async fn ingest(
    app: Arc<App>,
    request: Request,
    work: impl FnOnce(&Receiver, &Origin<'_>, &[u8]) -> Result<Written, WriteError> + Send + 'static,
) -> Result<Written, Response> {
    // A budget of its own tells what this request holds; what all hold is bounded by the one that it draws on.
    let memory = app.write_memory.child("--ingest.bytes-in-flight-max", app.settings.write_bytes_in_flight_max);
    let ctx = QueryContext::new(app.settings.read_timeout + WAIT_MAX, memory);
    let mut charge = ctx.charge();
    let limits = BodyLimits {
        size_max: app.settings.write_body_size_max,
        what: "--ingest.body-size-max",
        timeout: app.settings.read_timeout,
    };
    let asks_for_users = app.web.current().auth.is_some();
    let team = named_team(request.headers(), request.extensions(), asks_for_users);
    let admission_status = app.settings.admission_status;
    let call = Call::current();
    let body = read(request.into_body(), limits, &mut charge).await.map_err(|refused| {
        app.rejects.refuse(call.sender(), name(&refused), refused.to_string());
        refuse_body(&refused)
    })?;
    let waiting = QueryContext::new(WAIT_MAX, app.write_memory.clone());
    let entry = app.running.enter(Arc::clone(&call), Class::Write, &ctx);
    let unavailable = |reason: &str| answer(StatusCode::SERVICE_UNAVAILABLE, reason);
    let place = app.admit(Class::Write, &waiting).await.map_err(|refused| {
        app.metrics.count_limit(refused.limit);
        answer(admission_status, &refused.message)
    })?;
    let store = app.store().ok_or_else(|| unavailable("the server is stopping"))?;
    // Runs to its end even if the sender goes: half a request would only be sent again.
    let noting = Arc::clone(&app);
    let written = tokio::task::spawn_blocking(move || {
        entry.request.begin();
        noting.began(&entry.request);
        let place = RefCell::new(place);
        // Who waits leaves its place to requests that can go on.
        let lend = || place.borrow_mut().lend();
        let origin = Origin { team: team.as_deref(), begins_to_wait: Some(&lend) };
        let written = work(&store.receiver, &origin, &body);
        noting.rejects.note(|| call.sender(), &written);
        noting.ended(&entry.request, written.as_ref().err().map(ToString::to_string).as_deref());
        drop((charge, place));
        written
    });
    match written.await {
        Ok(written) => written.map_err(|error| refuse(&error, admission_status)),
        Err(_panic_is_logged) => {
            app.metrics.panics.inc();
            Err(answer(StatusCode::INTERNAL_SERVER_ERROR, "the request ended in a panic, see the server's log"))
        }
    }
}

/// What a request has stored, for the headers of its answer.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    samples: u64,
    histograms: u64,
    exemplars: u64,
}

impl Counts {
    fn of(written: &Written) -> Self {
        // What rules have dropped, and what another replica stores, has been dealt with: a sender would count it as failed
        // otherwise.
        let all = written.samples_stored + written.samples_dropped + written.samples_left_out;
        let histograms = written.histograms_stored + written.histograms_dropped + written.histograms_left_out;
        let exemplars = &written.exemplars;
        Self { samples: all - histograms, histograms, exemplars: exemplars.stored }
    }

    /// Tells a sender of version 2.0, in whatever way its request has ended.
    fn tell(self, response: &mut Response) {
        let headers = response.headers_mut();
        for (name, n) in [
            ("x-prometheus-remote-write-samples-written", self.samples),
            ("x-prometheus-remote-write-histograms-written", self.histograms),
            ("x-prometheus-remote-write-exemplars-written", self.exemplars),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from(n));
        }
    }
}

/// Returns the version that the headers announce; what they leave open is taken for 1.0. The words are Prometheus'.
fn negotiate(headers: &HeaderMap) -> Result<Version, String> {
    let encoding = text(headers, header::CONTENT_ENCODING);
    if !encoding.is_empty() && encoding != "snappy" {
        return Err(format!(
            "{encoding} encoding (compression) is not accepted by this server; only snappy is acceptable"
        ));
    }
    let content_type = text(headers, header::CONTENT_TYPE);
    let mut parts = content_type.split(';').map(str::trim);
    let media_type = parts.next().unwrap_or_default();
    if !media_type.is_empty() && !media_type.eq_ignore_ascii_case(MEDIA_TYPE) {
        return Err(format!("expected {MEDIA_TYPE} as the first (media) part, got {content_type} content-type"));
    }
    for part in parts {
        match part.split_once('=') {
            Some(("proto", MESSAGE_V1)) => return Ok(Version::V1),
            Some(("proto", MESSAGE_V2)) => return Ok(Version::V2),
            Some(("proto", message)) => {
                return Err(format!(
                    "got {content_type} content type; unknown type for remote write protobuf message {message}, \
                     supported: {MESSAGE_V1}, {MESSAGE_V2}"
                ));
            }
            Some(_) => {}
            None => {
                return Err(format!(
                    "as per https://www.rfc-editor.org/rfc/rfc9110#parameter expected parameters to be key-values, \
                     got {part} in {content_type} content-type"
                ));
            }
        }
    }
    Ok(Version::V1)
}

/// Returns a header as text; one that is not ASCII is as good as unknown.
pub(crate) fn text(headers: &HeaderMap, name: HeaderName) -> &str {
    headers.get(name).map_or("", |value| value.to_str().unwrap_or("?")).trim()
}

/// Returns the reason under which a body that could not be read is listed.
fn name(refused: &BodyError) -> &'static str {
    match refused {
        BodyError::TooLarge { .. } => "too_large",
        BodyError::Broken(_) => "body_broken",
        BodyError::Slow(_) => "body_slow",
        BodyError::Memory(_) => "busy",
    }
}

fn refuse_body(refused: &BodyError) -> Response {
    let status = match refused {
        BodyError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        BodyError::Broken(_) => StatusCode::BAD_REQUEST,
        // Not 408: senders drop what got a 4xx, and the next attempt may well be in time.
        BodyError::Slow(_) | BodyError::Memory(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    let mut response = answer(status, &refused.to_string());
    if let Some(flag) = refused.limit() {
        response.extensions_mut().insert(LimitHit(flag));
    }
    response
}

/// Answers so that a sender repeats what can be mended by repeating (5xx), and drops what cannot (4xx).
fn refuse(error: &WriteError, admission_status: StatusCode) -> Response {
    let cause = error.cause();
    let status = match cause {
        WriteError::Malformed(_) => StatusCode::BAD_REQUEST,
        WriteError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        WriteError::Busy { .. } | WriteError::Throttled { .. } => admission_status,
        WriteError::Moved => StatusCode::SERVICE_UNAVAILABLE,
        WriteError::Store(
            Error::Limit { .. } | Error::Poisoned { .. } | Error::Io { .. } | Error::ReplayFailed { .. },
        ) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    if (status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS)
        && let Some(left_out) = REFUSED.admit(kind(cause), Instant::now())
    {
        tracing::warn!(%error, left_out, "Write request not stored");
    }
    let mut response = answer(status, &error.to_string());
    if let WriteError::Throttled { retry_after, .. } = cause {
        let seconds = retry_after.as_millis().div_ceil(1000).min(RETRY_AFTER_MAX_S);
        let value = HeaderValue::from_str(&seconds.to_string()).expect("digits make a header");
        response.headers_mut().insert(header::RETRY_AFTER, value);
    }
    if let Some(flag) = limit_hit(cause) {
        response.extensions_mut().insert(LimitHit(flag));
    }
    response
}

/// Requests that were not stored: all that come while the disk is full, say.
static REFUSED: Muffler = Muffler::new();

fn kind(error: &WriteError) -> &'static str {
    match error {
        WriteError::Busy { .. } => "busy",
        WriteError::Throttled { scarce, .. } => scarce.name(),
        WriteError::Moved => "moved",
        WriteError::Store(Error::Limit { what, .. }) => what,
        WriteError::Store(Error::Poisoned { .. }) => "poisoned",
        WriteError::Store(Error::Io { .. }) => "io",
        WriteError::Store(Error::ReplayFailed { .. }) => "replay",
        _ => "other",
    }
}

/// Returns the flag of the bound that a request hit.
fn limit_hit(error: &WriteError) -> Option<&'static str> {
    match error {
        WriteError::TooLarge { flag, .. } => Some(flag),
        WriteError::Busy { .. } => Some("--ingest.bytes-in-flight-max"),
        WriteError::Throttled { scarce, .. } => Some(scarce.setting()),
        WriteError::Store(Error::Limit { what, .. }) => Some(what),
        _ => None,
    }
}

pub(crate) fn answer(status: StatusCode, reason: &str) -> Response {
    let mut response = plain(status, format!("{reason}\n"));
    if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_S));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_ingest::admission::Scarce;

    fn check(encoding: &'static str, content_type: &'static str, expect: Result<Version, &str>) {
        let mut headers = HeaderMap::new();
        for (name, value) in [(header::CONTENT_ENCODING, encoding), (header::CONTENT_TYPE, content_type)] {
            if !value.is_empty() {
                headers.insert(name, HeaderValue::from_static(value));
            }
        }
        match (negotiate(&headers), expect) {
            (Ok(version), Ok(expect)) => assert_eq!(version, expect),
            (Err(refused), Err(part)) => assert!(refused.contains(part), "{refused}"),
            (got, expect) => panic!("{encoding} {content_type}: {got:?}, expected {expect:?}"),
        }
    }

    #[test]
    fn the_content_type_tells_the_version() {
        check("snappy", "application/x-protobuf", Ok(Version::V1));
        check("snappy", "application/x-protobuf;proto=prometheus.WriteRequest", Ok(Version::V1));
        check("snappy", "application/x-protobuf; proto=io.prometheus.write.v2.Request", Ok(Version::V2));
        check("snappy", "application/x-protobuf;charset=x;proto=io.prometheus.write.v2.Request", Ok(Version::V2));
        check("", "", Ok(Version::V1));
        check("gzip", "application/x-protobuf", Err("gzip encoding (compression) is not accepted by this server"));
        check("snappy", "application/json", Err("got application/json content-type"));
        check("snappy", "application/x-protobuf;proto=x.Y", Err("unknown type for remote write protobuf message x.Y"));
        check("snappy", "application/x-protobuf;proto", Err("expected parameters to be key-values, got proto in"));
    }

    #[test]
    fn what_repeating_can_mend_is_a_503_that_says_when() {
        let full = WriteError::Store(Error::Limit { what: "memory", used: 2, limit: 1 });
        for (error, status) in
            [(full, 503), (WriteError::Moved, 503), (WriteError::Busy { in_flight: 1, size: 1, limit: 1 }, 503)]
        {
            let response = refuse(&error, StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(response.status(), status);
            assert_eq!(response.headers()[header::RETRY_AFTER], RETRY_AFTER_S);
        }
        let throttled = |retry_after| WriteError::Throttled {
            scarce: Scarce::TotalNewSeries,
            team: Arc::from(""),
            n_series: 1,
            retry_after,
        };
        for (retry_after_ms, expect) in [(1000, "1"), (1001, "2"), (1_000_000, "30")] {
            let error = throttled(Duration::from_millis(retry_after_ms));
            for status in [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS] {
                let response = refuse(&error, status);
                assert_eq!(response.status(), status);
                assert_eq!(response.headers()[header::RETRY_AFTER], expect);
            }
        }
        let large = WriteError::TooLarge { what: "body", size: 2, limit: 1, flag: "--x" };
        assert_eq!(refuse(&large, StatusCode::TOO_MANY_REQUESTS).status(), 413);
    }
}
