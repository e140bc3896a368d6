//! The outermost layer: protection from other web pages, authentication, authorization, and the
//! configured headers of every response.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::Response;
use varve_config::web::Scope;
use varve_server::rejections::Sender;
use varve_server::requests::tenant::{Peer, User};
use varve_system::excerpt::truncate;

use super::log_limiter::LogLimiter;
use super::origin;
use super::probe::Probe;
use super::request_body::drain;
use super::scope::required_scope;
use super::state::HttpState;
use crate::error::RETRY_AFTER_S;
use crate::grpc;
use crate::response::plain;
use crate::ui;
use crate::web_config::{Auth, Denied};

/// Maximum size of the body of a denied request that is read.
const DENIED_BODY_SIZE_MAX: usize = 1 << 20;
/// Maximum size of the user agent and of the path of a denied request.
const SENDER_SIZE_MAX: usize = 256;

static DENIED_LOG: LogLimiter = LogLimiter::new();

/// What the web configuration grants to a request.
enum Granted {
    /// The response of the endpoint.
    Response,
    /// The status of the response, without its text.
    Status(Probe),
}

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
        Ok(()) if ui::is_for_page(request.method(), request.uri().path()) => Ok(Granted::Response),
        // Load balancers and Kubernetes send no credentials with it.
        Ok(()) if request.uri().path() == grpc::health::PATH => Ok(Granted::Response),
        Ok(()) => authenticate(&state, web.auth.as_ref(), &mut request).await,
        Err(reason) => Err(plain(StatusCode::FORBIDDEN, reason)),
    };
    let mut response = match allowed {
        Ok(Granted::Response) => next.run(request).await,
        Ok(Granted::Status(probe)) => probe.without_text(&next.run(request).await),
        Err(denied) => {
            state.app.metrics.requests_denied.inc();
            // Otherwise the stream of the body is reset after the response, and some clients (curl
            // 7.88) report the reset instead of the response.
            if request.version() == Version::HTTP_2 {
                drain(request.into_body(), DENIED_BODY_SIZE_MAX).await;
            }
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

/// Returns what the credentials of a request grant, or the response that denies it. A probe needs
/// none: after a rotation of tokens, an orchestrator that still sends the old one must not restart
/// the server.
async fn authenticate(
    state: &HttpState,
    auth: Option<&Arc<Auth>>,
    request: &mut Request,
) -> Result<Granted, Response> {
    let Some(auth) = auth else {
        return Ok(Granted::Response);
    };
    let given = request
        .headers()
        .get(header::AUTHORIZATION)
        .map(|value| value.as_bytes().to_vec());
    let scope = required_scope(request.method(), request.uri().path());
    let client = request.extensions().get::<Peer>().map(|peer| peer.0.ip());
    let denied = match auth.check(given.as_deref(), scope, client).await {
        Ok(user) => {
            request.extensions_mut().insert::<User>(user);
            return Ok(Granted::Response);
        }
        Err(denied) => denied,
    };

    if scope == Scope::Write {
        note_denied_write(state, request, denied);
    }
    match Probe::of(request.method(), request.uri()) {
        Some(probe) => Ok(Granted::Status(probe)),
        None => Err(deny(denied, challenge_for(request))),
    }
}

/// Lists and logs a denied write, because senders drop the samples of a request that gets 401 or 403.
/// Not if the server was busy: then they repeat it.
fn note_denied_write(state: &HttpState, request: &Request, denied: Denied) {
    let reason = match denied {
        Denied::Scope(_) => "the token lacks the scope write",
        Denied::Unknown => "the user, password or token is missing or unknown",
        // Senders repeat these requests.
        Denied::Busy => return,
    };
    let user_agent = request.headers().get(header::USER_AGENT);
    let user_agent = String::from_utf8_lossy(user_agent.map_or(b"", |value| value.as_bytes()));
    let sender = Sender {
        address: request.extensions().get::<Peer>().map(|peer| peer.0),
        user_agent: truncate(&user_agent, SENDER_SIZE_MAX).to_owned(),
        user: Arc::default(),
        path: truncate(request.uri().path(), SENDER_SIZE_MAX).to_owned(),
    };
    if let Some(n_suppressed) = DENIED_LOG.admit("denied", Instant::now()) {
        let client = sender.address.map(|address| address.to_string());
        let user_agent = &sender.user_agent;
        tracing::warn!(
            client,
            user_agent,
            reason,
            n_suppressed,
            "Write request denied"
        );
    }
    state
        .app
        .rejections
        .add_request(sender, "denied", reason.to_owned());
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
