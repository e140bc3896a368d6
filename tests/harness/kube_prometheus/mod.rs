//! Expressions and rules of kube-prometheus, and scrapes of the components that it monitors, read
//! in place from ../shared.

mod expressions;
mod rules;
mod sample;

use std::path::PathBuf;

use super::{TimeSeries, series};
pub(crate) use expressions::{Expression, expressions};
pub(crate) use rules::{RecordingRule, recording_rules};
use sample::Sample;

/// Scrapes of Kubernetes 1.35 with their jobs in kube-prometheus.
pub(crate) const KUBERNETES: [(&str, &str); 7] = [
    ("apiserver", "kube-apiserver-1.35.prom"),
    (
        "kube-controller-manager",
        "kube-controller-manager-1.35.prom",
    ),
    ("kube-scheduler", "kube-scheduler-1.35.prom"),
    ("kube-state-metrics", "kube-state-metrics-k8s-1.35.prom"),
    ("kubelet", "kubelet-cadvisor-1.35.prom"),
    ("node-exporter", "node-exporter-1.11-live.prom"),
    ("etcd", "etcd-k8s-1.35.prom"),
];
/// Scrapes for the other dashboards. There is none of kube-proxy; every component of Kubernetes
/// exports its metrics of client and process.
pub(crate) const OTHERS: [(&str, &str); 4] = [
    ("kube-proxy", "kube-controller-manager-1.35.prom"),
    ("prometheus-k8s", "prometheus-3.5.3-live.prom"),
    ("kube-dns", "coredns-1.14-fixture.prom"),
    ("dcgm-exporter", "dcgm-exporter-t4.prom"),
];
/// Returns the path of a file of the shared data. The test has called [`is_there`].
pub(crate) fn shared(path: &str) -> PathBuf {
    varve_oracle::shared(path).expect("the test has looked for the shared data")
}

/// Returns `true` if the data of these tests exist, and says if they are skipped.
pub(crate) fn is_there() -> bool {
    ["kube-prometheus/rules", "exposition", "dashboards"]
        .iter()
        .all(|folder| varve_oracle::shared(folder).is_some())
}

/// Returns the series of scrapes, and `up`, with growing values at the given times.
pub(crate) fn scraped(
    scrapes: &[(&str, &str)],
    times_ms: impl Iterator<Item = i64> + Clone,
) -> Vec<TimeSeries> {
    let mut all = Vec::new();
    for (job, file) in scrapes {
        let text = std::fs::read_to_string(shared("exposition").join(file)).unwrap();
        let up = Sample {
            labels: vec![("__name__".to_owned(), "up".to_owned())],
            value: 1.0,
        };
        for Sample { mut labels, value } in sample::parse(&text).into_iter().chain([up]) {
            sample::add_target_labels(&mut labels, job);
            // 0 and 1 are states, not amounts.
            let growth = if value.abs() > 1.0 {
                value.abs() * 0.01
            } else {
                0.0
            };
            let samples: Vec<_> = times_ms
                .clone()
                .enumerate()
                .map(|(i, time_ms)| (time_ms, value + growth * i as f64))
                .collect();
            let labels: Vec<_> = labels
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str()))
                .collect();
            all.push(series(&labels, &samples));
        }
    }
    all
}
