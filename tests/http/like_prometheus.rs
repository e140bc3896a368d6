//! Requests to which Varve and a real Prometheus with the same data must respond with the same
//! status and the same data or error.

use serde_json::Value;

use super::call;
use crate::harness::Releases::{All, Older};
use crate::harness::{Answer, Http, Release, Releases};

/// Requests whose responses must be equal byte for byte.
const EXACT: &[&str] = &[
    "query?query=1.5&time=1700000000",
    "query?query=-0&time=1700000000",
    "query?query=1e21&time=1700000000.5",
    "query?query=NaN&time=1.001",
    "query?query=-Inf&time=-1.5",
    "query?query=\"a<b\\n\\u00e9>\"&time=0.0625",
    "query?query='single \"quoted\"'&time=0",
    "query?query=nothing&time=1700000000",
    "query?query=nothing[5m]&time=1700000000",
    "query?query=up{instance=\"a:1\"}&time=1700000000.0074",
    "query?query=up{instance=\"a:1\"}&time=2023-11-14T22:13:20.5+00:00",
    "query?query=up{instance=\"a:1\"}&time=2023-11-14T23:13:20+01:00",
    "query?query=tiny&time=1700000015",
    "query?query=huge[1m]&time=1700000045",
    "query?query=temperature&time=1700000000",
    "query?query={\"with.dots\"}&time=1700000000",
    "query?query={\"with.dots\",\"label with space\"=\"1\"}[30s]&time=1700000015",
    "query?query=special{is=\"nan\"}&time=1700000000",
    "query?query=special{is=\"-0\"}&time=1700000000",
    "query?query=sum(up)&time=1700000100",
    "query?query=rate(requests_total{code=\"200\"}[1m])&time=1700000100",
    "query?query=rate(requests_total{code=\"500\"}[2m])&time=1700000285",
    "query?query=histogram_quantile(0.9, latency_seconds_bucket)&time=1700000285",
    "query?query=absent(nothing{a=\"1\",b=~\"x\"})&time=1700000285",
    "query?query=up{instance=\"a:1\"}&time=1700000600",
    "query?query=up{instance=\"a:1\"}&time=1700000600&lookback_delta=10m",
    "query?query=up{instance=\"a:1\"} @ end() offset 1m&time=1700000200",
    "query?query=sum(up) by (job)&time=1700000200&timeout=30s",
    "query?query=time()&time=1700000200&limit=1",
    "query?query=up&time=",
    "query?query=vector(1)&time=2023-11-14T22:13:20,5Z",
    "query?query=vector(1)&time=2023-11-14T22:13:20.1234567891Z",
    "query?query=vector(1)&time=2023-11-14T2:13:20Z",
    "query?query=vector(1)&time=2023-11-14T22:13:20-24:00",
    "query?query=vector(1)&time=1_000",
    "query?query=vector(1)&time=+1.5e3",
    "query_range?query=1&start=1_000&end=1_000&step=1_0",
    "query_range?query=special&start=1700000000&end=1700000030&step=15",
    "query_range?query=up&start=1700000000&end=1700000285&step=30s",
    "query_range?query=up&start=1699999990&end=1700000285&step=7.5",
    "query_range?query=up == 1&start=1700000000&end=1700000285&step=15",
    "query_range?query=rate(requests_total[1m])&start=1700000000&end=1700000400&step=15",
    "query_range?query=1&start=1700000000&end=1700000000&step=1",
    "query_range?query=time()&start=1700000000&end=1700000001&step=250ms",
    "query_range?query=sum by (code) (requests_total)&start=1700000000&end=1700000285&step=1m",
    "query_range?query=nothing&start=1700000000&end=1700000285&step=1m",
    "query_range?query=temperature&start=1700000000&end=1700000285&step=1m&limit=1",
    "query_range?query=requests_total&start=1700000000&end=1700000285&step=1m&limit=1",
    "labels",
    "labels?match[]=up",
    "labels?match[]=nothing",
    "labels?limit=2",
    "label/job/values",
    "label/le/values",
    "label/le/values?limit=1",
    "label/__name__/values",
    "label/nothing/values",
    "label/U__label_20_with_20_space/values",
    "series?match[]=nothing",
    "series?match[]=tiny",
    "series?match[]=tiny&start=0000-01-01T00:00:00Z&end=9999-12-31T23:59:59Z",
    "series?match[]=tiny&start=-292273086-05-16T16:47:06Z&end=292277025-08-18T07:12:54.999999999Z",
    "series?match[]=tiny&start=2&end=1",
    "series?match[]=tiny&limit=+1",
    "labels?match[]={\"with.dots\"}",
    "label/job/values?match[]={\"with.dots\",\"label with space\"=\"1\"}&match[]=up",
    "metadata?limit=0",
    "metadata?metric=nothing",
    "format_query?query=sum(rate(foo[5m]))by(job)>1 or vector(1)",
    "format_query?query=up{job=\"\\xff\"}",
    "format_query?query={\"\\xff\", job!=\"\\xfe\"}",
    "query?query=up{job=\"\\xff\"}&time=1700000285",
    "labels?match[]=up{job!=\"\\xff\"}",
    "query_exemplars?query=up",
];

/// Requests whose responses have the same elements in any order.
const UNORDERED: &[&str] = &[
    "query?query=up&time=1700000285",
    "query?query=requests_total[1m]&time=1700000285",
    "query?query={__name__=~\".+\"}&time=1700000285",
    "query?query={__name__=~\"special|tiny\"}[5m]&time=1700000285",
    "query?query=up * on(job) group_left(code) requests_total{code=\"200\"}&time=1700000285",
    "query?query=count_values(\"v\", up)&time=1700000285",
    "query?query=-special&time=1700000285",
    "series?match[]=up",
    "series?match[]=up&match[]={job=\"x\"}",
    "series?match[]={__name__=~\".+\"}&start=1700000000&end=1700000001",
];

/// Requests that must be rejected with the same status, `errorType` and `error`.
const REFUSED: &[&str] = &[
    "query",
    "query?query=",
    "query?query=up{",
    "query?query=up}",
    "query?query=sum(up",
    "query?query=up[5m",
    "query?query=up[0s]",
    "query?query=up[5x]",
    "query?query=up offset",
    "query?query={}",
    "query?query={a=~\"(\"}",
    "query?query={a=~\".*\"}",
    "query?query=nonsense(up)",
    "query?query=rate(up)",
    "query?query=rate(up[1m], 1)",
    "query?query=sum(1, 2)",
    "query?query=topk(up)",
    "query?query=\"a\" + 1",
    "query?query=1 == 1",
    "query?query=up and 1",
    "query?query=up + on(a) group_left group_right up",
    "query?query=up bool",
    "query?query=up @ nonsense",
    "query?query='unclosed",
    "query?query=\"\\q\"",
    "query?query=1 2",
    "query?query=up\u{7f}",
    "query?query=up&time=x",
    "query?query=up&time=2023-11-14T24:13:20Z",
    "query?query=up&time=2023-11-14T22:13:20+25:00",
    "query?query=up&time=2023-02-29T00:00:00Z",
    "query?query=up&time=1__0",
    "query?query=up&time=1_",
    "query?query=up&time=0x10",
    "query?query=up&time=NaN",
    "query?query=up&timeout=x",
    "query?query=up&timeout=-",
    "query?query=up&limit=x",
    "query?query=up&limit=-1",
    "query?query=up&lookback_delta=x",
    "query?query=temperature * on(a) group_left up&time=1700000285",
    "query?query=requests_total * on(job) requests_total&time=1700000285",
    "query?query=up * on(job) group_left requests_total&time=1700000285",
    "query?query=label_replace(up, \"instance\", \"x\", \"\", \"\")&time=1700000285",
    "query?query=label_replace(up, \"a\", \"$1\", \"b\", \"(\")&time=1700000285",
    "query?query=label_replace(up, \"\\xff\", \"$1\", \"b\", \".*\")&time=1700000285",
    "query?query=count_values(\"\", up)&time=1700000285",
    "query?query=topk(NaN, up)&time=1700000285",
    "query_range?query=up",
    "query_range?query=up&start=1&end=2",
    "query_range?query=up&start=1&end=2&step=0",
    "query_range?query=up&start=1&end=2&step=-1",
    "query_range?query=up&start=1&end=2&step=x",
    "query_range?query=up&start=1&end=2&step=1e300",
    "query_range?query=up&start=2&end=1&step=1",
    "query_range?query=up&start=x&end=1&step=1",
    "query_range?query=up&start=1&end=x&step=1",
    "query_range?query=up&start=0&end=11001&step=1",
    "query_range?query=up[5m]&start=1&end=2&step=1",
    "query_range?query=\"text\"&start=1&end=2&step=1",
    "query_range?query=up{&start=1&end=2&step=1",
    "query_range?query=up&start=1&end=2&step=1&timeout=x",
    "query_range?query=up&start=1&end=2&step=1&limit=-5",
    "series",
    "series?match[]=",
    "series?match[]={}",
    "series?match[]={a!=\"x\"}",
    "series?match[]=up{",
    "series?match[]=sum(up)",
    "series?match[]=up&start=x",
    "series?match[]=up offset 5m",
    "series?match[]=\"x\"",
    "series?match[]={a=\"1\",a=~\"(\"}",
    "series?match[]=up&match[]=",
    "series?match[]={job=\"\"}",
    "series?match[]=up&end=x",
    "series?match[]=up&limit=x",
    "labels?match[]=",
    "labels?match[]={}",
    "labels?match[]=up[5m]",
    "labels?start=x",
    "labels?limit=-1",
    "label/job/values?match[]={a=~\".*\"}",
    "label/job/values?end=x",
    "metadata?limit=x",
    "metadata?limit_per_metric=x",
    "query_exemplars",
    "query_exemplars?query=",
    "query_exemplars?query=up{",
    "query_exemplars?query=rate(up)",
    "query_exemplars?query=up&start=x",
    "query_exemplars?query=up&end=x",
    "query_exemplars?query=up{&start=2&end=1",
    "format_query",
    "format_query?query=up{",
    "parse_query?query=up{",
];

/// Intended differences from the compared Prometheus, and why.
const DIFFERENCES: &[(Releases, &str, &str)] = &[
    (
        All,
        "label/le/values?limit=1",
        "Prometheus truncates before it sorts; Varve returns the first values in order",
    ),
    (
        All,
        "query?query=up&time=NaN",
        "Prometheus converts NaN to a time that depends on the platform; Varve rejects it",
    ),
    (
        Older,
        "query?query=up offset",
        "later releases also list step() and range()",
    ),
    (
        Older,
        "query?query=topk(NaN, up)&time=1700000285",
        "later releases have another message",
    ),
    (
        Older,
        "query?query=temperature * on(a) group_left up&time=1700000285",
        REPORTED_IN_ORDER,
    ),
    (
        Older,
        "query?query=requests_total * on(job) requests_total&time=1700000285",
        REPORTED_IN_ORDER,
    ),
    (
        Older,
        "query?query=up * on(job) group_left requests_total&time=1700000285",
        REPORTED_IN_ORDER,
    ),
];

/// Returns all requests.
pub(super) fn rows() -> impl Iterator<Item = &'static str> {
    [EXACT, UNORDERED, REFUSED].into_iter().flatten().copied()
}

const REPORTED_IN_ORDER: &str = "later releases list the two series of a duplicate match in order";

/// Sends all requests to both servers, which have the same data, and returns the unexpected
/// differences.
pub(super) fn differences(release: &Release, varve: &Http, prometheus: &Http) -> Vec<String> {
    let mut wrong = Vec::new();
    let tables: [(&[&str], Comparison); 3] =
        [(EXACT, exact), (UNORDERED, unordered), (REFUSED, refused)];
    for (rows, same) in tables {
        for row in rows {
            let (path, params) = call(row);
            let (ours, theirs) = (
                varve.query(&path, &params),
                prometheus.query(&path, &params),
            );
            let differs = !same(&ours, &theirs);
            if differs
                != DIFFERENCES
                    .iter()
                    .any(|(releases, of, _)| release.is_of(*releases) && of == row)
            {
                wrong.push(format!(
                    "{row}\n  varve:      {ours:?}\n  prometheus: {theirs:?}"
                ));
            }
        }
    }
    wrong
}

/// Returns `true` if Varve's response is equivalent to Prometheus'.
type Comparison = fn(&Answer, &Answer) -> bool;

fn exact(ours: &Answer, theirs: &Answer) -> bool {
    theirs.status == 200 && ours.status == 200 && ours.body == theirs.body
}

fn unordered(ours: &Answer, theirs: &Answer) -> bool {
    theirs.status == 200 && ours.status == 200 && sorted(ours.json()) == sorted(theirs.json())
}

fn refused(ours: &Answer, theirs: &Answer) -> bool {
    theirs.status >= 400 && ours.status == theirs.status && ours.error() == theirs.error()
}

/// Sorts the elements of `data`, or of its `result`.
fn sorted(mut answer: Value) -> Value {
    let data = &mut answer["data"];
    let list = if data.is_array() {
        data
    } else {
        &mut data["result"]
    };
    list.as_array_mut()
        .expect("a list of series")
        .sort_by_key(Value::to_string);
    answer
}
