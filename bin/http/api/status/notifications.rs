//! What operators should know now: /api/v1/notifications as a list, /api/v1/notifications/live as a stream of events.
//!
//! The texts are Prometheus', whose web page shows them. A subscriber that does not keep up misses events; there are at
//! most `--web.max-notifications-subscribers` of them.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::Frame;
use jiff::Timestamp;
use tokio::sync::mpsc;

use super::runtime::success;
use crate::http::App;
use crate::http::openapi::described;

/// The last attempt to read the configuration failed.
pub(crate) const CONFIG_FAILED: &str = "Configuration reload has failed.";
/// The log is not replayed yet.
pub(crate) const STARTING_UP: &str = "Prometheus is starting and replaying the write-ahead log (WAL).";
/// The server is about to end.
pub(crate) const SHUTTING_DOWN: &str = "Prometheus is shutting down and gracefully stopping all operations.";

/// Events that wait for a subscriber.
const EVENTS_WAITING_MAX: usize = 10;

described! {
    /// Something that operators should know.
    pub(crate) struct Notification {
        /// What it is.
        text: String,
        /// Since when, or when it ended.
        date: String,
        /// Whether it still holds.
        active: bool,
    }
}

/// What holds now, and who wants to hear of changes.
#[derive(Debug)]
pub(crate) struct Notifications {
    subscribers_max: usize,
    state: Mutex<Board>,
}

#[derive(Debug, Default)]
struct Board {
    active: BTreeMap<&'static str, Timestamp>,
    subscribers: Vec<mpsc::Sender<Bytes>>,
    /// The server stops: streams end.
    is_closed: bool,
}

impl Board {
    fn list(&self) -> Vec<Notification> {
        let notification = |(text, date): (&&str, &Timestamp)| Notification {
            text: (*text).to_owned(),
            date: date.to_string(),
            active: true,
        };
        self.active.iter().map(notification).collect()
    }
}

impl Notifications {
    /// Starts with nothing to know.
    pub(crate) fn new(subscribers_max: usize) -> Self {
        Self { subscribers_max, state: Mutex::default() }
    }

    /// Says that something holds, or does no longer.
    pub(crate) fn set(&self, text: &'static str, active: bool) {
        let mut board = self.board();
        if board.active.contains_key(text) == active {
            return;
        }
        let date = Timestamp::now();
        if active {
            board.active.insert(text, date);
        } else {
            board.active.remove(text);
        }
        let event = event(&Notification { text: text.to_owned(), date: date.to_string(), active });
        // Who is full misses this one; who has gone is forgotten.
        board.subscribers.retain(|to| !matches!(to.try_send(event.clone()), Err(mpsc::error::TrySendError::Closed(_))));
    }

    /// Ends all streams, once they have sent what waits.
    pub(crate) fn close(&self) {
        let mut board = self.board();
        board.is_closed = true;
        board.subscribers.clear();
    }

    fn list(&self) -> Vec<Notification> {
        self.board().list()
    }

    /// Returns the events from now on, those that say what holds now first; `None` if there are too many subscribers.
    fn subscribe(&self) -> Option<mpsc::Receiver<Bytes>> {
        let mut board = self.board();
        board.subscribers.retain(|subscriber| !subscriber.is_closed());
        if board.subscribers.len() >= self.subscribers_max {
            return None;
        }
        let (sender, receiver) = mpsc::channel(EVENTS_WAITING_MAX);
        for notification in board.list() {
            sender.try_send(event(&notification)).expect("there are fewer texts than events that may wait");
        }
        if !board.is_closed {
            board.subscribers.push(sender);
        }
        Some(receiver)
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        // A panic leaves the board whole: it is changed in single steps.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn event(notification: &Notification) -> Bytes {
    let json = serde_json::to_string(notification).expect("texts and a boolean are JSON");
    Bytes::from(format!("data: {json}\n\n"))
}

/// GET /api/v1/notifications.
pub(crate) async fn list(State(app): State<Arc<App>>) -> Response {
    success(&app.notifications.list())
}

/// GET /api/v1/notifications/live: server-sent events. 204 if there are too many subscribers.
pub(crate) async fn live(State(app): State<Arc<App>>) -> Response {
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    match app.notifications.subscribe() {
        Some(events) => (headers, Body::new(Events(events))).into_response(),
        None => (StatusCode::NO_CONTENT, headers).into_response(),
    }
}

/// A stream of events.
struct Events(mpsc::Receiver<Bytes>);

impl HttpBody for Events {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::convert::Infallible>>> {
        self.0.poll_recv(cx).map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(event: Option<Bytes>) -> String {
        String::from_utf8(event.expect("an event").to_vec()).unwrap()
    }

    #[test]
    fn subscribers_hear_what_holds_and_what_changes() {
        let notifications = Notifications::new(1);
        notifications.set(STARTING_UP, true);
        let mut events = notifications.subscribe().unwrap();
        assert!(notifications.subscribe().is_none());
        notifications.set(STARTING_UP, true);
        notifications.set(STARTING_UP, false);
        assert!(text(events.blocking_recv()).contains("\"active\":true"));
        let ended = text(events.blocking_recv());
        assert!(
            ended.starts_with("data: {\"text\":\"Prometheus is starting") && ended.ends_with("false}\n\n"),
            "{ended}"
        );
        assert!(notifications.list().is_empty());
        notifications.set(SHUTTING_DOWN, true);
        notifications.close();
        assert!(text(events.blocking_recv()).contains("shutting down"));
        assert!(events.blocking_recv().is_none());
    }

    #[test]
    fn a_subscriber_that_does_not_listen_holds_nobody_up() {
        let notifications = Notifications::new(1);
        let _deaf = notifications.subscribe().unwrap();
        (0..3 * EVENTS_WAITING_MAX).for_each(|i| notifications.set(CONFIG_FAILED, i % 2 == 0));
    }
}
