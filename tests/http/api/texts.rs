//! Generated texts for every parameter and body of every operation that the description lists. Each
//! request ends with a clear status, soon after its deadline, and with little more memory than it
//! may be charged with.
//!
//! `VARVE_TEXTS` is the number of texts per parameter and body, `VARVE_TEXTS_SEED` the seed.

use super::super::server_with_data;
use super::FORM;
use super::schema::{Description, Operation};
use crate::harness::{Answer, Server, wait_until};

/// Maximum growth of the resident memory during a request, in bytes: the 16 MiB of
/// `--query.max-memory`, the request as received and decoded, and pages that the allocator keeps.
const GROWTH_MAX: u64 = 64 << 20;
/// Maximum CPU time of a request, in seconds: two cores until the timeout of 1 s, and what a debug
/// build does between two looks at the deadline.
const CPU_MAX: f64 = 3.5;
/// Maximum size of an error, in bytes.
const ERROR_SIZE_MAX: usize = 64 << 10;

/// Operations that end the server, or do not end.
const OMITTED: [&str; 3] = [
    "/-/quit",
    "/api/v1/notifications/live",
    "/debug/pprof/profile",
];

#[test]
fn every_text_that_a_client_sends_is_bounded() {
    let mut server = server_with_data(&[
        "--web.enable-admin-api",
        "--query.max-memory=16MiB",
        "--query.timeout=1s",
        "--query.breaker-timeout=1ms",
        "--enable-feature=search-api,promql-experimental-functions,otlp-deltatocumulative",
    ]);
    let description = Description::parse(&server.http().get("/api/v1/openapi.yaml").text(), "");
    let mut random = Random(from_env("VARVE_TEXTS_SEED", 1));
    let mut texts = Texts::default();
    for operation in description.texts() {
        if OMITTED.contains(&operation.path.as_str()) {
            continue;
        }
        for part in 0..operation.n_parts() {
            for _ in 0..from_env("VARVE_TEXTS", 2) {
                let text = random.text(operation.size_max());
                texts.send(&server, &operation, part, &text);
            }
        }
        assert!(server.is_running(), "{operation:?} has ended the server");
    }
    println!("{texts:?}");
    assert!(texts.n_sent > 300, "the description lists more: {texts:?}");
    assert!(texts.wrong.is_empty(), "{:#?}", texts.wrong);
    wait_until("all memory to be given back", || {
        server.metric("varve_query_memory_bytes") == 0.0
    });
}

/// What was sent, and what came of it.
#[derive(Debug, Default)]
struct Texts {
    n_sent: usize,
    growth_max: u64,
    cpu_max: f64,
    wrong: Vec<String>,
}

impl Texts {
    /// Sends one text as a part of an operation, with valid texts as the other parts.
    fn send(&mut self, server: &Server, operation: &Operation, part: usize, text: &[u8]) {
        server.process().forget_resident_size_max();
        let before = server.resident_size();
        let cpu = server.process().cpu_seconds();
        let answer = call(server, operation, part, text);
        let growth = server.process().resident_size_max().saturating_sub(before);
        let cpu = server.process().cpu_seconds() - cpu;

        self.n_sent += 1;
        self.growth_max = self.growth_max.max(growth);
        self.cpu_max = self.cpu_max.max(cpu);
        let is_clear = answer.status < 500 || answer.status == 503;
        let is_short = answer.status < 400 || answer.body.len() <= ERROR_SIZE_MAX;
        if is_clear && is_short && growth <= GROWTH_MAX && cpu <= CPU_MAX {
            return;
        }
        let start = String::from_utf8_lossy(&text[..text.len().min(80)]);
        self.wrong.push(format!(
            "{} {} part {part}, {} bytes {start:?}: status {}, {} bytes, {growth} bytes of memory, {cpu} s",
            operation.method,
            operation.path,
            text.len(),
            answer.status,
            answer.body.len(),
        ));
    }
}

fn call(server: &Server, operation: &Operation, part: usize, text: &[u8]) -> Answer {
    let http = server.http();
    let Some(media_type) = &operation.body else {
        let (path, query) = operation.with_text(part, &escaped(text));
        let url = if query.is_empty() {
            path
        } else {
            format!("{path}?{query}")
        };
        return http.call(&operation.method, &url, &[], b"");
    };
    if operation.is_form() {
        let (path, form) = operation.with_text(part, &escaped(text));
        return http.call(&operation.method, &path, &[FORM], form.as_bytes());
    }
    let media_type = [("Content-Type", media_type.as_str())];
    http.call(&operation.method, &operation.path, &media_type, text)
}

/// Escapes all bytes but letters and digits.
fn escaped(text: &[u8]) -> String {
    let mut escaped = String::with_capacity(text.len());
    for &byte in text {
        if byte.is_ascii_alphanumeric() {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

fn from_env(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(default, |value| value.parse().expect("a number"))
}

/// What is repeated: syntax of PromQL, matchers, templates, YAML, JSON, regular expressions,
/// exposition formats, protobuf, times, and bytes that are none of these.
const PIECES: [&str; 48] = [
    "(",
    "((((",
    "-",
    "!",
    "a+",
    "a or ",
    "sum(",
    "up[1h:1s]",
    "[5m",
    "{a=~\"",
    "a|b|",
    "(a|b)*",
    "(a+)+",
    ".{1,1000}",
    "(?i)x",
    "\\x",
    "\"",
    "\\\"",
    "'",
    "`",
    "#",
    "\n",
    "\r",
    " ",
    "\t",
    "{{",
    "}}",
    "{{ range 9 }}",
    "{{ printf \"%9999d\" 1 }}",
    "{a: ",
    "- ",
    "[",
    "b,",
    "? ",
    "&a ",
    "*a ",
    "%TAG !a! x\n",
    "groups: [{name: g, rules: [{expr: up, record: r}]}]\n",
    "{\"metric\":{\"__name__\":\"m\"},\"values\":[1],\"timestamps\":[1]}\n",
    "[1,",
    "# TYPE a counter\n",
    "a{b=\"c\"} 1 2\n",
    "9",
    "1e999",
    "1h",
    "\u{0}",
    "\u{fffd}",
    "é",
];

/// Whole texts that begin as a valid one does.
const STARTS: [&str; 14] = [
    "",
    "up",
    "{__name__=~\"",
    "sum(rate(up[",
    "label_replace(up, \"a\", \"",
    "count_values(\"",
    "groups: [{name: g, rules: [",
    "groups: [{name: g, rules: [{alert: A, expr: up, annotations: {a: '",
    "{\"a\":",
    "\n",
    "1700000000",
    "x{a=\"",
    "\x0a\x7f\x0a",
    "{job=\"",
];

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }

    /// Returns a text of up to `size_max` bytes; each order of magnitude is as likely as the others.
    fn text(&mut self, size_max: usize) -> Vec<u8> {
        let n_bits = self.below(size_max.ilog2() as usize + 1);
        let size = (1 + self.below(2 << n_bits)).min(size_max);
        let mut text = STARTS[self.below(STARTS.len())].as_bytes().to_vec();
        let pieces = [self.below(PIECES.len()), self.below(PIECES.len())];
        let is_mixed = self.below(3) == 0;
        while text.len() < size {
            let piece = if is_mixed {
                self.below(PIECES.len())
            } else {
                pieces[text.len() % 2]
            };
            text.extend(PIECES[piece].as_bytes());
        }
        text.truncate(size);
        if self.below(4) == 0 {
            let at = self.below(text.len());
            text[at] = self.below(256) as u8;
        }
        text
    }
}
