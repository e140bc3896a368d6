//! The protobuf messages that tests send and receive, for prost. They are declared independently of
//! the product, whose messages are in `varve-wire` and whose decoders are in `varve-ingest`.

pub(crate) mod families;
pub(crate) mod otlp;
pub(crate) mod pprof;
pub(crate) mod remote_read;
pub(crate) mod remote_write;
pub(crate) mod thanos;
