//! Prometheus' own formats: what its data directory consists of, read and written.
//!
//! Used by the recovery tools, by import and export, and by remote read. Sources: Prometheus `tsdb/docs/format`,
//! `tsdb/record`, `tsdb/chunkenc`, as of version 3.14.
//!
//! Invariants
//! 1. No bytes make a reader panic, and a length is compared with what is there before anything is reserved for it.
//! 2. What is read is never changed: originals stay as they are.

#![expect(clippy::big_endian_bytes, reason = "Prometheus' formats are big endian")]
#![forbid(unsafe_code)]

pub mod beside;
pub mod block;
pub mod chunk;
mod cursor;
pub mod export;
pub mod head_chunks;
pub mod import;
pub mod inspect;
pub mod recover;
pub mod repair;
pub mod wal;
