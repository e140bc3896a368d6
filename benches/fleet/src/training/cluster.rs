//! The training cluster: computes each scrape from the schedule, the faults and the seed.
//!
//! Memory: one slot per series that exists, 206 per node and 11 per pod.

use anyhow::Result;

use super::faults::Fault;
use super::kind::Kind;
use super::labels;
use super::metrics::{GpuSeries, NodeSeries, PodSeries};
use super::node::{Node, number};
use super::schedule::{GPUS, Job, Pod, Schedule};
use super::series::{SeriesSet, SlotId};
use super::signals::{self, JobState, Phase, Rank};
use crate::fleet::mix2;

/// Rounds after which the containers of a pod run.
const READY_ROUNDS: i64 = 2;

/// The cluster and its series.
pub(super) struct Cluster {
    schedule: Schedule,
    faults: Vec<Fault>,
    seed: u64,
    start_ms: i64,
    interval_ms: i64,
    pub(super) series: SeriesSet,
    nodes: Vec<Node>,
    /// Pods that exist, with their series.
    pods: Vec<RunningPod>,
    /// The next pod to create.
    next_pod: usize,
    /// Number of restarts of kube-state-metrics.
    n_restarts: usize,
    is_restarting: bool,
    is_doubled: bool,
}

struct RunningPod {
    pod_idx: usize,
    series: [SlotId; PodSeries::ALL.len()],
}

/// What is wrong in a round, by node and by job.
struct Active<'a> {
    by_node: Vec<Option<&'a Fault>>,
    by_job: Vec<Option<&'a Fault>>,
}

impl Cluster {
    pub(super) fn new(
        schedule: Schedule,
        faults: Vec<Fault>,
        seed: u64,
        n_nodes: usize,
        start_ms: i64,
        interval_ms: i64,
    ) -> Self {
        let mut series = SeriesSet::new();
        let instance = state_metrics(0);
        let nodes = (0..n_nodes)
            .map(|node| Node::new(node, &instance, &mut series))
            .collect();
        Self {
            schedule,
            faults,
            seed,
            start_ms,
            interval_ms,
            series,
            nodes,
            pods: Vec::new(),
            next_pod: 0,
            n_restarts: 0,
            is_restarting: false,
            is_doubled: false,
        }
    }

    /// Computes a scrape. Its samples are in the requests of `series`.
    pub(super) fn step(&mut self, round: i64) -> Result<()> {
        self.series
            .begin(round, self.start_ms + round * self.interval_ms);
        self.end_pods(round)?;
        self.create_pods(round)?;
        self.label_gpus()?;
        self.run_state_metrics(round)?;

        // The borrow of the faults ends before the series change.
        let faults = std::mem::take(&mut self.faults);
        let active = Active::at(&faults, round, self.nodes.len(), self.schedule.jobs.len());
        let result = self.write_round(round, &active);
        self.faults = faults;
        result?;
        self.series.finish()
    }

    fn end_pods(&mut self, round: i64) -> Result<()> {
        let mut kept = Vec::with_capacity(self.pods.len());
        for running in self.pods.drain(..) {
            let pod = &self.schedule.pods[running.pod_idx];
            if pod.end > round {
                kept.push(running);
                continue;
            }
            for id in running.series {
                self.series.remove(id)?;
            }
            if let Some(node) = pod.node {
                for user in &mut self.nodes[node].users {
                    if *user == Some(running.pod_idx) {
                        *user = None;
                    }
                }
            }
        }
        self.pods = kept;
        Ok(())
    }

    fn create_pods(&mut self, round: i64) -> Result<()> {
        while let Some(pod) = self.schedule.pods.get(self.next_pod) {
            if pod.created > round {
                break;
            }
            let pod_idx = self.next_pod;
            self.next_pod += 1;
            if pod.end <= round {
                continue;
            }
            let job = &self.schedule.jobs[pod.job_idx];
            if let Some(node) = pod.node {
                let gpus = pod.first_gpu..pod.first_gpu + job.gpus_per_pod;
                self.nodes[node].users[gpus].fill(Some(pod_idx));
            }
            let instance = state_metrics(self.n_restarts);
            let ids = PodSeries::ALL.map(|series| {
                let labels = labels::pod(series, job, pod, pod_idx, &instance);
                self.series.create(&labels)
            });
            let created_s = (self.start_ms + pod.created * self.interval_ms) / 1000;
            for series in PodSeries::ALL {
                let value = match series {
                    PodSeries::Created => created_s as f64,
                    PodSeries::GpuRequest => job.gpus_per_pod as f64,
                    PodSeries::Restarts => 0.0,
                    _ => 1.0,
                };
                self.series.set(ids[series as usize], value);
            }
            for id in ids {
                self.series.set_hidden(id, self.is_restarting)?;
            }
            self.pods.push(RunningPod {
                pod_idx,
                series: ids,
            });
        }
        Ok(())
    }

    /// Gives the series of GPUs the labels of the pods that use them now.
    fn label_gpus(&mut self) -> Result<()> {
        for (node_idx, node) in self.nodes.iter_mut().enumerate() {
            for gpu in 0..GPUS {
                let user = node.users[gpu];
                if user == node.labeled_users[gpu] {
                    continue;
                }
                node.labeled_users[gpu] = user;
                let user = user.map(|pod_idx| {
                    let pod = &self.schedule.pods[pod_idx];
                    (&self.schedule.jobs[pod.job_idx], pod)
                });
                for series in GpuSeries::ALL {
                    let labels = labels::gpu(series, node_idx, gpu, user);
                    self.series
                        .relabel(node.gpus[gpu][series as usize], &labels)?;
                }
            }
        }
        Ok(())
    }

    /// Restarts kube-state-metrics with another address, or runs it twice.
    fn run_state_metrics(&mut self, round: i64) -> Result<()> {
        let is_restarting = self.is_active(Kind::KubeStateMetricsRestart, round);
        let is_doubled = self.is_active(Kind::KubeStateMetricsTwice, round) && !is_restarting;
        let is_back = self.is_restarting && !is_restarting;
        if is_restarting == self.is_restarting && is_doubled == self.is_doubled {
            return Ok(());
        }
        self.is_restarting = is_restarting;
        self.is_doubled = is_doubled;
        self.n_restarts += usize::from(is_back);
        let instance = state_metrics(self.n_restarts);
        let second = state_metrics(1000);
        for running in &self.pods {
            let pod = &self.schedule.pods[running.pod_idx];
            let job = &self.schedule.jobs[pod.job_idx];
            for series in PodSeries::ALL {
                let id = running.series[series as usize];
                self.series.set_hidden(id, is_restarting)?;
                if is_back {
                    let labels = labels::pod(series, job, pod, running.pod_idx, &instance);
                    self.series.relabel(id, &labels)?;
                }
                let twin = labels::pod(series, job, pod, running.pod_idx, &second);
                self.series.set_twin(id, is_doubled.then_some(&twin))?;
            }
        }
        for (node_idx, node) in self.nodes.iter().enumerate() {
            for series in NodeSeries::ALL.into_iter().filter(|s| s.is_of_kubernetes()) {
                let id = node.series[series as usize];
                self.series.set_hidden(id, is_restarting)?;
                if is_back {
                    let labels = labels::node(series, node_idx, &instance);
                    self.series.relabel(id, &labels)?;
                }
                let twin = labels::node(series, node_idx, &second);
                self.series.set_twin(id, is_doubled.then_some(&twin))?;
            }
        }
        Ok(())
    }

    /// Returns `true` if something of this kind is wrong.
    fn is_active(&self, kind: Kind, round: i64) -> bool {
        self.faults.iter().any(|fault| {
            fault.kind == kind && (fault.place.start..fault.place.end).contains(&round)
        })
    }

    fn write_round(&mut self, round: i64, active: &Active) -> Result<()> {
        let states = self.job_states(round, active);
        for node_idx in 0..self.nodes.len() {
            self.write_node(node_idx, round, active, &states)?;
        }
        for running in &self.pods {
            let pod = &self.schedule.pods[running.pod_idx];
            let is_placed = pod.node.is_some();
            let fault = pod.node.and_then(|node| active.by_node[node]);
            let is_lost = fault.is_some_and(|fault| {
                fault.kind == Kind::DeadKubelet && round >= fault.place.start + 2
            });
            let job = &self.schedule.jobs[pod.job_idx];
            let is_running = is_placed && round >= pod.created + job.pull_rounds + READY_ROUNDS;
            let values = [
                (PodSeries::Pending, !is_running),
                (PodSeries::Running, is_running),
                (PodSeries::Scheduled, is_placed),
                (PodSeries::Ready, is_running && !is_lost),
            ];
            for (series, is_true) in values {
                let id = running.series[series as usize];
                self.series.set(id, number(is_true));
            }
            let exist = [
                (PodSeries::Waiting, is_placed && !is_running),
                (PodSeries::GpuRequest, job.gpus_per_pod > 0),
            ];
            for (series, exists) in exist {
                let id = running.series[series as usize];
                self.series.set_hidden(id, !exists || self.is_restarting)?;
            }
        }
        Ok(())
    }

    fn job_states(&self, round: i64, active: &Active) -> Vec<JobState> {
        let jobs = self.schedule.jobs.iter().enumerate();
        let mut states: Vec<JobState> = jobs
            .map(|(job_idx, job)| {
                let kind = active.by_job[job_idx].map(|fault| fault.kind);
                let job_seed = mix2(self.seed, job_idx as u64);
                let phase = match kind {
                    _ if !job.is_running(round) => Phase::Idle,
                    Some(Kind::IdleJob) => Phase::Idle,
                    Some(Kind::Hung | Kind::OffBus | Kind::DriverXid) => Phase::Hung,
                    _ => signals::healthy_phase(job, job_seed, round),
                };
                JobState {
                    phase,
                    speed: 1.0,
                    is_warm: kind == Some(Kind::WarmRoom),
                }
            })
            .collect();
        for running in &self.pods {
            let pod = &self.schedule.pods[running.pod_idx];
            let Some(node) = pod.node else { continue };
            let job = &self.schedule.jobs[pod.job_idx];
            let rank = self.rank(node, Some((job, pod)), round, active);
            let state = &mut states[pod.job_idx];
            if rank.is_idle || state.phase == Phase::Idle {
                continue;
            }
            for gpu in pod.first_gpu..pod.first_gpu + job.gpus_per_pod {
                state.speed = state.speed.min(rank.speed(gpu, state.is_warm));
            }
            let is_flapping = rank
                .fault
                .is_some_and(|f| matches!(f.kind, Kind::InfinibandFlapping | Kind::LemonNode));
            if is_flapping && (0..GPUS).any(|port| rank.port(port, *state).downed > 0.0) {
                state.speed = state.speed.min(0.6);
            }
        }
        states
    }

    fn rank<'a>(
        &self,
        node: usize,
        user: Option<(&Job, &Pod)>,
        round: i64,
        active: &Active<'a>,
    ) -> Rank<'a> {
        Rank {
            seed: self.seed,
            round,
            node,
            fault: active.by_node[node],
            load: user.map_or(1.0, |(job, pod)| signals::stage_load(job, pod.rank)),
            is_idle: user.is_some_and(|(job, pod)| job.has_idle_rank && pod.rank == 0),
            is_alone: user.is_none_or(|(job, _)| job.n_pods == 1),
        }
    }

    fn write_node(
        &mut self,
        node_idx: usize,
        round: i64,
        active: &Active,
        states: &[JobState],
    ) -> Result<()> {
        let idle = JobState {
            phase: Phase::Idle,
            speed: 1.0,
            is_warm: false,
        };
        let fault_kind = active.by_node[node_idx].map(|fault| fault.kind);
        let mut node_phase = Phase::Idle;
        for gpu in 0..GPUS {
            let user = self.nodes[node_idx].users[gpu].map(|pod_idx| {
                let pod = &self.schedule.pods[pod_idx];
                (&self.schedule.jobs[pod.job_idx], pod)
            });
            let state = user.map_or(idle, |(_, pod)| states[pod.job_idx]);
            if state.phase != Phase::Idle {
                node_phase = state.phase;
            }
            let rank = self.rank(node_idx, user, round, active);
            let gpu_signals = rank.gpu(gpu, state);
            let port_signals = rank.port(gpu, state);
            let node = &self.nodes[node_idx];
            self.series
                .write_gpu(&node.gpus[gpu], gpu_signals, self.interval_ms);
            self.series
                .write_port(&node.ports[gpu], port_signals, self.interval_ms);

            let is_lost = fault_kind == Some(Kind::OffBus) && gpu_signals.xid > 0.0;
            for series in GpuSeries::ALL {
                let is_hidden =
                    fault_kind == Some(Kind::ScrapeGap) || (is_lost && series != GpuSeries::Xid);
                self.series
                    .set_hidden(node.gpus[gpu][series as usize], is_hidden)?;
            }
        }
        let rank = self.rank(node_idx, None, round, active);
        let signals = rank.node(node_phase);
        self.series
            .write_node(&self.nodes[node_idx].series, signals, self.interval_ms);
        self.write_new_node(node_idx, active)
    }

    /// Writes when a node was created, and the taint that it has until its pre-flight test passed.
    fn write_new_node(&mut self, node_idx: usize, active: &Active) -> Result<()> {
        let new = active.by_node[node_idx]
            .filter(|fault| matches!(fault.kind, Kind::PreflightFailed | Kind::PreflightPassed));
        let node = &mut self.nodes[node_idx];
        if let Some(fault) = new {
            node.created = fault.place.start;
        }
        let created_s = (self.start_ms + node.created * self.interval_ms) / 1000;
        self.series
            .set(node.series[NodeSeries::Created as usize], created_s as f64);
        let taint = node.series[NodeSeries::PreflightTaint as usize];
        self.series.set(taint, 1.0);
        self.series
            .set_hidden(taint, new.is_none() || self.is_restarting)
    }
}

impl<'a> Active<'a> {
    fn at(faults: &'a [Fault], round: i64, n_nodes: usize, n_jobs: usize) -> Self {
        let mut active = Self {
            by_node: vec![None; n_nodes],
            by_job: vec![None; n_jobs],
        };
        for fault in faults {
            if !(fault.place.start..fault.place.end).contains(&round) {
                continue;
            }
            for node in &fault.place.nodes {
                active.by_node[*node] = Some(fault);
            }
            if let Some(job_idx) = fault.place.job_idx {
                active.by_job[job_idx] = Some(fault);
            }
        }
        active
    }
}

/// Returns the address of kube-state-metrics after a number of restarts.
fn state_metrics(n_restarts: usize) -> String {
    format!("10.9.{}.{}:8080", n_restarts / 250, n_restarts % 250 + 1)
}
