//! Shapes that leave or enter the process: protobuf messages, frames of gRPC, responses of the HTTP
//! API that tools read, the text of times.
//!
//! Used by the crates under `bin/` that speak a protocol. The crate opens no connection. The reader
//! of remote write and OTLP metrics, which decodes in place, is in `ingest/protobuf`.

#![forbid(unsafe_code)]

mod protobuf;

pub mod active_requests;
pub mod api;
pub mod exposition;
pub mod grpc;
pub mod otlp;
pub mod pprof;
pub mod prometheus;
pub mod rpc;
pub mod schema;
pub mod thanos;
pub mod time;
