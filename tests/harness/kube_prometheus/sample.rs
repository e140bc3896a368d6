//! Samples of scrapes in the text format, and the labels that a scrape adds.

use varve_ingest::text::{Line, LineReader, TextFormat};

/// A sample.
pub(super) struct Sample {
    /// Sorted by name.
    pub(super) labels: Vec<(String, String)>,
    pub(super) value: f64,
}

/// Reads all samples of a scrape.
pub(super) fn parse(text: &str) -> Vec<Sample> {
    let mut lines = LineReader::new(text.as_bytes(), TextFormat::Prometheus);
    let mut samples = Vec::new();
    while let Some(line) = lines.read().expect("a scrape is valid") {
        if let Line::Sample(sample) = line {
            let mut labels: Vec<(String, String)> = sample
                .labels
                .iter()
                .map(|(name, value)| (name.to_string(), value.to_string()))
                .collect();
            labels.sort();
            samples.push(Sample {
                labels,
                value: sample.value,
            });
        }
    }
    samples
}

/// Adds the labels of a target, as the monitors of kube-prometheus do, and writes bucket bounds as
/// floats, as Prometheus 3 does.
pub(super) fn add_target_labels(labels: &mut Vec<(String, String)>, job: &str) {
    let instance = if job == "node-exporter" {
        "127.0.0.1:9100"
    } else {
        "10.0.0.1:8443"
    };
    let mut add = |name: &str, value: &str| {
        if !labels.iter().any(|(n, _)| n == name) {
            labels.push((name.to_owned(), value.to_owned()));
        }
    };
    add("job", job);
    add("instance", instance);
    add("namespace", "monitoring");
    if job == "kubelet" {
        add("metrics_path", "/metrics/cadvisor");
        add("node", "minikube");
    }
    for (name, value) in labels.iter_mut() {
        if name == "le" && value.bytes().all(|b| b.is_ascii_digit()) {
            value.push_str(".0");
        }
    }
    labels.sort();
}
