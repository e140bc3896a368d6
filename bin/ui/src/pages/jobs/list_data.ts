/** Jobs as their records describe them, and which of them need attention. */

import type { VectorElement } from "../../api/types";
import { toNumber } from "../../chart/grid";
import { type AlertCounts, type AlertIndex, countAlerts, loadAlerts } from "./alerts";
import { vector } from "./records";

/** Jobs that the list asks for: those with the most GPUs. */
export const JOBS_MAX = 1000;
/** Series of a job that the list reads: three states of pods and of GPUs, and five others. With room for jobs of two teams. */
const SERIES_PER_JOB = 20;
/** Age up to which pods that are not ready are those of a job that starts. */
const STARTING_MS = 15 * 60_000;
const HUNG = "TrainingJobHung";

/** Records of a job, without `training:job:`. */
export const JOB_RECORDS = "pods|gpus|nodes|start|restarts|power_watts|utilization|tensor_active|infiniband_bytes:rate2m";
const LIST_RECORDS = "pods|gpus|nodes|start|utilization|tensor_active";

/** States of a job, those that need attention first. */
export const PHASES = ["hung", "partly scheduled", "not ready", "waiting", "starting", "running"] as const;
export type Phase = (typeof PHASES)[number];

export const PHASE_HINTS: Record<Phase, string> = {
  hung: `${HUNG} fires: all GPUs are busy, none computes, and no data moves`,
  "partly scheduled": "Some pods have nodes, others wait",
  "not ready": "All pods have nodes. Some have not been ready for 15 minutes after the start",
  waiting: "No pod has a node",
  starting: "All pods have nodes. Some are not ready yet",
  running: "All pods are ready, or a job without pods has GPUs",
};

export interface Job {
  id: string;
  team: string;
  pods: { wanted: number; scheduled: number; ready: number };
  gpus: { wanted: number; allocated: number; busy: number };
  nodes: number;
  /** Undefined for jobs without pods. */
  startMs?: number;
  restarts?: number;
  powerWatts?: number;
  infinibandBytes?: number;
  /** Shares of 1. */
  utilization?: number;
  tensorActive?: number;
  alerts: AlertCounts;
  phase: Phase;
}

export interface JobList {
  jobs: Job[];
  /** Number of all jobs, if the list lacks some. */
  total?: number;
}

/** Jobs with their GPUs, those without GPUs as 0. */
const SIZES = "max by (job_id) (training:job:gpus) or 0 * max by (job_id) (training:job:pods)";

/** Loads the jobs with the most GPUs, in the order of the list. */
export async function loadJobs(signal: AbortSignal): Promise<JobList> {
  const query = `{__name__=~"training:job:(${LIST_RECORDS})"} and on (job_id) topk(${JOBS_MAX}, ${SIZES})`;
  const [elements, alerts] = await Promise.all([vector(query, signal, { limit: JOBS_MAX * SERIES_PER_JOB }), loadAlerts(signal)]);
  const jobs = sortJobs(toJobs(elements, countAlerts(alerts, "job_id"), Date.now()));
  if (jobs.length < JOBS_MAX) return { jobs };
  const [counted] = await vector(`count(${SIZES})`, signal);
  return { jobs, total: toNumber(counted?.value?.[1] ?? "NaN") };
}

/** Returns the jobs that series of their records describe. A job whose pods name two teams has both. */
export function toJobs(elements: VectorElement[], alertsOf: AlertIndex, nowMs: number): Job[] {
  const jobs = new Map<string, Job>();
  for (const { metric, value } of elements) {
    const id = metric["job_id"] ?? "";
    let job = jobs.get(id);
    if (!job) {
      job = { id, team: "", pods: { wanted: 0, scheduled: 0, ready: 0 }, gpus: { wanted: 0, allocated: 0, busy: 0 }, nodes: 0, alerts: alertsOf(id), phase: "running" };
      jobs.set(id, job);
    }
    const team = metric["team"] ?? "";
    if (team !== "" && !job.team.split(", ").includes(team)) job.team = job.team === "" ? team : `${job.team}, ${team}`;
    setRecord(job, (metric["__name__"] ?? "").replace("training:job:", ""), metric["state"] ?? "", toNumber(value?.[1] ?? "NaN"));
  }
  const all = [...jobs.values()];
  for (const job of all) job.phase = phaseOf(job, nowMs);
  return all;
}

function setRecord(job: Job, record: string, state: string, value: number): void {
  if (record === "pods" && isKey(job.pods, state)) job.pods[state] += value;
  else if (record === "gpus" && isKey(job.gpus, state)) job.gpus[state] += value;
  else if (record === "nodes") job.nodes += value;
  else if (record === "start") job.startMs = Math.min(job.startMs ?? Infinity, value * 1000);
  else if (record === "restarts") job.restarts = (job.restarts ?? 0) + value;
  else if (record === "power_watts") job.powerWatts = (job.powerWatts ?? 0) + value;
  else if (record === "infiniband_bytes:rate2m") job.infinibandBytes = value;
  else if (record === "utilization") job.utilization = value;
  else if (record === "tensor_active") job.tensorActive = value;
}

function isKey<T extends object>(counts: T, key: string): key is Extract<keyof T, string> {
  return Object.hasOwn(counts, key);
}

/** Returns the state of a job, from its pods and alerts. */
export function phaseOf({ pods: { wanted, scheduled, ready }, alerts, startMs }: Job, nowMs: number): Phase {
  if (alerts.names.includes(HUNG)) return "hung";
  if (scheduled < wanted) return scheduled === 0 ? "waiting" : "partly scheduled";
  if (ready < wanted) return nowMs - (startMs ?? nowMs) < STARTING_MS ? "starting" : "not ready";
  return "running";
}

/** Returns how urgent a job is: 0 for the most urgent. */
export function urgencyOf({ phase, alerts }: Job): number {
  if (phase === "hung") return 0;
  if (alerts.firing > 0) return alerts.isCritical ? 1 : 2;
  return 2 + PHASES.indexOf(phase);
}

/** Sorts jobs: those that need attention first, then those with the most GPUs. */
export function sortJobs(jobs: Job[]): Job[] {
  return jobs.sort((a, b) => urgencyOf(a) - urgencyOf(b) || gpusOf(b) - gpusOf(a) || (a.id < b.id ? -1 : 1));
}

/** Returns the GPUs of a job: those that it wants, or has if it has more or says not what it wants. */
export function gpusOf({ gpus: { wanted, allocated } }: Job): number {
  return Math.max(wanted, allocated);
}
