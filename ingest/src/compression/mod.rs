//! Decompression of request bodies with bounded memory.

pub mod snappy_frames;

use std::io::{self, Cursor, Read};

use flate2::bufread::GzDecoder;

use crate::admission::memory::Reservation;
use crate::error::{Malformed, WriteError};
use crate::limits::Limits;
use crate::sources::remote_write::snappy;

/// The compression of a body, one per content encoding of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// None.
    Identity,
    /// `gzip`, with at most [`GZIP_MEMBERS_MAX`] members.
    Gzip,
    /// `deflate`: the zlib format, as in HTTP.
    Deflate,
    /// `zstd`.
    Zstd,
    /// `snappy`: one block, as in remote write, or framed blocks, as some collectors send.
    Snappy,
}

impl Compression {
    /// Returns the compression of a content encoding, or `None` if it is unsupported.
    #[must_use]
    pub fn from_content_encoding(encoding: &str) -> Option<Self> {
        Some(match encoding.to_ascii_lowercase().as_str() {
            "" | "identity" => Self::Identity,
            "gzip" | "x-gzip" => Self::Gzip,
            "deflate" => Self::Deflate,
            "zstd" => Self::Zstd,
            "snappy" | "x-snappy-framed" => Self::Snappy,
            _ => return None,
        })
    }

    /// Decompresses a body, reserving memory first.
    ///
    /// # Errors
    /// [`WriteError::Malformed`], [`WriteError::TooLarge`] and [`WriteError::Busy`].
    pub(crate) fn decompress(
        self,
        body: &[u8],
        limits: &Limits,
        memory: &mut Reservation<'_>,
    ) -> Result<Vec<u8>, WriteError> {
        if self == Self::Snappy {
            return self.decompress_snappy(body, limits, |size| memory.grow(size));
        }
        let mut reader = self.reader(body, limits)?;
        let mut bytes = Vec::new();
        loop {
            let len = bytes.len();
            memory.grow(STEP)?;
            let n = (&mut reader)
                .take(STEP as u64)
                .read_to_end(&mut bytes)
                .map_err(|error| self.malformed(&error))?;
            limits.check_decompressed((len + n) as u64)?;
            if n < STEP {
                return Ok(bytes);
            }
        }
    }

    /// Returns a reader of the decompressed body. A snappy block is checked and decompressed here,
    /// all others while they are read.
    ///
    /// # Errors
    /// The errors of [`Compression::decompress`].
    pub(crate) fn reader<'a>(
        self,
        body: &'a [u8],
        limits: &Limits,
    ) -> Result<Box<dyn Read + 'a>, WriteError> {
        Ok(match self {
            Self::Identity => match of_magic(body) {
                Some(encoding) => return Err(Malformed::LooksCompressed { encoding }.into()),
                None => Box::new(body),
            },
            Self::Snappy => {
                let bytes = self.decompress_snappy(body, limits, |_| Ok(()))?;
                Box::new(Cursor::new(bytes))
            }
            Self::Gzip => Box::new(GzipReader::new(body)),
            Self::Deflate => Box::new(flate2::read::ZlibDecoder::new(body)),
            Self::Zstd => {
                let mut decoder =
                    zstd::Decoder::with_buffer(body).map_err(|error| self.malformed(&error))?;
                decoder
                    .window_log_max(ZSTD_WINDOW_LOG_MAX)
                    .map_err(|error| self.malformed(&error))?;
                Box::new(decoder)
            }
        })
    }

    /// Decompresses a block, or framed blocks, after `reserve` has reserved their size.
    fn decompress_snappy(
        self,
        body: &[u8],
        limits: &Limits,
        mut reserve: impl FnMut(usize) -> Result<(), WriteError>,
    ) -> Result<Vec<u8>, WriteError> {
        let mut bytes = Vec::new();
        if !snappy_frames::is_framed(body) {
            let size = snappy::declared_size(body, limits)?;
            reserve(size)?;
            snappy::decompress(body, size, &mut bytes)?;
            return Ok(bytes);
        }
        let size = snappy_frames::declared_size(body).map_err(|error| self.malformed(&error))?;
        limits.check_decompressed(size as u64)?;
        reserve(size)?;
        bytes.resize(size, 0);
        snappy_frames::decompress(body, &mut bytes).map_err(|error| self.malformed(&error))?;
        Ok(bytes)
    }

    fn malformed(self, error: &io::Error) -> WriteError {
        let encoding = match self {
            Self::Identity => "identity",
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Zstd => "zstd",
            Self::Snappy => "snappy",
        };
        Malformed::Encoding {
            encoding,
            reason: error.to_string(),
        }
        .into()
    }
}

/// Returns the compression of a body that starts with the magic number of its format. No text and no
/// protobuf message of a write starts so.
fn of_magic(body: &[u8]) -> Option<&'static str> {
    const GZIP: &[u8] = &[0x1f, 0x8b];
    const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
    match body {
        _ if body.starts_with(GZIP) => Some("gzip"),
        _ if body.starts_with(ZSTD) => Some("zstd"),
        _ => None,
    }
}

/// Maximum number of members of a body in gzip. An empty member has 20 bytes, and costs as much
/// time as some 10 kB of text.
pub const GZIP_MEMBERS_MAX: usize = 1000;

/// Decompresses gzip of at most [`GZIP_MEMBERS_MAX`] members.
#[derive(Debug)]
pub struct GzipReader<'a> {
    member: GzDecoder<&'a [u8]>,
    n_members: usize,
}

impl<'a> GzipReader<'a> {
    /// Creates a reader of compressed bytes.
    #[must_use]
    pub fn new(coded: &'a [u8]) -> Self {
        Self {
            member: GzDecoder::new(coded),
            n_members: 1,
        }
    }
}

impl Read for GzipReader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let n = self.member.read(out)?;
            let rest = *self.member.get_ref();
            if n > 0 || out.is_empty() || rest.is_empty() {
                return Ok(n);
            }
            if self.n_members == GZIP_MEMBERS_MAX {
                let text = format!("more than {GZIP_MEMBERS_MAX} gzip members");
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            (self.member, self.n_members) = (GzDecoder::new(rest), self.n_members + 1);
        }
    }
}

/// Bytes decompressed at a time.
const STEP: usize = 256 << 10;
/// A window of 8 MiB, the maximum that HTTP allows.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::memory::Memory;
    use std::io::Write;

    fn compressed(compression: Compression, text: &[u8]) -> Vec<u8> {
        let level = flate2::Compression::default();
        match compression {
            Compression::Identity => text.to_vec(),
            Compression::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
                encoder.write_all(text).unwrap();
                encoder.finish().unwrap()
            }
            Compression::Deflate => {
                let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), level);
                encoder.write_all(text).unwrap();
                encoder.finish().unwrap()
            }
            Compression::Zstd => zstd::encode_all(text, 0).unwrap(),
            Compression::Snappy => snap::raw::Encoder::new().compress_vec(text).unwrap(),
        }
    }

    #[test]
    fn each_encoding_is_read_up_to_the_limit_and_damage_is_malformed() {
        let text: Vec<u8> = (0..1_000_000_u32)
            .flat_map(|i| (i / 7).to_le_bytes())
            .collect();
        let memory = Memory::new(1 << 30);
        let limits = Limits::for_tests();
        let tight = Limits {
            decompressed_size_max: text.len() - 1,
            ..limits
        };
        for encoding in ["", "gzip", "deflate", "zstd", "snappy"] {
            let compression = Compression::from_content_encoding(encoding).unwrap();
            let body = compressed(compression, &text);
            let run = |body: &[u8], limits: &Limits| {
                let mut reservation = memory.reserve(0).unwrap();
                let bytes = compression.decompress(body, limits, &mut reservation);
                assert!(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64) <= memory.in_flight());
                bytes
            };
            assert!(run(&body, &limits).unwrap() == text, "{encoding}");
            assert!(
                matches!(run(&body, &tight), Err(WriteError::TooLarge { .. })),
                "{encoding}"
            );
            if !encoding.is_empty() {
                assert!(
                    matches!(
                        run(&body[..body.len() / 2], &limits),
                        Err(WriteError::Malformed(_))
                    ),
                    "{encoding}"
                );
            }
        }
        assert_eq!(Compression::from_content_encoding("br"), None);
        assert_eq!(memory.in_flight(), 0);
    }

    #[test]
    fn members_of_gzip_are_bounded() {
        let member = compressed(Compression::Gzip, b"ab");
        let read = |n_members: usize, rest: &[u8]| {
            let coded = [member.repeat(n_members), rest.to_vec()].concat();
            let mut text = Vec::new();
            GzipReader::new(&coded).read_to_end(&mut text).map(|_| text)
        };
        assert_eq!(read(1, b"").unwrap(), b"ab");
        assert_eq!(
            read(GZIP_MEMBERS_MAX, b"").unwrap().len(),
            2 * GZIP_MEMBERS_MAX
        );
        for (n_members, rest, expect) in [
            (
                GZIP_MEMBERS_MAX + 1,
                &b""[..],
                "more than 1000 gzip members",
            ),
            (2, b"x", "unexpected end of file"),
            (2, b"another format", "invalid gzip header"),
        ] {
            assert_eq!(read(n_members, rest).unwrap_err().to_string(), expect);
        }
    }
}
