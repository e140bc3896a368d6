//! What sets each limit: its flag, or its key in the configuration file.
//!
//! The libraries know limits by their identity only. Their errors say what sets a limit, because
//! the program installs this table at its start.

use varve_context::Limit;

/// Makes all errors and metrics of this process name the flags and keys that set limits.
pub fn name_limits() {
    Limit::set_names(setting);
}

/// Returns the flag or the key that sets a limit. `None`: nothing sets it.
fn setting(limit: Limit) -> Option<&'static str> {
    Some(match limit {
        Limit::QueryMemory => "--query.max-memory",
        Limit::QueryMemoryTotal => "--query.max-memory-total",
        Limit::ProcessMemory => "--memory.refuse-at",
        Limit::RulesMemory => "--rules.max-memory-total",
        Limit::RulesAlertMemory => "half of --rules.max-memory-total",
        Limit::WritesMemory => "--ingest.bytes-in-flight-max",
        Limit::LoneWriteMemory => "--ingest.bytes-in-flight-max (times 2)",
        Limit::HeadMemory => "--storage.head.max-memory (share of one shard, in bytes)",
        Limit::TenantMemory => "tenants.limits.memory",
        Limit::TenantSamples => "tenants.limits.samples",
        Limit::TenantRange => "tenants.limits.range",
        Limit::QuerySamples => "--query.max-samples",
        Limit::MetadataSeries => "--query.max-metadata-series",
        Limit::BodySize => "--ingest.body-size-max",
        Limit::DecompressedSize => "--ingest.decompressed-size-max",
        Limit::ResolvedSize => "--ingest.decompressed-size-max (times 8)",
        Limit::ImportSize => {
            "--ingest.decompressed-size-max times 64, or plus 256 times the size as received"
        }
        Limit::ImportTime => "--web.read-timeout",
        Limit::SeriesPerRequest => "--ingest.series-per-request-max",
        Limit::SamplesPerRequest => "--ingest.samples-per-request-max",
        Limit::LabelsPerSeries => "--ingest.labels-per-series-max",
        Limit::LabelValueSize => "--ingest.label-value-size-max",
        Limit::InOrderAge => "storage.tsdb.in_order_max_age",
        Limit::OutOfOrderWindow => "storage.tsdb.out_of_order_time_window",
        Limit::AheadOfClock => "storage.tsdb.ahead_max",
        Limit::LabelNames => "--ingest.label-names-max",
        Limit::SeriesPerMetric => "--ingest.series-per-metric-max",
        Limit::SeriesCreation => "--ingest.creation-concurrency-max",
        Limit::TeamSeries => "ingest.teams",
        Limit::TotalSeries => "ingest.budget",
        Limit::TeamNewSeries => "ingest.teams new_series_per_second",
        Limit::TotalNewSeries => "ingest.budget.new_series_per_second",
        Limit::TeamSampleRate => "ingest.teams samples_per_second",
        Limit::TotalSampleRate => "ingest.budget.samples_per_second",
        Limit::Alerts => "--rules.alerts-max",
        Limit::Other(_) => return None,
    })
}
