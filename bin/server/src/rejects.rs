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

/// Rejects by reason.
#[derive(Debug, Default)]
pub struct RejectLog {
    reasons: Mutex<BTreeMap<&'static str, RejectStats>>,
}

/// The sender of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sender {
    /// The client's address.
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
        let address = || {
            self.address
                .map(|address| address.ip().to_string())
                .unwrap_or_default()
        };
        let name = if self.user.is_empty() {
            address()
        } else {
            self.user.to_string()
        };
        match replica {
            Some(replica) => format!("{name} {replica}"),
            None => name,
        }
    }
}

/// Rejects of one reason.
#[derive(Debug, Clone)]
pub struct RejectStats {
    /// The reason, as in metrics.
    pub reason: &'static str,
    /// The reason in words.
    pub message: String,
    /// Requests with at least one such reject.
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

impl RejectLog {
    /// Adds the rejects of a write request.
    pub fn add(&self, sender: impl Fn() -> Sender, outcome: &Result<Written, WriteError>) {
        match outcome {
            Ok(written) => {
                for reject in written.rejections.iter().chain(written.ignored.iter()) {
                    self.add_reject(sender(), reject);
                }
            }
            Err(error) => self.add_request(sender(), name(error), error.to_string()),
        }
    }

    /// Adds a request that was rejected as a whole.
    pub fn add_request(&self, sender: Sender, reason: &'static str, text: String) {
        let example = Example {
            text,
            ..Example::default()
        };
        self.insert(
            sender,
            reason,
            "request rejected as a whole".to_owned(),
            (0, 0),
            example,
        );
    }

    fn add_reject(&self, sender: Sender, reject: &RejectionCount) {
        let RejectionCount {
            reason,
            count,
            n_samples,
            example,
        } = reject;
        self.insert(
            sender,
            reason.name(),
            reason.to_string(),
            (*count, *n_samples),
            example.clone(),
        );
    }

    fn insert(
        &self,
        sender: Sender,
        reason: &'static str,
        message: String,
        (count, n_samples): (u64, u64),
        mut example: Example,
    ) {
        example
            .text
            .truncate(example.text.floor_char_boundary(TEXT_SIZE_MAX));
        let mut reasons = self.reasons.lock();
        let before = reasons
            .get(reason)
            .map_or((0, 0, 0), |of| (of.n_requests, of.count, of.n_samples));
        let last = Timestamp::now();
        let (n_requests, count, n_samples) = (before.0 + 1, before.1 + count, before.2 + n_samples);
        reasons.insert(
            reason,
            RejectStats {
                reason,
                message,
                n_requests,
                count,
                n_samples,
                last,
                example,
                sender,
            },
        );
    }

    /// Returns all reasons, the most recent first.
    pub fn list(&self) -> Vec<RejectStats> {
        let reasons = self.reasons.lock();
        let mut list: Vec<_> = reasons.values().cloned().collect();
        list.sort_by(|a, b| b.last.cmp(&a.last).then_with(|| a.reason.cmp(b.reason)));
        list
    }
}

/// Returns the reason of a rejected request, as in `varve_ingest_requests_total`.
fn name(error: &WriteError) -> &'static str {
    match error.cause() {
        WriteError::Malformed(_) => "malformed",
        WriteError::TooLarge { .. } => "too_large",
        WriteError::Busy { .. } => "busy",
        WriteError::Throttled { .. } => "throttled",
        _ => "failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_with_their_last_example() {
        let log = RejectLog::default();
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
            .map(|of| (of.reason, of.n_requests, of.sender.user_agent.as_str()))
            .collect();
        assert_eq!(listed, [("busy", 1, "c"), ("malformed", 2, "b")]);
        assert_eq!(list[1].example.text.len(), TEXT_SIZE_MAX);
    }
}
