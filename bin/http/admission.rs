//! Who may work at the same time: a gate per class of request, and the list of requests that are at work.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use prometheus::{Histogram, IntGauge};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use varve_tsdb::{Interrupt, QueryContext};

use super::error::ApiError;

/// Lets a bounded number of requests through at a time; the others wait, first come first served, within their time.
///
/// Clones are the same gate.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    /// The flag that sets the number.
    flag: &'static str,
    permits: Arc<Semaphore>,
    active: IntGauge,
    waited_seconds: Histogram,
}

/// A place inside the gate, until it is dropped. It can be lent to others while its owner waits for something.
#[derive(Debug)]
pub(crate) struct Place {
    gate: Gate,
    /// `None` while it is lent.
    permit: Option<OwnedSemaphorePermit>,
}

impl Gate {
    pub(crate) fn new(flag: &'static str, n_permits: usize, active: IntGauge, waited_seconds: Histogram) -> Self {
        let permits = Arc::new(Semaphore::new(n_permits.min(Semaphore::MAX_PERMITS)));
        Self { flag, permits, active, waited_seconds }
    }

    /// Waits for a place.
    ///
    /// # Errors
    /// 503 `unavailable` when the request's time is over before there is one, or the server stops.
    pub(crate) async fn admit(&self, ctx: &QueryContext) -> Result<Place, ApiError> {
        let started = Instant::now();
        let permit = self.permit(ctx).await?;
        self.waited_seconds.observe(started.elapsed().as_secs_f64());
        self.active.inc();
        Ok(Place { gate: self.clone(), permit: Some(permit) })
    }

    async fn permit(&self, ctx: &QueryContext) -> Result<OwnedSemaphorePermit, ApiError> {
        let permit = Arc::clone(&self.permits).acquire_owned();
        let permit = match ctx.remaining() {
            // A place that is free is given even to a request without time: the answer is then the work's timeout.
            Some(left) => tokio::time::timeout(left, permit).await.map_err(|_| self.full())?,
            None => permit.await,
        };
        permit.map_err(|_closed| ApiError::unavailable(Interrupt::Shutdown.to_string()))
    }

    /// Sends all away who wait, and all who come.
    pub(crate) fn close(&self) {
        self.permits.close();
    }

    fn full(&self) -> ApiError {
        ApiError::unavailable(format!("no place became free in time, see {}", self.flag))
    }
}

impl Place {
    /// Lets somebody else in.
    pub(crate) fn lend(&mut self) {
        if self.permit.take().is_some() {
            self.gate.active.dec();
        }
    }

    /// Waits until the place is there again, if it was lent.
    ///
    /// # Errors
    /// As [`Gate::admit`].
    pub(crate) async fn take_back(&mut self, ctx: &QueryContext) -> Result<(), ApiError> {
        if self.permit.is_none() {
            self.permit = Some(self.gate.permit(ctx).await?);
            self.gate.active.inc();
        }
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.lend();
    }
}

/// The requests that are at work.
#[derive(Debug, Default)]
pub(crate) struct Running {
    next_id: AtomicU64,
    requests: Mutex<HashMap<u64, QueryContext>>,
}

/// A place on the list, until it is dropped.
#[derive(Debug)]
pub(crate) struct Entry {
    running: Arc<Running>,
    id: u64,
}

impl Running {
    /// Puts a request on the list.
    pub(crate) fn enter(self: &Arc<Self>, ctx: &QueryContext) -> Entry {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.requests().insert(id, ctx.clone());
        Entry { running: Arc::clone(self), id }
    }

    /// Ends all requests.
    pub(crate) fn interrupt_all(&self, reason: Interrupt) {
        self.requests().values().for_each(|ctx| ctx.interrupt(reason));
    }

    /// Counts the requests.
    pub(crate) fn len(&self) -> usize {
        self.requests().len()
    }

    fn requests(&self) -> MutexGuard<'_, HashMap<u64, QueryContext>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.running.requests().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::error::ErrorKind;
    use prometheus::HistogramOpts;
    use std::time::Duration;
    use varve_tsdb::MemoryBudget;

    fn gate(n_permits: usize) -> (Gate, IntGauge) {
        let active = IntGauge::new("active", "x").unwrap();
        let waited = Histogram::with_opts(HistogramOpts::new("waited", "x")).unwrap();
        (Gate::new("--query.max-concurrency", n_permits, active.clone(), waited), active)
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

    #[test]
    fn requests_at_work_can_be_ended() {
        let running = Arc::new(Running::default());
        let (gone, here) = (ctx(60_000), ctx(60_000));
        drop(running.enter(&gone));
        let _entry = running.enter(&here);
        running.interrupt_all(Interrupt::Shutdown);
        assert_eq!((running.len(), gone.interrupted(), here.interrupted()), (1, None, Some(Interrupt::Shutdown)));
    }
}
