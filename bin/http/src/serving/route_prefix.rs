//! Routing below `--web.route-prefix`.
//!
//! The prefix is removed from the path of a request before anything else looks at the path. As in
//! Prometheus, nothing is served outside of the prefix, except redirects to it.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::uri::{PathAndQuery, Uri};
use axum::http::{Method, StatusCode};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::Response;
use varve_config::external_url::RoutePrefix;

use super::authorize::authorize;
use super::observe;
use super::redirect::{clean, redirect, to_other_slash};
use super::state::HttpState;
use crate::api::endpoint;
use crate::grpc;
use crate::response::no_page;

/// The routers of a server. A clone is cheap.
#[derive(Debug, Clone)]
pub(crate) struct Routes {
    prefix: RoutePrefix,
    inside: Router,
    outside: Router,
    /// Whether only gRPC is served.
    only_grpc: bool,
}

impl Routes {
    /// Creates the routes of a server that serves `inside` below its prefix.
    pub(crate) fn new(inside: Router, state: HttpState) -> Self {
        let prefix = state.app.settings.web.route_prefix.clone();
        // A redirect shows nothing of the store. Requests outside of the prefix are not counted.
        let root = endpoint::get("/", to_prefix)
            .always_open()
            .for_tenants()
            .into_route(&state);
        let outside = Router::new()
            .route("/", root)
            .fallback(elsewhere)
            .layer(from_fn(observe::record))
            .layer(from_fn_with_state(state.clone(), authorize))
            .with_state(state);
        Self {
            prefix,
            inside,
            outside,
            only_grpc: false,
        }
    }

    /// Returns the routes of a listener that serves only gRPC.
    pub(crate) fn only_grpc(self) -> Self {
        Self {
            only_grpc: true,
            ..self
        }
    }

    /// Returns the router that serves a request, and removes the prefix from the path of the
    /// request.
    pub(crate) fn choose<B>(&self, request: &mut Request<B>) -> Router {
        // The paths of gRPC have no prefix.
        let is_grpc = grpc::is_call(request);
        if self.only_grpc && !is_grpc {
            return self.outside.clone();
        }
        if self.prefix.is_empty() || is_grpc {
            return self.inside.clone();
        }
        let uri = request.uri();
        let path = Some(uri.path())
            .filter(|path| clean(path) == *path)
            .and_then(|path| self.prefix.strip(path));
        match path
            .filter(|path| path.starts_with('/'))
            .and_then(|path| with_path(uri, path))
        {
            Some(uri) => {
                *request.uri_mut() = uri;
                self.inside.clone()
            }
            None => self.outside.clone(),
        }
    }
}

fn with_path(uri: &Uri, path: &str) -> Option<Uri> {
    let path = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(path).ok()?);
    Uri::from_parts(parts).ok()
}

/// Redirects from `/` to the prefix.
async fn to_prefix(State(state): State<HttpState>) -> Response {
    let prefix = state.app.settings.web.route_prefix.escaped();
    redirect(StatusCode::FOUND, &Method::GET, &Uri::default(), &prefix).unwrap_or_else(no_page)
}

/// Responds to a path outside of the prefix, or that is not clean.
async fn elsewhere(State(state): State<HttpState>, request: Request) -> Response {
    let method = request.method();
    let uri = request.uri();
    let prefix = &state.app.settings.web.route_prefix;
    let plain = clean(uri.path());
    let redirected = if plain != uri.path() {
        redirect(StatusCode::TEMPORARY_REDIRECT, method, uri, &plain)
    } else if prefix.strip(&plain) == Some("") {
        to_other_slash(method, uri, &format!("{}/", prefix.escaped()))
    } else {
        None
    };
    redirected.unwrap_or_else(no_page)
}
