//! One call: reads its request, runs it as the HTTP API runs a request, and ends its response with
//! a status.
//!
//! ```text
//! request -> frame, message -> http/serving/run: context, gate, blocking thread -> frames -> body -> trailers
//! ```
//!
//! Invariant: deadlines, memory, permits, active requests and cancellation are those of
//! `http/serving/run.rs`. This module adds only the framing.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::Frame;
use prost::Message;
use varve_advise::usage::Requester;
use varve_context::Charge;
use varve_server::lifecycle::Phase;
use varve_server::requests::record::{Parameters, RequestRecord};
use varve_wire::grpc::{ACCEPTED, Coding, write};

use super::frame::{self, Frames};
use super::status::{CONTENT_TYPE, Code, Status};
use crate::error::{ApiError, Result};
use crate::requester::{RequestedBy, record_of};
use crate::serving::app::App;
use crate::serving::request_body::{self, BodyLimits, header_text};
use crate::serving::run::{RequestClass, Work, job_fn, run};
use crate::serving::state::HttpState;

/// Maximum size of a request, before and after decompression. Requests have a few hundred bytes.
const REQUEST_SIZE_MAX: usize = 4 << 20;
/// Maximum bytes in memory per byte of a message: an empty matcher has two bytes.
const BYTES_PER_BYTE: usize = 96;

/// A method that reads the store, implemented by its request.
pub(super) trait Method: Message + Default + Send + 'static {
    /// The path: `/package.Service/Method`.
    const PATH: &'static str;
    /// Whether users of a tenant may call it: it shows nothing but series that it reads through the
    /// context of the request, which restricts them.
    const SERVES_TENANTS: bool = false;

    /// Returns the class of the request, whose permits it uses.
    fn class(&self) -> RequestClass {
        RequestClass::Metadata
    }

    /// Returns the timeout in the message, if it has one.
    fn timeout(&self) -> Option<Duration> {
        None
    }

    /// Returns what lists and logs show.
    fn shown(&self) -> Parameters {
        Parameters::default()
    }

    /// Sends the messages of the response.
    ///
    /// # Errors
    /// The status of the call.
    fn respond(self, caller: &Caller, work: &mut Work, out: &mut Frames) -> Result<()>;
}

/// The server, and the client of a call.
pub(super) struct Caller {
    pub(super) app: Arc<App>,
    pub(super) who: Requester,
    /// The labels that all series have in addition to their own.
    pub(super) external: BTreeMap<String, String>,
    pub(super) record: Arc<RequestRecord>,
}

/// Serves a method.
pub(super) async fn serve<M: Method>(
    State(state): State<HttpState>,
    RequestedBy(who): RequestedBy,
    request: Request,
) -> Response {
    call::<M>(&state, who, request)
        .await
        .unwrap_or_else(|status| ended(&state, M::PATH, status))
}

/// Returns the response of a call that ended without a message, and counts it.
fn ended(state: &HttpState, path: &'static str, status: Status) -> Response {
    state.app.metrics.count_grpc(path, status.code as u32);
    status.into_response()
}

async fn call<M: Method>(
    state: &HttpState,
    who: Requester,
    request: Request,
) -> Result<Response, Status> {
    check_open(&state.app)?;
    let record = record_of(request.extensions())?;
    if !M::SERVES_TENANTS && record.tenant.is_some() {
        return Err(Status::new(
            Code::PermissionDenied,
            format!(
                "{} is not available to users of a tenant: it returns more than their series",
                M::PATH
            ),
        ));
    }
    let coding = coding(request.headers())?;
    let header_timeout = timeout(request.headers())?;
    let charge = state.app.requests.memory(&record).charge();
    let (message, charge) = read::<M>(state, request, coding, charge).await?;
    record.note_parameters(message.shown(), None);
    let external = state.app.config.current().global.external_labels.clone();
    let caller = Caller {
        app: Arc::clone(&state.app),
        who,
        external,
        record: Arc::clone(&record),
    };
    let failure = Failure::default();
    let failure_of_job = Arc::clone(&failure);
    let timeout = [header_timeout, message.timeout()]
        .into_iter()
        .flatten()
        .min();
    let class = message.class();
    let job = job_fn(move |work| {
        let _charge = charge;
        let result = message.respond(&caller, work, &mut Frames::new(coding));
        if let Err(error) = &result {
            failure_of_job.get_or_init(|| error.clone());
        }
        result
    });
    let response = run(state, &record, class, timeout, job);
    let body = response.await?.into_body();
    let body = Trailed {
        body,
        failure,
        app: Arc::clone(&state.app),
        path: M::PATH,
        has_ended: false,
    };
    Ok(with_headers(Body::new(body), coding))
}

/// Returns the response of a call with one message, or with a status only, and counts it.
pub(super) fn single<M: Message>(
    state: &HttpState,
    path: &'static str,
    result: Result<M, Status>,
) -> Response {
    let framed = result.and_then(|message| {
        let mut frame = Vec::new();
        let written = write(Coding::Identity, &message.encode_to_vec(), &mut frame);
        written.map_err(|error| Status::new(Code::Internal, error.to_string()))?;
        Ok(frame)
    });
    match framed {
        Ok(frame) => {
            let body = Body::from(frame);
            let app = Arc::clone(&state.app);
            let body = Trailed {
                body,
                failure: Failure::default(),
                app,
                path,
                has_ended: false,
            };
            with_headers(Body::new(body), Coding::Identity)
        }
        Err(status) => ended(state, path, status),
    }
}

/// Returns a response with these messages and trailers.
fn with_headers(body: Body, coding: Coding) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
    headers.insert("grpc-accept-encoding", HeaderValue::from_static(ACCEPTED));
    if let Some(name) = coding.name() {
        headers.insert("grpc-encoding", HeaderValue::from_static(name));
    }
    response
}

/// Rejects calls unless the store is open.
///
/// # Errors
/// `Unavailable`.
pub(super) fn check_open(app: &App) -> Result<(), Status> {
    let reason = match app.phase() {
        Phase::Open => return Ok(()),
        Phase::Starting => "the store is not open yet",
        Phase::Stopping => "the server is stopping",
    };
    Err(Status::new(Code::Unavailable, reason))
}

/// Returns the coding of a call.
///
/// # Errors
/// `Unimplemented`, as the protocol demands.
pub(super) fn coding(headers: &HeaderMap) -> Result<Coding, Status> {
    let name = header_text(
        headers,
        axum::http::HeaderName::from_static("grpc-encoding"),
    );
    Coding::of(name).ok_or_else(|| {
        let reason = format!("grpc-encoding {name:?} is not supported");
        Status::new(Code::Unimplemented, reason)
    })
}

/// Reads a message, and decodes it on a blocking thread. Both are charged to `charge`.
async fn read<M: Message + Default + 'static>(
    state: &HttpState,
    request: Request,
    coding: Coding,
    mut charge: Charge,
) -> Result<(M, Charge), Status> {
    let limits = BodyLimits::new(REQUEST_SIZE_MAX, "gRPC request", &state.app.settings);
    let body = request_body::read(request.into_body(), limits, &mut charge)
        .await
        .map_err(ApiError::from)?;
    let decoded = request_body::decode(move || -> Result<(M, Charge), Status> {
        let mut buffer = Vec::new();
        let message = frame::read(&body, coding, REQUEST_SIZE_MAX, &mut charge, &mut buffer)?;
        charge
            .grow_without_waiting(message.len() * BYTES_PER_BYTE)
            .map_err(ApiError::from)?;
        let decoded = M::decode(message)
            .map_err(|error| Status::new(Code::InvalidArgument, error.to_string()))?;
        Ok((decoded, charge))
    });
    decoded.await?
}

/// Parses `grpc-timeout`: up to eight digits and a unit.
fn timeout(headers: &HeaderMap) -> Result<Option<Duration>, Status> {
    let text = header_text(headers, axum::http::HeaderName::from_static("grpc-timeout"));
    if text.is_empty() {
        return Ok(None);
    }
    match parse_timeout(text) {
        Some(timeout) => Ok(Some(timeout)),
        None => {
            let reason = format!("invalid grpc-timeout {text:?}");
            Err(Status::new(Code::InvalidArgument, reason))
        }
    }
}

fn parse_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len() - 1)?;
    // `u64::from_str` would accept a plus sign.
    let is_valid = digits.len() <= 8 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_valid {
        return None;
    }
    let n: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(3600 * n),
        "M" => Duration::from_secs(60 * n),
        "S" => Duration::from_secs(n),
        "m" => Duration::from_millis(n),
        "u" => Duration::from_micros(n),
        "n" => Duration::from_nanos(n),
        _ => return None,
    })
}

/// The error of a job that had sent messages before.
type Failure = Arc<OnceLock<ApiError>>;

/// A body that ends in a status. A body that the server truncated ends in the status of its error.
struct Trailed {
    body: Body,
    failure: Failure,
    app: Arc<App>,
    path: &'static str,
    has_ended: bool,
}

impl Trailed {
    fn end(&mut self, status: &Status) -> Frame<Bytes> {
        self.has_ended = true;
        self.app.metrics.count_grpc(self.path, status.code as u32);
        Frame::trailers(status.headers())
    }
}

impl HttpBody for Trailed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let status = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            Some(Ok(frame)) => return Poll::Ready(Some(Ok(frame))),
            None => Status::ok(),
            Some(Err(truncated)) => match self.failure.get() {
                Some(error) => error.clone().into(),
                None => Status::new(Code::Internal, truncated.to_string()),
            },
        };
        Poll::Ready(Some(Ok(self.end(&status))))
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended
    }
}

impl Drop for Trailed {
    fn drop(&mut self) {
        if !self.has_ended {
            self.app
                .metrics
                .count_grpc(self.path, Code::Canceled as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_have_all_units() {
        for (text, expect) in [
            ("1H", Some(Duration::from_secs(3600))),
            ("2M", Some(Duration::from_secs(120))),
            ("99999999S", Some(Duration::from_secs(99_999_999))),
            ("5m", Some(Duration::from_millis(5))),
            ("6u", Some(Duration::from_micros(6))),
            ("7n", Some(Duration::from_nanos(7))),
            ("S", None),
            ("100000000S", None),
            ("-1S", None),
            ("+5S", None),
            ("1", None),
        ] {
            let headers = HeaderMap::from_iter([(
                axum::http::HeaderName::from_static("grpc-timeout"),
                HeaderValue::from_str(text).unwrap(),
            )]);
            let parsed = timeout(&headers);
            assert_eq!(parsed.clone().ok().flatten(), expect, "{text}");
            assert_eq!(parsed.is_err(), expect.is_none(), "{text}");
        }
        assert_eq!(timeout(&HeaderMap::new()), Ok(None));
    }
}
