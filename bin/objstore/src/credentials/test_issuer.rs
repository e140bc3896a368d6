//! An issuer of credentials for tests.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;

/// A server that answers each request with the next response, and keeps the requests.
pub(crate) struct Issuer {
    pub(crate) url: String,
    pub(crate) requests: Arc<Mutex<Vec<String>>>,
}

impl Issuer {
    /// Starts a server. The response `fail` is a 500.
    pub(crate) fn start(responses: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let received = Arc::clone(&requests);
        std::thread::spawn(move || {
            for body in responses {
                let (mut stream, _) = listener.accept().unwrap();
                received.lock().push(read_request(&stream));
                let status = if body == "fail" { 500 } else { 200 };
                let head = format!(
                    "HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                );
                stream.write_all(head.as_bytes()).unwrap();
            }
        });
        Self { url, requests }
    }
}

/// Returns the head in lower case, and the body.
fn read_request(stream: &std::net::TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let mut text = String::new();
    let mut size = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            size = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
        text.push_str(&line.to_ascii_lowercase());
    }
    let mut body = vec![0; size];
    reader.read_exact(&mut body).unwrap();
    text + &String::from_utf8(body).unwrap()
}

/// Returns the fields of the form that a request sent.
pub(crate) fn form(request: &str) -> Vec<(String, String)> {
    let (_, form) = request.rsplit_once('\n').unwrap();
    let fields = form.split('&').map(|field| {
        let (name, value) = field.split_once('=').unwrap();
        let value = percent_encoding::percent_decode_str(value)
            .decode_utf8()
            .unwrap();
        (name.to_owned(), value.into_owned())
    });
    fields.collect()
}

/// Returns an environment.
pub(crate) fn of(variables: &[(&str, &str)]) -> impl Fn(&str) -> String + use<> {
    let variables: HashMap<String, String> = variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    move |name| variables.get(name).cloned().unwrap_or_default()
}

pub(crate) fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}
