//! The worker pool: threads that read, decode and compute series for all queries of an engine.
//!
//! A query submits its series in batches, in the order of its selection, and consumes the results
//! on its own thread, in the same order. So computations across series do not depend on the number
//! of threads.
//!
//! Invariants
//! 1. A query has at most [`BATCHES_PER_THREAD`] batches per thread in flight, so concurrent
//!    queries share the threads fairly, and the memory of a query is bounded. If there are requests
//!    for all cores, a query computes its batches on its own thread, in its turns.
//! 2. After an error, batches that have not started are skipped. No thread works for a query that
//!    has ended.
//!
//! Threads: the pool, and the query's own thread, which reads labels, aggregates and waits. A panic
//! in a batch propagates to the query's thread.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

use rayon::{Scope, ThreadPool, ThreadPoolBuilder};
use varve_context::scheduler;

use crate::error::{Error, Result};

/// Maximum number of batches in flight per thread: one running, one waiting.
const BATCHES_PER_THREAD: usize = 2;

/// The worker pool; see the module documentation. Without threads, each query runs on its own
/// thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct Workers {
    pool: Option<Arc<ThreadPool>>,
}

impl Workers {
    /// Starts `n_threads` threads. Starts none if `n_threads` is 1, or if the system cannot start
    /// them.
    pub(crate) fn new(n_threads: usize) -> Self {
        if n_threads <= 1 {
            return Self::default();
        }
        let pool = ThreadPoolBuilder::new()
            .num_threads(n_threads)
            .thread_name(|number| format!("query-{number}"))
            .build();
        Self {
            pool: pool.ok().map(Arc::new),
        }
    }

    /// Gets batches from `next` until it returns `None`, runs `work` on each batch on any thread,
    /// and passes the results to `take` in the order of the batches.
    ///
    /// # Errors
    /// The first error in the order of the batches.
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
        // Fast path: a single batch runs on this thread, without waking another one.
        let Some(second) = next()? else {
            return take(work(first)?);
        };
        let mut first = [first, second].into_iter();
        let mut next = || match first.next() {
            Some(batch) => Ok(Some(batch)),
            None => next(),
        };
        let stopped = AtomicBool::new(false);
        let work = |batch| {
            if stopped.load(Ordering::Relaxed) {
                Err(ended())
            } else {
                work(batch)
            }
        };
        pool.in_place_scope(|scope| {
            let in_flight = InFlight {
                scope,
                work: &work,
                waiting: VecDeque::new(),
                n_max: BATCHES_PER_THREAD * pool.current_num_threads(),
            };
            let outcome = in_flight.run(&mut next, &mut take);
            stopped.store(true, Ordering::Relaxed);
            outcome
        })
    }
}

/// The batches of a query that are in flight.
struct InFlight<'a, 'scope, R, W> {
    scope: &'a Scope<'scope>,
    work: &'scope W,
    /// Receivers of the results, in the order of the batches.
    waiting: VecDeque<Receiver<Result<R>>>,
    n_max: usize,
}

impl<'scope, R: Send + 'scope, W> InFlight<'_, 'scope, R, W> {
    fn run<B: Send + 'scope>(
        mut self,
        next: &mut impl FnMut() -> Result<Option<B>>,
        take: &mut impl FnMut(R) -> Result<()>,
    ) -> Result<()>
    where
        W: Fn(B) -> Result<R> + Sync,
    {
        let mut at_end = false;
        loop {
            while !at_end && self.waiting.len() < self.n_max && !scheduler::is_crowded() {
                match next()? {
                    Some(batch) => self.send(batch),
                    None => at_end = true,
                }
            }
            if !at_end && self.waiting.is_empty() {
                match next()? {
                    Some(batch) => take((self.work)(batch)?)?,
                    None => at_end = true,
                }
                continue;
            }
            let Some(oldest) = self.waiting.pop_front() else {
                return Ok(());
            };
            let result = match oldest.try_recv() {
                Err(TryRecvError::Empty) => scheduler::waiting_for_workers(|| oldest.recv()).ok(),
                done => done.ok(),
            };
            // A batch that panicked sends no result. The scope propagates the panic.
            take(result.unwrap_or_else(|| Err(ended()))?)?;
        }
    }

    fn send<B: Send + 'scope>(&mut self, batch: B)
    where
        W: Fn(B) -> Result<R> + Sync,
    {
        let (sender, receiver) = sync_channel(1);
        let work = self.work;
        self.scope.spawn(move |_| {
            // After an error the receivers are dropped, so sending fails.
            let _ignored = sender.send(work(batch));
        });
        self.waiting.push_back(receiver);
    }
}

/// The error of a skipped batch.
fn ended() -> Error {
    Error::Execution("the evaluation has ended".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    fn run(n_threads: usize, n: u64, fails_at: Option<u64>) -> (Vec<u64>, Result<()>) {
        let mut batches = 0..n;
        let mut taken = Vec::new();
        let in_flight = AtomicUsize::new(0);
        let work = |batch| {
            assert!(
                in_flight.fetch_add(1, Ordering::Relaxed) < BATCHES_PER_THREAD * n_threads.max(1)
            );
            // Later batches finish earlier.
            (0..(n - batch) * 50).for_each(|_| std::hint::spin_loop());
            if Some(batch) == fails_at {
                Err(Error::Execution(batch.to_string()))
            } else {
                Ok(batch * 2)
            }
        };
        let take = |result| {
            in_flight.fetch_sub(1, Ordering::Relaxed);
            taken.push(result);
            Ok(())
        };
        let outcome = Workers::new(n_threads).in_order(|| Ok(batches.next()), work, take);
        (taken, outcome)
    }

    #[test]
    fn results_arrive_in_order_from_any_number_of_threads() {
        for n_threads in [0, 1, 2, 3, 8] {
            for n in [0, 1, 2, 3, 100] {
                let (taken, outcome) = run(n_threads, n, None);
                assert!(outcome.is_ok());
                assert_eq!(
                    taken,
                    (0..n).map(|batch| batch * 2).collect::<Vec<_>>(),
                    "{n_threads} threads"
                );
            }
        }
    }

    #[test]
    fn the_first_error_in_order_is_returned() {
        for n_threads in [1, 3] {
            let (taken, outcome) = run(n_threads, 100, Some(7));
            assert_eq!(
                (taken.len(), outcome.unwrap_err().to_string()),
                (7, "7".to_owned())
            );
        }
    }

    #[test]
    #[should_panic(expected = "batch 5")]
    fn a_panic_on_a_worker_thread_reaches_the_query() {
        let mut batches = 0..20;
        let work = |batch| {
            if batch == 5 {
                panic!("batch 5")
            } else {
                Ok(batch)
            }
        };
        let _never = Workers::new(2).in_order(|| Ok(batches.next()), work, |_| Ok(()));
    }
}
