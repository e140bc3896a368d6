//! A semaphore whose permits waiting users get in turn.
//!
//! Invariants
//! 1. Users with waiting requests get permits in turn (round robin), and the requests of one user
//!    in the order of arrival.
//! 2. The last free permit of [`RESERVED_FROM`] or more is only for a user that holds none, so that
//!    a user whose queries are slow leaves one permit to others. Requests without authentication
//!    are exempt.
//! 3. No request waits while there is a free permit for its user.
//! 4. If the queue is full, a new request displaces the newest request of the user with the most
//!    waiting ones, provided that its own user then has no more waiting than that one. The
//!    displaced request is denied, and the new one waits behind the others of its user.
//! 5. A request that resumes does not count for the queue, and is not removed from it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Number of permits from which the last free one is reserved.
const RESERVED_FROM: usize = 4;

/// A semaphore that is fair between users. Clones share it.
#[derive(Debug, Clone)]
pub struct FairSemaphore(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    n_free: usize,
    n_reserved: usize,
    is_closed: bool,
    /// Number of permits that each user holds, if any.
    held: HashMap<Arc<str>, usize>,
    /// Users with waiting requests, the next one first. No queue is empty.
    queues: VecDeque<(Arc<str>, VecDeque<Waiter>)>,
    next_id: u64,
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    is_resuming: bool,
    sender: oneshot::Sender<FairPermit>,
}

/// A permit, released on drop.
#[derive(Debug)]
pub struct FairPermit {
    semaphore: FairSemaphore,
    user: Arc<str>,
}

/// The reason why a request gets no permit.
#[derive(Debug, PartialEq, Eq)]
pub enum Denied {
    /// Too many requests wait.
    QueueFull,
    /// The semaphore is closed.
    Closed,
}

/// A waiting request, which leaves its queue on drop.
struct Waiting<'a> {
    semaphore: &'a FairSemaphore,
    user: &'a Arc<str>,
    id: u64,
}

impl FairSemaphore {
    /// Creates a semaphore.
    pub fn new(n_permits: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            n_free: n_permits,
            n_reserved: usize::from(n_permits >= RESERVED_FROM),
            is_closed: false,
            held: HashMap::new(),
            queues: VecDeque::new(),
            next_id: 0,
        })))
    }

    /// Returns a permit if one is free for `user`.
    pub fn try_acquire(&self, user: &Arc<str>) -> Option<FairPermit> {
        let mut state = self.0.lock();
        (!state.is_closed && state.is_free_for(user)).then(|| state.grant(self, user))
    }

    /// Waits for a permit. If `queued_max` new requests wait already, a new one displaces a request
    /// of another user or is denied (invariant 4). A request that resumes passes `None`: it had a
    /// permit before, and no limit applies.
    ///
    /// # Errors
    /// [`Denied`].
    pub async fn acquire(
        &self,
        user: &Arc<str>,
        queued_max: Option<usize>,
    ) -> Result<FairPermit, Denied> {
        let (id, permit) = {
            let mut state = self.0.lock();
            if state.is_closed {
                return Err(Denied::Closed);
            }
            if state.is_free_for(user) {
                return Ok(state.grant(self, user));
            }
            state.enqueue(user, queued_max)?
        };
        let _waiting = Waiting {
            semaphore: self,
            user,
            id,
        };
        permit.await.map_err(|_removed| {
            if self.0.lock().is_closed {
                Denied::Closed
            } else {
                Denied::QueueFull
            }
        })
    }

    /// Denies permits to all waiting and further requests.
    pub fn close(&self) {
        let mut state = self.0.lock();
        state.is_closed = true;
        state.queues.clear();
    }
}

impl State {
    fn is_free_for(&self, user: &Arc<str>) -> bool {
        let is_exempt = user.is_empty() || !self.held.contains_key(user);
        self.n_free > if is_exempt { 0 } else { self.n_reserved }
    }

    fn grant(&mut self, semaphore: &FairSemaphore, user: &Arc<str>) -> FairPermit {
        self.n_free -= 1;
        *self.held.entry(Arc::clone(user)).or_default() += 1;
        FairPermit {
            semaphore: semaphore.clone(),
            user: Arc::clone(user),
        }
    }

    fn enqueue(
        &mut self,
        user: &Arc<str>,
        queued_max: Option<usize>,
    ) -> Result<(u64, oneshot::Receiver<FairPermit>), Denied> {
        if let Some(queued_max) = queued_max
            && (0..self.queues.len())
                .map(|idx| self.n_new(idx))
                .sum::<usize>()
                >= queued_max
        {
            let n_own = self.queue(user).map_or(0, |idx| self.n_new(idx));
            let longest = (0..self.queues.len()).max_by_key(|&idx| self.n_new(idx));
            let longest = longest
                .filter(|&idx| self.n_new(idx) > n_own + 1)
                .ok_or(Denied::QueueFull)?;
            let queue = &mut self.queues[longest].1;
            // The queue has another request, so it does not become empty.
            queue
                .iter()
                .rposition(|waiter| !waiter.is_resuming)
                .map(|at| queue.remove(at));
        }
        let idx = self.queue(user).unwrap_or_else(|| {
            self.queues.push_back((Arc::clone(user), VecDeque::new()));
            self.queues.len() - 1
        });
        let (sender, permit) = oneshot::channel();
        self.next_id += 1;
        self.queues[idx].1.push_back(Waiter {
            id: self.next_id,
            is_resuming: queued_max.is_none(),
            sender,
        });
        Ok((self.next_id, permit))
    }

    /// Returns the number of waiting requests of a queue that do not resume.
    fn n_new(&self, idx: usize) -> usize {
        self.queues[idx]
            .1
            .iter()
            .filter(|waiter| !waiter.is_resuming)
            .count()
    }

    fn queue(&self, user: &Arc<str>) -> Option<usize> {
        self.queues.iter().position(|(queued, _)| queued == user)
    }

    /// Removes and returns the next waiting request for which a permit is free.
    fn next(&mut self) -> Option<(Arc<str>, Waiter)> {
        let idx = (0..self.queues.len()).find(|&idx| self.is_free_for(&self.queues[idx].0))?;
        let (user, mut queue) = self.queues.remove(idx)?;
        let waiter = queue.pop_front()?;
        if !queue.is_empty() {
            self.queues.push_back((Arc::clone(&user), queue));
        }
        Some((user, waiter))
    }
}

impl Drop for FairPermit {
    fn drop(&mut self) {
        let mut state = self.semaphore.0.lock();
        state.n_free += 1;
        if let Some(n_held) = state.held.get_mut(&self.user) {
            *n_held -= 1;
            if *n_held == 0 {
                state.held.remove(&self.user);
            }
        }
        while let Some((user, waiter)) = state.next() {
            let permit = state.grant(&self.semaphore, &user);
            drop(state);
            // A request that has just left drops the permit, which serves the next request.
            drop(waiter.sender.send(permit));
            state = self.semaphore.0.lock();
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.semaphore.0.lock();
        if let Some(idx) = state.queue(self.user) {
            let queue = &mut state.queues[idx].1;
            queue.retain(|waiter| waiter.id != self.id);
            if queue.is_empty() {
                state.queues.remove(idx);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    type Request<'a> = Pin<Box<dyn Future<Output = Result<FairPermit, Denied>> + 'a>>;

    fn poll(request: &mut Request<'_>) -> Option<Result<FairPermit, Denied>> {
        match request
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        }
    }

    /// Returns a request that waits.
    fn wait<'a>(
        semaphore: &'a FairSemaphore,
        user: &'a Arc<str>,
        queued_max: usize,
    ) -> Request<'a> {
        let mut request: Request<'a> = Box::pin(semaphore.acquire(user, Some(queued_max)));
        assert!(poll(&mut request).is_none(), "{user}");
        request
    }

    fn users() -> [Arc<str>; 3] {
        ["a", "b", ""].map(Arc::from)
    }

    #[test]
    fn users_get_permits_in_turn() {
        let [a, b, _] = users();
        let semaphore = FairSemaphore::new(1);
        let mut held = semaphore.try_acquire(&a);
        let mut waiting = vec![
            wait(&semaphore, &a, 9),
            wait(&semaphore, &a, 9),
            wait(&semaphore, &b, 9),
        ];
        waiting.push(wait(&semaphore, &b, 9));
        let mut order = Vec::new();
        while let Some(permit) = held.take() {
            drop(permit);
            for (i, request) in waiting
                .iter_mut()
                .enumerate()
                .filter(|(i, _)| !order.contains(i))
                .collect::<Vec<_>>()
            {
                if let Some(permit) = poll(request) {
                    order.push(i);
                    held = Some(permit.unwrap());
                    break;
                }
            }
        }
        assert_eq!(order, [0, 2, 1, 3]);
    }

    #[test]
    fn the_last_permit_is_for_a_user_without_one() {
        let [a, b, anonymous] = users();
        let semaphore = FairSemaphore::new(RESERVED_FROM);
        let of_a: Vec<_> = std::iter::from_fn(|| semaphore.try_acquire(&a)).collect();
        assert_eq!(of_a.len(), RESERVED_FROM - 1);
        let mut waiting = wait(&semaphore, &a, 9);
        let of_b = semaphore.try_acquire(&b).unwrap();
        assert!(semaphore.try_acquire(&anonymous).is_none());
        drop(of_b);
        assert!(poll(&mut waiting).is_none());
        drop(of_a);
        drop(poll(&mut waiting).unwrap());
        let all: Vec<_> = std::iter::from_fn(|| semaphore.try_acquire(&anonymous)).collect();
        assert_eq!(all.len(), RESERVED_FROM);
    }

    #[test]
    fn a_full_queue_is_shared() {
        let [a, b, _] = users();
        let semaphore = FairSemaphore::new(1);
        let held = semaphore.try_acquire(&a);
        let mut first = wait(&semaphore, &a, 2);
        let mut newest = wait(&semaphore, &a, 2);
        let mut rejected: Request<'_> = Box::pin(semaphore.acquire(&a, Some(2)));
        assert_eq!(poll(&mut rejected).unwrap().err(), Some(Denied::QueueFull));
        let of_b = wait(&semaphore, &b, 2);
        assert_eq!(poll(&mut newest).unwrap().err(), Some(Denied::QueueFull));
        // Each has one: a further request of either is rejected.
        for user in [&a, &b] {
            let mut rejected: Request<'_> = Box::pin(semaphore.acquire(user, Some(2)));
            assert_eq!(poll(&mut rejected).unwrap().err(), Some(Denied::QueueFull));
        }
        drop(of_b);
        assert_eq!(
            semaphore.0.lock().queues.len(),
            1,
            "a request that is dropped leaves the queue"
        );
        drop(held);
        drop(poll(&mut first).unwrap().unwrap());
        assert!(semaphore.try_acquire(&b).is_some());
        assert!(semaphore.0.lock().held.is_empty());
    }

    #[test]
    fn a_request_that_resumes_is_not_removed_from_the_queue() {
        let [a, b, _] = users();
        let semaphore = FairSemaphore::new(1);
        let held = semaphore.try_acquire(&a);
        let mut first = wait(&semaphore, &a, 2);
        let mut second = wait(&semaphore, &a, 2);
        let mut resuming: Request<'_> = Box::pin(semaphore.acquire(&a, None));
        assert!(poll(&mut resuming).is_none());
        let mut of_b = wait(&semaphore, &b, 2);
        assert_eq!(poll(&mut second).unwrap().err(), Some(Denied::QueueFull));
        drop(held);
        drop(poll(&mut first).unwrap().unwrap());
        drop(poll(&mut of_b).unwrap().unwrap());
        drop(poll(&mut resuming).unwrap().unwrap());
    }

    #[test]
    fn a_closed_semaphore_denies_permits() {
        let [a, ..] = users();
        let semaphore = FairSemaphore::new(1);
        let held = semaphore.try_acquire(&a);
        let mut waiting = wait(&semaphore, &a, 9);
        semaphore.close();
        assert_eq!(poll(&mut waiting).unwrap().err(), Some(Denied::Closed));
        drop(held);
        assert!(semaphore.try_acquire(&a).is_none());
        assert_eq!(
            poll(&mut (Box::pin(semaphore.acquire(&a, Some(9))) as Request<'_>))
                .unwrap()
                .err(),
            Some(Denied::Closed)
        );
    }
}
