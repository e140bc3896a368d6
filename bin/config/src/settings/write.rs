//! Settings of write requests.

use varve_ingest::Limits;
use varve_system::machine;

use super::automatic::or_default;
use super::features::{DELTA_FEATURE, has_feature};
use crate::flags::{IngestArgs, QueueTimeoutStatus, ServeArgs};

/// Maximum number of metric families with metadata in a write request.
const FAMILIES_PER_REQUEST_MAX: usize = 100_000;
/// Maximum bytes of a label name.
const LABEL_NAME_SIZE_MAX: usize = 1024;
/// Maximum number of queued write requests.
const QUEUED_REQUESTS_MAX: usize = 256;
/// Maximum bytes of the route cache, on a machine with enough memory: 23 million label sets.
const ROUTE_CACHE_SIZE_MAX: usize = 1 << 30;

/// Settings of write requests. The receiver has more: [`StoreOptions::ingest`](super::StoreOptions::ingest).
#[derive(Debug, Clone, Copy)]
pub struct WriteSettings {
    /// Maximum number of write requests that run at a time.
    pub concurrency_max: usize,
    /// Maximum size of a body in bytes, as received.
    pub body_size_max: usize,
    /// Maximum memory of the bodies of all writes in bytes.
    pub bytes_in_flight_max: usize,
    /// Status of the response to a write that timed out in a queue.
    pub queue_timeout_status: QueueTimeoutStatus,
    /// Whether OTLP deltas are added up.
    pub delta_to_cumulative: bool,
}

/// Returns the settings of write requests in a process that may use `memory` bytes.
pub(super) fn write(args: &ServeArgs, memory: usize) -> WriteSettings {
    let ingest = &args.ingest;
    WriteSettings {
        concurrency_max: ingest.concurrency_max,
        body_size_max: ingest.body_size_max,
        bytes_in_flight_max: bytes_in_flight_max(ingest, memory),
        queue_timeout_status: ingest.queue_timeout_status,
        delta_to_cumulative: has_feature(args, DELTA_FEATURE),
    }
}

/// Returns the limits of the receiver if the process may use `memory` bytes.
pub(super) fn limits(args: &IngestArgs, memory: usize) -> Limits {
    Limits {
        body_size_max: args.body_size_max,
        decompressed_size_max: args.decompressed_size_max,
        series_per_request_max: args.series_per_request_max,
        samples_per_request_max: args.samples_per_request_max,
        families_per_request_max: FAMILIES_PER_REQUEST_MAX,
        labels_per_series_max: args.labels_per_series_max,
        label_name_size_max: LABEL_NAME_SIZE_MAX,
        label_value_size_max: args.label_value_size_max,
        label_names_max: args.label_names_max,
        series_per_metric_max: match args.series_per_metric_max {
            0 => None,
            series_max => Some(series_max),
        },
        bytes_in_flight_max: bytes_in_flight_max(args, memory),
        route_cache_size_max: ROUTE_CACHE_SIZE_MAX.min(memory / 16),
        queue_timeout: args.queue_timeout,
        creation_concurrency_max: or_default(args.creation_concurrency_max, || {
            (machine::cores() / 2).max(1)
        }),
        queued_requests_max: QUEUED_REQUESTS_MAX,
    }
}

/// Returns the maximum memory of write requests if the process may use `memory` bytes.
fn bytes_in_flight_max(args: &IngestArgs, memory: usize) -> usize {
    or_default(args.bytes_in_flight_max, || {
        // A body of any allowed size fits. A request that runs alone may use twice the result, so
        // two bodies only fit into twice the memory.
        let one_body = args.body_size_max;
        let two_bodies = 2 * one_body;
        let bodies = if two_bodies <= memory / 4 {
            two_bodies
        } else {
            one_body
        };
        (512 << 20).min(memory / 8).max(bodies)
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Serve {
        #[command(flatten)]
        ingest: IngestArgs,
    }

    #[test]
    fn limits_have_their_defaults_with_much_memory() {
        let Serve { ingest } = Serve::parse_from(["serve"]);
        assert_eq!(
            limits(&ingest, usize::MAX),
            Limits {
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
                creation_concurrency_max: (machine::cores() / 2).max(1),
                queued_requests_max: 256,
            }
        );
    }
}
