//! A Grafana with one dashboard, one library panel and one alert rule that requires a token.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

const TOKEN: &str = "glsa_secret";

/// Starts it on a thread that ends with the process, and returns its URL.
pub(super) fn start() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    std::thread::spawn(move || listener.incoming().flatten().for_each(serve));
    url
}

/// As [`start`] over TLS, with a self-signed certificate that is also returned in PEM.
pub(super) fn start_over_tls() -> (String, String) {
    let key = KeyPair::generate().expect("make a key");
    let params = CertificateParams::new(["127.0.0.1".to_owned()]).expect("a valid name");
    let cert = params.self_signed(&key).expect("sign a certificate");
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("it is a key");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has them")
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .expect("key and certificate go together");
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("https://{}", listener.local_addr().expect("it is bound"));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let connection =
                ServerConnection::new(Arc::clone(&config)).expect("the configuration is sound");
            serve(StreamOwned::new(connection, stream));
        }
    });
    (url, cert.pem())
}

/// Serves the requests of a connection.
fn serve(stream: impl Read + Write) {
    let mut reader = BufReader::new(stream);
    let (mut path, mut is_known, mut line) = (String::new(), false, String::new());
    while reader.read_line(&mut line).is_ok_and(|n| n > 0) {
        let text = line.trim_end();
        if let Some(rest) = text.strip_prefix("GET ") {
            path = rest.split(' ').next().unwrap_or_default().to_owned();
            is_known = false;
        }
        is_known |= text.to_ascii_lowercase() == format!("authorization: bearer {TOKEN}");
        if text.is_empty() {
            let (status, body) = if is_known {
                answer(&path)
            } else {
                ("401 Unauthorized", json!({}))
            };
            let body = body.to_string();
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            if reader
                .get_mut()
                .write_all((head + &body).as_bytes())
                .is_err()
            {
                return;
            }
        }
        line.clear();
    }
}

fn answer(path: &str) -> (&'static str, Value) {
    let target = |expr: &str| json!({"title": "p", "targets": [{"expr": expr}]});
    let body = match path.split('?').next().unwrap_or_default() {
        "/api/search" => json!([{"uid": "d-1", "title": "t"}]),
        "/api/dashboards/uid/d-1" => {
            let library = json!({"libraryPanel": {"uid": "l"}});
            json!({"dashboard": {"title": "t", "panels": [target("in_dashboard{x=\"$y\"}"), library]}})
        }
        "/api/library-elements" => {
            json!({"result": {"elements": [{"uid": "l", "kind": 1, "model": target("in_library")}]}})
        }
        "/api/v1/provisioning/alert-rules" => {
            json!([{"title": "a", "data": [{"model": {"expr": "in_alert > 0"}}]}])
        }
        _ => return ("404 Not Found", json!({})),
    };
    ("200 OK", body)
}
