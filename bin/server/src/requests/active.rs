//! Active requests for data and writes: queued, being processed, or being sent to their clients.
//!
//! Used by /api/v1/status/queries, the active-request log, shutdown, and the choice of the request
//! to interrupt when memory is short.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use parking_lot::Mutex;
use varve_context::{Interrupt, MemoryBudget, MemoryReclaimer, QueryContext};
use varve_system::excerpt::truncate;
use varve_wire::active_requests::{self, Record, RequestState};

use super::log::{ActiveRequestLog, Place, TEXT_SIZE_MAX};
use super::record::{Active, ActiveClass, RequestClass, RequestRecord};

/// All active requests.
#[derive(Debug, Default)]
pub struct ActiveRequests {
    /// Requests by id.
    requests: Mutex<HashMap<u64, Arc<RequestRecord>>>,
    /// Opened with the store, in its directory.
    log: OnceLock<ActiveRequestLog>,
}

/// The registration of an active request, until it is dropped.
#[derive(Debug)]
pub struct Registration {
    all: Arc<ActiveRequests>,
    request: Arc<RequestRecord>,
}

impl ActiveRequests {
    /// Registers a request, which works in `ctx`.
    pub(super) fn register(
        self: &Arc<Self>,
        request: &Arc<RequestRecord>,
        class: ActiveClass,
        ctx: &QueryContext,
    ) -> Registration {
        request.activate(class, ctx.clone());
        self.requests.lock().insert(request.id, Arc::clone(request));
        Registration {
            all: Arc::clone(self),
            request: Arc::clone(request),
        }
    }

    /// Opens the active-request log in the data directory, for a process that started at
    /// `started_ms`. Logs which requests were active when the previous process ended.
    pub fn open_log(&self, dir: &Path, started_ms: i64) {
        match ActiveRequestLog::create(dir, std::process::id(), started_ms) {
            Ok(log) => drop(self.log.set(log)),
            Err(error) => tracing::warn!(?dir, %error, "Cannot create the active-request log"),
        }
        if let Ok(previous) = active_requests::read(&dir.join(active_requests::PREVIOUS_FILE))
            && !previous.is_clean_shutdown
        {
            let active = previous.active();
            let n_active = active.len();
            let heaviest = active
                .first()
                .map(|record| truncate(&record.text, LOGGED_SIZE_MAX));
            let see = format!("varve status last-words {}", dir.display());
            tracing::warn!(
                n_active,
                heaviest,
                see,
                "The previous process did not shut down cleanly"
            );
        }
    }

    /// Records a clean shutdown in the log.
    pub fn close_log(&self) {
        if let Some(log) = self.log.get() {
            log.close();
        }
    }

    /// Returns the number of records that the log could not take.
    pub(crate) fn n_dropped(&self) -> u64 {
        self.log.get().map_or(0, ActiveRequestLog::n_dropped)
    }

    /// Records all requests in the log.
    pub fn record_all(&self) {
        for request in self.list() {
            if let Some(active) = request.active() {
                self.record(&request, active.state(), "");
            }
        }
    }

    /// Writes the state of a request, and the reason if it failed, to the log. A request that ends
    /// before it is recorded leaves no record.
    fn record(&self, request: &RequestRecord, state: RequestState, reason: &str) {
        let Some(log) = self.log.get() else { return };
        let Some(active) = request.active() else {
            return;
        };
        let mut place = active.place.lock();
        if state.is_end() && *place == Place::None {
            *place = Place::Ended;
        }
        if *place != Place::Ended {
            log.write(&mut place, &log_record(request, active, state, reason));
        }
    }

    /// Interrupts all requests.
    pub fn interrupt_all(&self, reason: Interrupt) {
        for request in self.list() {
            if let Some(active) = request.active() {
                active.ctx.interrupt(reason);
            }
        }
    }

    /// Interrupts a request for data. Returns `false` if there is none with this id.
    pub fn kill(&self, id: u64) -> bool {
        let requests = self.requests.lock();
        let Some(active) = requests.get(&id).and_then(|request| request.active()) else {
            return false;
        };
        let is_read = active.class != RequestClass::Write.into();
        if is_read {
            active.ctx.interrupt(Interrupt::Killed);
        }
        is_read
    }

    /// Returns all requests, the oldest first.
    pub fn list(&self) -> Vec<Arc<RequestRecord>> {
        let mut all: Vec<_> = self.requests.lock().values().cloned().collect();
        all.sort_unstable_by_key(|request| request.id);
        all
    }

    /// Returns the number of requests.
    #[expect(clippy::len_without_is_empty, reason = "nothing needs it")]
    pub fn len(&self) -> usize {
        self.requests.lock().len()
    }

    /// Interrupts the request that holds the most memory, unless an interrupted request still holds
    /// memory. Returns `true` if memory is about to be freed.
    pub fn interrupt_heaviest(&self, reason: Interrupt) -> bool {
        self.interrupt_heavier_than(0, None, reason)
    }

    /// Interrupts the heaviest request that holds more than `size` bytes, other than `asking`,
    /// unless an interrupted request still holds memory.
    fn interrupt_heavier_than(
        &self,
        size: usize,
        asking: Option<&MemoryBudget>,
        reason: Interrupt,
    ) -> bool {
        let requests = self.requests.lock();
        let mut heaviest: Option<(usize, &RequestRecord, &QueryContext)> = None;
        for request in requests.values() {
            let Some(Active { class, ctx, .. }) = request.active() else {
                continue;
            };
            let held = ctx.memory().used();
            let is_asking = asking.is_some_and(|asking| asking.is(ctx.memory()));
            // Writes hold little memory, and an interrupted one would be retried.
            if held == 0 || is_asking || *class == RequestClass::Write.into() {
                continue;
            }
            if ctx.interrupted().is_some() {
                return true;
            }
            if heaviest.is_none_or(|(most, ..)| held > most) {
                heaviest = Some((held, request, ctx));
            }
        }
        let Some((held, request, ctx)) = heaviest else {
            return false;
        };
        if held <= size {
            return false;
        }
        ctx.interrupt(reason);
        let query = truncate(&request.parameters().text, LOGGED_SIZE_MAX);
        tracing::warn!(id = request.id, query, bytes = held, %reason, "Heaviest request interrupted");
        true
    }
}

/// Returns what the log keeps of a request.
fn log_record(
    request: &RequestRecord,
    active: &Active,
    state: RequestState,
    reason: &str,
) -> Record {
    let ctx = &active.ctx;
    Record {
        state,
        id: request.id,
        started_ms: request.started.as_millisecond(),
        recorded_ms: Timestamp::now().as_millisecond(),
        held_bytes: ctx.memory().used() as u64,
        peak_bytes: ctx.memory().peak() as u64,
        n_series: ctx.n_series(),
        n_samples: ctx.n_samples(),
        route: request.route.clone(),
        client: request
            .client
            .map(|client| client.to_string())
            .unwrap_or_default(),
        user: request.user.to_string(),
        user_agent: request.user_agent.clone(),
        reason: reason.to_owned(),
        grafana: request.grafana.clone(),
        text: truncate(&request.parameters().text, TEXT_SIZE_MAX).to_owned(),
    }
}

/// Maximum bytes of a query in a log message.
const LOGGED_SIZE_MAX: usize = 1000;

impl MemoryReclaimer for ActiveRequests {
    fn make_room(&self, asking: &MemoryBudget, size: usize) -> bool {
        let wanted = asking.used().saturating_add(size);
        let is_interrupted = self
            .requests
            .lock()
            .values()
            .filter_map(|request| request.active())
            .any(|active| asking.is(active.ctx.memory()) && active.ctx.interrupted().is_some());
        !is_interrupted && self.interrupt_heavier_than(wanted, Some(asking), Interrupt::Heaviest)
    }
}

impl Registration {
    /// Returns the request.
    pub fn request(&self) -> &Arc<RequestRecord> {
        &self.request
    }

    /// Notes that work on the request begins.
    pub fn begin(&self) {
        if let Some(active) = self.request.active() {
            active.begin();
        }
    }

    /// Records in the log that work on the request has begun.
    pub fn record_start(&self) {
        self.all.record(&self.request, RequestState::Working, "");
    }

    /// Records in the log that the request has ended, with the reason if it failed.
    pub(super) fn record_end(&self, reason: Option<&str>) {
        let state = if reason.is_some() {
            RequestState::Failed
        } else {
            RequestState::Completed
        };
        self.all
            .record(&self.request, state, reason.unwrap_or_default());
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // Frees the slot of a request whose end was not recorded: it was rejected, its client left,
        // or it panicked.
        self.record_end(Some("ended without a result"));
        self.all.requests.lock().remove(&self.request.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;
    use varve_wire::active_requests::GrafanaSource;

    use tempfile::TempDir;
    use varve_context::Limit;

    fn ctx(memory: &MemoryBudget) -> QueryContext {
        QueryContext::new(
            Duration::from_secs(60),
            memory.child(Limit::Other("one"), 1000),
        )
    }

    fn register(
        active: &Arc<ActiveRequests>,
        class: RequestClass,
        ctx: &QueryContext,
    ) -> Registration {
        let request =
            RequestRecord::new("GET", "/x".into(), None, "", GrafanaSource::default(), None);
        active.register(&request, class.into(), ctx)
    }

    /// Returns requests with a log in a new directory.
    fn logged() -> (TempDir, Arc<ActiveRequests>) {
        let dir = TempDir::new().unwrap();
        let active = Arc::<ActiveRequests>::default();
        active.open_log(dir.path(), 0);
        (dir, active)
    }

    #[test]
    fn active_requests_can_be_listed_and_interrupted() {
        let active = Arc::new(ActiveRequests::default());
        let all = MemoryBudget::new(Limit::Other("all"), 1000);
        let gone = ctx(&all);
        let first = ctx(&all);
        let second = ctx(&all);
        drop(register(&active, RequestClass::Query, &gone));
        let entries = [&first, &second].map(|ctx| register(&active, RequestClass::Metadata, ctx));
        entries[1].begin();
        let states: Vec<_> = active
            .list()
            .iter()
            .map(|request| request.active().unwrap().state().name())
            .collect();
        assert_eq!(states, ["waiting", "working"]);
        assert!(active.kill(entries[1].request.id) && !active.kill(u64::MAX));
        active.interrupt_all(Interrupt::Shutdown);
        let interrupted = [&gone, &first, &second].map(QueryContext::interrupted);
        assert_eq!(
            interrupted,
            [None, Some(Interrupt::Shutdown), Some(Interrupt::Killed)]
        );
        assert_eq!(active.len(), 2);
    }

    #[test]
    fn a_request_that_ends_before_it_is_recorded_leaves_no_record() {
        let (dir, active) = logged();
        let memory = MemoryBudget::new(Limit::Other("all"), 1000);
        let register_write = || register(&active, RequestClass::Write, &ctx(&memory));
        let ends = [None, Some("no space")];
        for reason in ends {
            let short = register_write();
            short.record_end(reason);
            // The update of all requests may have listed it before its end.
            active.record_all();
        }
        drop(register_write());
        let long = ends.map(|reason| (register_write(), reason));
        active.record_all();
        for (long, reason) in &long {
            long.record_end(*reason);
        }
        let found = active_requests::read(&dir.path().join(active_requests::FILE)).unwrap();
        let found: Vec<_> = found
            .records
            .iter()
            .map(|of| (of.id, of.state, of.reason.as_str()))
            .collect();
        let [completed, failed] = long.each_ref().map(|(long, _)| long.request.id);
        assert_eq!(
            found,
            [
                (completed, RequestState::Completed, ""),
                (failed, RequestState::Failed, "no space")
            ]
        );
    }

    #[test]
    fn a_request_that_ends_without_a_result_frees_its_slot() {
        let (dir, active) = logged();
        let memory = MemoryBudget::new(Limit::Other("all"), 1000);
        for _ in 0..3000 {
            let _rejected = register(&active, RequestClass::Query, &ctx(&memory));
            active.record_all();
        }
        assert_eq!(active.n_dropped(), 0);
        let found = active_requests::read(&dir.path().join(active_requests::FILE)).unwrap();
        assert!(
            found
                .records
                .iter()
                .all(|of| (of.state, &*of.reason)
                    == (RequestState::Failed, "ended without a result"))
        );
    }

    #[test]
    fn the_heaviest_request_is_interrupted_not_the_newest() {
        let active = Arc::new(ActiveRequests::default());
        let all = MemoryBudget::with_reclaimer(
            Limit::Other("all"),
            100,
            Arc::<ActiveRequests>::clone(&active),
        );
        let contexts = [ctx(&all), ctx(&all), ctx(&all)];
        let _entries = contexts
            .each_ref()
            .map(|ctx| register(&active, RequestClass::Query, ctx));
        let [heavy, light, newest] = &contexts;
        let mut of_heavy = heavy.charge();
        let mut of_light = light.charge();
        let mut of_newest = newest.charge();
        of_heavy.grow(70).unwrap();
        of_light.grow(30).unwrap();
        // The heavy one frees its memory as soon as it sees the interrupt, as its loops do.
        let heavy_thread = thread::spawn({
            let heavy = heavy.clone();
            move || {
                while heavy.check().is_ok() {
                    thread::yield_now();
                }
                drop(of_heavy);
            }
        });
        of_newest.grow(20).unwrap();
        heavy_thread.join().unwrap();
        assert_eq!(
            contexts.each_ref().map(QueryContext::interrupted),
            [Some(Interrupt::Heaviest), None, None]
        );
        assert_eq!(all.used(), 50);
        // The heaviest request itself is rejected at once. No other one is interrupted for it.
        assert!(of_light.grow(60).is_err());
        assert_eq!([light.interrupted(), newest.interrupted()], [None, None]);
    }

    #[test]
    fn requests_that_need_memory_at_once_do_not_wait_for_each_other() {
        let active = Arc::new(ActiveRequests::default());
        let all = MemoryBudget::with_reclaimer(
            Limit::Other("all"),
            100,
            Arc::<ActiveRequests>::clone(&active),
        );
        let work = |size: usize| {
            let active = Arc::clone(&active);
            let ctx = ctx(&all);
            thread::spawn(move || {
                let _entry = register(&active, RequestClass::Query, &ctx);
                let mut charge = ctx.charge();
                (0..1000).try_for_each(|_| {
                    ctx.check()?;
                    charge.grow(size)
                })
            })
        };
        // Each needs more than there is: all fail, after one wait each.
        let failed: Vec<_> = (1..=4).map(work).collect();
        assert!(
            failed
                .into_iter()
                .all(|thread| thread.join().unwrap().is_err())
        );
        assert_eq!(all.used(), 0);
    }
}
