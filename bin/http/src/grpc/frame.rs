//! Reads the frame of a request, and writes those of a response.
//!
//! A `thanos receive` router compresses with framed snappy unless told otherwise.

use std::io::Read;

use prost::Message;
use varve_context::Charge;
use varve_ingest::compression::{GzipReader, snappy_frames};
use varve_ingest::{Malformed, WriteError};
use varve_wire::grpc::{Coding, HEADER_SIZE, end_frame, write};

use super::status::{Code, Status};
use crate::error::{ApiError, Result};
use crate::serving::run::Work;

/// A window of 8 MiB, the maximum that HTTP allows.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;
/// Bytes decompressed before they are charged.
const STEP: usize = 256 << 10;
/// Size of a message in bytes above which its buffer is not kept for the next one.
const LARGE_MESSAGE: usize = 256 << 10;
/// Copies of a message that is compressed: the message, and the compressed one, whose buffer may be
/// half empty.
const COPIES_COMPRESSED: usize = 3;

/// The reason why a request has no message.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("{0}")]
    Protocol(String),
    #[error("decompress: {0}")]
    Broken(#[from] std::io::Error),
    #[error("message of {size} bytes exceeds the limit of {size_max} bytes")]
    TooLarge { size: usize, size_max: usize },
    /// There is not enough memory.
    #[error(transparent)]
    Memory(#[from] varve_context::Error),
}

impl From<ReadError> for Status {
    fn from(error: ReadError) -> Self {
        let code = match error {
            ReadError::Memory(error) => return ApiError::from(error).into(),
            ReadError::Protocol(_) => Code::Internal,
            ReadError::Broken(_) => Code::InvalidArgument,
            ReadError::TooLarge { .. } => Code::ResourceExhausted,
        };
        Self::new(code, error.to_string())
    }
}

impl From<ReadError> for WriteError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Memory(error) => error.into(),
            error => Malformed::Encoding {
                encoding: "gRPC",
                reason: error.to_string(),
            }
            .into(),
        }
    }
}

/// Decompresses a message of at most `size_max` bytes, charging it before it grows.
fn decompress<'a>(
    coding: Coding,
    message: &[u8],
    size_max: usize,
    charge: &mut Charge,
    buffer: &'a mut Vec<u8>,
) -> Result<&'a [u8], ReadError> {
    let mut reader: Box<dyn Read + '_> = match coding {
        Coding::Identity => {
            return Err(ReadError::Protocol(
                "compressed message without grpc-encoding".to_owned(),
            ));
        }
        Coding::Gzip => Box::new(GzipReader::new(message)),
        Coding::Snappy => {
            let size = snappy_frames::declared_size(message)?;
            check_size(size, size_max)?;
            charge.grow_without_waiting(size)?;
            // The buffer keeps its length, so that it is zeroed only once.
            buffer.resize(size.max(buffer.len()), 0);
            snappy_frames::decompress(message, &mut buffer[..size])?;
            return Ok(&buffer[..size]);
        }
        Coding::Zstd => {
            let mut decoder = zstd::Decoder::with_buffer(message)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
            Box::new(decoder)
        }
    };
    buffer.clear();
    loop {
        charge.grow_without_waiting(STEP)?;
        let n = (&mut reader).take(STEP as u64).read_to_end(buffer)?;
        check_size(buffer.len(), size_max)?;
        if n < STEP {
            return Ok(buffer);
        }
    }
}

fn check_size(size: usize, size_max: usize) -> Result<(), ReadError> {
    if size > size_max {
        Err(ReadError::TooLarge { size, size_max })
    } else {
        Ok(())
    }
}

/// Returns the only message of a request's body, decompressed into `buffer` if necessary.
///
/// # Errors
/// See [`ReadError`].
pub(super) fn read<'a>(
    body: &'a [u8],
    coding: Coding,
    size_max: usize,
    charge: &mut Charge,
    buffer: &'a mut Vec<u8>,
) -> Result<&'a [u8], ReadError> {
    let Some((header, message)) = body.split_first_chunk::<HEADER_SIZE>() else {
        return Err(ReadError::Protocol("request without a message".to_owned()));
    };
    let [is_compressed, a, b, c, d] = *header;
    #[expect(clippy::big_endian_bytes, reason = "the protocol demands it")]
    let size = u32::from_be_bytes([a, b, c, d]) as usize;
    if size != message.len() {
        let text = format!(
            "request of {} bytes has a message of {size} bytes",
            message.len()
        );
        return Err(ReadError::Protocol(text));
    }
    if is_compressed != 0 {
        return decompress(coding, message, size_max, charge, buffer);
    }
    check_size(size, size_max)?;
    Ok(message)
}

/// Writes the messages of a response.
#[derive(Debug)]
pub(super) struct Frames {
    coding: Coding,
    /// The open message, if it is to be compressed. Otherwise it is in the buffer of the response.
    message: Vec<u8>,
    /// Offset of the frame of the open message in the buffer of the response.
    start: Option<usize>,
    /// Size of the last message, to which the buffer grows at once.
    last_size: usize,
}

impl Frames {
    pub(super) fn new(coding: Coding) -> Self {
        Self {
            coding,
            message: Vec::new(),
            start: None,
            last_size: 0,
        }
    }

    /// Sends a message. Charges the frame before it is encoded.
    ///
    /// # Errors
    /// If the call must end: its deadline has passed, the client is gone or too slow, or memory is
    /// short.
    pub(super) fn send(&mut self, work: &mut Work, message: &impl Message) -> Result<()> {
        let size = message.encoded_len();
        let n_copies = match self.coding {
            Coding::Identity => 1,
            Coding::Gzip | Coding::Zstd | Coding::Snappy => COPIES_COMPRESSED,
        };
        let mut charge = work.ctx.charge();
        charge.grow(n_copies * size)?;
        let out = self.open(work);
        if size > LARGE_MESSAGE {
            out.reserve_exact(size);
        }
        message.encode(out).expect("a vector grows");
        self.end(work)?;
        // From here on the response has charged its buffer.
        drop(charge);
        work.out.step()
    }

    /// Sends the message that `encode` appends to an empty buffer.
    ///
    /// # Errors
    /// As [`Frames::send`].
    pub(super) fn send_encoded(
        &mut self,
        work: &mut Work,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<()> {
        encode(self.open(work));
        self.close(work)
    }

    /// Returns the buffer to append the open message to, which begins at the first call after
    /// [`Frames::close`]. The buffer has other bytes before it.
    pub(super) fn open<'a>(&'a mut self, work: &'a mut Work) -> &'a mut Vec<u8> {
        let out = if self.coding == Coding::Identity {
            work.out.buffer()
        } else {
            &mut self.message
        };
        if self.start.is_none() {
            self.start = Some(out.len());
            out.reserve(HEADER_SIZE + self.last_size.min(LARGE_MESSAGE));
            if self.coding == Coding::Identity {
                out.extend_from_slice(&[0; HEADER_SIZE]);
            }
        }
        out
    }

    /// Sends the open message: a whole frame at a time, because the response is cut only between
    /// frames.
    ///
    /// # Errors
    /// As [`Frames::send`].
    pub(super) fn close(&mut self, work: &mut Work) -> Result<()> {
        self.end(work)?;
        work.out.step()
    }

    /// Ends the open message, if there is one, and appends its frame to the response.
    fn end(&mut self, work: &mut Work) -> Result<()> {
        let Some(start) = self.start.take() else {
            return Ok(());
        };
        let out = work.out.buffer();
        let written = match self.coding {
            Coding::Identity => end_frame(out, start),
            coding => write(coding, &self.message, out),
        };
        written.map_err(ApiError::internal)?;
        self.last_size = if self.coding == Coding::Identity {
            out.len() - start
        } else {
            self.message.len()
        };
        self.message.clear();
        self.message.shrink_to(LARGE_MESSAGE);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use varve_context::{Limit, MemoryBudget, QueryContext};

    use super::*;

    const MEMORY: usize = 16 << 20;

    fn read_within(
        body: &[u8],
        coding: Coding,
        size_max: usize,
        memory: usize,
    ) -> Result<Vec<u8>, ReadError> {
        let ctx = QueryContext::new(
            Duration::from_secs(60),
            MemoryBudget::new(Limit::QueryMemory, memory),
        );
        Ok(read(body, coding, size_max, &mut ctx.charge(), &mut Vec::new())?.to_vec())
    }

    #[test]
    fn messages_survive_each_coding() {
        varve_config::limits::name_limits();
        let message = b"time series ".repeat(100_000);
        for name in ["", "gzip", "zstd", "snappy"] {
            let coding = Coding::of(name).unwrap();
            assert_eq!(coding.name().unwrap_or_default(), name);
            let mut frame = Vec::new();
            write(coding, &message, &mut frame).unwrap();
            assert_eq!(
                frame.len() < message.len() / 10,
                coding != Coding::Identity,
                "{name}"
            );
            assert!(
                read_within(&frame, coding, message.len(), MEMORY).unwrap() == message,
                "{name}"
            );
            if coding != Coding::Identity {
                let exceeds =
                    |size_max, memory| read_within(&frame, coding, size_max, memory).unwrap_err();
                let too_large = exceeds(message.len() - 1, MEMORY);
                assert_eq!(
                    Status::from(too_large).code,
                    Code::ResourceExhausted,
                    "{name}"
                );
                let no_memory = exceeds(message.len(), 1 << 20);
                assert!(
                    no_memory.to_string().contains("--query.max-memory"),
                    "{name}"
                );
                // A router retries it, unlike all others.
                assert!(
                    matches!(WriteError::from(no_memory), WriteError::Store(_)),
                    "{name}"
                );
            }
        }
        assert_eq!(Coding::of("deflate"), None);
    }

    #[test]
    fn bodies_other_than_one_message_are_rejected() {
        for (body, expect) in [
            (&b""[..], "without a message"),
            (b"\0\0\0\0", "without a message"),
            (b"\0\0\0\0\x02a", "has a message of 2 bytes"),
            (b"\0\0\0\0\0\0\0\0\0\0", "has a message of 0 bytes"),
            (b"\x01\0\0\0\x01a", "decompress: "),
        ] {
            let message = read_within(body, Coding::Snappy, 100, MEMORY)
                .unwrap_err()
                .to_string();
            assert!(message.contains(expect), "{message}");
        }
        assert!(
            read_within(b"\0\0\0\0\0", Coding::Snappy, 100, MEMORY)
                .is_ok_and(|message| message.is_empty())
        );
    }
}
