//! Shapes that leave or enter the process: frames of gRPC, declaration of protobuf messages.
//!
//! Used by the crates under `bin/` that speak a protocol. The crate opens no connection.

#![forbid(unsafe_code)]

pub mod grpc;
pub mod protobuf;
