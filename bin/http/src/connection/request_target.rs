//! A socket that escapes `"`, `<` and `>` in the URLs of requests.
//!
//! RFC 3986 does not allow these bytes, and hyper rejects them before a handler runs. Go accepts
//! them, so commands such as `curl -g 'http://…/api/v1/query?query=up{job="node"}'` work with
//! Prometheus.
//!
//! The head of a request is held back until it is complete. Bodies pass through. The query of a long
//! URL is taken out, and a head that is too large is replaced (see [`long_heads`](super::long_heads)).
//! None of this happens in HTTP/2, and after a request with `Transfer-Encoding` or an invalid or
//! repeated `Content-Length`. hyper answers these, and heads that end too early.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::long_heads::{
    DISCARDED_SIZE_MAX, HEAD_SIZE_MAX, HeadBuffer, HeadLimits, HeadRejected,
    REQUEST_LINE_TAKEN_MIN, Replacement, Replacements, substitute,
};
use crate::params::LongQuery;

/// Capacity that a buffer keeps between two requests.
const BUFFER_KEPT_MAX: usize = 4 << 10;
/// Minimum number of bytes that are read at once while a head is expected. hyper's buffer for
/// HTTP/2's preface is smaller.
const READ_SIZE_MIN: usize = 1 << 10;

/// Wraps a socket. Writes pass through.
#[derive(Debug)]
pub(super) struct EscapeTargets<S> {
    socket: S,
    next: Next,
    limits: HeadLimits,
    replacements: Arc<Replacements>,
    /// The start of a head that is not complete.
    head: HeadBuffer,
    /// Start of the last line of `head`.
    line_at: usize,
    /// Bytes to return, from `ready_at` on.
    ready: Vec<u8>,
    ready_at: usize,
}

/// What the next bytes of the socket are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Head,
    /// This number of bytes of a body, and then a head.
    Body(u64),
    /// Anything, to the end of the connection.
    Passthrough,
    /// The rest of a head that is rejected.
    Discarded(Discarded),
    /// Nothing that is read: the last request was rejected.
    Closed,
}

/// The part of a rejected head that has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Discarded {
    rejected: HeadRejected,
    size: usize,
    /// Whether its last line is blank as far as it has been read.
    is_blank: bool,
}

impl<S> EscapeTargets<S> {
    /// Wraps a socket. What is taken out of heads goes to `replacements`.
    pub(super) fn new(socket: S, limits: HeadLimits, replacements: Arc<Replacements>) -> Self {
        Self {
            socket,
            next: Next::Head,
            head: HeadBuffer::new(&limits.memory),
            limits,
            replacements,
            line_at: 0,
            ready: Vec::new(),
            ready_at: 0,
        }
    }

    /// Moves received bytes to `ready`, apart from an incomplete head.
    fn receive(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self.next {
                Next::Passthrough => {
                    self.ready.extend_from_slice(bytes);
                    return;
                }
                Next::Body(left) => {
                    let n = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    self.ready.extend_from_slice(&bytes[..n]);
                    bytes = &bytes[n..];
                    self.next = after(left - n as u64);
                }
                Next::Head => bytes = self.take_line(bytes),
                Next::Discarded(discarded) => bytes = self.discard(discarded, bytes),
                Next::Closed => return,
            }
        }
    }

    /// Takes what a read has received. Returns `false` if it was nothing and nothing is left: the
    /// peer has closed.
    fn take(&mut self, received: &[u8]) -> bool {
        self.receive(received);
        if received.is_empty() {
            self.end();
        }
        !received.is_empty() || !self.ready.is_empty()
    }

    /// Makes a head available that ends too early.
    fn end(&mut self) {
        if let Next::Discarded(discarded) = self.next {
            self.reject(discarded.rejected);
            return;
        }
        // A part is as incomplete as the whole, and hyper's buffer is smaller than a long head.
        let size = self.head.bytes().len().min(HEAD_SIZE_MAX);
        self.ready.extend_from_slice(&self.head.bytes()[..size]);
        self.next = Next::Passthrough;
        self.line_at = 0;
        self.head.clear(BUFFER_KEPT_MAX);
    }

    /// Moves bytes to `head`, up to the end of a line. Returns the rest. Drops empty lines before a
    /// request.
    fn take_line<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let end = line_end(bytes).unwrap_or(bytes.len());
        if let Err(rejected) = self.head.extend(&bytes[..end]) {
            self.next = Next::Discarded(Discarded {
                rejected,
                size: self.head.bytes().len(),
                is_blank: is_blank(&self.head.bytes()[self.line_at..]),
            });
            self.head.clear(BUFFER_KEPT_MAX);
            return bytes;
        }
        let head = self.head.bytes();
        if head.ends_with(b"\n") {
            let is_blank = is_blank(&head[self.line_at..]);
            if is_blank && self.line_at == 0 {
                self.head.clear(BUFFER_KEPT_MAX);
            } else if is_blank {
                self.release();
            } else {
                self.line_at = head.len();
            }
        }
        &bytes[end..]
    }

    /// Drops bytes of a rejected head, up to the end of a line. Returns the rest.
    fn discard<'b>(&mut self, mut discarded: Discarded, bytes: &'b [u8]) -> &'b [u8] {
        let end = line_end(bytes).unwrap_or(bytes.len());
        let part = &bytes[..end];
        discarded.size += part.len();
        discarded.is_blank &= is_blank(part);
        let is_complete = discarded.is_blank && part.ends_with(b"\n");
        if is_complete || discarded.size > DISCARDED_SIZE_MAX {
            self.reject(discarded.rejected);
        } else {
            discarded.is_blank |= part.ends_with(b"\n");
            self.next = Next::Discarded(discarded);
        }
        &bytes[end..]
    }

    /// Makes a complete head available: as it is, escaped, or without its query.
    fn release(&mut self) {
        self.next = after_head(self.head.bytes());
        self.line_at = 0;
        let head = self.head.bytes();
        let line_size = line_end(head).unwrap_or(head.len());
        if head.len() <= HEAD_SIZE_MAX && line_size <= REQUEST_LINE_TAKEN_MIN {
            let escaped = escaped(head);
            self.ready
                .extend_from_slice(escaped.as_deref().unwrap_or(head));
            self.head.clear(BUFFER_KEPT_MAX);
        } else if let Err(rejected) = self.release_long(line_size) {
            self.reject(rejected);
        }
    }

    /// Makes a head with a long request line or long headers available.
    fn release_long(&mut self, line_size: usize) -> Result<(), HeadRejected> {
        let head = self.head.bytes();
        let (line, headers) = head.split_at(line_size);
        let headers_size_max = self.limits.headers_size_max;
        if headers.len() + REQUEST_LINE_TAKEN_MIN > headers_size_max {
            return Err(HeadRejected::HeadersTooLarge(headers_size_max));
        }
        let Some(TargetParts { query, version }) = TargetParts::find(line) else {
            // hyper responds to what is no URL.
            if line_size > HEAD_SIZE_MAX {
                return Err(HeadRejected::PathTooLong);
            }
            self.ready.extend_from_slice(head);
            self.head.clear(BUFFER_KEPT_MAX);
            return Ok(());
        };
        if query > REQUEST_LINE_TAKEN_MIN {
            return Err(HeadRejected::PathTooLong);
        }
        let path = line[..=query].to_vec();
        let rest = head[version..].to_vec();
        let (mut bytes, charge) = self.head.take();
        bytes.truncate(version);
        bytes.drain(..=query);
        let long_query = LongQuery::new(bytes, charge);
        let marker = self.replacements.add(Replacement::Query(long_query));
        self.ready.extend_from_slice(&path);
        self.ready.extend_from_slice(marker.as_bytes());
        self.ready.extend_from_slice(&rest);
        Ok(())
    }

    /// Makes the substitute of a rejected head available.
    fn reject(&mut self, rejected: HeadRejected) {
        let marker = self.replacements.add(Replacement::Rejected(rejected));
        self.ready.extend_from_slice(&substitute(&marker));
        self.next = Next::Closed;
        self.line_at = 0;
        self.head.clear(BUFFER_KEPT_MAX);
    }

    /// Returns what follows received bytes if they pass through as they are: a part of a body, or a
    /// head without anything to escape, with a part of its body.
    fn passes_unchanged(&self, received: &[u8]) -> Option<Next> {
        let (next, body) = match self.next {
            Next::Head if self.head.bytes().is_empty() => {
                let (head, body) = received.split_at(head_end(received)?);
                if head.len() > REQUEST_LINE_TAKEN_MIN || escaped(head).is_some() {
                    return None;
                }
                (after_head(head), body)
            }
            next => (next, received),
        };
        match next {
            Next::Passthrough => Some(Next::Passthrough),
            Next::Body(left) => left.checked_sub(body.len() as u64).map(after),
            Next::Head if body.is_empty() && !received.is_empty() => Some(Next::Head),
            Next::Head | Next::Discarded(_) | Next::Closed => None,
        }
    }
}

/// Positions in a request line with a query.
struct TargetParts {
    /// That of the `?`.
    query: usize,
    /// That of the space before the version.
    version: usize,
}

impl TargetParts {
    fn find(line: &[u8]) -> Option<Self> {
        let query = line.iter().position(|&byte| byte == b'?')?;
        let version = line.iter().rposition(|&byte| byte == b' ')?;
        (version > query).then_some(Self { query, version })
    }
}

/// Returns the end of the line that starts the bytes.
fn line_end(bytes: &[u8]) -> Option<usize> {
    bytes
        .iter()
        .position(|&byte| byte == b'\n')
        .map(|newline| newline + 1)
}

/// Returns the end of the head that starts the bytes, unless its first line is empty.
fn head_end(bytes: &[u8]) -> Option<usize> {
    let mut line_start = 0;
    loop {
        let end = line_start + line_end(&bytes[line_start..])?;
        if is_blank(&bytes[line_start..end]) {
            return if line_start == 0 { None } else { Some(end) };
        }
        line_start = end;
    }
}

fn is_blank(bytes: &[u8]) -> bool {
    bytes.trim_ascii_start().is_empty()
}

fn clear(buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.shrink_to(BUFFER_KEPT_MAX);
}

/// Returns what follows, given the number of bytes of the body that are left.
fn after(left: u64) -> Next {
    if left == 0 {
        Next::Head
    } else {
        Next::Body(left)
    }
}

/// Returns what follows a complete head.
fn after_head(head: &[u8]) -> Next {
    if head.starts_with(b"PRI ") {
        return Next::Passthrough;
    }
    let mut size = None;
    for line in head.split(|&byte| byte == b'\n') {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else {
            continue;
        };
        let name = &line[..colon];
        let value = line[colon + 1..].trim_ascii();
        if name.eq_ignore_ascii_case(b"content-length") {
            let parsed = std::str::from_utf8(value)
                .ok()
                .and_then(|text| text.parse::<u64>().ok());
            if size.is_some() || parsed.is_none() {
                return Next::Passthrough;
            }
            size = parsed;
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            return Next::Passthrough;
        }
    }
    after(size.unwrap_or(0))
}

/// Returns a head with an escaped URL. Returns `None` if there is nothing to escape.
fn escaped(head: &[u8]) -> Option<Vec<u8>> {
    let end = line_end(head)?;
    let query = head[..end].iter().position(|&byte| byte == b'?')?;
    if !head[query..end].iter().any(|&byte| escape(byte).is_some()) {
        return None;
    }
    let mut escaped = head[..query].to_vec();
    for &byte in &head[query..end] {
        match escape(byte) {
            Some(text) => escaped.extend_from_slice(text),
            None => escaped.push(byte),
        }
    }
    escaped.extend_from_slice(&head[end..]);
    Some(escaped)
}

fn escape(byte: u8) -> Option<&'static [u8]> {
    match byte {
        b'"' => Some(b"%22"),
        b'<' => Some(b"%3C"),
        b'>' => Some(b"%3E"),
        _ => None,
    }
}

impl<S: AsyncRead + Unpin> EscapeTargets<S> {
    /// Drops what the peer still sends. hyper must not see the end of the stream: it would drop the
    /// response. It stops to read once the response is sent.
    fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut bytes = [0; READ_SIZE_MIN];
            let mut received = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut self.socket).poll_read(cx, &mut received))?;
            if received.filled().is_empty() {
                return Poll::Pending;
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for EscapeTargets<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.ready_at == self.ready.len() {
            if self.next == Next::Closed {
                return self.poll_closed(cx);
            }
            if self.next == Next::Head && buf.remaining() < READ_SIZE_MIN {
                let mut bytes = [0; READ_SIZE_MIN];
                let mut received = ReadBuf::new(&mut bytes);
                ready!(Pin::new(&mut self.socket).poll_read(cx, &mut received))?;
                if !self.take(received.filled()) {
                    return Poll::Ready(Ok(()));
                }
                continue;
            }
            let before = buf.filled().len();
            ready!(Pin::new(&mut self.socket).poll_read(cx, buf))?;
            let received = &buf.filled()[before..];
            // Fast path: nothing to hold back or to escape.
            if let Some(next) = self.passes_unchanged(received) {
                self.next = next;
                return Poll::Ready(Ok(()));
            }
            let goes_on = self.take(received);
            buf.set_filled(before);
            if !goes_on {
                return Poll::Ready(Ok(()));
            }
        }
        let left = &self.ready[self.ready_at..];
        let n = left.len().min(buf.remaining());
        buf.put_slice(&left[..n]);
        self.ready_at += n;
        if self.ready_at == self.ready.len() {
            self.ready_at = 0;
            clear(&mut self.ready);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for EscapeTargets<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::future::poll_fn;

    use varve_context::{Limit, MemoryBudget};

    use super::super::long_heads::LONG_HEAD_SIZE_MAX;
    use super::*;
    use crate::params::url_query;

    /// Receives pieces, one with each read.
    struct Pieces(VecDeque<Vec<u8>>);

    impl AsyncRead for Pieces {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let mut piece = self.0.pop_front().unwrap_or_default();
            let rest = piece.split_off(piece.len().min(buf.remaining()));
            buf.put_slice(&piece);
            if !rest.is_empty() {
                self.0.push_front(rest);
            }
            Poll::Ready(Ok(()))
        }
    }

    /// Returns what is read, `read_size` bytes at a time, if `size` bytes arrive with each piece.
    async fn read(sent: &[u8], size: usize, read_size: usize) -> Vec<u8> {
        read_with(sent, size, read_size, &Arc::default()).await
    }

    /// As [`read`], with what is taken out of heads in `replacements`.
    async fn read_with(
        sent: &[u8],
        size: usize,
        read_size: usize,
        replacements: &Arc<Replacements>,
    ) -> Vec<u8> {
        let pieces = Pieces(sent.chunks(size).map(<[u8]>::to_vec).collect());
        let limits = HeadLimits {
            memory: MemoryBudget::new(Limit::Other("test"), 4 << 20),
            headers_size_max: 96 << 10,
        };
        let mut socket = EscapeTargets::new(pieces, limits, Arc::clone(replacements));
        let mut read = Vec::new();
        let mut buffer = vec![0; read_size];
        loop {
            let mut buf = ReadBuf::new(&mut buffer);
            let polled = poll_fn(|cx| match Pin::new(&mut socket).poll_read(cx, &mut buf) {
                // Nothing follows a rejected head.
                Poll::Pending => Poll::Ready(Ok(())),
                ready => ready,
            });
            polled.await.unwrap();
            if buf.filled().is_empty() {
                return read;
            }
            read.extend_from_slice(buf.filled());
        }
    }

    /// Checks what is read of requests that arrive in pieces of any size.
    async fn check(sent: &str, expect: &str) {
        for size in 1..=sent.len() {
            for read_size in [READ_SIZE_MIN, 24] {
                let found = read(sent.as_bytes(), size, read_size).await;
                let how = format!("{sent:?} in pieces of {size} bytes, {read_size} at a time");
                assert_eq!(String::from_utf8_lossy(&found), expect, "{how}");
            }
        }
    }

    #[tokio::test]
    async fn bytes_that_urls_must_not_have_are_escaped_in_queries_only() {
        let sent = "GET /a?q=up{b=\"c\"}<1>0 HTTP/1.1\r\n";
        let expect = "GET /a?q=up{b=%22c%22}%3C1%3E0 HTTP/1.1\r\n";
        check(
            &format!("{sent}X: \"?\"\r\n\r\n"),
            &format!("{expect}X: \"?\"\r\n\r\n"),
        )
        .await;
        check(&format!("\r\n\n{sent}\r\n"), &format!("{expect}\r\n")).await;
        for unchanged in [
            "",
            "GET /\" HTTP/1.1\r\n\r\n",
            "GET /a?b HTTP/1.1\n\n",
            "G",
            "GET /?\" HTTP/1.1\r\n",
        ] {
            check(unchanged, unchanged).await;
        }
    }

    #[tokio::test]
    async fn requests_of_a_connection_are_told_from_bodies() {
        let request = |quote: &str| format!("GET /?{quote} HTTP/1.1\r\n\r\n");
        let raw = request("\"");
        let escaped = request("%22");
        let post = |quote: &str| {
            format!(
                "POST /?{quote} HTTP/1.1\r\ncontent-length: {}\r\n\r\n{raw}",
                raw.len()
            )
        };
        check(
            &format!("{raw}{}{raw}", post("\"")),
            &format!("{escaped}{}{escaped}", post("%22")),
        )
        .await;
        let empty = |quote: &str| format!("POST /?{quote} HTTP/1.1\r\nContent-Length:0\r\n\r\n");
        check(
            &format!("{}{raw}", empty("\"")),
            &format!("{}{escaped}", empty("%22")),
        )
        .await;
    }

    #[tokio::test]
    async fn nothing_is_escaped_where_requests_may_begin_anywhere() {
        let raw = "GET /?\" HTTP/1.1\r\n\r\n";
        for header in [
            "Transfer-Encoding: chunked",
            "Content-Length: 1\r\nContent-Length: 1",
            "Content-Length: x",
        ] {
            let head = |quote: &str| format!("POST /?{quote} HTTP/1.1\r\n{header}\r\n\r\n{raw}");
            check(&head("\""), &head("%22")).await;
        }
        let preface = format!("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{raw}");
        check(&preface, &preface).await;
    }

    /// Returns the query that was taken out of a head, which the head that hyper gets names.
    fn restored(head: &[u8], replacements: &Replacements) -> Result<Vec<u8>, HeadRejected> {
        let head = std::str::from_utf8(head).unwrap();
        let target = head.split(' ').nth(1).unwrap();
        let mut request = axum::http::Request::builder().uri(target).body(()).unwrap();
        match replacements.restore(&mut request) {
            Some(rejected) => Err(rejected),
            None => {
                assert_eq!(request.uri().query(), None, "{target}");
                let query = url_query(request.uri(), request.extensions());
                Ok(query.to_vec())
            }
        }
    }

    #[tokio::test]
    async fn a_long_query_is_taken_out_of_the_head() {
        let body = "GET /?\" HTTP/1.1\r\n\r\n";
        for query_size in [REQUEST_LINE_TAKEN_MIN, HEAD_SIZE_MAX, 1 << 20] {
            let query = "x\"".repeat(query_size / 2);
            let length = body.len();
            let sent = format!(
                "POST /a?{query} HTTP/1.1\r\nA: ?\r\nContent-Length: {length}\r\n\r\n{body}{body}"
            );
            for size in [1_000, 100_000, sent.len()] {
                let replacements = Arc::default();
                let found = read_with(sent.as_bytes(), size, 128 << 10, &replacements).await;
                let found = String::from_utf8(found).unwrap();
                let expect = format!(
                    "POST /a?varve-long-query=1 HTTP/1.1\r\nA: ?\r\nContent-Length: {length}\r\n\r\n{body}\
                     GET /?%22 HTTP/1.1\r\n\r\n"
                );
                assert_eq!(found, expect, "{query_size} bytes in pieces of {size}");
                let restored = restored(found.as_bytes(), &replacements);
                assert_eq!(restored, Ok(query.clone().into_bytes()));
            }
        }
    }

    #[tokio::test]
    async fn a_head_that_is_too_large_is_replaced() {
        let long = |size: usize| "x".repeat(size);
        let url = |size| format!("GET /?{} HTTP/1.1\r\n", long(size));
        let path = |size| format!("GET /{}?a HTTP/1.1\r\n", long(size));
        let headers = |size| format!("GET /?a HTTP/1.1\r\nA: {}\r\n", long(size));
        for (head, expect) in [
            (url(2 << 20), HeadRejected::TooLarge),
            (url(LONG_HEAD_SIZE_MAX), HeadRejected::TooLarge),
            (headers(2 << 20), HeadRejected::TooLarge),
            (headers(96 << 10), HeadRejected::HeadersTooLarge(96 << 10)),
            (path(HEAD_SIZE_MAX), HeadRejected::PathTooLong),
            (path(REQUEST_LINE_TAKEN_MIN), HeadRejected::PathTooLong),
            // The end of the stream instead of the end of the head.
            (url(20 << 20), HeadRejected::TooLarge),
        ] {
            let sent = format!("{head}\r\nGET /next HTTP/1.1\r\n\r\n");
            for size in [100_000, sent.len()] {
                let replacements = Arc::default();
                let found = read_with(sent.as_bytes(), size, 128 << 10, &replacements).await;
                let what = format!("{expect:?} in pieces of {size} bytes");
                assert_eq!(restored(&found, &replacements), Err(expect), "{what}");
                assert!(!String::from_utf8_lossy(&found).contains("next"), "{what}");
            }
        }
    }
}
