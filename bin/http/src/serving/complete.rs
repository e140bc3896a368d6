//! Charges complete responses until they are written to the socket: any number of connections may
//! have one that its client does not read.

use axum::body::{Body, HttpBody, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::output::charged;
use super::response_body::IsCharged;
use super::state::HttpState;
use crate::error::ApiError;
use crate::requester::record_of;

/// Smaller responses are not charged: as many as there may be connections or streams of HTTP/2 take
/// some megabytes.
const SIZE_MIN: u64 = 8 << 10;

/// Charges the response of a handler to the memory of its request, unless the handler has done so.
/// Without memory, the response is an error.
pub(crate) async fn charge(
    State(state): State<HttpState>,
    request: Request,
    next: Next,
) -> Response {
    let record = record_of(request.extensions());
    let response = next.run(request).await;
    let size = response.body().size_hint();
    // The body of a stream has no exact size, and its writer charges what waits for the client.
    let is_complete = size.exact().is_some_and(|size| size >= SIZE_MIN);
    if !is_complete || response.extensions().get::<IsCharged>().is_some() {
        return response;
    }
    let Ok(record) = record else {
        return response;
    };

    let (head, body) = response.into_parts();
    // The whole body is there: nothing waits.
    let bytes = match to_bytes(body, usize::MAX).await {
        Ok(bytes) => bytes,
        Err(error) => return ApiError::internal(error).into_response(),
    };
    let mut charge = state.app.requests.memory(&record).charge();
    match charge.grow_without_waiting(bytes.len()) {
        Ok(()) => Response::from_parts(head, Body::from(charged(bytes.into(), charge))),
        Err(error) => ApiError::from(error).into_response(),
    }
}
