//! Conversations of clients: their requests in order, replayed, with the answers asserted.
//!
//! `tests/data/clients` has a file for each client. Most are recorded: the client ran against a
//! proxy in front of Varve. The others are written down from the sources of the client. An answer is
//! the whole JSON of the body, without times that an evaluation took, or only some fields of `data`
//! where the rest differs from run to run. `VARVE_UPDATE_DATA=1` writes the answers of Varve.
//!
//! If Prometheus is on the PATH, it gets the same requests, and must give the same answers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::data;
use crate::harness::{Answer, Http, Releases, Server, releases};

const FILES: [&str; 7] = [
    "client-golang",
    "codemirror-promql",
    "grafana",
    "pint",
    "prometheus-api-client",
    "thanos-query-frontend",
    "vmalert",
];

/// Exchanges, by client and number from 0, to which Prometheus responds differently, and why.
const DIFFERENCES: [(&str, usize, &str); 4] = [
    (
        "client-golang",
        8,
        "peakSamples are those that the engine holds",
    ),
    (
        "client-golang",
        12,
        "series of several selectors are in the order of the selectors",
    ),
    ("prometheus-api-client", 0, "the build has no web page"),
    ("vmalert", 7, "out-of-order samples are stored"),
];

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Conversation {
    client: String,
    version: String,
    /// Recorded, or written down from which source.
    source: String,
    exchanges: Vec<Exchange>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Exchange {
    method: String,
    path: String,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    headers: Map<String, Value>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    body: String,
    /// A body that is not text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    body_base64: String,
    /// Fields of `data` in place of `answer`, by JSON pointer without escapes. A text that begins
    /// with `~` is a part of the value.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    fields: Map<String, Value>,
    status: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answer: Option<Value>,
}

impl Exchange {
    fn ask(&self, http: &Http) -> Answer {
        let mut headers = Vec::new();
        for (name, value) in &self.headers {
            headers.push((name.as_str(), value.as_str().expect("a text")));
        }
        let mut body = self.body.clone().into_bytes();
        if !self.body_base64.is_empty() {
            body = STANDARD.decode(&self.body_base64).expect("base64");
        }
        http.call(&self.method, &self.path, &headers, &body)
    }

    /// Returns what differs from the expected answer.
    fn difference(&self, answer: &Answer) -> Option<String> {
        if answer.status != self.status {
            let status = self.status;
            return Some(format!(
                "status {}, not {status}: {answer:?}",
                answer.status
            ));
        }
        let found = comparable(answer).unwrap_or_default();
        for (pointer, expect) in &self.fields {
            // Names of flags have dots.
            let path = pointer.trim_start_matches('/');
            let value = path
                .split('/')
                .fold(&found["data"], |value, key| &value[key]);
            let is_same = match expect.as_str().and_then(|text| text.strip_prefix('~')) {
                Some(part) => value.as_str().is_some_and(|text| text.contains(part)),
                None => value == expect,
            };
            if !is_same {
                return Some(format!("{pointer} is {value}, not {expect}"));
            }
        }
        let expect = self.answer.as_ref()?;
        (found != *expect).then(|| format!("{found}, not {expect}"))
    }
}

/// Returns the JSON of an answer without times that differ from run to run, and without statistics
/// that only Varve has. Returns `None` if it is not JSON.
fn comparable(answer: &Answer) -> Option<Value> {
    let mut found: Value = serde_json::from_slice(&answer.body).ok()?;
    if let Some(stats) = found
        .pointer_mut("/data/stats")
        .and_then(Value::as_object_mut)
    {
        for key in ["timings", "memoryPeakBytes", "cachedSteps"] {
            stats.remove(key);
        }
    }
    Some(found)
}

fn path(client: &str) -> String {
    let dir = env!("CARGO_MANIFEST_DIR");
    format!("{dir}/tests/data/clients/{client}.json")
}

fn conversation(client: &str) -> Conversation {
    let text = std::fs::read_to_string(path(client)).expect("read the conversation");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{client}: {error}"))
}

fn server() -> Server {
    let server = Server::start(&["--web.enable-admin-api"]);
    server.http().write(&data()).expect_status(204);
    server
}

#[test]
fn clients_get_the_answers_that_they_expect() {
    let is_update = std::env::var_os("VARVE_UPDATE_DATA").is_some();
    let mut wrong = Vec::new();
    for client in FILES {
        let mut conversation = conversation(client);
        let server = server();
        for (idx, exchange) in conversation.exchanges.iter_mut().enumerate() {
            let answer = exchange.ask(server.http());
            if is_update {
                exchange.status = answer.status;
                let has_fields = !exchange.fields.is_empty();
                exchange.answer = if has_fields {
                    None
                } else {
                    comparable(&answer)
                };
            }
            if let Some(difference) = exchange.difference(&answer) {
                let Exchange { method, path, .. } = exchange;
                wrong.push(format!("{client} {idx}: {method} {path}: {difference}"));
            }
        }
        if is_update {
            let mut text = serde_json::to_string_pretty(&conversation).expect("it is JSON");
            text.push('\n');
            std::fs::write(path(client), text).expect("write the conversation");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn prometheus_gives_clients_the_same_answers() {
    let flags = ["--web.enable-admin-api"];
    let mut wrong = Vec::new();
    for release in releases() {
        if release.is_of(Releases::Older) {
            continue;
        }
        for client in FILES {
            let prometheus = release.start("{}", &flags);
            prometheus.http().write(&data()).expect_status(204);
            for (idx, exchange) in conversation(client).exchanges.iter().enumerate() {
                let answer = exchange.ask(prometheus.http());
                let difference = exchange.difference(&answer);
                let is_known = DIFFERENCES
                    .iter()
                    .any(|(of, at, _)| *of == client && *at == idx);
                if difference.is_some() != is_known {
                    let Exchange { method, path, .. } = exchange;
                    wrong.push(format!("{client} {idx}: {method} {path}: {difference:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every file is replayed.
#[test]
fn all_conversations_are_listed() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/clients");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("the directory exists") {
        let name = entry.expect("an entry").file_name();
        let name = name.to_string_lossy();
        found.push(name.trim_end_matches(".json").to_owned());
    }
    found.sort_unstable();
    assert_eq!(found, FILES);
    for client in FILES {
        let conversation = conversation(client);
        assert_eq!(conversation.client, client);
        assert!(!conversation.source.is_empty(), "{client}");
        for exchange in &conversation.exchanges {
            let has_expectation = exchange.answer.is_some() || !exchange.fields.is_empty();
            let is_json = exchange.path.starts_with("/api/v1/") && exchange.status == 200;
            assert!(has_expectation || !is_json, "{client}: {}", exchange.path);
        }
    }
}
