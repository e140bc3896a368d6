//! A Grafana that knows one dashboard, one library panel and one alert rule, and lets nobody in without its token.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};

use serde_json::{Value, json};

const TOKEN: &str = "glsa_secret";

/// Starts it on a thread of its own, which ends with the process, and returns its URL.
pub(super) fn start() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    std::thread::spawn(move || listener.incoming().flatten().for_each(serve));
    url
}

/// Answers every request of a connection.
fn serve(mut stream: TcpStream) {
    let reader = BufReader::new(stream.try_clone().expect("a second handle"));
    let (mut path, mut is_known) = (String::new(), false);
    for line in reader.lines().map_while(Result::ok) {
        if let Some(rest) = line.strip_prefix("GET ") {
            path = rest.split(' ').next().unwrap_or_default().to_owned();
            is_known = false;
        }
        is_known |= line.to_ascii_lowercase() == format!("authorization: bearer {TOKEN}");
        if line.is_empty() {
            let (status, body) = if is_known { answer(&path) } else { ("401 Unauthorized", json!({})) };
            let body = body.to_string();
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
            if stream.write_all((head + &body).as_bytes()).is_err() {
                return;
            }
        }
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
        "/api/v1/provisioning/alert-rules" => json!([{"title": "a", "data": [{"model": {"expr": "in_alert > 0"}}]}]),
        _ => return ("404 Not Found", json!({})),
    };
    ("200 OK", body)
}
