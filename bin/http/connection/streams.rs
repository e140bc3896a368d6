//! The requests of an HTTP/2 connection, each a task of its own: an answer of which the client takes nothing is reset.
//!
//! HTTP/1.1 has one answer at a time, and a client that takes nothing of it stalls the socket, which the socket's own watch
//! sees. With HTTP/2 the socket flows on for the other requests, so that each answer is watched here. It is handed over in
//! pieces of [`PIECE_SIZE`]: a client makes progress when it takes one of them.
//!
//! Threads: body and watch of a request belong to one task; nothing is shared with others.

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

/// Bytes of an answer that are handed over at a time; the frame size of HTTP/2.
const PIECE_SIZE: usize = 16 << 10;

/// Runs the requests of connections.
#[derive(Debug, Clone)]
pub(super) struct Streams {
    stall_timeout: Duration,
    /// Counts answers that were given up.
    stalled: IntCounter,
}

/// How far the answer of a request has come.
#[derive(Debug, Default)]
struct Progress {
    /// Pieces that were handed over.
    n_pieces: AtomicU64,
    /// Whether the last of them still waits for the client.
    is_waiting: AtomicBool,
}

tokio::task_local! {
    static PROGRESS: Arc<Progress>;
}

impl Streams {
    pub(super) fn new(stall_timeout: Duration, stalled: &IntCounter) -> Self {
        Self { stall_timeout, stalled: stalled.clone() }
    }
}

impl<F> Executor<F> for Streams
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, stream: F) {
        let progress = Arc::<Progress>::default();
        let stall = Stall { progress: Arc::clone(&progress), timeout: self.stall_timeout, n_seen: 0, timer: None };
        let stalled = self.stalled.clone();
        tokio::spawn(async move {
            let mut stream = Box::pin(PROGRESS.scope(progress, stream));
            let mut stall = stall;
            // The stream goes first: what it hands over starts the watch. Dropped before its end it is reset.
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

/// Tells when a client has taken nothing for too long.
struct Stall {
    progress: Arc<Progress>,
    timeout: Duration,
    /// The piece that the timer runs for.
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
        self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout))).as_mut().poll(cx)
    }
}

/// Makes the body of an answer of HTTP/2 one that is watched; that of HTTP/1.1 stays what it is.
pub(super) fn paced(body: Body) -> Body {
    match PROGRESS.try_with(Arc::clone) {
        Ok(progress) => Body::new(Paced { body, rest: Bytes::new(), progress }),
        Err(_http1) => body,
    }
}

/// A body in small pieces.
struct Paced {
    body: Body,
    /// Of the piece that came last: still to be handed over.
    rest: Bytes,
    progress: Arc<Progress>,
}

impl Paced {
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(self.rest.len().min(PIECE_SIZE))))))
    }
}

impl HttpBody for Paced {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        // Whoever asks for the next piece is rid of the last.
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
        let (of_body, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::default();
        hint.set_lower(of_body.lower().saturating_add(rest));
        if let Some(upper) = of_body.upper() {
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

    /// Sends a word when it is dropped: the stream it belongs to has ended.
    struct Told(Option<oneshot::Sender<()>>);

    impl Drop for Told {
        fn drop(&mut self) {
            self.0.take().map(|sender| sender.send(()));
        }
    }

    #[tokio::test]
    async fn an_answer_comes_in_pieces_and_whole() {
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
    async fn an_answer_that_is_not_taken_ends() {
        let streams = streams(Duration::from_millis(1));
        let (sender, ended) = oneshot::channel();
        let told = Told(Some(sender));
        streams.execute(async move {
            let _told = told;
            let mut body = paced(Body::from("abc"));
            let _piece = body.frame().await;
            std::future::pending::<()>().await;
        });
        ended.await.unwrap();
        until(|| streams.stalled.get() == 1).await;
    }

    #[tokio::test]
    async fn an_answer_that_is_not_ready_is_waited_for() {
        let streams = streams(Duration::from_millis(1));
        let (sender, ended) = oneshot::channel();
        streams.execute(async move {
            let mut body = paced(Body::from("abc"));
            while body.frame().await.is_some() {}
            // As a computation that takes its time does: nothing waits for the client.
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
