//! Messages of Prometheus' protocols.

pub mod exposition;
pub mod pushed;
pub mod remote_read;
pub mod types;
