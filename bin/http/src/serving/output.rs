//! The response of a handler on its way to the clients that wait for it.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use varve_context::Charge;

use crate::error::{ApiError, ErrorKind};

/// The response of a handler. Requests that share it each have a copy.
#[derive(Debug, Clone)]
pub(crate) enum Output {
    /// Success, with the whole body.
    Complete(Bytes, Arc<Charge>),
    /// Success, with a body larger than the buffer. The first request that takes the receiver reads
    /// it.
    Stream(Arc<Mutex<Option<mpsc::Receiver<Chunk>>>>),
    /// An error before anything was sent.
    Error(ApiError),
}

/// A part of a streamed body.
#[derive(Debug)]
pub(crate) enum Chunk {
    Data(Bytes, Charge),
    End,
}

impl Output {
    pub(super) fn stream(chunks: mpsc::Receiver<Chunk>) -> Self {
        Self::Stream(Arc::new(Mutex::new(Some(chunks))))
    }

    /// Returns `true` if followers also get this response. A stream has only one reader. A timeout
    /// of the leader does not apply to followers, whose deadlines are later.
    pub(super) fn is_for_followers(&self) -> bool {
        match self {
            Self::Complete(..) => true,
            Self::Error(error) => error.kind != ErrorKind::Timeout,
            Self::Stream(_) => false,
        }
    }
}
