//! Concurrency limits: one gate per class of requests, with a bounded queue.
//!
//! Invariants
//! 1. A gate has a fixed number of permits, and at most [`QueueLimits::len_max`] requests wait for
//!    their first one. For each tenant with a limit of reads, at most as many requests wait for a
//!    permit of that tenant.
//! 2. Waiting users get permits in turn, as [`FairSemaphore`] describes. Classes do not wait for
//!    each other.
//! 3. A request waits at most until its deadline, at most [`QueueLimits::timeout`] for a permit of
//!    its tenant, and at most as long for its first permit of the gate.

use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus::{Histogram, IntGauge};
use varve_context::{Interrupt, QueryContext};
use varve_server::requests::fair_semaphore::{Denied, FairPermit, FairSemaphore};

use super::metrics::Counted;
use crate::error::{ApiError, Result};

/// Bounds the number of concurrent requests. Clones share the gate.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    /// The flag that sets the number of permits, for errors.
    flag: &'static str,
    permits: FairSemaphore,
    queue: QueueLimits,
    metrics: GateMetrics,
}

/// Bounds of the queue before a gate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueLimits {
    /// Maximum number of queued requests.
    len_max: usize,
    /// The flag that sets `len_max`, for errors.
    len_flag: &'static str,
    /// Maximum time in the queue, set by [`QUEUE_TIMEOUT_FLAG`] for reads. The wait of a write ends
    /// with its deadline.
    timeout: Duration,
}

/// Metrics of a gate.
#[derive(Debug, Clone)]
pub(crate) struct GateMetrics {
    pub(crate) active: IntGauge,
    pub(crate) queued: IntGauge,
    pub(crate) queue_seconds: Histogram,
}

/// The flag that bounds the length of a queue of reads.
const READS_QUEUED_FLAG: &str = "--query.max-queued";
/// The flag that bounds the length of the queue of writes. HTTP/2 allows more requests than
/// connections.
const WRITES_QUEUED_FLAG: &str = "--web.max-connections";
/// The flag that bounds the time in a queue of reads.
const QUEUE_TIMEOUT_FLAG: &str = "--query.queue-timeout";
/// The reason of a request whose own deadline ends its waiting.
const DEADLINE: &str = "deadline of the request";

/// The key of the maximum number of active reads of a tenant in the web configuration.
const TENANT_READS_KEY: &str = "tenants.limits.concurrency";

/// A permit of a gate, released on drop. The owner may also release it earlier, while the request
/// waits for its client.
#[derive(Debug)]
pub(crate) struct Permit {
    gate: Gate,
    user: Arc<str>,
    /// `None` while it is released.
    permit: Option<FairPermit>,
    /// The permit of the request's tenant, held until the request ends.
    _tenant_permit: Option<FairPermit>,
}

impl QueueLimits {
    /// Returns the queue of a class of reads.
    pub(crate) fn of_reads(len_max: usize, timeout: Duration) -> Self {
        Self {
            len_max,
            len_flag: READS_QUEUED_FLAG,
            timeout,
        }
    }

    /// Returns the queue of writes. Only the deadline of a write bounds its time.
    pub(crate) fn of_writes(connections_max: usize) -> Self {
        Self {
            len_max: connections_max,
            len_flag: WRITES_QUEUED_FLAG,
            timeout: Duration::MAX,
        }
    }
}

impl Gate {
    pub(crate) fn new(
        flag: &'static str,
        n_permits: usize,
        queue: QueueLimits,
        metrics: GateMetrics,
    ) -> Self {
        Self {
            flag,
            permits: FairSemaphore::new(n_permits),
            queue,
            metrics,
        }
    }

    /// Waits for a permit for a request of `user`, first for one of its tenant's `reads`, if their
    /// number is limited.
    ///
    /// # Errors
    /// 503 `unavailable` if the queue is full, no permit becomes free in time, or the server is
    /// stopping.
    pub(crate) async fn admit(
        &self,
        user: &Arc<str>,
        reads: Option<&FairSemaphore>,
        ctx: &QueryContext,
    ) -> Result<Permit> {
        let started = Instant::now();
        let tenant_permit = match reads {
            Some(reads) => Some(self.admit_to_tenant(reads, ctx).await?),
            None => None,
        };
        let permit = match self.permits.try_acquire(user) {
            // Fast path: a permit is free.
            Some(permit) => permit,
            None => {
                // Also decremented if the client disconnects, because the future is dropped.
                let queued = Counted::new(&self.metrics.queued);
                let permit = tokio::time::timeout(
                    self.queue.timeout,
                    self.acquire(user, ctx, Some(self.queue.len_max)),
                )
                .await;
                drop(queued);
                permit.unwrap_or_else(|_elapsed| {
                    Err(self.timed_out(QUEUE_TIMEOUT_FLAG, QUEUE_TIMEOUT_FLAG))
                })?
            }
        };
        self.metrics
            .queue_seconds
            .observe(started.elapsed().as_secs_f64());
        self.metrics.active.inc();
        Ok(Permit {
            gate: self.clone(),
            user: Arc::clone(user),
            permit: Some(permit),
            _tenant_permit: tenant_permit,
        })
    }

    /// Waits for a permit of a tenant, whose users are served in the order of arrival.
    async fn admit_to_tenant(
        &self,
        reads: &FairSemaphore,
        ctx: &QueryContext,
    ) -> Result<FairPermit> {
        let anyone = Arc::from("");
        // Fast path: a permit is free.
        if let Some(permit) = reads.try_acquire(&anyone) {
            return Ok(permit);
        }
        let _queued = Counted::new(&self.metrics.queued);
        let timeout = ctx
            .remaining()
            .map_or(self.queue.timeout, |left| left.min(self.queue.timeout));
        match tokio::time::timeout(timeout, reads.acquire(&anyone, Some(self.queue.len_max))).await
        {
            Ok(permit) => permit.map_err(|denied| self.denied(denied, TENANT_READS_KEY)),
            Err(_elapsed) => {
                let reason = if timeout < self.queue.timeout {
                    DEADLINE
                } else {
                    QUEUE_TIMEOUT_FLAG
                };
                let text =
                    format!("no permit of {TENANT_READS_KEY} became free in time ({reason})");
                Err(ApiError::unavailable(text).with_limit(TENANT_READS_KEY))
            }
        }
    }

    async fn acquire(
        &self,
        user: &Arc<str>,
        ctx: &QueryContext,
        queued_max: Option<usize>,
    ) -> Result<FairPermit> {
        let permit = self.permits.acquire(user, queued_max);
        let permit = match ctx.remaining() {
            // A free permit is granted even after the request's deadline. The work itself then
            // reports the timeout.
            Some(left) => tokio::time::timeout(left, permit)
                .await
                .map_err(|_| self.timed_out(DEADLINE, self.flag))?,
            None => permit.await,
        };
        permit.map_err(|denied| self.denied(denied, self.flag))
    }

    /// Rejects further requests and those that wait for a permit of the gate. Those that wait for
    /// one of their tenant are rejected when they get it.
    pub(crate) fn close(&self) {
        self.permits.close();
    }

    /// Returns the error of a request that got no permit of `limit`.
    fn denied(&self, denied: Denied, limit: &str) -> ApiError {
        match denied {
            Denied::Closed => ApiError::unavailable(Interrupt::Shutdown.to_string()),
            Denied::QueueFull => {
                let QueueLimits {
                    len_max, len_flag, ..
                } = self.queue;
                let text = format!(
                    "{len_max} requests are queued, the limit of {len_flag}, for a permit of {limit}"
                );
                ApiError::unavailable(text).with_limit(len_flag)
            }
        }
    }

    fn timed_out(&self, reason: &str, limit: &'static str) -> ApiError {
        let text = format!("no permit of {} became free in time ({reason})", self.flag);
        ApiError::unavailable(text).with_limit(limit)
    }
}

impl Permit {
    /// Releases the permit, so that another request may run.
    pub(crate) fn release(&mut self) {
        if self.permit.take().is_some() {
            self.gate.metrics.active.dec();
        }
    }

    /// Returns `true` if the permit is released.
    pub(crate) fn is_released(&self) -> bool {
        self.permit.is_none()
    }

    /// Waits for a permit again if it was released. Does not count for the length of the queue: the
    /// number of requests that wait for their clients is bounded by the number of connections.
    ///
    /// # Errors
    /// The errors of [`Gate::admit`].
    pub(crate) async fn reacquire(&mut self, ctx: &QueryContext) -> Result<()> {
        if self.permit.is_none() {
            self.permit = Some(self.gate.acquire(&self.user, ctx, None).await?);
            self.gate.metrics.active.inc();
        }
        Ok(())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use prometheus::HistogramOpts;
    use varve_context::{Limit, MemoryBudget};

    fn gate_with(n_permits: usize, queued_max: usize, timeout: Duration) -> (Gate, GateMetrics) {
        let metrics = GateMetrics {
            active: IntGauge::new("active", "x").unwrap(),
            queued: IntGauge::new("queued", "x").unwrap(),
            queue_seconds: Histogram::with_opts(HistogramOpts::new("queue", "x")).unwrap(),
        };
        let queue = QueueLimits::of_reads(queued_max, timeout);
        (
            Gate::new("--query.max-concurrency", n_permits, queue, metrics.clone()),
            metrics,
        )
    }

    fn gate(n_permits: usize) -> (Gate, IntGauge) {
        let (gate, metrics) = gate_with(n_permits, 10, Duration::from_secs(60));
        (gate, metrics.active)
    }

    fn ctx(timeout_ms: u64) -> QueryContext {
        QueryContext::new(
            Duration::from_millis(timeout_ms),
            MemoryBudget::new(Limit::Other("memory"), 0),
        )
    }

    fn user() -> Arc<str> {
        Arc::from("")
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
            .block_on(future)
    }

    #[test]
    fn a_full_gate_rejects_at_the_deadline() {
        let (gate, active) = gate(1);
        block_on(async {
            let first = gate.admit(&user(), None, &ctx(60_000)).await.unwrap();
            let rejected = gate.admit(&user(), None, &ctx(10)).await.unwrap_err();
            assert_eq!(rejected.kind, ErrorKind::Unavailable);
            assert_eq!(
                rejected.message,
                "no permit of --query.max-concurrency became free in time (deadline of the request)"
            );
            assert_eq!(active.get(), 1);
            drop(first);
            gate.admit(&user(), None, &ctx(0)).await.unwrap();
            gate.close();
            assert_eq!(
                gate.admit(&user(), None, &ctx(60_000))
                    .await
                    .unwrap_err()
                    .kind,
                ErrorKind::Unavailable
            );
        });
        assert_eq!(active.get(), 0);
    }

    #[test]
    fn the_queue_is_bounded_in_length_and_time_and_keeps_its_order() {
        let (gate, metrics) = gate_with(1, 2, Duration::from_secs(60));
        let long = ctx(60_000);
        block_on(async {
            let first = gate.admit(&user(), None, &long).await.unwrap();
            let user = user();
            let mut second = Box::pin(gate.admit(&user, None, &long));
            let mut third = Box::pin(gate.admit(&user, None, &long));
            assert!(
                tokio::time::timeout(Duration::ZERO, &mut second)
                    .await
                    .is_err()
            );
            assert!(
                tokio::time::timeout(Duration::ZERO, &mut third)
                    .await
                    .is_err()
            );
            assert_eq!(metrics.queued.get(), 2);
            let rejected = gate.admit(&user, None, &long).await.unwrap_err();
            assert_eq!(
                (rejected.kind, rejected.limit.map(Limit::name)),
                (ErrorKind::Unavailable, Some(READS_QUEUED_FLAG))
            );
            drop(first);
            assert!(
                tokio::time::timeout(Duration::ZERO, &mut third)
                    .await
                    .is_err(),
                "the second arrived first"
            );
            drop(second.await.unwrap());
            third.await.unwrap();
        });
        assert_eq!((metrics.active.get(), metrics.queued.get()), (0, 0));

        let (gate, metrics) = gate_with(1, 2, Duration::from_millis(1));
        block_on(async {
            let _first = gate.admit(&user(), None, &long).await.unwrap();
            let rejected = gate.admit(&user(), None, &long).await.unwrap_err();
            assert_eq!(
                (rejected.kind, rejected.limit.map(Limit::name)),
                (ErrorKind::Unavailable, Some(QUEUE_TIMEOUT_FLAG))
            );
        });
        assert_eq!(metrics.queued.get(), 0);
    }

    #[test]
    fn the_queue_of_writes_is_bounded_by_connections_and_its_deadline() {
        let (of_reads, metrics) = gate_with(1, 1, Duration::ZERO);
        let writes = Gate::new(
            "--ingest.concurrency-max",
            1,
            QueueLimits::of_writes(1),
            of_reads.metrics,
        );
        let user = user();
        let long = ctx(60_000);
        block_on(async {
            let first = writes.admit(&user, None, &long).await.unwrap();
            let mut second = Box::pin(writes.admit(&user, None, &long));
            assert!(
                tokio::time::timeout(Duration::ZERO, &mut second)
                    .await
                    .is_err()
            );
            let rejected = writes.admit(&user, None, &long).await.unwrap_err();
            assert_eq!(
                (rejected.kind, rejected.limit.map(Limit::name)),
                (ErrorKind::Unavailable, Some("--web.max-connections"))
            );
            assert_eq!(
                rejected.message,
                "1 requests are queued, the limit of --web.max-connections, for a permit of --ingest.concurrency-max"
            );
            drop(first);
            let _second = second.await.unwrap();
            let rejected = writes.admit(&user, None, &ctx(1)).await.unwrap_err();
            assert_eq!(
                (rejected.kind, rejected.limit.map(Limit::name)),
                (ErrorKind::Unavailable, Some("--ingest.concurrency-max"))
            );
            assert_eq!(
                rejected.message,
                "no permit of --ingest.concurrency-max became free in time (deadline of the request)"
            );
        });
        assert_eq!((metrics.active.get(), metrics.queued.get()), (0, 0));
    }

    #[test]
    fn the_queue_of_a_tenant_is_bounded_and_counted() {
        let (gate, metrics) = gate_with(9, 1, Duration::from_secs(60));
        let reads = FairSemaphore::new(1);
        let user = Arc::from("ann");
        let long = ctx(60_000);
        block_on(async {
            let first = gate.admit(&user, Some(&reads), &long).await.unwrap();
            let mut second = Box::pin(gate.admit(&user, Some(&reads), &long));
            assert!(
                tokio::time::timeout(Duration::ZERO, &mut second)
                    .await
                    .is_err()
            );
            assert_eq!((metrics.active.get(), metrics.queued.get()), (1, 1));
            let rejected = gate.admit(&user, Some(&reads), &long).await.unwrap_err();
            assert_eq!(
                rejected.message,
                "1 requests are queued, the limit of --query.max-queued, for a permit of tenants.limits.concurrency"
            );
            let of_another_tenant = gate.admit(&user, None, &long).await.unwrap();
            drop((first, of_another_tenant));
            second.await.unwrap();
            let rejected = gate
                .admit(&user, Some(&FairSemaphore::new(0)), &ctx(1))
                .await
                .unwrap_err();
            assert_eq!(rejected.limit, Some(Limit::Other(TENANT_READS_KEY)));
            assert!(
                rejected.message.contains("deadline of the request"),
                "{}",
                rejected.message
            );
        });
        assert_eq!((metrics.active.get(), metrics.queued.get()), (0, 0));
    }

    #[test]
    fn a_released_permit_admits_another_request() {
        let (gate, active) = gate(1);
        block_on(async {
            let mut first = gate.admit(&user(), None, &ctx(60_000)).await.unwrap();
            first.release();
            assert_eq!(active.get(), 0);
            let second = gate.admit(&user(), None, &ctx(60_000)).await.unwrap();
            assert_eq!(
                first.reacquire(&ctx(10)).await.unwrap_err().kind,
                ErrorKind::Unavailable
            );
            drop(second);
            first.reacquire(&ctx(10)).await.unwrap();
            assert_eq!(active.get(), 1);
        });
        assert_eq!(active.get(), 0);
    }
}
