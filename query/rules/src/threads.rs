//! Bounds the threads that evaluate rules: those of groups, and those that help with independent
//! rules of a group.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::{Condvar, Mutex};

/// Bounds the number of threads that evaluate rules at the same time. Clones share the bound.
#[derive(Debug, Clone)]
pub struct Threads(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug)]
struct State {
    n_free: usize,
    /// Groups that wait for a thread. Helpers start only if there are none.
    n_waiting: usize,
}

/// The right to use a thread, until it is dropped.
#[derive(Debug)]
pub struct Permit<'a> {
    from: &'a Shared,
}

impl Threads {
    /// Creates a bound of `n_threads`.
    #[must_use]
    pub fn new(n_threads: NonZero<usize>) -> Self {
        let state = Mutex::new(State {
            n_free: n_threads.get(),
            n_waiting: 0,
        });
        Self(Arc::new(Shared {
            state,
            freed: Condvar::new(),
        }))
    }

    /// Waits until a thread is free, and takes it for the caller.
    #[must_use]
    pub fn acquire(&self) -> Permit<'_> {
        let mut state = self.0.state.lock();
        state.n_waiting += 1;
        self.0
            .freed
            .wait_while(&mut state, |state| state.n_free == 0);
        state.n_waiting -= 1;
        state.n_free -= 1;
        Permit { from: &self.0 }
    }

    /// Calls `work` for each element, on this thread and on the threads that are free now. Returns
    /// when all calls have ended. The caller holds a [`Permit`] for this thread.
    pub(crate) fn run_each<T: Sync>(&self, items: &[T], work: impl Fn(&T) + Sync) {
        let next = AtomicUsize::new(0);
        let run = || {
            while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                work(item);
            }
        };
        thread::scope(|scope| {
            for permit in (1..items.len()).map_while(|_| self.try_acquire()) {
                // If a thread cannot be started, the others do its work.
                let _joined_by_the_scope =
                    thread::Builder::new()
                        .name("rule".into())
                        .spawn_scoped(scope, move || {
                            let _until_it_ends = permit;
                            run();
                        });
            }
            run();
        });
    }

    /// Takes a thread if one is free and no group waits.
    fn try_acquire(&self) -> Option<Permit<'_>> {
        let mut state = self.0.state.lock();
        if state.n_free == 0 || state.n_waiting > 0 {
            return None;
        }
        state.n_free -= 1;
        Some(Permit { from: &self.0 })
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.from.state.lock().n_free += 1;
        self.from.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn groups_and_helpers_share_the_bound() {
        let threads = Threads::new(NonZero::new(3).unwrap());
        let group = threads.acquire();
        // Each call waits for the others, so that no helper ends before the bound was read.
        let all_busy = |n_threads| {
            let together = Barrier::new(n_threads);
            let items = vec![(); n_threads];
            threads.run_each(&items, |()| {
                together.wait();
                assert_eq!(threads.0.state.lock().n_free, 0);
                together.wait();
            });
        };
        all_busy(3);
        assert_eq!(threads.0.state.lock().n_free, 2, "helpers are free again");
        let other = threads.acquire();
        all_busy(2);
        let last = threads.acquire();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| drop(threads.acquire()));
            assert!(!waiting.is_finished(), "no thread is free");
            drop(group);
        });
        drop((other, last));
        assert_eq!(threads.0.state.lock().n_free, 3);
    }
}
