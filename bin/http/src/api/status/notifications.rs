//! /api/v1/notifications as a list, /api/v1/notifications/live as a stream of server-sent events.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::Frame;
use tokio::sync::mpsc;
use varve_server::notifications::Event;

use crate::response::success;
use crate::serving::app::App;
use varve_wire::schema;

schema! {
    /// A notification for operators.
    pub(crate) struct Notification {
        text: String,
        /// Since when it is active, or when it ended.
        date: String,
        active: bool,
    }
}

impl From<Event> for Notification {
    fn from(Event { text, date, active }: Event) -> Self {
        Self {
            text: text.to_string(),
            date: date.to_string(),
            active,
        }
    }
}

/// GET /api/v1/notifications.
pub(crate) async fn list(State(app): State<Arc<App>>) -> Response {
    success(
        &app.notifications
            .list()
            .into_iter()
            .map(Notification::from)
            .collect::<Vec<_>>(),
    )
}

/// GET /api/v1/notifications/live: 204 if there are too many subscribers.
pub(crate) async fn live(State(app): State<Arc<App>>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    match app.notifications.subscribe() {
        Some(events) => (headers, Body::new(Events(events))).into_response(),
        None => (StatusCode::NO_CONTENT, headers).into_response(),
    }
}

/// A stream of events.
struct Events(mpsc::Receiver<Event>);

impl HttpBody for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0
            .poll_recv(cx)
            .map(|event| event.map(|event| Ok(Frame::data(print(event)))))
    }
}

fn print(event: Event) -> Bytes {
    let json =
        serde_json::to_string(&Notification::from(event)).expect("strings and a boolean are JSON");
    Bytes::from(format!("data: {json}\n\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    #[test]
    fn an_event_is_printed_as_a_server_sent_event() {
        let printed = print(Event {
            text: "x".into(),
            date: Timestamp::UNIX_EPOCH,
            active: true,
        });
        assert_eq!(
            printed,
            "data: {\"text\":\"x\",\"date\":\"1970-01-01T00:00:00Z\",\"active\":true}\n\n"
        );
    }
}
