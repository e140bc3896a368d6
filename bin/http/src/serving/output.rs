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
    Complete(Bytes),
    /// Success, with a body larger than the buffer. The first request that takes the receiver reads
    /// it.
    Stream(Arc<Mutex<Option<mpsc::Receiver<Chunk>>>>),
    /// An error before anything was sent.
    Error(ApiError),
}

/// A part of a streamed body.
#[derive(Debug)]
pub(crate) enum Chunk {
    Data(Bytes),
    End,
}

/// Bytes with their charge.
struct Charged {
    bytes: Vec<u8>,
    _charge: Charge,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns a part of a body. It is charged until its last byte is written to the socket: a
/// connection drops a body once it has taken all parts, and keeps those that the client has not
/// read.
pub(super) fn charged(bytes: Vec<u8>, charge: Charge) -> Bytes {
    Bytes::from_owner(Charged {
        bytes,
        _charge: charge,
    })
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
