//! Reads request bodies within limits of size, time and memory.

use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, HeaderName, Method, header};
use http_body_util::BodyExt;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use varve_config::settings::ServerSettings;
use varve_context::{Charge, Limit};

use super::app::App;
use super::compression::BodyCoding;
use super::state::HttpState;
use crate::error::{ApiError, ErrorKind, Result};
use crate::params::{Form, LongQuery, url_query};
use crate::requester::record_of;

/// Maximum size of a form in bytes, as in Go.
const FORM_SIZE_MAX: usize = 10 << 20;
/// Forms above this size are parsed on a blocking thread: less than a millisecond of work.
const FORM_INLINE_MAX: usize = 64 << 10;
/// Copies of the parameters that a request may hold at a time: as parsed, as its handler and the key
/// of a shared computation use them, as lists show them, and two more while a handler takes them
/// apart.
const FORM_COPIES: usize = 5;
/// Growth of a form of invalid UTF-8, each byte of which becomes U+FFFD.
const LOSSY_GROWTH: usize = 3;
/// Maximum time for which a body may be slower than `--web.min-body-rate`.
const RATE_GRACE: Duration = Duration::from_secs(10);
/// Maximum time for reading the remainder of a rejected body, so that the sender can read the
/// response.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(2);
/// Maximum bytes that are read of the remainder of a rejected body.
const DRAIN_SIZE_MAX: usize = 128 << 20;

/// The reason why a body could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    /// The body exceeds its size limit.
    #[error("request body exceeds {limit} bytes, the limit of {limit_name}")]
    TooLarge {
        limit: usize,
        /// The flag that sets the limit, or the name of a fixed one.
        limit_name: &'static str,
    },
    /// The body did not arrive in time.
    #[error("request body is too slow: {size} bytes in {}, see {flag}", varve_system::quantity::print_duration(*.time))]
    Slow {
        size: usize,
        time: Duration,
        /// The flag that sets the limit.
        flag: &'static str,
    },
    /// The connection failed, or the framing of the body is invalid.
    #[error("read request body: {0}")]
    Broken(String),
    /// There is not enough memory.
    #[error(transparent)]
    Memory(#[from] varve_context::Error),
}

/// Limits of a body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyLimits {
    size_max: usize,
    /// The flag that sets `size_max`, or the name of a fixed limit, for the error.
    limit_name: &'static str,
    timeout: Duration,
    /// Minimum bytes per second after [`RATE_GRACE`]. 0: no limit.
    rate_min: usize,
}

impl BodyLimits {
    /// Returns the limits of a body of at most `size_max` bytes. `limit_name` is the flag that sets
    /// this limit, or the name of a fixed one.
    pub(crate) fn new(
        size_max: usize,
        limit_name: &'static str,
        settings: &ServerSettings,
    ) -> Self {
        Self {
            size_max,
            limit_name,
            timeout: settings.web.read_timeout,
            rate_min: settings.web.body_rate_min,
        }
    }

    fn exceeded(self) -> BodyError {
        BodyError::TooLarge {
            limit: self.size_max,
            limit_name: self.limit_name,
        }
    }

    /// Returns the maximum time for sending more than `size` bytes, and the flag that sets it.
    fn time_max(&self, size: usize) -> (Duration, &'static str) {
        let at_rate = size
            .checked_div(self.rate_min)
            .map(|seconds| RATE_GRACE + Duration::from_secs(seconds as u64));
        match at_rate.filter(|at_rate| *at_rate < self.timeout) {
            Some(at_rate) => (at_rate, "--web.min-body-rate"),
            None => (self.timeout, "--web.read-timeout"),
        }
    }
}

/// Reads a body. Charges the memory of the buffer to `charge`.
///
/// # Errors
/// See [`BodyError`].
pub(crate) async fn read(
    mut body: Body,
    limits: BodyLimits,
    charge: &mut Charge,
) -> Result<Vec<u8>, BodyError> {
    let result = read_whole(&mut body, limits, charge).await;
    if matches!(
        result,
        Err(BodyError::TooLarge { .. } | BodyError::Memory(_))
    ) {
        drain(body, DRAIN_SIZE_MAX).await;
    }
    result
}

async fn read_whole(
    body: &mut Body,
    limits: BodyLimits,
    charge: &mut Charge,
) -> Result<Vec<u8>, BodyError> {
    let declared = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if declared > limits.size_max {
        return Err(limits.exceeded());
    }
    let started = Instant::now();
    // The buffer grows as bytes arrive. A declared length costs a sender nothing, so it must not
    // reserve memory.
    let mut bytes = Vec::new();
    loop {
        let (time, flag) = limits.time_max(bytes.len());
        let frame = timeout_at(started + time, body.frame()).await;
        let Some(frame) = frame.map_err(|_elapsed| BodyError::Slow {
            size: bytes.len(),
            time,
            flag,
        })?
        else {
            return Ok(bytes);
        };
        let frame = frame.map_err(|broken| BodyError::Broken(broken.to_string()))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let size = bytes.len() + data.len();
        if size > limits.size_max {
            return Err(limits.exceeded());
        }
        if size > bytes.capacity() {
            let doubled = 2 * bytes.capacity();
            let capacity = if declared >= size {
                doubled.min(declared).max(size)
            } else {
                doubled.max(size)
            };
            // A task must not block, so this does not wait for memory.
            charge.grow_without_waiting(capacity.saturating_sub(charge.size()))?;
            bytes.reserve_exact(capacity - bytes.len());
        }
        bytes.extend_from_slice(&data);
    }
}

/// Reads up to `size_max` bytes of a rejected body, for at most [`DRAIN_TIME_MAX`], so that its sender
/// can read the response. The response is the same whether the whole body was read or not.
pub(crate) async fn drain(mut body: Body, size_max: usize) {
    let read = async {
        let mut size = 0;
        while let Some(Ok(frame)) = body.frame().await {
            size += frame.data_ref().map_or(0, bytes::Bytes::len);
            if size > size_max {
                return;
            }
        }
    };
    let _drained = tokio::time::timeout(DRAIN_TIME_MAX, read).await;
}

impl BodyError {
    /// Returns the limit that the body exceeded, if any.
    pub(crate) fn limit(&self) -> Option<Limit> {
        match self {
            Self::TooLarge { limit_name, .. } => Some(Limit::Other(limit_name)),
            Self::Slow { flag, .. } => Some(Limit::Other(flag)),
            Self::Memory(varve_context::Error::Limit { what, .. }) => Some(*what),
            Self::Memory(_) | Self::Broken(_) => None,
        }
    }
}

impl From<BodyError> for ApiError {
    fn from(error: BodyError) -> Self {
        let kind = match error {
            BodyError::TooLarge { .. } => ErrorKind::TooLarge,
            BodyError::Slow { .. } => ErrorKind::SlowRequest,
            BodyError::Broken(_) => ErrorKind::BadData,
            BodyError::Memory(_) => ErrorKind::Unavailable,
        };
        Self {
            limit: error.limit(),
            ..Self::new(kind, error.to_string())
        }
    }
}

impl FromRequest<HttpState> for Form {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &HttpState) -> Result<Self> {
        read_form(request, &state.app).await
    }
}

/// Returns a header as text: empty if it is missing, `?` if it is not ASCII.
pub(crate) fn header_text(headers: &HeaderMap, name: HeaderName) -> &str {
    headers
        .get(name)
        .map_or("", |value| value.to_str().unwrap_or("?"))
        .trim()
}

/// Reads the parameters of a request: from its body if the body is a form, then from its URL. They
/// are charged until the request ends.
async fn read_form(request: Request, app: &App) -> Result<Form> {
    let (parts, body) = request.into_parts();
    let record = record_of(&parts.extensions)?;
    let mut form = Form::default();
    let mut charge = app.requests.memory(&record).charge();
    let content_type = parts
        .headers
        .get(header::CONTENT_TYPE)
        .map_or(&b""[..], |value| value.as_bytes());
    if matches!(parts.method, Method::POST | Method::PUT) && is_form(content_type) {
        let limits = BodyLimits::new(FORM_SIZE_MAX, "form size", &app.settings);
        let coding = header_text(&parts.headers, header::CONTENT_ENCODING);
        let coding = BodyCoding::parse(coding).ok_or_else(|| {
            let known = "gzip, deflate and zstd are";
            ApiError::bad_data(format!(
                "{coding} encoding of a form is not accepted; {known}"
            ))
        })?;
        let body = read(body, limits, &mut charge).await?;
        (form, charge) = match coding {
            BodyCoding::Identity if body.len() <= FORM_INLINE_MAX => {
                add_parameters(form, &body, charge)?
            }
            _ => {
                decode(move || match coding {
                    BodyCoding::Identity => add_parameters(form, &body, charge),
                    BodyCoding::Compressed(coding) => {
                        let decoded = coding.decode(&body, FORM_SIZE_MAX, &mut charge)?;
                        add_parameters(form, &decoded, charge)
                    }
                })
                .await??
            }
        };
    }
    let query = url_query(&parts.uri, &parts.extensions);
    if query.len() <= FORM_INLINE_MAX {
        form.add(query)?;
    } else if let Some(long) = parts.extensions.get::<LongQuery>().cloned() {
        (form, charge) = decode(move || add_parameters(form, long.bytes(), charge)).await??;
    }
    record.note_parameters(form.shown(), charge);
    Ok(form)
}

/// Maximum number of bodies that are decoded at the same time before their requests are admitted.
/// Each takes a thread, and the allocator keeps some of what a thread has freed.
const DECODED_MAX: usize = 4;
static DECODING: Semaphore = Semaphore::const_new(DECODED_MAX);

/// Decodes the body of a request that is not admitted yet, on a blocking thread. `decode` must not
/// wait, because the next request may wait for it.
///
/// # Errors
/// 500 if `decode` panics.
pub(crate) async fn decode<T: Send + 'static>(
    decode: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let _permit = DECODING.acquire().await;
    let decoding = tokio::task::spawn_blocking(decode);
    decoding.await.map_err(ApiError::internal)
}

/// Adds parameters, whose encoded bytes are charged already, to a form. Returns the form with the
/// charge of all its parameters.
fn add_parameters(mut form: Form, encoded: &[u8], mut charge: Charge) -> Result<(Form, Charge)> {
    charge.grow_without_waiting(LOSSY_GROWTH * encoded.len())?;
    form.add(encoded)?;
    let size = FORM_COPIES * form.size();
    charge.grow_without_waiting(size.saturating_sub(charge.size()))?;
    charge.shrink(charge.size().saturating_sub(size));
    Ok((form, charge))
}

fn is_form(content_type: &[u8]) -> bool {
    let media_type = content_type
        .split(|&b| b == b';')
        .next()
        .unwrap_or_default();
    media_type
        .trim_ascii()
        .eq_ignore_ascii_case(b"application/x-www-form-urlencoded")
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_context::{MemoryBudget, QueryContext};

    fn check(size: usize, expect: Result<usize, &str>) {
        let memory = MemoryBudget::new(Limit::Other("memory"), 600);
        let mut charge = QueryContext::new(Duration::from_secs(60), memory.clone()).charge();
        let limits = BodyLimits {
            size_max: 1000,
            limit_name: "the test",
            timeout: Duration::from_secs(60),
            rate_min: 0,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let got = runtime.block_on(read(Body::from(vec![0; size]), limits, &mut charge));
        assert_eq!(
            got.map(|bytes| bytes.len())
                .map_err(|error| error.to_string()),
            expect.map_err(str::to_owned)
        );
        assert!(expect.is_err() || memory.used() >= size);
    }

    #[test]
    fn bodies_are_read_up_to_their_limits() {
        check(0, Ok(0));
        check(600, Ok(600));
        check(601, Err("memory: 601 exceeds the limit of 600"));
        check(
            1001,
            Err("request body exceeds 1000 bytes, the limit of the test"),
        );
    }

    #[test]
    fn a_body_has_to_keep_a_minimum_rate() {
        let check = |timeout_s, rate_min, size, expect_s, flag| {
            let limits = BodyLimits {
                size_max: 0,
                limit_name: "",
                timeout: Duration::from_secs(timeout_s),
                rate_min,
            };
            assert_eq!(limits.time_max(size), (Duration::from_secs(expect_s), flag));
        };
        check(300, 1024, 0, 10, "--web.min-body-rate");
        check(300, 1024, 100 << 10, 110, "--web.min-body-rate");
        check(300, 1024, 1 << 20, 300, "--web.read-timeout");
        check(5, 1024, 0, 5, "--web.read-timeout");
        check(300, 0, 0, 300, "--web.read-timeout");
    }

    #[test]
    fn forms_are_recognized_by_their_content_type() {
        assert!(is_form(b"application/x-www-form-urlencoded"));
        assert!(is_form(
            b"Application/X-WWW-form-urlencoded ; charset=utf-8"
        ));
        assert!(!is_form(b"application/json"));
        assert!(!is_form(b""));
    }
}
