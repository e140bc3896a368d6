//! The outermost layer: who sends a request, and whether they may; and the headers that go with every answer.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::http::web_config::{Denied, Scope};
use crate::http::{App, plain};
use crate::server::request_context::User;

/// Lets a request through if the web configuration does.
pub(crate) async fn authorize(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let web = app.web.current();
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
                    app.metrics.requests_denied.inc();
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
            let text = format!("Forbidden: the token has not the scope {}\n", format!("{scope:?}").to_lowercase());
            plain(StatusCode::FORBIDDEN, text).into_response()
        }
    }
}
