//! Request coalescing: identical concurrent requests are computed once.
//!
//! The first request is the leader and starts the computation. Requests that arrive while it runs
//! are followers. All get the same response if it fits into the buffer. A streamed response goes to
//! the leader only. Then, or if the leader times out, each follower computes its own response.
//!
//! Invariants
//! 1. A request sees all writes acknowledged before it arrived: a computation that has begun
//!    accepts no followers after a write.
//! 2. A computation is canceled only when its leader and all followers have disconnected.
//! 3. There are never more computations than requests.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::response_writer::{CancelOnDrop, Output};
use crate::error::ApiError;

/// The computations in progress, by request key.
#[derive(Debug, Default)]
pub(crate) struct Singleflight {
    computations: Mutex<HashMap<String, Weak<Computation>>>,
    /// Number of requests that may have changed the store.
    n_writes: AtomicU64,
}

/// A computation. The leader and the followers hold it while they wait for its result.
#[derive(Debug)]
pub(crate) struct Computation {
    key: String,
    group: Arc<Singleflight>,
    /// `n_writes` when the computation began.
    began_at: OnceLock<u64>,
    result: watch::Sender<Option<Output>>,
    task: OnceLock<AbortHandle>,
    _cancel: CancelOnDrop,
}

/// Completes a computation with the output of its job. Without an output the job did not run,
/// because the server is stopping.
#[derive(Debug)]
pub(crate) struct Completion(Weak<Computation>);

/// The role of a request in a computation.
#[derive(Debug)]
pub(crate) enum Role {
    /// The request must start the computation.
    Leader(Arc<Computation>),
    /// The request waits for the leader's result.
    Follower(Arc<Computation>),
}

impl Singleflight {
    /// Records a possible write. The caller must do so before it acknowledges the write.
    pub(crate) fn note_write(&self) {
        self.n_writes.fetch_add(1, Ordering::SeqCst);
    }

    /// Joins the computation of `key`, or creates one. `cancel` returns the guard that cancels it.
    pub(crate) fn join(
        self: &Arc<Self>,
        key: String,
        cancel: impl FnOnce() -> CancelOnDrop,
    ) -> Role {
        let mut computations = self.computations.lock();
        if let Some(computation) = computations.get(&key).and_then(Weak::upgrade) {
            if computation.accepts_followers() {
                return Role::Follower(computation);
            }
            // Drops the old computation after the lock, because its destructor takes the lock.
            drop(computations);
            drop(computation);
            computations = self.computations.lock();
        }
        let computation = Arc::new(Computation {
            key: key.clone(),
            group: Arc::clone(self),
            began_at: OnceLock::new(),
            result: watch::Sender::new(None),
            task: OnceLock::new(),
            _cancel: cancel(),
        });
        computations.insert(key, Arc::downgrade(&computation));
        Role::Leader(computation)
    }
}

impl Computation {
    /// Sets the task of the computation, which is aborted when the last request has disconnected.
    pub(crate) fn set_task(&self, task: AbortHandle) {
        self.task.get_or_init(|| task);
    }

    /// Records that the computation is about to read the store.
    pub(crate) fn begin(&self) {
        let _ordered_with_join = self.group.computations.lock();
        self.began_at
            .get_or_init(|| self.group.n_writes.load(Ordering::SeqCst));
    }

    /// Passes the result to the leader and the followers. No further request can join.
    pub(crate) fn complete(&self, output: Output) {
        self.remove();
        self.result.send_replace(Some(output));
    }

    /// Waits for the result.
    pub(crate) async fn result(&self) -> Output {
        let mut result = self.result.subscribe();
        let result = result
            .wait_for(Option::is_some)
            .await
            .map(|result| result.clone());
        result
            .ok()
            .flatten()
            .unwrap_or_else(|| Output::Error(ApiError::stopping()))
    }

    fn accepts_followers(&self) -> bool {
        self.began_at
            .get()
            .is_none_or(|&began_at| began_at == self.group.n_writes.load(Ordering::SeqCst))
    }

    /// Removes this computation from the list, unless another one has replaced it.
    fn remove(&self) {
        let mut computations = self.group.computations.lock();
        if computations
            .get(&self.key)
            .is_some_and(|listed| std::ptr::eq(listed.as_ptr(), self))
        {
            computations.remove(&self.key);
        }
    }
}

impl Completion {
    /// Completes the computation of `computation`.
    pub(crate) fn of(computation: &Arc<Computation>) -> Self {
        Self(Arc::downgrade(computation))
    }

    /// Records that the computation is about to read the store.
    pub(crate) fn begin(&self) {
        drop(self.0.upgrade().inspect(|computation| computation.begin()));
    }

    /// Passes the output to the leader and the followers.
    ///
    /// # Errors
    /// The output, if all of them have disconnected.
    pub(crate) fn complete(mut self, output: Output) -> Result<(), Output> {
        match std::mem::take(&mut self.0).upgrade() {
            Some(computation) => {
                computation.complete(output);
                Ok(())
            }
            None => Err(output),
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if let Some(computation) = self.0.upgrade() {
            computation.complete(Output::Error(ApiError::stopping()));
        }
    }
}

impl Drop for Computation {
    fn drop(&mut self) {
        self.remove();
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use tokio::sync::mpsc;
    use varve_context::{Interrupt, QueryContext};

    fn join(group: &Arc<Singleflight>, ctx: &QueryContext) -> Role {
        group.join("up".into(), || CancelOnDrop(ctx.clone()))
    }

    #[track_caller]
    fn leader(role: Role) -> Arc<Computation> {
        let Role::Leader(computation) = role else {
            panic!("a computation is in progress")
        };
        computation
    }

    #[track_caller]
    fn follower(role: Role) -> Arc<Computation> {
        let Role::Follower(computation) = role else {
            panic!("no computation is in progress")
        };
        computation
    }

    #[tokio::test]
    async fn leader_and_followers_get_the_same_response() {
        let (group, ctx) = (Arc::new(Singleflight::default()), QueryContext::unbounded());
        let first = leader(join(&group, &ctx));
        let second = follower(join(&group, &ctx));
        first.complete(Output::Complete(
            Bytes::from_static(b"1"),
            Arc::new(ctx.charge()),
        ));
        for computation in [&first, &second] {
            assert!(
                matches!(computation.result().await, Output::Complete(ref bytes, _) if bytes == "1")
            );
        }
        drop(leader(join(&group, &ctx)));
        assert!(group.computations.lock().is_empty());
    }

    #[tokio::test]
    async fn a_stream_is_not_for_followers() {
        let (group, ctx) = (Arc::new(Singleflight::default()), QueryContext::unbounded());
        let first = leader(join(&group, &ctx));
        first.complete(Output::stream(mpsc::channel(1).1));
        assert!(!first.result().await.is_for_followers());
    }

    #[test]
    fn a_computation_is_canceled_with_its_last_request() {
        let (group, ctx) = (Arc::new(Singleflight::default()), QueryContext::unbounded());
        let first = leader(join(&group, &ctx));
        let second = follower(join(&group, &ctx));
        drop(first);
        assert_eq!(ctx.interrupted(), None);
        drop(second);
        assert_eq!(ctx.interrupted(), Some(Interrupt::Canceled));
        assert!(group.computations.lock().is_empty());
    }

    #[test]
    fn a_computation_that_misses_a_write_accepts_no_followers() {
        let (group, ctx) = (Arc::new(Singleflight::default()), QueryContext::unbounded());
        let first = leader(join(&group, &ctx));
        // It has not read the store yet.
        group.note_write();
        drop(follower(join(&group, &ctx)));
        first.begin();
        drop(follower(join(&group, &ctx)));
        group.note_write();
        let second = leader(join(&group, &ctx));
        drop(first);
        drop(follower(join(&group, &ctx)));
        drop(second);
    }

    #[tokio::test]
    async fn a_job_that_does_not_run_completes_its_computation() {
        let (group, ctx) = (Arc::new(Singleflight::default()), QueryContext::unbounded());
        let computation = leader(join(&group, &ctx));
        drop(Completion::of(&computation));
        assert!(matches!(computation.result().await, Output::Error(_)));
        let completion = Completion::of(&computation);
        drop(computation);
        completion
            .complete(Output::Error(ApiError::bad_data("no")))
            .unwrap_err();
    }
}
