//! The calls that are compared with a real Prometheus, those that are not, and where the two mean to differ.

/// A call: method, path with parameters, body of a form.
pub(super) type Call = (&'static str, &'static str, &'static str);

/// Calls whose status, headers and body are compared.
pub(super) const CALLS: &[Call] = &[
    // What Grafana asks.
    ("POST", "/api/v1/query_range", "query=sum(rate(requests_total[1m]))&start=1700000000&end=1700000285&step=15"),
    ("POST", "/api/v1/query", "query=up{instance=\"a:1\"}&time=1700000100"),
    ("POST", "/api/v1/labels", "match[]=up&start=1700000000&end=1700000285"),
    ("POST", "/api/v1/labels", ""),
    ("POST", "/api/v1/series", "match[]=tiny&start=1700000000&end=1700000285"),
    ("GET", "/api/v1/label/job/values?match[]=up", ""),
    ("GET", "/api/v1/label/__name__/values", ""),
    ("GET", "/api/v1/metadata?limit=0", ""),
    ("GET", "/api/v1/rules", ""),
    ("GET", "/api/v1/alerts", ""),
    ("GET", "/api/v1/query_exemplars?query=up&start=1700000000&end=1700000285", ""),
    ("POST", "/api/v1/query_exemplars", "query=up&start=1700000000&end=1700000285"),
    ("POST", "/api/v1/query_exemplars", "query=1"),
    ("POST", "/api/v1/format_query", "query=sum(rate(foo[5m]))by(job)"),
    // What there is none of.
    ("GET", "/api/v1/rules?type=alert&rule_name[]=a&exclude_alerts=1&group_limit=3", ""),
    ("GET", "/api/v1/rules?type=x", ""),
    ("GET", "/api/v1/rules?exclude_alerts=x", ""),
    ("GET", "/api/v1/rules?group_limit=x", ""),
    ("GET", "/api/v1/rules?group_limit=0", ""),
    ("GET", "/api/v1/rules?group_limit=-3", ""),
    ("GET", "/api/v1/rules?group_limit=99999999999", ""),
    ("GET", "/api/v1/rules?group_next_token=x", ""),
    ("GET", "/api/v1/rules?group_limit=1&group_next_token=x", ""),
    ("GET", "/api/v1/rules?match[]=%7B%7D", ""),
    ("GET", "/api/v1/rules?match[]=up%7B", ""),
    ("GET", "/api/v1/rules?type=%zz", ""),
    ("GET", "/api/v1/targets", ""),
    ("GET", "/api/v1/targets?state=active", ""),
    ("GET", "/api/v1/targets?state=Dropped", ""),
    ("GET", "/api/v1/targets?state=x&scrapePool=y", ""),
    ("GET", "/api/v1/targets/metadata", ""),
    ("GET", "/api/v1/targets/metadata?limit=x", ""),
    ("GET", "/api/v1/targets/metadata?limit=1&metric=up&match_target=%7Bjob=%22x%22%7D", ""),
    ("GET", "/api/v1/targets/metadata?match_target=%7B", ""),
    ("GET", "/api/v1/scrape_pools", ""),
    ("GET", "/api/v1/alertmanagers", ""),
    ("GET", "/api/v1/notifications", ""),
    // State.
    ("GET", "/api/v1/status/walreplay", ""),
    ("GET", "/api/v1/status/buildinfo", ""),
    ("GET", "/api/v1/status/runtimeinfo", ""),
    ("GET", "/api/v1/status/flags", ""),
    ("GET", "/api/v1/status/config", ""),
    ("GET", "/api/v1/status/tsdb", ""),
    ("GET", "/api/v1/status/tsdb?limit=2", ""),
    ("GET", "/api/v1/status/tsdb?limit=0", ""),
    ("GET", "/api/v1/status/tsdb?limit=x", ""),
    ("GET", "/api/v1/status/tsdb?limit=10001", ""),
    ("GET", "/-/healthy", ""),
    ("GET", "/-/ready", ""),
    ("HEAD", "/-/healthy", ""),
    ("HEAD", "/-/ready", ""),
    // Administration that is off.
    ("POST", "/api/v1/admin/tsdb/snapshot", ""),
    ("PUT", "/api/v1/admin/tsdb/delete_series", "match[]=up"),
    ("POST", "/api/v1/admin/tsdb/clean_tombstones", ""),
    ("POST", "/-/reload", ""),
    ("GET", "/-/reload", ""),
    ("GET", "/-/quit", ""),
    // Federation.
    ("GET", "/federate", ""),
    ("GET", "/federate?match[]=nothing", ""),
    ("GET", "/federate?match[]=up%7B", ""),
    ("GET", "/federate?match[]=%zz", ""),
    // Methods.
    ("HEAD", "/api/v1/labels", ""),
    ("HEAD", "/api/v1/status/flags", ""),
    ("HEAD", "/metrics", ""),
    ("PUT", "/api/v1/query", ""),
    ("POST", "/api/v1/status/flags", ""),
    ("POST", "/api/v1/label/job/values", ""),
    ("POST", "/-/healthy", ""),
    ("POST", "/federate", ""),
    ("GET", "/api/v1/write", ""),
    ("GET", "/api/v1/read", ""),
    ("GET", "/api/v1/admin/tsdb/snapshot", ""),
    ("DELETE", "/api/v1/series?match[]=up", ""),
    ("OPTIONS", "/api/v1/labels", ""),
    ("OPTIONS", "/api/v1/nonsense", ""),
    ("OPTIONS", "/api/v1/write", ""),
    ("OPTIONS", "/api/v1/status/walreplay", ""),
    ("OPTIONS", "/federate", ""),
    ("OPTIONS", "/-/reload", ""),
    ("OPTIONS", "/-/healthy", ""),
    ("GET", "/api/v1/nonsense", ""),
    ("POST", "/api/v1/nonsense/deeper", ""),
    ("GET", "/api/v1/", ""),
    ("GET", "/api/v2/query", ""),
    ("GET", "/nonsense", ""),
    // Remote read that is no message.
    ("POST", "/api/v1/read", ""),
];

/// Calls of 3.14 that the Prometheus which is compared with does not know: only their form is checked.
pub(super) const NEW: &[Call] = &[
    ("GET", "/api/v1/features", ""),
    ("GET", "/api/v1/status/tsdb/blocks", ""),
    ("GET", "/api/v1/status/self_metrics", ""),
    ("GET", "/api/v1/status/self_metrics?metric_name_pattern=varve_.*", ""),
    ("GET", "/api/v1/status/self_metrics?metric_name_pattern=(", ""),
    ("GET", "/api/v1/targets/relabel_steps?scrapePool=x&labels=%7B%7D", ""),
    ("GET", "/api/v1/targets/relabel_steps?scrapePool=x", ""),
    ("GET", "/api/v1/scrape_pools/config?scrapePool=x", ""),
    ("GET", "/api/v1/scrape_pools/config", ""),
    ("GET", "/api/v1/search/metric_names", ""),
    ("POST", "/api/v1/parse_query", "query=sum(rate(foo[5m]))"),
    ("GET", "/api/v1/query?query=up%5B1m%5D&time=1700000100", ""),
    ("GET", "/api/v1/query?query=1&time=1700000100", ""),
    ("GET", "/api/v1/query?query=up&time=1700000100&stats=all", ""),
];

/// Calls that are answered otherwise than by the Prometheus that is compared with, and why.
pub(super) const DIFFERENCES: &[(&str, &str, &str)] = &[
    ("GET", "/api/v1/status/buildinfo", "what is running"),
    ("GET", "/api/v1/status/runtimeinfo", "what is running"),
    ("GET", "/api/v1/status/flags", "Varve has flags of its own"),
    ("GET", "/api/v1/status/config", "Varve has settings of its own"),
    (
        "GET",
        "/api/v1/status/tsdb",
        "bytes are those that labels take in Varve, which has no chunks; equal counts come by name",
    ),
    ("GET", "/api/v1/status/tsdb?limit=2", "likewise"),
    ("GET", "/api/v1/status/tsdb?limit=10001", "3.14 refuses it"),
    ("GET", "/-/healthy", "Varve is healthy, not Prometheus"),
    ("GET", "/-/ready", "Varve is ready, not Prometheus"),
    ("POST", "/api/v1/read", "the words of another snappy library"),
    ("DELETE", "/api/v1/series?match[]=up", "3.14 has no such method"),
];

/// Where Prometheus' description does not fit what Prometheus sends, and so does not fit Varve either.
pub(super) const UNDESCRIBED: &[(&str, &str)] = &[
    ("/api/v1/targets?state=active", "`droppedTargetCounts` is null where dropped targets are not asked for"),
    ("/api/v1/targets?state=x&scrapePool=y", "likewise"),
];
