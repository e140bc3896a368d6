//! Heads of HTTP/1.1 requests up to 1 MiB, which Go's server accepts.
//!
//! hyper has no URL above 64 KiB, so [`EscapeTargets`](super::request_target::EscapeTargets) takes
//! long queries out of the heads that hyper reads, and passes them to the service of the connection
//! in [`Replacements`]. A marker in the URL says which one belongs to a request.
//!
//! Memory: a head is held until it is complete. What it holds above [`HEAD_SIZE_MAX`] is charged to
//! a budget of all connections, so that many clients that send long heads slowly, or to the half,
//! cannot use up the memory. A query stays charged until its request has ended.
//!
//! A head that is too long is discarded to its end. Then hyper gets a substitute, to which the
//! service responds with the reason, so that a client that sends first and reads later sees it.

use std::collections::VecDeque;

use axum::http::uri::PathAndQuery;
use axum::http::{Request, StatusCode, Uri};
use parking_lot::Mutex;
use varve_context::{Charge, MemoryBudget};

use crate::params::LongQuery;

/// Maximum size of a head that is not charged.
pub(super) const HEAD_SIZE_MAX: usize = 64 << 10;
/// Maximum size of a head: 1 MiB, and what Go's server adds to it.
pub(super) const LONG_HEAD_SIZE_MAX: usize = (1 << 20) + (4 << 10);
/// Size of a request line from which its query is taken out. Escaping multiplies it by up to 3, and
/// the result must fit into [`Uri`].
pub(super) const REQUEST_LINE_TAKEN_MIN: usize = 16 << 10;
/// Maximum bytes of a rejected head that are discarded before the response.
pub(super) const DISCARDED_SIZE_MAX: usize = 16 << 20;
/// Maximum number of replacements that the service has not taken: a read of a socket has at most a
/// few heads with long queries.
const REPLACEMENTS_MAX: usize = 64;
/// The start of a marker, before the number of the replacement.
const MARKER: &str = "varve-long-query=";

/// Limits of the heads of a connection.
#[derive(Debug, Clone)]
pub(super) struct HeadLimits {
    /// The bytes of long heads of all connections.
    pub(super) memory: MemoryBudget,
    /// Maximum size of the headers that hyper reads.
    pub(super) headers_size_max: usize,
}

/// Why a head is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadRejected {
    /// It exceeds [`LONG_HEAD_SIZE_MAX`].
    TooLarge,
    /// Its path exceeds [`HEAD_SIZE_MAX`].
    PathTooLong,
    /// Its headers without the URL exceed the limit of this size.
    HeadersTooLarge(usize),
    /// The long heads of all connections use up their memory of this size.
    NoMemory(usize),
}

impl HeadRejected {
    /// The name of the limit in metrics and logs.
    pub(super) fn limit_name(self) -> &'static str {
        match self {
            Self::TooLarge => "request head size",
            Self::PathTooLong => "URL path size",
            Self::HeadersTooLarge(_) => "request headers size",
            Self::NoMemory(_) => "memory of long URLs",
        }
    }

    /// The status and the text of the response.
    pub(super) fn response(self) -> (StatusCode, String) {
        match self {
            Self::TooLarge => (
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                format!(
                    "431 Request Header Fields Too Large: URL and headers exceed \
                     {LONG_HEAD_SIZE_MAX} bytes; send a long query as a form\n"
                ),
            ),
            Self::PathTooLong => (
                StatusCode::URI_TOO_LONG,
                format!("414 URI Too Long: the path exceeds {HEAD_SIZE_MAX} bytes\n"),
            ),
            Self::HeadersTooLarge(max) => (
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                format!(
                    "431 Request Header Fields Too Large: the headers without the URL exceed {max} \
                     bytes\n"
                ),
            ),
            Self::NoMemory(max) => (
                StatusCode::SERVICE_UNAVAILABLE,
                format!(
                    "503 Service Unavailable: long URLs of all connections exceed {max} bytes; send \
                     a long query as a form\n"
                ),
            ),
        }
    }
}

/// The start of a head, whose bytes above [`HEAD_SIZE_MAX`] are charged.
#[derive(Debug)]
pub(super) struct HeadBuffer {
    bytes: Vec<u8>,
    memory: MemoryBudget,
    charge: Charge,
}

impl HeadBuffer {
    pub(super) fn new(memory: &MemoryBudget) -> Self {
        Self {
            bytes: Vec::new(),
            memory: memory.clone(),
            charge: memory.charge(),
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Appends a part of a head.
    ///
    /// # Errors
    /// If the head is too large, or there is no memory for it.
    pub(super) fn extend(&mut self, part: &[u8]) -> Result<(), HeadRejected> {
        let size = self.bytes.len() + part.len();
        if size > LONG_HEAD_SIZE_MAX {
            return Err(HeadRejected::TooLarge);
        }
        if size > HEAD_SIZE_MAX && size > self.bytes.capacity() {
            self.grow(size)?;
        }
        self.bytes.extend_from_slice(part);
        Ok(())
    }

    /// Moves to a buffer for at least `size` bytes. Both are charged while both exist.
    fn grow(&mut self, size: usize) -> Result<(), HeadRejected> {
        let capacity = size.next_power_of_two().min(LONG_HEAD_SIZE_MAX);
        let charged_before = self.charge.size();
        if !self.charge.grow_if_free(capacity) {
            return Err(HeadRejected::NoMemory(self.memory.limit()));
        }
        let mut larger = Vec::with_capacity(capacity);
        larger.extend_from_slice(&self.bytes);
        self.bytes = larger;
        self.charge.shrink(charged_before);
        Ok(())
    }

    /// Returns the bytes with their charge, and leaves an empty buffer.
    pub(super) fn take(&mut self) -> (Vec<u8>, Charge) {
        let charge = std::mem::replace(&mut self.charge, self.memory.charge());
        (std::mem::take(&mut self.bytes), charge)
    }

    /// Empties the buffer, which keeps up to `kept` bytes of capacity.
    pub(super) fn clear(&mut self, kept: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(kept);
        self.charge.shrink(usize::MAX);
    }
}

/// What the service of a connection needs in place of a part of a head.
#[derive(Debug)]
pub(super) enum Replacement {
    /// The query of the URL.
    Query(LongQuery),
    /// The reason to reject the request, of which hyper saw a substitute.
    Rejected(HeadRejected),
}

/// The replacements of a connection, in the order of its requests.
#[derive(Debug, Default)]
pub(super) struct Replacements {
    state: Mutex<ReplacementQueue>,
}

#[derive(Debug, Default)]
struct ReplacementQueue {
    n_added: u64,
    waiting: VecDeque<(u64, Replacement)>,
}

impl Replacements {
    /// Adds a replacement. Returns its marker, the query of the URL that hyper gets. If there are
    /// too many, the oldest is dropped, and its request has no query.
    pub(super) fn add(&self, replacement: Replacement) -> String {
        let mut state = self.state.lock();
        state.n_added += 1;
        let number = state.n_added;
        if state.waiting.len() == REPLACEMENTS_MAX {
            state.waiting.pop_front();
        }
        state.waiting.push_back((number, replacement));
        format!("{MARKER}{number}")
    }

    /// Gives a request the query that was taken out of its URL. Returns the reason if its head was
    /// rejected.
    pub(super) fn restore<B>(&self, request: &mut Request<B>) -> Option<HeadRejected> {
        match self.take(request.uri())? {
            Replacement::Rejected(rejected) => Some(rejected),
            Replacement::Query(query) => {
                let mut parts = request.uri().clone().into_parts();
                parts.path_and_query = PathAndQuery::try_from(request.uri().path()).ok();
                if let Ok(uri) = Uri::from_parts(parts) {
                    *request.uri_mut() = uri;
                }
                request.extensions_mut().insert(query);
                None
            }
        }
    }

    /// Removes the replacement that the marker of a URL names. Returns `None` if the URL has no
    /// marker.
    fn take(&self, uri: &Uri) -> Option<Replacement> {
        let number: u64 = uri.query()?.strip_prefix(MARKER)?.parse().ok()?;
        let mut state = self.state.lock();
        let position = state.waiting.iter().position(|(n, _)| *n == number)?;
        state.waiting.remove(position).map(|(_, found)| found)
    }
}

/// Returns the head that hyper gets in place of a rejected one.
pub(super) fn substitute(marker: &str) -> Vec<u8> {
    format!("GET /?{marker} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use varve_context::Limit;

    use super::*;

    fn buffer(memory: usize) -> HeadBuffer {
        HeadBuffer::new(&MemoryBudget::new(Limit::Other("test"), memory))
    }

    #[test]
    fn a_long_head_is_charged_until_it_is_dropped() {
        let mut head = buffer(4 << 20);
        head.extend(&[b'x'; HEAD_SIZE_MAX]).unwrap();
        assert_eq!(head.charge.size(), 0);
        for _ in 0..15 {
            head.extend(&[b'x'; HEAD_SIZE_MAX]).unwrap();
            assert!(head.charge.size() >= head.bytes.len());
            assert!(head.charge.size() >= head.bytes.capacity());
        }
        let memory = head.memory.clone();
        let (bytes, charge) = head.take();
        assert_eq!(bytes.len(), 1 << 20);
        assert!(memory.used() >= 1 << 20);
        drop(charge);
        assert_eq!(memory.used(), 0);
        assert!(head.bytes().is_empty());
    }

    #[test]
    fn heads_end_at_their_limit_and_at_that_of_all_connections() {
        let mut head = buffer(4 << 20);
        head.extend(&[b'x'; LONG_HEAD_SIZE_MAX]).unwrap();
        assert_eq!(head.extend(b"x"), Err(HeadRejected::TooLarge));
        let mut head = buffer(HEAD_SIZE_MAX);
        head.extend(&[b'x'; HEAD_SIZE_MAX]).unwrap();
        assert_eq!(
            head.extend(b"x"),
            Err(HeadRejected::NoMemory(HEAD_SIZE_MAX))
        );
        assert_eq!(head.bytes().len(), HEAD_SIZE_MAX);
    }

    #[test]
    fn a_marker_leads_to_its_replacement_once() {
        let replacements = Replacements::default();
        let add = |rejected| replacements.add(Replacement::Rejected(rejected));
        let markers = [HeadRejected::TooLarge, HeadRejected::PathTooLong].map(add);
        let take = |query: &str| {
            let uri: Uri = format!("/a?{query}").parse().unwrap();
            match replacements.take(&uri)? {
                Replacement::Rejected(rejected) => Some(rejected),
                Replacement::Query(_) => None,
            }
        };
        assert_eq!(take("query=up"), None);
        assert_eq!(take(&format!("{MARKER}9")), None);
        assert_eq!(take(&markers[1]), Some(HeadRejected::PathTooLong));
        assert_eq!(take(&markers[0]), Some(HeadRejected::TooLarge));
        assert_eq!(take(&markers[0]), None);
    }

    #[test]
    fn the_oldest_of_too_many_replacements_is_dropped() {
        let replacements = Replacements::default();
        for _ in 0..=REPLACEMENTS_MAX {
            replacements.add(Replacement::Rejected(HeadRejected::TooLarge));
        }
        assert_eq!(replacements.state.lock().waiting.len(), REPLACEMENTS_MAX);
        let first: Uri = format!("/?{MARKER}1").parse().unwrap();
        assert!(replacements.take(&first).is_none());
    }
}
