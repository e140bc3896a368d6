//! `--web.external-url` and `--web.route-prefix`: paths, redirects, CORS and links.

use crate::harness::{Access, Http, Releases, Server, releases, try_serve};
use tempfile::TempDir;

/// Flags, the prefix that follows from them, and the URL that links begin with.
const SETUPS: &[(&[&str], &str, &str)] = &[
    (
        &["--web.external-url=http://ex.org/prom/"],
        "/prom",
        "http://ex.org/prom",
    ),
    (
        &[
            "--web.external-url=http://ex.org/ext",
            "--web.route-prefix=/prom",
        ],
        "/prom",
        "http://ex.org/ext",
    ),
    (
        &[
            "--web.external-url=http://ex.org/ext",
            "--web.route-prefix=a/b/",
        ],
        "/a/b",
        "http://ex.org/ext",
    ),
    (
        &[
            "--web.external-url=http://ex.org/ext",
            "--web.route-prefix=/",
        ],
        "",
        "http://ex.org/ext",
    ),
    (&["--web.external-url=https://ex.org"], "", "https://ex.org"),
    (&["--web.external-url=/prom"], "/prom", "/prom"),
    (&["--web.route-prefix=/api"], "/api", "http://"),
    (&[], "", "http://"),
];

/// Requests with their responses. `{}` is the prefix.
const RESPONSES: &[(&str, &str)] = &[
    ("GET {}/-/healthy", "200"),
    ("GET {}/-/ready", "200"),
    ("GET {}/metrics", "200"),
    ("GET {}/version", "200"),
    ("GET {}/federate", "200"),
    ("GET {}/api/v1/status/buildinfo", "200 cors"),
    ("POST {}/api/v1/labels", "200 cors"),
    ("GET {}/nonsense", "404"),
    ("GET {}/api/v1", "307 {}/api/v1/"),
    ("GET {}/api/v1/", "404"),
    ("GET {}/api/v1/nonsense", "404"),
    ("GET {}/-/healthy/", "301 {}/-/healthy"),
    ("GET /{}//-/healthy", "307 {}/-/healthy"),
    ("GET {}/./-/healthy?a=b", "307 {}/-/healthy?a=b"),
    ("GET {}/../x", "307 {..}/x"),
    ("HEAD {}/-/healthy", "200"),
    ("HEAD {}/api/v1/labels", "405 GET, OPTIONS, POST"),
    ("OPTIONS {}/-/healthy", "200 GET, HEAD, OPTIONS"),
    ("OPTIONS {}/api/v1/labels", "204 cors"),
    ("OPTIONS {}/api/v1/nonsense", "204 cors"),
    ("POST {}/-/healthy", "405 GET, HEAD, OPTIONS"),
];

/// As [`RESPONSES`], for servers with a prefix.
const OUTSIDE: &[(&str, &str)] = &[
    ("GET /", "302 {}"),
    ("GET /?a=b", "302 {}"),
    ("POST /", "405 GET, OPTIONS"),
    ("HEAD /", "405 GET, OPTIONS"),
    ("OPTIONS /", "200 GET, OPTIONS"),
    ("GET {}", "301 {}/"),
    ("GET {}?a=b", "301 {}/?a=b"),
    ("GET {}x", "404"),
    ("GET {}x/-/healthy", "404"),
    ("GET /-/healthy", "404"),
    ("GET /metrics", "404"),
    ("GET /x/api/v1/labels", "404"),
    ("GET /api/v1/labels", "404"),
    ("OPTIONS /api/v1/labels", "404"),
];

/// Sends a request of another origin as it is written, and returns status, `Location`, `Allow` and
/// whether CORS is allowed.
fn respond(http: &Http, request: &str) -> String {
    let text = format!(
        "{request} HTTP/1.1\r\nhost: x\r\norigin: http://o\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    );
    let response = http.connect().send(text.as_bytes()).read_to_end();
    let head = response.split("\r\n\r\n").next().unwrap_or_default();
    let status = head
        .get(9..12)
        .unwrap_or_else(|| panic!("{request}: {response}"));
    let headers = head.lines().filter_map(|line| line.split_once(": "));
    let shown = headers.filter_map(|(name, value)| match name.to_ascii_lowercase().as_str() {
        "location" | "allow" => Some(value),
        "access-control-allow-origin" => Some("cors"),
        _ => None,
    });
    [status]
        .into_iter()
        .chain(shown)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Returns requests with the expected responses of a server with this prefix.
fn requests(prefix: &str) -> impl Iterator<Item = (String, String)> {
    let outside = if prefix.is_empty() { &[] } else { OUTSIDE };
    let parent = prefix
        .rsplit_once('/')
        .map_or("", |(parent, _)| parent)
        .to_owned();
    let fill = move |text: &str, prefix: &str| text.replace("{}", prefix).replace("{..}", &parent);
    let prefix = prefix.to_owned();
    RESPONSES
        .iter()
        .chain(outside)
        .map(move |(request, response)| (fill(request, &prefix), fill(response, &prefix)))
}

#[test]
fn endpoints_and_redirects_are_below_the_prefix() {
    for (flags, prefix, url) in SETUPS {
        let server = Server::start_with(flags, |address| Http::new(address).below(prefix));
        for (request, expect) in requests(prefix) {
            assert_eq!(
                respond(server.http(), &request),
                expect,
                "{flags:?} {request}"
            );
        }
        let openapi = server
            .http()
            .get("/api/v1/openapi.yaml")
            .expect_status(200)
            .text();
        assert!(
            openapi.contains(&format!("servers:\n- url: {url}")),
            "{flags:?} {openapi:.500}"
        );
        // Requests are counted by path without the prefix.
        assert!(
            server.metric("prometheus_http_requests_total{code=\"200\",handler=\"/metrics\"}")
                >= 1.0
        );
    }
}

#[test]
fn a_prefix_with_special_characters_is_escaped() {
    let server = Server::start_with(&["--web.external-url=http://ex.org/a b/é"], |address| {
        Http::new(address).below("/a%20b/%C3%A9")
    });
    assert_eq!(respond(server.http(), "GET /"), "302 /a%20b/%C3%A9");
    assert_eq!(
        respond(server.http(), "GET /a%20%62/%c3%a9/-/healthy"),
        "200"
    );
    assert_eq!(
        respond(server.http(), "GET /a%20b/%C3%A9/-/healthy/"),
        "301 /a%20b/%C3%A9/-/healthy"
    );
}

#[test]
fn a_prefix_changes_no_permission() {
    let dir = TempDir::new().expect("make a temporary directory");
    let file = dir.path().join("web.yml");
    let token = "bearer_tokens: [{name: reader, token: t0ken, scopes: [read]}]\n";
    std::fs::write(&file, token).expect("write a file");
    let flag = format!("--web.config.file={}", file.display());
    let flags = [
        &flag,
        "--web.enable-admin-api",
        "--web.enable-lifecycle",
        "--web.route-prefix=/prom",
    ];
    let reader = Access {
        authorization: Some("Bearer t0ken".to_owned()),
        ..Access::default()
    };
    let server = Server::start_with(&flags, |address| Http::of(address, &reader).below("/prom"));
    let (reader, anyone) = (server.http(), server.http().with(&Access::default()));
    assert_eq!(reader.get("/api/v1/labels").status, 200);
    assert_eq!(anyone.get("/api/v1/labels").status, 401);
    // The web page contains no data.
    assert_eq!(respond(&anyone, "GET /"), "302 /prom");
    for path in ["/api/v1/admin/tsdb/snapshot", "/api/v1/write", "/-/quit"] {
        assert_eq!(reader.post(path, &[], b"").status, 403, "{path}");
    }
}

#[test]
fn an_invalid_external_url_is_rejected() {
    let dir = TempDir::new().expect("make a temporary directory");
    let (status, output) = try_serve(dir.path(), &["--web.external-url=http://ex.org:port/"]);
    assert!(
        !status.success() && output.contains("'--web.external-url <URL>': invalid port"),
        "{output}"
    );
}

#[test]
fn prometheus_responds_alike() {
    // Older releases redirect with other statuses.
    for release in releases()
        .iter()
        .filter(|release| !release.is_of(Releases::Older))
    {
        for (flags, prefix, _) in SETUPS {
            let prometheus = release.start_below(prefix, "", flags);
            for (request, expect) in requests(prefix) {
                assert_eq!(
                    respond(prometheus.http(), &request),
                    expect,
                    "{release:?} {flags:?} {request}"
                );
            }
        }
    }
}
