//! Tenants: each token reads and writes only the series of its tenant.

use prost::Message as _;
use serde_json::Value as Json;
use tempfile::TempDir;

use super::api::{CALLS, NEW, ask};
use crate::harness::messages::otlp;
use crate::harness::{
    Access, Http, MetricType, Random, Server, WriteRequest, exemplar, family, now_ms, series, v2,
    wait_until,
};

const ADMIN: &str = "Bearer adm1n";
const TENANTS: [&str; 2] = ["a", "b"];

/// A server with two tenants, and metrics, labels, values, exemplars and metadata that only one of
/// them has.
struct Fixture {
    server: Server,
    now_ms: i64,
    dir: TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self::with("")
    }

    /// Creates a fixture whose first tenant has these limits.
    fn with(limits: &str) -> Self {
        Self::start(
            TempDir::new().expect("make a temporary directory"),
            limits,
            &[],
        )
    }

    fn start(dir: TempDir, limits: &str, more_flags: &[&str]) -> Self {
        let path = dir.path().join("web.yml");
        let token = |(name, scope)| {
            format!("- {{name: {name}-{scope}, token: {name}-{scope}, scopes: [{scope}]}}\n")
        };
        let tokens = TENANTS
            .iter()
            .flat_map(|name| [(name, "read"), (name, "write"), (name, "admin")])
            .map(token)
            .collect::<String>();
        let tenant = |name| {
            format!(
                "- {{users: [{name}-read, {name}-write, {name}-admin], matchers: '{{team=\"{name}\"}}', labels: {{team: {name}}}{}}}\n",
                if name == "a" { limits } else { "" }
            )
        };
        let tenants = TENANTS.map(tenant).concat();
        let text = format!(
            "tenants:\n{tenants}bearer_tokens:\n- {{name: admin, token: adm1n, scopes: [read, write, admin]}}\n{tokens}"
        );
        std::fs::write(&path, text).expect("write a file");
        let web_config = format!("--web.config.file={}", path.display());
        let flags = [
            &web_config,
            "--web.enable-admin-api",
            "--enable-feature=search-api",
            "--query.queue-timeout=1s",
        ];
        let access = Access {
            authorization: Some(ADMIN.to_owned()),
            ..Access::default()
        };
        let flags: Vec<&str> = flags
            .iter()
            .copied()
            .chain(more_flags.iter().copied())
            .collect();
        let server = Server::start_as(&flags, &access);
        let fixture = Self {
            server,
            now_ms: now_ms() - 60_000,
            dir,
        };
        for name in TENANTS {
            fixture.write(name);
        }
        fixture
    }

    fn client(&self, token: &str) -> Http {
        self.server.http().with(&Access {
            authorization: Some(format!("Bearer {token}")),
            ..Access::default()
        })
    }

    fn reader(&self, tenant: &str) -> Http {
        self.client(&format!("{tenant}-read"))
    }

    /// Writes by every protocol. The sender claims the other tenant's label.
    fn write(&self, tenant: &str) {
        let http = self.client(&format!("{tenant}-write"));
        let (own, other) = (
            format!("secret_{tenant}"),
            TENANTS.iter().find(|name| **name != tenant).expect("two"),
        );
        let times: Vec<_> = (0..4)
            .map(|i| (self.now_ms + 15_000 * i, f64::from(i as i32)))
            .collect();
        let labels = |i: usize| {
            vec![
                ("__name__", "shared"),
                ("i", ["0", "1", "2"][i]),
                (&own, "x"),
                ("team", other),
            ]
        };
        let mut all: Vec<_> = (0..3).map(|i| series(&labels(i), &times)).collect();
        all[0]
            .exemplars
            .push(exemplar(&[("trace_id", &own)], 1.0, self.now_ms));
        all.push(series(&[("__name__", &own)], &times));
        let request = WriteRequest {
            metadata: vec![
                family(&own, MetricType::Gauge, &own, ""),
                // Both tenants describe it.
                family("shared", MetricType::Gauge, &own, ""),
            ],
            ..WriteRequest::new(all)
        };
        http.write(&request).expect_status(204);
        let mut request = v2::Request::default();
        request.add(
            &[("__name__", "version_2"), ("v", &own), ("team", other)],
            &[(self.now_ms, 1.0, 0)],
        );
        http.write_v2(&request).expect_status(204);
        http.post(
            "/api/v1/import/prometheus",
            &[],
            format!("imported{{v=\"{own}\"}} 1 {}\n", self.now_ms).as_bytes(),
        )
        .expect_status(204);
        let line = format!(
            r#"{{"metric":{{"__name__":"line","v":"{own}"}},"values":[1],"timestamps":[{}]}}"#,
            self.now_ms
        );
        http.post("/api/v1/import", &[], line.as_bytes())
            .expect_status(204);
        let point = otlp::NumberPoint {
            time_ns: self.now_ms.cast_unsigned() * 1_000_000,
            value: Some(otlp::Number::Int(1)),
            attributes: otlp::attributes([("v", otlp::text(&own)), ("team", otlp::text(other))]),
            ..otlp::NumberPoint::default()
        };
        let metric = otlp::Metric {
            name: "otlp".to_owned(),
            data: Some(otlp::Data::Gauge(otlp::Gauge {
                points: vec![point],
            })),
            ..otlp::Metric::default()
        };
        let scopes = vec![otlp::ScopeMetrics {
            metrics: vec![metric],
            ..otlp::ScopeMetrics::default()
        }];
        let resource = otlp::Resource {
            attributes: otlp::attributes([
                ("service.name", otlp::text(&own)),
                ("k", otlp::text(&own)),
            ]),
        };
        let request = otlp::Request {
            resources: vec![otlp::ResourceMetrics {
                resource: Some(resource),
                scopes,
            }],
        };
        let headers = [("Content-Type", "application/x-protobuf")];
        http.post(
            "/api/v1/otlp/v1/metrics",
            &headers,
            &request.encode_to_vec(),
        )
        .expect_status(200);
    }

    /// Returns how often a limit was reached.
    fn hits(&self, limit: &str) -> f64 {
        self.server
            .metric(&format!("varve_limits_hit_total{{limit=\"{limit}\"}}"))
    }

    fn query(&self, http: &Http, expr: &str) -> Json {
        let time = (self.now_ms + 60_000).to_string();
        let time = format!("{}.{}", &time[..time.len() - 3], &time[time.len() - 3..]);
        let answer = http.query("/api/v1/query", &[("query", expr), ("time", &time)]);
        if answer.status == 200 {
            answer.data()["result"].clone()
        } else {
            Json::from(answer.status)
        }
    }
}

#[test]
fn whatever_a_tenant_writes_has_its_labels() {
    let fixture = Fixture::new();
    let admin = fixture.server.http();
    for tenant in TENANTS {
        let own = format!("secret_{tenant}");
        let names = fixture.query(
            admin,
            &format!("count by (__name__, team) ({{team=\"{tenant}\"}})"),
        );
        let names: Vec<_> = names
            .as_array()
            .expect("a vector")
            .iter()
            .map(|of| of["metric"]["__name__"].clone())
            .collect();
        for name in [
            "imported",
            "line",
            "otlp",
            &own,
            "shared",
            "target_info",
            "version_2",
        ] {
            assert!(
                names.contains(&Json::from(name)),
                "{tenant}: {name} is not in {names:?}"
            );
        }
    }
    assert_eq!(
        fixture.query(
            admin,
            "count({__name__=~\".+\",team!~\"a|b\",job!=\"varve\"})"
        ),
        Json::Array(Vec::new())
    );
    // Known series keep their route: a second write of the other tenant goes to its own series.
    fixture.write("a");
    fixture.write("b");
    let counts = fixture.query(admin, "count by (team) (shared)");
    assert!(
        counts
            .as_array()
            .expect("a vector")
            .iter()
            .all(|of| of["value"][1] == "3"),
        "{counts}"
    );
}

#[test]
fn no_endpoint_shows_anything_of_another_tenant() {
    let fixture = Fixture::new();
    let mut n_ok = 0;
    for (tenant, other) in [("a", "secret_b"), ("b", "secret_a")] {
        let http = fixture.reader(tenant);
        for call in CALLS.iter().chain(NEW) {
            let answer = ask(&http, *call);
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            assert!(!text.contains(other), "{tenant} {call:?}: {text}");
            n_ok += usize::from(answer.status == 200);
        }
        // Reads that select everything.
        let all = ("match[]", "{__name__=~\".+\"}");
        for (path, parameters) in [
            ("/api/v1/series", &[all][..]),
            ("/api/v1/labels", &[]),
            ("/api/v1/labels", &[all]),
            ("/api/v1/label/v/values", &[]),
            ("/api/v1/label/__name__/values", &[all]),
            ("/api/v1/metadata", &[]),
            ("/federate", &[all]),
            ("/api/v1/export", &[all]),
            ("/api/v1/query", &[("query", "{__name__=~\".+\"}")]),
            ("/api/v1/query", &[("query", "{__name__=~\".+\"}[5m]")]),
            (
                "/api/v1/query_exemplars",
                &[("query", "shared"), ("start", "0"), ("end", "9999999999")],
            ),
            (
                "/api/v1/search/metric_names",
                &[("search[]", "secret"), ("include_metadata", "true")],
            ),
            ("/api/v1/search/label_names", &[("search[]", "secret")]),
            (
                "/api/v1/search/label_values",
                &[("label", "v"), ("search[]", "secret")],
            ),
        ] {
            let answer = http.query(path, parameters).expect_status(200);
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            assert!(
                !text.contains(other),
                "{tenant} {path} {parameters:?}: {text}"
            );
            assert!(
                text.contains(&format!("secret_{tenant}")),
                "{tenant} {path} {parameters:?}: {text}"
            );
        }
        for path in [
            "/metrics",
            "/api/v1/status/tsdb",
            "/api/v1/status/queries",
            "/api/v1/rules/explain",
            "/api/v1/status/config",
        ] {
            http.get(path).expect_status(403);
        }
    }
    assert!(n_ok > 50, "{n_ok} calls succeeded");
}

/// What a tenant sees equals what an unrestricted user sees with the matcher added by hand: random
/// selectors.
#[test]
fn a_tenant_sees_what_the_matcher_selects() {
    const SEED: u64 = 26;
    const NAMES: [&str; 8] = [
        "__name__", "i", "v", "team", "job", "secret_a", "secret_b", "absent",
    ];
    const VALUES: [&str; 11] = [
        "",
        "a",
        "b",
        "0",
        "0|1",
        ".*",
        ".+",
        "x|",
        "s.+",
        "secret_a|shared",
        "[^b]*",
    ];
    const WRAPPERS: [&str; 9] = [
        "@",
        "count(@)",
        "count by (team) (@)",
        "sum by (i) (rate(@[5m]))",
        "absent(@)",
        "max_over_time(@[2m:15s])",
        "count(@) or count(@ offset 1s)",
        "group by (__name__) (@ or on () vector(1))",
        "scalar(count(@))",
    ];
    let fixture = Fixture::new();
    let mut random = Random::new(SEED);
    let mut pick = |list: &[&'static str]| list[random.below(list.len() as u64) as usize];
    let (mut n_compared, mut n_nonempty) = (0, 0);
    while n_compared < 400 {
        let mut matchers = Vec::new();
        while matchers.is_empty() || (matchers.len() < 3 && pick(&["more", "end"]) == "more") {
            matchers.push(format!(
                "{}{}\"{}\"",
                pick(&NAMES),
                pick(&["=", "!=", "=~", "!~"]),
                pick(&VALUES)
            ));
        }
        let (wrapper, tenant) = (pick(&WRAPPERS), pick(&TENANTS));
        let selected =
            |matchers: &[String]| wrapper.replace('@', &format!("{{{}}}", matchers.join(",")));
        let seen = fixture.query(&fixture.reader(tenant), &selected(&matchers));
        // A selector must not match the empty label set.
        if seen == 400 {
            continue;
        }
        matchers.push(format!("team=\"{tenant}\""));
        let expect = fixture.query(fixture.server.http(), &selected(&matchers));
        // The labels of absent() are those of the expression.
        let is_same =
            seen == expect || wrapper.contains("absent") && is_empty(&seen) == is_empty(&expect);
        assert!(
            is_same,
            "seed {SEED}, {tenant}: {wrapper} of {matchers:?}: {seen}, expected {expect}"
        );
        n_compared += 1;
        n_nonempty += usize::from(!is_empty(&seen));
    }
    assert!(n_nonempty > 150, "{n_nonempty}");
}

fn is_empty(result: &Json) -> bool {
    result.as_array().is_some_and(Vec::is_empty)
}

#[test]
fn a_tenant_sees_the_rules_and_alerts_with_its_labels() {
    let dir = TempDir::new().expect("make a temporary directory");
    let rules = "{alert: OfA, expr: 'shared{i=\"0\",team=\"b\"}', labels: {team: a}}, \
                 {alert: OfBoth, expr: 'shared{i=\"1\"}'}, {record: 'secret_b:x', expr: 1 > bool 0, labels: {team: b}}";
    let (file, config) = (dir.path().join("rules.yml"), dir.path().join("varve.yml"));
    std::fs::write(
        &file,
        format!("groups: [{{name: g, interval: 1s, rules: [{rules}]}}]"),
    )
    .expect("write a file");
    std::fs::write(&config, "rules: {wait: none}\nrule_files: [rules.yml]").expect("write a file");
    let config_flag = format!("--config.file={}", config.display());
    let fixture = Fixture::start(dir, "", &[&config_flag]);
    let alerts = |http: &Http| {
        let alerts = http.get("/api/v1/alerts").data()["alerts"].take();
        let name = |alert: &Json| {
            format!(
                "{} {}",
                alert["labels"]["alertname"], alert["labels"]["team"]
            )
            .replace('"', "")
        };
        let mut names: Vec<_> = alerts
            .as_array()
            .expect("a list")
            .iter()
            .map(name)
            .collect();
        names.sort();
        names
    };
    let all = ["OfA a", "OfBoth a", "OfBoth b"];
    wait_until("all alerts", || alerts(fixture.server.http()) == all);
    assert_eq!(alerts(&fixture.reader("a")), all[..2]);
    assert_eq!(alerts(&fixture.reader("b")), all[2..]);
    for (tenant, name, n_alerts) in [("a", "OfA", 1), ("b", "secret_b:x", 0)] {
        let answer = fixture.reader(tenant).get("/api/v1/rules?evaluations=true");
        let groups = answer.data()["groups"].take();
        let rules = groups[0]["rules"].as_array().expect("a list");
        assert_eq!(
            (rules.len(), &rules[0]["name"]),
            (1, &Json::from(name)),
            "{groups}"
        );
        assert_eq!(
            rules[0]["alerts"].as_array().map_or(0, Vec::len),
            n_alerts,
            "{groups}"
        );
        assert_eq!(
            (&rules[0]["evaluations"], &rules[0]["lastError"]),
            (&Json::Null, &Json::Null),
            "{groups}"
        );
    }
    let all_rules = fixture
        .server
        .http()
        .get("/api/v1/rules?evaluations=true")
        .data()["groups"][0]["rules"]
        .take();
    assert!(
        all_rules
            .as_array()
            .is_some_and(|all| all.len() == 3 && all[0]["evaluations"].is_array()),
        "{all_rules}"
    );
}

#[test]
fn a_tenant_deletes_only_its_series() {
    let fixture = Fixture::new();
    let count =
        |tenant| fixture.query(&fixture.reader(tenant), "count(shared)")[0]["value"][1].clone();
    let path = "/api/v1/admin/tsdb/delete_series?match[]=shared";
    fixture
        .client("a-read")
        .post(path, &[], b"")
        .expect_status(403);
    fixture
        .client("a-admin")
        .post(path, &[], b"")
        .expect_status(204);
    assert_eq!((count("a"), count("b")), (Json::Null, Json::from("3")));
    fixture
        .client("a-admin")
        .post("/api/v1/admin/tsdb/snapshot", &[], b"")
        .expect_status(403);
}

#[test]
fn users_of_a_tenant_are_no_administrators() {
    let fixture = Fixture::new();
    for path in [
        "/api/v1/admin/tsdb/snapshot",
        "/api/v1/admin/tsdb/delete_series?match[]=shared",
        "/-/reload",
    ] {
        for token in ["a-read", "a-write"] {
            fixture
                .client(token)
                .post(path, &[], b"")
                .expect_status(403);
        }
    }
    fixture
        .client("a-write")
        .get("/api/v1/query?query=up")
        .expect_status(403);
    fixture
        .client("a-read")
        .post("/api/v1/write", &[], b"")
        .expect_status(403);
}

#[test]
fn limits_of_a_tenant_leave_others_alone() {
    let fixture = Fixture::with(", limits: {memory: 1KiB}");
    let count = [("query", "count({i=~\"0|1\"})")];
    for n_failures in 0..5 {
        let exceeded = fixture
            .reader("a")
            .query("/api/v1/query", &count)
            .expect_status(422);
        assert!(
            exceeded.text().contains("tenants.limits.memory"),
            "{exceeded:?}"
        );
        assert_eq!(
            exceeded.text().contains("failed 3 times in a row"),
            n_failures >= 3,
            "{exceeded:?}"
        );
        fixture
            .reader("b")
            .query("/api/v1/query", &count)
            .expect_status(200);
    }
    let (admin, path) = (fixture.server.http(), "/api/v1/status/rejected_queries");
    let reset = "/api/v1/admin/rejected_queries/reset";
    let rejected = admin.get(path).data()[0].clone();
    assert_eq!(
        (
            &rejected["user"],
            &rejected["failures"],
            &rejected["rejected"]
        ),
        (&"a-read".into(), &3.into(), &2.into())
    );
    assert!(
        rejected["rejectedForSeconds"]
            .as_f64()
            .is_some_and(|left_s| left_s > 0.0),
        "{rejected}"
    );
    fixture.reader("a").get(path).expect_status(403);
    fixture.reader("a").post(reset, &[], b"").expect_status(403);
    admin.post(reset, &[], b"").expect_status(204);
    assert_eq!(admin.get(path).data(), Json::Array(Vec::new()));
    let again = fixture
        .reader("a")
        .query("/api/v1/query", &count)
        .expect_status(422);
    assert!(!again.text().contains("in a row"), "{again:?}");
    assert!(fixture.hits("tenants.limits.memory") >= 4.0);

    let fixture = Fixture::with(", limits: {samples: 3, range: 10m}");
    // Three series of "shared", each with four samples.
    let check = |reader: &str, path: &str, query: &[(&str, &str)], status: u16, limit: &str| {
        let answer = fixture
            .reader(reader)
            .query(path, query)
            .expect_status(status);
        assert!(answer.text().contains(limit), "{answer:?}");
    };
    let time = (fixture.now_ms / 1000 + 60).to_string();
    let sum = [("query", "sum(sum_over_time(shared[1m]))"), ("time", &time)];
    check("a", "/api/v1/query", &sum, 422, "tenants.limits.samples: ");
    check("b", "/api/v1/query", &sum, 200, "");
    check(
        "a",
        "/api/v1/query",
        &[("query", "secret_a"), ("time", &time)],
        200,
        "",
    );
    let long = [("query", "count_over_time(secret_a[1h])"), ("time", &time)];
    check(
        "a",
        "/api/v1/query",
        &long,
        422,
        "tenants.limits.range: 3600 exceeds the limit of 600",
    );
    check("b", "/api/v1/query", &long, 200, "");
    check(
        "a",
        "/api/v1/export",
        &[("match[]", "secret_a")],
        422,
        "tenants.limits.range",
    );
    assert_eq!(
        (
            fixture.hits("tenants.limits.samples"),
            fixture.hits("tenants.limits.range")
        ),
        (1.0, 2.0)
    );
    // Clients request names and values for all of time.
    check("a", "/api/v1/labels", &[], 200, "secret_a");
    check(
        "a",
        "/api/v1/label/i/values",
        &[("start", "0")],
        200,
        "\"0\"",
    );
    check(
        "a",
        "/api/v1/series",
        &[("match[]", "shared")],
        200,
        "shared",
    );

    let fixture = Fixture::with(", limits: {concurrency: 1}");
    let mut slow = fixture.server.http().connect();
    let (start, end) = (fixture.now_ms / 1000 - 10_000, fixture.now_ms / 1000);
    // Equal expressions are evaluated once: each part has its own range.
    let parts: Vec<_> = (300..900)
        .map(|range_s| format!("quantile_over_time(0.5,vector(time())[{range_s}s:1s])"))
        .collect();
    let query = parts.join("%2B");
    let request = format!(
        "GET /api/v1/query_range?query={query}&start={start}&end={end}&step=1 HTTP/1.1\r\n\
         Host: x\r\nAuthorization: Bearer a-read\r\n\r\n"
    );
    slow.send(request.as_bytes());
    wait_until("the query to run", || {
        fixture
            .server
            .metric("varve_requests_active{class=\"query\"}")
            == 1.0
    });
    let queued = fixture
        .reader("a")
        .get("/api/v1/query?query=shared")
        .expect_status(503);
    assert!(
        queued.text().contains("tenants.limits.concurrency"),
        "{queued:?}"
    );
    assert_eq!(fixture.hits("tenants.limits.concurrency"), 1.0);
    fixture
        .reader("b")
        .get("/api/v1/query?query=shared")
        .expect_status(200);
    drop(slow);
    wait_until("the permit to be free", || {
        fixture.reader("a").get("/api/v1/query?query=shared").status == 200
    });
}

/// The breaker opens after failures in a row, evaluates the query again after its timeout, and
/// closes when it succeeds.
#[test]
fn the_breaker_of_a_query_opens_and_closes() {
    let dir = TempDir::new().expect("make a temporary directory");
    let fixture = Fixture::start(
        dir,
        ", limits: {memory: 1KiB}",
        &["--query.breaker-timeout=4s"],
    );
    let ask = || {
        fixture
            .reader("a")
            .query("/api/v1/query", &[("query", "count({i=~\"0|1\"})")])
    };
    let is_rejected = |n_failures: usize| {
        let text = ask().expect_status(422).text();
        text.contains(&format!(
            "failed {n_failures} times in a row and is not evaluated"
        ))
    };
    let hits = || fixture.hits("query failures");
    (0..3).for_each(|_| assert!(!is_rejected(0)));
    assert!(is_rejected(3));
    assert_eq!(hits(), 1.0);
    wait_until("the query to be evaluated again", || !is_rejected(3));
    let n_rejected = hits();
    assert!(is_rejected(4), "one failure opens it again");
    assert_eq!(hits(), n_rejected + 1.0);
    let web = fixture.dir.path().join("web.yml");
    let text = std::fs::read_to_string(&web).expect("read a file");
    std::fs::write(&web, text.replace("memory: 1KiB", "memory: 1GiB")).expect("write a file");
    wait_until("the query to succeed", || ask().status == 200);
    let list = || {
        fixture
            .server
            .http()
            .get("/api/v1/status/rejected_queries")
            .data()
    };
    assert_eq!(list(), Json::Array(Vec::new()), "a success closes it");
}
