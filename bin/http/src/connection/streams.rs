//! The streams of HTTP/2 connections, one task each. A stream whose client does not read its
//! response is reset.
//!
//! An HTTP/1.1 connection has one response at a time. If its client does not read, the socket
//! stalls, and `stall` detects that. An HTTP/2 socket still serves other streams, so each response
//! is watched here. It is handed over in pieces of [`PIECE_SIZE`]. A client makes progress when it
//! reads a piece.
//!
//! Threads: body and timer of a stream belong to one task.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use hyper::rt::Executor;
use prometheus::IntCounter;
use tokio::time::Sleep;

/// Bytes of a response handed over at a time: the default frame size of HTTP/2.
const PIECE_SIZE: usize = 16 << 10;

/// Runs the streams of connections.
#[derive(Debug, Clone)]
pub(super) struct Streams {
    stall_timeout: Duration,
    /// Counts streams that were reset.
    stalled: IntCounter,
}

/// The progress of a response.
#[derive(Debug, Default)]
struct Progress {
    /// Pieces that were handed over.
    n_pieces: AtomicU64,
    /// Whether the last piece still waits for the client.
    is_waiting: AtomicBool,
}

tokio::task_local! {
    static PROGRESS: Arc<Progress>;
}

impl Streams {
    pub(super) fn new(stall_timeout: Duration, stalled: &IntCounter) -> Self {
        Self {
            stall_timeout,
            stalled: stalled.clone(),
        }
    }
}

impl<F> Executor<F> for Streams
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, stream: F) {
        let progress = Arc::<Progress>::default();
        let stall = Stall {
            progress: Arc::clone(&progress),
            timeout: self.stall_timeout,
            n_seen: 0,
            timer: None,
        };
        let stalled = self.stalled.clone();
        tokio::spawn(async move {
            let mut stream = Box::pin(PROGRESS.scope(progress, stream));
            let mut stall = stall;
            // The stream is polled first: a piece that it hands over starts the timer. Dropping it
            // before its end resets it.
            let ended = std::future::poll_fn(|cx| match stream.as_mut().poll(cx) {
                Poll::Ready(_) => Poll::Ready(true),
                Poll::Pending => stall.poll(cx).map(|()| false),
            });
            if !ended.await {
                stalled.inc();
            }
        });
    }
}

/// Completes when a client has read nothing for too long.
struct Stall {
    progress: Arc<Progress>,
    timeout: Duration,
    /// The piece for which the timer runs.
    n_seen: u64,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Stall {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.progress.is_waiting.load(Ordering::Relaxed) {
            self.timer = None;
            return Poll::Pending;
        }
        let n_pieces = self.progress.n_pieces.load(Ordering::Relaxed);
        if n_pieces != self.n_seen {
            (self.n_seen, self.timer) = (n_pieces, None);
        }
        let timeout = self.timeout;
        self.timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)))
            .as_mut()
            .poll(cx)
    }
}

/// Returns a body whose progress is tracked, for an HTTP/2 stream. Returns the body itself for
/// HTTP/1.1.
pub(super) fn paced(body: Body) -> Body {
    match PROGRESS.try_with(Arc::clone) {
        Ok(progress) => Body::new(Paced {
            body,
            rest: Bytes::new(),
            progress,
        }),
        Err(_http1) => body,
    }
}

/// A body in small pieces.
struct Paced {
    body: Body,
    /// The part of the last frame that is not handed over yet.
    rest: Bytes,
    progress: Arc<Progress>,
}

impl Paced {
    fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }
        Poll::Ready(Some(Ok(Frame::data(
            self.rest.split_to(self.rest.len().min(PIECE_SIZE)),
        ))))
    }
}

impl HttpBody for Paced {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        // Asking for the next piece shows that the last one was sent.
        self.progress.is_waiting.store(false, Ordering::Relaxed);
        let piece = ready!(self.poll_piece(cx));
        if matches!(piece, Some(Ok(_))) {
            self.progress.n_pieces.fetch_add(1, Ordering::Relaxed);
            self.progress.is_waiting.store(true, Ordering::Relaxed);
        }
        Poll::Ready(piece)
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let body_hint = self.body.size_hint();
        let rest = self.rest.len() as u64;
        let mut hint = SizeHint::default();
        hint.set_lower(body_hint.lower().saturating_add(rest));
        if let Some(upper) = body_hint.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use tokio::sync::oneshot;

    fn streams(stall_timeout: Duration) -> Streams {
        Streams::new(stall_timeout, &IntCounter::new("stalled", "x").unwrap())
    }

    /// Signals when it is dropped: its stream has ended.
    struct Signal(Option<oneshot::Sender<()>>);

    impl Drop for Signal {
        fn drop(&mut self) {
            self.0.take().map(|sender| sender.send(()));
        }
    }

    #[tokio::test]
    async fn a_response_is_handed_over_in_pieces() {
        let (sender, receiver) = oneshot::channel();
        streams(Duration::from_secs(60)).execute(async move {
            let mut body = paced(Body::from(vec![7; 2 * PIECE_SIZE + 1]));
            assert_eq!(body.size_hint().exact(), Some(2 * PIECE_SIZE as u64 + 1));
            let mut sizes = Vec::new();
            while let Some(frame) = body.frame().await {
                sizes.push(frame.unwrap().into_data().unwrap().len());
                assert_eq!(body.is_end_stream(), sizes.len() == 3);
            }
            sender.send(sizes).unwrap();
        });
        assert_eq!(receiver.await.unwrap(), [PIECE_SIZE, PIECE_SIZE, 1]);
    }

    #[tokio::test]
    async fn a_response_that_is_not_read_is_reset() {
        let streams = streams(Duration::from_millis(1));
        let (sender, ended) = oneshot::channel();
        let signal = Signal(Some(sender));
        streams.execute(async move {
            let _signal = signal;
            let mut body = paced(Body::from("abc"));
            let _piece = body.frame().await;
            std::future::pending::<()>().await;
        });
        ended.await.unwrap();
        until(|| streams.stalled.get() == 1).await;
    }

    #[tokio::test]
    async fn a_slow_computation_is_not_a_stall() {
        let streams = streams(Duration::from_millis(1));
        let (sender, ended) = oneshot::channel();
        streams.execute(async move {
            let mut body = paced(Body::from("abc"));
            while body.frame().await.is_some() {}
            // A slow computation: no piece waits for the client.
            tokio::time::sleep(Duration::from_millis(20)).await;
            sender.send(()).unwrap();
        });
        ended.await.unwrap();
        assert_eq!(streams.stalled.get(), 0);
    }

    async fn until(holds: impl Fn() -> bool) {
        while !holds() {
            tokio::task::yield_now().await;
        }
    }
}
