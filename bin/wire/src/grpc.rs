//! Messages of gRPC on the wire: five bytes of header, a flag and the length in big endian, before
//! each message, which may be compressed.

use std::io::Write;

/// Encodings that requests may have, in the header `grpc-accept-encoding` of responses.
pub const ACCEPTED: &str = "identity,gzip,zstd,snappy";

/// Size of the header in bytes.
pub const HEADER_SIZE: usize = 5;
const ZSTD_LEVEL: i32 = 1;

/// The compression of the messages of a call, in both directions, as in Go's implementation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// None.
    Identity,
    /// Gzip.
    Gzip,
    /// Zstandard.
    Zstd,
    /// Snappy's framing format, unlike remote write.
    Snappy,
}

impl Coding {
    /// Returns the coding of the header `grpc-encoding`, or `None` if it is unsupported.
    pub fn of(name: &str) -> Option<Self> {
        Some(match name {
            "" | "identity" => Self::Identity,
            "gzip" => Self::Gzip,
            "zstd" => Self::Zstd,
            "snappy" => Self::Snappy,
            _ => return None,
        })
    }

    /// Returns the value of `grpc-encoding` in the response.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Identity => None,
            Self::Gzip => Some("gzip"),
            Self::Zstd => Some("zstd"),
            Self::Snappy => Some("snappy"),
        }
    }

    /// Appends the compressed message to `out`.
    pub fn compress(self, message: &[u8], out: &mut Vec<u8>) -> std::io::Result<()> {
        match self {
            Self::Identity => out.extend_from_slice(message),
            Self::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(out, flate2::Compression::fast());
                encoder.write_all(message)?;
                encoder.finish()?;
            }
            Self::Zstd => zstd::stream::copy_encode(message, out, ZSTD_LEVEL)?,
            Self::Snappy => {
                let mut encoder = snap::write::FrameEncoder::new(out);
                encoder.write_all(message)?;
                encoder.flush()?;
            }
        }
        Ok(())
    }
}

/// Appends the frame of a message to `out`.
pub fn write(coding: Coding, message: &[u8], out: &mut Vec<u8>) -> std::io::Result<()> {
    let start = out.len();
    out.extend_from_slice(&[u8::from(coding != Coding::Identity), 0, 0, 0, 0]);
    coding.compress(message, out)?;
    end_frame(out, start)
}

/// Sets the size in the header of a frame that begins at `start` and ends with the buffer.
///
/// # Errors
/// If the message is larger than 4 GiB.
pub fn end_frame(out: &mut [u8], start: usize) -> std::io::Result<()> {
    let size = u32::try_from(out.len() - start - HEADER_SIZE).map_err(std::io::Error::other)?;
    #[expect(clippy::big_endian_bytes, reason = "the protocol demands it")]
    out[start + 1..start + HEADER_SIZE].copy_from_slice(&size.to_be_bytes());
    Ok(())
}
