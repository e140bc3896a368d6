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

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use varve_context::Interrupt;
use varve_server::requests::tenant::TenantId;
use varve_tsdb::ReadContext;

use super::output::Output;
use crate::error::ApiError;

/// The computations in progress, by key.
#[derive(Debug, Default)]
pub(crate) struct Singleflight {
    computations: Mutex<HashMap<Arc<ComputationKey>, Weak<Computation>>>,
    /// Number of requests that may have changed the store.
    n_writes: AtomicU64,
}

/// Everything that a response depends on, except the data. Requests with equal keys share a
/// computation.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct ComputationKey {
    pub(crate) route: String,
    pub(crate) user: Arc<str>,
    /// The tenant of the user. A reload of the web configuration creates new tenants.
    pub(crate) tenant: Option<TenantId>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) parameters: AnyParameters,
}

/// The parameters of one endpoint, with the values of defaults. Every type that derives `Eq` and
/// `Hash` implements it.
pub(crate) trait KeyParameters: Any + fmt::Debug + Send + Sync {
    /// Returns `true` if `other` has the same type and value.
    fn is_equal(&self, other: &dyn KeyParameters) -> bool;

    /// Feeds the value to a hasher.
    fn hash_into(&self, hasher: &mut dyn Hasher);
}

impl<T: Any + Eq + Hash + fmt::Debug + Send + Sync> KeyParameters for T {
    fn is_equal(&self, other: &dyn KeyParameters) -> bool {
        let other: &dyn Any = other;
        other.downcast_ref::<T>() == Some(self)
    }

    fn hash_into(&self, hasher: &mut dyn Hasher) {
        self.hash(&mut BoundedHasher(hasher));
    }
}

/// Maximum number of bytes of a text that are hashed.
const HASHED_SIZE_MAX: usize = 4 << 10;

/// Feeds the beginning and the size of a long text to a hasher. A key is hashed under a lock, on a
/// thread that serves other requests, and a text may have as many bytes as a body. Equality still
/// compares all of it.
struct BoundedHasher<'a>(&'a mut dyn Hasher);

impl Hasher for BoundedHasher<'_> {
    fn write(&mut self, bytes: &[u8]) {
        let hashed = &bytes[..bytes.len().min(HASHED_SIZE_MAX)];
        self.0.write(hashed);
        if hashed.len() < bytes.len() {
            self.0.write_usize(bytes.len());
        }
    }

    fn finish(&self) -> u64 {
        self.0.finish()
    }
}

/// The parameters of any endpoint.
#[derive(Debug)]
pub(crate) struct AnyParameters(pub(crate) Arc<dyn KeyParameters>);

impl PartialEq for AnyParameters {
    fn eq(&self, other: &Self) -> bool {
        self.0.is_equal(&*other.0)
    }
}

impl Eq for AnyParameters {}

impl Hash for AnyParameters {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.0.hash_into(hasher);
    }
}

/// A computation. The leader and the followers hold it until they have its whole response. When the
/// last of them drops it, the computation is canceled.
#[derive(Debug)]
pub(crate) struct Computation {
    /// Where others find it. `None` if it serves one request.
    listed: Option<Listed>,
    /// [`Singleflight::n_writes`] when the computation began.
    n_writes_at_start: OnceLock<u64>,
    result: watch::Sender<Option<Output>>,
    task: OnceLock<AbortHandle>,
    ctx: ReadContext,
}

#[derive(Debug)]
struct Listed {
    key: Arc<ComputationKey>,
    singleflight: Arc<Singleflight>,
}

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

    /// Joins the computation of `key`, or creates one in the context that `context` returns.
    pub(crate) fn join(
        self: &Arc<Self>,
        key: ComputationKey,
        context: impl FnOnce() -> ReadContext,
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
        let key = Arc::new(key);
        let listed = Listed {
            key: Arc::clone(&key),
            singleflight: Arc::clone(self),
        };
        let computation = Computation::new(Some(listed), context());
        computations.insert(key, Arc::downgrade(&computation));
        Role::Leader(computation)
    }
}

impl Computation {
    /// Creates a computation for one request, in its context.
    pub(crate) fn alone(ctx: ReadContext) -> Arc<Self> {
        Self::new(None, ctx)
    }

    fn new(listed: Option<Listed>, ctx: ReadContext) -> Arc<Self> {
        Arc::new(Self {
            listed,
            n_writes_at_start: OnceLock::new(),
            result: watch::Sender::new(None),
            task: OnceLock::new(),
            ctx,
        })
    }

    /// Returns the context of the computation.
    pub(crate) fn ctx(&self) -> &ReadContext {
        &self.ctx
    }

    /// Sets the task of the computation, which is aborted when the last request has disconnected.
    pub(crate) fn set_task(&self, task: AbortHandle) {
        self.task.get_or_init(|| task);
    }

    /// Records that the computation is about to read the store.
    pub(crate) fn begin(&self) {
        if let Some(Listed { singleflight, .. }) = &self.listed {
            let _ordered_with_join = singleflight.computations.lock();
            self.n_writes_at_start
                .get_or_init(|| singleflight.n_writes.load(Ordering::SeqCst));
        }
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
        match (&self.listed, self.n_writes_at_start.get()) {
            (Some(listed), Some(&n_writes_at_start)) => {
                n_writes_at_start == listed.singleflight.n_writes.load(Ordering::SeqCst)
            }
            (Some(_), None) => true,
            (None, _) => false,
        }
    }

    /// Removes this computation from the list, unless another one has replaced it.
    fn remove(&self) {
        let Some(Listed { key, singleflight }) = &self.listed else {
            return;
        };
        let mut computations = singleflight.computations.lock();
        let is_listed = computations
            .get(key)
            .is_some_and(|computation| std::ptr::eq(computation.as_ptr(), self));
        if is_listed {
            computations.remove(key);
        }
    }
}

impl Drop for Computation {
    fn drop(&mut self) {
        self.remove();
        if let Some(task) = self.task.get() {
            task.abort();
        }
        // This has no effect on a computation that has ended: it no longer checks its context.
        self.ctx.interrupt(Interrupt::Canceled);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use bytes::Bytes;
    use std::hash::DefaultHasher;
    use tokio::sync::mpsc;
    use varve_config::web::{TenantConfig, TenantLimits};
    use varve_server::requests::tenant::Tenant;

    fn key(parameters: Arc<dyn KeyParameters>) -> ComputationKey {
        ComputationKey {
            route: "/x".to_owned(),
            user: Arc::from("ann"),
            tenant: None,
            timeout: None,
            parameters: AnyParameters(parameters),
        }
    }

    fn join(group: &Arc<Singleflight>, ctx: &ReadContext) -> Role {
        group.join(key(Arc::new("up")), || ctx.clone())
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
        let group = Arc::new(Singleflight::default());
        let ctx = ReadContext::unbounded();
        let first = leader(join(&group, &ctx));
        let second = follower(join(&group, &ctx));
        first.complete(Output::Complete(Bytes::from_static(b"1")));
        for computation in [&first, &second] {
            let result = computation.result().await;
            assert!(matches!(result, Output::Complete(ref bytes) if bytes == "1"));
        }
        drop(leader(join(&group, &ctx)));
        assert!(group.computations.lock().is_empty());
    }

    #[tokio::test]
    async fn a_stream_is_not_for_followers() {
        let group = Arc::new(Singleflight::default());
        let ctx = ReadContext::unbounded();
        let first = leader(join(&group, &ctx));
        first.complete(Output::stream(mpsc::channel(1).1));
        assert!(!first.result().await.is_for_followers());
    }

    #[test]
    fn a_computation_is_canceled_with_its_last_request() {
        let group = Arc::new(Singleflight::default());
        let ctx = ReadContext::unbounded();
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
        let group = Arc::new(Singleflight::default());
        let ctx = ReadContext::unbounded();
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

    #[test]
    fn keys_differ_in_every_part() {
        let same = || key(Arc::new("up"));
        assert_eq!(same(), same());
        let tenant = Tenant::new(&TenantConfig {
            users: Vec::new(),
            matchers: Vec::new(),
            labels: Vec::new(),
            limits: TenantLimits::default(),
        });
        let others = [
            key(Arc::new("down")),
            // Equal text of another type.
            key(Arc::new("up".to_owned())),
            ComputationKey {
                route: "/y".to_owned(),
                ..same()
            },
            ComputationKey {
                user: Arc::from("bob"),
                ..same()
            },
            ComputationKey {
                tenant: Some(tenant.id()),
                ..same()
            },
            ComputationKey {
                timeout: Some(Duration::ZERO),
                ..same()
            },
        ];
        for other in others {
            assert_ne!(same(), other);
        }
    }

    /// Hashing 30 MB of text delayed other requests by seconds in a debug build.
    #[test]
    fn long_texts_are_hashed_in_part_and_compared_whole() {
        let hash = |text: &str| {
            let mut hasher = DefaultHasher::new();
            key(Arc::new(text.to_owned())).hash(&mut hasher);
            hasher.finish()
        };
        let long = "x".repeat(2 * HASHED_SIZE_MAX);
        let other_end = format!("{}y", &long[1..]);
        assert_eq!(hash(&long), hash(&other_end));
        assert_ne!(key(Arc::new(long.clone())), key(Arc::new(other_end)));
        assert_ne!(hash(&long), hash(&long[1..]));
        assert_ne!(hash(&long), hash(&long.replacen('x', "y", 1)));
    }
}
