//! An alert and its state, and how it is sent.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use varve_model::Labels;

use crate::file::Texts;
use crate::time::Time;

/// The metric of active alerts.
pub(crate) const ALERTS: &str = "ALERTS";
/// The metric whose value is the time at which an alert became active.
pub(crate) const ALERTS_FOR_STATE: &str = "ALERTS_FOR_STATE";
/// The label with the name of the alert.
pub(crate) const ALERT_NAME: &str = "alertname";
/// The label of [`ALERTS`] with the state of the alert.
pub(crate) const ALERT_STATE: &str = "alertstate";

/// The alerts of a rule by their labels.
pub(crate) type Alerts = BTreeMap<Labels, Alert>;

/// The state of an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AlertState {
    /// It was firing and is resolved.
    Inactive,
    /// It matches, but not for long enough.
    Pending,
    /// It has matched for at least `for`, or `keep_firing_for` keeps it.
    Firing,
}

impl AlertState {
    /// Returns the state as Prometheus writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Inactive => "inactive",
            Self::Pending => "pending",
            Self::Firing => "firing",
        }
    }
}

/// An alert.
#[derive(Debug, Clone, PartialEq)]
pub struct Alert {
    /// The state.
    pub state: AlertState,
    /// The labels that identify it.
    pub labels: Labels,
    /// The expanded annotations.
    pub annotations: Arc<Texts>,
    /// The value of the expression at its last match.
    pub value: f64,
    /// Time at which it became active.
    pub active_at: Time,
    /// Time at which it began to fire.
    pub fired_at: Option<Time>,
    /// Time at which it was resolved.
    pub resolved_at: Option<Time>,
    /// Time at which it was last sent.
    pub last_sent_at: Option<Time>,
    /// `true` if it was last sent as firing.
    pub was_sent_as_firing: bool,
    /// Time since which it fires only because of `keep_firing_for`.
    pub keep_firing_since: Option<Time>,
}

/// An alert to send to Alertmanager.
#[derive(Debug, Clone, PartialEq)]
pub struct Notification {
    /// The labels, without external labels.
    pub labels: Labels,
    /// The expanded annotations.
    pub annotations: Arc<Texts>,
    /// Time at which the alert began to fire.
    pub starts_at: Option<Time>,
    /// Time at which it was resolved. For a firing alert, time at which it ends unless it is sent
    /// again.
    pub ends_at: Time,
    /// The expression of the rule.
    pub expr: Arc<str>,
}

/// Bytes of a name and a text besides their characters.
const TEXT_SIZE: usize = 64;

impl Alert {
    /// Returns about the memory of the alert, with its entry in [`Alerts`].
    pub(crate) fn size(&self) -> usize {
        let mut size = 2 * size_of::<Self>() + self.labels.size();
        for (name, text) in &*self.annotations {
            size += TEXT_SIZE + name.len() + text.len();
        }
        size
    }

    /// Returns `true` if the alert is pending or firing.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.resolved_at.is_none()
    }

    /// Returns `true` if the alert must be sent at `now`: it is not pending, and it was never sent,
    /// is resolved and was last sent as firing, or was last sent more than `resend_delay` ago. The
    /// time of its resolution does not matter: while a group catches up, it is in the past.
    pub(crate) fn needs_sending(&self, now: Time, resend_delay: Duration) -> bool {
        if self.state == AlertState::Pending {
            return false;
        }
        match self.last_sent_at {
            None => true,
            Some(sent) => {
                self.resolved_at.is_some() && self.was_sent_as_firing || sent + resend_delay < now
            }
        }
    }

    /// Returns the notification of the alert, and notes that it is sent at `now`. A notification is
    /// valid for four evaluations or resends, so that two may fail.
    pub(crate) fn take_notification(
        &mut self,
        now: Time,
        resend_delay: Duration,
        interval: Duration,
        expr: &Arc<str>,
    ) -> Notification {
        self.last_sent_at = Some(now);
        self.was_sent_as_firing = self.is_active();
        Notification {
            labels: self.labels.clone(),
            annotations: Arc::clone(&self.annotations),
            starts_at: self.fired_at,
            ends_at: self
                .resolved_at
                .unwrap_or(now + interval.max(resend_delay) * 4),
            expr: Arc::clone(expr),
        }
    }
}
