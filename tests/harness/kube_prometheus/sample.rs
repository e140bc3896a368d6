//! Samples of scrapes in the text format, and the labels that a scrape adds.

/// A sample.
pub(super) struct Sample {
    /// Sorted by name.
    pub(super) labels: Vec<(String, String)>,
    pub(super) value: f64,
}

/// Reads all samples of a scrape.
pub(super) fn parse(text: &str) -> impl Iterator<Item = Sample> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(parse_line)
}

fn parse_line(line: &str) -> Sample {
    let end = line.find(['{', ' ']).unwrap();
    let mut labels = vec![("__name__".to_owned(), line[..end].to_owned())];
    let mut rest = &line[end..];
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            rest = rest.trim_start_matches([',', ' ']);
            if let Some(after) = rest.strip_prefix('}') {
                rest = after;
                break;
            }
            let (name, after) = rest.split_once("=\"").unwrap();
            let value;
            (value, rest) = unquote(after);
            labels.push((name.trim().to_owned(), value));
        }
    }
    labels.sort();
    let value = rest.split_whitespace().next().unwrap();
    Sample { labels, value: value.parse().unwrap() }
}

fn unquote(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    loop {
        match chars.next().unwrap() {
            (at, '"') => return (value, &text[at + 1..]),
            (_, '\\') => value.push(match chars.next().unwrap().1 {
                'n' => '\n',
                c => c,
            }),
            (_, c) => value.push(c),
        }
    }
}

/// Adds the labels of a target, as the monitors of kube-prometheus do, and writes bucket bounds as floats, as Prometheus 3 does.
pub(super) fn add_target_labels(labels: &mut Vec<(String, String)>, job: &str) {
    let instance = if job == "node-exporter" { "127.0.0.1:9100" } else { "10.0.0.1:8443" };
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
