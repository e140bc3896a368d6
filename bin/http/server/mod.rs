//! Connections: accepted, bounded in number, timed out, and closed in an orderly way.
//!
//! One task per connection. When `--web.max-connections` are open and one more comes, the connection that has been idle
//! for longest is closed; if none is idle, the newcomer waits.

mod connections;
mod stall;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::call::Peer;
use super::{App, routes};
use connections::{Connection, Connections};
use stall::StallGuard;

/// How long to wait after the operating system has refused to accept: mostly for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a client may take to encrypt its connection; exporter-toolkit's and Go's bound is longer and of the whole request.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);

/// Serves until `stop` becomes true, then closes idle connections and returns once the others have ended.
pub(crate) async fn serve(app: Arc<App>, listener: TcpListener, stop: watch::Receiver<bool>) {
    let routes = routes(&app);
    let connections = Arc::new(Connections::new(app.settings.max_connections));
    let mut stopping = stop.clone();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener) => accepted,
            () = stopped(&mut stopping) => break,
        };
        let connection = tokio::select! {
            connection = connections.enter(|| app.metrics.connections_evicted.inc()) => connection,
            () = stopped(&mut stopping) => break,
        };
        tokio::spawn(talk(Arc::clone(&app), routes.clone(), accepted, connection, stop.clone()));
    }
    drop(listener);
    connections.all_gone().await;
}

/// Waits until the server has to stop, or whoever would say so has gone.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _either = stop.wait_for(|stop| *stop).await.is_ok();
}

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                // A connection that was reset before it was accepted is the client's affair.
                if !matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
                    tracing::warn!(%error, "Connection not accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// Runs a connection to its end.
async fn talk(
    app: Arc<App>,
    routes: Router,
    stream: TcpStream,
    connection: Arc<Connection>,
    mut stop: watch::Receiver<bool>,
) {
    let _open = OpenGauge::count(&app);
    // Answers go out in few large writes: waiting for more to send only delays them. Failing costs nothing but that.
    let _best_effort = stream.set_nodelay(true);
    let peer = stream.peer_addr().ok().map(Peer);
    let stalled = app.metrics.connections_stalled.clone();
    let socket = StallGuard::new(stream, app.settings.answer.stall_timeout, stalled);
    match app.web.current().tls.clone() {
        None => speak(&app, routes, socket, peer, &connection, stop).await,
        Some(tls) => {
            let handshake = tokio::time::timeout(HANDSHAKE_TIME_MAX, TlsAcceptor::from(tls).accept(socket));
            let encrypted = tokio::select! {
                encrypted = handshake => encrypted,
                () = connection.evicted() => return,
                () = stopped(&mut stop) => return,
            };
            match encrypted {
                Ok(Ok(encrypted)) => speak(&app, routes, encrypted, peer, &connection, stop).await,
                Ok(Err(_)) | Err(_) => app.metrics.handshakes_failed.inc(),
            }
        }
    }
}

/// Speaks HTTP with a client until one of the two ends it.
async fn speak<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    app: &App,
    routes: Router,
    socket: S,
    peer: Option<Peer>,
    connection: &Arc<Connection>,
    mut stop: watch::Receiver<bool>,
) {
    let service = TowerToHyperService::new(routes);
    let of_requests = Arc::clone(connection);
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let busy = of_requests.busy();
        let mut request = request.map(Body::new);
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
        let response = service.call(request);
        async move {
            let response = response.await;
            response.map(|response| response.map(|body| busy.until_the_end_of(body)))
        }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        // Between requests this is the time that an idle connection is kept.
        .header_read_timeout(app.settings.read_timeout)
        .serve_connection(TokioIo::new(socket), service);
    let mut serving = std::pin::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = connection.evicted() => {
            serving.as_mut().graceful_shutdown();
            if connection.is_busy() { serving.await } else { return }
        }
        () = stopped(&mut stop) => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        // Clients come and go as they like.
        tracing::debug!(%error, "Connection ended");
    }
}

/// Counts an open connection until it is dropped.
struct OpenGauge<'a>(&'a App);

impl<'a> OpenGauge<'a> {
    fn count(app: &'a App) -> Self {
        app.metrics.connections.inc();
        Self(app)
    }
}

impl Drop for OpenGauge<'_> {
    fn drop(&mut self) {
        self.0.metrics.connections.dec();
    }
}
