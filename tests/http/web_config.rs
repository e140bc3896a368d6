//! `--web.config.file`: TLS, client certificates, passwords and tokens.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::json;
use tempfile::TempDir;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

use super::T0;
use crate::harness::{Access, Http2, Server, WriteRequest, missing, series, wait_until};

const PASSWORD: &str = "s3cret-password";
/// bcrypt hash of [`PASSWORD`] at the lowest cost, to keep the test fast.
const HASH: &str = "$2b$04$8KrP1t9Y6XYqt1mVmw0l0uf.ZLKs2s.t/PXMuPbGNDzI3XCW.H3Ey";

/// Certificates of a server, a client and their issuer, in PEM.
struct Made {
    ca: String,
    server: (String, String),
    client: (String, String),
}

fn make() -> Made {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("make a key");
    let ca = params.self_signed(&key).expect("sign a certificate").pem();
    let issuer = Issuer::new(params, key);
    let signed = |purpose| {
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).expect("a valid name");
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate().expect("make a key");
        (
            params
                .signed_by(&key, &issuer)
                .expect("sign a certificate")
                .pem(),
            key.serialize_pem(),
        )
    };
    Made {
        ca,
        server: signed(ExtendedKeyUsagePurpose::ServerAuth),
        client: signed(ExtendedKeyUsagePurpose::ClientAuth),
    }
}

impl Made {
    fn write_to(&self, dir: &Path) {
        for (name, text) in [
            ("ca.pem", &self.ca),
            ("server.pem", &self.server.0),
            ("server.key", &self.server.1),
        ] {
            std::fs::write(dir.join(name), text).expect("write a file");
        }
    }

    fn tls(&self, with_client_cert: bool) -> TlsConfig {
        let cert = |pem: &str| Certificate::from_pem(pem.as_bytes()).expect("a certificate in PEM");
        let key = PrivateKey::from_pem(self.client.1.as_bytes()).expect("a key in PEM");
        let client =
            with_client_cert.then(|| ClientCert::new_with_certs(&[cert(&self.client.0)], key));
        TlsConfig::builder()
            .root_certs(RootCerts::new_with_certs(&[cert(&self.ca)]))
            .client_cert(client)
            .build()
    }
}

/// Returns the credentials of `ann`.
fn basic(password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("ann:{password}")))
}

fn access(tls: Option<TlsConfig>, authorization: &str) -> Access {
    Access {
        tls,
        authorization: Some(authorization.to_owned()),
    }
}

#[test]
fn passwords_and_tokens_grant_their_scopes() {
    let dir = TempDir::new().expect("make a temporary directory");
    let path = dir.path().join("web.yml");
    let tokens = "bearer_tokens:\n- {name: reader, token: t0ken-r, scopes: [read]}\n- {name: writer, token: t0ken-w, scopes: [write]}\n";
    let users = |hash: &str| format!("basic_auth_users: {{ann: \"{}\"}}\n{tokens}", hash);
    std::fs::write(&path, users(HASH)).expect("write a file");
    let flags = [
        format!("--web.config.file={}", path.display()),
        "--web.enable-admin-api".to_owned(),
    ];
    let mut server = Server::start_as(&[&flags[0], &flags[1]], &access(None, &basic(PASSWORD)));

    let status = |authorization: Option<&str>, path: &str| {
        let authorization = authorization.map(str::to_owned);
        server
            .http()
            .with(&Access {
                tls: None,
                authorization,
            })
            .get(path)
            .status
    };
    for path in [
        "/api/v1/query?query=1",
        "/api/v1/status/flags",
        "/metrics",
        "/nowhere",
    ] {
        assert_eq!(status(None, path), 401, "{path}");
        assert_eq!(status(Some(&basic("wrong")), path), 401, "{path}");
        assert_eq!(status(Some("Bearer wrong"), path), 401, "{path}");
        assert_eq!(status(Some("Bearer t0ken-w"), path), 403, "{path}");
    }
    for authorization in [&basic(PASSWORD), "Bearer t0ken-r"] {
        assert_eq!(status(Some(authorization), "/api/v1/query?query=1"), 200);
    }
    let unknown = server.http().with(&Access::default()).get("/api/v1/labels");
    assert_eq!(
        (unknown.header("www-authenticate"), unknown.text().as_str()),
        ("Basic", "Unauthorized\n")
    );

    let up = WriteRequest::new([series(&[("__name__", "up")], &[(T0, 1.0)])]);
    for (token, expect) in [("t0ken-r", 403), ("t0ken-w", 204), ("t0ken-x", 401)] {
        let http = server
            .http()
            .with(&access(None, &format!("Bearer {token}")));
        assert_eq!(http.write(&up).status, expect, "{token}");
        let deleted = http
            .post("/api/v1/admin/tsdb/clean_tombstones", &[], b"")
            .status;
        assert_eq!(deleted, if expect == 401 { 401 } else { 403 }, "{token}");
    }
    server
        .http()
        .post("/api/v1/admin/tsdb/clean_tombstones", &[], b"")
        .expect_status(204);

    // Senders drop the samples of denied writes. So these are listed, and reads are not.
    let admin = server.http();
    let rejects = admin.query("/api/v1/status/rejects", &[]).data();
    let denied = &rejects["rejects"][0];
    assert_eq!(
        (&denied["reason"], &denied["requests"]),
        (&json!("denied"), &json!(2)),
        "{rejects}"
    );
    assert_eq!(denied["sender"]["path"], "/api/v1/write");
    let text = &denied["example"]["text"];
    assert_eq!(text, "the user, password or token is missing or unknown");
    assert!(
        server.log().contains("Write request denied"),
        "{}",
        server.log()
    );

    // A new password takes effect, an invalid hash does not.
    std::fs::write(&path, users("no hash")).expect("write a file");
    wait_until("the file to be rejected", || {
        server.log().contains("the value is not a bcrypt hash")
    });
    assert_eq!(status(Some(&basic(PASSWORD)), "/metrics"), 200);
    std::fs::write(&path, tokens).expect("write a file");
    wait_until("the file to be read", || {
        status(Some(&basic(PASSWORD)), "/metrics") == 401
    });
    assert_eq!(status(Some("Bearer t0ken-r"), "/metrics"), 200);

    let reader = server.http().with(&access(None, "Bearer t0ken-r"));
    let shown = [
        "/metrics",
        "/api/v1/status/flags",
        "/api/v1/status/runtimeinfo",
        "/api/v1/status/queries",
    ];
    let shown: String = shown.map(|path| reader.get(path).text()).concat();
    server.terminate();
    for secret in [PASSWORD, HASH, "t0ken"] {
        assert!(
            !shown.contains(secret) && !server.log().contains(secret),
            "{secret} is shown"
        );
    }
}

#[test]
fn a_reload_does_not_disable_authentication() {
    let dir = TempDir::new().expect("make a temporary directory");
    let path = dir.path().join("web.yml");
    std::fs::write(&path, format!("basic_auth_users: {{ann: \"{HASH}\"}}\n"))
        .expect("write a file");
    let flag = format!("--web.config.file={}", path.display());
    let server = Server::start_as(&[&flag], &access(None, &basic(PASSWORD)));
    let anonymous = server.http().with(&Access::default());
    for text in ["", "http_server_config: {http2: false}\n"] {
        let n_failures = server.metric("varve_web_config_reload_failures_total");
        std::fs::write(&path, text).expect("write a file");
        wait_until("the file to be rejected", || {
            server.metric("varve_web_config_reload_failures_total") > n_failures
        });
        assert_eq!(anonymous.get("/api/v1/labels").status, 401);
    }
    assert!(
        server
            .log()
            .contains("disabling authentication requires a restart")
    );
    server.http().get("/api/v1/labels").expect_status(200);
}

#[test]
fn guessing_passwords_tells_no_user_names_and_leaves_the_processor_to_others() {
    let dir = TempDir::new().expect("make a temporary directory");
    let path = dir.path().join("web.yml");
    let slow = "$2b$10$WA3Fov2nvEF2r0/SrZd3eeCwppeFWhxZhof2DtAcF1YeJwQkZ6eCy";
    let token = "bearer_tokens: [{name: all, token: t0ken, scopes: [read, write]}]";
    let text = format!("basic_auth_users: {{ann: \"{HASH}\", bob: \"{slow}\"}}\n{token}\n");
    std::fs::write(&path, text).expect("write a file");
    let server = Server::start_as(
        &[&format!("--web.config.file={}", path.display())],
        &access(None, "Bearer t0ken"),
    );
    let guess = |credentials: &str| {
        let http = server.http().with(&access(
            None,
            &format!("Basic {}", STANDARD.encode(credentials)),
        ));
        let started = Instant::now();
        (http.get("/api/v1/labels").status, started.elapsed())
    };
    // The hash of ann has the lowest cost, the one of bob a higher one, and nobody has none. On a
    // busy machine it takes several rounds until each had a guess without delay. The sleep outlasts
    // the pause after a guess.
    let mut fastest = [Duration::MAX; 3];
    let is_same = |[ann, bob, nobody]: [Duration; 3]| {
        [ann, nobody]
            .iter()
            .all(|time| *time < 2 * bob && bob < 2 * *time)
    };
    for round in 0..20 {
        for (time, user) in fastest.iter_mut().zip(["ann", "bob", "nobody"]) {
            std::thread::sleep(Duration::from_secs(1));
            let (status, elapsed) = guess(&format!("{user}:guess-{round}"));
            assert_eq!(status, 401);
            *time = elapsed.min(*time);
        }
        if round >= 4 && is_same(fastest) {
            break;
        }
    }
    assert!(is_same(fastest), "ann, bob, nobody: {fastest:?}");
    let bob = fastest[1];

    let started = Instant::now();
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let guess = &guess;
        let threads: Vec<_> = (0..24)
            .map(|thread| {
                scope.spawn(move || {
                    let guesses = (0..).take_while(|_| started.elapsed() < Duration::from_secs(4));
                    guesses
                        .map(|i| guess(&format!("bob:{thread}-{i}")).0)
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        while started.elapsed() < Duration::from_secs(4) {
            let up = WriteRequest::new([series(&[("__name__", "up")], &[(T0, 1.0)])]);
            let sent = Instant::now();
            server.http().write(&up).expect_status(204);
            assert!(
                sent.elapsed() < Duration::from_secs(2),
                "{:?}",
                sent.elapsed()
            );
            std::thread::sleep(Duration::from_millis(100));
        }
        threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("a guesser"))
            .collect()
    });
    let count = |status| statuses.iter().filter(|of| **of == status).count();
    eprintln!("{} times 401, {} times 503", count(401), count(503));
    assert!(count(401) > 0 && count(503) > 0 && count(401) + count(503) == statuses.len());
    // A quarter of a core compares for four seconds, and until the queue is empty. Two whole cores
    // would take eight seconds.
    assert!(
        count(401) as u32 * bob < Duration::from_secs(3),
        "{} times {bob:?}",
        count(401)
    );
}

#[test]
fn connections_use_tls_and_require_client_certificates() {
    let (dir, made) = (TempDir::new().expect("make a temporary directory"), make());
    made.write_to(dir.path());
    let path = dir.path().join("web.yml");
    let config = |client_auth: &str| {
        format!(
            "tls_server_config: {{cert_file: server.pem, key_file: server.key, client_ca_file: ca.pem, client_auth_type: {client_auth}}}\n\
             http_server_config: {{headers: {{X-Frame-Options: deny}}}}\n"
        )
    };
    std::fs::write(&path, config("RequireAndVerifyClientCert")).expect("write a file");
    let of = |with_client_cert| Access {
        tls: Some(made.tls(with_client_cert)),
        authorization: None,
    };
    let server = Server::start_as(
        &[&format!("--web.config.file={}", path.display())],
        &of(true),
    );
    let answer = server
        .http()
        .get("/api/v1/query?query=1")
        .expect_status(200);
    assert_eq!(answer.header("x-frame-options"), "deny");
    // Long responses are complete, and writes succeed.
    server
        .http()
        .write(&WriteRequest::new([series(
            &[("__name__", "up")],
            &[(T0, 1.0)],
        )]))
        .expect_status(204);

    let without = server.http().with(&of(false));
    assert!(
        without.try_get("/-/healthy").is_err(),
        "a client without a certificate is not let in"
    );
    let plain = server
        .http()
        .connect()
        .send(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n")
        .read_to_end();
    assert_eq!(
        plain,
        "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 48\r\nConnection: close\r\n\r\n\
         Client sent an HTTP request to an HTTPS server.\n"
    );
    assert!(server.metric("varve_http_tls_handshakes_failed_total") >= 2.0);

    // A weaker client_auth_type takes a restart.
    std::fs::write(&path, config("VerifyClientCertIfGiven")).expect("write a file");
    wait_until("a rejected reload", || {
        server.metric("varve_web_config_reload_failures_total") >= 1.0
    });
    assert!(
        without.try_get("/-/healthy").is_err(),
        "a client without a certificate is not let in"
    );
    // A new certificate takes effect without a restart.
    let again = make();
    again.write_to(dir.path());
    std::fs::write(&path, config("RequireAndVerifyClientCert")).expect("write a file");
    let again = server.http().with(&Access {
        tls: Some(again.tls(true)),
        authorization: None,
    });
    wait_until("the new certificate", || {
        again
            .try_get("/-/healthy")
            .is_ok_and(|answer| answer.status == 200)
    });
}

#[test]
fn http2_is_spoken_as_client_and_configuration_agree() {
    let (dir, made) = (TempDir::new().expect("make a temporary directory"), make());
    made.write_to(dir.path());
    let path = dir.path().join("web.yml");
    let tls = "tls_server_config: {cert_file: server.pem, key_file: server.key}\n";
    std::fs::write(&path, tls).expect("write a file");
    let of = Access {
        tls: Some(made.tls(false)),
        authorization: None,
    };
    let server = Server::start_as(&[&format!("--web.config.file={}", path.display())], &of);
    let address = server.http().address();
    let chosen = |protocols: &[&str]| Http2::over_tls(address, &made.ca, protocols);
    let (protocol, client) = chosen(&["h2", "http/1.1"]);
    assert_eq!(protocol.as_deref(), Some("h2"));
    let client = client.expect("HTTP/2 was chosen");
    let write = WriteRequest::new([series(&[("__name__", "up"), ("job", "x")], &[(T0, 1.0)])]);
    let headers = [
        ("content-encoding", "snappy"),
        ("content-type", "application/x-protobuf"),
    ];
    let written = client.head(client.send("POST", "/api/v1/write", &headers, &write.to_body()));
    assert_eq!(written.status(), 204);
    // Many concurrent requests, served in any order.
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let sent: Vec<_> = (0..100)
        .map(|i| {
            client.send(
                "POST",
                "/api/v1/query",
                &form,
                format!("query=up%2B{i}&time=1700000000").as_bytes(),
            )
        })
        .collect();
    for (i, sent) in sent.into_iter().enumerate() {
        let answer = client.head(sent);
        assert_eq!(
            (answer.status().as_u16(), answer.version()),
            (200, hyper::Version::HTTP_2)
        );
        let body = client.body(answer).expect("a whole answer");
        assert!(
            String::from_utf8_lossy(&body).ends_with(&format!("[1700000000,\"{}\"]}}]}}}}", i + 1)),
            "{body:?}"
        );
    }
    assert_eq!(chosen(&["http/1.1"]).0.as_deref(), Some("http/1.1"));
    assert_eq!(chosen(&[]).0, None);

    std::fs::write(
        &path,
        format!("{tls}http_server_config: {{http2: false}}\n"),
    )
    .expect("write a file");
    wait_until("the new configuration", || {
        chosen(&["h2", "http/1.1"]).0.as_deref() == Some("http/1.1")
    });
    assert_eq!(client.get("/-/healthy").0, 200, "what is open stays");
}

#[test]
fn client_certificates_need_an_allowed_name() {
    let (dir, made) = (TempDir::new().expect("make a temporary directory"), make());
    made.write_to(dir.path());
    let path = dir.path().join("web.yml");
    let config = |allowed: &str| {
        let tls = "cert_file: server.pem, key_file: server.key, client_ca_file: ca.pem";
        let client = "client_auth_type: RequireAndVerifyClientCert";
        format!("tls_server_config: {{{tls}, {client}, client_allowed_sans: [{allowed}]}}\n")
    };
    std::fs::write(&path, config("other.example, 127.0.0.1")).expect("write a file");
    let of = Access {
        tls: Some(made.tls(true)),
        authorization: None,
    };
    let server = Server::start_as(&[&format!("--web.config.file={}", path.display())], &of);
    server.http().get("/-/healthy").expect_status(200);
    std::fs::write(&path, config("other.example")).expect("write a file");
    wait_until("the client to be refused", || {
        server.http().with(&of).try_get("/-/healthy").is_err()
    });
}

#[test]
fn an_invalid_configuration_prevents_a_start() {
    let dir = TempDir::new().expect("make a temporary directory");
    let path = dir.path().join("web.yml");
    std::fs::write(&path, "basic_auth_users: {ann: s3cret}\n").expect("write a file");
    let flag = format!("--web.config.file={}", path.display());
    let (status, output) = crate::harness::try_serve(&dir.path().join("data"), &[&flag]);
    assert!(
        !status.success()
            && output.contains("basic_auth_users.ann: the value is not a bcrypt hash"),
        "{output}"
    );
    assert!(!output.contains("s3cret"), "{output}");
}

/// Over HTTP/2, curl 7.88 reported a reset stream instead of the response.
#[test]
fn a_denied_request_with_a_body_gets_its_status_over_http2() {
    if missing(&["curl"]) {
        return;
    }
    let dir = TempDir::new().expect("make a temporary directory");
    let path = dir.path().join("web.yml");
    let token = "bearer_tokens: [{name: a, token: s3cret, scopes: [read, write, admin]}]\n";
    std::fs::write(&path, token).expect("write a file");
    let access = Access {
        tls: None,
        authorization: Some("Bearer s3cret".to_owned()),
    };
    let flag = format!("--web.config.file={}", path.display());
    let server = Server::start_as(&[&flag], &access);
    let body = dir.path().join("body");
    for size in [3_000, 300_000] {
        std::fs::write(&body, vec![b'x'; size]).expect("write a file");
        for _ in 0..10 {
            let mut curl = Command::new("curl");
            curl.args(["-s", "--http2-prior-knowledge", "-w", "%{http_code}"]);
            curl.args(["-o", "/dev/null", "-H", "Authorization: Bearer wrong"]);
            curl.args(["--data-binary", &format!("@{}", body.display())]);
            let output = curl.arg(server.http().url("/api/v1/write")).output();
            let status = output.expect("run curl").stdout;
            assert_eq!(String::from_utf8_lossy(&status), "401", "{size} bytes");
        }
    }
}
