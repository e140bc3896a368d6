//! `varve-bench query`: what dashboards ask of a fleet, how long it takes and how much comes back.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use comfy_table::{Table, presets};
use serde::Serialize;
use serde_json::Value;

use crate::args::QueryArgs;
use crate::client::{Client, escape};

/// A range query looks back over an hour, a minute a step, as a dashboard's panel does.
const RANGE_S: i64 = 3_600;
const STEP_S: i64 = 60;

/// One thing to ask.
#[derive(Debug, Clone, Copy)]
struct Question {
    name: &'static str,
    ask: Ask,
}

#[derive(Debug, Clone, Copy)]
enum Ask {
    /// PromQL at the end of the fleet's time.
    Instant(&'static str),
    /// PromQL over its last hour.
    Range(&'static str),
    /// A call of the metadata API, below `/api/v1/`; time is added.
    Metadata(&'static str),
}

/// What Grafana's panels for machines, workloads, GPUs and the control plane ask, and what its editor asks.
const QUESTIONS: [Question; 31] = [
    instant("machines", "count(node_uname_info)"),
    instant("cpu by machine", r#"1 - avg by (instance) (rate(node_cpu_seconds_total{mode="idle"}[5m]))"#),
    instant("memory top 10", "topk(10, node_memory_MemTotal_bytes - node_memory_MemAvailable_bytes)"),
    instant("load quantile", "quantile(0.95, node_load1)"),
    instant("disk full soon", r#"predict_linear(node_filesystem_avail_bytes{fstype!=""}[1h], 4 * 3600) < 0"#),
    instant("disk used", "max by (instance) (node_filesystem_size_bytes - node_filesystem_avail_bytes)"),
    instant("gpu power by machine", "sum by (Hostname) (DCGM_FI_DEV_POWER_USAGE)"),
    instant("pods by namespace", "count by (namespace) (kube_pod_info)"),
    instant(
        "network top 10 pods",
        "topk(10, sum by (namespace, pod) (rate(container_network_receive_bytes_total[5m])))",
    ),
    instant("restarts", "sum by (namespace) (increase(kube_pod_container_status_restarts_total[1h])) > 0"),
    instant(
        "requests of running pods",
        r#"sum by (namespace) (kube_pod_container_resource_requests * on (namespace, pod) group_left () max by (namespace, pod) (kube_pod_status_phase{phase=~"Pending|Running"} == 1))"#,
    ),
    instant("series by name", r#"count by (__name__) ({__name__=~"node_network_.+"})"#),
    instant("memory of a pod's containers", r#"container_memory_rss{node="gpu-00001",container!=""}"#),
    instant("peak cpu", "max_over_time(sum(rate(container_cpu_usage_seconds_total[5m]))[30m:5m])"),
    range("cpu of the cluster", r#"1 - avg(rate(node_cpu_seconds_total{mode="idle",cluster="eu-1"}[5m]))"#),
    range("cpu by namespace", "sum by (namespace) (rate(container_cpu_usage_seconds_total[5m]))"),
    range("memory by namespace", r#"sum by (namespace) (container_memory_working_set_bytes{container!=""})"#),
    range("gpu utilisation", "avg(DCGM_FI_DEV_GPU_UTIL)"),
    range("gpus of a machine", r#"DCGM_FI_DEV_GPU_TEMP{Hostname="gpu-00001"}"#),
    range("disk of a machine", r#"rate(node_disk_read_bytes_total{instance="gpu-00003"}[5m])"#),
    range("network of all machines", r#"sum(rate(node_network_receive_bytes_total{device!~"lo|veth.*"}[5m]))"#),
    range("requests by code", "sum by (code) (rate(apiserver_request_total[5m]))"),
    range(
        "api latency",
        r#"histogram_quantile(0.99, sum by (le) (rate(apiserver_request_duration_seconds_bucket{verb=~"GET|LIST"}[5m])))"#,
    ),
    range(
        "etcd fsync latency",
        "histogram_quantile(0.99, sum by (instance, le) (rate(etcd_disk_wal_fsync_duration_seconds_bucket[5m])))",
    ),
    range(
        "kubelet operations",
        "sum by (operation_type, le) (rate(kubelet_runtime_operations_duration_seconds_bucket[5m]))",
    ),
    metadata("label names", "labels"),
    metadata("metric names", "label/__name__/values"),
    metadata("namespaces of pods", "label/namespace/values?match[]=kube_pod_info"),
    metadata("pods of a namespace", "label/pod/values?match[]=kube_pod_info{namespace=\"research\"}"),
    metadata("series of a metric", "series?match[]=node_uname_info"),
    metadata("series of all buckets", "series?match[]={__name__=~\".+_bucket\"}"),
];

const fn instant(name: &'static str, query: &'static str) -> Question {
    Question { name, ask: Ask::Instant(query) }
}

const fn range(name: &'static str, query: &'static str) -> Question {
    Question { name, ask: Ask::Range(query) }
}

const fn metadata(name: &'static str, call: &'static str) -> Question {
    Question { name, ask: Ask::Metadata(call) }
}

/// What a question cost.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Asked {
    pub(crate) name: &'static str,
    pub(crate) is_metadata: bool,
    /// Median time until the last byte; `None` if it was refused.
    pub(crate) median_ms: Option<f64>,
    /// Bytes of the answer.
    pub(crate) answer_bytes: u64,
    /// Series or values in the answer; 0 where it is too long to be read here.
    pub(crate) n_results: usize,
    /// The status and text of a refusal.
    pub(crate) refusal: Option<String>,
}

/// Asks everything and prints a table.
///
/// # Errors
/// If the server cannot be reached.
pub(crate) fn query(args: &QueryArgs) -> Result<()> {
    let n_repeats = usize::from(args.repeats);
    let asked = ask_all(&args.url, args.time / 1000, n_repeats)?;
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(["question", "median ms", "results", "bytes"]);
    for asked in &asked {
        let median = match (&asked.median_ms, &asked.refusal) {
            (Some(ms), _) => format!("{ms:.2}"),
            (None, refusal) => refusal.clone().unwrap_or_default(),
        };
        table.add_row([asked.name.to_owned(), median, asked.n_results.to_string(), asked.answer_bytes.to_string()]);
    }
    println!("{table}");
    Ok(())
}

/// Asks everything `n_repeats` times, at a time in seconds.
pub(crate) fn ask_all(server: &str, end_s: i64, n_repeats: usize) -> Result<Vec<Asked>> {
    let client = Client::new(server);
    QUESTIONS.iter().map(|question| ask(&client, *question, end_s, n_repeats)).collect()
}

fn ask(client: &Client, question: Question, end_s: i64, n_repeats: usize) -> Result<Asked> {
    let path = question.ask.path(end_s);
    let mut times = Vec::with_capacity(n_repeats);
    let mut asked = Asked {
        name: question.name,
        is_metadata: matches!(question.ask, Ask::Metadata(_)),
        median_ms: None,
        answer_bytes: 0,
        n_results: 0,
        refusal: None,
    };
    for round in 0..n_repeats.max(1) {
        let started = Instant::now();
        let answer = client.get(&path).with_context(|| format!("ask for {}", question.name))?;
        times.push(started.elapsed());
        if !answer.is_success() {
            asked.refusal = Some(format!("{}: {}", answer.status, answer.text()));
            return Ok(asked);
        }
        if round == 0 {
            asked.answer_bytes = answer.size;
            asked.n_results = n_results(&answer.body);
        }
    }
    asked.median_ms = Some(median(&mut times).as_secs_f64() * 1e3);
    Ok(asked)
}

impl Ask {
    fn path(self, end_s: i64) -> String {
        let start_s = end_s - RANGE_S;
        match self {
            // `nocache` is VictoriaMetrics': it would answer a repetition from its cache of results.
            Self::Instant(query) => format!("/api/v1/query?nocache=1&time={end_s}&query={}", escape(query)),
            Self::Range(query) => format!(
                "/api/v1/query_range?nocache=1&start={start_s}&end={end_s}&step={STEP_S}&query={}",
                escape(query)
            ),
            Self::Metadata(call) => {
                let (path, query) = call.split_once('?').unwrap_or((call, ""));
                let matcher = query.strip_prefix("match[]=").map(|text| format!("&match[]={}", escape(text)));
                format!("/api/v1/{path}?start={start_s}&end={end_s}{}", matcher.unwrap_or_default())
            }
        }
    }
}

/// Counts the results in an answer that is there as a whole.
fn n_results(body: &[u8]) -> usize {
    let Ok(answer) = serde_json::from_slice::<Value>(body) else { return 0 };
    let data = &answer["data"];
    data["result"].as_array().or_else(|| data.as_array()).map_or(0, Vec::len)
}

/// Returns the middle one of some times.
pub(crate) fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Returns the geometric mean of the medians; `None` if one was refused.
pub(crate) fn geometric_mean(questions: &[Asked], is_metadata: bool) -> Option<f64> {
    let of_kind = questions.iter().filter(|asked| asked.is_metadata == is_metadata);
    let logs: Option<Vec<f64>> = of_kind.map(|asked| asked.median_ms.map(f64::ln)).collect();
    let logs = logs.filter(|logs| !logs.is_empty())?;
    Some((logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

/// Returns the one number that an instant query gives, 0 if it gives none.
pub(crate) fn scalar(client: &Client, query: &str, time_ms: i64) -> Result<f64> {
    let path = format!("/api/v1/query?nocache=1&query={}&time={}", escape(query), time_ms as f64 / 1e3);
    let answer = client.get(&path)?;
    ensure!(answer.is_success(), "the server says {}: {}", answer.status, answer.text());
    let answer: Value = serde_json::from_slice(&answer.body).context("read the answer")?;
    let text = answer["data"]["result"][0]["value"][1].as_str();
    text.map_or(Ok(0.0), |text| text.parse().with_context(|| format!("read the number {text}")))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use varve_query::Features;

    use super::*;

    #[test]
    fn every_question_has_a_name_of_its_own_and_parses() {
        let names: HashSet<_> = QUESTIONS.iter().map(|question| question.name).collect();
        assert_eq!(names.len(), QUESTIONS.len());
        for question in &QUESTIONS {
            if let Ask::Instant(query) | Ask::Range(query) = question.ask {
                varve_query::promql::parse(query, &Features::default()).unwrap();
            }
        }
    }

    #[test]
    fn paths_carry_times_and_matchers() {
        let path = Ask::Metadata("series?match[]=a{b=\"c\"}").path(7_200);
        assert_eq!(path, "/api/v1/series?start=3600&end=7200&match[]=a%7Bb%3D%22c%22%7D");
        assert_eq!(Ask::Metadata("labels").path(7_200), "/api/v1/labels?start=3600&end=7200");
        assert!(Ask::Range("up").path(7_200).ends_with("start=3600&end=7200&step=60&query=up"));
    }

    fn asked(median_ms: Option<f64>) -> Asked {
        Asked { name: "up", is_metadata: false, median_ms, answer_bytes: 1, n_results: 1, refusal: None }
    }

    #[test]
    fn a_mean_needs_every_answer() {
        let mean = geometric_mean(&[asked(Some(2.0)), asked(Some(8.0))], false).unwrap();
        assert!((mean - 4.0).abs() < 1e-12);
        assert_eq!(geometric_mean(&[asked(Some(2.0)), asked(None)], false), None);
        assert_eq!(geometric_mean(&[asked(Some(2.0))], true), None);
    }

    #[test]
    fn the_median_is_the_middle_one() {
        let mut times = [5, 1, 3].map(Duration::from_millis);
        assert_eq!(median(&mut times), Duration::from_millis(3));
        assert_eq!(median(&mut []), Duration::ZERO);
    }
}
