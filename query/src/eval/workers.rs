//! The threads that all queries of an engine share for their work on series: reading, decoding, kernels.
//!
//! A query hands its series over in batches, in order of labels, and takes what is made of them on its own thread, in the
//! same order: what it computes across series does not depend on how many threads there are.
//!
//! Invariants
//! 1. A query has at most [`AHEAD`] batches per thread out at a time, so that batches of queries that run at the same time
//!    take turns, and no query holds more than these.
//! 2. After an error batches that were not begun are passed over; nothing works for a query that has ended.
//!
//! Threads: those of the pool; the query's own waits, reads labels and folds. A panic in a batch ends the query with it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};

use rayon::{Scope, ThreadPool, ThreadPoolBuilder};

use crate::error::{Error, Result};

/// Batches that a query may have out for each thread: one at work, one that waits.
const AHEAD: usize = 2;

/// See the module. Without a pool a query works on its own thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct Workers {
    pool: Option<Arc<ThreadPool>>,
}

impl Workers {
    /// Starts `n_threads` threads; none if that is one, or if the system gives no more.
    pub(crate) fn new(n_threads: usize) -> Self {
        if n_threads <= 1 {
            return Self::default();
        }
        let named = |number| format!("query-{number}");
        let pool = ThreadPoolBuilder::new().num_threads(n_threads).thread_name(named).build();
        Self { pool: pool.ok().map(Arc::new) }
    }

    /// Takes batches until there is none, does the `work` on any thread, and gives what comes of it to `take` in the order
    /// of the batches.
    ///
    /// # Errors
    /// The first one in that order.
    pub(crate) fn in_order<B: Send, R: Send>(
        &self,
        mut next: impl FnMut() -> Result<Option<B>>,
        work: impl Fn(B) -> Result<R> + Sync,
        mut take: impl FnMut(R) -> Result<()>,
    ) -> Result<()> {
        let Some(pool) = &self.pool else {
            while let Some(batch) = next()? {
                take(work(batch)?)?;
            }
            return Ok(());
        };
        let Some(first) = next()? else { return Ok(()) };
        // Fast path: a single batch is not worth waking a thread.
        let Some(second) = next()? else { return take(work(first)?) };
        let stopped = AtomicBool::new(false);
        let work = |batch| if stopped.load(Ordering::Relaxed) { Err(ended()) } else { work(batch) };
        pool.in_place_scope(|scope| {
            let out = Out { scope, work: &work, waiting: VecDeque::new(), n_max: AHEAD * pool.current_num_threads() };
            let outcome = out.run([first, second], &mut next, &mut take);
            stopped.store(true, Ordering::Relaxed);
            outcome
        })
    }
}

/// The batches of a query that are out.
struct Out<'a, 'scope, R, W> {
    scope: &'a Scope<'scope>,
    work: &'scope W,
    /// In order of the batches.
    waiting: VecDeque<Receiver<Result<R>>>,
    n_max: usize,
}

impl<'scope, R: Send + 'scope, W> Out<'_, 'scope, R, W> {
    fn run<B: Send + 'scope>(
        mut self,
        first: [B; 2],
        next: &mut impl FnMut() -> Result<Option<B>>,
        take: &mut impl FnMut(R) -> Result<()>,
    ) -> Result<()>
    where
        W: Fn(B) -> Result<R> + Sync,
    {
        first.into_iter().for_each(|batch| self.send(batch));
        let mut at_end = false;
        loop {
            while !at_end && self.waiting.len() < self.n_max {
                match next()? {
                    Some(batch) => self.send(batch),
                    None => at_end = true,
                }
            }
            let Some(oldest) = self.waiting.pop_front() else { return Ok(()) };
            // Nobody answers for a batch that panicked; the scope passes the panic on.
            take(oldest.recv().unwrap_or_else(|_panicked| Err(ended()))?)?;
        }
    }

    fn send<B: Send + 'scope>(&mut self, batch: B)
    where
        W: Fn(B) -> Result<R> + Sync,
    {
        let (sender, receiver) = sync_channel(1);
        let work = self.work;
        self.scope.spawn(move |_| {
            // After an error nobody waits for the others.
            let _unheard = sender.send(work(batch));
        });
        self.waiting.push_back(receiver);
    }
}

/// What stands for the result of a batch that nobody takes.
fn ended() -> Error {
    Error::Execution("the evaluation has ended".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    fn run(n_threads: usize, n: u64, fails_at: Option<u64>) -> (Vec<u64>, Result<()>) {
        let (mut batches, mut taken) = (0..n, Vec::new());
        let out = AtomicUsize::new(0);
        let work = |batch| {
            assert!(out.fetch_add(1, Ordering::Relaxed) < AHEAD * n_threads.max(1));
            // Later batches are done sooner.
            (0..(n - batch) * 50).for_each(|_| std::hint::spin_loop());
            if Some(batch) == fails_at { Err(Error::Execution(batch.to_string())) } else { Ok(batch * 2) }
        };
        let take = |result| {
            out.fetch_sub(1, Ordering::Relaxed);
            taken.push(result);
            Ok(())
        };
        let outcome = Workers::new(n_threads).in_order(|| Ok(batches.next()), work, take);
        (taken, outcome)
    }

    #[test]
    fn results_come_in_order_from_any_number_of_threads() {
        for n_threads in [0, 1, 2, 3, 8] {
            for n in [0, 1, 2, 3, 100] {
                let (taken, outcome) = run(n_threads, n, None);
                assert!(outcome.is_ok());
                assert_eq!(taken, (0..n).map(|batch| batch * 2).collect::<Vec<_>>(), "{n_threads} threads");
            }
        }
    }

    #[test]
    fn the_first_error_in_order_stands() {
        for n_threads in [1, 3] {
            let (taken, outcome) = run(n_threads, 100, Some(7));
            assert_eq!((taken.len(), outcome.unwrap_err().to_string()), (7, "7".to_owned()));
        }
    }

    #[test]
    #[should_panic(expected = "batch 5")]
    fn a_panic_on_a_thread_is_one_of_the_query() {
        let mut batches = 0..20;
        let work = |batch| if batch == 5 { panic!("batch 5") } else { Ok(batch) };
        let _never = Workers::new(2).in_order(|| Ok(batches.next()), work, |_| Ok(()));
    }
}
