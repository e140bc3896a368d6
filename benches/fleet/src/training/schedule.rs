//! Jobs and pods of the training cluster: jobs arrive, are gang-scheduled, lose a pod that is
//! replaced, and end. All is drawn before the first scrape.
//!
//! Invariants
//! 1. A GPU belongs to one pod at a time. A node is used again in the round after its pod ended.
//! 2. Times are rounds (scrapes). The first jobs began before round 0.

use std::collections::BTreeSet;

use super::random::{Random, Stream};

/// GPUs and InfiniBand ports of a node.
pub(super) const GPUS: usize = 8;
/// Nodes below one leaf switch.
pub(super) const LEAF: usize = 16;
/// Rounds for which a job is idle after one of its pods was replaced: the framework starts again.
const RESTART_ROUNDS: i64 = 8;
/// Rounds between the creation of pods and the first step of the job.
const START_ROUNDS: i64 = 4;
/// Share of the nodes that replace others.
const SPARE_SHARE: f64 = 0.04;
/// Sizes of jobs in nodes, with weights. Most jobs are small, most GPUs belong to large ones.
const SIZES: [(usize, f64); 10] = [
    (1, 0.22),
    (2, 0.14),
    (4, 0.16),
    (8, 0.16),
    (16, 0.12),
    (32, 0.09),
    (64, 0.06),
    (128, 0.03),
    (256, 0.015),
    (512, 0.005),
];
const TEAMS: [&str; 5] = ["pretraining", "posttraining", "vision", "speech", "eval"];
/// The team that owns one node below each leaf switch. Others borrow them.
pub(super) const OWNING_TEAM: &str = "robotics";

/// How Kubernetes knows a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Job,
    StatefulSet,
    JobSet,
    PyTorchJob,
    MpiJob,
    ReplicaSet,
}

/// What a job is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Training,
    /// It never starts: the last half of its pods stays pending.
    HalfScheduled,
    /// It never starts: all its pods stay pending.
    Unscheduled,
    /// It uses no GPU.
    WithoutGpus,
    /// Its pods hold nodes for jobs to come.
    Placeholder,
}

/// What the cluster's owner asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScheduleOptions {
    pub(super) seed: u64,
    pub(super) n_nodes: usize,
    pub(super) n_rounds: i64,
    /// Number of faults of each kind that the schedule contains.
    pub(super) n_per_kind: usize,
    /// Number of new nodes that pass their pre-flight test.
    pub(super) n_decoys: usize,
}

/// A job.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) name: String,
    pub(super) team: &'static str,
    pub(super) owner: Owner,
    pub(super) n_pods: usize,
    pub(super) gpus_per_pod: usize,
    pub(super) created: i64,
    pub(super) end: i64,
    pub(super) purpose: Purpose,
    /// Rounds for which its pods wait for their image.
    pub(super) pull_rounds: i64,
    /// The round in which a pod is replaced.
    pub(super) restart: Option<i64>,
    /// Number of pipeline stages. Stages have different load.
    pub(super) n_stages: usize,
    /// The first pod does not use its GPUs, by design.
    pub(super) has_idle_rank: bool,
    /// The job evaluates its model between phases of training.
    pub(super) evaluates: bool,
}

/// A pod.
#[derive(Debug, Clone)]
pub(super) struct Pod {
    pub(super) job_idx: usize,
    /// Its number in the job.
    pub(super) rank: usize,
    pub(super) name: String,
    /// `None` if it is never scheduled.
    pub(super) node: Option<usize>,
    pub(super) first_gpu: usize,
    pub(super) created: i64,
    pub(super) end: i64,
}

/// A time in which a node is new and has not passed its pre-flight test. It runs no pods with
/// GPUs.
#[derive(Debug, Clone)]
pub(super) struct Absence {
    pub(super) node: usize,
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) has_failed: bool,
}

/// All jobs and pods.
#[derive(Debug)]
pub(super) struct Schedule {
    pub(super) jobs: Vec<Job>,
    /// In the order of their creation.
    pub(super) pods: Vec<Pod>,
    pub(super) absences: Vec<Absence>,
}

impl Job {
    /// Returns the id that the rules give the job.
    pub(super) fn id(&self) -> String {
        format!("{}/{}", self.team, self.name)
    }

    /// Returns `true` if the job computes.
    pub(super) fn is_running(&self, round: i64) -> bool {
        let restarts = self
            .restart
            .is_some_and(|from| (from..from + RESTART_ROUNDS).contains(&round));
        let start = self.created + self.pull_rounds + START_ROUNDS;
        let is_started = round >= start && round < self.end;
        is_started && !restarts && self.purpose == Purpose::Training
    }
}

impl Schedule {
    /// Draws the schedule. The result depends only on the options.
    pub(super) fn draw(options: ScheduleOptions) -> Self {
        let mut drawing = Drawing {
            options,
            random: Random::new(options.seed, Stream::Jobs),
            free: (0..options.n_nodes).collect(),
            released: Vec::new(),
            running: Vec::new(),
            due: Due::draw(options),
            placeholders: Vec::new(),
            programs: Vec::new(),
            schedule: Self {
                jobs: Vec::new(),
                pods: Vec::new(),
                absences: Vec::new(),
            },
        };
        for round in 0..options.n_rounds {
            drawing.step(round);
        }
        let mut schedule = drawing.schedule;
        schedule.pods.sort_by_key(|pod| pod.created);
        schedule
    }
}

/// Rounds in which something happens that the cluster's owner asks for, the next one last.
struct Due {
    half_scheduled: Vec<i64>,
    image_pulls: Vec<i64>,
    unscheduled: Vec<i64>,
    preflight_failures: Vec<i64>,
    preflights: Vec<i64>,
}

impl Due {
    fn draw(options: ScheduleOptions) -> Self {
        let n = options.n_per_kind;
        Self {
            half_scheduled: due_rounds(options, Stream::HalfScheduled, n, 60),
            image_pulls: due_rounds(options, Stream::ImagePulls, n, 60),
            unscheduled: due_rounds(options, Stream::Unscheduled, n, 60),
            preflight_failures: due_rounds(options, Stream::PreflightFailures, n, 80),
            preflights: due_rounds(options, Stream::Preflights, options.n_decoys, 60),
        }
    }
}

/// Draws `n` rounds. The last one is `length` rounds before the end.
fn due_rounds(options: ScheduleOptions, stream: Stream, n: usize, length: i64) -> Vec<i64> {
    let mut random = Random::new(options.seed, stream);
    let last = (options.n_rounds - length).max(41);
    let mut rounds: Vec<i64> = (0..n).map(|_| random.rounds(40, last)).collect();
    rounds.sort_unstable_by(|a, b| b.cmp(a));
    rounds
}

/// Removes the next due round and returns `true`, if it has come.
pub(super) fn take_due(rounds: &mut Vec<i64>, round: i64) -> bool {
    let is_due = rounds.last().is_some_and(|due| *due <= round);
    if is_due {
        rounds.pop();
    }
    is_due
}

/// The state of the scheduler at a round.
pub(super) struct Drawing {
    pub(super) options: ScheduleOptions,
    pub(super) random: Random,
    pub(super) free: BTreeSet<usize>,
    /// Nodes that are free from the next round on.
    pub(super) released: Vec<usize>,
    /// Jobs that have not ended.
    running: Vec<usize>,
    due: Due,
    /// The current pods that are placeholders, by their index.
    pub(super) placeholders: Vec<usize>,
    /// Rounds in which the programs without GPUs end.
    pub(super) programs: Vec<i64>,
    pub(super) schedule: Schedule,
}

impl Drawing {
    fn step(&mut self, round: i64) {
        self.free.extend(self.released.drain(..));
        self.end_jobs(round);
        self.replace_pods(round);
        self.end_absences(round);
        self.start_what_is_due(round);
        self.start_jobs(round);
        self.start_programs(round);
        self.move_placeholders(round);
    }

    /// Starts what the cluster's owner asks for. Most of it waits for a free node.
    fn start_what_is_due(&mut self, round: i64) {
        if take_due(&mut self.due.unscheduled, round) {
            self.start_unscheduled(round);
        }
        if !self.free.is_empty() && take_due(&mut self.due.preflight_failures, round) {
            let length = self.random.rounds(72, 110);
            self.take_out_a_node(round, length, true);
        }
        if !self.free.is_empty() && take_due(&mut self.due.preflights, round) {
            let length = self.random.rounds(10, 40);
            self.take_out_a_node(round, length, false);
        }
        if !self.free.is_empty() && take_due(&mut self.due.half_scheduled, round) {
            self.start_half_scheduled(round);
        }
        if !self.free.is_empty() && take_due(&mut self.due.image_pulls, round) {
            self.start_with_a_slow_image(round);
        }
    }

    fn end_jobs(&mut self, round: i64) {
        let jobs = &self.schedule.jobs;
        let ended: Vec<usize> = self
            .running
            .iter()
            .copied()
            .filter(|&idx| jobs[idx].end == round)
            .collect();
        self.running.retain(|idx| !ended.contains(idx));
        for pod in &self.schedule.pods {
            if pod.end == round && ended.contains(&pod.job_idx) {
                self.released.extend(pod.node);
            }
        }
        // Two pods of half a node release it twice.
        self.released.sort_unstable();
        self.released.dedup();
    }

    /// Replaces one pod of each job that restarts in this round. The other pods stay.
    fn replace_pods(&mut self, round: i64) {
        for job_idx in self.running.clone() {
            let job = &self.schedule.jobs[job_idx];
            if job.restart != Some(round) {
                continue;
            }
            let end = job.end;
            let base = job.name.clone();
            // Other owners give the successor the name of its predecessor.
            let is_renamed = matches!(job.owner, Owner::Job | Owner::JobSet);
            let Some(node) = self.free.pop_first() else {
                self.schedule.jobs[job_idx].restart = None;
                continue;
            };
            let rank = self.random.index(job.n_pods);
            let old = self
                .schedule
                .pods
                .iter_mut()
                .find(|pod| pod.job_idx == job_idx && pod.rank == rank && pod.end == end)
                .expect("a pod of each rank runs until the end of its job");
            old.end = round;
            self.released.extend(old.node);
            let suffix = self.random.index(1 << 20);
            let name = if is_renamed {
                format!("{base}-{rank}-{suffix:05x}")
            } else {
                format!("{base}-{rank}")
            };
            self.schedule.pods.push(Pod {
                job_idx,
                rank,
                name,
                node: Some(node),
                first_gpu: 0,
                created: round + 1,
                end,
            });
        }
    }

    /// Starts jobs as long as a drawn size fits.
    fn start_jobs(&mut self, round: i64) {
        let reserve = (self.options.n_nodes as f64 * SPARE_SHARE).ceil() as usize;
        let mut n_refused = 0;
        while n_refused < 3 {
            let n_pods = self.draw_size();
            if n_pods + reserve > self.free.len() {
                n_refused += 1;
                continue;
            }
            let created = if round == 0 {
                -self.random.rounds(60, 2_000)
            } else {
                round
            };
            // 20 minutes to a day; larger jobs run longer.
            let shortest = 40.0 * (1.0 + (n_pods as f64).log2());
            let length = shortest * (2_880.0 / shortest).powf(self.random.share());
            let end = created.max(0) + length as i64;
            if n_pods == 1 && self.random.happens(0.5) {
                self.start_two_on_one_node(created, end);
            } else {
                let job_idx = self.add_job(n_pods, GPUS, created, end);
                for rank in 0..n_pods {
                    let node = self.free.pop_first();
                    self.add_pod(job_idx, rank, node, 0);
                }
            }
        }
    }

    fn start_two_on_one_node(&mut self, created: i64, end: i64) {
        let node = self.free.pop_first();
        for first_gpu in [0, GPUS / 2] {
            let job_idx = self.add_job(1, GPUS / 2, created, end);
            self.schedule.jobs[job_idx].restart = None;
            self.add_pod(job_idx, 0, node, first_gpu);
        }
    }

    fn start_half_scheduled(&mut self, round: i64) {
        let n_scheduled = self.free.len().min(8);
        let end = round + self.random.rounds(40, 80);
        let job_idx = self.add_job(2 * n_scheduled, GPUS, round, end);
        let job = &mut self.schedule.jobs[job_idx];
        job.purpose = Purpose::HalfScheduled;
        job.restart = None;
        for rank in 0..2 * n_scheduled {
            let node = if rank < n_scheduled {
                self.free.pop_first()
            } else {
                None
            };
            self.add_pod(job_idx, rank, node, 0);
        }
    }

    /// Starts a job of the team that owns nodes, all of which are in use.
    fn start_unscheduled(&mut self, round: i64) {
        let end = round + self.random.rounds(60, 100);
        let job_idx = self.add_job(2, GPUS, round, end);
        let job = &mut self.schedule.jobs[job_idx];
        job.purpose = Purpose::Unscheduled;
        job.team = OWNING_TEAM;
        job.restart = None;
        for rank in 0..2 {
            self.add_pod(job_idx, rank, None, 0);
        }
    }

    /// Starts a job that waits 17 to 25 minutes for its image, and trains then.
    fn start_with_a_slow_image(&mut self, round: i64) {
        let n_pods = self.free.len().min(8);
        let pull_rounds = self.random.rounds(34, 50);
        let end = round + pull_rounds + self.random.rounds(100, 200);
        let job_idx = self.add_job(n_pods, GPUS, round, end);
        let job = &mut self.schedule.jobs[job_idx];
        job.pull_rounds = pull_rounds;
        job.restart = None;
        for rank in 0..n_pods {
            let node = self.free.pop_first();
            self.add_pod(job_idx, rank, node, 0);
        }
    }

    fn add_job(&mut self, n_pods: usize, gpus_per_pod: usize, created: i64, end: i64) -> usize {
        let job_idx = self.schedule.jobs.len();
        let random = &mut self.random;
        let owners = [
            Owner::Job,
            Owner::StatefulSet,
            Owner::JobSet,
            Owner::PyTorchJob,
            Owner::MpiJob,
        ];
        let can_restart = n_pods > 1 && end - created.max(0) > 200 && random.happens(0.3);
        let restart = can_restart.then(|| random.rounds(created.max(0) + 60, end - 60));
        let n_stages = match n_pods {
            4.. if random.happens(0.3) => 4,
            _ => 1,
        };
        self.schedule.jobs.push(Job {
            name: format!("train-{job_idx:04}"),
            team: TEAMS[random.index(TEAMS.len())],
            owner: owners[random.index(owners.len())],
            n_pods,
            gpus_per_pod,
            created,
            end,
            purpose: Purpose::Training,
            pull_rounds: 0,
            restart,
            n_stages,
            has_idle_rank: n_pods >= 8 && random.happens(0.1),
            evaluates: random.happens(0.4),
        });
        self.running.push(job_idx);
        job_idx
    }

    pub(super) fn add_pod(
        &mut self,
        job_idx: usize,
        rank: usize,
        node: Option<usize>,
        first_gpu: usize,
    ) {
        let job = &self.schedule.jobs[job_idx];
        self.schedule.pods.push(Pod {
            job_idx,
            rank,
            name: format!("{}-{rank}", job.name),
            node,
            first_gpu,
            created: job.created,
            end: job.end,
        });
    }

    /// Draws a size of at most half of the cluster.
    fn draw_size(&mut self) -> usize {
        let mut left = self.random.share();
        for (size, weight) in SIZES {
            left -= weight;
            if left < 0.0 {
                return size.min((self.options.n_nodes / 2).max(1));
            }
        }
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(seed: u64) -> Schedule {
        Schedule::draw(ScheduleOptions {
            seed,
            n_nodes: 64,
            n_rounds: 720,
            n_per_kind: 3,
            n_decoys: 2,
        })
    }

    #[test]
    fn a_gpu_belongs_to_one_pod_at_a_time() {
        let schedule = schedule(1);
        let mut owner = vec![(i64::MIN, usize::MAX); 64 * GPUS];
        let mut n_reused_at_once = 0;
        for (pod_idx, pod) in schedule.pods.iter().enumerate() {
            let Some(node) = pod.node else { continue };
            let n_gpus = schedule.jobs[pod.job_idx].gpus_per_pod;
            for gpu in pod.first_gpu..pod.first_gpu + n_gpus {
                let before = &mut owner[node * GPUS + gpu];
                assert!(before.0 <= pod.created, "{node}/{gpu}: {before:?}, {pod:?}");
                n_reused_at_once += usize::from(before.0 >= pod.created - 1 && pod.created > 0);
                *before = (pod.end, pod_idx);
            }
        }
        assert!(
            n_reused_at_once > 0,
            "no node is used again within a minute"
        );
    }

    #[test]
    fn jobs_restart_end_and_are_scheduled_by_half() {
        let schedule = schedule(2);
        assert_eq!(
            schedule
                .jobs
                .iter()
                .filter(|job| job.purpose == Purpose::HalfScheduled)
                .count(),
            3
        );
        assert!(schedule.jobs.iter().any(|job| job.restart.is_some()));
        assert!(schedule.jobs.iter().any(|job| job.gpus_per_pod == GPUS / 2));
        for pod in &schedule.pods {
            let purpose = schedule.jobs[pod.job_idx].purpose;
            let is_pending = match purpose {
                Purpose::HalfScheduled => pod.rank >= schedule.jobs[pod.job_idx].n_pods / 2,
                Purpose::Unscheduled => true,
                // A placeholder waits if no node is free.
                Purpose::Placeholder => continue,
                Purpose::Training | Purpose::WithoutGpus => false,
            };
            assert_eq!(pod.node.is_none(), is_pending, "{pod:?}");
        }
        let slow = schedule.jobs.iter().find(|job| job.pull_rounds > 0);
        let slow = slow.expect("a job waits for its image");
        let trains = slow.created + slow.pull_rounds + START_ROUNDS;
        assert!(!slow.is_running(trains - 1) && slow.is_running(trains));
    }

    #[test]
    fn equal_options_give_equal_schedules() {
        let texts = [3, 3, 4].map(|seed| format!("{:?}", schedule(seed)));
        assert_eq!(texts[0], texts[1]);
        assert_ne!(texts[0], texts[2]);
    }
}
