//! Options for sending.

use crate::message::Version;

/// Options for sending.
#[derive(Debug, Clone)]
pub(crate) struct WriteOptions {
    pub(crate) url: String,
    pub(crate) n_connections: usize,
    pub(crate) samples_per_request: usize,
    /// Samples per second of all connections together. `None`: no limit.
    pub(crate) rate: Option<f64>,
    pub(crate) version: Version,
    /// Whether requests are encoded before they are sent. If so, only the sending is timed.
    pub(crate) ahead: bool,
    pub(crate) pid: Option<u32>,
}

impl WriteOptions {
    /// Returns Prometheus' defaults on two connections: remote write 1.0, 2,000 samples per
    /// request, as fast as the server accepts.
    pub(crate) fn new(server: &str) -> Self {
        Self {
            url: format!("{server}/api/v1/write"),
            n_connections: 2,
            samples_per_request: 2_000,
            rate: None,
            version: Version::V1,
            ahead: false,
            pid: None,
        }
    }
}
