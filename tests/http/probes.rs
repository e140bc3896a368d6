//! Probes without credentials, on a server with users and tokens.

use tempfile::TempDir;

use super::T0;
use crate::harness::{Access, Http, Random, Server, WriteRequest, series, wait_until};

const TOKENS: &str = "bearer_tokens:\n- {name: reader, token: t0ken-r, scopes: [read]}\n- {name: writer, token: t0ken-w, scopes: [write]}\n";
const PROBES: [&str; 2] = ["/-/healthy", "/-/ready"];
const READY: &str = "Varve is Ready.\n";

/// Returns a directory with a web configuration that has tokens, and the flag that names it.
fn with_tokens() -> (TempDir, String) {
    let dir = TempDir::new().expect("make a temporary directory");
    let file = dir.path().join("web.yml");
    std::fs::write(&file, TOKENS).expect("write a file");
    let flag = format!("--web.config.file={}", file.display());
    (dir, flag)
}

/// Returns a client that sends this token.
fn with_token(server: &Server, token: &str) -> Http {
    server.http().with(&Access {
        authorization: Some(format!("Bearer {token}")),
        ..Access::default()
    })
}

#[test]
fn a_probe_needs_no_credentials() {
    let (_dir, flag) = with_tokens();
    let server = Server::start(&[&flag]);
    let anyone = server.http();
    for path in PROBES {
        anyone.get(path).expect_status(200);
        // The token has been rotated, or may only write: a restart would not help.
        for token in ["old", "t0ken-w", "t0ken-r"] {
            let answer = with_token(&server, token).get(path).expect_status(200);
            assert_eq!(answer.text(), anyone.get(path).text(), "{token} {path}");
        }
        anyone.call("HEAD", path, &[], b"").expect_status(200);
    }
    // Nothing else is open: neither a probe that writes a file, nor other methods and paths.
    for path in [
        "/-/ready?for=write",
        "/-/ready?",
        "/-/ready/",
        "/metrics",
        "/api/v1/labels",
    ] {
        assert_eq!(anyone.get(path).status, 401, "{path}");
    }
    assert_eq!(anyone.post("/-/ready", &[], b"").status, 401);
    with_token(&server, "t0ken-r")
        .get("/-/ready?for=write")
        .expect_status(200);
}

#[test]
fn a_probe_below_a_route_prefix_needs_no_credentials() {
    let (_dir, flag) = with_tokens();
    let server = Server::start_with(&[&flag, "--web.route-prefix=/prom"], |address| {
        Http::new(address).below("/prom")
    });
    for path in PROBES {
        server.http().get(path).expect_status(200);
    }
    assert_eq!(server.http().get("/metrics").status, 401);
}

#[test]
fn only_credentials_show_why_writes_are_rejected() {
    let (_dir, flag) = with_tokens();
    let Some(server) = Server::start_on_small_disk("10m", &[&flag]) else {
        return;
    };
    let [reader, writer] = ["t0ken-r", "t0ken-w"].map(|token| with_token(&server, token));
    // Incompressible samples.
    let mut random = Random::new(1);
    let refused = (0_i64..).find_map(|round| {
        let mut sample = |i: i64| {
            let value = f64::from_bits(random.next() >> 2);
            (T0 + round * 1_000_000 + i * 100, value)
        };
        let samples: Vec<_> = (0..10_000).map(&mut sample).collect();
        let request = WriteRequest::new([series(&[("__name__", "m")], &samples)]);
        Some(writer.write(&request).status).filter(|status| *status != 204)
    });
    assert_eq!(refused, Some(503));
    wait_until("the reason", || {
        reader.get("/-/ready").text().contains("not for writes")
    });
    assert_eq!(server.http().get("/-/ready?for=write").status, 401);
    for http in [server.http(), &writer] {
        assert_eq!(http.get("/-/ready").expect_status(200).text(), READY);
    }
}
