//! The labels of a series: the labels of its target and its subject, and its own.

use varve_model::Labels;
use varve_model::labels::METRIC_NAME;

use super::identity::{Node, Pod, daemon, uuid};
use super::noise::mix2;
use super::template::{Job, Row, SANDBOX, Subject, Text};

/// Labels in the order in which they are added.
#[derive(Default)]
struct LabelSet(Vec<(&'static str, String)>);

/// Returns the labels of a row of a machine, for a generation of its pod.
pub(super) fn labels(row: &Row, node: Node, generation: u32) -> Labels {
    let mut set = LabelSet::default();
    let pod = row
        .subject
        .slot()
        .map(|slot| Pod::new(node, slot, generation));
    set.add("cluster", "eu-1");
    set.add(METRIC_NAME, own(&row.name, row, node, pod));
    set.target(row.job, node);
    match (row.job, pod) {
        (Job::Dcgm, Some(pod)) => set.gpu(row.subject, node, pod),
        (Job::Cadvisor, Some(pod)) => set.container(row.subject, pod),
        (Job::KubeStateMetrics, Some(pod)) => set.object(row.subject, pod),
        _ => {}
    }
    for (name, text) in &row.own {
        set.add(name, own(text, row, node, pod));
    }
    set.0.retain(|(_, value)| !value.is_empty());
    let pairs = set.0.iter().map(|(name, value)| (*name, value.as_str()));
    Labels::from_pairs(pairs).expect("the names are unique")
}

impl LabelSet {
    fn add(&mut self, name: &'static str, value: impl Into<String>) {
        self.0.push((name, value.into()));
    }

    fn add_all<const N: usize>(&mut self, labels: [(&'static str, &str); N]) {
        for (name, value) in labels {
            self.add(name, value);
        }
    }

    fn address(&mut self, node: Node, port: u16) {
        self.add("instance", format!("{}:{port}", node.ip()));
    }

    /// Adds the labels of service discovery, as the monitors of kube-prometheus relabel them.
    fn target(&mut self, job: Job, node: Node) {
        match job {
            Job::NodeExporter => {
                self.service(job.name(), "monitoring", "kube-rbac-proxy", "https", node);
                self.add("instance", node.name());
            }
            Job::Kubelet | Job::Cadvisor => self.kubelet(job, node),
            Job::Dcgm => {
                self.service(
                    job.name(),
                    "gpu-operator",
                    "nvidia-dcgm-exporter",
                    "gpu-metrics",
                    node,
                );
                self.address(node, 9400);
            }
            Job::Iptables => {
                self.service(
                    job.name(),
                    "monitoring",
                    "iptables-exporter",
                    "metrics",
                    node,
                );
                self.address(node, 9455);
                self.add("node", node.name());
            }
            Job::KubeStateMetrics => {
                let instance = "10.127.3.17:8080";
                self.add_all([
                    ("job", job.name()),
                    ("service", job.name()),
                    ("endpoint", "http"),
                    ("instance", instance),
                ]);
            }
            Job::ApiServer => {
                let namespace = ("namespace", "default");
                self.add_all([
                    ("job", job.name()),
                    ("endpoint", "https"),
                    namespace,
                    ("service", "kubernetes"),
                ]);
                self.address(node, 6443);
            }
            Job::Etcd => {
                self.service(job.name(), "kube-system", "etcd", "http-metrics", node);
                self.address(node, 2381);
            }
        }
    }

    /// Adds the labels of a target that is a pod of a DaemonSet behind a service of the same name.
    fn service(
        &mut self,
        name: &str,
        namespace: &str,
        container: &str,
        endpoint: &str,
        node: Node,
    ) {
        self.add_all([
            ("job", name),
            ("service", name),
            ("namespace", namespace),
            ("container", container),
        ]);
        self.add("endpoint", endpoint);
        self.add("pod", daemon(node, name));
    }

    fn kubelet(&mut self, job: Job, node: Node) {
        let path = if job == Job::Cadvisor {
            "/metrics/cadvisor"
        } else {
            "/metrics"
        };
        self.add_all([
            ("job", job.name()),
            ("service", "kubelet"),
            ("endpoint", "https-metrics"),
            ("metrics_path", path),
        ]);
        self.add("node", node.name());
        self.address(node, 10_250);
        if job == Job::Kubelet {
            self.add("namespace", "kube-system");
        }
    }

    fn gpu(&mut self, subject: Subject, node: Node, pod: Pod) {
        let Subject::Gpu { gpu, .. } = subject else {
            return;
        };
        self.add("gpu", gpu.to_string());
        self.add("device", format!("nvidia{gpu}"));
        self.add(
            "UUID",
            format!("GPU-{}", uuid(mix2(node.seed, 64 + u64::from(gpu)))),
        );
        self.add(
            "pci_bus_id",
            format!("00000000:{:02X}:00.0", 0x53 + u32::from(gpu) * 0x11),
        );
        self.add("modelName", "NVIDIA H100 80GB HBM3");
        self.add("Hostname", node.name());
        self.add("DCGM_FI_DRIVER_VERSION", "580.105.08");
        self.add("exported_namespace", pod.namespace());
        self.add("exported_pod", pod.name());
        self.add("exported_container", Pod::container(0));
    }

    fn container(&mut self, subject: Subject, pod: Pod) {
        let Subject::Container { container, .. } = subject else {
            return;
        };
        self.add("namespace", pod.namespace());
        self.add("pod", pod.name());
        self.add("id", pod.cgroup(container));
        self.add("name", pod.container_id(container));
        if container == SANDBOX {
            self.add("image", "registry.k8s.io/pause:3.10.1");
        } else {
            self.add("container", Pod::container(container));
            self.add("image", pod.image(container));
        }
    }

    fn object(&mut self, subject: Subject, pod: Pod) {
        self.add("namespace", pod.namespace());
        self.add("pod", pod.name());
        self.add("uid", pod.uid());
        self.add(
            "container",
            match subject {
                Subject::Container { container, .. } => Pod::container(container),
                // The target's label remains if the exporter has none.
                _ => Job::KubeStateMetrics.name(),
            },
        );
    }
}

impl Job {
    fn name(self) -> &'static str {
        match self {
            Self::NodeExporter => "node-exporter",
            Self::Kubelet | Self::Cadvisor => "kubelet",
            Self::Dcgm => "nvidia-dcgm-exporter",
            Self::Iptables => "iptables-exporter",
            Self::KubeStateMetrics => "kube-state-metrics",
            Self::ApiServer => "apiserver",
            Self::Etcd => "etcd",
        }
    }
}

/// Returns the value of one of a row's own labels.
fn own(text: &Text, row: &Row, node: Node, pod: Option<Pod>) -> String {
    let container = if let Subject::Container { container, .. } = row.subject {
        container
    } else {
        0
    };
    let pod = || pod.expect("only rows of pods use it");
    match text {
        Text::Is(text) => (*text).to_owned(),
        Text::Owned(text) => text.clone(),
        Text::NodeName => node.name(),
        Text::NodeIp => node.ip(),
        Text::PodIp => pod().ip(node),
        Text::Owner => pod().owner(),
        Text::Image => pod().image(container),
        Text::ImageId => pod().image_id(container),
        Text::ContainerId => format!("containerd://{}", pod().container_id(container)),
        Text::TrafficRule { from } => {
            let flag = if *from { "-s" } else { "-d" };
            let pod = pod();
            let ip = pod.ip(node);
            let namespace = pod.namespace();
            let name = pod.name();
            format!("{flag} {ip}/32 -m comment --comment \"{namespace}/{name}\" -j RETURN")
        }
    }
}
