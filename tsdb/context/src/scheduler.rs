//! [`Scheduler`]: lets short requests overtake long ones.
//!
//! If more requests than cores ran, their threads would compete in the kernel. A short request
//! would wait behind the time slices of all others
//! (docs/decisions/query/0023-turns-of-long-requests.md). This is a multilevel feedback queue with
//! two levels: a request is short for `SHORT_FOR` and runs at once, then it is long. Long requests
//! run in turns of `TURN` on the cores that short ones leave.
//!
//! Invariants
//! 1. At each [`pause`], a long request gives up its core if other requests need all cores. At
//!    least one long request runs. An interrupted request continues without a turn, so that it can
//!    end.
//! 2. Long requests get their turns in the order in which they began to wait.
//! 3. A request in [`blocking`] or [`waiting_for_workers`] does not count as running. The threads
//!    of the worker pool have no turns, so requests avoid the pool while it [`is_crowded`].
//! 4. A thread in the background ([`start_background`]) is no request. At each [`pause`] it lets
//!    more urgent work run.
//! 5. While short requests of one user come and go, the long requests of others leave a core free,
//!    if there are two or more: a thread that wakes up on a busy core waits for the time slice of
//!    another. Without authentication all requests have the same user.
//!
//! Threads: a request runs on one thread at a time, the one that called [`Scheduler::start`] or
//! [`attach`]. The same is true of work in the background. Threads of a pool do not wait.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::cancellation::Cancellation;

/// The age at which a request becomes long.
const SHORT_FOR: Duration = Duration::from_millis(10);
/// The time after which a long request lets others run.
const TURN: Duration = Duration::from_millis(10);
/// Time after which a long request, or work in the background, checks again whether others need its
/// core. A check takes a lock.
const RECHECK_AFTER: Duration = Duration::from_micros(200);
/// Maximum time until a waiting request notices its interrupt.
const CHECK_AFTER: Duration = Duration::from_millis(20);
/// How long a core remains reserved after a short request of another user.
const RESERVED_FOR: Duration = Duration::from_millis(100);

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
    /// Requests that run, wait for their turn or wait for the worker pool.
    n_active: usize,
    /// The long requests that wait for their turn.
    waiting: VecDeque<Waiting>,
    waited: Duration,
    /// The two users whose short requests ended last, the latest first.
    short_ended: [Option<(Arc<str>, Instant)>; 2],
}

#[derive(Debug)]
struct Waiting {
    thread: Thread,
    user: Arc<str>,
}

/// A request that runs until the value is dropped.
#[derive(Debug)]
pub struct Turn(PhantomData<Rc<()>>);

/// The request of a thread.
#[derive(Debug)]
struct Current {
    scheduler: Scheduler,
    cancellation: Cancellation,
    user: Arc<str>,
    started: Instant,
    turn_began: Instant,
    checked: Instant,
    level: Level,
    is_active: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Short,
    Long,
    /// Not counted: the request is in [`blocking`], or has ended.
    Released,
}

/// The work of a thread in the background.
struct BackgroundWork {
    yield_now: Arc<dyn Fn() + Send + Sync>,
    yielded: Instant,
}

/// This thread works in the background until the value is dropped.
#[derive(Debug)]
pub struct Background(PhantomData<Rc<()>>);

/// The request of a thread and its work in the background, which another thread can continue.
pub struct Detached {
    current: Option<Current>,
    background: Option<BackgroundWork>,
}

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
    static BACKGROUND: RefCell<Option<BackgroundWork>> = const { RefCell::new(None) };
}

/// Starts work in the background on this thread. It calls `yield_now` at a [`pause`] if it has run
/// for [`RECHECK_AFTER`] since the last call.
#[must_use]
pub fn start_background(yield_now: Arc<dyn Fn() + Send + Sync>) -> Background {
    BACKGROUND.set(Some(BackgroundWork {
        yield_now,
        yielded: Instant::now(),
    }));
    Background(PhantomData)
}

/// Lets more urgent work run: other requests or, in the background, what [`start_background`] was
/// given. Must not be called while a lock is held.
pub fn pause() {
    pause_at(Instant::now());
}

/// Like [`pause`], for callers that have just read the clock.
pub fn pause_at(now: Instant) {
    CURRENT.with_borrow_mut(|current| {
        if let Some(current) = current {
            current.pause(now);
        }
    });
    BACKGROUND.with_borrow_mut(|background| {
        if let Some(background) = background {
            background.pause(now);
        }
    });
}

/// Returns `true` if there are requests for all cores. Then a request gains nothing from the worker
/// pool.
#[must_use]
pub fn is_crowded() -> bool {
    CURRENT.with_borrow(|current| {
        current.as_ref().is_some_and(|Current { scheduler, .. }| {
            scheduler.0.state.lock().n_active >= scheduler.0.n_cores
        })
    })
}

/// Calls `wait` without counting the request as running. Afterwards a long request waits for its
/// next turn.
pub fn blocking<R>(wait: impl FnOnce() -> R) -> R {
    without_core(false, wait)
}

/// As [`blocking`], while threads of the worker pool run for the request.
pub fn waiting_for_workers<R>(wait: impl FnOnce() -> R) -> R {
    without_core(true, wait)
}

fn without_core<R>(is_active: bool, wait: impl FnOnce() -> R) -> R {
    let Some(mut current) = CURRENT.take() else {
        return wait();
    };
    // If `wait` panics, the request ends.
    let is_long = current.release(is_active);
    let result = wait();
    current.acquire(is_long);
    CURRENT.set(Some(current));
    result
}

/// Takes the request and the work in the background from this thread, so that another one can
/// continue them.
#[must_use]
pub fn detach() -> Detached {
    Detached {
        current: CURRENT.take(),
        background: BACKGROUND.take(),
    }
}

/// Continues a request and work in the background on this thread, and ends those that it had.
pub fn attach(
    Detached {
        current,
        background,
    }: Detached,
) {
    CURRENT.set(current);
    BACKGROUND.set(background);
}

impl Scheduler {
    /// Creates a scheduler of requests that share `n_cores` cores.
    #[must_use]
    pub fn new(n_cores: usize) -> Self {
        Self(Arc::new(Shared {
            n_cores,
            state: Mutex::default(),
        }))
    }

    /// Returns the total time that requests have waited for turns.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.0.state.lock().waited
    }

    /// Starts a request of a user on this thread.
    #[must_use]
    pub fn start(&self, cancellation: &Cancellation, user: &Arc<str>) -> Turn {
        let started = Instant::now();
        let mut state = self.0.state.lock();
        state.n_short += 1;
        state.n_active += 1;
        drop(state);
        CURRENT.set(Some(Current {
            scheduler: self.clone(),
            cancellation: cancellation.clone(),
            user: Arc::clone(user),
            started,
            turn_began: started,
            checked: started,
            level: Level::Short,
            is_active: true,
        }));
        Turn(PhantomData)
    }
}

impl Shared {
    /// Returns `true` if a core is free for a long request of a user.
    fn has_room(&self, state: &State, user: &str, now: Instant) -> bool {
        state.n_long == 0 || state.n_taken(user, now) + state.n_long < self.n_cores
    }

    /// Starts turns while cores are free.
    fn start_turns(&self, state: &mut State, now: Instant) {
        while let Some(next) = state.waiting.front()
            && self.has_room(state, &next.user, now)
            && let Some(next) = state.waiting.pop_front()
        {
            state.n_long += 1;
            next.thread.unpark();
        }
    }
}

impl State {
    /// Returns the number of cores that long requests of a user leave to short ones.
    fn n_taken(&self, user: &str, now: Instant) -> usize {
        let is_other =
            |(other, ended): &(Arc<str>, Instant)| **other != *user && now < *ended + RESERVED_FOR;
        self.n_short
            .max(usize::from(self.short_ended.iter().flatten().any(is_other)))
    }

    fn note_short(&mut self, user: &Arc<str>, now: Instant) {
        if self.short_ended[0]
            .as_ref()
            .is_none_or(|(latest, _)| latest != user)
        {
            self.short_ended.swap(0, 1);
        }
        self.short_ended[0] = Some((Arc::clone(user), now));
    }
}

impl BackgroundWork {
    fn pause(&mut self, now: Instant) {
        if now.saturating_duration_since(self.yielded) >= RECHECK_AFTER {
            (self.yield_now)();
            self.yielded = Instant::now();
        }
    }
}

impl Current {
    fn pause(&mut self, now: Instant) {
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
            let has_core = state.n_long == 1
                || state.n_taken(&self.user, now) + state.n_long <= shared.n_cores;
            if !is_over && has_core {
                return;
            }
            state.n_long -= 1;
        }
        shared.start_turns(&mut state, now);
        self.wait_for_turn(shared, state, now);
    }

    fn wait_for_turn<'a>(
        &mut self,
        shared: &'a Shared,
        mut state: MutexGuard<'a, State>,
        started: Instant,
    ) {
        if state.waiting.is_empty() && shared.has_room(&state, &self.user, started) {
            state.n_long += 1;
            self.turn_began = started;
            return;
        }
        let own = thread::current();
        state.waiting.push_back(Waiting {
            thread: own.clone(),
            user: Arc::clone(&self.user),
        });
        loop {
            drop(state);
            thread::park_timeout(CHECK_AFTER);
            state = shared.state.lock();
            let Some(at) = state
                .waiting
                .iter()
                .position(|waiting| waiting.thread.id() == own.id())
            else {
                break;
            };
            // A request that must end does not wait: it holds memory that others may need.
            if self.cancellation.interrupted().is_some() {
                state.waiting.remove(at);
                state.n_long += 1;
                break;
            }
        }
        let now = Instant::now();
        state.waited += now - started;
        self.turn_began = now;
    }

    /// Stops counting the request as running. Returns `true` if it was long.
    fn release(&mut self, is_active: bool) -> bool {
        let level = std::mem::replace(&mut self.level, Level::Released);
        let shared = &*self.scheduler.0;
        let mut state = shared.state.lock();
        if std::mem::replace(&mut self.is_active, is_active) && !is_active {
            state.n_active -= 1;
        }
        match level {
            Level::Short => state.n_short -= 1,
            Level::Long => state.n_long -= 1,
            Level::Released => {}
        }
        shared.start_turns(&mut state, Instant::now());
        level == Level::Long
    }

    /// Counts the request again.
    fn acquire(&mut self, is_long: bool) {
        let scheduler = self.scheduler.clone();
        let mut state = scheduler.0.state.lock();
        if !std::mem::replace(&mut self.is_active, true) {
            state.n_active += 1;
        }
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
        if self.level == Level::Short {
            self.scheduler
                .0
                .state
                .lock()
                .note_short(&self.user, Instant::now());
        }
        self.release(false);
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        BACKGROUND.set(None);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        CURRENT.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Interrupt;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    #[test]
    fn work_in_the_background_lets_others_run() {
        let n_calls = Arc::new(AtomicUsize::new(0));
        let check = |at: Instant, expect: usize| {
            pause_at(at);
            assert_eq!(n_calls.load(Ordering::Relaxed), expect);
        };
        let due = || Instant::now() + RECHECK_AFTER;
        check(due(), 0);
        let before = Instant::now();
        let calls = Arc::clone(&n_calls);
        let background = start_background(Arc::new(move || {
            calls.fetch_add(1, Ordering::Relaxed);
        }));
        let too_early = before + RECHECK_AFTER - Duration::from_nanos(1);
        check(too_early, 0);
        check(due(), 1);
        check(too_early, 1);
        check(due(), 2);
        let moved = detach();
        check(due(), 2);
        let on_it = || {
            attach(moved);
            check(due(), 3);
            detach()
        };
        attach(thread::scope(|scope| scope.spawn(on_it).join().unwrap()));
        check(due(), 4);
        drop(background);
        check(due(), 4);
    }

    fn endless() -> Cancellation {
        Cancellation::new(None)
    }

    fn user(name: &str) -> Arc<str> {
        Arc::from(name)
    }

    /// Makes the request of this thread old enough to be long, or to have used up its turn, and
    /// pauses.
    fn become_long() {
        let now = Instant::now();
        CURRENT.with_borrow_mut(|current| {
            let current = current.as_mut().unwrap();
            current.started = now - SHORT_FOR;
            current.turn_began = now - TURN;
            current.checked = now - RECHECK_AFTER;
        });
        pause();
    }

    /// Uses a core for a whole turn.
    fn work_for_a_turn() {
        let started = Instant::now();
        while started.elapsed() < TURN {
            thread::yield_now();
        }
    }

    fn counts(scheduler: &Scheduler) -> (usize, usize, usize) {
        let state = scheduler.0.state.lock();
        (state.n_short, state.n_long, state.waiting.len())
    }

    fn wait_for_counts(scheduler: &Scheduler, expect: (usize, usize, usize)) {
        let started = Instant::now();
        while counts(scheduler) != expect {
            assert!(
                started.elapsed() < Duration::from_secs(60),
                "{:?} instead of {expect:?}",
                counts(scheduler)
            );
            thread::yield_now();
        }
    }

    #[test]
    fn long_requests_run_in_turns_on_the_free_cores() {
        const N: usize = 6;
        let scheduler = Scheduler::new(2);
        let n_running = AtomicUsize::new(0);
        let turns = [const { AtomicUsize::new(0) }; N];
        let all_long = Barrier::new(N);
        thread::scope(|scope| {
            for n_turns in &turns {
                scope.spawn(|| {
                    let _run = scheduler.start(&endless(), &user("a"));
                    blocking(|| all_long.wait());
                    become_long();
                    // Until every request has had several turns.
                    while turns.iter().any(|n| n.load(Ordering::Relaxed) < 3) {
                        assert!(n_running.fetch_add(1, Ordering::SeqCst) < 2);
                        work_for_a_turn();
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
                    let _run = scheduler.start(&endless(), &user("a"));
                    while !stopped.load(Ordering::Relaxed) {
                        become_long();
                        thread::yield_now();
                    }
                });
            }
            wait_for_counts(&scheduler, (0, 2, 0));
            let short = scheduler.start(&endless(), &user("a"));
            wait_for_counts(&scheduler, (1, 1, 1));
            let another = scope.spawn(|| {
                let _run = scheduler.start(&endless(), &user("a"));
                wait_for_counts(&scheduler, (2, 1, 1));
            });
            another.join().unwrap();
            drop(short);
            wait_for_counts(&scheduler, (0, 2, 0));
            stopped.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn long_requests_leave_a_core_free_for_short_ones_of_another_user() {
        let scheduler = Scheduler::new(2);
        let stopped = AtomicBool::new(false);
        let holder = user("a");
        let check = |of: &str, expect: (usize, usize, usize)| {
            let started = Instant::now();
            while counts(&scheduler) != expect {
                assert!(
                    started.elapsed() < Duration::from_secs(60),
                    "{of}: {:?}",
                    counts(&scheduler)
                );
                // Ends while it is short.
                drop(scheduler.start(&endless(), &user(of)));
                thread::yield_now();
            }
        };
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let _run = scheduler.start(&endless(), &holder);
                    while !stopped.load(Ordering::Relaxed) {
                        become_long();
                        thread::yield_now();
                    }
                });
            }
            check("a", (0, 2, 0));
            check("b", (0, 1, 1));
            // Short requests of the same user do not hide those of the other.
            drop(scheduler.start(&endless(), &holder));
            assert_eq!(scheduler.0.state.lock().n_taken("a", Instant::now()), 1);
            // Without short requests the core is used again.
            wait_for_counts(&scheduler, (0, 2, 0));
            stopped.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn requests_for_all_cores_are_a_crowd() {
        let scheduler = Scheduler::new(2);
        assert!(!is_crowded());
        let first = scheduler.start(&endless(), &user("a"));
        assert!(!is_crowded());
        thread::scope(|scope| {
            let other = || {
                let _run = scheduler.start(&endless(), &user("a"));
                assert!(is_crowded());
                waiting_for_workers(|| assert_eq!(scheduler.0.state.lock().n_active, 2));
                blocking(|| assert_eq!(scheduler.0.state.lock().n_active, 1));
                assert!(is_crowded());
            };
            scope.spawn(other).join().unwrap();
        });
        drop(first);
        assert_eq!(scheduler.0.state.lock().n_active, 0);
    }

    #[test]
    fn a_request_that_waits_for_something_takes_no_core() {
        let scheduler = Scheduler::new(1);
        let first = scheduler.start(&endless(), &user("a"));
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
        let run = scheduler.start(&endless(), &user("a"));
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
        let _lost = scheduler.start(&endless(), &user("a"));
        // A second request on the thread ends the first one.
        let _run = scheduler.start(&endless(), &user("a"));
        assert_eq!(counts(&scheduler), (1, 0, 0));
    }

    #[test]
    fn an_interrupted_request_stops_waiting() {
        let scheduler = Scheduler::new(1);
        let first = scheduler.start(&endless(), &user("a"));
        become_long();
        let cancellation = endless();
        thread::scope(|scope| {
            scope.spawn(|| {
                let _run = scheduler.start(&cancellation, &user("a"));
                become_long();
            });
            wait_for_counts(&scheduler, (0, 1, 1));
            cancellation.interrupt(Interrupt::Canceled);
            wait_for_counts(&scheduler, (0, 1, 0));
        });
        drop(first);
        assert_eq!(counts(&scheduler), (0, 0, 0));
    }
}
