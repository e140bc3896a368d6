//! The layers around all handlers: one creates the record of a request, the other counts and times
//! requests by route.

use std::sync::Arc;
use std::time::Instant;

use axum::Extension;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use varve_server::requests::record::RequestRecord;
use varve_server::requests::tenant::{Peer, User};
use varve_server::traces::{Trace, TraceOrigin};
use varve_system::excerpt::truncate;

use super::state::HttpState;
use crate::error::{ApiError, LimitHit};
use crate::requester::grafana_source;

/// Bytes of a query in a trace.
const TRACED_QUERY_SIZE_MAX: usize = 4 << 10;

const CONNECTIONS_FLAG: &str = "--web.max-connections";

/// Extension of a request on a reserved connection that needs a regular permit and got none: the
/// maximum number of connections. [`observe`] rejects it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TooManyConnections(pub(crate) usize);

impl TooManyConnections {
    fn error(self) -> ApiError {
        let Self(max) = self;
        let open = format!("{max} connections are open, the limit of {CONNECTIONS_FLAG}");
        ApiError::unavailable(format!("{open}, and none of them can be closed"))
            .with_limit(CONNECTIONS_FLAG)
            .plain()
    }
}

/// Creates the record of a request. This layer is around fallbacks, too, so that every handler can
/// extract the record. The route of a path that is not served is empty.
pub(crate) async fn record(mut request: Request, next: Next) -> Response {
    // Prometheus writes path parameters as `:name`.
    let route = match request.extensions().get::<MatchedPath>() {
        Some(path) => path
            .as_str()
            .replace("{*", ":")
            .replace('{', ":")
            .replace('}', ""),
        None => String::new(),
    };
    let record = record_for(&request, route);
    request.extensions_mut().insert(record);
    next.run(request).await
}

/// Runs a request of a route, counts it and times it.
pub(crate) async fn observe(
    State(state): State<HttpState>,
    Extension(record): Extension<Arc<RequestRecord>>,
    request: Request,
    next: Next,
) -> Response {
    let started = Instant::now();
    let origin = TraceOrigin::Request(request.headers());
    let trace = state
        .app
        .tracer
        .start(origin, || format!("{} {}", request.method(), record.route));
    if let Some(trace) = trace {
        record.note_trace(trace);
    }

    let response = match request.extensions().get::<TooManyConnections>() {
        Some(too_many) => too_many.error().into_response(),
        None => next.run(request).await,
    };

    if record.may_have_written() {
        state.singleflight.note_write();
    }
    if let Some(trace) = record.trace() {
        describe(trace, &record, response.status());
    }

    let route = &*record.route;
    let metrics = &state.app.metrics;
    metrics.count_limit(
        response
            .extensions()
            .get::<LimitHit>()
            .map(|hit| hit.0.name()),
    );
    metrics
        .http_requests
        .with_label_values(&[route, response.status().as_str()])
        .inc();
    metrics
        .http_seconds
        .with_label_values(&[route])
        .observe(started.elapsed().as_secs_f64());
    response
}

/// Sets the attributes of the span of a request.
fn describe(trace: &Trace, record: &RequestRecord, status: StatusCode) {
    trace.note("http.request.method", record.method.as_str());
    trace.note("http.route", record.route.as_str());
    trace.note("http.response.status_code", i64::from(status.as_u16()));
    trace.note("user_agent.original", record.user_agent.as_str());
    if !record.grafana.is_empty() {
        trace.note("varve.grafana", record.grafana.to_string().as_str());
    }
    if let Some(client) = record.client {
        trace.note("client.address", client.ip().to_string().as_str());
    }
    match record.parameters().text.as_str() {
        "" => {}
        query => trace.note("db.query.text", truncate(query, TRACED_QUERY_SIZE_MAX)),
    }
    if status.is_server_error() {
        trace.fail(status.as_str());
    }
}

fn record_for(request: &Request, route: String) -> Arc<RequestRecord> {
    let user_agent = request.headers().get(header::USER_AGENT);
    let user_agent = String::from_utf8_lossy(user_agent.map_or(b"", |value| value.as_bytes()));
    let user = request.extensions().get::<User>().cloned();
    let client = request.extensions().get::<Peer>().map(|peer| peer.0);
    let grafana = grafana_source(request.headers());
    RequestRecord::new(
        request.method().as_str(),
        route,
        client,
        &user_agent,
        grafana,
        user,
    )
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::Body;
    use axum::middleware::from_fn;
    use axum::routing::get;
    use hyper::service::Service as _;
    use hyper_util::service::TowerToHyperService;

    use super::*;

    /// A handler that no route leads to got 500 when it extracted the record.
    #[tokio::test]
    async fn handlers_of_routes_and_fallbacks_have_a_record() {
        async fn route(Extension(record): Extension<Arc<RequestRecord>>) -> String {
            record.route.clone()
        }
        let router = Router::new()
            .route("/a/{name}", get(route))
            .fallback(route)
            .layer(from_fn(record));
        for (path, expect) in [("/a/b", "/a/:name"), ("/b", "")] {
            let request = Request::builder().uri(path).body(Body::empty()).unwrap();
            let service = TowerToHyperService::new(router.clone());
            let response = service.call(request).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK, "{path}");
            let body = axum::body::to_bytes(response.into_body(), 100).await;
            assert_eq!(body.unwrap(), expect, "{path}");
        }
    }
}
