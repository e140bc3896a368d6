//! The table of endpoints: paths, methods, parameters and responses. The router and the OpenAPI
//! document are built from it.

use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::extract::{Request, State};
use axum::handler::Handler;
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use varve_server::queries::top_queries::GroupBy;
use varve_wire::api::advice::AdviceReport;
use varve_wire::api::backtest::Backtest;
use varve_wire::api::churn::ChurnReport;
use varve_wire::api::explain::Explanations;

use super::admin::profile::EmptyProfile;
use super::admin::{admin_relabel, admin_tsdb, admin_usage, lifecycle, profile};
use super::document;
use super::endpoint::{Endpoint, get, get_head, get_post, post, post_put, unavailable};
use super::listing::{labels, metadata, series};
use super::query::{evaluate, exemplars, format};
use super::scraping::targets;
use super::status::{
    advice, cardinality, churn, features, ha, health, last_words, notifications, queries, rejects,
    relabel, relabel_test, self_metrics, senders, status_runtime, status_tsdb, teams, top_queries,
    usage,
};
use super::write::{import, otlp, push, remote_write};
use super::{export, federate, remote_read, rules, search};
use crate::openapi::Kind::{Boolean, Duration, Integer, OneOf, Path, Text, Texts, Time};
use crate::openapi::{
    ExemplarSeries, Label, MetadataFamilies, Parameter, QueryData, SyntaxTree, Untyped, optional,
    required,
};
use crate::params::Form;
use crate::response::no_page;
use crate::serving::app::App;
use crate::serving::redirect::API;
use crate::serving::state::HttpState;
use crate::serving::{cors, redirect};
use varve_ingest::text::NanMeaning;
use varve_server::lifecycle::Phase;

const LIMIT: Parameter = optional(
    "limit",
    Integer,
    "Maximum number of elements in the result.",
);
const TIMEOUT: Parameter = optional(
    "timeout",
    Duration,
    "Timeout of the request, at most --query.timeout.",
);
const LOOKBACK: Parameter = optional("lookback_delta", Duration, "Lookback delta of this query.");
const STATS: Parameter = optional(
    "stats",
    OneOf(&["true", "all"]),
    "Return statistics of the query.",
);
const NO_CACHE: Parameter = optional("nocache", OneOf(&["1"]), "Do not use the result cache.");
const QUERY: Parameter = required("query", Text, "An expression in PromQL.");
const START: Parameter = optional("start", Time, "Start of the range, included.");
const END: Parameter = optional("end", Time, "End of the range, included.");
const MATCH: Parameter = optional(
    "match[]",
    Texts,
    "Series selectors; the result is the union of several.",
);
const EXTRA_LABEL: Parameter =
    optional("extra_label", Texts, "Labels to add, each as `name=value`.");
const IMPORT_TIMESTAMP: Parameter = optional(
    "timestamp",
    Integer,
    "Time of samples without a timestamp, in milliseconds.",
);
const NAN: Parameter = optional(
    "nan",
    OneOf(&NanMeaning::NAMES),
    "What a NaN means: a staleness marker, the value NaN, or no sample.",
);
const MATCH_REQUIRED: Parameter = Parameter {
    is_required: true,
    ..MATCH
};

const INSTANT: &[Parameter] = &[
    QUERY,
    optional("time", Time, "Time of the evaluation; now by default."),
    TIMEOUT,
    LIMIT,
    LOOKBACK,
    STATS,
    NO_CACHE,
];
const RANGE: &[Parameter] = &[
    QUERY,
    required("start", Time, "Time of the first step."),
    required("end", Time, "End of the range; no step is later."),
    required("step", Duration, "Resolution step width."),
    TIMEOUT,
    LIMIT,
    LOOKBACK,
    STATS,
    NO_CACHE,
];
const EXPLAIN: &[Parameter] = &[
    QUERY,
    optional("time", Time, "Time of the evaluation; now by default."),
    optional(
        "start",
        Time,
        "Time of the first step; with `end` and `step` the query is a range query.",
    ),
    optional("end", Time, "End of the range; no step is later."),
    optional("step", Duration, "Resolution step width."),
    TIMEOUT,
    LOOKBACK,
];
const LABELS: &[Parameter] = &[MATCH, START, END, LIMIT, TIMEOUT];
const NAME: Parameter = required(
    "name",
    Path,
    "Label name; a name that is not legacy may be escaped as `U__a_2e_b`.",
);
const SEARCH: &[Parameter] = &[
    MATCH,
    optional(
        "search[]",
        Texts,
        "Search terms; a name must match at least one of them.",
    ),
    optional(
        "fuzz_threshold",
        Integer,
        "Minimum score of a result, from 0 to 100.",
    ),
    optional(
        "fuzz_alg",
        OneOf(&search::ALGORITHMS),
        "Algorithm that compares terms with names.",
    ),
    optional(
        "case_sensitive",
        Boolean,
        "Whether to match case-sensitively; true by default.",
    ),
    optional("include_score", Boolean, "Return scores."),
    optional(
        "sort_by",
        OneOf(&["alpha", "score"]),
        "Sort key of the result.",
    ),
    optional("sort_dir", OneOf(&["asc", "dsc"]), "Sort direction."),
    START,
    END,
    LIMIT,
    optional(
        "batch_size",
        Integer,
        "Number of results per line of the response.",
    ),
    TIMEOUT,
];
const INCLUDE_METADATA: Parameter = optional(
    "include_metadata",
    Boolean,
    "Return type, help and unit of each metric.",
);
const LABEL: Parameter = required("label", Text, "Name of the label.");

/// Returns all endpoints.
pub(crate) fn endpoints() -> Vec<Endpoint> {
    let parts = [
        queries(),
        metadata_requests(),
        scraping(),
        state(),
        messages(),
        imports(),
        administration(),
        pages(),
    ];
    parts.into_iter().flatten().collect()
}

fn queries() -> Vec<Endpoint> {
    vec![
        get_post("/api/v1/query", evaluate::instant)
            .about("query", "Evaluates an instant query")
            .for_tenants()
            .takes(INSTANT)
            .gives::<QueryData>(),
        get_post("/api/v1/query_range", evaluate::range)
            .about("query", "Evaluates a range query")
            .for_tenants()
            .takes(RANGE)
            .gives::<QueryData>(),
        get_post("/api/v1/query_explain", evaluate::explain)
            .about(
                "query",
                "Evaluates a query and returns statistics of each operator of its plan",
            )
            .for_tenants()
            .takes(EXPLAIN)
            .gives::<Untyped>(),
        get_post("/api/v1/query_exemplars", exemplars::query_exemplars)
            .about(
                "query",
                "Returns exemplars of the series that an expression selects",
            )
            .for_tenants()
            .takes([QUERY, START, END, TIMEOUT])
            .gives::<Vec<ExemplarSeries>>(),
        get_post("/api/v1/format_query", format::format)
            .about("query", "Formats an expression")
            .for_tenants()
            .takes([QUERY])
            .gives::<String>(),
        get_post("/api/v1/parse_query", format::parse)
            .about("query", "Parses an expression")
            .for_tenants()
            .takes([QUERY])
            .gives::<SyntaxTree>(),
    ]
}

fn metadata_requests() -> Vec<Endpoint> {
    const METADATA: &[Parameter] = &[
        optional("limit", Integer, "Maximum number of metric families."),
        optional(
            "limit_per_metric",
            Integer,
            "Maximum number of entries per family.",
        ),
        optional("metric", Text, "A single metric family; all by default."),
        TIMEOUT,
    ];
    vec![
        get_post("/api/v1/series", series::series)
            .about("series", "Returns matching series")
            .for_tenants()
            .takes([MATCH_REQUIRED, START, END, LIMIT, TIMEOUT])
            .gives::<Vec<std::collections::BTreeMap<String, String>>>(),
        get_post("/api/v1/labels", labels::names)
            .about("labels", "Returns label names")
            .for_tenants()
            .takes(LABELS)
            .gives::<Vec<Label>>(),
        get("/api/v1/label/{name}/values", labels::values)
            .about("labels", "Returns the values of a label")
            .for_tenants()
            .takes([NAME, MATCH, START, END, LIMIT, TIMEOUT])
            .gives::<Vec<Label>>(),
        get("/api/v1/metadata", metadata::metadata)
            .about("metadata", "Returns metadata of metric families")
            .for_tenants()
            .takes(METADATA)
            .gives::<MetadataFamilies>(),
        searching(
            "/api/v1/search/metric_names",
            search::metric_names,
            &[INCLUDE_METADATA],
            "Searches metric names",
        ),
        searching(
            "/api/v1/search/label_names",
            search::label_names,
            &[],
            "Searches label names",
        ),
        searching(
            "/api/v1/search/label_values",
            search::label_values,
            &[LABEL],
            "Searches values of a label",
        ),
    ]
}

fn searching<H: Handler<T, HttpState>, T: 'static>(
    path: &'static str,
    handler: H,
    own_parameters: &[Parameter],
    about: &'static str,
) -> Endpoint {
    get_post(path, handler)
        .about("search", about)
        .for_tenants()
        .takes([SEARCH, own_parameters].concat())
        .gives_other("application/x-ndjson")
        .compressed(false)
}

fn scraping() -> Vec<Endpoint> {
    const POOL: Parameter = required("scrapePool", Text, "Name of a scrape pool.");
    const RULES: &[Parameter] = &[
        optional(
            "type",
            OneOf(&["alert", "record"]),
            "Only rules of this kind.",
        ),
        optional("rule_name[]", Texts, "Only rules of these names."),
        optional("rule_group[]", Texts, "Only rules of these groups."),
        optional("file[]", Texts, "Only rules of these files."),
        optional("exclude_alerts", Boolean, "Exclude active alerts."),
        optional("match[]", Texts, "Only rules whose labels match."),
        optional("group_limit", Integer, "Maximum number of groups."),
        optional("group_next_token", Text, "Token of the next page."),
        optional(
            "evaluations",
            Boolean,
            "Return the newest evaluations of each rule.",
        ),
    ];
    vec![
        get("/api/v1/targets", targets::targets)
            .about("targets", "Returns targets; there are none")
            .takes([
                optional("scrapePool", Text, "Only targets of this pool."),
                optional(
                    "state",
                    OneOf(&["active", "dropped", "any"]),
                    "Only targets in this state.",
                ),
            ])
            .gives::<targets::Targets>(),
        get("/api/v1/targets/metadata", targets::metadata)
            .about("targets", "Returns metadata of targets; there are none")
            .takes([
                optional("match_target", Text, "Only targets whose labels match."),
                optional("metric", Text, "Only this metric."),
                optional("limit", Integer, "Maximum number of entries."),
            ])
            .gives::<Vec<Untyped>>(),
        get("/api/v1/targets/relabel_steps", targets::relabel_steps)
            .about(
                "targets",
                "Returns the relabel steps of a target; there are no scrape pools",
            )
            .takes([
                POOL,
                required("labels", Text, "Labels of a target, as JSON."),
            ])
            .gives::<Untyped>(),
        get("/api/v1/scrape_pools", targets::scrape_pools)
            .about("targets", "Returns scrape pools; there are none")
            .gives::<targets::ScrapePools>(),
        get("/api/v1/scrape_pools/config", targets::scrape_pool_config)
            .about(
                "targets",
                "Returns the configuration of a scrape pool; there are none",
            )
            .takes([POOL])
            .gives::<Untyped>(),
        get("/api/v1/alertmanagers", targets::alertmanagers)
            .about("alerts", "Returns Alertmanagers")
            .gives::<targets::Alertmanagers>(),
        get("/api/v1/alerts", rules::alerts)
            .about("alerts", "Returns pending and firing alerts")
            .for_tenants()
            .gives::<rules::Alerts>(),
        get("/api/v1/rules", rules::rules)
            .about("rules", "Returns rules by group, with their alerts")
            .for_tenants()
            .takes(RULES)
            .gives::<rules::RuleGroups>(),
        get("/api/v1/rules/explain", rules::explain::explain)
            .about(
                "rules",
                "Returns why an alert fires or does not, step by step",
            )
            .takes([
                required("alert", Text, "Name of the alerting rule."),
                optional("rule_group", Text, "Only the rule of this group."),
                optional("file", Text, "Only the rule of this file."),
                optional("time", Time, "Evaluation time; now by default."),
                TIMEOUT,
            ])
            .gives::<Explanations>(),
        post("/api/v1/rules/backtest", rules::backtest::backtest)
            .about(
                "rules",
                "Returns when the alerts of a rule file would have fired",
            )
            .takes([
                required("rules", Text, "The rule file, in YAML."),
                required("start", Time, "Start of the range."),
                required("end", Time, "End of the range."),
                optional(
                    "file",
                    Text,
                    "Path of the file, which shifts the times of its groups.",
                ),
                TIMEOUT,
            ])
            .gives::<Backtest>(),
    ]
}

fn state() -> Vec<Endpoint> {
    const CARDINALITY: &[Parameter] = &[
        MATCH,
        optional("focus", Text, "Label whose values are listed."),
        optional(
            "sort",
            OneOf(&cardinality::SORT_KEYS),
            "Sort key of the lists; `series` by default.",
        ),
        LIMIT,
        TIMEOUT,
    ];
    const COUNT_EXPLORATION: Parameter = optional(
        "count_exploration",
        Boolean,
        "Recorded queries without a metric name count as uses.",
    );
    const ADVICE: &[Parameter] = &[
        optional(
            "since",
            Time,
            "Recorded queries before this time do not count.",
        ),
        optional("labels", Boolean, "Also find unused labels."),
        COUNT_EXPLORATION,
        optional(
            "keep",
            Text,
            "Anchored regex of metric names to keep although nothing uses them.",
        ),
        optional(
            "no_keep",
            Boolean,
            "Do not keep the metrics of the presets.",
        ),
        optional(
            "format",
            OneOf(&advice::FORMATS),
            "Format of the rules; `varve` by default.",
        ),
        LIMIT,
        TIMEOUT,
    ];
    const RELABEL_TEST: &[Parameter] = &[
        required(
            "series",
            Text,
            "The series, as a selector with equality matchers.",
        ),
        optional(
            "rules",
            Text,
            "Relabel rules in YAML; the rules in force by default.",
        ),
        TIMEOUT,
    ];
    vec![
        get("/api/v1/status/queries", queries::list)
            .about("status", "Returns the active requests for data")
            .gives::<Vec<Untyped>>(),
        Endpoint::new("/api/v1/status/queries/{id}", &["DELETE"], queries::kill)
            .about("status", "Kills a request for data")
            .takes([required("id", Path, "Id of the request.")]),
        get("/api/v1/status/rejected_queries", queries::list_rejected)
            .about("status", "Returns the queries that exceeded a memory limit")
            .gives::<Vec<queries::RejectedQuery>>(),
        get("/api/v1/status/last_words", last_words::status)
            .about(
                "status",
                "Returns the requests that were active when the previous process ended",
            )
            .gives::<last_words::LastWords>(),
        get("/api/v1/status/senders", senders::status)
            .about("status", "Returns the senders of write requests")
            .gives::<senders::SenderList>(),
        get("/api/v1/status/top_queries", top_queries::status)
            .about(
                "status",
                "Returns the shapes or requesters of queries that took the most time",
            )
            .takes([
                optional(
                    "range",
                    OneOf(&top_queries::RANGES),
                    "The last hour, by default, or day.",
                ),
                optional(
                    "by",
                    OneOf(&GroupBy::NAMES),
                    "What queries are grouped by; the shape of their expression by default.",
                ),
            ])
            .gives::<top_queries::TopQueries>(),
        get("/api/v1/status/config", status_runtime::config)
            .about("status", "Returns the configuration in force")
            .gives::<status_runtime::ConfigText>(),
        get("/api/v1/status/flags", status_runtime::flags)
            .about("status", "Returns all flags with their values")
            .gives::<std::collections::BTreeMap<String, String>>(),
        get("/api/v1/status/buildinfo", status_runtime::buildinfo)
            .about("status", "Returns the versions of API and server")
            .for_tenants()
            .gives::<status_runtime::BuildInfo>(),
        get("/api/v1/status/runtimeinfo", status_runtime::runtimeinfo)
            .about("status", "Returns runtime information")
            .gives::<status_runtime::RuntimeInfo>(),
        get("/api/v1/status/tsdb", status_tsdb::cardinality)
            .about("status", "Returns cardinality statistics of the head")
            .takes([LIMIT, TIMEOUT])
            .gives::<status_tsdb::TsdbStatus>(),
        get_post("/api/v1/status/cardinality", cardinality::status)
            .about(
                "status",
                "Returns series and bytes by metric, label and label value",
            )
            .takes(CARDINALITY)
            .gives::<cardinality::CardinalityReport>(),
        get("/api/v1/status/advice", advice::status)
            .about(
                "status",
                "Returns what no rule or query uses, and rules that drop it",
            )
            .takes(ADVICE)
            .gives::<AdviceReport>(),
        get("/api/v1/status/tsdb/blocks", status_tsdb::blocks)
            .about("status", "Returns blocks and parts")
            .gives::<status_tsdb::Blocks>(),
        get("/api/v1/status/self_metrics", self_metrics::self_metrics)
            .about("status", "Returns the server's own metrics in JSON")
            .takes([optional(
                "metric_name_pattern",
                Text,
                "Only metrics whose name matches this anchored regex.",
            )])
            .gives::<Vec<Untyped>>(),
        get("/api/v1/status/walreplay", status_runtime::walreplay)
            .about("status", "Returns the progress of WAL replay, in files")
            .always_open()
            .compressed(false)
            .gives::<status_runtime::WalReplay>(),
        get("/api/v1/status/usage", usage::usage)
            .about(
                "status",
                "Returns which metrics and selectors were queried, by whom, and when last",
            )
            .takes([
                optional("metric", Text, "Only this metric."),
                COUNT_EXPLORATION,
                LIMIT,
                TIMEOUT,
            ])
            .gives::<Untyped>(),
        get("/api/v1/status/teams", teams::teams)
            .about("status", "Returns budget usage per team")
            .gives::<teams::Teams>(),
        get("/api/v1/status/churn", churn::status)
            .about("status", "Returns which labels created new series")
            .takes([
                optional("time", Time, "End of the examined hour; now by default."),
                LIMIT,
                TIMEOUT,
            ])
            .gives::<ChurnReport>(),
        get("/api/v1/status/rejects", rejects::status)
            .about(
                "status",
                "Returns rejected samples by reason, each with its last example",
            )
            .gives::<rejects::Rejects>(),
        get("/api/v1/status/relabel", relabel::status)
            .about("status", "Returns statistics of each relabel rule")
            .gives::<relabel::RelabelStatus>(),
        get_post("/api/v1/status/relabel/test", relabel_test::test)
            .about("status", "Returns the effect of relabel rules on a series")
            .takes(RELABEL_TEST)
            .gives::<relabel_test::RelabelTest>(),
        get("/api/v1/status/ha", ha::status)
            .about("status", "Returns the leaders of HA pairs")
            .gives::<ha::HaStatus>(),
        get("/api/v1/features", features::features)
            .about("features", "Returns features and whether they are enabled")
            .for_tenants()
            .gives::<features::FeatureList>(),
        get("/api/v1/notifications", notifications::list)
            .about("notifications", "Returns active notifications")
            .always_open()
            .compressed(false)
            .gives::<Vec<notifications::Notification>>(),
        get("/api/v1/notifications/live", notifications::live)
            .about("notifications", "Streams notifications")
            .always_open()
            .compressed(false)
            .gives_other("text/event-stream"),
        get("/api/v1/openapi.yaml", openapi_yaml)
            .about("openapi", "Returns the OpenAPI document of this API")
            .for_tenants()
            .takes([optional(
                "openapi_version",
                OneOf(&["3.1", "3.2"]),
                "Version of the specification.",
            )])
            .gives_other("application/yaml"),
    ]
}

fn messages() -> Vec<Endpoint> {
    vec![
        post("/api/v1/read", remote_read::read)
            .about("remote", "Serves remote read")
            .for_tenants()
            .takes([TIMEOUT])
            .takes_message("application/x-protobuf")
            .gives_other("application/x-protobuf"),
        post("/api/v1/write", remote_write::write)
            .about("remote", "Stores samples of remote write")
            .for_tenants()
            .takes_message("application/x-protobuf"),
        post("/api/v1/otlp/v1/metrics", otlp::write)
            .about("otlp", "Stores OTLP metrics")
            .for_tenants()
            .takes_message("application/x-protobuf")
            .gives_other("application/x-protobuf"),
    ]
}

fn imports() -> Vec<Endpoint> {
    vec![
        post("/api/v1/import/prometheus", import::prometheus)
            .about(
                "import",
                "Stores a scrape body as if it had been scraped now",
            )
            .for_tenants()
            .takes([EXTRA_LABEL, IMPORT_TIMESTAMP, NAN])
            .takes_message("text/plain"),
        Endpoint::new(
            "/api/v1/import/prometheus/metrics/{*labels}",
            &["DELETE", "POST", "PUT"],
            push::push,
        )
        .about("import", "Stores what a push library sends")
        .for_tenants()
        .takes([
            required(
                "labels",
                Path,
                "The labels of the group: `job/<job>`, then pairs of label and value.",
            ),
            EXTRA_LABEL,
            IMPORT_TIMESTAMP,
            NAN,
        ])
        .takes_message("text/plain"),
        post("/api/v1/import", import::json_lines)
            .about(
                "import",
                "Stores samples in VictoriaMetrics' JSON line format",
            )
            .for_tenants()
            .takes([EXTRA_LABEL, NAN])
            .takes_message("application/stream+json"),
        get_post("/api/v1/export", export::export)
            .about(
                "export",
                "Returns samples in VictoriaMetrics' JSON line format",
            )
            .for_tenants()
            .takes([
                MATCH_REQUIRED,
                START,
                END,
                optional(
                    "max_rows_per_line",
                    Integer,
                    "Maximum number of samples per line.",
                ),
                TIMEOUT,
            ])
            .gives_other(export::MEDIA_TYPE),
    ]
}

fn administration() -> Vec<Endpoint> {
    const SNAPSHOT: &[Parameter] = &[
        optional(
            "skip_head",
            Boolean,
            "Exclude samples that are not in blocks yet.",
        ),
        optional(
            "format",
            OneOf(&["varve", "prometheus"]),
            "Format of the snapshot: a data directory of Varve, or blocks of Prometheus.",
        ),
    ];
    vec![
        post_put(
            "/api/v1/admin/tsdb/delete_series",
            admin_tsdb::delete_series,
        )
        .about("admin", "Deletes samples of matching series")
        .for_tenants()
        .takes([MATCH_REQUIRED, START, END]),
        post_put(
            "/api/v1/admin/tsdb/clean_tombstones",
            admin_tsdb::clean_tombstones,
        )
        .about("admin", "Removes deleted samples from disk"),
        post_put("/api/v1/admin/tsdb/snapshot", admin_tsdb::snapshot)
            .about("admin", "Creates a snapshot")
            .takes(SNAPSHOT)
            .gives::<admin_tsdb::Snapshot>(),
        post("/api/v1/admin/tsdb/compact", admin_tsdb::compact)
            .about("admin", "Flushes the head and merges all blocks"),
        post(
            "/api/v1/admin/tsdb/confirm_retention",
            admin_tsdb::confirm_retention,
        )
        .about(
            "admin",
            "Removes all blocks that are too old, however many there are",
        ),
        post("/api/v1/admin/tsdb/import", admin_tsdb::import)
            .about("admin", "Imports blocks from the directory `import`")
            .takes([optional(
                "expired",
                Boolean,
                "Import blocks that are older than the retention, too.",
            )])
            .gives::<admin_tsdb::Imported>(),
        post("/api/v1/admin/relabel/enable", admin_relabel::enable)
            .about("admin", "Enables a relabel rule that a query has disabled")
            .takes([required("name", Text, "Name of the rule.")])
            .gives::<admin_relabel::Enabled>(),
        post("/api/v1/admin/usage/forget", admin_usage::forget)
            .about("admin", "Empties the usage record")
            .gives::<admin_usage::Forgotten>(),
        post(
            "/api/v1/admin/rejected_queries/reset",
            queries::reset_rejected,
        )
        .about("admin", "Evaluates rejected queries again"),
        get("/debug/pprof/profile", profile::profile)
            .about(
                "admin",
                "Takes a CPU profile and returns it in the format of pprof, compressed with gzip",
            )
            .takes([optional(
                "seconds",
                Integer,
                "Duration, from 1 to 120 seconds; 30 by default.",
            )])
            .gives_other("application/octet-stream")
            .always_open(),
        empty_profile("/debug/pprof/block", EmptyProfile::Block),
        empty_profile("/debug/pprof/goroutine", EmptyProfile::Goroutine),
        empty_profile("/debug/pprof/heap", EmptyProfile::Heap),
        empty_profile("/debug/pprof/mutex", EmptyProfile::Mutex),
        empty_profile("/debug/pprof/threadcreate", EmptyProfile::ThreadCreate),
        get("/debug/pprof/trace", profile::trace)
            .about("admin", "Responds that execution traces are those of Go")
            .gives_other("text/plain")
            .always_open(),
    ]
}

/// Returns the endpoint of a profile that only Go has.
fn empty_profile(path: &'static str, kind: EmptyProfile) -> Endpoint {
    get(path, move || profile::empty(kind))
        .about("admin", "Returns an empty profile: only Go has this kind")
        .gives_other("application/octet-stream")
        .always_open()
}

fn pages() -> Vec<Endpoint> {
    vec![
        get("/federate", federate::federate)
            .about(
                "federation",
                "Returns the latest samples of matching series in the text or protobuf format",
            )
            .for_tenants()
            .takes([MATCH, TIMEOUT])
            .gives_other("text/plain")
            .compressed(true),
        get("/version", status_runtime::version)
            .about(
                "server",
                "Returns the versions of API and server, as JSON in plain text",
            )
            .for_tenants()
            .gives_other("text/plain")
            .always_open(),
        get("/metrics", health::metrics)
            .about("server", "Returns the server's own metrics")
            .gives_other("text/plain")
            .always_open()
            .compressed(true),
        get_head("/-/healthy", health::healthy)
            .about("server", "Returns 200 while the process is alive")
            .for_tenants()
            .gives_other("text/plain")
            .always_open(),
        get_head("/-/ready", health::ready)
            .about("server", "Returns whether the store is open")
            .for_tenants()
            .takes([optional(
                "for",
                OneOf(&["write"]),
                "Also check whether writes are accepted.",
            )])
            .gives_other("text/plain"),
        Endpoint::new("/-/reload", &["GET", "POST", "PUT"], lifecycle::reload)
            .about("server", "Reloads the configuration")
            .gives_other("text/plain")
            .always_open(),
        Endpoint::new("/-/quit", &["GET", "POST", "PUT"], lifecycle::quit)
            .about("server", "Stops the server")
            .gives_other("text/plain")
            .always_open(),
    ]
}

/// Returns the router of all endpoints.
pub(crate) fn router(state: &HttpState) -> Router<HttpState> {
    let router = Router::new()
        .route("/api/v1/{*path}", any(unknown))
        .route(API, any(unknown))
        .fallback(not_found);
    endpoints().into_iter().fold(router, |router, endpoint| {
        let path = endpoint.path;
        router.route(path, endpoint.into_route(state))
    })
}

/// GET /api/v1/openapi.yaml, in version 3.1 of the specification, or 3.2 with
/// `openapi_version=3.2`.
async fn openapi_yaml(State(app): State<Arc<App>>, form: Form) -> Response {
    let version = if matches!(form.first("openapi_version"), "3.2" | "3.2.0") {
        "3.2.0"
    } else {
        "3.1.0"
    };
    let headers = [
        (header::CONTENT_TYPE, "application/yaml; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache, no-store, must-revalidate"),
    ];
    (
        headers,
        document::describe(
            &endpoints(),
            version,
            app.settings.web.external_url.as_str(),
        ),
    )
        .into_response()
}

/// Responds to OPTIONS of an API path that is not served. Any other method gets 404.
async fn unknown(State(state): State<HttpState>, request: Request) -> Response {
    if request.method() != Method::OPTIONS {
        return not_found(State(state), request).await;
    }
    let phase = state.app.phase();
    if phase != Phase::Open {
        return unavailable(phase);
    }
    let mut response = StatusCode::NO_CONTENT.into_response();
    cors::add_headers(
        &state.app.settings.web.cors_origin,
        request.headers().get(header::ORIGIN),
        response.headers_mut(),
    );
    response
}

/// Responds to a path that is not served: with a redirect if another spelling of it is.
async fn not_found(State(state): State<HttpState>, request: Request) -> Response {
    static SERVED: LazyLock<Vec<&str>> =
        LazyLock::new(|| endpoints().iter().map(|endpoint| endpoint.path).collect());
    let prefix = state.app.settings.web.route_prefix.escaped();
    redirect::to_served(&prefix, request.method(), request.uri(), &SERVED).unwrap_or_else(no_page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serving::scope::allows_cross_origin;

    #[test]
    fn every_path_is_listed_once() {
        let paths: std::collections::BTreeSet<_> =
            endpoints().iter().map(|endpoint| endpoint.path).collect();
        assert_eq!(paths.len(), endpoints().len());
    }

    /// Any page could post texts to Varve's own endpoints, and make a server without users work.
    #[test]
    fn pages_of_other_origins_post_only_what_other_servers_take() {
        let endpoints = endpoints();
        let open: Vec<&str> = endpoints
            .iter()
            .filter(|endpoint| endpoint.methods.contains(&"POST"))
            .map(|endpoint| endpoint.path)
            .filter(|path| allows_cross_origin(&Method::POST, path))
            .collect();
        assert_eq!(
            open,
            [
                "/api/v1/query",
                "/api/v1/query_range",
                "/api/v1/query_exemplars",
                "/api/v1/format_query",
                "/api/v1/parse_query",
                "/api/v1/series",
                "/api/v1/labels",
                "/api/v1/search/metric_names",
                "/api/v1/search/label_names",
                "/api/v1/search/label_values",
                "/api/v1/read",
                "/api/v1/export",
            ]
        );
    }
}
