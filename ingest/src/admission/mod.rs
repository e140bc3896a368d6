//! Admission control: limits the resources that write requests use, and makes requests wait or
//! denies them.
//!
//! [`AdmissionControl::admit`] returns a [`Permit`], which holds the request's share of the
//! resources and releases it on drop. A request takes these steps in this order. Only steps 8 to 10
//! repeat, and a request holds no permit of step 9 while it waits in step 8. So no two requests wait
//! for each other.
//!
//! | step | bound | flag or key | metric | waits for at most | denied with |
//! | --- | --- | --- | --- | --- | --- |
//! | 1 receive the body | bytes of bodies | `--ingest.bytes-in-flight-max` | `varve_ingest_body_bytes` | no wait | 503 |
//! | 2 concurrency | active requests | `--ingest.concurrency-max` | `varve_requests_active`, `varve_requests_queued` | 30 s | queue status |
//! | 3 writable log | disk space | none | `varve_ingest_requests_total{outcome="failed"}` | queue timeout | 503 |
//! | 4 sample rate | no debt | `samples_per_second` | `varve_ingest_throttled_total{resource=~"(team_)?samples"}` | queue timeout, in a queue slot (as in step 7) | queue status |
//! | 5 memory | bytes held, by declared size | `--ingest.bytes-in-flight-max` | `varve_ingest_in_flight_bytes`, `outcome="busy"` | queue timeout | queue status |
//! | 6 decode | one request per core | none | none | queue timeout | proceeds |
//! | | *samples of known series are stored; a request whose series are all known ends here* | | | | |
//! | 7 queue slot | requests, and a quarter of the bytes of step 5 | fixed | `varve_ingest_queued_requests`, `varve_ingest_queued_bytes`, `resource="queue"` | no wait | queue status |
//! | 8 rates | samples and new series | `samples_per_second`, `new_series_per_second` | `varve_ingest_throttled_total` | queue timeout | queue status |
//! | 9 series creation | requests, and [`CREATED_PER_PERMIT_MAX`] series per permit | `--ingest.creation-concurrency-max` | `varve_ingest_series_creations_active`, `resource="series_creation"` | queue timeout | queue status |
//! | 10 yield | active requests of known series | none | none | 1 ms after each 64 series | proceeds |
//!
//! The queue timeout is `--ingest.queue-timeout`, which applies to steps 3 to 5 together, to step 6, and to steps 8 and
//! 9 together. The queue status is `--ingest.queue-timeout-status`, 503 or 429. Steps 1 and 2 stay in `bin/http`
//! (`request_body`, `gate`): a request waits there as a task, before it occupies a thread. Steps 8 to 10 repeat,
//! with one pass over the deferred series each, until all series are stored. The first pass takes a permit of step 9
//! only if one is free.
//!
//! Nor do requests wait for the memory of new series: while the process is short of memory, new
//! series are denied with the queue status (`resource="memory"`), and samples of known series are
//! stored.
//!
//! Requests do not wait for a budget of *active* series: series beyond it are rejected with 400
//! ([`budget`]). docs/decisions/ingest/0011-admission.md gives the reason for each status.
//!
//! Threads: steps 3 to 10 block the request's thread on a condition variable, or parked (6, 9),
//! with a deadline. Each wait ends when its resource is released; a wait for a rate ends when the
//! bucket has refilled or budgets change.

mod budget;
mod deferred;
mod log;
pub(crate) mod memory;
mod priority;
mod queue;
mod semaphore;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use varve_tsdb::Db;

use crate::error::WriteError;
use crate::limits::Limits;
use log::LogGate;
use memory::{Memory, Reservation};
use priority::{Priority, PriorityGuard, SERIES_BETWEEN_YIELDS};
use queue::{Length, Queue, QueueSlot};
use semaphore::{FifoSemaphore, SemaphorePermit};

pub use crate::error::Exhausted;
#[cfg(test)]
pub(crate) use budget::TeamNames;
pub use budget::{
    AMOUNT_MAX, Amounts, BudgetError, BudgetUsage, Budgets, OTHER_TEAMS, RULES_TEAM, TEAMS_MAX,
    TeamBudget, TeamStatus,
};
pub(crate) use budget::{Denied, Grant, Ledger, SeriesLimit, Team};
pub(crate) use deferred::{Deferred, DeferredSeries};

/// The sender of a request.
#[derive(Clone, Copy, Default)]
pub struct Origin<'a> {
    /// The team that the sender names, if any. All samples of the request count against the budget
    /// of this team, or of [`OTHER_TEAMS`] if [`Budgets::teams`] does not list it or `user` may not
    /// name it.
    pub team: Option<&'a str>,
    /// The authenticated user or token; `None` if the server has none.
    pub user: Option<&'a str>,
    /// A label that all series of the request get before relabeling. It replaces a label of the
    /// same name.
    pub added_label: Option<(&'a str, &'a str)>,
    /// Labels that all series of the request get. They replace labels of the same name.
    pub labels: &'a [(String, String)],
    /// Called when the request starts to wait in the queue, to release resources that it does not
    /// need there.
    pub on_queued: Option<&'a dyn Fn()>,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct AdmissionControl {
    log: LogGate,
    memory: Memory,
    /// One permit per core. If all simultaneous requests decoded concurrently, the first would
    /// finish no sooner, and a request of known series would be among the last.
    decoding: FifoSemaphore,
    queue: Queue,
    budgets: Ledger,
    creation: FifoSemaphore,
    priority: Arc<Priority>,
    queue_timeout: Duration,
    /// Set while too little memory is free for new series.
    denies_new_series: AtomicBool,
}

/// The resources that a request holds, released on drop.
pub(crate) struct Permit<'a> {
    control: &'a AdmissionControl,
    on_queued: Option<&'a dyn Fn()>,
    /// The team that the sender names, if any.
    team: Option<Team>,
    /// See [`Origin::added_label`].
    pub(crate) added_label: Option<(&'a str, &'a str)>,
    /// Labels that all series get.
    pub(crate) labels: &'a [(String, String)],
    pub(crate) memory: Reservation<'a>,
    /// Held from the start of the first pass until the first unknown series or the first wait for a
    /// sync of the log.
    priority: Option<PriorityGuard<'a>>,
    creation: Creation<'a>,
    /// The slot in the queue, and the deadline of the wait there.
    queued: Option<(QueueSlot<'a>, Instant)>,
}

/// Whether a request may create series in the current pass.
#[derive(Debug)]
enum Creation<'a> {
    NotRequested,
    Denied,
    Granted(#[expect(dead_code, reason = "held until it is dropped")] SemaphorePermit<'a>),
}

/// The resources that all requests hold now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AdmissionStats {
    /// Bytes of memory that requests hold.
    pub in_flight_bytes: u64,
    /// Requests that create series.
    pub series_creations_active: u64,
    /// Requests in the queue.
    pub queued_requests: u64,
    /// Bytes of memory that queued requests hold.
    pub queued_bytes: u64,
}

impl AdmissionControl {
    pub(crate) fn new(db: Arc<Db>, limits: &Limits) -> Self {
        let queue_max = Length {
            n_requests: limits.queued_requests_max,
            size_bytes: limits.bytes_in_flight_max / QUEUE_SHARE,
        };
        Self {
            log: LogGate::new(Arc::clone(&db)),
            memory: Memory::new(limits.bytes_in_flight_max),
            decoding: FifoSemaphore::new(
                std::thread::available_parallelism().map_or(1, usize::from),
            ),
            queue: Queue::new(queue_max),
            budgets: Ledger::new(db),
            creation: FifoSemaphore::new(limits.creation_concurrency_max),
            priority: Arc::default(),
            queue_timeout: limits.queue_timeout,
            denies_new_series: AtomicBool::new(false),
        }
    }

    /// Returns a function that waits until at most `n_active_max` requests of known series are
    /// active, for at most a millisecond. It returns how long it waited.
    pub(crate) fn yield_fn(
        &self,
        n_active_max: usize,
    ) -> impl Fn() -> Duration + Send + Sync + use<> {
        let priority = Arc::clone(&self.priority);
        move || {
            let started = Instant::now();
            if priority.yield_above(n_active_max) {
                started.elapsed()
            } else {
                Duration::ZERO
            }
        }
    }

    /// Takes steps 3 to 5 for a request with a body of `body_size` bytes that needs `size` bytes of
    /// memory. Must be called before the body is decompressed.
    ///
    /// # Errors
    /// [`WriteError::Store`] in step 3, [`WriteError::Throttled`] in step 4, [`WriteError::Busy`]
    /// in step 5.
    pub(crate) fn admit<'a>(
        &'a self,
        origin: &Origin<'a>,
        body_size: usize,
        size: usize,
    ) -> Result<Permit<'a>, WriteError> {
        let team = origin
            .team
            .map(|name| self.budgets.team_sent(name, origin.user));
        let deadline = self.deadline();
        self.log.pass_until(deadline)?;
        self.wait_for_samples(origin.on_queued, team, body_size, deadline)?;
        let memory = self.memory.reserve_until(size, deadline)?;
        Ok(self.permit(origin, team, memory))
    }

    /// Takes steps 3 to 5 for samples of rules. Without a team, no budget applies.
    ///
    /// # Errors
    /// The errors of [`AdmissionControl::admit`].
    pub(crate) fn admit_rules(
        &self,
        team: Option<Team>,
        size: usize,
    ) -> Result<Permit<'_>, WriteError> {
        let deadline = self.deadline();
        self.log.pass_until(deadline)?;
        if team.is_some() {
            self.wait_for_samples(None, team, size, deadline)?;
        }
        let memory = self.memory.reserve_until(size, deadline)?;
        Ok(self.permit(&Origin::default(), team, memory))
    }

    /// Returns a permit for samples of the server itself, which take no step and hold no resource.
    pub(crate) fn exempt(&self) -> Permit<'_> {
        self.permit(&Origin::default(), None, self.memory.reserve_nothing())
    }

    fn permit<'a>(
        &'a self,
        origin: &Origin<'a>,
        team: Option<Team>,
        memory: Reservation<'a>,
    ) -> Permit<'a> {
        Permit {
            control: self,
            on_queued: origin.on_queued,
            team,
            added_label: origin.added_label,
            labels: origin.labels,
            memory,
            priority: None,
            creation: Creation::NotRequested,
            queued: None,
        }
    }

    /// Waits while the samples of `team` are certain to be denied. `None`: the sender names no
    /// team.
    fn wait_for_samples(
        &self,
        on_queued: Option<&dyn Fn()>,
        team: Option<Team>,
        body_size: usize,
        deadline: Instant,
    ) -> Result<(), WriteError> {
        // Fast path: the budget has room.
        let Err(denied) = self.budgets.check_samples(team) else {
            return Ok(());
        };
        let team_or_none = team.unwrap_or_default();
        let deferred = Deferred::denied(team_or_none, denied);
        let _slot = self.reserve_slot(on_queued, body_size, &deferred)?;
        match self.budgets.wait_for_samples(team, deadline) {
            Ok(()) => Ok(()),
            Err(denied) => Err(self.throttled(&Deferred::denied(team_or_none, denied), None)),
        }
    }

    fn reserve_slot(
        &self,
        on_queued: Option<&dyn Fn()>,
        size: usize,
        deferred: &Deferred,
    ) -> Result<QueueSlot<'_>, WriteError> {
        let slot = self
            .queue
            .reserve(size)
            .ok_or_else(|| self.throttled(deferred, Some(Exhausted::Queue)))?;
        if let Some(on_queued) = on_queued {
            on_queued();
        }
        Ok(slot)
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.queue_timeout
    }

    fn throttled(&self, deferred: &Deferred, resource: Option<Exhausted>) -> WriteError {
        let none = (Exhausted::SeriesCreation, Team::NONE, Duration::ZERO);
        let (longest, team, wait) = deferred.exhausted().unwrap_or(none);
        let (resource, team) = match resource {
            Some(resource) => (resource, Arc::from("")),
            None => (longest, self.budgets.name(team)),
        };
        let n_series = deferred.series.len() as u64;
        WriteError::Throttled {
            resource,
            team,
            n_series,
            retry_after: wait.max(RETRY_AFTER_MIN),
        }
    }

    pub(crate) fn budgets(&self) -> &Ledger {
        &self.budgets
    }

    /// Denies all new series from now on, or no longer.
    pub(crate) fn set_denies_new_series(&self, denies: bool) {
        self.denies_new_series.store(denies, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self) -> AdmissionStats {
        let queued = self.queue.length();
        AdmissionStats {
            in_flight_bytes: self.memory.in_flight(),
            series_creations_active: self.creation.n_held() as u64,
            queued_requests: queued.n_requests as u64,
            queued_bytes: queued.size_bytes as u64,
        }
    }
}

impl<'a> Permit<'a> {
    /// Waits for a permit to decode (step 6), at most until the queue timeout, and runs `decode` with
    /// priority, with or without a permit.
    pub(crate) fn decode<R>(&self, decode: impl FnOnce() -> R) -> R {
        let _priority = self.control.priority.enter();
        let _permit = self.control.decoding.acquire_until(self.control.deadline());
        decode()
    }

    /// Starts the first pass, with priority until the first unknown series.
    pub(crate) fn start(&mut self) {
        self.priority = Some(self.control.priority.enter());
    }

    /// Ends the priority of the request, before it waits for a sync of the log.
    pub(crate) fn end_priority(&mut self) {
        self.priority = None;
    }

    /// Queues the request (step 7), after a pass that deferred series.
    ///
    /// # Errors
    /// [`WriteError::Throttled`] if the queue is full, or too little memory is free.
    pub(crate) fn enqueue(&mut self, deferred: &Deferred) -> Result<(), WriteError> {
        self.priority = None;
        // The memory of a waiting request would be missing, too.
        if let Some((Exhausted::Memory, ..)) = deferred.exhausted() {
            return Err(self.control.throttled(deferred, None));
        }
        let slot = self
            .control
            .reserve_slot(self.on_queued, self.memory.size(), deferred)?;
        self.queued = Some((slot, self.control.deadline()));
        Ok(())
    }

    /// Waits for the rates because of which series were deferred (step 8). If no rate was exhausted
    /// but the pass `stored_nothing`, waits for [`REFILL_MIN`].
    ///
    /// # Errors
    /// [`WriteError::Throttled`] at the deadline.
    pub(crate) fn wait_for_rates(
        &self,
        deferred: &Deferred,
        stored_nothing: bool,
    ) -> Result<(), WriteError> {
        let wait = match deferred.exhausted() {
            Some((_, _, wait)) => wait.max(REFILL_MIN),
            None if stored_nothing => REFILL_MIN,
            None => return Ok(()),
        };
        let left = self.deadline().saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(self.control.throttled(deferred, None));
        }
        self.control.budgets.wait(wait.min(left));
        Ok(())
    }

    /// Waits for a permit to create series in the next pass (step 9).
    ///
    /// # Errors
    /// [`WriteError::Throttled`] at the deadline.
    pub(crate) fn wait_to_create(&mut self, deferred: &Deferred) -> Result<(), WriteError> {
        let permit = self.control.creation.acquire_until(self.deadline());
        let permit = permit.ok_or_else(|| {
            self.control
                .throttled(deferred, Some(Exhausted::SeriesCreation))
        })?;
        self.creation = Creation::Granted(permit);
        Ok(())
    }

    /// Returns `true` if the request may create another series after the `n_created` of this pass.
    /// The first call of a pass tries to acquire a permit, and ends the request's priority.
    pub(crate) fn may_create(&mut self, n_created: usize) -> bool {
        self.priority = None;
        if let Creation::NotRequested = self.creation {
            self.creation = self
                .control
                .creation
                .try_acquire()
                .map_or(Creation::Denied, Creation::Granted);
        }
        !self.is_creation_over(n_created)
    }

    /// Grants a team one new series.
    ///
    /// # Errors
    /// The reason of the denial.
    pub(crate) fn admit_series(&self, team: Team) -> Result<Grant<'a>, Denied> {
        let is_denied = self.control.denies_new_series.load(Ordering::Relaxed);
        let refusal = is_denied.then_some(Denied::Temporary(Exhausted::Memory, MEMORY_RETRY_AFTER));
        self.control.budgets.admit_series(team, refusal)
    }

    /// Returns `true` if this pass may create no series after `n_created`: it was denied a permit,
    /// or has used it up.
    pub(crate) fn is_creation_over(&self, n_created: usize) -> bool {
        matches!(self.creation, Creation::Denied) || n_created >= CREATED_PER_PERMIT_MAX
    }

    /// Yields to requests of known series after every [`SERIES_BETWEEN_YIELDS`] series (step 10).
    /// Called after each created series.
    pub(crate) fn yield_after(&self, n_created: usize) {
        if n_created.is_multiple_of(SERIES_BETWEEN_YIELDS) {
            self.control.priority.yield_above(0);
        }
    }

    /// Ends a pass and releases the permit to create series.
    pub(crate) fn end_pass(&mut self) {
        self.creation = Creation::NotRequested;
    }

    /// Returns the team that the sender names, if any.
    pub(crate) fn team(&self) -> Option<Team> {
        self.team
    }

    pub(crate) fn budgets(&self) -> &'a Ledger {
        &self.control.budgets
    }

    fn deadline(&self) -> Instant {
        self.queued
            .as_ref()
            .map_or_else(|| self.control.deadline(), |(_, deadline)| *deadline)
    }
}

/// Maximum number of series that a request creates with one permit: the default batch size of
/// Prometheus' remote write. It takes tens of milliseconds, during which the next request waits.
const CREATED_PER_PERMIT_MAX: usize = 2_000;
/// Minimum wait for a rate. A pass that stores one series costs about as much as one that stores
/// many, so shorter waits waste CPU time.
const REFILL_MIN: Duration = Duration::from_millis(20);
/// Minimum `Retry-After`. Not longer, because the sender also delays samples of known series until
/// then.
const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);
/// `Retry-After` while too little memory is free for new series.
const MEMORY_RETRY_AFTER: Duration = Duration::from_secs(5);
/// Queued requests hold at most 1/`QUEUE_SHARE` of the bytes in flight, so that other requests are
/// admitted.
const QUEUE_SHARE: usize = 4;

#[cfg(test)]
impl AdmissionControl {
    pub(crate) fn hold_creation(&self) -> impl Drop + '_ {
        self.creation
            .try_acquire()
            .expect("no request creates series")
    }

    pub(crate) fn hold_slot(&self, size: usize) -> impl Drop + '_ {
        self.queue.reserve(size).expect("the queue has room")
    }

    pub(crate) fn hold_memory(&self, size: usize) -> Reservation<'_> {
        self.memory.reserve(size).expect("the memory is free")
    }
}
