//! Threads that groups share to evaluate independent rules at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Bounds the number of threads that all groups use in addition to their own. Clones share the bound.
#[derive(Debug, Clone)]
pub struct Threads {
    free: Arc<AtomicUsize>,
}

impl Threads {
    /// Creates a bound of `n_threads`.
    #[must_use]
    pub fn new(n_threads: usize) -> Self {
        Self { free: Arc::new(AtomicUsize::new(n_threads)) }
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
        let n_helpers = self.take(items.len().saturating_sub(1));
        thread::scope(|scope| {
            for _ in 0..n_helpers {
                // If a thread cannot be started, the others do its work.
                let _joined_by_the_scope = thread::Builder::new().name("rule".into()).spawn_scoped(scope, run);
            }
            run();
        });
        self.free.fetch_add(n_helpers, Ordering::Relaxed);
    }

    /// Takes up to `wanted` free threads.
    fn take(&self, wanted: usize) -> usize {
        let update = |free: usize| Some(free - free.min(wanted));
        self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update).map_or(0, |free| free.min(wanted))
    }
}
