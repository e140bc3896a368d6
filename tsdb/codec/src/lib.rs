//! Encodings of integers, doubles and timestamps: from slices to bytes, and back.
//!
//! Used by the chunks, logs and blocks of the engine, and by `varve-prometheus`. All functions
//! append to a buffer of the caller, or take bytes from the front of a slice. Formats:
//! docs/format/block.md and docs/format/wal.md.
//!
//! Invariants
//! 1. Decoding restores every bit of what was encoded.
//! 2. A decoder returns `None` for bytes that are no valid encoding. Its caller reports the file
//!    and the offset.
//! 3. No input makes a decoder panic, read beyond its slice, or reserve more memory than the number
//!    of elements that its caller asks for.
//!
//! This crate knows no files, no labels and no series.

#![forbid(unsafe_code)]

pub mod varint;

pub mod byte_planes;
pub mod integers;
pub mod timestamps;
pub mod values;

pub mod bits;
pub mod prefix_code;
