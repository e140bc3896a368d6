//! An endpoint: a path with its methods, its handler and its description.
//!
//! As in Prometheus, a path serves only its listed methods. Any other, including HEAD, gets 405
//! with `Allow`. OPTIONS is served everywhere: 204 with CORS headers under /api/v1, 200 with
//! `Allow` elsewhere.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::handler::Handler;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter};
use serde_json::Value;
use varve_config::web::Scope;
use varve_server::lifecycle::Phase;
use varve_server::requests::record::RequestRecord;

use crate::error::RETRY_AFTER_S;
use crate::openapi::Parameter;
use crate::response::plain;
use crate::serving::redirect::API;
use crate::serving::scope::{allows_cross_origin, required_scope};
use crate::serving::state::HttpState;
use crate::serving::{complete, compression, cors};
use varve_wire::schema::{JsonSchema, Schemas};

/// A path that is served.
pub(crate) struct Endpoint {
    /// The path, with its parameters in braces.
    pub(super) path: &'static str,
    /// The methods, sorted.
    pub(super) methods: &'static [&'static str],
    handlers: MethodRouter<HttpState>,
    /// The group in the OpenAPI document.
    pub(super) tag: &'static str,
    pub(super) about: &'static str,
    pub(super) parameters: Vec<Parameter>,
    /// The media type of the request body, unless the body is a form.
    pub(super) body: Option<&'static str>,
    pub(super) content: Content,
    /// Whether it is served while the store is not open.
    is_always_open: bool,
    has_cors: bool,
    /// Whether pages of other origins may send all methods.
    allows_cross_origin: bool,
    is_compressed: bool,
    /// Whether users of a tenant may call it: its handler reads series only through the context of
    /// the request.
    serves_tenants: bool,
}

/// The body of a successful response.
#[derive(Clone, Copy)]
pub(crate) enum Content {
    /// Nothing.
    None,
    /// `data` of this schema in Prometheus' envelope.
    Json(fn(&mut Schemas) -> Value),
    /// A body of this media type.
    Other(&'static str),
}

impl Endpoint {
    /// Creates an endpoint with these methods, which must be sorted.
    pub(crate) fn new<H, T>(
        path: &'static str,
        methods: &'static [&'static str],
        handler: H,
    ) -> Self
    where
        H: Handler<T, HttpState>,
        T: 'static,
    {
        debug_assert!(methods.is_sorted(), "sorted, as in Allow");
        let filters = methods
            .iter()
            .map(|method| filter(method))
            .reduce(MethodFilter::or)
            .expect("an endpoint has a method");
        let is_api = path.starts_with(API);
        let allows_cross_origin = methods.iter().all(|method| {
            Method::from_bytes(method.as_bytes()).is_ok_and(|method| {
                required_scope(&method, path) == Scope::Read && allows_cross_origin(&method, path)
            })
        });
        Self {
            path,
            methods,
            handlers: MethodRouter::new().on(filters, handler),
            tag: "server",
            about: "",
            parameters: Vec::new(),
            body: None,
            content: Content::None,
            is_always_open: false,
            has_cors: is_api && allows_cross_origin,
            allows_cross_origin,
            is_compressed: is_api,
            serves_tenants: false,
        }
    }

    /// Sets the group and the summary.
    pub(crate) fn about(self, tag: &'static str, about: &'static str) -> Self {
        Self { tag, about, ..self }
    }

    /// Sets the parameters.
    pub(crate) fn takes(self, parameters: impl Into<Vec<Parameter>>) -> Self {
        Self {
            parameters: parameters.into(),
            ..self
        }
    }

    /// Sets the media type of the request body, which is not a form.
    pub(crate) fn takes_message(self, media_type: &'static str) -> Self {
        Self {
            body: Some(media_type),
            has_cors: false,
            is_compressed: false,
            ..self
        }
    }

    /// Sets the type of `data` in the response.
    pub(crate) fn gives<T: JsonSchema>(self) -> Self {
        Self {
            content: Content::Json(T::schema),
            ..self
        }
    }

    /// Sets the media type of the response.
    pub(crate) fn gives_other(self, media_type: &'static str) -> Self {
        Self {
            content: Content::Other(media_type),
            ..self
        }
    }

    /// Serves users of a tenant, too. The handler must show nothing that is not theirs: it reads
    /// series only through the context of the request, which restricts them.
    pub(crate) fn for_tenants(self) -> Self {
        Self {
            serves_tenants: true,
            ..self
        }
    }

    /// Serves the endpoint even while the store is not open.
    pub(crate) fn always_open(self) -> Self {
        Self {
            is_always_open: true,
            ..self
        }
    }

    /// Sets whether responses may be compressed.
    pub(crate) fn compressed(self, is_compressed: bool) -> Self {
        Self {
            is_compressed,
            ..self
        }
    }

    /// Returns the route, with the layers around the handler.
    pub(crate) fn into_route(self, state: &HttpState) -> MethodRouter<HttpState> {
        let allow = allow(self.methods);
        let mut route = self.handlers;
        if !self.path.starts_with(API) {
            let allow = allow.clone();
            route = route.options(move || async move { [(header::ALLOW, allow)] });
        }
        route = route.route_layer(from_fn_with_state(state.clone(), complete::charge));
        if self.is_compressed {
            route = route.route_layer(from_fn_with_state(state.clone(), compression::compress));
        }
        if self.has_cors {
            route = route.route_layer(from_fn_with_state(state.clone(), cors::cors));
        }
        if !self.serves_tenants {
            route = route.route_layer(from_fn(deny_tenants));
        }
        if !self.is_always_open {
            route = route.route_layer(from_fn_with_state(state.clone(), if_open));
        }
        if self.path.starts_with(API) {
            route = route.merge(api_options(state, self.allows_cross_origin));
        }
        if !self.methods.contains(&"HEAD") {
            // By default the router serves HEAD like GET.
            let allow = allow.clone();
            route = route.head(move || async move { not_allowed(allow) });
        }
        route.fallback(move || async move { not_allowed(allow) })
    }
}

fn filter(method: &str) -> MethodFilter {
    match method {
        "GET" => MethodFilter::GET,
        "HEAD" => MethodFilter::HEAD,
        "PUT" => MethodFilter::PUT,
        "DELETE" => MethodFilter::DELETE,
        _ => MethodFilter::POST,
    }
}

/// Responds to OPTIONS under /api/v1. CORS is for endpoints that pages of other origins may call.
fn api_options(state: &HttpState, allows_cross_origin: bool) -> MethodRouter<HttpState> {
    let mut route = MethodRouter::new().options(|| async { StatusCode::NO_CONTENT });
    if allows_cross_origin {
        route = route.route_layer(from_fn_with_state(state.clone(), cors::cors));
    }
    route.route_layer(from_fn_with_state(state.clone(), if_open))
}

fn allow(methods: &[&str]) -> HeaderValue {
    let mut methods = methods.to_vec();
    methods.push("OPTIONS");
    methods.sort_unstable();
    HeaderValue::from_str(&methods.join(", ")).expect("names of methods are ASCII")
}

fn not_allowed(allow: HeaderValue) -> Response {
    let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n");
    response.headers_mut().insert(header::ALLOW, allow);
    response
}

/// Returns an endpoint with GET.
pub(crate) fn get<H: Handler<T, HttpState>, T: 'static>(
    path: &'static str,
    handler: H,
) -> Endpoint {
    Endpoint::new(path, &["GET"], handler)
}

/// Returns an endpoint with GET and POST.
pub(crate) fn get_post<H: Handler<T, HttpState>, T: 'static>(
    path: &'static str,
    handler: H,
) -> Endpoint {
    Endpoint::new(path, &["GET", "POST"], handler)
}

/// Returns an endpoint with GET and HEAD.
pub(crate) fn get_head<H: Handler<T, HttpState>, T: 'static>(
    path: &'static str,
    handler: H,
) -> Endpoint {
    Endpoint::new(path, &["GET", "HEAD"], handler)
}

/// Returns an endpoint with POST.
pub(crate) fn post<H: Handler<T, HttpState>, T: 'static>(
    path: &'static str,
    handler: H,
) -> Endpoint {
    Endpoint::new(path, &["POST"], handler)
}

/// Returns an endpoint with POST and PUT.
pub(crate) fn post_put<H: Handler<T, HttpState>, T: 'static>(
    path: &'static str,
    handler: H,
) -> Endpoint {
    Endpoint::new(path, &["POST", "PUT"], handler)
}

/// Rejects requests of users of a tenant.
async fn deny_tenants(
    Extension(record): Extension<Arc<RequestRecord>>,
    request: Request,
    next: Next,
) -> Response {
    match record.tenant {
        None => next.run(request).await,
        Some(_) => plain(
            StatusCode::FORBIDDEN,
            "Forbidden: the endpoint shows more than the series of a tenant\n",
        ),
    }
}

/// Rejects requests unless the store is open.
async fn if_open(State(state): State<HttpState>, request: Request, next: Next) -> Response {
    match state.app.phase() {
        Phase::Open => next.run(request).await,
        closed @ (Phase::Starting | Phase::Stopping) => unavailable(closed),
    }
}

/// Rejects a request because the store is not open in this phase.
pub(crate) fn unavailable(phase: Phase) -> Response {
    let stopping = if phase == Phase::Stopping {
        "true"
    } else {
        "false"
    };
    let retry_after = RETRY_AFTER_S.to_string();
    let headers = [
        ("X-Prometheus-Stopping", stopping),
        (header::RETRY_AFTER.as_str(), &retry_after),
    ];
    (
        headers,
        plain(StatusCode::SERVICE_UNAVAILABLE, "Service Unavailable"),
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allow_lists_methods_in_order() {
        assert_eq!(allow(&["GET", "POST"]), "GET, OPTIONS, POST");
    }
}
