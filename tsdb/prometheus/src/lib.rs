//! Prometheus' file formats: read, repair, recover, write, import and export Prometheus data
//! directories.
//!
//! Used by the WAL and block tools, by import and export, and by remote read. Sources: Prometheus
//! `tsdb/docs/format`, `tsdb/record`, `tsdb/chunkenc`, as of version 3.16.
//! docs/decisions/storage/0010 lists the engine interfaces it uses.
//!
//! Invariants
//! 1. No input makes a reader panic. A length is checked against the remaining bytes before memory
//!    is allocated for it.
//! 2. Readers write nothing. A repair saves the original first.

#![expect(
    clippy::big_endian_bytes,
    reason = "Prometheus' formats are big endian"
)]
#![forbid(unsafe_code)]

pub mod block;
pub mod chunk;
mod cursor;
pub mod export;
pub mod head_chunks;
mod histogram_limits;
pub mod import;
pub mod inspect;
pub mod losses;
pub mod recover;
pub mod repair;
#[cfg(test)]
mod testing;
pub mod wal;
