//! The series of a node with its GPUs and ports, and how signals become their values.

use super::labels;
use super::metrics::{GpuSeries, NodeSeries, PortSeries};
use super::schedule::GPUS;
use super::series::{SeriesSet, SlotId};
use super::signals::{DISK_BYTES, GpuSignals, MEMORY_BYTES, NodeSignals, PortSignals};

/// The round in which the first nodes were created: a month before at scrapes of 30 s.
const OLD_ROUNDS: i64 = -86_400;
/// Size of the file system of the operating system.
const SYSTEM_BYTES: f64 = 1_065_345_024.0;

/// A node with its series.
pub(super) struct Node {
    pub(super) gpus: [[SlotId; GpuSeries::ALL.len()]; GPUS],
    pub(super) ports: [[SlotId; PortSeries::ALL.len()]; GPUS],
    pub(super) series: [SlotId; NodeSeries::ALL.len()],
    /// The pods that use its GPUs.
    pub(super) users: [Option<usize>; GPUS],
    pub(super) labeled_users: [Option<usize>; GPUS],
    /// The round in which it was created.
    pub(super) created: i64,
}

impl Node {
    pub(super) fn new(node: usize, state_metrics: &str, set: &mut SeriesSet) -> Self {
        Self {
            gpus: std::array::from_fn(|gpu| {
                GpuSeries::ALL.map(|series| set.create(&labels::gpu(series, node, gpu, None)))
            }),
            ports: std::array::from_fn(|port| {
                PortSeries::ALL.map(|series| set.create(&labels::port(series, node, port)))
            }),
            series: NodeSeries::ALL
                .map(|series| set.create(&labels::node(series, node, state_metrics))),
            users: [None; GPUS],
            labeled_users: [None; GPUS],
            created: OLD_ROUNDS,
        }
    }
}

impl SeriesSet {
    pub(super) fn write_gpu(
        &mut self,
        ids: &[SlotId; GpuSeries::ALL.len()],
        signals: GpuSignals,
        interval_ms: i64,
    ) {
        let seconds = interval_ms as f64 / 1000.0;
        for series in GpuSeries::ALL {
            let id = ids[series as usize];
            match series {
                GpuSeries::Utilization => self.set(id, signals.utilization),
                GpuSeries::Clock => self.set(id, (signals.clock_mhz / 15.0).round() * 15.0),
                GpuSeries::Power => self.set(id, (signals.power_w * 1000.0).round() / 1000.0),
                GpuSeries::Tensor => self.set(id, (signals.tensor * 1e6).round() / 1e6),
                GpuSeries::Temperature => self.set(id, signals.temperature),
                GpuSeries::Nvlink => self.add(id, (signals.nvlink_bytes * seconds).round()),
                GpuSeries::PcieReplays => self.add(id, (signals.pcie_replays * seconds).round()),
                GpuSeries::PcieWidth => self.set(id, signals.pcie_width),
                GpuSeries::Xid => self.set(id, signals.xid),
                GpuSeries::RemappedRows => self.add(id, signals.remapped_rows),
                GpuSeries::UncorrectableRows | GpuSeries::RowRemapFailure => self.set(id, 0.0),
                GpuSeries::ThrottleReasons => self.set(id, signals.throttle_reasons),
                GpuSeries::CorrectedErrors => {
                    self.add(id, (signals.corrected_errors * seconds).round());
                }
                GpuSeries::MemoryUsed => self.set(id, signals.memory_used_mib),
                GpuSeries::NvlinkRecoveries => {
                    self.add(id, (signals.nvlink_recoveries * seconds).round());
                }
                GpuSeries::NvlinkReplays => {
                    self.add(id, (signals.nvlink_replays * seconds).round());
                }
                GpuSeries::NvlinkFlitErrors => {
                    self.add(id, (signals.nvlink_flit_errors * seconds).round());
                }
                GpuSeries::NvlinkDataErrors => {
                    self.add(id, (signals.nvlink_data_errors * seconds).round());
                }
            }
        }
    }

    pub(super) fn write_port(&mut self, ids: &[SlotId; 4], signals: PortSignals, interval_ms: i64) {
        let seconds = interval_ms as f64 / 1000.0;
        self.add(
            ids[PortSeries::Bytes as usize],
            (signals.bytes * seconds).round(),
        );
        self.add(
            ids[PortSeries::Wait as usize],
            (signals.wait_ticks * seconds).round(),
        );
        self.add(ids[PortSeries::Downed as usize], signals.downed);
        self.set(ids[PortSeries::Rate as usize], signals.rate);
    }

    pub(super) fn write_node(
        &mut self,
        ids: &[SlotId; NodeSeries::ALL.len()],
        signals: NodeSignals,
        interval_ms: i64,
    ) {
        let seconds = interval_ms as f64 / 1000.0;
        for series in NodeSeries::ALL {
            let id = ids[series as usize];
            match series {
                NodeSeries::DiskBusy => self.add(id, signals.disk_busy * seconds),
                NodeSeries::DiskReadTime => self.add(id, signals.read_seconds * seconds),
                NodeSeries::DiskReads => self.add(id, (signals.reads * seconds).round()),
                NodeSeries::CpuFrequency => self.set(id, signals.cpu_hz.round()),
                NodeSeries::MemoryAvailable => self.set(id, signals.memory_available.round()),
                NodeSeries::MemoryTotal => self.set(id, MEMORY_BYTES),
                NodeSeries::InternetIn => self.add(id, (1e6 * seconds).round()),
                NodeSeries::InternetOut => {
                    self.add(id, (signals.internet_out_bytes * seconds).round());
                }
                NodeSeries::KubeletUp => self.set(id, number(signals.is_kubelet_up)),
                NodeSeries::Ready => self.set(id, number(signals.is_ready)),
                NodeSeries::NotReady => self.set(id, number(!signals.is_ready)),
                NodeSeries::Labels => self.set(id, 1.0),
                NodeSeries::Gpus => self.set(id, GPUS as f64),
                // They change only when a node is new: `Cluster::write_new_node` sets them.
                NodeSeries::Created | NodeSeries::PreflightTaint => {}
                NodeSeries::DiskAvailable => self.set(id, signals.disk_available.round()),
                NodeSeries::DiskSize => self.set(id, DISK_BYTES),
                NodeSeries::DiskReadOnly => self.set(id, number(signals.is_disk_read_only)),
                NodeSeries::SystemAvailable => self.set(id, 0.4 * SYSTEM_BYTES),
                NodeSeries::SystemSize => self.set(id, SYSTEM_BYTES),
                NodeSeries::SystemReadOnly => self.set(id, 1.0),
                NodeSeries::PauseMicroseconds => {
                    self.add(id, (signals.pause_microseconds * seconds).round());
                }
            }
        }
    }
}

pub(super) fn number(is_true: bool) -> f64 {
    f64::from(u8::from(is_true))
}
