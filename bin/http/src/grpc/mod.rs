//! gRPC services: those of Thanos, with which this server is a leaf of `thanos query` and an ingestor
//! behind `thanos receive`, the receiver of OTLP metrics, and the health check.
//!
//! Used by `http`, which merges the methods into the routes of its port. A method is an endpoint
//! like any other: the same authentication, admission, memory budgets, deadlines, active requests
//! and metrics apply.
//!
//! gRPC adds little to HTTP/2: five bytes before a message, a few headers, and trailers. `call` and
//! `frame` do that ([decision 20](../../docs/decisions/server/0020-grpc-without-a-framework.md)).
//!
//! Invariants
//! 1. A response consists of whole messages. An error after the first message is in the trailers.
//! 2. Series have the external labels of the configuration, and are sorted with them.

mod call;
mod external;
pub(crate) mod frame;
pub(crate) mod health;
mod info;
mod labels;
mod message_size;
mod metadata;
mod otlp;
mod query;
mod rules;
mod statistics;
mod status;
mod store;
mod write;

use axum::Router;
use axum::http::{Request, header};
use axum::routing::post;

use call::{Method, serve};
use varve_wire::rpc::EXPORT_PATH;
use varve_wire::thanos::REMOTE_WRITE_PATH;
use varve_wire::thanos::query::{ExemplarsRequest, QueryRangeRequest, QueryRequest};
use varve_wire::thanos::rules::RulesRequest;
use varve_wire::thanos::status::{MetadataRequest, StatisticsRequest, TargetsRequest};
use varve_wire::thanos::store::{LabelNamesRequest, LabelValuesRequest, SeriesRequest};

use crate::serving::state::HttpState;

/// The starts of the paths of all methods.
const PACKAGES: [&str; 3] = [
    "/thanos.",
    "/opentelemetry.proto.collector.metrics.",
    "/grpc.health.",
];

/// Returns the routes of all methods.
pub(crate) fn router() -> Router<HttpState> {
    let router = Router::new()
        .route(info::PATH, post(info::info))
        .route(REMOTE_WRITE_PATH, post(write::write))
        .route(EXPORT_PATH, post(otlp::export))
        .route(health::PATH, post(health::check));
    [
        method::<SeriesRequest>(),
        method::<LabelNamesRequest>(),
        method::<LabelValuesRequest>(),
        method::<QueryRequest>(),
        method::<QueryRangeRequest>(),
        method::<ExemplarsRequest>(),
        method::<RulesRequest>(),
        method::<MetadataRequest>(),
        method::<TargetsRequest>(),
        method::<StatisticsRequest>(),
    ]
    .into_iter()
    .fold(router, Router::merge)
}

fn method<M: Method>() -> Router<HttpState> {
    Router::new().route(M::PATH, post(serve::<M>))
}

/// Returns `true` if a request is a gRPC call of one of these services.
pub(crate) fn is_call<B>(request: &Request<B>) -> bool {
    let content_type = request
        .headers()
        .get(header::CONTENT_TYPE)
        .map_or(&b""[..], |value| value.as_bytes());
    let path = request.uri().path();
    content_type.starts_with(status::CONTENT_TYPE.as_bytes())
        && PACKAGES.iter().any(|package| path.starts_with(package))
}
