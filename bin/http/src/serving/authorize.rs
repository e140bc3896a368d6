//! The outermost layer: protection from other web pages, authentication, authorization, and the
//! configured headers of every response.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use varve_server::requests::tenant::{Peer, User};

use super::origin;
use super::scope::required_scope;
use super::state::HttpState;
use crate::error::RETRY_AFTER_S;
use crate::grpc;
use crate::response::plain;
use crate::ui;
use crate::web_config::{Auth, Denied};

/// Runs a request if the web configuration permits it.
pub(crate) async fn authorize(
    State(state): State<HttpState>,
    mut request: Request,
    next: Next,
) -> Response {
    if let Err(reason) = origin::check_host_header(&request) {
        return bad_host(reason);
    }
    let web = state.web.current();
    let allowed = match origin::check(&request, &state.app.settings.web.allowed_hosts) {
        // The page has no data, and asks for the credentials that its requests for data need.
        Ok(()) if ui::is_for_page(request.method(), request.uri().path()) => Ok(()),
        // Load balancers and Kubernetes send no credentials with it.
        Ok(()) if request.uri().path() == grpc::health::PATH => Ok(()),
        Ok(()) => {
            let challenge = challenge_for(&request);
            authenticate(web.auth.as_ref(), &mut request)
                .await
                .map_err(|denied| deny(denied, challenge))
        }
        Err(reason) => Err(plain(StatusCode::FORBIDDEN, reason)),
    };
    let mut response = match allowed {
        Ok(()) => next.run(request).await,
        Err(denied) => {
            state.app.metrics.requests_denied.inc();
            denied
        }
    };
    for (name, value) in &web.headers {
        response.headers_mut().insert(name.clone(), value.clone());
    }
    response
}

/// Responds to a request whose `Host` is missing, repeated or malformed, as Go's server does.
fn bad_host(reason: &str) -> Response {
    let text = format!("400 Bad Request: {reason}");
    let mut response = plain(StatusCode::BAD_REQUEST, text);
    response
        .headers_mut()
        .insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

async fn authenticate(auth: Option<&Arc<Auth>>, request: &mut Request) -> Result<(), Denied> {
    let Some(auth) = auth else { return Ok(()) };
    let given = request
        .headers()
        .get(header::AUTHORIZATION)
        .map(|value| value.as_bytes().to_vec());
    let scope = required_scope(request.method(), request.uri().path());
    let client = request.extensions().get::<Peer>().map(|peer| peer.0.ip());
    let user = auth.check(given.as_deref(), scope, client).await?;
    request.extensions_mut().insert::<User>(user);
    Ok(())
}

/// Returns the challenge of a 401. Browsers respond to `Basic` with a dialog of their own, so a
/// script that says what it is gets another one.
fn challenge_for(request: &Request) -> HeaderValue {
    let is_script = request
        .headers()
        .get("x-requested-with")
        .is_some_and(|value| value == "XMLHttpRequest");
    HeaderValue::from_static(if is_script { "Bearer" } else { "Basic" })
}

fn deny(denied: Denied, challenge: HeaderValue) -> Response {
    let (mut response, header, value) = match denied {
        Denied::Unknown => {
            let response = plain(StatusCode::UNAUTHORIZED, "Unauthorized\n");
            (response, header::WWW_AUTHENTICATE, challenge)
        }
        Denied::Busy => {
            let response = plain(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many passwords wait for their comparison\n",
            );
            (response, header::RETRY_AFTER, RETRY_AFTER_S.into())
        }
        Denied::Scope(scope) => {
            let scope = format!("{scope:?}").to_lowercase();
            return plain(
                StatusCode::FORBIDDEN,
                format!("Forbidden: the token lacks the scope {scope}\n"),
            );
        }
    };
    response.headers_mut().insert(header, value);
    response
}
