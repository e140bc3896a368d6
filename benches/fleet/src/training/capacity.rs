//! What shares the nodes with jobs: placeholder pods, programs without GPUs, and nodes that are new.
//!
//! Placeholder pods ("balloons") hold free nodes for jobs to come. A job that needs a node evicts the
//! placeholder there; it goes to another free node, or waits.

use super::schedule::{Absence, Drawing, GPUS, Job, Owner, Pod, Purpose};

/// Placeholder pods, as a share of the nodes. There are more of them than free nodes at most times.
const PLACEHOLDER_SHARE: f64 = 0.06;
/// Programs without GPUs, as a share of the nodes.
const PROGRAM_SHARE: f64 = 0.125;
/// The priority class of placeholder pods.
pub(super) const PLACEHOLDER_CLASS: &str = "balloon";

impl Drawing {
    /// Takes a free node out of use until its pre-flight test has passed. It is a new one.
    pub(super) fn take_out_a_node(&mut self, round: i64, length: i64, has_failed: bool) {
        let Some(node) = self.free.pop_last() else {
            return;
        };
        self.schedule.absences.push(Absence {
            node,
            start: round,
            end: round + length,
            has_failed,
        });
    }

    pub(super) fn end_absences(&mut self, round: i64) {
        for absence in &self.schedule.absences {
            if absence.end == round {
                self.released.push(absence.node);
            }
        }
    }

    /// Starts Jobs without GPUs, such as those that prepare data, on any node.
    pub(super) fn start_programs(&mut self, round: i64) {
        let n_programs = self.share_of_nodes(PROGRAM_SHARE);
        self.programs.retain(|end| *end > round);
        while self.programs.len() < n_programs {
            let end = round + self.random.rounds(60, 600);
            let job_idx = self.add_other_job("data", Owner::Job, Purpose::WithoutGpus, 1);
            let job = &mut self.schedule.jobs[job_idx];
            job.name = format!("prepare-{job_idx:04}");
            job.created = round;
            job.end = end;
            let node = self.random.index(self.options.n_nodes);
            self.add_pod(job_idx, 0, Some(node), 0);
            self.programs.push(end);
        }
    }

    /// Evicts placeholders whose nodes are in use, and schedules those that wait.
    pub(super) fn move_placeholders(&mut self, round: i64) {
        let n_pods = self.share_of_nodes(PLACEHOLDER_SHARE);
        if self.placeholders.is_empty() {
            let owner = Owner::ReplicaSet;
            let job_idx = self.add_other_job("balloons", owner, Purpose::Placeholder, n_pods);
            for rank in 0..n_pods {
                self.add_placeholder(job_idx, rank, None, round);
            }
        }
        for rank in 0..n_pods {
            let pod_idx = self.placeholders[rank];
            let job_idx = self.schedule.pods[pod_idx].job_idx;
            let held = self.schedule.pods[pod_idx].node;
            if held.is_some_and(|node| self.free.contains(&node)) {
                continue;
            }
            let node = self.free_without_placeholder();
            if held.is_none() && node.is_none() {
                continue;
            }
            self.schedule.pods[pod_idx].end = round;
            self.add_placeholder(job_idx, rank, node, round);
        }
    }

    fn free_without_placeholder(&self) -> Option<usize> {
        let placeholders = self.placeholders.iter();
        let held: Vec<Option<usize>> = placeholders
            .map(|idx| self.schedule.pods[*idx].node)
            .collect();
        let mut last_first = self.free.iter().rev().copied();
        last_first.find(|node| !held.contains(&Some(*node)))
    }

    fn add_placeholder(&mut self, job_idx: usize, rank: usize, node: Option<usize>, round: i64) {
        let suffix = self.random.index(1 << 20);
        let pod_idx = self.schedule.pods.len();
        self.schedule.pods.push(Pod {
            job_idx,
            rank,
            name: format!("balloon-{suffix:05x}"),
            node,
            first_gpu: 0,
            created: round,
            end: self.options.n_rounds + 1,
        });
        match self.placeholders.get_mut(rank) {
            Some(current) => *current = pod_idx,
            None => self.placeholders.push(pod_idx),
        }
    }

    fn share_of_nodes(&self, share: f64) -> usize {
        (self.options.n_nodes as f64 * share).ceil() as usize
    }

    fn add_other_job(
        &mut self,
        team: &'static str,
        owner: Owner,
        purpose: Purpose,
        n_pods: usize,
    ) -> usize {
        self.schedule.jobs.push(Job {
            name: "balloon".to_owned(),
            team,
            owner,
            n_pods,
            gpus_per_pod: match purpose {
                Purpose::WithoutGpus => 0,
                _ => GPUS,
            },
            created: 0,
            end: self.options.n_rounds + 1,
            purpose,
            pull_rounds: 0,
            restart: None,
            n_stages: 1,
            has_idle_rank: false,
            evaluates: false,
        });
        self.schedule.jobs.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::super::schedule::{Schedule, ScheduleOptions};
    use super::*;

    fn schedule() -> Schedule {
        Schedule::draw(ScheduleOptions {
            seed: 1,
            n_nodes: 64,
            n_rounds: 720,
            n_per_kind: 3,
            n_decoys: 2,
        })
    }

    fn pods_of(schedule: &Schedule, purpose: Purpose) -> Vec<&Pod> {
        let pods = schedule.pods.iter();
        pods.filter(|pod| schedule.jobs[pod.job_idx].purpose == purpose)
            .collect()
    }

    #[test]
    fn placeholders_move_to_free_nodes_or_wait() {
        let schedule = schedule();
        let placeholders = pods_of(&schedule, Purpose::Placeholder);
        for round in 0..720 {
            let is_there = |pod: &&&Pod| (pod.created..pod.end).contains(&round);
            assert_eq!(placeholders.iter().filter(is_there).count(), 4, "{round}");
        }
        let n_waiting = placeholders.iter().filter(|pod| pod.node.is_none()).count();
        let n_evicted = placeholders.iter().filter(|pod| pod.end < 720).count();
        assert!(n_waiting > 0 && n_evicted > n_waiting, "{placeholders:?}");
    }

    #[test]
    fn programs_use_nodes_and_no_gpus() {
        let schedule = schedule();
        let programs = pods_of(&schedule, Purpose::WithoutGpus);
        assert!(programs.len() > 8, "{}", programs.len());
        for pod in programs {
            assert_eq!(schedule.jobs[pod.job_idx].gpus_per_pod, 0);
            assert!(pod.node.is_some());
        }
    }

    #[test]
    fn a_new_node_runs_no_gpu_pod_before_its_pre_flight_test() {
        let schedule = schedule();
        let n_failed = schedule.absences.iter().filter(|new| new.has_failed);
        assert_eq!(n_failed.count(), 3);
        assert_eq!(schedule.absences.len(), 5);
        for new in &schedule.absences {
            for pod in &schedule.pods {
                let is_meanwhile = pod.created < new.end && pod.end > new.start;
                let uses_gpus = schedule.jobs[pod.job_idx].gpus_per_pod > 0;
                let is_there = pod.node == Some(new.node) && is_meanwhile && uses_gpus;
                assert!(!is_there, "{new:?} {pod:?}");
            }
        }
    }
}
