//! Open connections: their number, the reserve, and eviction to make room for new ones.
//!
//! An idle connection is evicted for a new one, the longest idle first. A new connection is not
//! evicted for 100 ms, until its first request arrives. If no connection is idle, the one whose
//! request body arrives most slowly is evicted. If none can be evicted, the new connection is
//! *reserved*: it serves probes, metrics and administration, and any other request only after it
//! gets a regular permit. If there are too many reserved connections, one of them is evicted by the
//! same rules.
//!
//! Threads: what changes of a connection is in its [`ConnectionState`], behind one lock. The task of
//! the connection and the tasks of its HTTP/2 streams write it: each request when it begins and when
//! its response ends, each request body when a part of it arrives. The task that accepts connections
//! reads the states of all of them to choose one to evict, and so does a request that waits for a
//! permit. So an observer never sees a body without its request, or a permit of the reserve on a
//! regular connection.
//!
//! Nothing is locked between the choice of a connection and its eviction, so it may begin a request
//! meanwhile. Its own task decides then whether it can be closed ([`Connection::is_closable`]).
//!
//! Lock order: `Connections::stream_eviction`, then `Connections::open` or the state of one
//! connection. No two of the latter are held at once. None of them is held while a `Connection` is
//! dropped, which locks `open`.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use http_body_util::BodyExt as _;
use hyper::body::{Frame, Incoming, SizeHint};
use parking_lot::Mutex;
use prometheus::IntCounter;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Interval at which a new connection, or a request on a reserved one, retries an eviction.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum number of reserved connections.
pub(super) const RESERVED_MAX: u32 = 16;
/// Maximum time that a reserved connection may be idle.
const RESERVED_IDLE_TIME_MAX: Duration = Duration::from_secs(1);

/// Grace period for the first request of a connection: until then it does not count as idle. On a
/// busy machine, reading a request that has arrived takes a while.
const FIRST_REQUEST_GRACE: Duration = Duration::from_millis(100);

/// Minimum time that a connection receives a body before it may be evicted: a burst of requests is
/// not slow.
const RECEIVE_TIME_MIN: Duration = Duration::from_secs(1);

/// All open connections.
#[derive(Debug)]
pub(super) struct Connections {
    max: u32,
    permits: Arc<Semaphore>,
    reserve: Arc<Semaphore>,
    /// Permits for HTTP/2 streams of all connections together.
    streams: Arc<Semaphore>,
    /// When a connection was last evicted for a stream.
    stream_eviction: Mutex<Option<Instant>>,
    next_id: AtomicU64,
    open: Mutex<HashMap<u64, Weak<Connection>>>,
    evictions: Evictions,
}

/// Counts closed connections.
#[derive(Debug, Clone)]
pub(super) struct Evictions {
    pub(super) idle: IntCounter,
    pub(super) slow: IntCounter,
}

/// An open connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    id: u64,
    all: Arc<Connections>,
    state: Mutex<ConnectionState>,
    /// Notified once, when the connection is chosen for eviction.
    evicted: Notify,
}

/// What the tasks of a connection tell those that look for one to evict.
#[derive(Debug)]
struct ConnectionState {
    /// Active requests, up to the end of their response.
    n_requests: usize,
    has_sent_request: bool,
    /// When the last request ended, or the connection was opened.
    idle_since: Instant,
    receiving: Receiving,
    /// Whether the connection has had permits of HTTP/2 streams.
    has_streams: bool,
    /// Whether `permit` is one of the reserve.
    is_reserved: bool,
    permit: OwnedSemaphorePermit,
    is_evicted: bool,
}

/// The request bodies of a connection that are being received.
#[derive(Debug)]
struct Receiving {
    /// At most `n_requests`: each body is that of an active request.
    n_bodies: usize,
    since: Instant,
    bytes: u64,
}

/// An active request of a connection, until it is dropped.
#[derive(Debug)]
pub(super) struct RequestGuard {
    connection: Arc<Connection>,
    /// The permit of an HTTP/2 stream. A connection may have many.
    stream: Option<OwnedSemaphorePermit>,
}

/// A request body. Counts its bytes for its connection.
#[derive(Debug)]
pub(super) struct ReceivedBody {
    body: Incoming,
    connection: Arc<Connection>,
    is_receiving: bool,
}

impl Connections {
    pub(super) fn new(max: usize, evictions: Evictions) -> Arc<Self> {
        let max = u32::try_from(max.min(Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
        Arc::new(Self {
            max,
            permits: Arc::new(Semaphore::new(max as usize)),
            reserve: Arc::new(Semaphore::new(RESERVED_MAX as usize)),
            streams: Arc::new(Semaphore::new(max as usize)),
            stream_eviction: Mutex::default(),
            next_id: AtomicU64::new(0),
            open: Mutex::default(),
            evictions,
        })
    }

    /// Waits for the permit of a connection, regular or reserved. Evicts another connection if
    /// necessary.
    pub(super) async fn enter(self: &Arc<Self>) -> Arc<Connection> {
        loop {
            let is_reserved = self.permits.available_permits() == 0 && !self.evict(false);
            let permits = if is_reserved {
                &self.reserve
            } else {
                &self.permits
            };
            if is_reserved && permits.available_permits() == 0 {
                self.evict(true);
            }
            if let Some(permit) = self.wait_for(permits).await {
                return self.add(permit, is_reserved);
            }
        }
    }

    /// Waits until all connections are closed.
    pub(super) async fn all_gone(&self) {
        let _all_permits = self.permits.acquire_many(self.max).await;
        let _reserve = self.reserve.acquire_many(RESERVED_MAX).await;
    }

    async fn wait_for(&self, permits: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
        tokio::time::timeout(RETRY_INTERVAL, Arc::clone(permits).acquire_owned())
            .await
            .ok()?
            .ok()
    }

    fn add(self: &Arc<Self>, permit: OwnedSemaphorePermit, is_reserved: bool) -> Arc<Connection> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        let state = ConnectionState {
            n_requests: 0,
            has_sent_request: false,
            idle_since: now,
            receiving: Receiving {
                n_bodies: 0,
                since: now,
                bytes: 0,
            },
            has_streams: false,
            is_reserved,
            permit,
            is_evicted: false,
        };
        let connection = Arc::new(Connection {
            id,
            all: Arc::clone(self),
            state: Mutex::new(state),
            evicted: Notify::new(),
        });
        self.open.lock().insert(id, Arc::downgrade(&connection));
        connection
    }

    /// Evicts the longest idle of the regular or reserved connections, or else the one that
    /// receives most slowly. Returns `false` if there is neither.
    fn evict(&self, is_reserved: bool) -> bool {
        let evictable = self.evictable(|state| state.is_reserved == is_reserved);
        let mut longest: Option<(Instant, &Connection)> = None;
        for connection in &evictable {
            let state = connection.state.lock();
            // Reserved connections have no grace period: there are few, and probes need them.
            let is_idle = !state.is_busy() && (is_reserved || !state.is_before_first_request());
            if is_idle && longest.is_none_or(|(since, _)| state.idle_since < since) {
                longest = Some((state.idle_since, connection));
            }
        }
        match longest {
            Some((_, connection)) => {
                self.evictions.idle.inc();
                connection.evict();
                true
            }
            None => self.evict_slowest(&evictable),
        }
    }

    /// Evicts the slowest connection with HTTP/2 streams. All waiting streams ask for that, so one
    /// connection is evicted at a time.
    fn evict_for_stream(&self) {
        let mut last = self.stream_eviction.lock();
        if last.is_none_or(|evicted| evicted.elapsed() >= RETRY_INTERVAL) {
            let with_streams = self.evictable(|state| state.has_streams);
            *last = self.evict_slowest(&with_streams).then(Instant::now);
        }
    }

    /// Evicts the slowest of the connections that only receive request bodies. Returns `false` if
    /// there is none.
    fn evict_slowest(&self, connections: &[Arc<Connection>]) -> bool {
        let mut slowest: Option<(f64, &Connection)> = None;
        for connection in connections {
            let rate = connection.state.lock().receive_rate();
            if let Some(rate) = rate
                && slowest.is_none_or(|(slowest_rate, _)| rate < slowest_rate)
            {
                slowest = Some((rate, connection));
            }
        }
        match slowest {
            Some((_, connection)) => {
                self.evictions.slow.inc();
                connection.evict();
                true
            }
            None => false,
        }
    }

    /// Returns the open connections for whose state `filter` holds and that are not evicted yet.
    fn evictable(&self, filter: impl Fn(&ConnectionState) -> bool) -> Vec<Arc<Connection>> {
        // Dropping the last reference to a connection locks the table, so references are dropped
        // after the lock.
        let mut connections: Vec<_> = self
            .open
            .lock()
            .values()
            .filter_map(Weak::upgrade)
            .collect();
        connections.retain(|connection| {
            let state = connection.state.lock();
            !state.is_evicted && filter(&state)
        });
        connections
    }
}

impl Connection {
    /// Marks the connection as busy with a request.
    pub(super) fn begin_request(self: &Arc<Self>) -> RequestGuard {
        let mut state = self.state.lock();
        state.n_requests += 1;
        state.has_sent_request = true;
        drop(state);
        RequestGuard {
            connection: Arc::clone(self),
            stream: None,
        }
    }

    /// Returns `true` if a request is active.
    pub(super) fn is_busy(&self) -> bool {
        self.state.lock().is_busy()
    }

    /// Returns `true` if closing the connection aborts no request that has arrived completely.
    pub(super) fn is_closable(&self) -> bool {
        let state = self.state.lock();
        !state.is_busy() || state.receive_rate().is_some()
    }

    /// Waits until the connection has been idle for `time`, or for [`RESERVED_IDLE_TIME_MAX`] if it
    /// is reserved.
    pub(super) async fn idle_for(&self, time: Duration) {
        loop {
            let left = self.state.lock().idle_time_left(time);
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left).await;
        }
    }

    /// Waits until the connection only receives request bodies, for at least [`RECEIVE_TIME_MIN`].
    pub(super) async fn slow(&self) {
        while self.state.lock().receive_rate().is_none() {
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Waits until the connection is evicted.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }

    fn is_reserved(&self) -> bool {
        self.state.lock().is_reserved
    }

    /// Replaces a permit of the reserve by a regular one.
    fn make_regular(&self, regular: OwnedSemaphorePermit) {
        let mut state = self.state.lock();
        let reserved = std::mem::replace(&mut state.permit, regular);
        state.is_reserved = false;
        drop(state);
        drop(reserved);
    }

    fn evict(&self) {
        self.state.lock().is_evicted = true;
        self.evicted.notify_one();
    }
}

impl ConnectionState {
    fn is_busy(&self) -> bool {
        self.n_requests > 0
    }

    /// Returns `true` if the client has connected less than [`FIRST_REQUEST_GRACE`] ago and has
    /// sent no request.
    fn is_before_first_request(&self) -> bool {
        !self.has_sent_request && self.idle_since.elapsed() < FIRST_REQUEST_GRACE
    }

    /// Returns how long the connection has to stay idle until it has been idle for `time`, or for
    /// [`RESERVED_IDLE_TIME_MAX`] if it is reserved.
    fn idle_time_left(&self, time: Duration) -> Duration {
        let time = if self.is_reserved {
            time.min(RESERVED_IDLE_TIME_MAX)
        } else {
            time
        };
        if self.is_busy() {
            time
        } else {
            time.saturating_sub(self.idle_since.elapsed())
        }
    }

    /// Returns the rate of request bodies in bytes per second. Returns `None` if the connection
    /// does anything besides receiving them, or began less than [`RECEIVE_TIME_MIN`] ago.
    fn receive_rate(&self) -> Option<f64> {
        let Receiving {
            n_bodies,
            since,
            bytes,
        } = self.receiving;
        let is_only_receiving = n_bodies > 0 && n_bodies == self.n_requests;
        let elapsed = since.elapsed();
        if is_only_receiving && elapsed >= RECEIVE_TIME_MIN {
            Some(bytes as f64 / elapsed.as_secs_f64())
        } else {
            None
        }
    }
}

impl RequestGuard {
    /// Waits for a regular permit if the connection is reserved. Returns `false` if there is none.
    pub(super) async fn enter_regular(&self) -> bool {
        let all = &self.connection.all;
        let started = Instant::now();
        while self.connection.is_reserved() {
            let new_connections =
                all.evictable(|state| !state.is_reserved && state.is_before_first_request());
            let is_any_new = !new_connections.is_empty();
            // Keeping them would keep their permits.
            drop(new_connections);

            if all.permits.available_permits() == 0 {
                all.evict(false);
            }
            if let Some(regular) = all.wait_for(&all.permits).await {
                self.connection.make_regular(regular);
            } else if !is_any_new || started.elapsed() > FIRST_REQUEST_GRACE + RETRY_INTERVAL {
                // A connection that was new has been evicted meanwhile, or has a request.
                return false;
            }
        }
        true
    }

    /// Returns `true` if the connection has one of the reserved permits.
    pub(super) fn is_on_reserved(&self) -> bool {
        self.connection.is_reserved()
    }

    /// Waits for the permit of an HTTP/2 stream. Evicts the slowest connection with streams if
    /// there is none.
    pub(super) async fn enter_stream(&mut self) {
        let all = &self.connection.all;
        while self.stream.is_none() {
            if all.streams.available_permits() == 0 {
                all.evict_for_stream();
            }
            self.stream = all.wait_for(&all.streams).await;
        }
        self.connection.state.lock().has_streams = true;
    }

    /// Counts the bytes of a request body.
    pub(super) fn receive(&self, body: Incoming) -> ReceivedBody {
        ReceivedBody {
            body,
            connection: Arc::clone(&self.connection),
            is_receiving: false,
        }
    }

    /// Returns a body that keeps the connection busy until it is dropped: closing an idle
    /// connection would truncate it.
    pub(super) fn guard_body(self, body: Body) -> Body {
        Body::new(body.map_err(move |error| {
            // The closure owns the guard, so the guard lives as long as the body.
            let _guard = &self;
            error
        }))
    }
}

impl ReceivedBody {
    /// Marks the body as being received, or not any more.
    fn set_receiving(&mut self, is_receiving: bool) {
        if std::mem::replace(&mut self.is_receiving, is_receiving) == is_receiving {
            return;
        }
        let mut state = self.connection.state.lock();
        let receiving = &mut state.receiving;
        if !is_receiving {
            receiving.n_bodies -= 1;
        } else if receiving.n_bodies == 0 {
            *receiving = Receiving {
                n_bodies: 1,
                since: Instant::now(),
                bytes: 0,
            };
        } else {
            receiving.n_bodies += 1;
        }
    }
}

impl HttpBody for ReceivedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        // Only a body that is read counts: a handler may never ask for it.
        self.set_receiving(true);
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                // The lock is taken once per frame, and not at all while no bytes arrive.
                let size = frame.data_ref().map_or(0, Bytes::len) as u64;
                self.connection.state.lock().receiving.bytes += size;
            }
            Poll::Ready(_) => self.set_receiving(false),
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for ReceivedBody {
    fn drop(&mut self) {
        self.set_receiving(false);
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let mut state = self.connection.state.lock();
        state.idle_since = Instant::now();
        state.n_requests -= 1;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.all.open.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(max: usize) -> Arc<Connections> {
        let counter = || IntCounter::new("n", "x").unwrap();
        Connections::new(
            max,
            Evictions {
                idle: counter(),
                slow: counter(),
            },
        )
    }

    #[tokio::test]
    async fn the_longest_idle_connection_is_evicted() {
        let connections = connections(3);
        let enter = || connections.enter();
        let first = enter().await;
        let second = enter().await;
        let third = enter().await;
        tokio::time::sleep(FIRST_REQUEST_GRACE).await;
        let _working = first.begin_request();
        drop(second.begin_request());
        // The third connection is the longest idle: the second was busy just now, and the first
        // still is.
        let leave = async {
            third.evicted().await;
            drop(third);
        };
        let (_fourth, ()) = tokio::join!(enter(), leave);
        assert_eq!(
            (
                connections.evictions.idle.get(),
                connections.open.lock().len()
            ),
            (1, 3)
        );
    }

    /// A client connected, and its connection was evicted before its request was read.
    #[tokio::test]
    async fn a_new_connection_is_not_evicted_before_its_first_request() {
        let connections = connections(1);
        let new = connections.enter().await;
        assert!(!connections.evict(false) && connections.enter().await.is_reserved());
        tokio::time::sleep(FIRST_REQUEST_GRACE).await;
        assert!(connections.evict(false) && new.state.lock().is_evicted);
    }

    #[tokio::test]
    async fn a_connection_is_busy_until_the_end_of_its_response() {
        let connections = connections(1);
        let connection = connections.enter().await;
        let body = connection.begin_request().guard_body(Body::from("abc"));
        assert!(connection.is_busy());
        assert_eq!(axum::body::to_bytes(body, 10).await.unwrap(), "abc");
        assert!(!connection.is_busy());
    }

    #[tokio::test]
    async fn requests_of_http_2_share_their_permits() {
        let connections = connections(2);
        let first = connections.enter().await;
        let second = connections.enter().await;
        let mut busy = [
            first.begin_request(),
            first.begin_request(),
            second.begin_request(),
        ];
        busy[0].enter_stream().await;
        busy[1].enter_stream().await;
        assert!(
            tokio::time::timeout(Duration::from_millis(1), busy[2].enter_stream())
                .await
                .is_err()
        );
        let [one, _other, mut waiting] = busy;
        drop(one);
        waiting.enter_stream().await;
    }

    #[tokio::test]
    async fn a_connection_without_active_requests_is_idle() {
        let connections = connections(1);
        let connection = connections.enter().await;
        let busy = connection.begin_request();
        let idle = connection.idle_for(Duration::from_millis(1));
        assert!(
            tokio::time::timeout(Duration::from_millis(5), idle)
                .await
                .is_err()
        );
        drop(busy);
        connection.idle_for(Duration::from_millis(1)).await;
    }

    #[tokio::test]
    async fn the_slowest_connection_is_evicted() {
        let connections = connections(2);
        let slow = connections.enter().await;
        let fast = connections.enter().await;
        let _busy = [slow.begin_request(), fast.begin_request()];
        assert!(!connections.evict(false), "both may be computing");
        let receive = |since| {
            for (connection, bytes) in [(&slow, 1), (&fast, 1 << 20)] {
                connection.state.lock().receiving = Receiving {
                    n_bodies: 1,
                    since,
                    bytes,
                };
            }
        };
        receive(Instant::now());
        assert!(!connections.evict(false), "both have just begun");
        receive(Instant::now() - RECEIVE_TIME_MIN);
        assert!(connections.evict(false) && slow.state.lock().is_evicted && slow.is_closable());
        assert_eq!(
            (
                connections.evictions.idle.get(),
                connections.evictions.slow.get()
            ),
            (0, 1)
        );
        // A further request of the connection is not interrupted.
        let _other = fast.begin_request();
        assert!(!connections.evict(false) && !fast.is_closable());
    }

    /// Every waiting stream evicted a connection, so a few slow ones cost all others.
    #[tokio::test]
    async fn waiting_streams_evict_one_connection_at_a_time() {
        let connections = connections(3);
        let all = [
            connections.enter().await,
            connections.enter().await,
            connections.enter().await,
        ];
        let _busy = all.each_ref().map(|connection| {
            connection.state.lock().has_streams = true;
            let since = Instant::now() - RECEIVE_TIME_MIN;
            connection.state.lock().receiving = Receiving {
                n_bodies: 1,
                since,
                bytes: connection.id,
            };
            connection.begin_request()
        });
        for n_evicted in 1..=3 {
            (0..10).for_each(|_| connections.evict_for_stream());
            assert_eq!(connections.evictions.slow.get(), n_evicted);
            *connections.stream_eviction.lock() = Some(Instant::now() - RETRY_INTERVAL);
        }
    }

    /// Clients that opened all reserved connections and sent nothing, or bodies that did not
    /// arrive, made probes wait.
    #[tokio::test]
    async fn a_reserved_connection_is_evicted_for_another_one() {
        for is_receiving in [false, true] {
            let connections = connections(1);
            let regular = connections.enter().await;
            let _working = regular.begin_request();
            let mut reserved = Vec::new();
            for _ in 0..RESERVED_MAX {
                reserved.push(connections.enter().await);
            }
            let since = Instant::now() - RECEIVE_TIME_MIN;
            let busy = |connection: &Arc<Connection>| {
                connection.state.lock().receiving = Receiving {
                    n_bodies: 1,
                    since,
                    bytes: connection.id,
                };
                connection.begin_request()
            };
            let mut bodies: Vec<_> = reserved.iter().filter(|_| is_receiving).map(busy).collect();
            let first = (
                reserved.remove(0),
                bodies.drain(..usize::from(is_receiving)).next(),
            );
            let leave = async {
                first.0.evicted().await;
                drop(first);
            };
            let entered = async { tokio::join!(connections.enter(), leave).0 };
            let other = tokio::time::timeout(Duration::from_secs(10), entered).await;
            assert!(
                other.is_ok_and(|other| other.is_reserved()),
                "{is_receiving}"
            );
        }
    }

    #[tokio::test]
    async fn a_reserved_connection_needs_a_regular_permit_for_most_requests() {
        let connections = connections(1);
        let regular = connections.enter().await;
        let working = regular.begin_request();
        let reserved = connections.enter().await;
        let busy = reserved.begin_request();
        assert!(reserved.is_reserved() && !busy.enter_regular().await);
        drop((working, regular));
        assert!(busy.enter_regular().await && !reserved.is_reserved());
        assert_eq!(
            connections.reserve.available_permits(),
            RESERVED_MAX as usize
        );
    }

    /// Idle clients that had just connected made the request of another one fail.
    #[tokio::test]
    async fn a_request_waits_for_the_first_requests_of_new_connections() {
        let connections = connections(1);
        let silent = connections.enter().await;
        let busy = connections.enter().await.begin_request();
        assert!(busy.is_on_reserved());
        let leave = async {
            silent.evicted().await;
            drop(silent);
        };
        let (is_regular, ()) = tokio::join!(busy.enter_regular(), leave);
        assert!(is_regular);
    }

    #[tokio::test]
    async fn all_gone_waits_for_the_last_connection() {
        let connections = connections(2);
        let connection = connections.enter().await;
        assert!(
            tokio::time::timeout(Duration::from_millis(1), connections.all_gone())
                .await
                .is_err()
        );
        drop(connection);
        connections.all_gone().await;
    }
}
