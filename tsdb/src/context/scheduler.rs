//! [`Scheduler`]: lets short requests overtake long ones.
//!
//! If more requests than cores ran, their threads would compete in the kernel. A short request would wait behind the
//! time slices of all others (docs/decisions/0023-turns-of-long-requests.md). This is a multilevel feedback queue
//! with two levels: a request is short for [`SHORT_FOR`] and runs at once, then it is long. Long requests run in
//! turns of [`TURN`] on the cores that short ones leave.
//!
//! Invariants
//! 1. At each [`pause`], a long request gives up its core if other requests need all cores. At least one long request
//!    runs. An interrupted request continues without a turn, so that it can end.
//! 2. Long requests get their turns in the order in which they began to wait.
//! 3. A request in [`blocking`] does not count as running. Its batches may still run on the worker pool, whose threads
//!    have no turns.
//!
//! Threads: a request runs on one thread at a time, the one that called [`Scheduler::start`] or [`attach`]. Threads of
//! a pool do not wait.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use super::query_context::QueryContext;

/// The age at which a request becomes long.
const SHORT_FOR: Duration = Duration::from_millis(10);
/// The time after which a long request lets others run.
const TURN: Duration = Duration::from_millis(10);
/// Time after which a long request checks again whether others need its core, which takes a lock.
const RECHECK_AFTER: Duration = Duration::from_micros(200);
/// Maximum time until a waiting request notices its interrupt.
const CHECK_AFTER: Duration = Duration::from_millis(20);

/// The running requests of a server. Clones share them.
#[derive(Debug, Clone)]
pub struct Scheduler(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    n_cores: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    n_short: usize,
    n_long: usize,
    /// The threads of long requests that wait for their turn.
    waiting: VecDeque<Thread>,
    waited: Duration,
}

/// A request that runs until the value is dropped.
#[derive(Debug)]
pub struct Run(PhantomData<Rc<()>>);

/// The request of a thread.
#[derive(Debug)]
pub struct Current {
    scheduler: Scheduler,
    ctx: QueryContext,
    started: Instant,
    turn_began: Instant,
    checked: Instant,
    level: Level,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Short,
    Long,
    /// Not counted: the request is in [`blocking`], or has ended.
    Released,
}

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

/// Lets other requests run. Must not be called while a lock is held.
pub fn pause() {
    CURRENT.with_borrow_mut(|current| current.iter_mut().for_each(Current::pause));
}

/// Calls `wait` without counting the request as running. Afterwards a long request waits for its next turn.
pub fn blocking<R>(wait: impl FnOnce() -> R) -> R {
    let Some(mut current) = detach() else { return wait() };
    // If `wait` panics, the request ends.
    let is_long = current.release();
    let result = wait();
    current.acquire(is_long);
    attach(Some(current));
    result
}

/// Takes the request from this thread, so that another one can run it.
#[must_use]
pub fn detach() -> Option<Current> {
    CURRENT.take()
}

/// Runs a request on this thread, and ends the one that it had.
pub fn attach(current: Option<Current>) {
    CURRENT.set(current);
}

impl Scheduler {
    /// Creates a scheduler of requests that share `n_cores` cores.
    #[must_use]
    pub fn new(n_cores: usize) -> Self {
        Self(Arc::new(Shared { n_cores, state: Mutex::default() }))
    }

    /// Returns the total time that requests have waited for turns.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.0.state.lock().waited
    }

    /// Starts a request on this thread.
    #[must_use]
    pub fn start(&self, ctx: &QueryContext) -> Run {
        let started = Instant::now();
        self.0.state.lock().n_short += 1;
        attach(Some(Current {
            scheduler: self.clone(),
            ctx: ctx.clone(),
            started,
            turn_began: started,
            checked: started,
            level: Level::Short,
        }));
        Run(PhantomData)
    }
}

impl Shared {
    /// Returns `true` if a core is free for a long request.
    fn has_room(&self, state: &State) -> bool {
        state.n_long == 0 || state.n_short + state.n_long < self.n_cores
    }

    /// Starts turns while cores are free.
    fn start_turns(&self, state: &mut State) {
        while self.has_room(state)
            && let Some(thread) = state.waiting.pop_front()
        {
            state.n_long += 1;
            thread.unpark();
        }
    }
}

impl Current {
    fn pause(&mut self) {
        let now = Instant::now();
        let is_due = match self.level {
            Level::Short => now - self.started >= SHORT_FOR,
            Level::Long => now - self.checked >= RECHECK_AFTER,
            Level::Released => false,
        };
        if !is_due {
            return;
        }
        self.checked = now;
        let scheduler = self.scheduler.clone();
        let shared = &*scheduler.0;
        let mut state = shared.state.lock();
        if self.level == Level::Short {
            state.n_short -= 1;
            self.level = Level::Long;
        } else {
            let is_over = now - self.turn_began >= TURN && !state.waiting.is_empty();
            if !is_over && (state.n_long == 1 || state.n_short + state.n_long <= shared.n_cores) {
                return;
            }
            state.n_long -= 1;
        }
        shared.start_turns(&mut state);
        self.wait_for_turn(shared, state, now);
    }

    fn wait_for_turn<'a>(&mut self, shared: &'a Shared, mut state: MutexGuard<'a, State>, started: Instant) {
        if state.waiting.is_empty() && shared.has_room(&state) {
            state.n_long += 1;
            self.turn_began = started;
            return;
        }
        let own = thread::current();
        state.waiting.push_back(own.clone());
        loop {
            drop(state);
            thread::park_timeout(CHECK_AFTER);
            state = shared.state.lock();
            let Some(at) = state.waiting.iter().position(|thread| thread.id() == own.id()) else { break };
            // A request that must end does not wait: it holds memory that others may need.
            if self.ctx.interrupted().is_some() {
                state.waiting.remove(at);
                state.n_long += 1;
                break;
            }
        }
        let now = Instant::now();
        state.waited += now - started;
        self.turn_began = now;
    }

    /// Stops counting the request. Returns `true` if it was long.
    fn release(&mut self) -> bool {
        let level = std::mem::replace(&mut self.level, Level::Released);
        let shared = &*self.scheduler.0;
        let mut state = shared.state.lock();
        match level {
            Level::Short => state.n_short -= 1,
            Level::Long => state.n_long -= 1,
            Level::Released => {}
        }
        shared.start_turns(&mut state);
        level == Level::Long
    }

    /// Counts the request again.
    fn acquire(&mut self, is_long: bool) {
        let scheduler = self.scheduler.clone();
        let mut state = scheduler.0.state.lock();
        if is_long {
            self.level = Level::Long;
            self.wait_for_turn(&scheduler.0, state, Instant::now());
        } else {
            self.level = Level::Short;
            state.n_short += 1;
        }
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        self.release();
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        attach(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::MemoryBudget;
    use crate::error::Interrupt;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    fn context() -> QueryContext {
        QueryContext::new(Duration::from_secs(60), MemoryBudget::new("memory", 0))
    }

    /// Works until the request is long, then ends its turn.
    fn become_long() {
        thread::sleep(SHORT_FOR);
        pause();
    }

    fn counts(scheduler: &Scheduler) -> (usize, usize, usize) {
        let state = scheduler.0.state.lock();
        (state.n_short, state.n_long, state.waiting.len())
    }

    fn wait_for_counts(scheduler: &Scheduler, expect: (usize, usize, usize)) {
        let started = Instant::now();
        while counts(scheduler) != expect {
            assert!(started.elapsed() < Duration::from_secs(60), "{:?} instead of {expect:?}", counts(scheduler));
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn long_requests_run_in_turns_on_the_free_cores() {
        const N: usize = 6;
        let scheduler = Scheduler::new(2);
        let (n_running, turns) = (AtomicUsize::new(0), [const { AtomicUsize::new(0) }; N]);
        let all_long = Barrier::new(N);
        thread::scope(|scope| {
            for n_turns in &turns {
                scope.spawn(|| {
                    let _run = scheduler.start(&context());
                    blocking(|| all_long.wait());
                    become_long();
                    // Until every request has had several turns.
                    while turns.iter().any(|n| n.load(Ordering::Relaxed) < 3) {
                        assert!(n_running.fetch_add(1, Ordering::SeqCst) < 2);
                        thread::sleep(TURN);
                        n_running.fetch_sub(1, Ordering::SeqCst);
                        n_turns.fetch_add(1, Ordering::Relaxed);
                        pause();
                    }
                });
            }
        });
        assert_eq!(counts(&scheduler), (0, 0, 0));
        assert!(scheduler.waited() > Duration::ZERO);
    }

    #[test]
    fn a_long_request_leaves_its_core_to_a_short_one_but_one_long_request_runs() {
        let scheduler = Scheduler::new(2);
        let stopped = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let _run = scheduler.start(&context());
                    while !stopped.load(Ordering::Relaxed) {
                        become_long();
                    }
                });
            }
            wait_for_counts(&scheduler, (0, 2, 0));
            let short = scheduler.start(&context());
            wait_for_counts(&scheduler, (1, 1, 1));
            let another = scope.spawn(|| {
                let _run = scheduler.start(&context());
                wait_for_counts(&scheduler, (2, 1, 1));
            });
            another.join().unwrap();
            drop(short);
            wait_for_counts(&scheduler, (0, 2, 0));
            stopped.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_request_that_waits_for_something_takes_no_core() {
        let scheduler = Scheduler::new(1);
        let first = scheduler.start(&context());
        blocking(|| {
            assert_eq!(counts(&scheduler), (0, 0, 0));
            blocking(|| assert_eq!(counts(&scheduler), (0, 0, 0)));
        });
        assert_eq!(counts(&scheduler), (1, 0, 0));
        become_long();
        assert_eq!(counts(&scheduler), (0, 1, 0));
        blocking(|| assert_eq!(counts(&scheduler), (0, 0, 0)));
        drop(first);
        pause();
        assert_eq!(counts(&scheduler), (0, 0, 0));
    }

    #[test]
    fn a_request_can_move_to_another_thread() {
        let scheduler = Scheduler::new(1);
        let run = scheduler.start(&context());
        let moved = detach();
        let back = thread::scope(|scope| {
            let on_it = || {
                attach(moved);
                become_long();
                detach()
            };
            scope.spawn(on_it).join().unwrap()
        });
        attach(back);
        assert_eq!(counts(&scheduler), (0, 1, 0));
        drop(run);
        assert_eq!(counts(&scheduler), (0, 0, 0));
        let _lost = scheduler.start(&context());
        // A second request on the thread ends the first one.
        let _run = scheduler.start(&context());
        assert_eq!(counts(&scheduler), (1, 0, 0));
    }

    #[test]
    fn an_interrupted_request_stops_waiting() {
        let scheduler = Scheduler::new(1);
        let first = scheduler.start(&context());
        become_long();
        let ctx = context();
        thread::scope(|scope| {
            scope.spawn(|| {
                let _run = scheduler.start(&ctx);
                become_long();
            });
            wait_for_counts(&scheduler, (0, 1, 1));
            ctx.interrupt(Interrupt::Canceled);
            wait_for_counts(&scheduler, (0, 1, 0));
        });
        drop(first);
        assert_eq!(counts(&scheduler), (0, 0, 0));
    }
}
