//! /api/v1/features: features by Prometheus' names, and whether they are enabled.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use varve_config::settings::ServerSettings;
use varve_promql::Features;
use varve_promql::functions::FUNCTIONS;

use crate::api::search;
use crate::response::success_unescaped;
use crate::serving::app::App;

/// Features by category.
pub(crate) type FeatureList = BTreeMap<String, BTreeMap<String, bool>>;

/// GET /api/v1/features.
pub(crate) async fn features(State(app): State<Arc<App>>) -> Response {
    // Operators such as `>=` are not escaped, and there is no user input.
    success_unescaped(&list(&app.settings))
}

fn list(settings: &ServerSettings) -> FeatureList {
    [
        ("api", api(settings)),
        (
            "prometheus",
            named(&[
                ("agent_mode", false),
                ("server_mode", true),
                ("auto_reload_config", settings.auto_reload),
            ]),
        ),
        (
            "otlp_receiver",
            named(&[
                ("delta_conversion", settings.write.delta_to_cumulative),
                ("native_delta_ingestion", false),
            ]),
        ),
        ("promql", language(settings)),
        ("promql_functions", functions(settings)),
        (
            "promql_operators",
            owned(settings.query.features.operators()),
        ),
        (
            "rules",
            named(&[
                ("query_offset", true),
                ("keep_firing_for", true),
                ("concurrent_rule_eval", true),
            ]),
        ),
        (
            "templating_functions",
            owned(varve_template::FUNCTIONS.map(|name| (name, true))),
        ),
        (
            "tsdb",
            named(&[
                ("exemplar_storage", true),
                ("isolation", true),
                ("native_histograms", true),
            ]),
        ),
    ]
    .map(|(category, features)| (category.to_owned(), features))
    .into()
}

fn api(settings: &ServerSettings) -> BTreeMap<String, bool> {
    let mut api = named(&[
        ("admin", settings.web.is_admin_enabled),
        ("lifecycle", settings.web.is_lifecycle_enabled),
        ("remote_write_receiver", true),
        ("otlp_write_receiver", true),
        ("search", settings.web.search),
        ("label_values_match", true),
        ("query_warnings", true),
        ("query_stats", true),
        ("time_range_series", true),
        ("time_range_labels", true),
        ("exclude_alerts", true),
        ("openapi_3.1", true),
        ("openapi_3.2", true),
    ]);
    for name in search::ALGORITHMS {
        api.insert(format!("search_fuzz_alg_{name}"), true);
    }
    api
}

fn language(settings: &ServerSettings) -> BTreeMap<String, bool> {
    let Features {
        delayed_name_removal,
        per_step_stats,
        type_and_unit_labels,
        unquoted_utf8_names,
        ..
    } = settings.query.features;
    let mut language = named(&[
        ("at_modifier", true),
        ("negative_offset", true),
        ("per_query_lookback_delta", true),
        ("subqueries", true),
        ("per_step_stats", per_step_stats),
        ("delayed_name_removal", delayed_name_removal),
        ("type_and_unit_labels", type_and_unit_labels),
        ("duration_expr", true),
        ("unquoted_utf8_names", unquoted_utf8_names),
    ]);
    language.extend(owned(settings.query.features.keywords()));
    language
}

fn functions(settings: &ServerSettings) -> BTreeMap<String, bool> {
    let has_experimental = settings.query.features.experimental_functions;
    owned(
        FUNCTIONS
            .iter()
            .map(|function| (function.name, !function.experimental || has_experimental)),
    )
}

fn named(features: &[(&'static str, bool)]) -> BTreeMap<String, bool> {
    owned(features.iter().copied())
}

fn owned(features: impl IntoIterator<Item = (&'static str, bool)>) -> BTreeMap<String, bool> {
    features
        .into_iter()
        .map(|(name, is_enabled)| (name.to_owned(), is_enabled))
        .collect()
}
