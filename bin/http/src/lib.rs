//! The HTTP API: Prometheus' paths, parameters, responses and errors. Also Thanos' gRPC services,
//! and the web page.
//!
//! ```text
//! connection -> layers (serving) -> api: handler -> params -> gate -> blocking thread (store, engine)
//!                                                                      |
//!                      client <- connection <- response body (serving) <-'
//! ```
//!
//! Invariants
//! 1. A tokio task never waits for the disk or a lock that is held for long, and computes for
//!    microseconds at most: blocking threads do the rest, behind a gate.
//! 2. Each request for data has one `QueryContext` from before the gate until its last byte is
//!    sent. Its form, its response and their compression draw on the memory budget of that context.
//! 3. Each request for data, and each write, is registered as active from before the gate until its
//!    response is sent.
//! 4. Before the store is open and after it closes, all paths except health, metrics and the replay
//!    state respond with 503.

#![forbid(unsafe_code)]

pub mod api;
mod connection;
pub(crate) mod error;
mod grpc;
mod json;
mod openapi;
pub mod params;
pub(crate) mod requester;
mod response;
mod serving;
mod ui;
pub mod web_config;

use std::sync::Arc;

use axum::middleware::{from_fn, from_fn_with_state};
use tokio::sync::watch;
use varve_context::{Limit, MemoryBudget};

use api::write::otlp;
use connection::Server;
use serving::route_prefix::Routes;
use serving::{authorize, observe, redirect};

pub use connection::{Listeners, requests_max};
pub use serving::app::App;
pub use serving::metrics::HttpMetrics;
pub use serving::run::{job_fn, run};
pub use serving::state::HttpState;

/// Serves until `stop` becomes true and all connections are closed.
pub async fn serve(state: HttpState, listeners: Listeners, stop: watch::Receiver<bool>) {
    let app = Arc::clone(&state.app);
    let web = Arc::clone(&state.web);
    let long_heads_size_max = app.settings.web.long_heads_size_max;
    connection::serve(
        Server {
            app,
            web,
            routes: routes(state),
            long_heads: MemoryBudget::new(Limit::Other("memory of long URLs"), long_heads_size_max),
        },
        listeners,
        stop,
    )
    .await;
}

fn routes(state: HttpState) -> Routes {
    let inside = api::routes::router(&state)
        .merge(ui::router())
        .merge(grpc::router())
        .route_layer(from_fn_with_state(state.clone(), observe::observe))
        .layer(from_fn(observe::record))
        .layer(from_fn_with_state(state.clone(), redirect::clean_only))
        .layer(from_fn_with_state(state.clone(), authorize::authorize))
        .layer(from_fn(otlp::errors::rewrite))
        .with_state(state.clone());
    Routes::new(inside, state)
}
