//! Responses that wait for slow clients: their number is bounded, because each keeps a thread.
//!
//! Invariant: of more than [`SlowClients::len_max`] responses that wait, those that have waited for
//! the longest time end within [`super::response_writer::WAIT_CHECK_INTERVAL`].

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::IntGauge;

/// The responses that wait for slow clients.
#[derive(Debug)]
pub(crate) struct SlowClients {
    len_max: usize,
    waiting: Mutex<Waiting>,
    metric: IntGauge,
}

/// The numbers of the responses that wait, in the order in which they began to wait.
#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    numbers: BTreeSet<u64>,
}

/// A response that waits for its client until this is dropped.
#[derive(Debug)]
pub(crate) struct SlowClient {
    all: Arc<SlowClients>,
    number: u64,
}

impl SlowClients {
    /// Creates an empty set. `metric` is the number of responses that wait.
    pub(crate) fn new(len_max: usize, metric: IntGauge) -> Self {
        Self {
            len_max,
            waiting: Mutex::default(),
            metric,
        }
    }

    /// Returns the maximum number of responses that wait.
    pub(crate) fn len_max(&self) -> usize {
        self.len_max
    }

    /// Adds a response that begins to wait.
    pub(crate) fn add(self: &Arc<Self>) -> SlowClient {
        let mut waiting = self.waiting.lock();
        let number = waiting.next;
        waiting.next += 1;
        waiting.numbers.insert(number);
        self.metric.inc();
        SlowClient {
            all: Arc::clone(self),
            number,
        }
    }
}

impl SlowClient {
    /// Returns `true` if too many responses wait, and this is one of those that must end.
    pub(crate) fn must_end(&self) -> bool {
        let waiting = self.all.waiting.lock();
        let n_excess = waiting.numbers.len().saturating_sub(self.all.len_max);
        waiting
            .numbers
            .iter()
            .take(n_excess)
            .any(|number| *number == self.number)
    }
}

impl Drop for SlowClient {
    fn drop(&mut self) {
        self.all.waiting.lock().numbers.remove(&self.number);
        self.all.metric.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_waited_longest_end() {
        let metric = IntGauge::new("waiting", "x").unwrap();
        let all = Arc::new(SlowClients::new(2, metric.clone()));
        let waiting: Vec<_> = (0..4).map(|_| all.add()).collect();
        assert_eq!(metric.get(), 4);
        let must_end: Vec<_> = waiting.iter().map(SlowClient::must_end).collect();
        assert_eq!(must_end, [true, true, false, false]);
        let mut waiting = waiting.into_iter();
        drop(waiting.next());
        let must_end: Vec<_> = waiting
            .as_slice()
            .iter()
            .map(SlowClient::must_end)
            .collect();
        assert_eq!(must_end, [true, false, false]);
        drop(waiting);
        assert_eq!(metric.get(), 0);
    }
}
