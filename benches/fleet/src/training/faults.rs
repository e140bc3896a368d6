//! Faults and decoys: what is wrong where and when, drawn after the schedule, and the truth file.
//!
//! A fault has the signature of its physics, which `signals` computes. A decoy looks like a fault
//! to a rule that is too simple. An alert on a decoy is a false alert.

use std::io::{BufRead, Write};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::kind::Kind;
use super::random::{Random, Stream};
use super::schedule::{GPUS, LEAF, Pod, Purpose, Schedule};

/// Rounds of undisturbed training before a fault and after it.
const QUIET_ROUNDS: i64 = 40;
/// Attempts to find a place for a fault.
const ATTEMPTS_MAX: usize = 400;

/// The kinds of faults that are drawn onto a running job, the longest ones first.
const FAULTS: [Kind; 22] = [
    Kind::LemonNode,
    Kind::IdleJob,
    Kind::SlowClock,
    Kind::PowerCap,
    Kind::Hot,
    Kind::Ecc,
    Kind::PcieDowngrade,
    Kind::NvlinkLane,
    Kind::NvlinkErrors,
    Kind::InfinibandSlow,
    Kind::InfinibandFlapping,
    Kind::InfinibandCongestion,
    Kind::RocePause,
    Kind::SlowDisk,
    Kind::FullDisk,
    Kind::ReadOnlyDisk,
    Kind::SlowCpu,
    Kind::MemoryLeak,
    Kind::Hung,
    Kind::DeadKubelet,
    Kind::OffBus,
    Kind::DriverXid,
];

/// A fault or decoy. One line of the truth file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    pub(super) is_decoy: bool,
    /// Empty if it concerns the whole cluster.
    pub(super) job_id: String,
    /// Names of nodes. Empty if the whole job is concerned.
    pub(super) nodes: Vec<String>,
    /// Number of the GPU on its node, or of the InfiniBand port.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) device: Option<String>,
    pub(super) start_ms: i64,
    pub(super) end_ms: i64,
    /// How strong it is, in `0.0..1.0`.
    pub(super) severity: f64,
    #[serde(skip)]
    pub(super) place: Place,
}

/// A fault's place in the schedule.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Place {
    pub(super) job_idx: Option<usize>,
    pub(super) nodes: Vec<usize>,
    pub(super) device: usize,
    pub(super) start: i64,
    pub(super) end: i64,
}

/// How many faults and decoys are drawn.
#[derive(Debug, Clone, Copy)]
pub(super) struct FaultOptions {
    pub(super) seed: u64,
    pub(super) n_rounds: i64,
    pub(super) n_per_kind: usize,
    pub(super) n_decoys: usize,
    pub(super) start_ms: i64,
    pub(super) interval_ms: i64,
}

/// Returns the name of a node.
pub(super) fn node_name(node: usize) -> String {
    format!("gpu-{node:04}")
}

/// Draws faults and decoys. The result depends only on the schedule and the options.
pub(super) fn draw(schedule: &Schedule, options: FaultOptions) -> Vec<Fault> {
    let mut drawing = Drawing {
        schedule,
        options,
        random: Random::new(options.seed, Stream::Faults),
        faults: scheduled(schedule, options),
    };
    for _ in 0..options.n_per_kind {
        for kind in FAULTS {
            drawing.add_to_a_job(kind, false);
        }
    }
    for _ in 0..options.n_decoys {
        for kind in [Kind::ApplicationXid, Kind::WarmRoom, Kind::ScrapeGap] {
            drawing.add_to_a_job(kind, true);
        }
        for kind in [Kind::KubeStateMetricsRestart, Kind::KubeStateMetricsTwice] {
            drawing.add_to_the_cluster(kind);
        }
    }
    let mut faults = drawing.faults;
    faults.sort_by_key(|fault| fault.place.start);
    faults
}

/// Returns the faults that the schedule contains: jobs that do not start, or late, and new nodes.
fn scheduled(schedule: &Schedule, options: FaultOptions) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (job_idx, job) in schedule.jobs.iter().enumerate() {
        let kind = match job.purpose {
            Purpose::HalfScheduled => Kind::HalfScheduled,
            Purpose::Unscheduled => Kind::TeamWaits,
            Purpose::Training if job.pull_rounds > 0 => Kind::ImagePull,
            _ => continue,
        };
        let end = match kind {
            Kind::ImagePull => job.created + job.pull_rounds,
            _ => job.end,
        };
        let place = Place {
            job_idx: Some(job_idx),
            start: job.created,
            end,
            ..Place::default()
        };
        faults.push(fault(kind, false, job.id(), place, 1.0, options));
    }
    for absence in &schedule.absences {
        let kind = if absence.has_failed {
            Kind::PreflightFailed
        } else {
            Kind::PreflightPassed
        };
        let place = Place {
            nodes: vec![absence.node],
            start: absence.start,
            end: absence.end,
            ..Place::default()
        };
        let is_decoy = !absence.has_failed;
        faults.push(fault(kind, is_decoy, String::new(), place, 1.0, options));
    }
    faults
}

fn fault(
    kind: Kind,
    is_decoy: bool,
    job_id: String,
    place: Place,
    severity: f64,
    options: FaultOptions,
) -> Fault {
    let has_device = kind.concerns_a_gpu() || kind.concerns_a_port();
    Fault {
        kind,
        is_decoy,
        job_id,
        nodes: place.nodes.iter().copied().map(node_name).collect(),
        device: has_device.then(|| place.device.to_string()),
        start_ms: options.start_ms + place.start * options.interval_ms,
        end_ms: options.start_ms + place.end * options.interval_ms,
        severity,
        place,
    }
}

struct Drawing<'a> {
    schedule: &'a Schedule,
    options: FaultOptions,
    random: Random,
    faults: Vec<Fault>,
}

impl Drawing<'_> {
    /// Adds a fault to a job that trains undisturbed before, meanwhile and after. Adds nothing if
    /// no job has time for it.
    fn add_to_a_job(&mut self, kind: Kind, is_decoy: bool) {
        for _ in 0..ATTEMPTS_MAX {
            let pod = &self.schedule.pods[self.random.index(self.schedule.pods.len())];
            let length = match kind {
                Kind::ScrapeGap => self.random.rounds(4, 10),
                Kind::MemoryLeak => self.random.rounds(60, 90),
                // The alert needs more than 35 minutes.
                Kind::IdleJob => self.random.rounds(90, 110),
                // The alert needs ten incidents, which are 15 minutes apart.
                Kind::LemonNode => self.random.rounds(200, 240),
                _ => self.random.rounds(30, 70),
            };
            let latest = self.options.n_rounds - length - QUIET_ROUNDS;
            if latest < QUIET_ROUNDS {
                return;
            }
            let start = self.random.rounds(QUIET_ROUNDS, latest);
            if self.is_quiet(pod, start, start + length) {
                self.add(kind, is_decoy, pod, start, start + length);
                return;
            }
        }
    }

    fn add(&mut self, kind: Kind, is_decoy: bool, pod: &Pod, start: i64, end: i64) {
        let Some(node) = pod.node else { return };
        let job = &self.schedule.jobs[pod.job_idx];
        let nodes = match kind {
            _ if kind.concerns_a_job() => Vec::new(),
            _ if kind.concerns_a_leaf() => self.nodes_below_leaf(pod.job_idx, node / LEAF, start),
            _ => vec![node],
        };
        let place = Place {
            job_idx: Some(pod.job_idx),
            nodes,
            device: self.random.index(GPUS),
            start,
            end,
        };
        // Three decimals: the truth file is read as it was written.
        let severity = (self.random.share() * 1000.0).floor() / 1000.0;
        let new = fault(kind, is_decoy, job.id(), place, severity, self.options);
        self.faults.push(new);
    }

    fn nodes_below_leaf(&self, job_idx: usize, leaf: usize, round: i64) -> Vec<usize> {
        let pods = self.schedule.pods.iter();
        let pods =
            pods.filter(|pod| pod.job_idx == job_idx && (pod.created..pod.end).contains(&round));
        pods.filter_map(|pod| pod.node)
            .filter(|node| node / LEAF == leaf)
            .collect()
    }

    /// Returns `true` if the job of a pod has at least four nodes and trains from before `start`
    /// until after `end`, without another fault.
    fn is_quiet(&self, pod: &Pod, start: i64, end: i64) -> bool {
        let job = &self.schedule.jobs[pod.job_idx];
        let from = start - QUIET_ROUNDS;
        let until = end + QUIET_ROUNDS / 2;
        let is_pod_there = pod.node.is_some() && pod.created <= from && pod.end >= until;
        let is_idle_rank = job.has_idle_rank && pod.rank == 0;
        let is_training = job.is_running(from)
            && job.is_running(until)
            && job
                .restart
                .is_none_or(|at| at > until || at < from - QUIET_ROUNDS);
        let is_free = self.faults.iter().all(|other| {
            other.place.job_idx != Some(pod.job_idx)
                || other.place.start - QUIET_ROUNDS > end
                || other.place.end + QUIET_ROUNDS < start
        });
        job.purpose == Purpose::Training
            && job.n_pods >= 4
            && is_pod_there
            && !is_idle_rank
            && is_training
            && is_free
    }

    fn add_to_the_cluster(&mut self, kind: Kind) {
        let length = match kind {
            Kind::KubeStateMetricsRestart => self.random.rounds(2, 6),
            _ => 40,
        };
        let latest = (self.options.n_rounds - length - 1).max(1);
        let start = self.random.rounds(1, latest);
        let place = Place {
            start,
            end: start + length,
            ..Place::default()
        };
        let new = fault(kind, true, String::new(), place, 1.0, self.options);
        self.faults.push(new);
    }
}

/// Writes the truth file: one JSON object per line.
///
/// # Errors
/// If `out` cannot be written.
pub(super) fn write(faults: &[Fault], mut out: impl Write) -> Result<()> {
    for fault in faults {
        let line = serde_json::to_string(fault).context("encode the truth")?;
        writeln!(out, "{line}").context("write the truth file")?;
    }
    out.flush().context("write the truth file")
}

/// Reads the truth file.
///
/// # Errors
/// If a line is no fault.
pub(super) fn read(input: impl BufRead) -> Result<Vec<Fault>> {
    let mut faults = Vec::new();
    for line in input.lines() {
        let line = line.context("read the truth file")?;
        faults.push(serde_json::from_str(&line).with_context(|| format!("parse {line}"))?);
    }
    Ok(faults)
}

#[cfg(test)]
mod tests {
    use super::super::schedule::ScheduleOptions;
    use super::*;

    fn drawn(seed: u64) -> Vec<Fault> {
        let schedule = Schedule::draw(ScheduleOptions {
            seed,
            n_nodes: 128,
            n_rounds: 1_440,
            n_per_kind: 2,
            n_decoys: 2,
        });
        draw(
            &schedule,
            FaultOptions {
                seed,
                n_rounds: 1_440,
                n_per_kind: 3,
                n_decoys: 2,
                start_ms: 1_000_000,
                interval_ms: 30_000,
            },
        )
    }

    #[test]
    fn each_kind_of_fault_is_drawn() {
        let faults = drawn(1);
        let of_the_schedule = [
            Kind::HalfScheduled,
            Kind::ImagePull,
            Kind::TeamWaits,
            Kind::PreflightFailed,
        ];
        for kind in FAULTS.into_iter().chain(of_the_schedule) {
            let n_drawn = faults.iter().filter(|fault| fault.kind == kind).count();
            assert!(n_drawn >= 2, "{kind:?}: {n_drawn}");
        }
        assert!(faults.iter().filter(|fault| fault.is_decoy).count() >= 8);
    }

    #[test]
    fn a_job_has_one_fault_at_a_time() {
        let faults = drawn(2);
        for (i, a) in faults.iter().enumerate() {
            for b in &faults[..i] {
                let is_same_job = a.place.job_idx.is_some() && a.place.job_idx == b.place.job_idx;
                assert!(!is_same_job || a.start_ms > b.end_ms || b.start_ms > a.end_ms);
            }
        }
    }

    #[test]
    fn the_truth_file_is_read_as_it_was_written() {
        let mut faults = drawn(3);
        let mut text = Vec::new();
        write(&faults, &mut text).unwrap();
        for fault in &mut faults {
            fault.place = Place::default();
        }
        assert_eq!(read(&text[..]).unwrap(), faults);
        assert!(read(&b"{}\n"[..]).is_err());
    }
}
