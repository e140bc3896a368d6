//! `WriteableStore/RemoteWrite`: samples that a `thanos receive` router forwards.
//!
//! The message is `prometheus.WriteRequest` with a tenant and the number of the replica. The tenant
//! becomes a label of each series, and the team whose budget the samples count against
//! (`Receiver::write_routed`).
//!
//! A router knows three outcomes: success, a conflict that no retry resolves (`AlreadyExists`,
//! which its sender sees as 409), and any other error, which it retries. So every other error is
//! `Unavailable`.

use axum::extract::{Request, State};
use axum::response::Response;
use prost::Message;
use varve_wire::thanos::REMOTE_WRITE_PATH;

use super::call::{check_open, coding, single};
use super::frame;
use super::status::{Code, Status};
use crate::api::write::ingest::ingest;
use crate::error::ApiError;
use crate::requester::record_of;
use crate::serving::state::HttpState;

/// A response, which has no fields.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
struct WriteResponse {}

/// Serves the method.
pub(super) async fn write(State(state): State<HttpState>, request: Request) -> Response {
    let result = store(&state, request).await;
    single(&state, REMOTE_WRITE_PATH, result.map(|()| WriteResponse {}))
}

async fn store(state: &HttpState, request: Request) -> Result<(), Status> {
    check_open(&state.app)?;
    let coding = coding(request.headers())
        .map_err(|status| Status::new(Code::Unavailable, status.message))?;
    let tenant_label = state.app.settings.web.receive_tenant_label.clone();
    let record = record_of(request.extensions())?;
    let mut charge = state.app.requests.memory_of_write(&record).charge();
    let written = ingest(state, request, move |receiver, origin, body| {
        let size_max = receiver.limits().decompressed_size_max;
        receiver.write_routed(origin, &tenant_label, body, |body, buffer| {
            Ok(frame::read(body, coding, size_max, &mut charge, buffer)?)
        })
    });
    let written = written.await.map_err(|error| failed(&error))?;
    if written.rejections.is_empty() {
        Ok(())
    } else {
        Err(Status::new(
            Code::AlreadyExists,
            written.rejections.to_string(),
        ))
    }
}

/// Returns the status of a write that stored nothing, or not everything that it could.
fn failed(error: &ApiError) -> Status {
    let code = if error.kind.is_retryable() {
        Code::Unavailable
    } else {
        Code::AlreadyExists
    };
    Status::new(code, error.message.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_router_retries_only_what_a_retry_can_store() {
        for (kind, code) in [
            (ErrorKind::Unavailable, Code::Unavailable),
            (ErrorKind::TooManyRequests, Code::Unavailable),
            (ErrorKind::Internal, Code::Unavailable),
            (ErrorKind::BadData, Code::AlreadyExists),
            (ErrorKind::TooLarge, Code::AlreadyExists),
        ] {
            assert_eq!(
                failed(&ApiError::new(kind, "x").with_limit("--flag")).code,
                code
            );
        }
    }
}
