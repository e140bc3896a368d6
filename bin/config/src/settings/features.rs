//! `--enable-feature`.

use varve_promql::Features;

use crate::flags::ServeArgs;

/// Enables the search endpoints.
pub(super) const SEARCH_FEATURE: &str = "search-api";
/// Adds up OTLP deltas.
pub(super) const DELTA_FEATURE: &str = "otlp-deltatocumulative";
/// The deprecated form of --config.auto-reload.
pub(super) const AUTO_RELOAD_FEATURE: &str = "auto-reload-config";
/// Prometheus' names of other features, which Varve always or never has.
const OTHER_FEATURES: [&str; 6] = [
    "exemplar-storage",
    "native-histograms",
    "ooo-native-histograms",
    "memory-snapshot-on-shutdown",
    "metadata-wal-records",
    "created-timestamp-zero-ingestion",
];

/// Returns the optional parts of PromQL. Logs which features are enabled or unknown.
pub(super) fn enabled(args: &ServeArgs) -> Features {
    let mut features = Features::default();
    for name in &args.enable_feature {
        let name = name.trim();
        if name.is_empty() {
            continue;
        }
        if features.enable(name) || [SEARCH_FEATURE, DELTA_FEATURE].contains(&name) {
            tracing::info!(option = name, "Feature enabled");
        } else if name == AUTO_RELOAD_FEATURE {
            tracing::warn!(
                option = name,
                "This option for --enable-feature is deprecated, use --config.auto-reload"
            );
        } else if OTHER_FEATURES.contains(&name) {
            tracing::warn!(
                option = name,
                "This option for --enable-feature has no effect on Varve"
            );
        } else {
            tracing::warn!(option = name, "Unknown option for --enable-feature");
        }
    }
    features
}

/// Returns `true` if `--enable-feature` names this feature.
pub(super) fn has_feature(args: &ServeArgs, feature: &str) -> bool {
    args.enable_feature
        .iter()
        .any(|name| name.trim() == feature)
}
