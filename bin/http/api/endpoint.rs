//! An endpoint: a path with its methods, its handler and its description.
//!
//! As in Prometheus a path answers only the methods that are listed for it: any other is a 405 with `Allow`, HEAD
//! included. OPTIONS is answered everywhere: 204 under /api/v1, with CORS headers, 200 with `Allow` elsewhere.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::handler::Handler;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter};
use serde_json::Value;

use crate::http::openapi::{Described, Parameter, Schemas};
use crate::http::serving::{compression, cors};
use crate::http::{App, error, plain};

/// What stands before the paths of the API.
pub(crate) const API: &str = "/api/v1/";

/// What is served at a path.
pub(crate) struct Endpoint {
    path: &'static str,
    /// Ascending.
    methods: &'static [&'static str],
    handlers: MethodRouter<Arc<App>>,
    tag: &'static str,
    about: &'static str,
    parameters: &'static [Parameter],
    body: Option<&'static str>,
    content: Content,
    /// Whether it is served before the store is open, too.
    is_always_open: bool,
    has_cors: bool,
    is_compressed: bool,
}

/// What a successful answer holds.
#[derive(Clone, Copy)]
pub(crate) enum Content {
    /// Nothing.
    None,
    /// `data` of this schema in Prometheus' envelope.
    Json(fn(&mut Schemas) -> Value),
    /// Something of this media type.
    Other(&'static str),
}

impl Endpoint {
    /// Makes an endpoint of these methods, ascending.
    pub(crate) fn new<H, T>(path: &'static str, methods: &'static [&'static str], handler: H) -> Self
    where
        H: Handler<T, Arc<App>>,
        T: 'static,
    {
        debug_assert!(methods.is_sorted(), "Allow lists them so");
        let filter = |method: &&str| match *method {
            "GET" => MethodFilter::GET,
            "HEAD" => MethodFilter::HEAD,
            "PUT" => MethodFilter::PUT,
            "DELETE" => MethodFilter::DELETE,
            _ => MethodFilter::POST,
        };
        let filters = methods.iter().map(filter).reduce(MethodFilter::or).expect("an endpoint has a method");
        let is_api = path.starts_with(API);
        Self {
            path,
            methods,
            handlers: MethodRouter::new().on(filters, handler),
            tag: "server",
            about: "",
            parameters: &[],
            body: None,
            content: Content::None,
            is_always_open: false,
            has_cors: is_api,
            is_compressed: is_api,
        }
    }

    /// Says which group it belongs to and what it is for.
    pub(crate) fn about(self, tag: &'static str, about: &'static str) -> Self {
        Self { tag, about, ..self }
    }

    /// Names its parameters.
    pub(crate) fn takes(self, parameters: &'static [Parameter]) -> Self {
        Self { parameters, ..self }
    }

    /// Takes a message of this media type, which is no form.
    pub(crate) fn takes_message(self, media_type: &'static str) -> Self {
        Self { body: Some(media_type), has_cors: false, is_compressed: false, ..self }
    }

    /// Says that it answers with `data` of a type.
    pub(crate) fn gives<T: Described>(self) -> Self {
        Self { content: Content::Json(T::schema), ..self }
    }

    /// Says that it answers with this media type.
    pub(crate) fn gives_other(self, media_type: &'static str) -> Self {
        Self { content: Content::Other(media_type), ..self }
    }

    /// Serves it before the store is open, too.
    pub(crate) fn always_open(self) -> Self {
        Self { is_always_open: true, ..self }
    }

    /// Says whether its answers may be compressed.
    pub(crate) fn compressed(self, is_compressed: bool) -> Self {
        Self { is_compressed, ..self }
    }

    /// Returns the path, parameters of it in braces.
    pub(crate) fn path(&self) -> &'static str {
        self.path
    }

    /// Returns the methods, ascending.
    pub(crate) fn methods(&self) -> &'static [&'static str] {
        self.methods
    }

    /// Returns the parameters.
    pub(crate) fn parameters(&self) -> &'static [Parameter] {
        self.parameters
    }

    /// Returns what a successful answer holds.
    pub(crate) fn content(&self) -> Content {
        self.content
    }

    /// Returns the media type of the message that it takes, if that is no form.
    pub(crate) fn body(&self) -> Option<&'static str> {
        self.body
    }

    /// Returns the group that it belongs to.
    pub(crate) fn tag(&self) -> &'static str {
        self.tag
    }

    /// Says what the endpoint is for.
    pub(crate) fn summary(&self) -> &'static str {
        self.about
    }

    /// Makes the route, with what stands around every handler.
    pub(crate) fn into_route(self, app: &Arc<App>) -> MethodRouter<Arc<App>> {
        let allow = allow(self.methods);
        let mut route = self.handlers;
        if !self.path.starts_with(API) {
            let allow = allow.clone();
            route = route.options(move || async move { [(header::ALLOW, allow)] });
        }
        if self.is_compressed {
            route = route.route_layer(from_fn_with_state(Arc::clone(app), compression::compress));
        }
        if self.has_cors {
            route = route.route_layer(from_fn_with_state(Arc::clone(app), cors::cors));
        }
        if !self.is_always_open {
            route = route.route_layer(from_fn_with_state(Arc::clone(app), if_open));
        }
        if self.path.starts_with(API) {
            route = route.merge(api_options(app));
        }
        if !self.methods.contains(&"HEAD") {
            // Unless it is told otherwise, the router takes HEAD for GET.
            let allow = allow.clone();
            route = route.head(move || async move { not_allowed(allow) });
        }
        route.fallback(move || async move { not_allowed(allow) })
    }
}

/// Answers OPTIONS under /api/v1, whatever the path.
fn api_options(app: &Arc<App>) -> MethodRouter<Arc<App>> {
    MethodRouter::new()
        .options(|| async { StatusCode::NO_CONTENT })
        .route_layer(from_fn_with_state(Arc::clone(app), cors::cors))
        .route_layer(from_fn_with_state(Arc::clone(app), if_open))
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

/// Makes an endpoint of GET.
pub(crate) fn get<H: Handler<T, Arc<App>>, T: 'static>(path: &'static str, handler: H) -> Endpoint {
    Endpoint::new(path, &["GET"], handler)
}

/// Makes an endpoint of GET and POST.
pub(crate) fn get_post<H: Handler<T, Arc<App>>, T: 'static>(path: &'static str, handler: H) -> Endpoint {
    Endpoint::new(path, &["GET", "POST"], handler)
}

/// Makes an endpoint of GET and HEAD.
pub(crate) fn get_head<H: Handler<T, Arc<App>>, T: 'static>(path: &'static str, handler: H) -> Endpoint {
    Endpoint::new(path, &["GET", "HEAD"], handler)
}

/// Makes an endpoint of POST.
pub(crate) fn post<H: Handler<T, Arc<App>>, T: 'static>(path: &'static str, handler: H) -> Endpoint {
    Endpoint::new(path, &["POST"], handler)
}

/// Makes an endpoint of POST and PUT.
pub(crate) fn post_put<H: Handler<T, Arc<App>>, T: 'static>(path: &'static str, handler: H) -> Endpoint {
    Endpoint::new(path, &["POST", "PUT"], handler)
}

/// Lets requests through only while the store is open.
async fn if_open(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    match app.stopping() {
        None => next.run(request).await,
        Some(is_stopping) => unavailable(is_stopping),
    }
}

/// Refuses a request while the store is not open.
pub(crate) fn unavailable(is_stopping: bool) -> Response {
    let stopping = if is_stopping { "true" } else { "false" };
    let headers = [("X-Prometheus-Stopping", stopping), (header::RETRY_AFTER.as_str(), error::RETRY_AFTER_S)];
    (headers, plain(StatusCode::SERVICE_UNAVAILABLE, "Service Unavailable")).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allow_lists_methods_in_order() {
        assert_eq!(allow(&["GET", "POST"]), "GET, OPTIONS, POST");
    }
}
