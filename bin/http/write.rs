//! /api/v1/write: remote write 1.0. Answers are plain text, as the remote-write specification has it.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use varve_ingest::WriteError;
use varve_tsdb::{Error, QueryContext};

use super::call::Call;
use super::error::{ApiError, LimitHit, RETRY_AFTER_S};
use super::request_body::{BodyError, BodyLimits, read};
use super::running::Class;
use super::{App, plain};

/// How long a write request may wait for a place; its sender gives up at about this age.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// The message of remote write 1.0, as content types name it.
const MESSAGE_V1: &str = "prometheus.WriteRequest";

/// POST /api/v1/write.
pub(super) async fn write(State(app): State<Arc<App>>, request: Request) -> Response {
    if let Err(reason) = check_headers(request.headers()) {
        return plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, format!("{reason}\n"));
    }
    // A budget of its own tells what this request holds; what all hold is bounded by the one that it draws on.
    let memory = app.write_memory.child("--ingest.bytes-in-flight-max", app.settings.write_bytes_in_flight_max);
    let ctx = QueryContext::new(app.settings.read_timeout + WAIT_MAX, memory);
    let mut charge = ctx.charge();
    let limits = BodyLimits {
        size_max: app.settings.write_body_size_max,
        what: "--ingest.body-size-max",
        timeout: app.settings.read_timeout,
    };
    let body = match read(request.into_body(), limits, &mut charge).await {
        Ok(body) => body,
        Err(refused) => return refuse_body(&refused),
    };
    let waiting = QueryContext::new(WAIT_MAX, app.write_memory.clone());
    let entry = app.running.enter(Call::current(), Class::Write, &ctx);
    let permit = match app.admit(Class::Write, &waiting).await {
        Ok(permit) => permit,
        Err(ApiError { message, limit, .. }) => {
            app.metrics.count_limit(limit);
            return answer(StatusCode::SERVICE_UNAVAILABLE, &message);
        }
    };
    let Some(store) = app.store() else { return answer(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping") };
    // Runs to its end even if the sender goes: half a request would only be sent again.
    let noting = Arc::clone(&app);
    let written = tokio::task::spawn_blocking(move || {
        entry.request.begin();
        noting.began(&entry.request);
        let written = store.receiver.write_v1(&body);
        noting.ended(&entry.request, written.as_ref().err().map(ToString::to_string).as_deref());
        drop((charge, permit));
        written
    });
    match written.await {
        Ok(Ok(written)) if written.rejects.is_empty() => StatusCode::NO_CONTENT.into_response(),
        Ok(Ok(written)) => answer(StatusCode::BAD_REQUEST, &written.rejects.to_string()),
        Ok(Err(error)) => refuse(&error),
        Err(_panic_is_logged) => {
            app.metrics.panics.inc();
            answer(StatusCode::INTERNAL_SERVER_ERROR, "the request ended in a panic, see the server's log")
        }
    }
}

/// Checks that the body is what this endpoint reads. What a header leaves open is taken for remote write 1.0.
fn check_headers(headers: &HeaderMap) -> Result<(), String> {
    let encoding = text(headers, header::CONTENT_ENCODING);
    if !encoding.is_empty() && encoding != "snappy" {
        return Err(format!("{encoding:?} encoding (compression) is not accepted by this server; only snappy is"));
    }
    let content_type = text(headers, header::CONTENT_TYPE);
    let mut parts = content_type.split(';').map(str::trim);
    let media_type = parts.next().unwrap_or_default();
    if !media_type.is_empty() && !media_type.eq_ignore_ascii_case("application/x-protobuf") {
        return Err(format!(
            "expected application/x-protobuf as the first (media) part, got {content_type:?} content-type"
        ));
    }
    match parts.filter_map(|part| part.strip_prefix("proto=")).find(|message| *message != MESSAGE_V1) {
        Some(message) => {
            Err(format!("{message} protobuf message is not accepted by this server; only accepts {MESSAGE_V1}"))
        }
        None => Ok(()),
    }
}

/// Returns a header as text; one that is not ASCII is as good as unknown.
fn text(headers: &HeaderMap, name: HeaderName) -> &str {
    headers.get(name).map_or("", |value| value.to_str().unwrap_or("?")).trim()
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
fn refuse(error: &WriteError) -> Response {
    let status = match error {
        WriteError::Malformed(_) => StatusCode::BAD_REQUEST,
        WriteError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        WriteError::Busy { .. } | WriteError::Moved => StatusCode::SERVICE_UNAVAILABLE,
        WriteError::Store(
            Error::Limit { .. } | Error::Poisoned { .. } | Error::Io { .. } | Error::ReplayFailed { .. },
        ) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    if status.is_server_error() {
        tracing::warn!(%error, "Write request not stored");
    }
    let mut response = answer(status, &error.to_string());
    if let Some(flag) = limit_hit(error) {
        response.extensions_mut().insert(LimitHit(flag));
    }
    response
}

/// Returns the flag of the bound that a request hit.
fn limit_hit(error: &WriteError) -> Option<&'static str> {
    match error {
        WriteError::TooLarge { flag, .. } => Some(flag),
        WriteError::Busy { .. } => Some("--ingest.bytes-in-flight-max"),
        WriteError::Store(Error::Limit { what, .. }) => Some(what),
        _ => None,
    }
}

fn answer(status: StatusCode, reason: &str) -> Response {
    let mut response = plain(status, format!("{reason}\n"));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_S));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(encoding: &'static str, content_type: &'static str, expect: Result<(), &str>) {
        let mut headers = HeaderMap::new();
        for (name, value) in [(header::CONTENT_ENCODING, encoding), (header::CONTENT_TYPE, content_type)] {
            if !value.is_empty() {
                headers.insert(name, HeaderValue::from_static(value));
            }
        }
        match (check_headers(&headers), expect) {
            (Ok(()), Ok(())) => {}
            (Err(refused), Err(part)) => assert!(refused.contains(part), "{refused}"),
            (got, expect) => panic!("{encoding} {content_type}: {got:?}, expected {expect:?}"),
        }
    }

    #[test]
    fn only_snappy_and_the_message_of_version_1_are_read() {
        check("snappy", "application/x-protobuf", Ok(()));
        check("snappy", "application/x-protobuf;proto=prometheus.WriteRequest", Ok(()));
        check("", "", Ok(()));
        check("gzip", "application/x-protobuf", Err("\"gzip\" encoding"));
        check("snappy", "application/json", Err("got \"application/json\" content-type"));
        check(
            "snappy",
            "application/x-protobuf; proto=io.prometheus.write.v2.Request",
            Err("io.prometheus.write.v2.Request protobuf message is not accepted"),
        );
    }

    #[test]
    fn what_repeating_can_mend_is_a_503_that_says_when() {
        let full = WriteError::Store(Error::Limit { what: "memory", used: 2, limit: 1 });
        for (error, status) in
            [(full, 503), (WriteError::Moved, 503), (WriteError::Busy { in_flight: 1, size: 1, limit: 1 }, 503)]
        {
            let response = refuse(&error);
            assert_eq!(response.status(), status);
            assert_eq!(response.headers()[header::RETRY_AFTER], RETRY_AFTER_S);
        }
        let large = WriteError::TooLarge { what: "body", size: 2, limit: 1, flag: "--x" };
        assert_eq!(refuse(&large).status(), 413);
    }
}
