//! Notifications for operators, as a list and as a stream of events: what is wrong with the server,
//! and what to do. The web page shows them on every page.
//!
//! The texts are Prometheus' where it has one, so that its web page can show them. A subscriber that
//! does not keep up misses events. There are at most `--web.max-notifications-subscribers`
//! subscribers.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::mpsc;

/// What a notification is about. Each has at most one text at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// The last reload of the configuration failed.
    Reload,
    /// The WAL is not replayed yet.
    Start,
    /// The server is about to stop.
    Stop,
    /// Many blocks are too old at once.
    Retention,
    /// Writes are rejected.
    Writes,
    /// Samples of damaged blocks are missing.
    Blocks,
    /// The last start found a damaged WAL.
    Wal,
}

/// The text of [`Topic::Start`].
pub const STARTING_UP: &str = "Prometheus is starting and replaying the write-ahead log (WAL).";
/// The text of [`Topic::Stop`].
pub const SHUTTING_DOWN: &str =
    "Prometheus is shutting down and gracefully stopping all operations.";
/// The text of [`Topic::Retention`].
pub const RETENTION_HELD: &str = "Retention, or a retention rule, keeps many blocks that became too old at once, \
     in case the clock is wrong. If the clock is right, run varve admin confirm-retention.";

/// Maximum number of events that wait for a subscriber.
const EVENTS_QUEUED_MAX: usize = 10;

/// The activation or deactivation of a notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The text.
    pub text: Arc<str>,
    /// Time of the activation or deactivation.
    pub date: Timestamp,
    /// Whether it became active.
    pub active: bool,
}

/// The active notifications and their subscribers.
#[derive(Debug)]
pub struct Notifications {
    subscribers_max: usize,
    state: Mutex<Board>,
}

#[derive(Debug, Default)]
struct Board {
    active: BTreeMap<Topic, Event>,
    subscribers: Vec<mpsc::Sender<Event>>,
    /// The server is stopping: streams end.
    is_closed: bool,
}

impl Board {
    fn list(&self) -> Vec<Event> {
        self.active.values().cloned().collect()
    }

    /// Sends an event. A subscriber with a full queue misses it, and a closed one is removed.
    fn send(&mut self, event: &Event) {
        self.subscribers.retain(|to| {
            !matches!(
                to.try_send(event.clone()),
                Err(mpsc::error::TrySendError::Closed(_))
            )
        });
    }
}

impl Notifications {
    /// Creates an empty list.
    pub fn new(subscribers_max: usize) -> Self {
        Self {
            subscribers_max,
            state: Mutex::default(),
        }
    }

    /// Sets the text of a topic, or removes it. Another text ends the notification before.
    pub fn set(&self, topic: Topic, text: Option<&str>) {
        let mut board = self.state.lock();
        let before = board.active.get(&topic).map(|event| &*event.text);
        if before == text {
            return;
        }
        let date = Timestamp::now();
        if let Some(mut ended) = board.active.remove(&topic) {
            (ended.date, ended.active) = (date, false);
            board.send(&ended);
        }
        if let Some(text) = text {
            let event = Event {
                text: text.into(),
                date,
                active: true,
            };
            board.send(&event);
            board.active.insert(topic, event);
        }
    }

    /// Returns `true` if there is a notification of a topic.
    pub fn has(&self, topic: Topic) -> bool {
        self.state.lock().active.contains_key(&topic)
    }

    /// Ends all streams, once their queued events are sent.
    pub fn close(&self) {
        let mut board = self.state.lock();
        board.is_closed = true;
        board.subscribers.clear();
    }

    /// Returns the active notifications.
    pub fn list(&self) -> Vec<Event> {
        self.state.lock().list()
    }

    /// Returns a stream of the active notifications and then of changes, or `None` if there are too
    /// many subscribers.
    pub fn subscribe(&self) -> Option<mpsc::Receiver<Event>> {
        let mut board = self.state.lock();
        board
            .subscribers
            .retain(|subscriber| !subscriber.is_closed());
        if board.subscribers.len() >= self.subscribers_max {
            return None;
        }
        let (sender, receiver) = mpsc::channel(EVENTS_QUEUED_MAX);
        for event in board.list() {
            sender
                .try_send(event)
                .expect("there are fewer topics than events that may be queued");
        }
        if !board.is_closed {
            board.subscribers.push(sender);
        }
        Some(receiver)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscribers_get_active_notifications_and_changes() {
        let notifications = Notifications::new(1);
        let start = |text| notifications.set(Topic::Start, text);
        start(Some(STARTING_UP));
        let mut events = notifications.subscribe().unwrap();
        assert!(notifications.subscribe().is_none());
        start(Some(STARTING_UP));
        start(Some("another text"));
        start(None);
        let mut next = || {
            let event = events.blocking_recv()?;
            Some((event.text.to_string(), event.active))
        };
        assert_eq!(next(), Some((STARTING_UP.to_owned(), true)));
        assert_eq!(next(), Some((STARTING_UP.to_owned(), false)));
        assert_eq!(next(), Some(("another text".to_owned(), true)));
        assert_eq!(next(), Some(("another text".to_owned(), false)));
        assert!(notifications.list().is_empty());
        notifications.set(Topic::Stop, Some(SHUTTING_DOWN));
        notifications.close();
        assert_eq!(next(), Some((SHUTTING_DOWN.to_owned(), true)));
        assert_eq!(next(), None);
    }

    #[test]
    fn a_subscriber_that_does_not_read_blocks_nobody() {
        let notifications = Notifications::new(1);
        let _idle = notifications.subscribe().unwrap();
        for i in 0..3 * EVENTS_QUEUED_MAX {
            notifications.set(Topic::Reload, (i % 2 == 0).then_some("failed"));
        }
    }
}
