//! What bounds a write request. docs/limits.md says what the sender gets for each.

use std::time::Duration;

use crate::error::WriteError;

/// Bounds of ingestion. A field says its unit; its flag is `--ingest.` and the field's name with dashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request body as it comes over the wire. Default 32 MiB. The HTTP layer stops reading there.
    pub body_size_max: usize,
    /// Bytes of a request body after decompression, by its own declaration, at most `u32::MAX`. Default 32 MiB, as in
    /// Prometheus.
    pub decompressed_size_max: usize,
    /// Series in a request, with or without samples. Default 500,000.
    pub series_per_request_max: usize,
    /// Samples in a request, floats and histograms, and as many exemplars and symbols. Default 2,000,000. A sample may take two bytes of
    /// a body but 48 of memory, hence the count has a bound besides the size.
    pub samples_per_request_max: usize,
    /// Metadata entries in a request. Default 100,000.
    pub families_per_request_max: usize,
    /// Labels of a series, the metric name included. Default 128.
    pub labels_per_series_max: usize,
    /// Bytes of a label name. Default 1,024.
    pub label_name_size_max: usize,
    /// Bytes of a label value. Default 65,536.
    pub label_value_size_max: usize,
    /// Bytes held by all requests being worked on: bodies, decompressed messages, decoded samples. Default 512 MiB.
    /// A request that is alone is admitted whatever its size, so that this limit cannot starve one that the others allow.
    pub bytes_in_flight_max: usize,
    /// Bytes of the route cache. Default 1 GiB, some 30 million series at 28 bytes a slot, four of five slots filled;
    /// memory is taken as series come. Not under 70 KiB, the smallest cache there is.
    pub route_cache_size_max: usize,
    /// How long a request waits for what is scarce at the moment before its sender is told to come again. Default 2 s.
    pub admission_wait: Duration,
    /// Requests that make series at the same time; others wait for their turn. Default 1.
    pub creation_concurrency_max: usize,
    /// Requests that wait at the same time. Default 256. They hold at most a quarter of `bytes_in_flight_max`.
    pub waiting_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_size_max: 32 << 20,
            decompressed_size_max: 32 << 20,
            series_per_request_max: 500_000,
            samples_per_request_max: 2_000_000,
            families_per_request_max: 100_000,
            labels_per_series_max: 128,
            label_name_size_max: 1_024,
            label_value_size_max: 65_536,
            bytes_in_flight_max: 512 << 20,
            route_cache_size_max: 1 << 30,
            admission_wait: Duration::from_secs(2),
            creation_concurrency_max: 1,
            waiting_max: 256,
        }
    }
}

impl Limits {
    pub(crate) fn check_body(&self, size: usize) -> Result<(), WriteError> {
        check("body size in bytes", "--ingest.body-size-max", size as u64, self.body_size_max)
    }

    /// `size` is what the sender declared, of whatever width.
    pub(crate) fn check_decompressed(&self, size: u64) -> Result<(), WriteError> {
        let limit = self.decompressed_size_max.min(u32::MAX as usize);
        check("decompressed size in bytes", "--ingest.decompressed-size-max", size, limit)
    }

    #[inline]
    pub(crate) fn check_series(&self, n_series: usize) -> Result<(), WriteError> {
        check(
            "number of series",
            "--ingest.series-per-request-max",
            n_series as u64,
            self.series_per_request_max.min(u32::MAX as usize),
        )
    }

    #[inline]
    pub(crate) fn check_samples(&self, n_samples: usize) -> Result<(), WriteError> {
        check(
            "number of samples",
            "--ingest.samples-per-request-max",
            n_samples as u64,
            self.samples_per_request_max.min(u32::MAX as usize),
        )
    }

    /// Exemplars are bounded as samples are, besides them.
    #[inline]
    pub(crate) fn check_exemplars(&self, n_exemplars: usize) -> Result<(), WriteError> {
        check(
            "number of exemplars",
            "--ingest.samples-per-request-max",
            n_exemplars as u64,
            self.samples_per_request_max.min(u32::MAX as usize),
        )
    }

    /// Symbols of version 2.0 are bounded as samples are, besides them: each takes 24 bytes of memory.
    #[inline]
    pub(crate) fn check_symbols(&self, n_symbols: usize) -> Result<(), WriteError> {
        check("number of symbols", "--ingest.samples-per-request-max", n_symbols as u64, self.samples_per_request_max)
    }

    /// `size` is that of all label sets of a request with their symbols in place.
    #[inline]
    pub(crate) fn check_resolved(&self, size: u64) -> Result<(), WriteError> {
        let limit = self.decompressed_size_max as u64 * RESOLVED_FACTOR;
        if size <= limit {
            return Ok(());
        }
        let what = "size in bytes of label sets with their symbols in place";
        Err(WriteError::TooLarge { what, size, limit, flag: "--ingest.decompressed-size-max (times 8)" })
    }

    pub(crate) fn check_families(&self, n_families: usize) -> Result<(), WriteError> {
        check(
            "number of metadata entries",
            "--ingest.families-per-request-max",
            n_families as u64,
            self.families_per_request_max,
        )
    }
}

#[inline]
fn check(what: &'static str, flag: &'static str, size: u64, limit: usize) -> Result<(), WriteError> {
    let limit = limit as u64;
    if size <= limit { Ok(()) } else { Err(WriteError::TooLarge { what, size, limit, flag }) }
}

/// How many times [`Limits::decompressed_size_max`] the label sets of a request may take as text.
pub(crate) const RESOLVED_FACTOR: u64 = 8;
/// The most clusters of HA pairs that are known at a time.
pub(crate) const CLUSTERS_MAX: usize = 1_024;
