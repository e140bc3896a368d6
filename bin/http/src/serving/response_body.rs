//! The response body as the connection reads it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::HttpBody;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::sync::mpsc;

use super::output::Chunk;
use super::singleflight::Computation;

/// The body that is sent to the client.
pub(crate) struct ResponseBody {
    source: Source,
    /// Keeps the computation running until the client has the whole response, or disconnects.
    _computation: Arc<Computation>,
}

/// Marks a response whose body charges its bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IsCharged;

enum Source {
    Complete(Bytes),
    Stream(mpsc::Receiver<Chunk>),
    End,
}

/// The writer was dropped before the end.
#[derive(Debug, thiserror::Error)]
#[error("the response was truncated")]
pub(crate) struct Truncated;

impl ResponseBody {
    /// Returns the body of a complete response.
    pub(crate) fn complete(bytes: Bytes, computation: Arc<Computation>) -> Self {
        Self {
            source: Source::Complete(bytes),
            _computation: computation,
        }
    }

    /// Returns the body of a response that is still being written.
    pub(crate) fn stream(chunks: mpsc::Receiver<Chunk>, computation: Arc<Computation>) -> Self {
        Self {
            source: Source::Stream(chunks),
            _computation: computation,
        }
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = Truncated;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Truncated>>> {
        if let Source::Stream(chunks) = &mut self.source {
            return match ready!(chunks.poll_recv(cx)) {
                Some(Chunk::Data(bytes)) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Some(Chunk::End) => {
                    self.source = Source::End;
                    Poll::Ready(None)
                }
                None => Poll::Ready(Some(Err(Truncated))),
            };
        }
        match std::mem::replace(&mut self.source, Source::End) {
            Source::Complete(bytes) if !bytes.is_empty() => {
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            _ => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Complete(bytes) => bytes.is_empty(),
            Source::Stream(_) => false,
            Source::End => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Complete(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Source::Stream(_) => SizeHint::default(),
            Source::End => SizeHint::with_exact(0),
        }
    }
}
