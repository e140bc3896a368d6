//! Rejected samples and requests since the start: for each reason a count, the last example and its
//! sender.
//!
//! Filled by the write handlers, read by /api/v1/status/rejects. Bounded by the number of reasons
//! and the sizes of an example and a sender.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use varve_ingest::{Example, RejectionCount, WriteError, Written};

/// Maximum size of an example's text.
const TEXT_SIZE_MAX: usize = 1_024;

/// Rejections by reason.
#[derive(Debug, Default)]
pub struct RejectionLog {
    reasons: Mutex<BTreeMap<&'static str, RejectionStats>>,
}

/// The sender of a write request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sender {
    /// The sender's address.
    pub address: Option<SocketAddr>,
    /// The user agent, truncated.
    pub user_agent: String,
    /// Empty without authentication.
    pub user: Arc<str>,
    /// The path of the request.
    pub path: String,
}

impl Sender {
    /// Returns the name of the sender for rules, metrics and lists: its user, or its address if it
    /// sends no credentials, and the replica labels of its HA pair.
    pub(crate) fn name(&self, replica: Option<&str>) -> String {
        let name = match self.address {
            Some(address) if self.user.is_empty() => address.ip().to_string(),
            _ => self.user.to_string(),
        };
        match replica {
            Some(replica) => format!("{name} {replica}"),
            None => name,
        }
    }
}

/// Rejections of one reason.
#[derive(Debug, Clone)]
pub struct RejectionStats {
    /// The reason, as in metrics.
    pub reason: &'static str,
    /// The reason in words.
    pub message: String,
    /// Requests with at least one such rejection.
    pub n_requests: u64,
    /// Rejected samples, series, histograms, exemplars or metric families, by reason. 0 if whole
    /// requests are rejected.
    pub count: u64,
    /// Rejected samples, if they were counted.
    pub n_samples: u64,
    /// Time of the last request.
    pub last: Timestamp,
    /// An example from the last request.
    pub example: Example,
    /// Sender of the last request.
    pub sender: Sender,
}

impl RejectionLog {
    /// Adds the rejections of a write request.
    pub fn add(&self, sender: impl Fn() -> Sender, outcome: &Result<Written, WriteError>) {
        match outcome {
            Ok(written) => {
                for rejected in written.rejections.iter().chain(written.ignored.iter()) {
                    self.add_count(sender(), rejected);
                }
            }
            Err(error) => self.add_request(sender(), name(error), error.to_string()),
        }
    }

    /// Adds a request that was rejected as a whole.
    pub fn add_request(&self, sender: Sender, reason: &'static str, text: String) {
        self.insert(RejectionStats {
            reason,
            message: "request rejected as a whole".to_owned(),
            n_requests: 1,
            count: 0,
            n_samples: 0,
            last: Timestamp::now(),
            example: Example {
                text,
                ..Example::default()
            },
            sender,
        });
    }

    fn add_count(&self, sender: Sender, rejected: &RejectionCount) {
        self.insert(RejectionStats {
            reason: rejected.reason.name(),
            message: rejected.reason.to_string(),
            n_requests: 1,
            count: rejected.count,
            n_samples: rejected.n_samples,
            last: Timestamp::now(),
            example: rejected.example.clone(),
            sender,
        });
    }

    /// Adds the rejections of one request.
    fn insert(&self, mut stats: RejectionStats) {
        let text = &mut stats.example.text;
        text.truncate(text.floor_char_boundary(TEXT_SIZE_MAX));

        let mut reasons = self.reasons.lock();
        if let Some(before) = reasons.get(stats.reason) {
            stats.n_requests += before.n_requests;
            stats.count += before.count;
            stats.n_samples += before.n_samples;
        }
        reasons.insert(stats.reason, stats);
    }

    /// Returns all reasons, the most recent first.
    pub fn list(&self) -> Vec<RejectionStats> {
        let reasons = self.reasons.lock();
        let mut list: Vec<_> = reasons.values().cloned().collect();
        list.sort_by(|a, b| b.last.cmp(&a.last).then_with(|| a.reason.cmp(b.reason)));
        list
    }
}

/// Returns the reason of a rejected request, as in `varve_ingest_requests_total`.
fn name(error: &WriteError) -> &'static str {
    if error.exceeds_memory_limit() {
        return "busy";
    }
    match error.cause() {
        WriteError::Malformed(_) => "malformed",
        WriteError::TooLarge { .. } => "too_large",
        WriteError::Throttled { .. } => "throttled",
        WriteError::NoLeaderYet { .. } => "busy",
        _ => "failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_with_their_last_example() {
        let log = RejectionLog::default();
        let sender = |agent: &str| Sender {
            user_agent: agent.to_owned(),
            ..Sender::default()
        };
        for (agent, text) in [
            ("a", "x".repeat(2 * TEXT_SIZE_MAX)),
            ("b", "é".repeat(TEXT_SIZE_MAX)),
        ] {
            log.add_request(sender(agent), "malformed", text);
        }
        log.add(
            || sender("c"),
            &Err(WriteError::Busy {
                in_flight: 1,
                size: 2,
                limit: 3,
            }),
        );
        log.add(|| sender("d"), &Ok(Written::default()));
        let list = log.list();
        let listed: Vec<_> = list
            .iter()
            .map(|stats| {
                (
                    stats.reason,
                    stats.n_requests,
                    stats.sender.user_agent.as_str(),
                )
            })
            .collect();
        assert_eq!(listed, [("busy", 1, "c"), ("malformed", 2, "b")]);
        assert_eq!(list[1].example.text.len(), TEXT_SIZE_MAX);
    }
}
