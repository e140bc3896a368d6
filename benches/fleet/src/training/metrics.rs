//! The series of a GPU, a port, a node and a pod, in the order of their slots, and the names that
//! dcgm-exporter, node-exporter and kube-state-metrics give them.
//!
//! Only what docs/mixin/training reads. Sources of the less known names:
//! - NVLink errors: `DCGM_FI_DEV_NVLINK_*` of dcgm-exporter's etc/dcp-metrics-included.csv.
//! - Pauses of PFC: `rx_prio3_pause_duration` is the time in microseconds for which mlx5 did not send
//!   because a switch paused priority 3 (Linux, Documentation/networking/device_drivers/ethernet/
//!   mellanox/mlx5/counters.rst; NVIDIA's guides give RoCE priority 3). node-exporter's collector
//!   ethtool, off by default, replaces `rx` by `received` and adds `node_ethtool_`
//!   (collector/ethtool_linux.go, `buildEthtoolFQName`).

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
    MemoryUsed,
    NvlinkRecoveries,
    NvlinkReplays,
    NvlinkFlitErrors,
    NvlinkDataErrors,
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
    Created,
    /// It exists while the node has not passed its pre-flight test.
    PreflightTaint,
    DiskAvailable,
    DiskSize,
    DiskReadOnly,
    /// The file system of the operating system, which is read-only by design.
    SystemAvailable,
    SystemSize,
    SystemReadOnly,
    /// Time for which the switch paused the port of the storage network (RoCE).
    PauseMicroseconds,
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
    /// It exists while the container waits for its image.
    Waiting,
    /// It exists if the pod requests GPUs.
    GpuRequest,
}

impl GpuSeries {
    pub(super) const ALL: [Self; 19] = [
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
        Self::MemoryUsed,
        Self::NvlinkRecoveries,
        Self::NvlinkReplays,
        Self::NvlinkFlitErrors,
        Self::NvlinkDataErrors,
    ];

    pub(super) fn metric(self) -> &'static str {
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
            Self::MemoryUsed => "DCGM_FI_DEV_FB_USED",
            Self::NvlinkRecoveries => "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
            Self::NvlinkReplays => "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
            Self::NvlinkFlitErrors => "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
            Self::NvlinkDataErrors => "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
        }
    }
}

impl PortSeries {
    pub(super) const ALL: [Self; 4] = [Self::Bytes, Self::Wait, Self::Downed, Self::Rate];

    pub(super) fn metric(self) -> &'static str {
        match self {
            Self::Bytes => "node_infiniband_port_data_transmitted_bytes_total",
            Self::Wait => "node_infiniband_port_transmit_wait_total",
            Self::Downed => "node_infiniband_link_downed_total",
            Self::Rate => "node_infiniband_rate_bytes_per_second",
        }
    }
}

impl NodeSeries {
    pub(super) const ALL: [Self; 22] = [
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
        Self::Created,
        Self::PreflightTaint,
        Self::DiskAvailable,
        Self::DiskSize,
        Self::DiskReadOnly,
        Self::SystemAvailable,
        Self::SystemSize,
        Self::SystemReadOnly,
        Self::PauseMicroseconds,
    ];

    /// Returns `true` if kube-state-metrics exports it.
    pub(super) fn is_of_kubernetes(self) -> bool {
        matches!(
            self,
            Self::Ready
                | Self::NotReady
                | Self::Labels
                | Self::Gpus
                | Self::Created
                | Self::PreflightTaint
        )
    }
}

impl PodSeries {
    pub(super) const ALL: [Self; 11] = [
        Self::Owner,
        Self::Info,
        Self::Created,
        Self::Labels,
        Self::Pending,
        Self::Running,
        Self::Scheduled,
        Self::Ready,
        Self::Restarts,
        Self::Waiting,
        Self::GpuRequest,
    ];
}
