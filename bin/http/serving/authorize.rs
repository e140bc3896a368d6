//! The outermost layer: authentication, authorization, and the configured headers of every response.

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use super::state::HttpState;
use crate::http::response::plain;
use crate::http::web_config::{Denied, Scope};
use crate::server::request_context::User;

/// Runs a request if the web configuration permits it.
pub(crate) async fn authorize(State(state): State<HttpState>, mut request: Request, next: Next) -> Response {
    let web = state.web.current();
    let mut response = match &web.auth {
        None => next.run(request).await,
        Some(auth) => {
            let given = request.headers().get(header::AUTHORIZATION).map(|value| value.as_bytes().to_vec());
            let scope = Scope::of(request.method(), request.uri().path());
            match auth.check(given.as_deref(), scope).await {
                Ok(user) => {
                    request.extensions_mut().insert(User(user));
                    next.run(request).await
                }
                Err(denied) => {
                    state.app.metrics.requests_denied.inc();
                    deny(denied)
                }
            }
        }
    };
    for (name, value) in &web.headers {
        response.headers_mut().insert(name.clone(), value.clone());
    }
    response
}

fn deny(denied: Denied) -> Response {
    match denied {
        Denied::Unknown => {
            let mut response = plain(StatusCode::UNAUTHORIZED, "Unauthorized\n");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Basic"));
            response
        }
        Denied::Scope(scope) => {
            let scope = format!("{scope:?}").to_lowercase();
            plain(StatusCode::FORBIDDEN, format!("Forbidden: the token lacks the scope {scope}\n"))
        }
    }
}
