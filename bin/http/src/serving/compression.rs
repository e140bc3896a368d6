//! Compression of responses (gzip, deflate or zstd, by content negotiation) and decompression of
//! forms.
//!
//! As in Prometheus, the supported coding with the highest `q` in `Accept-Encoding` is chosen, and
//! the first one of equal `q`. A body is compressed piece by piece while it is sent, at the
//! client's pace. The body of a truncated response ends in an error before the end marker of the
//! coding is written, so that it never parses as complete.
//!
//! The memory of an encoder is charged to the memory of the request. If that is exhausted, the
//! response is not compressed. Its output is charged until it is written to the socket. If memory is
//! exhausted after the response has begun, pieces of output are not charged: a response that has
//! begun is not cut off, and hyper asks for few pieces at a time.

use std::io::{self, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::{GzEncoder, ZlibEncoder};
use hyper::body::Frame;
use varve_context::{Charge, MemoryBudget};
use varve_ingest::compression::GzipReader;

use super::output::charged;
use super::state::HttpState;
use crate::error::{ApiError, ErrorKind, Result};
use crate::requester::record_of;

/// Smaller responses are not compressed.
const SIZE_MIN: u64 = 1 << 10;
/// Maximum memory of an encoder.
const ENCODER_SIZE: usize = 1 << 20;
/// Bytes compressed at a time on a thread that serves other connections too: less than a
/// millisecond of work.
const PIECE_SIZE: usize = 32 << 10;
/// Binary logarithm of an encoder's window in bytes. It keeps a zstd encoder within
/// [`ENCODER_SIZE`].
const ZSTD_WINDOW_LOG: u32 = 18;
const ZSTD_LEVEL: i32 = 1;
/// The level of static files, which are compressed once. Its window of 8 MiB is the limit of RFC 9659.
const ZSTD_LEVEL_BEST: i32 = 19;
/// Binary logarithm of the maximum window of a form in zstd, in bytes. This is the limit of RFC 9659.
const ZSTD_FORM_WINDOW_LOG: u32 = 23;
/// Bytes of a form decoded and charged at a time.
const DECODE_STEP: usize = 64 << 10;

/// A content coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Gzip,
    Deflate,
    Zstd,
}

/// How the body of a request is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyCoding {
    Identity,
    Compressed(Coding),
}

impl BodyCoding {
    /// Returns the coding of a body by its header, or `None` if it is unknown.
    pub(crate) fn parse(content_encoding: &str) -> Option<Self> {
        match content_encoding.to_ascii_lowercase().as_str() {
            "" | "identity" => Some(Self::Identity),
            "x-gzip" => Some(Self::Compressed(Coding::Gzip)),
            name => Coding::parse(name).map(Self::Compressed),
        }
    }
}

impl Coding {
    /// Returns the coding with this name.
    fn parse(name: &str) -> Option<Self> {
        [Self::Gzip, Self::Deflate, Self::Zstd]
            .into_iter()
            .find(|coding| coding.name() == name)
    }

    /// Decompresses `coded`. The output is charged before it is allocated.
    ///
    /// # Errors
    /// If the input is invalid, its output exceeds `size_max` bytes, or memory is exhausted.
    pub(crate) fn decode(
        self,
        coded: &[u8],
        size_max: usize,
        charge: &mut Charge,
    ) -> Result<Vec<u8>> {
        let invalid =
            |error: io::Error| ApiError::bad_data(format!("decode {} form: {error}", self.name()));
        let mut reader: Box<dyn Read + '_> = match self {
            Self::Gzip => Box::new(GzipReader::new(coded)),
            Self::Deflate => Box::new(ZlibDecoder::new(coded)),
            Self::Zstd => {
                charge.grow(1 << ZSTD_FORM_WINDOW_LOG)?;
                let mut decoder =
                    zstd::stream::read::Decoder::with_buffer(coded).map_err(invalid)?;
                decoder
                    .window_log_max(ZSTD_FORM_WINDOW_LOG)
                    .map_err(invalid)?;
                Box::new(decoder)
            }
        };
        let mut plain = Vec::new();
        loop {
            // A full vector doubles its capacity.
            charge.grow(2 * DECODE_STEP)?;
            let n = (&mut reader)
                .take(DECODE_STEP as u64)
                .read_to_end(&mut plain)
                .map_err(invalid)?;
            if plain.len() > size_max {
                let text = format!("request body exceeds {size_max} bytes, the limit of form size");
                return Err(ApiError::new(ErrorKind::TooLarge, text));
            }
            if n < DECODE_STEP {
                return Ok(plain);
            }
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Zstd => "zstd",
        }
    }

    /// Returns the coding that a client prefers, or `None` if it accepts no supported one.
    pub(crate) fn negotiate(headers: &HeaderMap) -> Option<Self> {
        let mut best: Option<(Self, f32)> = None;
        for header in headers.get_all(header::ACCEPT_ENCODING) {
            for element in header.to_str().unwrap_or_default().split(',') {
                let mut parts = element.split(';').map(str::trim);
                let Some(coding) = parts.next().and_then(Self::parse) else {
                    continue;
                };
                let q = parts
                    .find_map(|part| part.strip_prefix("q="))
                    .map_or(1.0, |q| q.parse().unwrap_or(0.0));
                if q > best.map_or(0.0, |(_, q)| q) {
                    best = Some((coding, q));
                }
            }
        }
        best.map(|(coding, _)| coding)
    }
}

/// Compresses a static file as small as gzip can.
pub(crate) fn gzip_best(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let coded = encoder.write_all(plain).and_then(|()| encoder.finish());
    coded.expect("a vector accepts all bytes")
}

/// Compresses a static file as small as zstd can.
pub(crate) fn zstd_best(plain: &[u8]) -> Vec<u8> {
    zstd::encode_all(plain, ZSTD_LEVEL_BEST).expect("a vector accepts all bytes")
}

/// Compresses responses for clients that accept it.
pub(crate) async fn compress(
    State(state): State<HttpState>,
    request: Request,
    next: Next,
) -> Response {
    let coding = Coding::negotiate(request.headers());
    let record = record_of(request.extensions());
    let mut response = next.run(request).await;
    response
        .headers_mut()
        .append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    let is_small = response
        .body()
        .size_hint()
        .upper()
        .is_some_and(|size| size < SIZE_MIN);
    if is_small || response.headers().contains_key(header::CONTENT_ENCODING) {
        return response;
    }
    let Some(coding) = coding else {
        return response;
    };
    let Ok(record) = record else {
        return response;
    };
    let memory = state.app.requests.memory(&record).clone();
    let mut charge = memory.charge();
    let Ok(encoder) = charge
        .grow(ENCODER_SIZE)
        .map_err(io::Error::other)
        .and_then(|()| Encoder::new(coding))
    else {
        return response;
    };
    let (mut head, inner) = response.into_parts();
    head.headers.remove(header::CONTENT_LENGTH);
    head.headers.insert(
        header::CONTENT_ENCODING,
        HeaderValue::from_static(coding.name()),
    );
    Response::from_parts(
        head,
        Body::new(Compressed {
            inner,
            encoder: Some(encoder),
            pending: Bytes::new(),
            memory,
            _charge: charge,
        }),
    )
}

/// A streaming encoder.
enum Encoder {
    Gzip(GzEncoder<Vec<u8>>),
    Deflate(ZlibEncoder<Vec<u8>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

impl Encoder {
    fn new(coding: Coding) -> io::Result<Self> {
        Ok(match coding {
            Coding::Gzip => Self::Gzip(GzEncoder::new(Vec::new(), Compression::fast())),
            Coding::Deflate => Self::Deflate(ZlibEncoder::new(Vec::new(), Compression::fast())),
            Coding::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), ZSTD_LEVEL)?;
                encoder.window_log(ZSTD_WINDOW_LOG)?;
                Self::Zstd(encoder)
            }
        })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Gzip(encoder) => encoder.write_all(bytes),
            Self::Deflate(encoder) => encoder.write_all(bytes),
            Self::Zstd(encoder) => encoder.write_all(bytes),
        }
    }

    /// Returns the bytes that are ready to be sent.
    fn take(&mut self) -> Vec<u8> {
        std::mem::take(match self {
            Self::Gzip(encoder) => encoder.get_mut(),
            Self::Deflate(encoder) => encoder.get_mut(),
            Self::Zstd(encoder) => encoder.get_mut(),
        })
    }

    fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip(encoder) => encoder.finish(),
            Self::Deflate(encoder) => encoder.finish(),
            Self::Zstd(encoder) => encoder.finish(),
        }
    }
}

/// A compressed body.
struct Compressed {
    inner: Body,
    /// `None` after the end.
    encoder: Option<Encoder>,
    /// The part of the last frame that is not compressed yet.
    pending: Bytes,
    /// The memory of the request.
    memory: MemoryBudget,
    _charge: Charge,
}

impl Compressed {
    /// Returns a part of the body.
    fn frame(&self, bytes: Vec<u8>) -> Frame<Bytes> {
        let mut charge = self.memory.charge();
        Frame::data(match charge.grow_without_waiting(bytes.capacity()) {
            Ok(()) => charged(bytes, charge),
            Err(_exhausted) => bytes.into(),
        })
    }
}

impl HttpBody for Compressed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        loop {
            let Some(encoder) = &mut this.encoder else {
                return Poll::Ready(None);
            };
            if this.pending.is_empty() {
                match ready!(Pin::new(&mut this.inner).poll_frame(cx)) {
                    Some(Ok(frame)) => this.pending = frame.into_data().unwrap_or_default(),
                    // Without an end marker the body does not parse as complete.
                    Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                    None => {
                        let end = this.encoder.take().map(|encoder| {
                            let end = encoder.finish().map_err(axum::Error::new)?;
                            Ok(this.frame(end))
                        });
                        return Poll::Ready(end);
                    }
                }
            }
            let piece = this.pending.split_to(this.pending.len().min(PIECE_SIZE));
            if let Err(error) = encoder.write(&piece) {
                return Poll::Ready(Some(Err(axum::Error::new(error))));
            }
            let ready = encoder.take();
            if !ready.is_empty() {
                return Poll::Ready(Some(Ok(this.frame(ready))));
            }
            if !this.pending.is_empty() {
                // Yields to other tasks of this thread.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use varve_context::{Limit, MemoryBudget, QueryContext};

    fn check(accept: &str, expect: Option<Coding>) {
        let mut headers = HeaderMap::new();
        headers.insert(
            header::ACCEPT_ENCODING,
            HeaderValue::from_str(accept).unwrap(),
        );
        assert_eq!(Coding::negotiate(&headers), expect, "{accept}");
    }

    #[test]
    fn forms_are_decompressed_within_their_limits() {
        let plain = b"query=up&".repeat(20_000);
        for coding in [Coding::Gzip, Coding::Deflate, Coding::Zstd] {
            let mut encoder = Encoder::new(coding).unwrap();
            encoder.write(&plain).unwrap();
            let mut coded = encoder.take();
            coded.extend_from_slice(&encoder.finish().unwrap());
            let decode = |coded: &[u8], size_max| {
                coding
                    .decode(coded, size_max, &mut QueryContext::unbounded().charge())
                    .map_err(|error| error.kind)
            };
            assert_eq!(decode(&coded, plain.len()).as_ref(), Ok(&plain));
            assert_eq!(decode(&coded, plain.len() - 1), Err(ErrorKind::TooLarge));
            assert_eq!(
                decode(&coded[..coded.len() / 2], plain.len()),
                Err(ErrorKind::BadData)
            );
            assert_eq!(decode(b"query=up", plain.len()), Err(ErrorKind::BadData));
            let memory = MemoryBudget::new(Limit::Other("memory"), DECODE_STEP);
            let mut charge = QueryContext::new(Duration::from_secs(60), memory).charge();
            assert_eq!(
                coding
                    .decode(&coded, plain.len(), &mut charge)
                    .unwrap_err()
                    .kind,
                ErrorKind::Execution
            );
        }
        let gzip = Some(BodyCoding::Compressed(Coding::Gzip));
        assert_eq!(BodyCoding::parse("GZIP"), gzip);
        assert_eq!(BodyCoding::parse("identity"), Some(BodyCoding::Identity));
        assert_eq!(BodyCoding::parse("br"), None);
    }

    #[test]
    fn the_preferred_coding_is_chosen() {
        check("gzip", Some(Coding::Gzip));
        check("deflate, gzip, br, zstd", Some(Coding::Deflate));
        check("br,zstd;q=0.5, gzip", Some(Coding::Gzip));
        check("gzip;q=0.1,deflate;q=0.9", Some(Coding::Deflate));
        check("gzip;q=0.5;x=y, zstd;q=0.5", Some(Coding::Gzip));
        check("gzip;q=nonsense, deflate;q=0.001", Some(Coding::Deflate));
        check("*", None);
        check("gzip;q=0, deflate ; q=1", Some(Coding::Deflate));
        check("identity", None);
        check("", None);
        assert_eq!(Coding::negotiate(&HeaderMap::new()), None);
    }
}
