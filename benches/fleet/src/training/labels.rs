//! Label sets of the training cluster, as dcgm-exporter, node-exporter, kube-state-metrics and
//! iptables-exporter write them and kube-prometheus' scrape configurations leave them.

use varve_model::Labels;

use super::capacity::PLACEHOLDER_CLASS;
use super::faults::node_name;
use super::metrics::{GpuSeries, NodeSeries, PodSeries, PortSeries};
use super::schedule::{Job, LEAF, OWNING_TEAM, Owner, Pod, Purpose};
use crate::fleet::mix2;

/// Labels under construction.
struct Pairs(Vec<(&'static str, String)>);

impl Pairs {
    fn new(metric: &str, job: &str, instance: String) -> Self {
        Self(vec![
            ("__name__", metric.to_owned()),
            ("job", job.to_owned()),
            ("instance", instance),
        ])
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.0.push((name, value.into()));
        self
    }

    fn labels(&self) -> Labels {
        Labels::from_pairs(self.0.iter().map(|(name, value)| (*name, value.as_str())))
            .expect("names are distinct")
    }
}

/// Returns the labels of a series of a GPU. `user` is the pod that uses it, with its job.
pub(super) fn gpu(
    series: GpuSeries,
    node: usize,
    gpu: usize,
    user: Option<(&Job, &Pod)>,
) -> Labels {
    let hash = mix2(node as u64, gpu as u64);
    let bus = 0x1b + 0x11 * gpu;
    let pairs = Pairs::new(
        series.metric(),
        "dcgm-exporter",
        format!("{}:9400", address(node)),
    )
    .with("gpu", gpu.to_string())
    .with("UUID", format!("GPU-{hash:016x}"))
    .with("pci_bus_id", format!("00000000:{bus:02X}:00.0"))
    .with("device", format!("nvidia{gpu}"))
    .with("modelName", "NVIDIA H100 80GB HBM3")
    .with("Hostname", node_name(node))
    .with("DCGM_FI_DRIVER_VERSION", "580.105.08");
    match user {
        Some((job, pod)) => pairs
            .with("container", "main")
            .with("namespace", job.team)
            .with("pod", pod.name.clone())
            .labels(),
        None => pairs.labels(),
    }
}

/// Returns the labels of a series of an InfiniBand port.
pub(super) fn port(series: PortSeries, node: usize, port: usize) -> Labels {
    Pairs::new(series.metric(), "node-exporter", node_name(node))
        .with("device", format!("mlx5_{port}"))
        .with("port", "1")
        .labels()
}

/// Returns the labels of a series of a node.
pub(super) fn node(series: NodeSeries, node: usize, state_metrics: &str) -> Labels {
    let name = node_name(node);
    let pairs = match series {
        NodeSeries::DiskBusy => of_disk("node_disk_io_time_seconds_total", name),
        NodeSeries::DiskReadTime => of_disk("node_disk_read_time_seconds_total", name),
        NodeSeries::DiskReads => of_disk("node_disk_reads_completed_total", name),
        NodeSeries::CpuFrequency => {
            of_node_exporter("node_cpu_scaling_frequency_hertz", name).with("cpu", "0")
        }
        NodeSeries::MemoryAvailable => of_node_exporter("node_memory_MemAvailable_bytes", name),
        NodeSeries::MemoryTotal => of_node_exporter("node_memory_MemTotal_bytes", name),
        NodeSeries::InternetIn => of_iptables(node, "in").with("chain", "prerouting"),
        NodeSeries::InternetOut => of_iptables(node, "out").with("chain", "postrouting"),
        NodeSeries::KubeletUp => Pairs::new("up", "kubelet", format!("{}:10250", address(node)))
            .with("metrics_path", "/metrics")
            .with("node", name),
        NodeSeries::Ready => of_state_metrics("kube_node_status_condition", state_metrics)
            .with("node", name)
            .with("condition", "Ready")
            .with("status", "true"),
        NodeSeries::NotReady => of_state_metrics("kube_node_status_condition", state_metrics)
            .with("node", name)
            .with("condition", "Ready")
            .with("status", "unknown"),
        NodeSeries::Labels => of_state_metrics("kube_node_labels", state_metrics)
            .with("node", name)
            .with("label_team", owning_team(node)),
        NodeSeries::Gpus => of_state_metrics("kube_node_status_allocatable", state_metrics)
            .with("node", name)
            .with("resource", "nvidia_com_gpu")
            .with("unit", "integer"),
        NodeSeries::Created => {
            of_state_metrics("kube_node_created", state_metrics).with("node", name)
        }
        NodeSeries::PreflightTaint => of_state_metrics("kube_node_spec_taint", state_metrics)
            .with("node", name)
            .with("key", "cluster.example.com/preflight")
            .with("value", "pending")
            .with("effect", "NoSchedule"),
        NodeSeries::DiskAvailable => of_file_system("node_filesystem_avail_bytes", name, "/"),
        NodeSeries::DiskSize => of_file_system("node_filesystem_size_bytes", name, "/"),
        NodeSeries::DiskReadOnly => of_file_system("node_filesystem_readonly", name, "/"),
        NodeSeries::SystemAvailable => of_file_system("node_filesystem_avail_bytes", name, "/usr"),
        NodeSeries::SystemSize => of_file_system("node_filesystem_size_bytes", name, "/usr"),
        NodeSeries::SystemReadOnly => of_file_system("node_filesystem_readonly", name, "/usr"),
        NodeSeries::PauseMicroseconds => {
            of_node_exporter("node_ethtool_received_prio3_pause_duration", name)
                .with("device", "ens1f0np0")
        }
    };
    pairs.labels()
}

/// Returns the team that owns a node.
fn owning_team(node: usize) -> &'static str {
    match node % LEAF {
        0 => OWNING_TEAM,
        _ => "shared",
    }
}

fn of_file_system(metric: &str, node_name: String, mount_point: &str) -> Pairs {
    let device = match mount_point {
        "/" => "/dev/nvme0n1p9",
        _ => "/dev/nvme0n1p3",
    };
    of_node_exporter(metric, node_name)
        .with("device", device)
        .with("mountpoint", mount_point)
        .with("fstype", "ext4")
}

fn of_node_exporter(metric: &str, node_name: String) -> Pairs {
    Pairs::new(metric, "node-exporter", node_name)
}

fn of_disk(metric: &str, node_name: String) -> Pairs {
    of_node_exporter(metric, node_name).with("device", "nvme0n1")
}

fn of_iptables(node: usize, direction: &str) -> Pairs {
    let instance = format!("{}:9119", address(node));
    Pairs::new("iptables_bytes_total", "iptables-exporter", instance)
        .with("node", node_name(node))
        .with("ip_version", "4")
        .with("table", "mangle")
        .with("rule", format!("openai traffic=internet-{direction}"))
}

fn of_state_metrics(metric: &str, instance: &str) -> Pairs {
    Pairs::new(metric, "kube-state-metrics", instance.to_owned())
}

/// Returns the labels of a series of a pod.
pub(super) fn pod(
    series: PodSeries,
    job: &Job,
    pod: &Pod,
    pod_idx: usize,
    state_metrics: &str,
) -> Labels {
    let node = pod.node.map(node_name).unwrap_or_default();
    let metric = match series {
        PodSeries::Owner => "kube_pod_owner",
        PodSeries::Info => "kube_pod_info",
        PodSeries::Created => "kube_pod_created",
        PodSeries::Labels => "kube_pod_labels",
        PodSeries::Pending | PodSeries::Running => "kube_pod_status_phase",
        PodSeries::Scheduled => "kube_pod_status_scheduled",
        PodSeries::Ready => "kube_pod_status_ready",
        PodSeries::Restarts => "kube_pod_container_status_restarts_total",
        PodSeries::Waiting => "kube_pod_container_status_waiting_reason",
        PodSeries::GpuRequest => "kube_pod_container_resource_requests",
    };
    let pairs = of_state_metrics(metric, state_metrics)
        .with("namespace", job.team)
        .with("pod", pod.name.clone())
        .with("uid", format!("{:016x}", mix2(0x9d, pod_idx as u64)));
    let pairs = match series {
        PodSeries::Owner => {
            let owner = owner(job);
            pairs
                .with("owner_kind", owner.0)
                .with("owner_name", owner.1)
                .with("owner_is_controller", "true")
        }
        PodSeries::Info => pairs
            .with("node", node)
            .with("host_ip", pod.node.map(address).unwrap_or_default())
            .with("priority_class", priority_class(job)),
        PodSeries::Created => pairs,
        PodSeries::Labels => with_job_labels(pairs, job, pod),
        PodSeries::Pending => pairs.with("phase", "Pending"),
        PodSeries::Running => pairs.with("phase", "Running"),
        PodSeries::Scheduled | PodSeries::Ready => pairs.with("condition", "true"),
        PodSeries::Restarts => pairs.with("container", "main"),
        PodSeries::Waiting => pairs
            .with("container", "main")
            .with("reason", "ContainerCreating"),
        PodSeries::GpuRequest => pairs
            .with("container", "main")
            .with("node", node)
            .with("resource", "nvidia_com_gpu")
            .with("unit", "integer"),
    };
    pairs.labels()
}

/// Returns kind and name of the controller of a pod.
fn owner(job: &Job) -> (&'static str, String) {
    let name = job.name.clone();
    match job.owner {
        Owner::Job => ("Job", name),
        Owner::StatefulSet => ("StatefulSet", name),
        // A JobSet owns Jobs, which own pods.
        Owner::JobSet => ("Job", format!("{name}-workers-0")),
        Owner::PyTorchJob => ("PyTorchJob", name),
        Owner::MpiJob => ("MPIJob", name),
        Owner::ReplicaSet => ("ReplicaSet", name),
    }
}

fn priority_class(job: &Job) -> &'static str {
    match job.purpose {
        Purpose::Placeholder => PLACEHOLDER_CLASS,
        _ => "training",
    }
}

fn with_job_labels(pairs: Pairs, job: &Job, pod: &Pod) -> Pairs {
    match job.owner {
        Owner::Job | Owner::StatefulSet | Owner::ReplicaSet => pairs,
        Owner::JobSet => pairs
            .with("label_jobset_sigs_k8s_io_jobset_name", job.name.clone())
            .with("label_jobset_sigs_k8s_io_job_index", "0"),
        Owner::PyTorchJob | Owner::MpiJob => pairs
            .with("label_training_kubeflow_org_job_name", job.name.clone())
            .with(
                "label_training_kubeflow_org_replica_index",
                pod.rank.to_string(),
            ),
    }
}

fn address(node: usize) -> String {
    format!(
        "10.{}.{}.{}",
        64 + node / 62_500,
        node / 250 % 250,
        node % 250 + 1
    )
}
