//! Queue slots: bounds the number of requests that wait for a budget or a permit to create series,
//! and the bytes that they hold.

use parking_lot::Mutex;

/// The bounds of the queue, and its current length.
#[derive(Debug)]
pub(super) struct Queue {
    length: Mutex<Length>,
    max: Length,
}

/// The number of requests in a queue, and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Length {
    pub(super) n_requests: usize,
    pub(super) size_bytes: usize,
}

/// The slot of one request in the queue, released on drop.
#[derive(Debug)]
pub(super) struct QueueSlot<'a> {
    queue: &'a Queue,
    size: usize,
}

impl Queue {
    pub(super) fn new(max: Length) -> Self {
        Self {
            length: Mutex::default(),
            max,
        }
    }

    /// Reserves a slot for a request of `size` bytes. Returns `None` if the queue is full. An empty
    /// queue accepts a request of any size.
    pub(super) fn reserve(&self, size: usize) -> Option<QueueSlot<'_>> {
        let mut length = self.length.lock();
        let is_full = length.n_requests >= self.max.n_requests
            || length.size_bytes.saturating_add(size) > self.max.size_bytes;
        if is_full && length.n_requests > 0 {
            return None;
        }
        length.n_requests += 1;
        length.size_bytes += size;
        Some(QueueSlot { queue: self, size })
    }

    pub(super) fn length(&self) -> Length {
        *self.length.lock()
    }
}

impl Drop for QueueSlot<'_> {
    fn drop(&mut self) {
        let mut length = self.queue.length.lock();
        length.n_requests -= 1;
        length.size_bytes -= self.size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_is_bounded_in_requests_and_bytes() {
        let queue = Queue::new(Length {
            n_requests: 2,
            size_bytes: 100,
        });
        let large = queue.reserve(1000).unwrap();
        assert_eq!(
            queue.length(),
            Length {
                n_requests: 1,
                size_bytes: 1000
            }
        );
        assert!(queue.reserve(1).is_none());
        drop(large);
        let _a = queue.reserve(60).unwrap();
        let b = queue.reserve(40).unwrap();
        assert!(queue.reserve(0).is_none());
        drop(b);
        assert!(queue.reserve(41).is_none() && queue.reserve(40).is_some());
    }
}
