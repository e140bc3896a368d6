//! TLS handshakes. A client that speaks HTTP without TLS gets a 400 that says so, as in Go.
//!
//! The caller bounds the time of [`accept`]: see `HANDSHAKE_TIME_MAX`.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

/// The response to HTTP without TLS: the text of Go's server.
const PLAIN_HTTP_RESPONSE: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\
    Content-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 48\r\n\
    Connection: close\r\n\
    \r\n\
    Client sent an HTTP request to an HTTPS server.\n";
/// Maximum bytes of a request without TLS that are read and discarded. If a socket is closed while
/// unread bytes are in it, the client may get a reset instead of the response.
const DISCARDED_SIZE_MAX: usize = 64 << 10;

/// Accepts a TLS connection. `guard` wraps the socket before the handshake.
///
/// # Errors
/// If the handshake fails, or the client speaks HTTP without TLS. Such a client has got a response.
pub(super) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
    tls: Arc<ServerConfig>,
    stream: TcpStream,
    guard: impl FnOnce(TcpStream) -> S,
) -> io::Result<TlsStream<S>> {
    let mut first = [0];
    let n_peeked = stream.peek(&mut first).await?;
    // HTTP methods begin with an upper-case letter, TLS handshakes with 0x16.
    if n_peeked == 1 && first[0].is_ascii_uppercase() {
        respond_to_plain_http(guard(stream)).await?;
        return Err(io::Error::other("HTTP without TLS"));
    }
    TlsAcceptor::from(tls).accept(guard(stream)).await
}

async fn respond_to_plain_http(mut socket: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    socket.write_all(PLAIN_HTTP_RESPONSE).await?;
    socket.shutdown().await?;
    let mut discarded = [0; 4 << 10];
    let mut n_discarded = 0;
    while n_discarded < DISCARDED_SIZE_MAX {
        let n_read = socket.read(&mut discarded).await?;
        if n_read == 0 {
            break;
        }
        n_discarded += n_read;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    use tokio::net::TcpListener;

    #[test]
    fn the_length_of_the_response_is_that_of_its_text() {
        let text = str::from_utf8(PLAIN_HTTP_RESPONSE).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())));
    }

    #[tokio::test]
    async fn a_long_request_without_tls_is_not_read_to_its_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let sending = tokio::spawn(async move {
            let mut client = TcpStream::connect(address).await.unwrap();
            let mut n_sent = 0;
            while client.write_all(&[b'A'; 1 << 10]).await.is_ok() {
                n_sent += 1 << 10;
            }
            n_sent
        });
        let (stream, _) = listener.accept().await.unwrap();
        let responding = respond_to_plain_http(stream);
        let responded = tokio::time::timeout(Duration::from_secs(30), responding).await;
        responded.expect("the rest is not read").unwrap();
        // Besides what was read, the buffers of the sockets take some.
        assert!(sending.await.unwrap() < 64 << 20);
    }
}
