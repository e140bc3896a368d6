//! Tenants: a token reads and writes only the series of its tenant, also over gRPC.

use prost::Message as _;
use serde_json::json;
use tempfile::TempDir;

use super::T0;
use super::messages::{
    LabelNamesRequest, LabelValuesRequest, Matcher, QueryRangeRequest, QueryRequest, RoutedWrite, SeriesRequest, Texts,
    series_of,
};
use crate::harness::{Access, Call, ConfigFile, Http2, Server, exemplar, series};

const ADMIN: &str = "Bearer adm1n";
/// Methods that show more than the series of a tenant.
const DENIED: [&str; 4] = [
    "/thanos.Rules/Rules",
    "/thanos.Metadata/MetricMetadata",
    "/thanos.Targets/Targets",
    "/thanos.Status/TSDBStatistics",
];

#[test]
fn a_token_of_a_tenant_reads_and_writes_only_its_series() {
    let dir = TempDir::new().expect("make a temporary directory");
    let web = dir.path().join("web.yml");
    let token = |name| format!("- {{name: {name}, token: {name}, scopes: [read, write]}}\n");
    let tenant = |name| format!("- {{users: [{name}], matchers: '{{team=\"{name}\"}}', labels: {{team: {name}}}}}\n");
    let text = format!(
        "bearer_tokens:\n- {{name: admin, token: adm1n, scopes: [read, write, admin]}}\n{}tenants:\n{}",
        ["a", "b"].map(token).concat(),
        ["a", "b"].map(tenant).concat()
    );
    std::fs::write(&web, text).expect("write a file");
    let config = ConfigFile::new(&json!({"global": {"external_labels": {"cluster": "c"}}}).to_string());
    let access = Access { authorization: Some(ADMIN.to_owned()), ..Access::default() };
    let web = format!("--web.config.file={}", web.display());
    let server = Server::start_as(&[&config.flag(), &web], &access);
    let http2 = Http2::connect(server.http().address());
    let call = |token: &str, path: &str, message: &[u8]| -> Call {
        http2.call(path, &[("authorization", &format!("Bearer {token}"))], message)
    };
    for (name, other) in [("a", "b"), ("b", "a")] {
        // The sender claims the other tenant's label.
        let (own, samples) = (format!("secret_{name}"), [(T0, 1.0)]);
        let labels = |metric| [("__name__", metric), (&*own, "x"), ("team", other)];
        let mut timeseries = ["shared", &own].map(|metric| series(&labels(metric), &samples));
        timeseries[0].exemplars.push(exemplar(&[("trace_id", &own)], 1.0, T0));
        let request = RoutedWrite { timeseries: timeseries.to_vec(), tenant: other.to_owned(), replica: 0 };
        assert_eq!(call(name, "/thanos.WriteableStore/RemoteWrite", &request.encode_to_vec()).status, "0");
    }
    let teams = |token: &str, matcher: Matcher| {
        let (min_time, max_time) = (i64::MIN + 1, i64::MAX);
        let request = SeriesRequest { min_time, max_time, matchers: vec![matcher], ..SeriesRequest::default() };
        let call = call(token, "/thanos.Store/Series", &request.encode_to_vec());
        assert_eq!((&*call.status, &*call.message), ("0", ""));
        let team = |(name, value): (String, String)| (name == "team").then_some(value);
        series_of(&call).iter().flat_map(|series| series.labels().into_iter().filter_map(team)).collect::<Vec<_>>()
    };
    let values = |token: &str, label: &str| {
        let (label, end) = (label.to_owned(), i64::MAX);
        let request = LabelValuesRequest { label, end, ..LabelValuesRequest::default() };
        let call = call(token, "/thanos.Store/LabelValues", &request.encode_to_vec());
        Texts::decode(&*call.messages[0].1).expect("texts").texts
    };
    assert_eq!(teams("adm1n", Matcher::matching("__name__", ".+")), ["a", "b", "a", "b"]);
    assert_eq!(values("adm1n", "__name__"), ["secret_a", "secret_b", "shared"]);
    for (name, other) in [("a", "b"), ("b", "a")] {
        assert_eq!(teams(name, Matcher::matching("__name__", ".+")), [name, name]);
        assert!(teams(name, Matcher::equal("team", other)).is_empty());
        assert_eq!(values(name, "__name__"), [&format!("secret_{name}"), "shared"]);
        assert_eq!(values(name, "team"), [name]);
        assert_eq!(values(name, "cluster"), ["c"]);
        let (query, time_s) = ("count({__name__=~\".+\"})".to_owned(), T0 / 1000);
        let range =
            QueryRangeRequest { query, start_time_seconds: time_s, end_time_seconds: time_s, interval_seconds: 1 };
        let count = |token| call(token, "/thanos.Query/QueryRange", &range.encode_to_vec()).messages;
        assert!(!count(name).is_empty() && count(name) != count("adm1n"));
        // Requests for everything, and whether an answer names something that only one tenant has.
        let (query, start, end) = ("{__name__=~\".+\"}".to_owned(), time_s, 0);
        let instant = QueryRequest { query, start, end }.encode_to_vec();
        let exemplars = QueryRequest { query: "shared".to_owned(), start: 0, end: i64::MAX }.encode_to_vec();
        let names = LabelNamesRequest { start: 0, end: i64::MAX }.encode_to_vec();
        let all = [
            ("/thanos.Query/Query", instant),
            ("/thanos.Exemplars/Exemplars", exemplars),
            ("/thanos.Store/LabelNames", names),
        ];
        for (path, request) in all {
            let has = |token: &str, secret: &str| {
                let call = call(token, path, &request);
                assert_eq!(call.status, "0", "{path} {}", call.message);
                let secret = format!("secret_{secret}");
                call.messages.iter().any(|(_, bytes)| bytes.windows(secret.len()).any(|part| part == secret.as_bytes()))
            };
            assert!(has("adm1n", other) && has(name, name) && !has(name, other), "{path} {name}");
        }
        for path in DENIED {
            // PermissionDenied.
            assert_eq!(call(name, path, b"").status, "7", "{path}");
            assert_ne!(call("adm1n", path, b"").status, "7", "{path}");
        }
        assert_eq!(call(name, "/thanos.info.Info/Info", b"").status, "0");
    }
}
