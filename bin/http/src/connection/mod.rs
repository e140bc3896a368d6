//! Connections: accept, limit, time out, close gracefully.
//!
//! One task per connection. If a client connects while `--web.max-connections` are open, another
//! connection is evicted, or the new one takes one of a few reserved permits. See [`connections`].
//! A connection in its TLS handshake counts as idle.
//!
//! HTTP/1.1 and HTTP/2 share a port: the protocol is negotiated over TLS, and detected by the first
//! bytes in plain text.

mod connections;
mod handshake;
mod long_heads;
mod request_target;
mod stall;
mod streams;

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, Version, header};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use varve_config::web::ALPN_HTTP2;
use varve_context::MemoryBudget;
use varve_server::requests::tenant::Peer;

use super::serving::observe::TooManyConnections;
use super::serving::route_prefix::Routes;
use super::web_config::LiveWebConfig;
use crate::error::RETRY_AFTER_S;
use crate::params::LongQuery;
use crate::response::plain;
use crate::serving::app::App;
use crate::serving::log_limiter::LogLimiter;
use crate::serving::metrics::Counted;
use connections::{Connection, Connections, Evictions, RESERVED_MAX, RequestGuard};
use long_heads::{HeadLimits, HeadRejected, Replacements};
use request_target::EscapeTargets;
use stall::StallGuard;
use streams::Streams;

/// Pause after a failed accept, usually because of too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Maximum time of a TLS handshake. Go's limit, which covers the whole request, is longer.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);

/// Maximum time for an HTTP/2 client to receive the GOAWAY of its idle connection.
const GOODBYE_TIME_MAX: Duration = Duration::from_secs(1);

/// Maximum number of concurrent streams of an HTTP/2 connection, as in Go. The client queues
/// further requests.
const STREAMS_MAX: usize = 250;
/// A connection may use at most one in this many of all stream permits, so that a few connections
/// do not take all.
const STREAMS_SHARE: usize = 4;
/// Maximum size of the buffer of an HTTP/1.1 connection: the default of hyper.
const RECEIVE_BUFFER_MAX: usize = 400 << 10;
/// Maximum flow-control windows of request bodies in HTTP/2, per stream and per connection.
const STREAM_WINDOW_MAX: u32 = 256 << 10;
const CONNECTION_WINDOW_MAX: u32 = 1 << 20;
/// Bytes of a response that are buffered in a stream.
const STREAM_SEND_BUFFER: usize = 64 << 10;
/// Maximum size of the headers of an HTTP/2 request.
const HEADERS_SIZE_MAX: u32 = 64 << 10;

/// Log rate limiter of heads that are rejected.
static REJECTED_LOG: LogLimiter = LogLimiter::new();

/// What all connections share.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) app: Arc<App>,
    pub(crate) web: Arc<LiveWebConfig>,
    pub(crate) routes: Routes,
    /// The bytes of long URLs, and of heads that become long.
    pub(crate) long_heads: MemoryBudget,
}

/// Returns the maximum number of concurrent requests: one per HTTP/1.1 connection, and as many
/// HTTP/2 streams on all connections together.
pub fn requests_max(connections_max: usize) -> usize {
    connections_max
        .saturating_mul(2)
        .saturating_add(RESERVED_MAX as usize)
}

/// Returns `true` if a request needs no regular permit, so that probes, metrics and administration
/// work while all are taken.
fn is_reserved(path: &str) -> bool {
    const PREFIXES: [&str; 3] = ["/-/", "/api/v1/admin/", "/api/v1/status/queries"];
    path == "/metrics" || PREFIXES.iter().any(|prefix| path.starts_with(prefix))
}

/// The listeners of a server.
#[derive(Debug)]
pub struct Listeners {
    /// Serve everything.
    pub web: Vec<TcpListener>,
    /// Serves only gRPC.
    pub grpc: Option<TcpListener>,
}

/// Serves `routes` until `stop` becomes true, then closes idle connections and returns when the
/// others have ended.
pub(crate) async fn serve(server: Server, listeners: Listeners, stop: watch::Receiver<bool>) {
    let app = &server.app;
    let metrics = &app.metrics;
    let evictions = Evictions {
        idle: metrics.connections_evicted.clone(),
        slow: metrics.connections_evicted_slow.clone(),
    };
    let connections = Connections::new(app.settings.web.connections_max, evictions);
    let mut accepting = JoinSet::new();
    if let Some(listener) = listeners.grpc {
        let server = Server {
            routes: server.routes.clone().only_grpc(),
            ..server.clone()
        };
        let connections = Arc::clone(&connections);
        accepting.spawn(accept_all(server, listener, connections, stop.clone()));
    }
    for listener in listeners.web {
        let connections = Arc::clone(&connections);
        accepting.spawn(accept_all(
            server.clone(),
            listener,
            connections,
            stop.clone(),
        ));
    }
    accepting.join_all().await;
    connections.all_gone().await;
}

/// Accepts connections until `stop` becomes true.
async fn accept_all(
    server: Server,
    listener: TcpListener,
    connections: Arc<Connections>,
    stop: watch::Receiver<bool>,
) {
    let mut stopping = stop.clone();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener) => accepted,
            () = stopped(&mut stopping) => break,
        };
        let connection = tokio::select! {
            connection = connections.enter() => connection,
            () = stopped(&mut stopping) => break,
        };
        tokio::spawn(serve_connection(
            server.clone(),
            accepted,
            connection,
            stop.clone(),
        ));
    }
}

/// Waits until the server has to stop, or the sender of `stop` is dropped.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _either = stop.wait_for(|stop| *stop).await.is_ok();
}

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                // The client has reset the connection before it was accepted.
                if !matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset
                ) {
                    tracing::warn!(%error, "Connection not accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// Runs a connection to its end.
async fn serve_connection(
    server: Server,
    stream: TcpStream,
    connection: Arc<Connection>,
    mut stop: watch::Receiver<bool>,
) {
    let app = Arc::clone(&server.app);
    let _open = Counted::new(&app.metrics.connections);
    // Responses are sent in few large writes, which Nagle's algorithm would only delay.
    let _best_effort = stream.set_nodelay(true);
    let peer = stream.peer_addr().ok().map(Peer);
    let stalled = app.metrics.connections_stalled.clone();
    let stall_timeout = app.settings.web.response.stall_timeout;
    let web = server.web.current();
    let Some(tls) = web.tls.clone() else {
        let socket = StallGuard::new(stream, stall_timeout, stalled);
        return serve_http(
            server,
            socket,
            ConnectionContext {
                peer,
                http2: web.http2,
            },
            &connection,
            stop,
        )
        .await;
    };
    let handshake = handshake::accept(tls, stream, |stream| {
        StallGuard::new(stream, stall_timeout, stalled)
    });
    let encrypted = tokio::select! {
        encrypted = handshake => encrypted.ok(),
        () = connection.idle_for(HANDSHAKE_TIME_MAX) => None,
        () = connection.evicted() => return,
        () = stopped(&mut stop) => return,
    };
    match encrypted {
        Some(encrypted) => {
            let http2 = encrypted.get_ref().1.alpn_protocol() == Some(ALPN_HTTP2);
            serve_http(
                server,
                encrypted,
                ConnectionContext { peer, http2 },
                &connection,
                stop,
            )
            .await;
        }
        None => app.metrics.handshakes_failed.inc(),
    }
}

/// Properties of a connection.
#[derive(Debug, Clone, Copy)]
struct ConnectionContext {
    peer: Option<Peer>,
    /// Whether HTTP/2 is enabled.
    http2: bool,
}

/// What all requests of a connection share.
struct ConnectionRequests {
    server: Server,
    replacements: Arc<Replacements>,
    connection: Arc<Connection>,
    peer: Option<Peer>,
}

impl ConnectionRequests {
    /// Serves a request, or rejects its head.
    fn serve(
        &self,
        mut request: hyper::Request<Incoming>,
    ) -> impl Future<Output = Result<Response, Infallible>> + Send + use<> {
        let rejected = self.replacements.restore(&mut request);
        let router = self.server.routes.choose(&mut request);
        let guard = self.connection.begin_request();
        let peer = self.peer;
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
        let app = Arc::clone(&self.server.app);
        async move {
            match rejected {
                Some(rejected) => Ok(reject_head(&app, rejected, peer)),
                None => {
                    let connections_max = app.settings.web.connections_max;
                    serve_request(router, request, guard, connections_max).await
                }
            }
        }
    }
}

/// Serves HTTP until client or server ends the connection.
async fn serve_http<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    server: Server,
    socket: S,
    context: ConnectionContext,
    connection: &Arc<Connection>,
    mut stop: watch::Receiver<bool>,
) {
    let builder = builder(&server.app, context.http2);
    let settings = Arc::clone(&server.app.settings);
    let limits = HeadLimits {
        memory: server.long_heads.clone(),
        headers_size_max: settings.web.receive_size_max.min(RECEIVE_BUFFER_MAX),
    };
    let replacements = Arc::new(Replacements::default());
    let socket = EscapeTargets::new(socket, limits, Arc::clone(&replacements));
    let read_timeout = settings.web.read_timeout;
    let requests = ConnectionRequests {
        server,
        replacements,
        connection: Arc::clone(connection),
        peer: context.peer,
    };
    let service = service_fn(move |request| requests.serve(request));
    let mut serving = std::pin::pin!(builder.serve_connection(TokioIo::new(socket), service));
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = connection.evicted() => {
            serving.as_mut().graceful_shutdown();
            if connection.is_closable() {
                return;
            }
            tokio::select! {
                ended = serving.as_mut() => ended,
                // It was evicted as idle, just before a request began whose body arrives slowly.
                () = connection.slow() => return,
            }
        }
        () = connection.idle_for(read_timeout) => {
            serving.as_mut().graceful_shutdown();
            // An HTTP/2 client gets a GOAWAY. Requests that it sent before it received the GOAWAY
            // are served.
            let closed = tokio::time::timeout(GOODBYE_TIME_MAX, serving.as_mut()).await;
            if closed.is_err() && connection.is_busy() { serving.await } else { return }
        }
        () = stopped(&mut stop) => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "Connection ended");
    }
}

/// Responds to a request whose head was rejected, and closes its connection.
fn reject_head(app: &App, rejected: HeadRejected, peer: Option<Peer>) -> Response {
    let limit = rejected.limit_name();
    app.metrics.count_limit(Some(limit));
    if let Some(n_suppressed) = REJECTED_LOG.admit(limit, std::time::Instant::now()) {
        let client = peer.map(|peer| peer.0.to_string()).unwrap_or_default();
        tracing::warn!(limit, client, n_suppressed, "Request head rejected");
    }
    let (status, text) = rejected.response();
    let mut response = plain(status, text);
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(header::RETRY_AFTER, RETRY_AFTER_S.into());
    }
    response
}

/// Appends the query that was taken out of a URL to the target of a redirect.
fn append_query(response: &mut Response, query: &LongQuery) {
    if !response.status().is_redirection() {
        return;
    }
    let Some(location) = response.headers().get(header::LOCATION) else {
        return;
    };
    let whole = [location.as_bytes(), b"?", query.bytes()].concat();
    if let Ok(whole) = HeaderValue::from_bytes(&whole) {
        response.headers_mut().insert(header::LOCATION, whole);
    }
}

/// Serves one request, after it has got the permits that it needs.
async fn serve_request(
    router: Router,
    request: hyper::Request<Incoming>,
    mut guard: RequestGuard,
    connections_max: usize,
) -> Result<Response, Infallible> {
    let mut request = request.map(|body| Body::new(guard.receive(body)));
    let is_http2 = request.version() == Version::HTTP_2;
    let has_permit = is_reserved(request.uri().path()) || guard.enter_regular().await;
    if !has_permit {
        request
            .extensions_mut()
            .insert(TooManyConnections(connections_max));
    }
    if is_http2 && !guard.is_on_reserved() {
        guard.enter_stream().await;
    }

    let long_query = request.extensions().get::<LongQuery>().cloned();
    let mut response = TowerToHyperService::new(router).call(request).await?;
    if let Some(query) = long_query {
        append_query(&mut response, &query);
    }
    if !has_permit && !is_http2 {
        response
            .headers_mut()
            .insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response.map(|body| guard.guard_body(streams::paced(body))))
}

/// Returns the HTTP implementation with the limits of a connection.
fn builder(app: &App, http2: bool) -> auto::Builder<Streams> {
    let mut builder = auto::Builder::new(Streams::new(
        app.settings.web.response.stall_timeout,
        &app.metrics.streams_stalled,
    ));
    let size_max = app.settings.web.receive_size_max;
    let window = u32::try_from(size_max).unwrap_or(u32::MAX);
    // Between requests this is the time that an idle connection is kept.
    builder
        .http1()
        .max_buf_size(size_max.min(RECEIVE_BUFFER_MAX))
        .timer(TokioTimer::new())
        .header_read_timeout(app.settings.web.read_timeout);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(streams_max(app.settings.web.connections_max))
        .initial_stream_window_size(window.min(STREAM_WINDOW_MAX))
        .initial_connection_window_size(window.min(CONNECTION_WINDOW_MAX))
        .max_send_buf_size(STREAM_SEND_BUFFER)
        .max_header_list_size(HEADERS_SIZE_MAX);
    if http2 { builder } else { builder.http1_only() }
}

/// Returns the maximum number of concurrent streams of a connection.
fn streams_max(connections_max: usize) -> u32 {
    (connections_max / STREAMS_SHARE).clamp(1, STREAMS_MAX) as u32
}
