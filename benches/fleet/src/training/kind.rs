//! Kinds of faults and decoys.

use serde::{Deserialize, Serialize};

/// A kind of fault or decoy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// A GPU is locked to a low clock.
    SlowClock,
    /// A GPU has a lower power limit than the others.
    PowerCap,
    /// A GPU is hot and throttles.
    Hot,
    /// A GPU corrects memory errors all the time.
    Ecc,
    /// A GPU has lost lanes of its PCIe link.
    PcieDowngrade,
    /// A GPU has lost an NVLink.
    NvlinkLane,
    /// An NVLink of a GPU recovers, repeats packets or receives damaged ones.
    NvlinkErrors,
    /// An InfiniBand port runs at half its rate.
    InfinibandSlow,
    /// An InfiniBand port loses its link again and again.
    InfinibandFlapping,
    /// The InfiniBand ports below a switch wait for credits: its links upwards are congested.
    InfinibandCongestion,
    /// A switch of the storage network (RoCE) pauses its ports by PFC.
    RocePause,
    /// The disk of a node is slow; its ranks wait for data.
    SlowDisk,
    /// The disk of a node fills up.
    FullDisk,
    /// The kernel has remounted the disk of a node read-only.
    ReadOnlyDisk,
    /// The CPUs of a node run at a low frequency.
    SlowCpu,
    /// A process of a node leaks memory.
    MemoryLeak,
    /// The communicator of a job has stopped.
    Hung,
    /// Only a part of the pods of a job is scheduled.
    HalfScheduled,
    /// The pods of a job wait for their image.
    ImagePull,
    /// A job holds its GPUs and does not use them.
    IdleJob,
    /// A team waits for GPUs that it owns; others have borrowed them.
    TeamWaits,
    /// The kubelet of a node is dead.
    DeadKubelet,
    /// A GPU has fallen off the bus (Xid 79), and its job hangs.
    OffBus,
    /// The firmware of a GPU does not respond to its driver (Xid 119 or 120), and its job hangs.
    DriverXid,
    /// Two links of a node fail together again and again.
    LemonNode,
    /// A new node has failed its pre-flight test and stays tainted.
    PreflightFailed,
    /// Decoy: an application error (Xid 31).
    ApplicationXid,
    /// Decoy: all GPUs of a job become warmer and slower together.
    WarmRoom,
    /// Decoy: the DCGM exporter of a node is not scraped for minutes.
    ScrapeGap,
    /// Decoy: a new node is tainted until its pre-flight test has passed.
    PreflightPassed,
    /// Decoy: kube-state-metrics restarts.
    KubeStateMetricsRestart,
    /// Decoy: kube-state-metrics runs twice.
    KubeStateMetricsTwice,
}

impl Kind {
    /// Returns the name in the truth file.
    pub(super) fn name(self) -> String {
        let value = serde_json::to_value(self).expect("a kind is a string");
        value.as_str().unwrap_or_default().to_owned()
    }

    pub(super) fn concerns_a_gpu(self) -> bool {
        matches!(
            self,
            Self::SlowClock
                | Self::PowerCap
                | Self::Hot
                | Self::Ecc
                | Self::PcieDowngrade
                | Self::NvlinkLane
                | Self::NvlinkErrors
                | Self::OffBus
                | Self::DriverXid
                | Self::ApplicationXid
        )
    }

    pub(super) fn concerns_a_port(self) -> bool {
        matches!(self, Self::InfinibandSlow | Self::InfinibandFlapping)
    }

    /// Returns `true` if it concerns the nodes of a job below one switch.
    pub(super) fn concerns_a_leaf(self) -> bool {
        matches!(self, Self::InfinibandCongestion | Self::RocePause)
    }

    /// Returns `true` if it concerns a whole job.
    pub(super) fn concerns_a_job(self) -> bool {
        matches!(self, Self::Hung | Self::IdleJob | Self::WarmRoom)
    }

    /// Returns `true` if a GPU halts its whole job.
    pub(super) fn halts_the_job(self) -> bool {
        matches!(self, Self::OffBus | Self::DriverXid)
    }
}
