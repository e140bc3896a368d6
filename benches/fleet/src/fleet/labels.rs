//! The labels of a series: those of its target, of its subject, and its own.

use varve_tsdb::Labels;
use varve_tsdb::labels::{LabelsBuilder, METRIC_NAME};

use super::identity::{Node, Pod, daemon, push, uuid};
use super::noise::mix2;
use super::template::{Job, Row, SANDBOX, Subject, Text};

/// Size of the names and values of most series.
const TEXT_SIZE: usize = 1024;
const LABELS_MAX: usize = 24;

/// Labels in the order in which they are added.
struct LabelSet {
    /// Concatenated values.
    text: String,
    /// Names, with the end of each value in `text`.
    ends: Vec<(&'static str, usize)>,
}

/// Returns the labels of a row of a machine, for a generation of its pod.
pub(super) fn labels(row: &Row, node: Node, generation: u32) -> Labels {
    let mut set = LabelSet { text: String::with_capacity(TEXT_SIZE), ends: Vec::with_capacity(LABELS_MAX) };
    let pod = row.subject.slot().map(|slot| Pod::new(node, slot, generation));
    set.is("cluster", "eu-1");
    set.add(METRIC_NAME, |out| own(&row.name, row, node, pod, out));
    set.target(row.job, node);
    match (row.job, pod) {
        (Job::Dcgm, Some(pod)) => set.gpu(row.subject, node, pod),
        (Job::Cadvisor, Some(pod)) => set.container(row.subject, pod),
        (Job::KubeStateMetrics, Some(pod)) => set.object(row.subject, pod),
        _ => {}
    }
    for (name, text) in &row.own {
        set.add(name, |out| own(text, row, node, pod, out));
    }
    set.finish()
}

impl LabelSet {
    fn add(&mut self, name: &'static str, write: impl FnOnce(&mut String)) {
        write(&mut self.text);
        self.ends.push((name, self.text.len()));
    }

    fn is(&mut self, name: &'static str, value: &str) {
        self.add(name, |out| out.push_str(value));
    }

    fn address(&mut self, node: Node, port: u16) {
        self.add("instance", |out| {
            node.ip(out);
            push(out, format_args!(":{port}"));
        });
    }

    /// Adds the labels of service discovery, as the monitors of kube-prometheus relabel them.
    fn target(&mut self, job: Job, node: Node) {
        match job {
            Job::NodeExporter => {
                self.service(job.name(), "monitoring", "kube-rbac-proxy", "https", node);
                self.add("instance", |out| node.name(out));
            }
            Job::Kubelet | Job::Cadvisor => self.kubelet(job, node),
            Job::Dcgm => {
                self.service(job.name(), "gpu-operator", "nvidia-dcgm-exporter", "gpu-metrics", node);
                self.address(node, 9400);
            }
            Job::Iptables => {
                self.service(job.name(), "monitoring", "iptables-exporter", "metrics", node);
                self.address(node, 9455);
                self.add("node", |out| node.name(out));
            }
            Job::KubeStateMetrics => {
                self.is("job", job.name());
                self.is("service", job.name());
                self.is("endpoint", "http");
                self.is("instance", "10.127.3.17:8080");
            }
            Job::ApiServer => {
                self.is("job", job.name());
                self.is("endpoint", "https");
                self.is("namespace", "default");
                self.is("service", "kubernetes");
                self.address(node, 6443);
            }
            Job::Etcd => {
                self.service(job.name(), "kube-system", "etcd", "http-metrics", node);
                self.address(node, 2381);
            }
        }
    }

    /// Adds the labels of a target that is a pod of a DaemonSet behind a service of the same name.
    fn service(&mut self, name: &str, namespace: &str, container: &str, endpoint: &str, node: Node) {
        self.is("job", name);
        self.is("service", name);
        self.is("namespace", namespace);
        self.is("container", container);
        self.is("endpoint", endpoint);
        self.add("pod", |out| daemon(node, name, out));
    }

    fn kubelet(&mut self, job: Job, node: Node) {
        self.is("job", job.name());
        self.is("service", "kubelet");
        self.is("endpoint", "https-metrics");
        self.is("metrics_path", if job == Job::Cadvisor { "/metrics/cadvisor" } else { "/metrics" });
        self.add("node", |out| node.name(out));
        self.address(node, 10_250);
        if job == Job::Kubelet {
            self.is("namespace", "kube-system");
        }
    }

    fn gpu(&mut self, subject: Subject, node: Node, pod: Pod) {
        let Subject::Gpu { gpu, .. } = subject else { return };
        self.add("gpu", |out| push(out, format_args!("{gpu}")));
        self.add("device", |out| push(out, format_args!("nvidia{gpu}")));
        self.add("UUID", |out| {
            out.push_str("GPU-");
            uuid(mix2(node.seed, 64 + u64::from(gpu)), out);
        });
        let bus = 0x53 + u32::from(gpu) * 0x11;
        self.add("pci_bus_id", |out| push(out, format_args!("00000000:{bus:02X}:00.0")));
        self.is("modelName", "NVIDIA H100 80GB HBM3");
        self.add("Hostname", |out| node.name(out));
        self.is("DCGM_FI_DRIVER_VERSION", "580.105.08");
        self.add("exported_namespace", |out| pod.namespace(out));
        self.add("exported_pod", |out| pod.name(out));
        self.is("exported_container", Pod::container(0));
    }

    fn container(&mut self, subject: Subject, pod: Pod) {
        let Subject::Container { container, .. } = subject else { return };
        self.add("namespace", |out| pod.namespace(out));
        self.add("pod", |out| pod.name(out));
        self.add("id", |out| pod.cgroup(Some(container), out));
        self.add("name", |out| pod.container_id(container, out));
        if container == SANDBOX {
            self.is("image", "registry.k8s.io/pause:3.10.1");
        } else {
            self.is("container", Pod::container(container));
            self.add("image", |out| pod.image(container, out));
        }
    }

    fn object(&mut self, subject: Subject, pod: Pod) {
        self.add("namespace", |out| pod.namespace(out));
        self.add("pod", |out| pod.name(out));
        self.add("uid", |out| pod.uid(out));
        match subject {
            Subject::Container { container, .. } => self.is("container", Pod::container(container)),
            // The label of the target, which remains if the exporter has none.
            _ => self.is("container", Job::KubeStateMetrics.name()),
        }
    }

    fn finish(self) -> Labels {
        let starts = [0].into_iter().chain(self.ends.iter().map(|&(_, end)| end));
        let mut pairs: Vec<_> =
            self.ends.iter().zip(starts).map(|(&(name, end), start)| (name, &self.text[start..end])).collect();
        pairs.sort_unstable_by_key(|&(name, _)| name);
        debug_assert!(pairs.windows(2).all(|w| w[0].0 < w[1].0), "duplicate name in {pairs:?}");
        let mut labels = LabelsBuilder::with_capacity(self.text.len() + 16 * pairs.len());
        for (name, value) in pairs.into_iter().filter(|(_, value)| !value.is_empty()) {
            labels.push(name, value);
        }
        labels.finish()
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

/// Writes the value of one of a row's own labels.
fn own(text: &Text, row: &Row, node: Node, pod: Option<Pod>, out: &mut String) {
    let container = if let Subject::Container { container, .. } = row.subject { container } else { 0 };
    match (text, pod) {
        (Text::Is(text), _) => out.push_str(text),
        (Text::Owned(text), _) => out.push_str(text),
        (Text::NodeName, _) => node.name(out),
        (Text::NodeIp, _) => node.ip(out),
        (Text::PodIp, Some(pod)) => pod.ip(node, out),
        (Text::Owner, Some(pod)) => pod.owner(out),
        (Text::Image, Some(pod)) => pod.image(container, out),
        (Text::ImageId, Some(pod)) => pod.image_id(container, out),
        (Text::ContainerId, Some(pod)) => {
            out.push_str("containerd://");
            pod.container_id(container, out);
        }
        (Text::TrafficRule { from }, Some(pod)) => {
            out.push_str(if *from { "-s " } else { "-d " });
            pod.ip(node, out);
            out.push_str("/32 -m comment --comment \"");
            pod.namespace(out);
            out.push('/');
            pod.name(out);
            out.push_str("\" -j RETURN");
        }
        (
            Text::PodIp | Text::Owner | Text::Image | Text::ImageId | Text::ContainerId | Text::TrafficRule { .. },
            None,
        ) => {
            unreachable!("only rows of pods use them")
        }
    }
}
