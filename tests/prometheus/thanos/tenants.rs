//! Tenants: a token reads and writes only the series of its tenant, also over gRPC.

use prost::Message as _;
use serde_json::json;
use tempfile::TempDir;

use super::T0;
use super::series::series_of;
use crate::harness::messages::thanos::{
    LabelNamesRequest, LabelValuesRequest, Matcher, QueryRangeRequest, QueryRequest, RoutedWrite,
    SeriesRequest, Texts,
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

const TENANTS: [&str; 2] = ["a", "b"];

/// A server with two tenants. The token of a tenant is its name.
struct Tenants {
    _server: Server,
    http2: Http2,
    _dir: TempDir,
}

impl Tenants {
    fn start() -> Self {
        let dir = TempDir::new().expect("make a temporary directory");
        let web = dir.path().join("web.yml");
        let token = |name| format!("- {{name: {name}, token: {name}, scopes: [read, write]}}\n");
        let tenant = |name| {
            format!(
                "- {{users: [{name}], matchers: '{{team=\"{name}\"}}', labels: {{team: {name}}}}}\n"
            )
        };
        let text = format!(
            "tenants:\n{}bearer_tokens:\n- {{name: admin, token: adm1n, scopes: [read, write, admin]}}\n{}",
            TENANTS.map(tenant).concat(),
            TENANTS.map(token).concat()
        );
        std::fs::write(&web, text).expect("write a file");
        let config =
            ConfigFile::new(&json!({"global": {"external_labels": {"cluster": "c"}}}).to_string());
        let access = Access {
            authorization: Some(ADMIN.to_owned()),
            ..Access::default()
        };
        let web = format!("--web.config.file={}", web.display());
        let server = Server::start_as(&[&config.flag(), &web], &access);
        let http2 = Http2::connect(server.http().address());
        Self {
            _server: server,
            http2,
            _dir: dir,
        }
    }

    fn call(&self, token: &str, path: &str, message: &[u8]) -> Call {
        self.http2.call(
            path,
            &[("authorization", &format!("Bearer {token}"))],
            message,
        )
    }

    /// Writes a series of both tenants' metric and one of an own metric. The sender claims the
    /// other tenant's label.
    fn write(&self, name: &str, other: &str) {
        let (own, samples) = (format!("secret_{name}"), [(T0, 1.0)]);
        let labels = |metric| [("__name__", metric), (&*own, "x"), ("team", other)];
        let mut timeseries = ["shared", &own].map(|metric| series(&labels(metric), &samples));
        timeseries[0]
            .exemplars
            .push(exemplar(&[("trace_id", &own)], 1.0, T0));
        let request = RoutedWrite {
            timeseries: timeseries.to_vec(),
            tenant: other.to_owned(),
            replica: 0,
        };
        assert_eq!(
            self.call(
                name,
                "/thanos.WriteableStore/RemoteWrite",
                &request.encode_to_vec()
            )
            .status,
            "0"
        );
    }

    /// Returns the value of `team` of each series that a token reads.
    fn teams(&self, token: &str, matcher: Matcher) -> Vec<String> {
        let (min_time, max_time) = (i64::MIN + 1, i64::MAX);
        let request = SeriesRequest {
            min_time,
            max_time,
            matchers: vec![matcher],
            ..SeriesRequest::default()
        };
        let call = self.call(token, "/thanos.Store/Series", &request.encode_to_vec());
        assert_eq!((&*call.status, &*call.message), ("0", ""));
        let team = |(name, value): (String, String)| (name == "team").then_some(value);
        series_of(&call)
            .iter()
            .flat_map(|series| series.labels().into_iter().filter_map(team))
            .collect()
    }

    fn values(&self, token: &str, label: &str) -> Vec<String> {
        let (label, end) = (label.to_owned(), i64::MAX);
        let request = LabelValuesRequest {
            label,
            end,
            ..LabelValuesRequest::default()
        };
        let call = self.call(token, "/thanos.Store/LabelValues", &request.encode_to_vec());
        Texts::decode(&*call.messages[0].1).expect("texts").texts
    }

    /// Returns whether the answer to a request names the own metric of a tenant.
    fn names_secret(&self, token: &str, path: &str, request: &[u8], of: &str) -> bool {
        let call = self.call(token, path, request);
        assert_eq!(call.status, "0", "{path} {}", call.message);
        let secret = format!("secret_{of}");
        call.messages.iter().any(|(_, bytes)| {
            bytes
                .windows(secret.len())
                .any(|part| part == secret.as_bytes())
        })
    }
}

/// Requests for everything.
fn requests_for_all() -> [(&'static str, Vec<u8>); 3] {
    let (query, start, end) = ("{__name__=~\".+\"}".to_owned(), T0 / 1000, 0);
    let instant = QueryRequest { query, start, end };
    let exemplars = QueryRequest {
        query: "shared".to_owned(),
        start: 0,
        end: i64::MAX,
    };
    let names = LabelNamesRequest {
        start: 0,
        end: i64::MAX,
    };
    [
        ("/thanos.Query/Query", instant.encode_to_vec()),
        ("/thanos.Exemplars/Exemplars", exemplars.encode_to_vec()),
        ("/thanos.Store/LabelNames", names.encode_to_vec()),
    ]
}

#[test]
fn a_token_of_a_tenant_reads_and_writes_only_its_series() {
    let tenants = Tenants::start();
    let pairs = [("a", "b"), ("b", "a")];
    for (name, other) in pairs.iter() {
        tenants.write(name, other);
    }
    let everything = || Matcher::matching("__name__", ".+");
    assert_eq!(tenants.teams("adm1n", everything()), ["a", "b", "a", "b"]);
    assert_eq!(
        tenants.values("adm1n", "__name__"),
        ["secret_a", "secret_b", "shared"]
    );
    for (name, other) in pairs {
        assert_eq!(tenants.teams(name, everything()), [name, name]);
        assert!(
            tenants
                .teams(name, Matcher::equal("team", other))
                .is_empty()
        );
        assert_eq!(
            tenants.values(name, "__name__"),
            [&format!("secret_{name}"), "shared"]
        );
        assert_eq!(tenants.values(name, "team"), [name]);
        assert_eq!(tenants.values(name, "cluster"), ["c"]);
        let (query, time_s) = ("count({__name__=~\".+\"})".to_owned(), T0 / 1000);
        let range = QueryRangeRequest {
            query,
            start_time_seconds: time_s,
            end_time_seconds: time_s,
            interval_seconds: 1,
        };
        let count = |token| {
            tenants
                .call(token, "/thanos.Query/QueryRange", &range.encode_to_vec())
                .messages
        };
        assert!(!count(name).is_empty() && count(name) != count("adm1n"));
        for (path, request) in requests_for_all() {
            let has = |token: &str, of: &str| tenants.names_secret(token, path, &request, of);
            assert!(
                has("adm1n", other) && has(name, name) && !has(name, other),
                "{path} {name}"
            );
        }
        for path in DENIED {
            // PermissionDenied.
            assert_eq!(tenants.call(name, path, b"").status, "7", "{path}");
            assert_ne!(tenants.call("adm1n", path, b"").status, "7", "{path}");
        }
        assert_eq!(
            tenants.call(name, "/thanos.info.Info/Info", b"").status,
            "0"
        );
    }
}
