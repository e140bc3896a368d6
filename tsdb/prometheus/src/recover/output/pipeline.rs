//! An ordered parallel pipeline: items are produced in any order on all threads, and consumed in order.
//!
//! There is no barrier. The thread that produced the next item consumes it, and then all following items that are
//! ready. Other threads keep producing. They wait only if too many items are produced but not consumed.
//!
//! Threads: one at a time consumes, with exclusive access to the consumer.

use hashbrown::HashMap;
use parking_lot::{Condvar, Mutex, MutexGuard};
use varve_tsdb::{Error, Result};

/// Produces items `0..len` on the current thread pool and consumes them in order. At most `ahead` items are in
/// production or waiting.
///
/// # Errors
/// The first error of `make` or `write`; nothing is consumed after it.
pub(crate) fn produce_in_order<T: Send>(
    len: usize,
    ahead: usize,
    make: impl Fn(usize) -> Result<T> + Sync,
    write: impl FnMut(T) -> Result<()> + Send,
) -> Result<()> {
    assert!(ahead > 0, "without room for a piece none is made");
    let state = State { next: 0, n_written: 0, made: HashMap::new(), write: Some(write), end: None };
    let pipeline = Pipeline { len, ahead, state: Mutex::new(state), progressed: Condvar::new() };
    rayon::scope(|scope| {
        for _ in 0..rayon::current_num_threads() {
            scope.spawn(|_| pipeline.work(&make));
        }
    });
    match pipeline.state.into_inner().end {
        Some(End::Failed(error)) => Err(error),
        // A panic of a thread propagates through the scope.
        Some(End::Panicked) | None => Ok(()),
    }
}

/// Items between production and consumption.
struct Pipeline<T, W> {
    len: usize,
    ahead: usize,
    state: Mutex<State<T, W>>,
    /// Notified when an item is consumed, or the pipeline ends.
    progressed: Condvar,
}

struct State<T, W> {
    /// The next item to produce, and the number of consumed items.
    next: usize,
    n_written: usize,
    /// Items that wait for an earlier one.
    made: HashMap<usize, T>,
    /// The consumer, taken out while it runs.
    write: Option<W>,
    end: Option<End>,
}

/// Reason why the pipeline ended early.
enum End {
    Failed(Error),
    Panicked,
}

impl<T, W: FnMut(T) -> Result<()>> Pipeline<T, W> {
    fn work(&self, make: &impl Fn(usize) -> Result<T>) {
        let _ends_others = OnPanic(self);
        while let Some(piece) = self.take() {
            match make(piece) {
                Ok(made) => self.put(piece, made),
                Err(error) => self.end(&mut self.state.lock(), End::Failed(error)),
            }
        }
    }

    /// Returns the next item to produce, once there is room for it.
    fn take(&self) -> Option<usize> {
        let mut state = self.state.lock();
        while state.end.is_none() && state.next < self.len {
            if state.next < state.n_written + self.ahead {
                state.next += 1;
                return Some(state.next - 1);
            }
            self.progressed.wait(&mut state);
        }
        None
    }

    /// Adds an item, and consumes the items that are ready unless another thread does.
    fn put(&self, piece: usize, made: T) {
        let mut state = self.state.lock();
        state.made.insert(piece, made);
        let Some(mut write) = state.write.take() else { return };
        while state.end.is_none() {
            let n_written = state.n_written;
            let Some(made) = state.made.remove(&n_written) else { break };
            match MutexGuard::unlocked(&mut state, || write(made)) {
                Ok(()) => state.n_written += 1,
                Err(error) => self.end(&mut state, End::Failed(error)),
            }
            self.progressed.notify_all();
        }
        state.write = Some(write);
    }

    fn end(&self, state: &mut State<T, W>, end: End) {
        state.end.get_or_insert(end);
        self.progressed.notify_all();
    }
}

/// Ends the pipeline if a thread panics: the others would wait for its item.
struct OnPanic<'a, T, W: FnMut(T) -> Result<()>>(&'a Pipeline<T, W>);

impl<T, W: FnMut(T) -> Result<()>> Drop for OnPanic<'_, T, W> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.end(&mut self.0.state.lock(), End::Panicked);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const LEN: usize = 300;

    fn on_threads<T: Send>(n: usize, run: impl FnOnce() -> T + Send) -> T {
        rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap().install(run)
    }

    fn limit() -> Error {
        Error::Limit { what: "pieces", used: 1, limit: 0 }
    }

    #[test]
    fn items_are_consumed_in_order_and_few_wait() {
        for n_threads in [1, 2, 5] {
            for ahead in [1, 3, 64] {
                let (made, n_written, most) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
                let make = |piece: usize| {
                    let n_made = made.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(n_made.saturating_sub(n_written.load(Ordering::SeqCst)), Ordering::SeqCst);
                    // Some take longer.
                    (0..piece % 7 * 50).for_each(|_| std::thread::yield_now());
                    Ok(piece)
                };
                let mut written = Vec::new();
                let write = |piece| {
                    written.push(piece);
                    n_written.fetch_add(1, Ordering::SeqCst);
                    Ok(())
                };
                on_threads(n_threads, || produce_in_order(LEN, ahead, make, write)).unwrap();
                assert!(written.into_iter().eq(0..LEN), "{n_threads} threads, {ahead} ahead");
                assert!(most.into_inner() <= ahead, "{n_threads} threads, {ahead} ahead");
            }
        }
    }

    #[test]
    fn nothing_is_consumed_after_an_error() {
        let fails_at = |at: usize| move |piece: usize| if piece == at { Err(limit()) } else { Ok(piece) };
        for (make_at, write_at) in [(100, LEN), (LEN, 100)] {
            let (mut n_written, write) = (0, fails_at(write_at));
            let write = |piece| write(piece).map(|_| n_written += 1);
            let result = on_threads(3, || produce_in_order(LEN, 8, fails_at(make_at), write));
            assert!(matches!(result, Err(Error::Limit { .. })));
            assert!(n_written <= 100);
        }
    }

    #[test]
    fn a_panic_ends_all_threads() {
        let make = |piece| if piece == 50 { panic!("as the test wants it") } else { Ok(piece) };
        let run = || on_threads(3, || produce_in_order(LEN, 4, make, |_| Ok(())));
        assert!(std::panic::catch_unwind(run).is_err());
    }
}
