//! /federate, compared byte for byte with a real Prometheus with the same data and configuration.

use varve_model::staleness::STALE_NAN_BITS;

use super::histogram::histograms;
use crate::harness::{
    Answer, ConfigFile, Http, Release, Releases, Server, WriteRequest, now_ms, releases, series,
};

const CONFIG: &str = "global: {external_labels: {cluster: c1, zone: 'a\"b'}}";
const PROTOBUF: &str =
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";

/// Series with samples up to now, a stale one, and one whose last sample is too old.
fn data(now_ms: i64) -> WriteRequest {
    let at = |labels: &[(&str, &str)], value: f64| {
        series(
            labels,
            &[(now_ms - 60_000, value / 2.0), (now_ms - 30_000, value)],
        )
    };
    WriteRequest::new([
        at(
            &[("__name__", "up"), ("instance", "a:1"), ("job", "x")],
            1.0,
        ),
        at(&[("__name__", "up"), ("job", "y \\ \"z\"\n")], 0.0),
        at(&[("__name__", "up"), ("job", "z"), ("zone", "own")], -0.0),
        at(&[("Code", "200"), ("__name__", "requests_total")], 1e6),
        at(&[("Code", "500"), ("__name__", "requests_total")], 1.5e-7),
        at(&[("Zone", "1"), ("__name__", "a_first")], 2e14 + 0.625),
        at(
            &[("__name__", "requests_total"), ("path", "/")],
            f64::INFINITY,
        ),
        at(
            &[("__name__", "with.dots"), ("label with space", "1")],
            f64::NAN,
        ),
        series(
            &[("__name__", "up"), ("job", "gone")],
            &[
                (now_ms - 60_000, 1.0),
                (now_ms, f64::from_bits(STALE_NAN_BITS)),
            ],
        ),
        series(
            &[("__name__", "up"), ("job", "old")],
            &[(now_ms - 400_000, 1.0)],
        ),
    ])
}

#[test]
fn pages_are_those_of_prometheus() {
    releases().iter().for_each(compare_pages);
}

fn compare_pages(release: &Release) {
    let prometheus = release.start(CONFIG, &["--enable-feature=native-histograms"]);
    let varve = Server::start(&[&ConfigFile::new(CONFIG).flag()]);
    let now_ms = now_ms();
    for http in [prometheus.http(), varve.http()] {
        http.write(&data(now_ms)).expect_status(204);
        http.write_body(&histograms(&[now_ms - 60_000, now_ms - 30_000]))
            .expect_status(204);
    }
    let mut wrong = Vec::new();
    let mut n_lines = 0;
    let all = if release.is_of(Releases::Older) {
        "%7B__name__=~%22.%2B%22,__name__!=%22native_custom%22%7D"
    } else {
        "%7B__name__=~%22.%2B%22%7D"
    };
    for selectors in [
        "up",
        "up&match[]=%7Bjob=%22x%22%7D&match[]=requests_total",
        "up&match[]=%7B%7D",
        "%7B%7D",
        all,
    ] {
        for accept in [
            "",
            "text/plain;version=0.0.4;escaping=allow-utf-8",
            "text/plain;version=0.0.4;escaping=values",
            "application/openmetrics-text;version=1.0.0,text/plain;q=0.5;escaping=dots",
            PROTOBUF,
        ] {
            let path = format!("/federate?match[]={selectors}");
            let ask = |http: &Http| http.call("GET", &path, &[("Accept", accept)], b"");
            let (ours, theirs) = (ask(varve.http()), ask(prometheus.http()));
            let parts = |answer: &Answer| (answer.status, answer.header("content-type").to_owned());
            n_lines += theirs.body.iter().filter(|byte| **byte == b'\n').count();
            if parts(&ours) != parts(&theirs) || ours.body != theirs.body {
                wrong.push(format!(
                    "{path} {accept}\nvarve: {ours:?}\nprometheus: {theirs:?}"
                ));
            }
        }
    }
    assert!(n_lines > 50, "{n_lines}");
    assert!(
        wrong.is_empty(),
        "{} pages differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
