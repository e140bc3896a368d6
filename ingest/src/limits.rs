//! The limits of a write request. docs/limits.md lists the response to each violation.

use std::time::Duration;

use varve_context::Limit;

use crate::error::WriteError;

/// Limits of ingestion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum bytes of a request body as received. The HTTP layer stops reading at this limit.
    pub body_size_max: usize,
    /// Maximum declared bytes of a decompressed request body, at most `u32::MAX`.
    pub decompressed_size_max: usize,
    /// Maximum number of series in a request, with or without samples.
    pub series_per_request_max: usize,
    /// Maximum number of samples (floats and histograms) in a request. The same limit applies to
    /// exemplars and to symbols. A sample may take two bytes of a body but 48 bytes of memory, so
    /// the body size alone does not bound memory.
    pub samples_per_request_max: usize,
    /// Maximum number of metadata entries in a request.
    pub families_per_request_max: usize,
    /// Maximum number of labels of a series, the metric name included.
    pub labels_per_series_max: usize,
    /// Maximum bytes of a label name.
    pub label_name_size_max: usize,
    /// Maximum bytes of a label value.
    pub label_value_size_max: usize,
    /// Maximum number of label names of the series in memory. Requests that create series at the
    /// same time may exceed it by the names of one series each.
    pub label_names_max: usize,
    /// Maximum number of series in memory of a metric, by its name; `None` for no limit. Requests that create series at the same time may exceed it by one series each.
    pub series_per_metric_max: Option<u64>,
    /// Maximum bytes of memory of all active requests: bodies, decompressed messages, decoded
    /// samples. A request that runs alone may take twice as much, so that this limit rarely rejects
    /// what the other limits allow.
    pub bytes_in_flight_max: usize,
    /// Maximum bytes of the route cache, allocated as series arrive: 1 GiB for 23 million series.
    /// Below 512 KiB, the cache has 64 routes.
    pub route_cache_size_max: usize,
    /// Maximum time that a request waits for an exhausted resource before it is rejected.
    pub queue_timeout: Duration,
    /// Maximum number of requests that create series at the same time. Others are queued.
    pub creation_concurrency_max: usize,
    /// Maximum number of queued requests. They hold at most a quarter of `bytes_in_flight_max`.
    pub queued_requests_max: usize,
}

impl Limits {
    /// Returns limits for tests and benchmarks. The limits of the server come from its flags.
    #[must_use]
    pub fn for_tests() -> Self {
        Self {
            body_size_max: 32 << 20,
            decompressed_size_max: 32 << 20,
            series_per_request_max: 500_000,
            samples_per_request_max: 2_000_000,
            families_per_request_max: 100_000,
            labels_per_series_max: 128,
            label_name_size_max: 1_024,
            label_value_size_max: 65_536,
            label_names_max: 100_000,
            series_per_metric_max: None,
            bytes_in_flight_max: 512 << 20,
            route_cache_size_max: 1 << 30,
            queue_timeout: Duration::from_secs(2),
            creation_concurrency_max: 1,
            queued_requests_max: 256,
        }
    }

    pub(crate) fn check_body(&self, size: usize) -> Result<(), WriteError> {
        check(
            "body size in bytes",
            Limit::BodySize,
            size as u64,
            self.body_size_max,
        )
    }

    /// Checks the size that the sender declares.
    pub(crate) fn check_decompressed(&self, size: u64) -> Result<(), WriteError> {
        let limit = self.decompressed_size_max.min(u32::MAX as usize);
        check(
            "decompressed size in bytes",
            Limit::DecompressedSize,
            size,
            limit,
        )
    }

    #[inline]
    pub(crate) fn check_series(&self, n_series: usize) -> Result<(), WriteError> {
        let limit = self.series_per_request_max.min(u32::MAX as usize);
        check(
            "number of series",
            Limit::SeriesPerRequest,
            n_series as u64,
            limit,
        )
    }

    #[inline]
    pub(crate) fn check_samples(&self, n_samples: usize) -> Result<(), WriteError> {
        self.check_count("number of samples", n_samples)
    }

    /// Exemplars have the same limit as samples.
    #[inline]
    pub(crate) fn check_exemplars(&self, n_exemplars: usize) -> Result<(), WriteError> {
        self.check_count("number of exemplars", n_exemplars)
    }

    /// Symbols of version 2.0 have the same limit as samples: each takes 24 bytes of memory.
    #[inline]
    pub(crate) fn check_symbols(&self, n_symbols: usize) -> Result<(), WriteError> {
        self.check_count("number of symbols", n_symbols)
    }

    #[inline]
    fn check_count(&self, what: &'static str, n: usize) -> Result<(), WriteError> {
        let limit = self.samples_per_request_max.min(u32::MAX as usize);
        check(what, Limit::SamplesPerRequest, n as u64, limit)
    }

    /// Checks the size of all label sets of a request with resolved symbols. It never exceeds
    /// `bytes_in_flight_max`: a request that runs alone may exceed that, but not by this expansion.
    #[inline]
    pub(crate) fn check_resolved(&self, size: u64) -> Result<(), WriteError> {
        let by_message = self.decompressed_size_max as u64 * RESOLVED_FACTOR;
        let by_memory = self.bytes_in_flight_max as u64;
        let (limit, bound) = if by_message < by_memory {
            (by_message, Limit::ResolvedSize)
        } else {
            (by_memory, Limit::WritesMemory)
        };
        if size <= limit {
            return Ok(());
        }
        let what = "size in bytes of label sets with resolved symbols";
        Err(WriteError::TooLarge {
            what,
            size,
            limit,
            bound,
        })
    }

    pub(crate) fn check_families(&self, n_families: usize) -> Result<(), WriteError> {
        check(
            "number of metadata entries",
            Limit::Other("metadata entries"),
            n_families as u64,
            self.families_per_request_max,
        )
    }
}

#[inline]
fn check(what: &'static str, bound: Limit, size: u64, limit: usize) -> Result<(), WriteError> {
    let limit = limit as u64;
    if size <= limit {
        Ok(())
    } else {
        Err(WriteError::TooLarge {
            what,
            size,
            limit,
            bound,
        })
    }
}

/// The label sets of a request, with symbols resolved, may take this many times
/// [`Limits::decompressed_size_max`].
pub(crate) const RESOLVED_FACTOR: u64 = 8;
/// Maximum number of clusters of HA pairs.
pub(crate) const CLUSTERS_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expanded_label_sets_are_limited_by_the_message_and_by_memory() {
        let limits = |bytes_in_flight_max| Limits {
            decompressed_size_max: 100,
            bytes_in_flight_max,
            ..Limits::for_tests()
        };
        let check = |bytes_in_flight_max, size| {
            limits(bytes_in_flight_max)
                .check_resolved(size)
                .map_err(|e| e.to_string())
        };
        let refused = |limit, bound| {
            Err(format!(
                "size in bytes of label sets with resolved symbols of 801 exceeds the limit of {limit} ({bound})"
            ))
        };
        assert_eq!((check(1000, 800), check(500, 500)), (Ok(()), Ok(())));
        assert_eq!(check(1000, 801), refused(800, Limit::ResolvedSize));
        assert_eq!(check(500, 801), refused(500, Limit::WritesMemory));
    }
}
