//! The response body as the connection reads it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::HttpBody;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::sync::mpsc;
use varve_context::Charge;

use super::output::Chunk;
use super::singleflight::Computation;

/// The body that is sent to the client.
pub(crate) struct ResponseBody {
    source: Source,
    /// The charge of the last frame, held until the connection asks for the next one.
    charge: Option<Arc<Charge>>,
    /// Keeps the computation running until the client has the whole response, or disconnects.
    _computation: Arc<Computation>,
}

enum Source {
    Complete(Bytes, Arc<Charge>),
    Stream(mpsc::Receiver<Chunk>),
    End,
}

/// The writer was dropped before the end.
#[derive(Debug, thiserror::Error)]
#[error("the response was truncated")]
pub(crate) struct Truncated;

impl ResponseBody {
    /// Returns the body of a complete response.
    pub(crate) fn complete(
        bytes: Bytes,
        charge: Arc<Charge>,
        computation: Arc<Computation>,
    ) -> Self {
        Self {
            source: Source::Complete(bytes, charge),
            charge: None,
            _computation: computation,
        }
    }

    /// Returns the body of a response that is still being written.
    pub(crate) fn stream(chunks: mpsc::Receiver<Chunk>, computation: Arc<Computation>) -> Self {
        Self {
            source: Source::Stream(chunks),
            charge: None,
            _computation: computation,
        }
    }

    fn frame(
        &mut self,
        bytes: Bytes,
        charge: Arc<Charge>,
    ) -> Poll<Option<Result<Frame<Bytes>, Truncated>>> {
        self.charge = Some(charge);
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = Truncated;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Truncated>>> {
        self.charge = None;
        if let Source::Stream(chunks) = &mut self.source {
            return match ready!(chunks.poll_recv(cx)) {
                Some(Chunk::Data(bytes, charge)) => self.frame(bytes, Arc::new(charge)),
                Some(Chunk::End) => {
                    self.source = Source::End;
                    Poll::Ready(None)
                }
                None => Poll::Ready(Some(Err(Truncated))),
            };
        }
        match std::mem::replace(&mut self.source, Source::End) {
            Source::Complete(bytes, charge) if !bytes.is_empty() => self.frame(bytes, charge),
            _ => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Complete(bytes, _) => bytes.is_empty(),
            Source::Stream(_) => false,
            Source::End => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Complete(bytes, _) => SizeHint::with_exact(bytes.len() as u64),
            Source::Stream(_) => SizeHint::default(),
            Source::End => SizeHint::with_exact(0),
        }
    }
}
