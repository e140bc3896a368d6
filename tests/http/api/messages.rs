//! Forms and write requests in all encodings: accepted or rejected with the status of a real
//! Prometheus.

use super::FORM;
use crate::harness::{
    Answer, Http, Label, Release, Releases, Server, TimeSeries, WriteRequest, now_ms, releases,
    series,
};

/// Content type, URL parameters, body. The response shows which query was read.
const FORMS: &[(&str, &str, &str)] = &[
    (
        "application/x-www-form-urlencoded",
        "query=1&time=5",
        "query=2",
    ),
    (
        "application/x-www-form-urlencoded; charset=utf-8",
        "time=5",
        "query=2",
    ),
    ("APPLICATION/X-WWW-FORM-URLENCODED", "time=5", "query=2"),
    (
        "application/x-www-form-urlencoded; charset",
        "time=5&query=3",
        "query=2",
    ),
    ("application/json", "time=5&query=3", "{}"),
    ("text/plain", "time=5&query=3", "query=2"),
    ("multipart/form-data", "time=5&query=3", "query=2"),
    ("", "time=5&query=3", "query=2"),
];

/// The releases of Prometheus that respond differently, intentionally, and why.
type Difference = Option<(Releases, &'static str)>;

/// Content encoding, content type and body of a write.
const WRITES: &[(&str, &str, Body, Difference)] = &[
    ("snappy", "application/x-protobuf", Body::Whole, None),
    ("", "application/x-protobuf", Body::Whole, None),
    ("snappy", "", Body::Whole, None),
    ("", "", Body::Whole, None),
    ("gzip", "application/x-protobuf", Body::Whole, None),
    (
        "SNAPPY",
        "application/x-protobuf",
        Body::Whole,
        Some((Releases::Newest, "names of encodings are case-insensitive")),
    ),
    ("snappy", "application/json", Body::Whole, None),
    ("snappy", "text/plain", Body::Whole, None),
    (
        "snappy",
        "APPLICATION/X-PROTOBUF",
        Body::Whole,
        Some((Releases::All, "media types are case-insensitive")),
    ),
    (
        "snappy",
        "application/x-protobuf;proto=prometheus.WriteRequest",
        Body::Whole,
        None,
    ),
    (
        "snappy",
        "application/x-protobuf;proto=nonsense",
        Body::Whole,
        None,
    ),
    ("snappy", "application/x-protobuf;proto=", Body::Whole, None),
    ("snappy", "application/x-protobuf;proto", Body::Whole, None),
    ("snappy", "application/x-protobuf;x=y", Body::Whole, None),
    ("snappy", "application/x-protobuf", Body::Empty, None),
    ("snappy", "application/x-protobuf", Body::Truncated, None),
    ("snappy", "application/x-protobuf", Body::Garbage, None),
    (
        "snappy",
        "application/x-protobuf;proto=io.prometheus.write.v2.Request",
        Body::Garbage,
        None,
    ),
];

#[derive(Debug, Clone, Copy)]
enum Body {
    Whole,
    Empty,
    Truncated,
    /// A snappy block that is not a message.
    Garbage,
}

impl Body {
    fn bytes(self, timestamp_ms: i64) -> Vec<u8> {
        let whole =
            WriteRequest::new([series(&[("__name__", "w")], &[(timestamp_ms, 1.0)])]).to_body();
        match self {
            Self::Whole => whole,
            Self::Empty => Vec::new(),
            Self::Truncated => whole[..whole.len() - 3].to_vec(),
            Self::Garbage => crate::harness::snappy(b"garbage"),
        }
    }
}

/// Series of one request each, and the reason of an intended difference.
fn contents(now_ms: i64) -> Vec<(TimeSeries, Difference)> {
    const HOUR_MS: i64 = 3_600_000;
    const INVALID: Difference = Some((
        Releases::All,
        "the specification of remote write 1.0 requires 400",
    ));
    const OUT_OF_ORDER: Difference = Some((
        Releases::All,
        "out-of-order samples of half an hour are accepted by default",
    ));
    let one = |labels: &[(&str, &str)], at: i64, value: f64| series(labels, &[(at, value)]);
    let x = |at: i64, value: f64| one(&[("__name__", "x")], at, value);
    let not_utf8 = TimeSeries {
        labels: vec![Label {
            name: b"__name__".to_vec(),
            value: b"\xff".to_vec(),
        }],
        ..x(now_ms, 1.0)
    };
    vec![
        (x(now_ms, 1.0), None),
        (x(now_ms, 1.0), None),
        (x(now_ms, 2.0), None),
        (x(now_ms - 5, 1.0), OUT_OF_ORDER),
        (x(now_ms - 4 * HOUR_MS, 1.0), None),
        (x(now_ms + 30 * 24 * HOUR_MS, 1.0), None),
        (
            one(&[("__name__", "bad name"), ("a b", "c")], now_ms, 1.0),
            None,
        ),
        (
            one(&[("z", "1"), ("__name__", "unsorted")], now_ms, 1.0),
            None,
        ),
        (one(&[("__name__", "empty"), ("x", "")], now_ms, 1.0), None),
        (series(&[("__name__", "without_samples")], &[]), None),
        (one(&[("job", "nameless")], now_ms, 1.0), INVALID),
        (one(&[], now_ms, 1.0), INVALID),
        (
            one(
                &[("__name__", "twice"), ("a", "1"), ("a", "2")],
                now_ms,
                1.0,
            ),
            INVALID,
        ),
        (one(&[("__name__", "x"), ("", "x")], now_ms, 1.0), INVALID),
        (not_utf8, INVALID),
    ]
}

/// Compares status and content type of two responses with the expected difference.
fn compare(
    release: &Release,
    what: String,
    ours: &Answer,
    theirs: &Answer,
    difference: Difference,
) -> Option<String> {
    let is_same = ours.status == theirs.status
        && ours.header("content-type") == theirs.header("content-type");
    let is_known = difference.is_some_and(|(releases, _)| release.is_of(releases));
    (is_same == is_known).then(|| {
        let version = release.version;
        format!(
            "{version:?} {what} {difference:?}\n  varve:      {ours:?}\n  prometheus: {theirs:?}"
        )
    })
}

#[test]
fn writes_are_accepted_and_rejected_as_in_prometheus() {
    releases().iter().for_each(compare_writes);
}

fn compare_writes(release: &Release) {
    let prometheus = release.start("{}", &[]);
    let varve = Server::start(&[]);
    let now_ms = now_ms();
    let mut wrong = Vec::new();
    for (encoding, content_type, body, difference) in WRITES {
        let headers = [
            ("Content-Encoding", *encoding),
            ("Content-Type", *content_type),
        ];
        let headers: Vec<_> = headers
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .collect();
        let send = |http: &Http| http.post("/api/v1/write", &headers, &body.bytes(now_ms));
        let what = format!("{encoding} {content_type} {body:?}");
        wrong.extend(compare(
            release,
            what,
            &send(varve.http()),
            &send(prometheus.http()),
            *difference,
        ));
    }
    for (series, difference) in contents(now_ms) {
        let what = format!("{series:?}");
        let request = WriteRequest::new([series]);
        let (ours, theirs) = (
            varve.http().write(&request),
            prometheus.http().write(&request),
        );
        wrong.extend(compare(release, what, &ours, &theirs, difference));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let names = |http: &Http| http.get("/api/v1/label/__name__/values").text();
    assert_eq!(names(varve.http()), names(prometheus.http()));
}

#[test]
fn forms_are_parsed_as_in_prometheus() {
    for release in releases() {
        let prometheus = release.start("{}", &[]);
        let varve = Server::start(&[]);
        for (content_type, params, body) in FORMS {
            let headers: Vec<_> = Some(("Content-Type", *content_type))
                .into_iter()
                .filter(|(_, t)| !t.is_empty())
                .collect();
            let ask = |http: &Http| {
                let answer = http.post(
                    &format!("/api/v1/query?{params}"),
                    &headers,
                    body.as_bytes(),
                );
                (answer.status, answer.text())
            };
            assert_eq!(
                ask(varve.http()),
                ask(prometheus.http()),
                "{content_type} {params} {body}"
            );
        }
        // As in Go, the body of a GET is ignored.
        let get = |http: &Http| {
            http.call("GET", "/api/v1/query?time=5&query=3", &[FORM], b"query=4")
                .text()
        };
        assert_eq!(get(varve.http()), get(prometheus.http()));
    }
}
