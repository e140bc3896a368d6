//! `MetricsService/Export` of OTLP: the same writes as over HTTP, with the codes that the
//! specification of OTLP/gRPC demands: <https://opentelemetry.io/docs/specs/otlp/#otlpgrpc>.
//!
//! A client retries `Unavailable`, and `ResourceExhausted` only with a `RetryInfo`.

use axum::extract::{Request, State};
use axum::response::Response;
use varve_ingest::Written;
use varve_wire::rpc::{EXPORT_PATH, ExportMetricsResponse};

use super::call::{check_open, coding, single};
use super::frame;
use super::status::{Code, Status};
use crate::api::write::ingest::ingest;
use crate::api::write::otlp::partial_success;
use crate::error::{ApiError, ErrorKind, RETRY_AFTER_S};
use crate::requester::record_of;
use crate::serving::state::HttpState;

/// Serves the method.
pub(super) async fn export(State(state): State<HttpState>, request: Request) -> Response {
    let stored = store(&state, request).await;
    single(&state, EXPORT_PATH, stored)
}

async fn store(state: &HttpState, request: Request) -> Result<ExportMetricsResponse, Status> {
    check_open(&state.app).map_err(|status| status.retried_after(RETRY_AFTER_S))?;
    let coding = coding(request.headers())?;
    let record = record_of(request.extensions())?;
    let mut charge = state.app.requests.memory_of_write(&record).charge();
    let written: Written = ingest(state, request, move |receiver, origin, body| {
        let size_max = receiver.limits().decompressed_size_max;
        receiver.write_otlp_call(origin, body, |body, buffer| {
            Ok(frame::read(body, coding, size_max, &mut charge, buffer)?)
        })
    })
    .await
    .map_err(failed)?;
    let partial_success = partial_success(&written).map_err(failed)?;
    Ok(ExportMetricsResponse { partial_success })
}

/// Returns the status of a failed write. Only failures that a retry can resolve have a `RetryInfo`.
fn failed(error: ApiError) -> Status {
    let retry_after_s = error.retry_after_s.unwrap_or(RETRY_AFTER_S);
    let code = match error.kind {
        ErrorKind::TooManyRequests => Code::ResourceExhausted,
        kind if kind.is_retryable() => Code::Unavailable,
        // Without a `RetryInfo`.
        ErrorKind::TooLarge => return Status::new(Code::ResourceExhausted, error.message),
        _ => return Status::new(Code::InvalidArgument, error.message),
    };
    Status::new(code, error.message).retried_after(retry_after_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_retries_only_what_a_retry_can_store() {
        for (kind, code, is_retried) in [
            (ErrorKind::Unavailable, Code::Unavailable, true),
            (ErrorKind::TooManyRequests, Code::ResourceExhausted, true),
            (ErrorKind::Internal, Code::Unavailable, true),
            (ErrorKind::BadData, Code::InvalidArgument, false),
            (ErrorKind::TooLarge, Code::ResourceExhausted, false),
        ] {
            let status = failed(ApiError::new(kind, "x"));
            let details = status.headers().contains_key("grpc-status-details-bin");
            assert_eq!((status.code, details), (code, is_retried), "{kind:?}");
        }
    }
}
