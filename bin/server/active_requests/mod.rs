//! The requests for data and the writes that are there: waiting, at work, or being written to their clients.
//!
//! Whoever wants to know what the server does looks here: the list at /api/v1/status/queries, the request ring, the
//! shutdown, and the choice of who has to end when memory is short.

pub(crate) mod log;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use varve_tsdb::{Interrupt, MemoryBudget, QueryContext, Relief};

use super::active_requests::log::{Record, Ring};
use super::request_context::Call;

/// Which gate a request goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Query,
    Metadata,
    RemoteRead,
    Write,
}

impl Class {
    /// Returns the class as metrics and lists name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Query => "query",
            Self::Metadata => "metadata",
            Self::RemoteRead => "remote_read",
            Self::Write => "write",
        }
    }
}

/// How far a request has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stage {
    /// It waits for a place.
    Waiting = 1,
    /// It is worked on, or its answer is being written.
    Working = 2,
}

impl Stage {
    /// Returns the stage as lists name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Working => "working",
        }
    }
}

/// A request on the list.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) call: Arc<Call>,
    pub(crate) class: Class,
    pub(crate) ctx: QueryContext,
    came: Instant,
    /// How long it waited, once it is at work.
    waited: OnceLock<Duration>,
    stage: AtomicU8,
    /// Its slot in the request ring.
    slot: Mutex<Option<u32>>,
}

impl Request {
    /// Notes in the ring where the request stands.
    pub(crate) fn note_in(&self, ring: &Ring, record: &Record) {
        ring.note(&mut self.slot.lock().unwrap_or_else(PoisonError::into_inner), record);
    }

    /// Notes that the work begins.
    pub(crate) fn begin(&self) {
        self.waited.get_or_init(|| self.came.elapsed());
        self.stage.store(Stage::Working as u8, Ordering::Relaxed);
    }

    pub(crate) fn stage(&self) -> Stage {
        if self.stage.load(Ordering::Relaxed) == Stage::Waiting as u8 { Stage::Waiting } else { Stage::Working }
    }

    /// Returns the time since it came.
    pub(crate) fn age(&self) -> Duration {
        self.came.elapsed()
    }

    /// Returns the time that it waited, or has been waiting.
    pub(crate) fn waited(&self) -> Duration {
        self.waited.get().copied().unwrap_or_else(|| self.came.elapsed())
    }
}

/// The list.
#[derive(Debug, Default)]
pub(crate) struct Running {
    /// By the number of the call.
    requests: Mutex<HashMap<u64, Arc<Request>>>,
}

/// A place on the list, until it is dropped.
#[derive(Debug)]
pub(crate) struct Entry {
    running: Arc<Running>,
    pub(crate) request: Arc<Request>,
}

impl Running {
    /// Puts a request on the list.
    pub(crate) fn enter(self: &Arc<Self>, call: Arc<Call>, class: Class, ctx: &QueryContext) -> Entry {
        let request = Arc::new(Request {
            call,
            class,
            ctx: ctx.clone(),
            came: Instant::now(),
            waited: OnceLock::new(),
            stage: AtomicU8::new(Stage::Waiting as u8),
            slot: Mutex::new(None),
        });
        self.requests().insert(request.call.id, Arc::clone(&request));
        Entry { running: Arc::clone(self), request }
    }

    /// Ends all requests.
    pub(crate) fn interrupt_all(&self, reason: Interrupt) {
        self.requests().values().for_each(|request| request.ctx.interrupt(reason));
    }

    /// Ends a request for data; returns false if there is no such.
    pub(crate) fn kill(&self, id: u64) -> bool {
        let requests = self.requests();
        requests
            .get(&id)
            .filter(|request| request.class != Class::Write)
            .inspect(|request| request.ctx.interrupt(Interrupt::Killed))
            .is_some()
    }

    /// Returns all requests, the oldest first.
    pub(crate) fn list(&self) -> Vec<Arc<Request>> {
        let mut all: Vec<_> = self.requests().values().cloned().collect();
        all.sort_unstable_by_key(|request| request.call.id);
        all
    }

    /// Counts the requests.
    pub(crate) fn len(&self) -> usize {
        self.requests().len()
    }

    /// Ends the request that holds the most memory, unless one that holds some is about to end. Returns whether memory is
    /// about to come back.
    pub(crate) fn end_heaviest(&self, reason: Interrupt) -> bool {
        self.end_heavier_than(0, None, reason)
    }

    /// Ends the heaviest request but `asking` that holds more than `size`, unless one is about to end already.
    fn end_heavier_than(&self, size: usize, asking: Option<&MemoryBudget>, reason: Interrupt) -> bool {
        let requests = self.requests();
        let held = |request: &Arc<Request>| request.ctx.memory().used();
        let others: Vec<_> = requests
            .values()
            // Writes hold little, and ending one frees nothing: it would be sent again.
            .filter(|request| request.class != Class::Write && held(request) > 0)
            .filter(|request| !asking.is_some_and(|asking| asking.is(request.ctx.memory())))
            .collect();
        if others.iter().any(|request| request.ctx.interrupted().is_some()) {
            return true;
        }
        let Some(heaviest) = others.into_iter().max_by_key(|request| held(request)).filter(|of| held(of) > size) else {
            return false;
        };
        heaviest.ctx.interrupt(reason);
        let (id, query, bytes) = (heaviest.call.id, &*heaviest.call.asked().text, held(heaviest));
        tracing::warn!(id, query = crate::server::request_context::cut(query, LOGGED_MAX), bytes, %reason, "Heaviest request ended");
        true
    }

    fn requests(&self) -> MutexGuard<'_, HashMap<u64, Arc<Request>>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes of a query that stand in the log.
const LOGGED_MAX: usize = 1000;

impl Relief for Running {
    fn make_room(&self, asking: &MemoryBudget, size: usize) -> bool {
        let wanted = asking.used().saturating_add(size);
        let is_ending = self
            .requests()
            .values()
            .any(|request| asking.is(request.ctx.memory()) && request.ctx.interrupted().is_some());
        !is_ending && self.end_heavier_than(wanted, Some(asking), Interrupt::Heaviest)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.running.requests().remove(&self.request.call.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::extract::Request as HttpRequest;
    use std::thread;

    fn ctx(memory: &MemoryBudget) -> QueryContext {
        QueryContext::new(Duration::from_secs(60), memory.child("one", 1000))
    }

    fn call() -> Arc<Call> {
        Call::of(&HttpRequest::default(), "/x".into())
    }

    #[test]
    fn requests_at_work_can_be_listed_and_ended() {
        let running = Arc::new(Running::default());
        let all = MemoryBudget::new("all", 1000);
        let (gone, first, second) = (ctx(&all), ctx(&all), ctx(&all));
        drop(running.enter(call(), Class::Query, &gone));
        let entries = [&first, &second].map(|ctx| running.enter(call(), Class::Metadata, ctx));
        entries[1].request.begin();
        let stages: Vec<_> = running.list().iter().map(|request| request.stage().name()).collect();
        assert_eq!(stages, ["waiting", "working"]);
        assert!(running.kill(entries[1].request.call.id) && !running.kill(u64::MAX));
        running.interrupt_all(Interrupt::Shutdown);
        let ended = [&gone, &first, &second].map(QueryContext::interrupted);
        assert_eq!(ended, [None, Some(Interrupt::Shutdown), Some(Interrupt::Killed)]);
        assert_eq!(running.len(), 2);
    }

    #[test]
    fn the_heaviest_ends_not_the_newest() {
        let running = Arc::new(Running::default());
        let all = MemoryBudget::with_relief("all", 100, Arc::<Running>::clone(&running));
        let contexts = [ctx(&all), ctx(&all), ctx(&all)];
        let _entries = contexts.each_ref().map(|ctx| running.enter(call(), Class::Query, ctx));
        let [heavy, light, newest] = &contexts;
        let (mut of_heavy, mut of_light, mut of_newest) = (heavy.charge(), light.charge(), newest.charge());
        of_heavy.grow(70).unwrap();
        of_light.grow(30).unwrap();
        // The heavy one gives its memory back as soon as it sees that it has to end, as its loops do.
        let ending = thread::spawn({
            let heavy = heavy.clone();
            move || {
                while heavy.check().is_ok() {
                    thread::yield_now();
                }
                drop(of_heavy);
            }
        });
        of_newest.grow(20).unwrap();
        ending.join().unwrap();
        assert_eq!(contexts.each_ref().map(QueryContext::interrupted), [Some(Interrupt::Heaviest), None, None]);
        assert_eq!(all.used(), 50);
        // Who is the heaviest itself is refused at once, and nobody ends for it.
        assert!(of_light.grow(60).is_err());
        assert_eq!([light.interrupted(), newest.interrupted()], [None, None]);
    }

    #[test]
    fn two_that_want_more_at_once_do_not_wait_for_each_other() {
        let running = Arc::new(Running::default());
        let all = MemoryBudget::with_relief("all", 100, Arc::<Running>::clone(&running));
        let work = |size: usize| {
            let (running, ctx) = (Arc::clone(&running), ctx(&all));
            thread::spawn(move || {
                let _entry = running.enter(call(), Class::Query, &ctx);
                let mut charge = ctx.charge();
                (0..1000).try_for_each(|_| {
                    ctx.check()?;
                    charge.grow(size)
                })
            })
        };
        // Each wants more than there is: all end, within the time of a wait each.
        let ended: Vec<_> = (1..=4).map(work).collect();
        assert!(ended.into_iter().all(|thread| thread.join().unwrap().is_err()));
        assert_eq!(all.used(), 0);
    }
}
