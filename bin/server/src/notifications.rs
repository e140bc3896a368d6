//! Notifications for operators, as a list and as a stream of events.
//!
//! The texts are Prometheus', so that its web page can show them, except [`RETENTION_HELD`], which
//! has no counterpart there. A subscriber that does not keep up misses events. There are at most `--web.max-notifications-subscribers` subscribers.

use std::collections::BTreeMap;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::mpsc;

/// The last reload of the configuration failed.
pub(crate) const CONFIG_FAILED: &str = "Configuration reload has failed.";
/// The WAL is not replayed yet.
pub const STARTING_UP: &str = "Prometheus is starting and replaying the write-ahead log (WAL).";
/// The server is about to stop.
pub const SHUTTING_DOWN: &str =
    "Prometheus is shutting down and gracefully stopping all operations.";

/// Many blocks are too old at once.
pub const RETENTION_HELD: &str = "Retention, or a retention rule, keeps many blocks that became too old at once, \
     in case the clock is wrong. If the clock is right, send \
     POST /api/v1/admin/tsdb/confirm_retention.";

/// Maximum number of events that wait for a subscriber.
const EVENTS_QUEUED_MAX: usize = 10;

/// The activation or deactivation of a notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The text.
    pub text: &'static str,
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
    active: BTreeMap<&'static str, Timestamp>,
    subscribers: Vec<mpsc::Sender<Event>>,
    /// The server is stopping: streams end.
    is_closed: bool,
}

impl Board {
    fn list(&self) -> Vec<Event> {
        self.active
            .iter()
            .map(|(text, date)| Event {
                text,
                date: *date,
                active: true,
            })
            .collect()
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

    /// Activates or deactivates a notification.
    pub fn set(&self, text: &'static str, active: bool) {
        let mut board = self.state.lock();
        if board.active.contains_key(text) == active {
            return;
        }
        let date = Timestamp::now();
        if active {
            board.active.insert(text, date);
        } else {
            board.active.remove(text);
        }
        let event = Event { text, date, active };
        // A subscriber with a full queue misses this event. A closed subscriber is removed.
        board.subscribers.retain(|to| {
            !matches!(
                to.try_send(event.clone()),
                Err(mpsc::error::TrySendError::Closed(_))
            )
        });
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
                .expect("there are fewer texts than events that may be queued");
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
        notifications.set(STARTING_UP, true);
        let mut events = notifications.subscribe().unwrap();
        assert!(notifications.subscribe().is_none());
        notifications.set(STARTING_UP, true);
        notifications.set(STARTING_UP, false);
        assert!(events.blocking_recv().unwrap().active);
        let ended = events.blocking_recv().unwrap();
        assert_eq!((ended.text, ended.active), (STARTING_UP, false));
        assert!(notifications.list().is_empty());
        notifications.set(SHUTTING_DOWN, true);
        notifications.close();
        assert_eq!(events.blocking_recv().unwrap().text, SHUTTING_DOWN);
        assert!(events.blocking_recv().is_none());
    }

    #[test]
    fn a_subscriber_that_does_not_read_blocks_nobody() {
        let notifications = Notifications::new(1);
        let _idle = notifications.subscribe().unwrap();
        for i in 0..3 * EVENTS_QUEUED_MAX {
            notifications.set(CONFIG_FAILED, i % 2 == 0);
        }
    }
}
