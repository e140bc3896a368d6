//! Label sets of the training cluster, as dcgm-exporter, node-exporter, kube-state-metrics and
//! iptables-exporter write them and kube-prometheus' scrape configurations leave them.

use varve_model::Labels;

use super::faults::node_name;
use super::schedule::{Job, Owner, Pod};
use crate::fleet::mix2;

/// Series of a GPU, in the order of their slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GpuSeries {
    Utilization,
    Clock,
    Power,
    Tensor,
    Temperature,
    Nvlink,
    PcieReplays,
    PcieWidth,
    Xid,
    RemappedRows,
    UncorrectableRows,
    RowRemapFailure,
    ThrottleReasons,
    CorrectedErrors,
}

/// Series of an InfiniBand port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PortSeries {
    Bytes,
    Wait,
    Downed,
    Rate,
}

/// Series of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeSeries {
    DiskBusy,
    DiskReadTime,
    DiskReads,
    CpuFrequency,
    MemoryAvailable,
    MemoryTotal,
    InternetIn,
    InternetOut,
    KubeletUp,
    Ready,
    NotReady,
    Labels,
    Gpus,
}

/// Series of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PodSeries {
    Owner,
    Info,
    Created,
    Labels,
    Pending,
    Running,
    Scheduled,
    Ready,
    Restarts,
    GpuRequest,
}

impl GpuSeries {
    pub(super) const ALL: [Self; 14] = [
        Self::Utilization,
        Self::Clock,
        Self::Power,
        Self::Tensor,
        Self::Temperature,
        Self::Nvlink,
        Self::PcieReplays,
        Self::PcieWidth,
        Self::Xid,
        Self::RemappedRows,
        Self::UncorrectableRows,
        Self::RowRemapFailure,
        Self::ThrottleReasons,
        Self::CorrectedErrors,
    ];

    fn metric(self) -> &'static str {
        match self {
            Self::Utilization => "DCGM_FI_DEV_GPU_UTIL",
            Self::Clock => "DCGM_FI_DEV_SM_CLOCK",
            Self::Power => "DCGM_FI_DEV_POWER_USAGE",
            Self::Tensor => "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
            Self::Temperature => "DCGM_FI_DEV_GPU_TEMP",
            Self::Nvlink => "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
            Self::PcieReplays => "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
            Self::PcieWidth => "DCGM_FI_DEV_PCIE_LINK_WIDTH",
            Self::Xid => "DCGM_FI_DEV_XID_ERRORS",
            Self::RemappedRows => "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
            Self::UncorrectableRows => "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
            Self::RowRemapFailure => "DCGM_FI_DEV_ROW_REMAP_FAILURE",
            Self::ThrottleReasons => "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
            Self::CorrectedErrors => "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
        }
    }
}

impl PortSeries {
    pub(super) const ALL: [Self; 4] = [Self::Bytes, Self::Wait, Self::Downed, Self::Rate];

    fn metric(self) -> &'static str {
        match self {
            Self::Bytes => "node_infiniband_port_data_transmitted_bytes_total",
            Self::Wait => "node_infiniband_port_transmit_wait_total",
            Self::Downed => "node_infiniband_link_downed_total",
            Self::Rate => "node_infiniband_rate_bytes_per_second",
        }
    }
}

impl NodeSeries {
    pub(super) const ALL: [Self; 13] = [
        Self::DiskBusy,
        Self::DiskReadTime,
        Self::DiskReads,
        Self::CpuFrequency,
        Self::MemoryAvailable,
        Self::MemoryTotal,
        Self::InternetIn,
        Self::InternetOut,
        Self::KubeletUp,
        Self::Ready,
        Self::NotReady,
        Self::Labels,
        Self::Gpus,
    ];

    /// Returns `true` if kube-state-metrics exports it.
    pub(super) fn is_of_kubernetes(self) -> bool {
        matches!(
            self,
            Self::Ready | Self::NotReady | Self::Labels | Self::Gpus
        )
    }
}

impl PodSeries {
    pub(super) const ALL: [Self; 10] = [
        Self::Owner,
        Self::Info,
        Self::Created,
        Self::Labels,
        Self::Pending,
        Self::Running,
        Self::Scheduled,
        Self::Ready,
        Self::Restarts,
        Self::GpuRequest,
    ];
}

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
    let exporter = |metric| Pairs::new(metric, "node-exporter", name.clone());
    let kube = |metric| {
        Pairs::new(metric, "kube-state-metrics", state_metrics.to_owned())
            .with("node", name.clone())
    };
    let iptables = |direction: &str| {
        Pairs::new(
            "iptables_bytes_total",
            "iptables-exporter",
            format!("{}:9119", address(node)),
        )
        .with("node", name.clone())
        .with("ip_version", "4")
        .with("table", "mangle")
        .with("rule", format!("openai traffic=internet-{direction}"))
        .with(
            "chain",
            if direction == "in" {
                "prerouting"
            } else {
                "postrouting"
            },
        )
    };
    let disk = |metric| exporter(metric).with("device", "nvme0n1");
    let pairs = match series {
        NodeSeries::DiskBusy => disk("node_disk_io_time_seconds_total"),
        NodeSeries::DiskReadTime => disk("node_disk_read_time_seconds_total"),
        NodeSeries::DiskReads => disk("node_disk_reads_completed_total"),
        NodeSeries::CpuFrequency => exporter("node_cpu_scaling_frequency_hertz").with("cpu", "0"),
        NodeSeries::MemoryAvailable => exporter("node_memory_MemAvailable_bytes"),
        NodeSeries::MemoryTotal => exporter("node_memory_MemTotal_bytes"),
        NodeSeries::InternetIn => iptables("in"),
        NodeSeries::InternetOut => iptables("out"),
        NodeSeries::KubeletUp => Pairs::new("up", "kubelet", format!("{}:10250", address(node)))
            .with("metrics_path", "/metrics")
            .with("node", name),
        NodeSeries::Ready => kube("kube_node_status_condition")
            .with("condition", "Ready")
            .with("status", "true"),
        NodeSeries::NotReady => kube("kube_node_status_condition")
            .with("condition", "Ready")
            .with("status", "unknown"),
        NodeSeries::Labels => kube("kube_node_labels").with("label_team", "shared"),
        NodeSeries::Gpus => kube("kube_node_status_allocatable")
            .with("resource", "nvidia_com_gpu")
            .with("unit", "integer"),
    };
    pairs.labels()
}

/// Returns the labels of a series of a pod.
pub(super) fn pod(
    series: PodSeries,
    job: &Job,
    pod: &Pod,
    pod_idx: usize,
    state_metrics: &str,
) -> Labels {
    let kube = |metric| {
        Pairs::new(metric, "kube-state-metrics", state_metrics.to_owned())
            .with("namespace", job.team)
            .with("pod", pod.name.clone())
            .with("uid", format!("{:016x}", mix2(0x9d, pod_idx as u64)))
    };
    let node = pod.node.map(node_name).unwrap_or_default();
    let pairs = match series {
        PodSeries::Owner => {
            let owner = owner(job);
            kube("kube_pod_owner")
                .with("owner_kind", owner.0)
                .with("owner_name", owner.1)
                .with("owner_is_controller", "true")
        }
        PodSeries::Info => kube("kube_pod_info")
            .with("node", node)
            .with("host_ip", pod.node.map(address).unwrap_or_default()),
        PodSeries::Created => kube("kube_pod_created"),
        PodSeries::Labels => with_job_labels(kube("kube_pod_labels"), job, pod),
        PodSeries::Pending => kube("kube_pod_status_phase").with("phase", "Pending"),
        PodSeries::Running => kube("kube_pod_status_phase").with("phase", "Running"),
        PodSeries::Scheduled => kube("kube_pod_status_scheduled").with("condition", "true"),
        PodSeries::Ready => kube("kube_pod_status_ready").with("condition", "true"),
        PodSeries::Restarts => {
            kube("kube_pod_container_status_restarts_total").with("container", "main")
        }
        PodSeries::GpuRequest => kube("kube_pod_container_resource_requests")
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
    }
}

fn with_job_labels(pairs: Pairs, job: &Job, pod: &Pod) -> Pairs {
    match job.owner {
        Owner::Job | Owner::StatefulSet => pairs,
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
