//! The table of endpoints: what is served where, in which methods, with which parameters. The router and the description
//! of the API are both made of it.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::handler::Handler;
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;

use super::admin::{lifecycle, tsdb as admin};
use super::endpoint::{API, Endpoint, get, get_head, get_post, post, post_put, unavailable};
use super::metadata::{families as metadata, labels, series};
use super::query::{evaluate as query, exemplars};
use super::scraping::{rules, targets};
use super::status::{
    churn, features, ha, health, notifications, queries, rejects, relabel, runtime as status, self_metrics, teams,
    tsdb as tsdb_status, usage,
};
use super::write::{import, otlp, remote_write as write};
use super::{federate, remote_read, search};
use crate::http::openapi;
use crate::http::openapi::Kind::{Boolean, Duration, Integer, OneOf, Path, Text, Texts, Time};
use crate::http::openapi::{
    ExemplarSeries, Label, MetadataFamilies, Parameter, QueryData, SyntaxTree, Untyped, optional, required,
};
use crate::http::serving::{cors, redirect};
use crate::http::{App, plain};

const LIMIT: Parameter = optional("limit", Integer, "How many elements of the result are returned at most.");
const TIMEOUT: Parameter = optional("timeout", Duration, "Time that the call may take, up to --query.timeout.");
const LOOKBACK: Parameter = optional("lookback_delta", Duration, "How far back a sample counts for this query.");
const STATS: Parameter = optional("stats", OneOf(&["true", "all"]), "Return statistics of the query.");
const QUERY: Parameter = required("query", Text, "An expression in PromQL.");
const START: Parameter = optional("start", Time, "Begin of the range.");
const END: Parameter = optional("end", Time, "End of the range, included.");
const MATCH: Parameter = optional("match[]", Texts, "Selectors of series; several are a union.");
const MATCH_REQUIRED: Parameter = Parameter { is_required: true, ..MATCH };

const INSTANT: &[Parameter] =
    &[QUERY, optional("time", Time, "Time of the evaluation; now by default."), TIMEOUT, LIMIT, LOOKBACK, STATS];
const RANGE: &[Parameter] = &[
    QUERY,
    required("start", Time, "Time of the first step."),
    required("end", Time, "Time that no step lies behind."),
    required("step", Duration, "Time between two steps."),
    TIMEOUT,
    LIMIT,
    LOOKBACK,
    STATS,
];
const EXPLAIN: &[Parameter] = &[
    QUERY,
    optional("time", Time, "Time of the evaluation; now by default."),
    optional("start", Time, "Time of the first step; makes it a range query, with `end` and `step`."),
    optional("end", Time, "Time that no step lies behind."),
    optional("step", Duration, "Time between two steps."),
    TIMEOUT,
    LOOKBACK,
];
const LABELS: &[Parameter] = &[MATCH, START, END, LIMIT, TIMEOUT];
const NAME: Parameter =
    required("name", Path, "Name of the label; one that is not legacy may be escaped as `U__a_2e_b`.");
const SEARCH: [Parameter; 13] = [
    MATCH,
    optional("search[]", Texts, "Terms; what matches one of them is found."),
    optional("fuzz_threshold", Integer, "Least score of what is found, from 0 to 100."),
    optional("fuzz_alg", OneOf(&search::ALGORITHMS), "How a term is compared."),
    optional("case_sensitive", Boolean, "Whether upper and lower case differ; they do by default."),
    optional("include_score", Boolean, "Return scores."),
    optional("sort_by", OneOf(&["alpha", "score"]), "Order of the result."),
    optional("sort_dir", OneOf(&["asc", "dsc"]), "Direction of that order."),
    START,
    END,
    LIMIT,
    optional("batch_size", Integer, "Results in a line of the answer."),
    TIMEOUT,
];
const SEARCH_METRICS: &[Parameter] =
    &with(SEARCH, optional("include_metadata", Boolean, "Return type, help and unit of each metric."));
const SEARCH_VALUES: &[Parameter] = &with(SEARCH, required("label", Text, "Name of the label."));

const fn with(shared: [Parameter; 13], own: Parameter) -> [Parameter; 14] {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m] = shared;
    [a, b, c, d, e, f, g, h, i, j, k, l, m, own]
}

/// Lists all endpoints.
pub(crate) fn endpoints() -> Vec<Endpoint> {
    let parts = [queries(), metadata_calls(), scraping(), state(), messages(), administration(), pages()];
    parts.into_iter().flatten().collect()
}

fn queries() -> Vec<Endpoint> {
    vec![
        get_post("/api/v1/query", query::instant)
            .about("query", "Evaluates a query at one time")
            .takes(INSTANT)
            .gives::<QueryData>(),
        get_post("/api/v1/query_range", query::range)
            .about("query", "Evaluates a query at the steps of a range")
            .takes(RANGE)
            .gives::<QueryData>(),
        get_post("/api/v1/query_explain", query::explain)
            .about("query", "Evaluates a query, and tells what each operator of its plan did")
            .takes(EXPLAIN)
            .gives::<Untyped>(),
        get_post("/api/v1/query_exemplars", exemplars::query_exemplars)
            .about("query", "Finds the exemplars of the series that an expression selects")
            .takes(const { &[QUERY, START, END, TIMEOUT] })
            .gives::<Vec<ExemplarSeries>>(),
        get_post("/api/v1/format_query", query::format)
            .about("query", "Formats an expression")
            .takes(const { &[QUERY] })
            .gives::<String>(),
        get_post("/api/v1/parse_query", query::parse)
            .about("query", "Parses an expression")
            .takes(const { &[QUERY] })
            .gives::<SyntaxTree>(),
    ]
}

fn metadata_calls() -> Vec<Endpoint> {
    const METADATA: &[Parameter] = &[
        optional("limit", Integer, "How many metric families are returned at most."),
        optional("limit_per_metric", Integer, "How many entries of a family are returned at most."),
        optional("metric", Text, "A single metric family; all by default."),
        TIMEOUT,
    ];
    vec![
        get_post("/api/v1/series", series::series)
            .about("series", "Finds series")
            .takes(const { &[MATCH_REQUIRED, START, END, LIMIT, TIMEOUT] })
            .gives::<Vec<std::collections::BTreeMap<String, String>>>(),
        get_post("/api/v1/labels", labels::names)
            .about("labels", "Lists label names")
            .takes(LABELS)
            .gives::<Vec<Label>>(),
        get("/api/v1/label/{name}/values", labels::values)
            .about("labels", "Lists the values of a label")
            .takes(const { &[NAME, MATCH, START, END, LIMIT, TIMEOUT] })
            .gives::<Vec<Label>>(),
        get("/api/v1/metadata", metadata::metadata)
            .about("metadata", "Lists what is known of metric families")
            .takes(METADATA)
            .gives::<MetadataFamilies>(),
        searching("/api/v1/search/metric_names", search::metric_names, SEARCH_METRICS, "Searches metric names"),
        searching("/api/v1/search/label_names", search::label_names, &SEARCH, "Searches label names"),
        searching("/api/v1/search/label_values", search::label_values, SEARCH_VALUES, "Searches values of a label"),
    ]
}

fn searching<H: Handler<T, Arc<App>>, T: 'static>(
    path: &'static str,
    handler: H,
    parameters: &'static [Parameter],
    about: &'static str,
) -> Endpoint {
    get_post(path, handler)
        .about("search", about)
        .takes(parameters)
        .gives_other("application/x-ndjson")
        .compressed(false)
}

fn scraping() -> Vec<Endpoint> {
    const POOL: Parameter = required("scrapePool", Text, "Name of a scrape pool.");
    const RULES: &[Parameter] = &[
        optional("type", OneOf(&["alert", "record"]), "Only rules of this kind."),
        optional("rule_name[]", Texts, "Only rules of these names."),
        optional("rule_group[]", Texts, "Only rules of these groups."),
        optional("file[]", Texts, "Only rules of these files."),
        optional("exclude_alerts", Boolean, "Leave active alerts out."),
        optional("match[]", Texts, "Only rules whose labels match."),
        optional("group_limit", Integer, "How many groups are returned at most."),
        optional("group_next_token", Text, "Where the last call ended."),
    ];
    vec![
        get("/api/v1/targets", targets::targets)
            .about("targets", "Lists targets; there are none")
            .takes(
                const {
                    &[
                        optional("scrapePool", Text, "Only targets of this pool."),
                        optional("state", OneOf(&["active", "dropped", "any"]), "Only targets in this state."),
                    ]
                },
            )
            .gives::<targets::Targets>(),
        get("/api/v1/targets/metadata", targets::metadata)
            .about("targets", "Lists metadata of targets; there are none")
            .takes(
                const {
                    &[
                        optional("match_target", Text, "Only targets whose labels match."),
                        optional("metric", Text, "Only this metric."),
                        optional("limit", Integer, "How many entries are returned at most."),
                    ]
                },
            )
            .gives::<Vec<Untyped>>(),
        get("/api/v1/targets/relabel_steps", targets::relabel_steps)
            .about("targets", "Shows how labels of a target are relabelled; there are no scrape pools")
            .takes(const { &[POOL, required("labels", Text, "Labels of a target, in JSON.")] })
            .gives::<Untyped>(),
        get("/api/v1/scrape_pools", targets::scrape_pools)
            .about("targets", "Lists scrape pools; there are none")
            .gives::<targets::ScrapePools>(),
        get("/api/v1/scrape_pools/config", targets::scrape_pool_config)
            .about("targets", "Shows the configuration of a scrape pool; there are none")
            .takes(const { &[POOL] })
            .gives::<Untyped>(),
        get("/api/v1/alertmanagers", targets::alertmanagers)
            .about("alerts", "Lists Alertmanagers; there are none")
            .gives::<targets::Alertmanagers>(),
        get("/api/v1/alerts", rules::alerts)
            .about("alerts", "Lists active alerts; there are none")
            .gives::<rules::Alerts>(),
        get("/api/v1/rules", rules::rules)
            .about("rules", "Lists rules; there are none")
            .takes(RULES)
            .gives::<rules::RuleGroups>(),
    ]
}

fn state() -> Vec<Endpoint> {
    vec![
        get("/api/v1/status/queries", queries::list)
            .about("status", "Lists the requests for data that wait or work")
            .gives::<Vec<Untyped>>(),
        Endpoint::new("/api/v1/status/queries/{id}", &["DELETE"], queries::kill)
            .about("status", "Ends a request for data")
            .takes(const { &[required("id", Path, "Number of the request.")] }),
        get("/api/v1/status/config", status::config)
            .about("status", "Shows the configuration in force")
            .gives::<status::ConfigText>(),
        get("/api/v1/status/flags", status::flags)
            .about("status", "Lists the flags with their values")
            .gives::<std::collections::BTreeMap<String, String>>(),
        get("/api/v1/status/buildinfo", status::buildinfo)
            .about("status", "Tells which API this is, and whose")
            .gives::<status::BuildInfo>(),
        get("/api/v1/status/runtimeinfo", status::runtimeinfo)
            .about("status", "Tells how the server runs")
            .gives::<status::RuntimeInfo>(),
        get("/api/v1/status/tsdb", tsdb_status::cardinality)
            .about("status", "Counts what labels cost of the series in memory")
            .takes(const { &[LIMIT, TIMEOUT] })
            .gives::<tsdb_status::TsdbStatus>(),
        get("/api/v1/status/tsdb/blocks", tsdb_status::blocks)
            .about("status", "Lists blocks and parts")
            .gives::<tsdb_status::Blocks>(),
        get("/api/v1/status/self_metrics", self_metrics::self_metrics)
            .about("status", "Returns the server's own metrics in JSON")
            .takes(const { &[optional("metric_name_pattern", Text, "Only metrics whose whole name matches this expression.")] })
            .gives::<Vec<Untyped>>(),
        get("/api/v1/status/walreplay", status::walreplay)
            .about("status", "Tells how far the replay of the log is, in files")
            .always_open()
            .compressed(false)
            .gives::<status::WalReplay>(),
        get("/api/v1/status/usage", usage::usage)
            .about("status", "Tells what was asked for, by whom, and when last")
            .takes(const { &[optional("metric", Text, "Only this metric."), LIMIT, TIMEOUT] })
            .gives::<Untyped>(),
        get("/api/v1/status/teams", teams::teams)
            .about("status", "Tells what each team has of its budget, and what it borrows")
            .gives::<teams::Teams>(),
        get("/api/v1/status/churn", churn::status)
            .about("status", "Tells which labels made new series")
            .takes(const { &[optional("time", Time, "End of the hour that is looked at; now by default."), TIMEOUT] })
            .gives::<Untyped>(),
        get("/api/v1/status/rejects", rejects::status)
            .about("status", "Tells what of writes was not stored, by reason, with the last case of each")
            .gives::<rejects::Rejects>(),
        get("/api/v1/status/relabel", relabel::status)
            .about("status", "Tells what each rule of ingestion does")
            .gives::<relabel::RelabelStatus>(),
        get("/api/v1/status/ha", ha::status)
            .about("status", "Tells which replicas of HA pairs are stored")
            .gives::<ha::HaStatus>(),
        get("/api/v1/features", features::features)
            .about("features", "Lists features, and whether they are on")
            .gives::<features::FeatureList>(),
        get("/api/v1/notifications", notifications::list)
            .about("notifications", "Lists what operators should know now")
            .always_open()
            .compressed(false)
            .gives::<Vec<notifications::Notification>>(),
        get("/api/v1/notifications/live", notifications::live)
            .about("notifications", "Streams what operators should know")
            .always_open()
            .compressed(false)
            .gives_other("text/event-stream"),
        get("/api/v1/openapi.yaml", openapi::serve)
            .about("openapi", "Describes this API")
            .takes(const { &[optional("openapi_version", OneOf(&["3.1", "3.2"]), "Version of the specification.")] })
            .gives_other("application/yaml"),
    ]
}

fn messages() -> Vec<Endpoint> {
    vec![
        post("/api/v1/read", remote_read::read)
            .about("remote", "Answers a remote reader")
            .takes(const { &[TIMEOUT] })
            .takes_message("application/x-protobuf")
            .gives_other("application/x-protobuf"),
        post("/api/v1/write", write::write)
            .about("remote", "Stores what a remote-write sender sends")
            .takes_message("application/x-protobuf"),
        post("/api/v1/otlp/v1/metrics", otlp::write)
            .about("otlp", "Stores metrics of OpenTelemetry")
            .takes_message("application/x-protobuf")
            .gives_other("application/x-protobuf"),
        post("/api/v1/import/prometheus", import::prometheus)
            .about("import", "Stores a scrape body as if it had been scraped now")
            .takes(const { &[optional("extra_label", Texts, "Labels to add, each as `name=value`.")] })
            .takes_message("text/plain"),
    ]
}

fn administration() -> Vec<Endpoint> {
    const SNAPSHOT: &[Parameter] = &[
        optional("skip_head", Boolean, "Leave out what is not in blocks yet."),
        optional("format", OneOf(&["varve", "prometheus"]), "A data directory of Varve, or blocks of Prometheus."),
    ];
    vec![
        post_put("/api/v1/admin/tsdb/delete_series", admin::delete_series)
            .about("admin", "Deletes samples of matching series")
            .takes(const { &[MATCH_REQUIRED, START, END] }),
        post_put("/api/v1/admin/tsdb/clean_tombstones", admin::clean_tombstones)
            .about("admin", "Takes deleted samples off the disk"),
        post_put("/api/v1/admin/tsdb/snapshot", admin::snapshot)
            .about("admin", "Makes a snapshot")
            .takes(SNAPSHOT)
            .gives::<admin::Snapshot>(),
        post("/api/v1/admin/tsdb/compact", admin::compact)
            .about("admin", "Writes everything to blocks and merges them"),
        post("/api/v1/admin/tsdb/import", admin::import)
            .about("admin", "Takes in blocks from the folder `import`")
            .gives::<admin::Imported>(),
    ]
}

fn pages() -> Vec<Endpoint> {
    vec![
        get("/federate", federate::federate)
            .about("federation", "Returns the latest samples of matching series in the text or protobuf format")
            .takes(const { &[MATCH, TIMEOUT] })
            .gives_other("text/plain")
            .compressed(true),
        get("/version", status::version)
            .about("server", "Tells which API this is, and whose, in JSON as a text")
            .gives_other("text/plain")
            .always_open(),
        get("/metrics", health::metrics)
            .about("server", "Returns the server's own metrics")
            .gives_other("text/plain")
            .always_open()
            .compressed(true),
        get_head("/-/healthy", health::healthy)
            .about("server", "Answers while the process lives")
            .gives_other("text/plain")
            .always_open(),
        get_head("/-/ready", health::ready)
            .about("server", "Tells whether the store is open")
            .takes(const { &[optional("for", OneOf(&["write"]), "Ask whether it takes writes, too.")] })
            .gives_other("text/plain"),
        Endpoint::new("/-/reload", &["GET", "POST", "PUT"], lifecycle::reload)
            .about("server", "Reads the configuration again")
            .gives_other("text/plain")
            .always_open(),
        Endpoint::new("/-/quit", &["GET", "POST", "PUT"], lifecycle::quit)
            .about("server", "Ends the server")
            .gives_other("text/plain")
            .always_open(),
    ]
}

/// Makes the router.
pub(crate) fn router(app: &Arc<App>) -> Router<Arc<App>> {
    let router = Router::new().route("/api/v1/{*path}", any(unknown)).route(API, any(unknown)).fallback(not_found);
    endpoints().into_iter().fold(router, |router, endpoint| {
        let path = endpoint.path();
        router.route(path, endpoint.into_route(app))
    })
}

/// Answers OPTIONS of a path of the API that is not served; any other method finds nothing.
async fn unknown(State(app): State<Arc<App>>, request: Request) -> Response {
    if request.method() != Method::OPTIONS {
        return not_found(request).await;
    }
    if let Some(is_stopping) = app.stopping() {
        return unavailable(is_stopping);
    }
    let mut response = StatusCode::NO_CONTENT.into_response();
    cors::add_headers(&app.settings.cors_origin, request.headers().get(header::ORIGIN), response.headers_mut());
    response
}

/// Answers a path that is not served: there may be another spelling that is.
async fn not_found(request: Request) -> Response {
    let elsewhere = redirect::to_served(request.method(), request.uri());
    elsewhere.unwrap_or_else(|| plain(StatusCode::NOT_FOUND, "404 page not found\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_stands_once() {
        let paths: std::collections::BTreeSet<_> = endpoints().iter().map(Endpoint::path).collect();
        assert_eq!(paths.len(), endpoints().len());
    }
}
