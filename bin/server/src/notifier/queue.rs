//! The bounded queue of one Alertmanager: encoded alerts, oldest first.

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Maximum size of all alerts in a queue: 6 KiB each at the default capacity.
pub(super) const QUEUE_SIZE_MAX_BYTES: usize = 64 << 20;
/// Size of a batch above which no further alert joins it.
const BATCH_SIZE_BYTES: usize = 4 << 20;

#[derive(Debug)]
pub(super) struct Queue {
    capacity: usize,
    pending: Mutex<Pending>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Pending {
    alerts: VecDeque<Bytes>,
    size_bytes: usize,
    is_closed: bool,
}

impl Queue {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            pending: Mutex::default(),
            wake: Notify::new(),
        }
    }

    /// Appends alerts, and drops the oldest ones above the capacity. Returns the number of dropped
    /// alerts. Does nothing if the queue is closed.
    pub(super) fn push(&self, alerts: &[Bytes]) -> usize {
        let mut pending = self.pending.lock();
        if pending.is_closed {
            return 0;
        }
        let mut n_dropped = 0;
        for alert in alerts {
            pending.size_bytes += alert.len();
            pending.alerts.push_back(alert.clone());
            while pending.alerts.len() > self.capacity || pending.size_bytes > QUEUE_SIZE_MAX_BYTES
            {
                n_dropped += usize::from(pending.pop().is_some());
            }
        }
        drop(pending);
        self.wake.notify_one();
        n_dropped
    }

    /// Waits for alerts and takes at most `n_max` of them. Returns `None` if the queue is closed
    /// and empty. Only one task may wait.
    pub(super) async fn next(&self, n_max: usize) -> Option<Vec<Bytes>> {
        loop {
            {
                let mut pending = self.pending.lock();
                let batch = pending.take(n_max);
                if !batch.is_empty() {
                    return Some(batch);
                }
                if pending.is_closed {
                    return None;
                }
            }
            self.wake.notified().await;
        }
    }

    /// Accepts no further alerts.
    pub(super) fn close(&self) {
        self.pending.lock().is_closed = true;
        self.wake.notify_one();
    }

    pub(super) fn len(&self) -> usize {
        self.pending.lock().alerts.len()
    }
}

impl Pending {
    fn pop(&mut self) -> Option<Bytes> {
        let alert = self.alerts.pop_front()?;
        self.size_bytes -= alert.len();
        Some(alert)
    }

    fn take(&mut self, n_max: usize) -> Vec<Bytes> {
        let mut batch = Vec::new();
        let mut size_bytes = 0;
        while batch.len() < n_max && size_bytes < BATCH_SIZE_BYTES {
            let Some(alert) = self.pop() else { break };
            size_bytes += alert.len();
            batch.push(alert);
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alerts(sizes: &[usize]) -> Vec<Bytes> {
        sizes
            .iter()
            .map(|&size| Bytes::from(vec![b'x'; size]))
            .collect()
    }

    fn take(queue: &Queue, n_max: usize) -> Vec<usize> {
        queue
            .pending
            .lock()
            .take(n_max)
            .iter()
            .map(Bytes::len)
            .collect()
    }

    #[test]
    fn a_full_queue_drops_its_oldest_alerts() {
        let queue = Queue::new(3);
        assert_eq!(queue.push(&alerts(&[1, 2])), 0);
        assert_eq!(queue.push(&alerts(&[3, 4])), 1);
        assert_eq!(queue.push(&alerts(&[5, 6, 7, 8])), 4);
        assert_eq!(
            (take(&queue, 2), take(&queue, 2), take(&queue, 2)),
            (vec![6, 7], vec![8], vec![])
        );
        assert_eq!(queue.pending.lock().size_bytes, 0);
    }

    #[test]
    fn queue_and_batch_are_bounded_in_bytes() {
        let queue = Queue::new(100);
        let size = QUEUE_SIZE_MAX_BYTES / 4;
        assert_eq!(queue.push(&alerts(&[size, size, size, size, 1])), 1);
        assert_eq!(take(&queue, 10), [size]);
        assert_eq!(queue.push(&alerts(&[QUEUE_SIZE_MAX_BYTES + 1])), 4);
    }

    #[test]
    fn a_closed_queue_ends_when_it_is_empty() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let queue = Queue::new(3);
        queue.push(&alerts(&[1]));
        queue.close();
        assert_eq!((queue.push(&alerts(&[1])), queue.len()), (0, 1));
        assert_eq!(
            runtime.block_on(queue.next(9)).map(|batch| batch.len()),
            Some(1)
        );
        assert!(runtime.block_on(queue.next(9)).is_none());
    }
}
