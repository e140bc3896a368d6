//! What was not stored of late: for each reason how often, the last case, and who sent it.
//!
//! Filled by the handlers of writes, read by /api/v1/status/rejects. Bounded by the number of reasons there are and the
//! sizes of an example and of what is told of a sender; begins anew with each start.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use varve_ingest::{Example, Reject, WriteError, Written};

/// Bytes of an example's text.
const TEXT_SIZE_MAX: usize = 1_024;

/// The last rejects by reason.
#[derive(Debug, Default)]
pub(crate) struct RejectLog {
    seen: Mutex<BTreeMap<&'static str, Seen>>,
}

/// Who sent a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Sender {
    pub(crate) address: Option<SocketAddr>,
    pub(crate) user_agent: String,
    /// Empty where names are not asked for.
    pub(crate) user: Arc<str>,
    /// Where it was sent to.
    pub(crate) path: String,
}

/// What is known of a reason.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) reason: &'static str,
    /// The reason in words.
    pub(crate) message: String,
    /// Requests that lost something for it.
    pub(crate) n_requests: u64,
    /// Samples, series, histograms, exemplars or metric families, by what the reason is about; 0 where whole requests are
    /// refused.
    pub(crate) count: u64,
    /// Samples that were not stored for it, as far as they were counted.
    pub(crate) n_samples: u64,
    pub(crate) last: Timestamp,
    /// Of the last request.
    pub(crate) example: Example,
    pub(crate) sender: Sender,
}

impl RejectLog {
    /// Notes how a request has ended.
    pub(crate) fn note(&self, sender: impl Fn() -> Sender, outcome: &Result<Written, WriteError>) {
        match outcome {
            Ok(written) => {
                for reject in written.rejects.iter().chain(written.ignored.iter()) {
                    self.reject(sender(), reject);
                }
            }
            Err(error) => self.refuse(sender(), name(error), error.to_string()),
        }
    }

    /// Notes a request that was refused as a whole.
    pub(crate) fn refuse(&self, sender: Sender, reason: &'static str, text: String) {
        let example = Example { text, ..Example::default() };
        self.add(sender, reason, "request refused as a whole".to_owned(), (0, 0), example);
    }

    fn reject(&self, sender: Sender, reject: &Reject) {
        let Reject { reason, count, n_samples, example } = reject;
        self.add(sender, reason.name(), reason.to_string(), (*count, *n_samples), example.clone());
    }

    fn add(
        &self,
        sender: Sender,
        reason: &'static str,
        message: String,
        (count, n_samples): (u64, u64),
        mut example: Example,
    ) {
        example.text.truncate(example.text.floor_char_boundary(TEXT_SIZE_MAX));
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let before = seen.get(reason).map_or((0, 0, 0), |of| (of.n_requests, of.count, of.n_samples));
        let last = Timestamp::now();
        let (n_requests, count, n_samples) = (before.0 + 1, before.1 + count, before.2 + n_samples);
        seen.insert(reason, Seen { reason, message, n_requests, count, n_samples, last, example, sender });
    }

    /// Returns what is known, the last reason first.
    pub(crate) fn list(&self) -> Vec<Seen> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut list: Vec<_> = seen.values().cloned().collect();
        list.sort_by(|a, b| b.last.cmp(&a.last).then_with(|| a.reason.cmp(b.reason)));
        list
    }
}

/// Returns the reason of a whole request, as `varve_ingest_requests_total` has it.
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
    fn reasons_are_counted_with_their_last_case() {
        let log = RejectLog::default();
        let sender = |agent: &str| Sender { user_agent: agent.to_owned(), ..Sender::default() };
        for (agent, text) in [("a", "x".repeat(2 * TEXT_SIZE_MAX)), ("b", "é".repeat(TEXT_SIZE_MAX))] {
            log.refuse(sender(agent), "malformed", text);
        }
        log.note(|| sender("c"), &Err(WriteError::Busy { in_flight: 1, size: 2, limit: 3 }));
        log.note(|| sender("d"), &Ok(Written::default()));
        let list = log.list();
        let told: Vec<_> = list.iter().map(|of| (of.reason, of.n_requests, of.sender.user_agent.as_str())).collect();
        assert_eq!(told, [("busy", 1, "c"), ("malformed", 2, "b")]);
        assert_eq!(list[1].example.text.len(), TEXT_SIZE_MAX);
    }
}
