//! Bounds the threads that evaluate rules: those of groups, and those that help with independent rules of a group.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::{Condvar, Mutex};

/// Bounds the number of threads that evaluate rules at the same time. Clones share the bound.
#[derive(Debug, Clone)]
pub struct Threads(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    n_free: Mutex<usize>,
    freed: Condvar,
}

/// A number of threads that count until the value is dropped.
#[derive(Debug)]
pub struct Taken<'a> {
    from: &'a Shared,
    n: usize,
}

impl Threads {
    /// Creates a bound of `n_threads`.
    #[must_use]
    pub fn new(n_threads: usize) -> Self {
        Self(Arc::new(Shared { n_free: Mutex::new(n_threads), freed: Condvar::new() }))
    }

    /// Waits until a thread is free, and takes it for the caller.
    #[must_use]
    pub fn take_one(&self) -> Taken<'_> {
        let mut n_free = self.0.n_free.lock();
        self.0.freed.wait_while(&mut n_free, |n_free| *n_free == 0);
        *n_free -= 1;
        Taken { from: &self.0, n: 1 }
    }

    /// Calls `work` for each element, on this thread and on the threads that are free now. Returns when all calls have
    /// ended.
    pub(crate) fn for_each<T: Sync>(&self, items: &[T], work: impl Fn(&T) + Sync) {
        let next = AtomicUsize::new(0);
        let run = || {
            while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                work(item);
            }
        };
        let helpers = self.take_free(items.len().saturating_sub(1));
        thread::scope(|scope| {
            for _ in 0..helpers.n {
                // If a thread cannot be started, the others do its work.
                let _joined_by_the_scope = thread::Builder::new().name("rule".into()).spawn_scoped(scope, run);
            }
            run();
        });
    }

    /// Takes up to `wanted` free threads.
    fn take_free(&self, wanted: usize) -> Taken<'_> {
        let mut n_free = self.0.n_free.lock();
        let n = wanted.min(*n_free);
        *n_free -= n;
        Taken { from: &self.0, n }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.from.n_free.lock() += self.n;
        self.from.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_helpers_share_the_bound() {
        let threads = Threads::new(3);
        let group = threads.take_one();
        let n_calls = AtomicUsize::new(0);
        threads.for_each(&[(); 10], |()| {
            n_calls.fetch_add(1, Ordering::Relaxed);
            assert_eq!(*threads.0.n_free.lock(), 0, "two threads help the group");
        });
        assert_eq!((n_calls.into_inner(), *threads.0.n_free.lock()), (10, 2), "helpers are free again");
        let other = threads.take_one();
        threads.for_each(&[(); 2], |()| assert_eq!(*threads.0.n_free.lock(), 0));
        let last = threads.take_one();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| drop(threads.take_one()));
            assert!(!waiting.is_finished(), "no thread is free");
            drop(group);
        });
        drop((other, last));
        assert_eq!(*threads.0.n_free.lock(), 3);
    }
}
