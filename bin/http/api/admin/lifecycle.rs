//! /-/reload and /-/quit, behind `--web.enable-lifecycle`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::State;
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::sync::Notify;

use crate::http::{App, plain};

/// The wish that the server ends.
#[derive(Debug, Default)]
pub(crate) struct Quit {
    is_asked: AtomicBool,
    notify: Notify,
}

impl Quit {
    /// Asks for the end; returns false if it was asked for before.
    fn ask(&self) -> bool {
        let is_first = !self.is_asked.swap(true, Ordering::AcqRel);
        // Kept for whoever waits next.
        self.notify.notify_one();
        is_first
    }

    /// Waits until the end is asked for.
    pub(crate) async fn asked(&self) {
        self.notify.notified().await;
    }
}

/// POST and PUT /-/reload.
pub(crate) async fn reload(State(app): State<Arc<App>>, method: Method) -> Response {
    if let Some(refused) = refuse(&app, &method) {
        return refused;
    }
    let reloaded = tokio::task::spawn_blocking(move || app.reload()).await;
    match reloaded {
        Ok(Ok(())) => StatusCode::OK.into_response(),
        Ok(Err(reason)) => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("failed to reload config: {reason:#}\n")),
        Err(panicked) => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("failed to reload config: {panicked}\n")),
    }
}

/// POST and PUT /-/quit.
pub(crate) async fn quit(State(app): State<Arc<App>>, method: Method) -> Response {
    if let Some(refused) = refuse(&app, &method) {
        return refused;
    }
    text(
        StatusCode::OK,
        if app.quit.ask() { "Requesting termination... Goodbye!" } else { "Termination already in progress." },
    )
}

fn refuse(app: &App, method: &Method) -> Option<Response> {
    if *method == Method::GET {
        return Some(text(StatusCode::METHOD_NOT_ALLOWED, "Only POST or PUT requests allowed"));
    }
    (!app.settings.lifecycle).then(|| text(StatusCode::FORBIDDEN, "Lifecycle API is not enabled."))
}

fn text(status: StatusCode, text: &'static str) -> Response {
    (status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
}
