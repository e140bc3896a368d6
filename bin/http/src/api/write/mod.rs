//! Writes: remote write, OTLP, import of scrape bodies.

pub(crate) mod import;
pub(crate) mod ingest;
pub(crate) mod otlp;
pub(crate) mod push;
pub(crate) mod remote_write;
mod team;
