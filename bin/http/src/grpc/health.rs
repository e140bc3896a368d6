//! `grpc.health.v1.Health/Check`, with which load balancers and Kubernetes probe the port:
//! <https://github.com/grpc/grpc/blob/master/doc/health-checking.md>. `Watch` is not implemented:
//! clients fall back to treating the server as healthy, as the protocol says.

use axum::extract::{Request, State};
use axum::response::Response;
use prost::Message;
use varve_server::lifecycle::Phase;

use super::call::{coding, single};
use super::frame;
use super::status::{Code, Status};
use crate::error::ApiError;
use crate::requester::record_of;
use crate::serving::request_body::{self, BodyLimits};
use crate::serving::state::HttpState;

/// The path of the method.
pub(crate) const PATH: &str = "/grpc.health.v1.Health/Check";
/// The services whose health is known. The empty name is the whole server.
const SERVICES: [&str; 3] = [
    "",
    "opentelemetry.proto.collector.metrics.v1.MetricsService",
    "thanos.Store",
];

/// Maximum size of a request: a name.
const REQUEST_SIZE_MAX: usize = 4 << 10;

#[derive(Clone, PartialEq, Eq, Message)]
struct CheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
struct CheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;

/// Serves the method.
pub(super) async fn check(State(state): State<HttpState>, request: Request) -> Response {
    let checked = status_of(&state, request).await;
    single(&state, PATH, checked)
}

async fn status_of(state: &HttpState, request: Request) -> Result<CheckResponse, Status> {
    let coding = coding(request.headers())?;
    let record = record_of(request.extensions())?;
    record.note_read();
    let mut charge = state.app.requests.memory(&record).charge();
    let limits = BodyLimits::new(REQUEST_SIZE_MAX, "gRPC request", &state.app.settings);
    let body = request_body::read(request.into_body(), limits, &mut charge)
        .await
        .map_err(ApiError::from)?;
    let mut buffer = Vec::new();
    let message = frame::read(&body, coding, REQUEST_SIZE_MAX, &mut charge, &mut buffer)?;
    let CheckRequest { service } = CheckRequest::decode(message)
        .map_err(|error| Status::new(Code::InvalidArgument, error.to_string()))?;
    if !SERVICES.contains(&service.as_str()) {
        return Err(Status::new(Code::NotFound, "unknown service"));
    }
    let status = match state.app.phase() {
        Phase::Open => SERVING,
        Phase::Starting | Phase::Stopping => NOT_SERVING,
    };
    Ok(CheckResponse { status })
}
