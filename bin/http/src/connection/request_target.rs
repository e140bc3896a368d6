//! A socket that escapes `"`, `<` and `>` in the URLs of requests.
//!
//! RFC 3986 does not allow these bytes, and hyper rejects them before a handler runs. Go accepts
//! them, so commands such as `curl -g 'http://…/api/v1/query?query=up{job="node"}'` work with
//! Prometheus.
//!
//! The head of a request is held back until it is complete. Bodies pass through. Nothing is escaped
//! in HTTP/2, after a request with `Transfer-Encoding` or an invalid or repeated `Content-Length`,
//! and in a head above [`HEAD_SIZE_MAX`]. hyper answers these, and heads that end too early.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum size of a head that is escaped.
const HEAD_SIZE_MAX: usize = 64 << 10;
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
    /// The start of a head that is not complete.
    head: Vec<u8>,
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
}

impl<S> EscapeTargets<S> {
    pub(super) fn new(socket: S) -> Self {
        Self {
            socket,
            next: Next::Head,
            head: Vec::new(),
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
            }
        }
    }

    /// Takes what a read has received. Returns `false` if it was nothing and nothing is left: the
    /// peer has closed.
    fn take(&mut self, received: &[u8]) -> bool {
        self.receive(received);
        if received.is_empty() {
            self.release(Next::Passthrough, None);
        }
        !received.is_empty() || !self.ready.is_empty()
    }

    /// Moves bytes to `head`, up to the end of a line. Returns the rest. Drops empty lines before a
    /// request.
    fn take_line<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let end = line_end(bytes).unwrap_or(bytes.len());
        self.head.extend_from_slice(&bytes[..end]);
        if self.head.len() > HEAD_SIZE_MAX {
            self.release(Next::Passthrough, None);
        } else if self.head.ends_with(b"\n") {
            let is_blank = is_blank(&self.head[self.line_at..]);
            if is_blank && self.line_at == 0 {
                self.head.clear();
            } else if is_blank {
                self.release(after_head(&self.head), escaped(&self.head));
            } else {
                self.line_at = self.head.len();
            }
        }
        &bytes[end..]
    }

    /// Makes the head available, as it is or escaped.
    fn release(&mut self, next: Next, escaped: Option<Vec<u8>>) {
        self.ready
            .extend_from_slice(escaped.as_deref().unwrap_or(&self.head));
        self.next = next;
        self.line_at = 0;
        clear(&mut self.head);
    }

    /// Returns what follows received bytes if they pass through as they are: a part of a body, or a
    /// head without anything to escape, with a part of its body.
    fn passes_unchanged(&self, received: &[u8]) -> Option<Next> {
        let (next, body) = match self.next {
            Next::Head if self.head.is_empty() => {
                let (head, body) = received.split_at(head_end(received)?);
                (after_head(head), escaped(head).is_none().then_some(body)?)
            }
            next => (next, received),
        };
        match next {
            Next::Passthrough => Some(Next::Passthrough),
            Next::Body(left) => left.checked_sub(body.len() as u64).map(after),
            Next::Head if body.is_empty() && !received.is_empty() => Some(Next::Head),
            Next::Head => None,
        }
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

impl<S: AsyncRead + Unpin> AsyncRead for EscapeTargets<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.ready_at == self.ready.len() {
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
    use super::*;
    use std::collections::VecDeque;
    use std::future::poll_fn;

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
        let mut socket =
            EscapeTargets::new(Pieces(sent.chunks(size).map(<[u8]>::to_vec).collect()));
        let mut read = Vec::new();
        let mut buffer = vec![0; read_size];
        loop {
            let mut buf = ReadBuf::new(&mut buffer);
            poll_fn(|cx| Pin::new(&mut socket).poll_read(cx, &mut buf))
                .await
                .unwrap();
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
        let long = format!(
            "GET /?\"{} HTTP/1.1\r\n\r\n{raw}",
            "x".repeat(HEAD_SIZE_MAX)
        );
        for size in [1_000, long.len()] {
            assert!(
                read(long.as_bytes(), size, 128 << 10).await == long.as_bytes(),
                "pieces of {size} bytes"
            );
        }
    }
}
