//! Keepalive pings of gRPC clients, as bytes of HTTP/2 on the socket. Thanos' clients ping each 10
//! s while a call is active; a server of gRPC disconnects a client that pings more often than it
//! allows.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use prost::Message as _;

use super::T0;
use crate::harness::messages::thanos::{Matcher, SeriesRequest};
use crate::harness::{Http2, PATIENCE, Server, WriteRequest, frame, series};

const SERIES: &str = "/thanos.Store/Series";
const N_SERIES: usize = 2_000;
/// Pings without a pause: far more than in any interval.
const N_PINGS: u64 = 2_000;
/// Pings that are sent before their acknowledgements are read.
const N_BURST: u64 = 100;

/// Types and flags of frames: <https://www.rfc-editor.org/rfc/rfc9113#section-6>.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// A frame of the server.
#[derive(Debug)]
struct Received {
    kind: u8,
    flags: u8,
    payload: Vec<u8>,
}

struct Connection(TcpStream);

impl Connection {
    /// Connects with a window of 0 bytes for each stream, so that no response gets further than its
    /// headers.
    fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("connect");
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("set a timeout");
        let mut connection = Self(stream);
        connection
            .0
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            .expect("send the preface");
        connection.send(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
        connection
    }

    #[expect(
        clippy::big_endian_bytes,
        reason = "the protocol has big-endian integers"
    )]
    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let size = u32::try_from(payload.len())
            .expect("a short frame")
            .to_be_bytes();
        let bytes = [&size[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat();
        self.0
            .write_all(&bytes)
            .expect("the server keeps the connection");
    }

    #[expect(
        clippy::big_endian_bytes,
        reason = "the protocol has big-endian integers"
    )]
    fn receive(&mut self) -> Received {
        let mut header = [0; 9];
        self.0
            .read_exact(&mut header)
            .expect("the server keeps the connection");
        let [a, b, c, kind, flags, ..] = header;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.0.read_exact(&mut payload).expect("a whole frame");
        let is_expected = [DATA, HEADERS, SETTINGS, PING, WINDOW_UPDATE].contains(&kind);
        assert!(
            is_expected,
            "GOAWAY is frame type 7, RST_STREAM is 3: {kind} {payload:?}"
        );
        Received {
            kind,
            flags,
            payload,
        }
    }

    /// Makes a gRPC call on stream 1.
    fn call(&mut self, path: &str, message: &[u8]) {
        let headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "varve"),
            (":path", path),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ];
        // Literals without indexing and without Huffman coding.
        let text = |text: &str| {
            [
                &[u8::try_from(text.len()).expect("a short header")],
                text.as_bytes(),
            ]
            .concat()
        };
        let literal = |&(name, value): &(&str, &str)| [vec![0], text(name), text(value)].concat();
        self.send(
            HEADERS,
            END_HEADERS,
            1,
            &headers.iter().flat_map(literal).collect::<Vec<_>>(),
        );
        self.send(DATA, END_STREAM, 1, &frame(false, message));
    }

    /// Sends pings, and waits until the server has acknowledged each of them.
    fn ping(&mut self) {
        for burst in 0..N_PINGS / N_BURST {
            let payloads = (burst * N_BURST..(burst + 1) * N_BURST).map(u64::to_be_bytes);
            payloads
                .clone()
                .for_each(|payload| self.send(PING, 0, 0, &payload));
            for payload in payloads {
                let acknowledged = loop {
                    let received = self.receive();
                    assert!(received.kind != DATA, "data without a window");
                    if received.kind == PING && received.flags == ACK {
                        break received.payload;
                    }
                };
                assert_eq!(acknowledged, payload);
            }
        }
    }

    /// Opens the windows, and returns the size of the response after its headers.
    #[expect(
        clippy::big_endian_bytes,
        reason = "the protocol has big-endian integers"
    )]
    fn response_size(&mut self) -> usize {
        for stream in [0, 1] {
            self.send(WINDOW_UPDATE, 0, stream, &(1_u32 << 24).to_be_bytes());
        }
        let mut size = 0;
        loop {
            let received = self.receive();
            match received.kind {
                DATA => size += received.payload.len(),
                // The trailers.
                HEADERS if received.flags & END_STREAM != 0 => return size,
                _ => {}
            }
        }
    }
}

#[test]
fn pings_of_any_rate_do_not_disconnect_a_client_and_its_call_goes_on() {
    let server = Server::start(&[]);
    let one = |i: usize| {
        series(
            &[("__name__", "m"), ("i", &*i.to_string())],
            &[(T0, i as f64)],
        )
    };
    server
        .http()
        .write(&WriteRequest::new((0..N_SERIES).map(one)))
        .expect_status(204);
    let matchers = vec![Matcher::equal("__name__", "m")];
    let request = SeriesRequest {
        min_time: T0 - 1,
        max_time: T0 + 1,
        matchers,
        ..SeriesRequest::default()
    };
    let message = request.encode_to_vec();
    let (expect, call) = Http2::connect(server.http().address()).measure(SERIES, &message);
    assert_eq!(call.status, "0", "{call:?}");
    assert!(expect > 50 * N_SERIES, "{expect} bytes");

    let mut connection = Connection::open(server.http().address());
    // Without a call.
    connection.ping();
    connection.call(SERIES, &message);
    connection.ping();
    assert_eq!(connection.response_size(), expect);
    connection.ping();
}
