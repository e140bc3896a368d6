//! The open connections: their number, and which has been idle for longest.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// How often a new connection that found no idle one checks again.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// All open connections.
#[derive(Debug)]
pub(super) struct Connections {
    max: u32,
    permits: Arc<Semaphore>,
    /// Permits for HTTP/2 streams of all connections together.
    streams: Arc<Semaphore>,
    next_id: AtomicU64,
    open: Arc<Mutex<HashMap<u64, Weak<Connection>>>>,
}

/// An open connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    id: u64,
    /// Active requests, up to the end of their response.
    n_requests: AtomicUsize,
    idle_since: Mutex<Instant>,
    evicted: Notify,
    all: Arc<Mutex<HashMap<u64, Weak<Connection>>>>,
    streams: Arc<Semaphore>,
    _permit: OwnedSemaphorePermit,
}

/// An active request of a connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Busy {
    connection: Arc<Connection>,
    /// The permit of an HTTP/2 stream, of which a connection may have many.
    _stream: Option<OwnedSemaphorePermit>,
}

/// A response body that keeps its connection busy until its end: closing an idle connection would truncate it.
#[derive(Debug)]
pub(super) struct BusyBody {
    body: Body,
    _busy: Busy,
}

impl Connections {
    pub(super) fn new(max: usize) -> Self {
        let max = u32::try_from(max.min(Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
        let permits = Arc::new(Semaphore::new(max as usize));
        let streams = Arc::new(Semaphore::new(max as usize));
        Self { max, permits, streams, next_id: AtomicU64::new(0), open: Arc::default() }
    }

    /// Waits for the permit of a connection; calls `on_eviction` for each connection closed for it.
    pub(super) async fn enter(&self, on_eviction: impl Fn()) -> Arc<Connection> {
        loop {
            if self.permits.available_permits() == 0 && self.evict_longest_idle() {
                on_eviction();
            }
            let permit = tokio::time::timeout(RETRY_INTERVAL, Arc::clone(&self.permits).acquire_owned());
            if let Ok(Ok(permit)) = permit.await {
                return self.add(permit);
            }
        }
    }

    /// Waits until all connections are closed.
    pub(super) async fn all_gone(&self) {
        let _all_permits = self.permits.acquire_many(self.max).await;
    }

    fn add(&self, permit: OwnedSemaphorePermit) -> Arc<Connection> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(Connection {
            id,
            n_requests: AtomicUsize::new(0),
            idle_since: Mutex::new(Instant::now()),
            evicted: Notify::new(),
            all: Arc::clone(&self.open),
            streams: Arc::clone(&self.streams),
            _permit: permit,
        });
        lock(&self.open).insert(id, Arc::downgrade(&connection));
        connection
    }

    fn evict_longest_idle(&self) -> bool {
        let open: Vec<_> = lock(&self.open).values().filter_map(Weak::upgrade).collect();
        let idle = open.iter().filter(|connection| !connection.is_busy());
        match idle.min_by_key(|connection| *lock(&connection.idle_since)) {
            Some(longest) => {
                // Another new connection must not choose it again.
                *lock(&longest.idle_since) = Instant::now();
                longest.evicted.notify_one();
                true
            }
            None => false,
        }
    }
}

impl Connection {
    /// Marks the connection as busy with a request.
    pub(super) fn busy(self: &Arc<Self>) -> Busy {
        self.n_requests.fetch_add(1, Ordering::AcqRel);
        Busy { connection: Arc::clone(self), _stream: None }
    }

    /// Returns `true` if a request is active.
    pub(super) fn is_busy(&self) -> bool {
        self.n_requests.load(Ordering::Acquire) > 0
    }

    /// Waits until the connection has been idle for `time`.
    pub(super) async fn idle_for(&self, time: Duration) {
        loop {
            let idle = if self.is_busy() { Duration::ZERO } else { lock(&self.idle_since).elapsed() };
            let left = time.saturating_sub(idle);
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left).await;
        }
    }

    /// Waits until the connection is evicted.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

impl Busy {
    /// Waits for the permit of an HTTP/2 stream.
    pub(super) async fn enter_stream(&mut self) {
        // The semaphore is never closed.
        self._stream = Arc::clone(&self.connection.streams).acquire_owned().await.ok();
    }

    /// Keeps the connection busy until the body is dropped.
    pub(super) fn until_the_end_of(self, body: Body) -> BusyBody {
        BusyBody { body, _busy: self }
    }
}

impl HttpBody for BusyBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        *lock(&self.connection.idle_since) = Instant::now();
        self.connection.n_requests.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        lock(&self.all).remove(&self.id);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[tokio::test]
    async fn the_connection_that_is_idle_for_longest_makes_room() {
        let connections = Connections::new(3);
        let n_evicted = Cell::new(0);
        let enter = || connections.enter(|| n_evicted.set(n_evicted.get() + 1));
        let (first, second, third) = (enter().await, enter().await, enter().await);
        let _working = first.busy();
        drop(second.busy());
        // The third has been idle for longest: the second has just been busy, and the first still is.
        let leave = async {
            third.evicted().await;
            drop(third);
        };
        let (_fourth, ()) = tokio::join!(enter(), leave);
        assert_eq!((n_evicted.get(), lock(&connections.open).len()), (1, 3));
    }

    #[tokio::test]
    async fn a_connection_is_busy_until_the_end_of_its_answer() {
        let connections = Connections::new(1);
        let connection = connections.enter(|| ()).await;
        let body = connection.busy().until_the_end_of(Body::from("abc"));
        assert!(connection.is_busy());
        assert_eq!(axum::body::to_bytes(Body::new(body), 10).await.unwrap(), "abc");
        assert!(!connection.is_busy());
    }

    #[tokio::test]
    async fn requests_of_http_2_share_their_permits() {
        let connections = Connections::new(2);
        let (first, second) = (connections.enter(|| ()).await, connections.enter(|| ()).await);
        let mut busy = [first.busy(), first.busy(), second.busy()];
        busy[0].enter_stream().await;
        busy[1].enter_stream().await;
        assert!(tokio::time::timeout(Duration::from_millis(1), busy[2].enter_stream()).await.is_err());
        let [one, _other, mut waiting] = busy;
        drop(one);
        waiting.enter_stream().await;
    }

    #[tokio::test]
    async fn a_connection_is_idle_when_nothing_is_worked_on() {
        let connections = Connections::new(1);
        let connection = connections.enter(|| ()).await;
        let busy = connection.busy();
        let idle = connection.idle_for(Duration::from_millis(1));
        assert!(tokio::time::timeout(Duration::from_millis(5), idle).await.is_err());
        drop(busy);
        connection.idle_for(Duration::from_millis(1)).await;
    }

    #[tokio::test]
    async fn the_end_is_when_the_last_has_gone() {
        let connections = Connections::new(2);
        let connection = connections.enter(|| ()).await;
        assert!(tokio::time::timeout(Duration::from_millis(1), connections.all_gone()).await.is_err());
        drop(connection);
        connections.all_gone().await;
    }
}
