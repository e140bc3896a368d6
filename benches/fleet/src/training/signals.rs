//! What sensors measure: the physics of synchronous training, and what each fault changes.
//!
//! A step of a job takes as long as its slowest rank. The other ranks wait in a collective
//! operation: they show a utilization of 100 %, but less power. A slow GPU therefore lowers the
//! traffic and the tensor activity of *all* ranks, and only the signals that are its own (clock,
//! power, temperature, link, error counters) tell which one it is.
//!
//! Noise between healthy GPUs:
//! - Clocks at the power limit have a standard deviation of 2 % between GPUs, at most 7 % off. Sinha
//!   et al., "Not All GPUs Are Created Equal" (SC22), measure a performance variation of 8 % on
//!   average and at most 22 % over five clusters, with the same program on the same model of GPU.
//! - Power differs by 3 % at the same load. Temperatures differ by 3 degrees, plus up to 6 degrees
//!   for the position in the airflow ("Characterizing the Efficiency of Distributed Training: A
//!   Power, Performance, and Thermal Perspective", 2025: GPUs at the outlet are hotter).
//! - Stages of a pipeline have up to 18 % less load than the first one (Lin et al., "Understanding
//!   Stragglers in Large Model Training Using What-if Analysis", OSDI 2025: stages are imbalanced).

use super::faults::Fault;
use super::kind::Kind;
use super::random::{normal, share};
use super::schedule::{GPUS, Job};
use crate::fleet::mix2;

/// Power of an idle H100 in watts, and of one that computes all the time.
const IDLE_W: f64 = 75.0;
const BUSY_W: f64 = 660.0;
/// Clock in MHz under load, and idle.
const BUSY_MHZ: f64 = 1_755.0;
const IDLE_MHZ: f64 = 345.0;
/// Share of the busy power that a GPU draws while it waits for other ranks.
const WAITING_SHARE: f64 = 0.45;
/// Frame buffer of a GPU in use, of 81,559 MiB.
const BUSY_MIB: f64 = 71_400.0;
const IDLE_MIB: f64 = 520.0;
/// Bytes per second of a port for other programs than the job: the subnet manager, storage.
const BACKGROUND_BYTES: f64 = 3e5;
/// Rates in bytes per second at full speed.
const NVLINK_BYTES: f64 = 120e9;
const PORT_BYTES: f64 = 14e9;
/// Rate of an InfiniBand port of 400 Gbit/s in bytes per second.
pub(super) const PORT_RATE: f64 = 50e9;
pub(super) const MEMORY_BYTES: f64 = 2_199_023_255_552.0;
/// Size of the local disk.
pub(super) const DISK_BYTES: f64 = 1_888_556_142_592.0;
/// Microseconds per second for which a port of the storage network is paused: short bursts, more of
/// them while all nodes save a checkpoint.
const PAUSE_US: f64 = 200.0;
const CHECKPOINT_PAUSE_US: f64 = 15_000.0;
/// Xid errors of the driver: the firmware of the GPU does not respond, or has an error.
const DRIVER_XIDS: [f64; 2] = [119.0, 120.0];
/// Rounds between two failures of the links of a bad node.
const LEMON_ROUNDS: i64 = 30;
/// Bits of DCGM_FI_DEV_CLOCK_THROTTLE_REASONS.
const APPLICATION_CLOCKS: f64 = 2.0;
const SOFTWARE_POWER_CAP: f64 = 4.0;
const THERMAL_SLOWDOWN: f64 = 32.0;

/// What a job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Idle,
    Training,
    Checkpoint,
    Evaluation,
    Hung,
}

/// A job in a round.
#[derive(Debug, Clone, Copy)]
pub(super) struct JobState {
    pub(super) phase: Phase,
    /// Speed of its slowest rank; 1 is the nominal speed.
    pub(super) speed: f64,
    /// All its GPUs are in a warm room.
    pub(super) is_warm: bool,
}

/// A rank of a job.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rank<'a> {
    pub(super) seed: u64,
    pub(super) round: i64,
    pub(super) node: usize,
    /// The fault of the node.
    pub(super) fault: Option<&'a Fault>,
    /// Load of its pipeline stage, at most 1.
    pub(super) load: f64,
    /// It does not use its GPUs, by design.
    pub(super) is_idle: bool,
    pub(super) is_alone: bool,
}

/// Signals of a GPU. Counters are increases per second.
#[derive(Debug, Clone, Copy)]
pub(super) struct GpuSignals {
    pub(super) utilization: f64,
    pub(super) clock_mhz: f64,
    pub(super) power_w: f64,
    pub(super) tensor: f64,
    pub(super) temperature: f64,
    pub(super) nvlink_bytes: f64,
    pub(super) pcie_replays: f64,
    pub(super) pcie_width: f64,
    pub(super) xid: f64,
    pub(super) corrected_errors: f64,
    pub(super) throttle_reasons: f64,
    /// Frame buffer in use, in MiB.
    pub(super) memory_used_mib: f64,
    /// Rows that were remapped in this round.
    pub(super) remapped_rows: f64,
    pub(super) nvlink_recoveries: f64,
    pub(super) nvlink_replays: f64,
    pub(super) nvlink_flit_errors: f64,
    pub(super) nvlink_data_errors: f64,
}

/// Signals of an InfiniBand port.
#[derive(Debug, Clone, Copy)]
pub(super) struct PortSignals {
    pub(super) bytes: f64,
    pub(super) wait_ticks: f64,
    pub(super) rate: f64,
    /// Lost links in this round.
    pub(super) downed: f64,
}

/// Signals of a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodeSignals {
    pub(super) disk_busy: f64,
    pub(super) read_seconds: f64,
    pub(super) reads: f64,
    pub(super) cpu_hz: f64,
    pub(super) memory_available: f64,
    pub(super) internet_out_bytes: f64,
    pub(super) is_ready: bool,
    pub(super) is_kubelet_up: bool,
    /// Free bytes of the local disk.
    pub(super) disk_available: f64,
    pub(super) is_disk_read_only: bool,
    pub(super) pause_microseconds: f64,
}

/// Returns the phase of a job that computes and has no fault.
pub(super) fn healthy_phase(job: &Job, job_seed: u64, round: i64) -> Phase {
    let period = 40 + (job_seed % 80) as i64;
    let within = (round - job.created).rem_euclid(period);
    // Evaluation follows each fourth checkpoint.
    let is_evaluation = job.evaluates && (round - job.created) / period % 4 == 3;
    match within {
        0..3 => Phase::Checkpoint,
        3..18 if is_evaluation => Phase::Evaluation,
        _ => Phase::Training,
    }
}

/// Returns the load of a pipeline stage. The first one has the most.
pub(super) fn stage_load(job: &Job, rank: usize) -> f64 {
    let stage = rank * job.n_stages / job.n_pods;
    1.0 - 0.06 * stage as f64
}

impl Rank<'_> {
    fn noise(&self, gpu: usize, signal: u64) -> f64 {
        normal(mix2(
            self.seed ^ signal << 56 ^ (self.node * GPUS + gpu) as u64,
            self.round.cast_unsigned(),
        ))
    }

    /// Returns what never changes in a GPU.
    fn constant(&self, gpu: usize, signal: u64) -> f64 {
        normal(mix2(
            self.seed ^ 0xc0 << 48 ^ signal << 56,
            (self.node * GPUS + gpu) as u64,
        ))
    }

    /// Returns the kind and severity of the fault of a GPU or port.
    fn fault_of(&self, device: usize) -> Option<(Kind, f64)> {
        let fault = self.fault?;
        let is_here = fault.device.is_none() || fault.place.device == device;
        is_here.then_some((fault.kind, fault.severity))
    }

    /// Returns the clock of a GPU under load; 1 is the nominal clock.
    fn clock(&self, gpu: usize, is_warm: bool) -> f64 {
        let healthy = 1.0 + 0.02 * self.constant(gpu, 1) + 0.005 * self.noise(gpu, 1);
        let healthy = if is_warm { 0.93 * healthy } else { healthy };
        match self.fault_of(gpu) {
            Some((Kind::SlowClock, severity)) => healthy * (0.8 - 0.3 * severity),
            Some((Kind::PowerCap, severity)) => healthy * (0.85 - 0.25 * severity),
            Some((Kind::Hot, severity)) => {
                healthy * (0.85 - 0.3 * severity + 0.03 * self.noise(gpu, 2))
            }
            _ => healthy,
        }
    }

    /// Returns the speed at which a GPU could compute; 1 is the nominal speed.
    pub(super) fn speed(&self, gpu: usize, is_warm: bool) -> f64 {
        let others = match self.fault_of(gpu) {
            Some((Kind::Ecc, severity)) => 0.9 - 0.2 * severity,
            Some((Kind::PcieDowngrade, severity)) => 0.95 - 0.2 * severity,
            Some((Kind::NvlinkLane, severity)) => 0.95 - 0.2 * severity,
            Some((Kind::NvlinkErrors, severity)) => 0.98 - 0.05 * severity,
            Some((Kind::RocePause, severity)) => 0.9 - 0.2 * severity,
            Some((Kind::InfinibandSlow, severity)) => 0.9 - 0.2 * severity,
            Some((Kind::InfinibandCongestion, severity)) => 0.7 - 0.3 * severity,
            Some((Kind::SlowDisk | Kind::SlowCpu, severity)) => 0.9 - 0.3 * severity,
            _ => 1.0,
        };
        self.clock(gpu, is_warm) * others
    }

    pub(super) fn gpu(&self, gpu: usize, job: JobState) -> GpuSignals {
        let clock = self.clock(gpu, job.is_warm);
        let is_busy = job.phase != Phase::Idle && !self.is_idle;
        // Share of the time in which it computes, and of the work of a training step.
        let speed = job.speed;
        let activity = match job.phase {
            Phase::Training => speed,
            Phase::Evaluation => 0.5 * speed,
            Phase::Checkpoint => 0.05 + 0.03 * share(mix2(self.seed, self.node as u64)),
            Phase::Hung | Phase::Idle => 0.0,
        };
        let activity = if is_busy { activity * self.load } else { 0.0 };
        let computing = (activity / self.speed(gpu, job.is_warm)).min(1.0);
        let power = if is_busy {
            let load = WAITING_SHARE + (1.0 - WAITING_SHARE) * computing;
            let load = if job.phase == Phase::Hung { 0.25 } else { load };
            let jitter = if job.phase == Phase::Hung {
                0.001
            } else {
                0.012
            };
            let factor = 1.0 + 0.03 * self.constant(gpu, 3) + jitter * self.noise(gpu, 3);
            (IDLE_W + (BUSY_W - IDLE_W) * load * clock * clock) * factor
        } else {
            IDLE_W + 2.0 * self.constant(gpu, 3) + 0.3 * self.noise(gpu, 3)
        };
        let outlet = (gpu % 4) as f64 * 2.0;
        let warm = if job.is_warm { 9.0 } else { 0.0 };
        let temperature = 28.0 + 0.05 * power + outlet + warm + 2.0 * self.constant(gpu, 4);
        let nvlink = NVLINK_BYTES * activity * (1.0 + 0.01 * self.noise(gpu, 5));
        let mut out = GpuSignals {
            utilization: if is_busy { 100.0 } else { 0.0 },
            clock_mhz: if is_busy { BUSY_MHZ * clock } else { IDLE_MHZ },
            power_w: power,
            tensor: (0.42 * activity / clock * (1.0 + 0.02 * self.noise(gpu, 6))).max(0.0),
            temperature,
            nvlink_bytes: nvlink.max(0.0),
            pcie_replays: 0.0,
            pcie_width: 16.0,
            xid: 0.0,
            corrected_errors: 0.0,
            throttle_reasons: if is_busy && job.phase == Phase::Training {
                SOFTWARE_POWER_CAP
            } else {
                0.0
            },
            memory_used_mib: if is_busy { BUSY_MIB } else { IDLE_MIB },
            remapped_rows: 0.0,
            nvlink_recoveries: 0.0,
            nvlink_replays: 0.0,
            nvlink_flit_errors: 0.0,
            nvlink_data_errors: 0.0,
        };
        self.apply_fault(gpu, &mut out);
        out.temperature = out.temperature.round();
        out
    }

    /// Adds what a fault changes in a GPU besides its clock and speed.
    fn apply_fault(&self, gpu: usize, out: &mut GpuSignals) {
        match self.fault_of(gpu) {
            Some((Kind::SlowClock, _)) => out.throttle_reasons = APPLICATION_CLOCKS,
            Some((Kind::Hot, severity)) => {
                out.temperature = 88.0 + 5.0 * severity + 0.5 * self.noise(gpu, 4);
                out.throttle_reasons = THERMAL_SLOWDOWN;
            }
            Some((Kind::Ecc, severity)) => {
                out.corrected_errors = 0.5 + 5.0 * severity;
                out.remapped_rows = f64::from(self.round % 8 == 0);
            }
            Some((Kind::PcieDowngrade, severity)) => {
                out.pcie_width = if severity < 0.5 { 8.0 } else { 4.0 };
                out.pcie_replays = 0.2 + severity;
            }
            Some((Kind::NvlinkLane, severity)) => out.nvlink_bytes *= 0.8 - 0.3 * severity,
            Some((Kind::NvlinkErrors, severity)) => break_nvlink(severity, out),
            Some((Kind::OffBus, _)) => out.xid = 79.0,
            Some((Kind::DriverXid, severity)) => {
                out.xid = DRIVER_XIDS[usize::from(severity > 0.5)];
            }
            Some((Kind::ApplicationXid, _)) => out.xid = 31.0,
            _ => {}
        }
    }

    pub(super) fn port(&self, port: usize, job: JobState) -> PortSignals {
        let activity = match job.phase {
            Phase::Training => job.speed,
            Phase::Evaluation => 0.3 * job.speed,
            Phase::Checkpoint => 0.02,
            Phase::Hung | Phase::Idle => 0.0,
        };
        let is_used = !self.is_idle && !self.is_alone;
        let activity = if is_used { activity * self.load } else { 0.0 };
        // Waits are bursts: most rounds have few, some have ten times as many.
        let burst = (1.2 * self.noise(port, 8)).exp();
        let mut out = PortSignals {
            bytes: (PORT_BYTES * activity * (1.0 + 0.015 * self.noise(port, 7))).max(0.0)
                + BACKGROUND_BYTES * (0.5 * self.noise(port, 15)).exp(),
            wait_ticks: 2e4 * activity * burst,
            rate: PORT_RATE,
            downed: 0.0,
        };
        match self.fault_of(port) {
            Some((Kind::InfinibandSlow, severity)) => {
                out.rate = PORT_RATE / 2.0;
                out.bytes *= 0.8 - 0.3 * severity;
                out.wait_ticks += 2e7 * activity;
            }
            Some((Kind::InfinibandFlapping, severity)) => {
                let period = 3 + (5.0 * severity) as i64;
                if self.round % period == 0 {
                    out.downed = 1.0;
                    out.bytes *= 0.3;
                }
            }
            Some((Kind::LemonNode, _)) if self.is_failing_again(port) => {
                out.downed = 1.0;
                out.bytes *= 0.3;
            }
            Some((Kind::InfinibandCongestion, severity)) => {
                out.wait_ticks += (1e7 + 3e7 * severity) * (0.6 + 0.2 * burst.min(2.0));
            }
            _ => {}
        }
        out
    }

    /// Returns `true` if the link of a port of a bad node fails in this round: two ports that share a
    /// riser card, every quarter of an hour.
    fn is_failing_again(&self, port: usize) -> bool {
        let Some(fault) = self.fault else {
            return false;
        };
        let is_of_the_card = port / 2 == fault.place.device / 2;
        is_of_the_card && (self.round - fault.place.start) % LEMON_ROUNDS == 0
    }

    pub(super) fn node(&self, phase: Phase) -> NodeSignals {
        let is_saving = phase == Phase::Checkpoint;
        let fault = self.fault.map(|fault| (fault.kind, fault.severity));
        let reads = 150.0 * (1.0 + 0.2 * self.noise(0, 9)).max(0.2);
        let latency = 0.0004 * (0.4 * self.noise(0, 10)).exp() * if is_saving { 8.0 } else { 1.0 };
        let idle_share = 0.75 + 0.02 * self.constant(0, 12) + 0.003 * self.noise(0, 12);
        let mut out = NodeSignals {
            disk_busy: if is_saving { 0.7 } else { 0.06 } * (1.0 + 0.2 * self.noise(0, 11)),
            read_seconds: reads * latency,
            reads,
            cpu_hz: if phase == Phase::Idle { 1.5e9 } else { 3.4e9 }
                * (1.0 + 0.02 * self.noise(0, 13)),
            memory_available: MEMORY_BYTES * idle_share,
            internet_out_bytes: if is_saving { 4e8 } else { 1e6 } * (1.0 + 0.2 * self.noise(0, 14)),
            is_ready: true,
            is_kubelet_up: true,
            disk_available: DISK_BYTES * self.free_share(),
            is_disk_read_only: false,
            pause_microseconds: if is_saving {
                CHECKPOINT_PAUSE_US
            } else {
                PAUSE_US
            } * (0.8 * self.noise(0, 17)).exp(),
        };
        match fault {
            Some((Kind::SlowDisk, severity)) => {
                out.disk_busy = 0.97;
                out.read_seconds = reads * (0.02 + 0.1 * severity);
            }
            Some((Kind::ReadOnlyDisk, _)) => out.is_disk_read_only = true,
            Some((Kind::RocePause, severity)) => {
                out.pause_microseconds = (2.5e5 + 5e5 * severity) * (1.0 + 0.1 * self.noise(0, 17));
            }
            Some((Kind::SlowCpu, severity)) => out.cpu_hz *= 0.6 - 0.35 * severity,
            Some((Kind::MemoryLeak, _)) => {
                let place = &self.fault.expect("it has a fault").place;
                let passed = (self.round - place.start) as f64 / (place.end - place.start) as f64;
                out.memory_available *= 1.0 - 0.97 * passed.clamp(0.0, 1.0);
            }
            Some((Kind::DeadKubelet, _)) => {
                let start = self.fault.expect("it has a fault").place.start;
                out.is_kubelet_up = false;
                // The node controller waits 40 s (node-monitor-grace-period).
                out.is_ready = self.round < start + 2;
            }
            _ => {}
        }
        out.disk_busy = out.disk_busy.clamp(0.0, 1.0);
        out
    }

    /// Returns the free share of the local disk. It changes every ten minutes, or within two minutes
    /// to almost nothing.
    fn free_share(&self) -> f64 {
        let steps = (self.round / 20).cast_unsigned();
        let change = normal(mix2(self.seed ^ 16 << 56 ^ self.node as u64, steps));
        let healthy = 0.55 + 0.08 * self.constant(0, 16) + 0.005 * change;
        match self.fault {
            Some(fault) if fault.kind == Kind::FullDisk => {
                let rest = 0.002 + 0.03 * (1.0 - fault.severity);
                let passed = (self.round - fault.place.start) as f64 / 4.0;
                rest + (healthy - rest) * (1.0 - passed).clamp(0.0, 1.0)
            }
            _ => healthy,
        }
    }
}

/// Adds errors of an NVLink: one of the four kinds that DCGM counts, by severity.
fn break_nvlink(severity: f64, out: &mut GpuSignals) {
    match severity {
        ..0.25 => out.nvlink_recoveries = 0.1,
        ..0.5 => out.nvlink_replays = 0.4,
        ..0.75 => out.nvlink_flit_errors = 400.0,
        _ => out.nvlink_data_errors = 400.0,
    }
}
