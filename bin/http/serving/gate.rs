//! Who may work at the same time: a gate per class of request, with a queue before it.
//!
//! Invariants
//! 1. At most as many work as there are places, and at most `waiting_max` wait to be let in.
//! 2. Who waits is served in the order of arrival; classes do not wait for each other.
//! 3. Nobody waits longer than its own time, nor to be let in longer than `wait_max`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus::{Histogram, IntGauge};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use varve_tsdb::{Interrupt, QueryContext};

use crate::http::error::ApiError;

/// Lets a bounded number of requests through at a time; a bounded number of others wait, first come first served.
///
/// Clones are the same gate.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    /// The flag that sets the number of places.
    flag: &'static str,
    permits: Arc<Semaphore>,
    queue: Queue,
    figures: GateFigures,
}

/// Bounds of the queue before a gate.
#[derive(Debug, Clone)]
pub(crate) struct Queue {
    /// Places to wait.
    seats: Arc<Semaphore>,
    wait_max: Duration,
}

/// What a gate counts.
#[derive(Debug, Clone)]
pub(crate) struct GateFigures {
    pub(crate) active: IntGauge,
    pub(crate) waiting: IntGauge,
    pub(crate) waited_seconds: Histogram,
}

/// The flag that bounds the length of a queue.
const QUEUE_FLAG: &str = "--query.max-queued";
/// The flag that bounds the time in a queue.
const QUEUE_TIMEOUT_FLAG: &str = "--query.queue-timeout";

/// A place inside the gate, until it is dropped. It can be lent to others while its owner waits for something.
#[derive(Debug)]
pub(crate) struct Place {
    gate: Gate,
    /// `None` while it is lent.
    permit: Option<OwnedSemaphorePermit>,
}

impl Queue {
    /// Makes a queue in which at most `waiting_max` wait, each at most `wait_max`.
    pub(crate) fn new(waiting_max: usize, wait_max: Duration) -> Self {
        Self { seats: Arc::new(Semaphore::new(waiting_max.min(Semaphore::MAX_PERMITS))), wait_max }
    }
}

impl Gate {
    pub(crate) fn new(flag: &'static str, n_permits: usize, queue: Queue, figures: GateFigures) -> Self {
        let permits = Arc::new(Semaphore::new(n_permits.min(Semaphore::MAX_PERMITS)));
        Self { flag, permits, queue, figures }
    }

    /// Waits for a place.
    ///
    /// # Errors
    /// 503 `unavailable` when too many wait already, there is no place in time, or the server stops.
    pub(crate) async fn admit(&self, ctx: &QueryContext) -> Result<Place, ApiError> {
        let started = Instant::now();
        let permit = self.enter(ctx).await?;
        self.figures.waited_seconds.observe(started.elapsed().as_secs_f64());
        self.figures.active.inc();
        Ok(Place { gate: self.clone(), permit: Some(permit) })
    }

    async fn enter(&self, ctx: &QueryContext) -> Result<OwnedSemaphorePermit, ApiError> {
        // Fast path: a place is free and nobody waits for it.
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            return Ok(permit);
        }
        let Ok(_seat) = self.queue.seats.try_acquire() else {
            if self.permits.is_closed() {
                return Err(stopping());
            }
            let text = format!("too many requests wait for a place already, see {QUEUE_FLAG} and {}", self.flag);
            return Err(ApiError::unavailable(text).of_limit(QUEUE_FLAG));
        };
        self.figures.waiting.inc();
        let waiting = Waiting(&self.figures.waiting);
        let permit = tokio::time::timeout(self.queue.wait_max, self.permit(ctx)).await;
        drop(waiting);
        permit.unwrap_or_else(|_elapsed| Err(self.full(QUEUE_TIMEOUT_FLAG)))
    }

    async fn permit(&self, ctx: &QueryContext) -> Result<OwnedSemaphorePermit, ApiError> {
        let permit = Arc::clone(&self.permits).acquire_owned();
        let permit = match ctx.remaining() {
            // A place that is free is given even to a request without time: the answer is then the work's timeout.
            Some(left) => tokio::time::timeout(left, permit).await.map_err(|_| self.full(self.flag))?,
            None => permit.await,
        };
        permit.map_err(|_closed| stopping())
    }

    /// Sends all away who wait, and all who come.
    pub(crate) fn close(&self) {
        self.permits.close();
    }

    fn full(&self, limit: &'static str) -> ApiError {
        ApiError::unavailable(format!("no place became free in time, see {}", self.flag)).of_limit(limit)
    }
}

fn stopping() -> ApiError {
    ApiError::unavailable(Interrupt::Shutdown.to_string())
}

/// Counts one that waits until it is dropped, which it is also when its client goes.
struct Waiting<'a>(&'a IntGauge);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Place {
    /// Lets somebody else in.
    pub(crate) fn lend(&mut self) {
        if self.permit.take().is_some() {
            self.gate.figures.active.dec();
        }
    }

    /// Tells whether somebody else may be in.
    pub(crate) fn is_lent(&self) -> bool {
        self.permit.is_none()
    }

    /// Waits until the place is there again, if it was lent.
    ///
    /// # Errors
    /// As [`Gate::admit`].
    pub(crate) async fn take_back(&mut self, ctx: &QueryContext) -> Result<(), ApiError> {
        if self.permit.is_none() {
            self.permit = Some(self.gate.permit(ctx).await?);
            self.gate.figures.active.inc();
        }
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.lend();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::error::ErrorKind;
    use prometheus::HistogramOpts;
    use varve_tsdb::MemoryBudget;

    fn gate_with(n_permits: usize, waiting_max: usize, wait_max: Duration) -> (Gate, GateFigures) {
        let figures = GateFigures {
            active: IntGauge::new("active", "x").unwrap(),
            waiting: IntGauge::new("waiting", "x").unwrap(),
            waited_seconds: Histogram::with_opts(HistogramOpts::new("waited", "x")).unwrap(),
        };
        let queue = Queue::new(waiting_max, wait_max);
        (Gate::new("--query.max-concurrency", n_permits, queue, figures.clone()), figures)
    }

    fn gate(n_permits: usize) -> (Gate, IntGauge) {
        let (gate, figures) = gate_with(n_permits, 10, Duration::from_secs(60));
        (gate, figures.active)
    }

    fn ctx(timeout_ms: u64) -> QueryContext {
        QueryContext::new(Duration::from_millis(timeout_ms), MemoryBudget::new("memory", 0))
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
    }

    #[test]
    fn a_full_gate_refuses_when_the_time_is_over() {
        let (gate, active) = gate(1);
        block_on(async {
            let first = gate.admit(&ctx(60_000)).await.unwrap();
            let refused = gate.admit(&ctx(10)).await.unwrap_err();
            assert_eq!(refused.kind, ErrorKind::Unavailable);
            assert_eq!(refused.message, "no place became free in time, see --query.max-concurrency");
            assert_eq!(active.get(), 1);
            drop(first);
            gate.admit(&ctx(0)).await.unwrap();
            gate.close();
            assert_eq!(gate.admit(&ctx(60_000)).await.unwrap_err().kind, ErrorKind::Unavailable);
        });
        assert_eq!(active.get(), 0);
    }

    #[test]
    fn the_queue_is_bounded_in_length_and_time_and_keeps_its_order() {
        let (gate, figures) = gate_with(1, 2, Duration::from_secs(60));
        let long = ctx(60_000);
        block_on(async {
            let first = gate.admit(&long).await.unwrap();
            let (mut second, mut third) = (Box::pin(gate.admit(&long)), Box::pin(gate.admit(&long)));
            assert!(tokio::time::timeout(Duration::ZERO, &mut second).await.is_err());
            assert!(tokio::time::timeout(Duration::ZERO, &mut third).await.is_err());
            assert_eq!(figures.waiting.get(), 2);
            let refused = gate.admit(&long).await.unwrap_err();
            assert_eq!((refused.kind, refused.limit), (ErrorKind::Unavailable, Some(QUEUE_FLAG)));
            drop(first);
            assert!(tokio::time::timeout(Duration::ZERO, &mut third).await.is_err(), "the second came before");
            drop(second.await.unwrap());
            third.await.unwrap();
        });
        assert_eq!((figures.active.get(), figures.waiting.get()), (0, 0));

        let (gate, figures) = gate_with(1, 2, Duration::from_millis(1));
        block_on(async {
            let _first = gate.admit(&long).await.unwrap();
            let refused = gate.admit(&long).await.unwrap_err();
            assert_eq!((refused.kind, refused.limit), (ErrorKind::Unavailable, Some(QUEUE_TIMEOUT_FLAG)));
        });
        assert_eq!(figures.waiting.get(), 0);
    }

    #[test]
    fn a_place_that_is_lent_serves_another_request() {
        let (gate, active) = gate(1);
        block_on(async {
            let mut first = gate.admit(&ctx(60_000)).await.unwrap();
            first.lend();
            assert_eq!(active.get(), 0);
            let second = gate.admit(&ctx(60_000)).await.unwrap();
            assert_eq!(first.take_back(&ctx(10)).await.unwrap_err().kind, ErrorKind::Unavailable);
            drop(second);
            first.take_back(&ctx(10)).await.unwrap();
            assert_eq!(active.get(), 1);
        });
        assert_eq!(active.get(), 0);
    }
}
