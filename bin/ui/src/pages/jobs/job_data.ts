/** One job at the end of a range: its records, its attempts, and what changed in the range. */

import { request } from "../../api/client";
import type { Labels, MatrixElement, QueryData, VectorElement } from "../../api/types";
import { toNumber } from "../../chart/grid";
import { count, plural } from "../../parts/format";
import { quote } from "../../parts/labels";
import { countAlerts, loadAlerts } from "./alerts";
import { anyOf, named, queryOf } from "./gpus";
import { JOB_RECORDS, type Job, toJobs } from "./list_data";
import type { Steps } from "./range";
import { vector } from "./records";

/** Series of the records of a job that the page reads. */
const SERIES_MAX = 200;
/** Pods, and series of alerts, that changed in a range. */
const CHANGES_MAX = 500;
const ALERTS_MAX = 200;
/** A record that begins so long after the start of a range did not begin before. Records may be a minute late. */
const SLACK_S = 120;
/** Pods that begin or end at one step, up to which each of them is an event of its own. */
const PODS_APART = 4;
const NAMES_SHOWN = 3;

/** A run of a job without a gap: all of its pods are newer than the run before. Times in seconds. */
export interface Attempt {
  startS: number;
  /** The last step at which the attempt existed; undefined if it exists at the end of the range. */
  endS?: number;
}

export interface JobNow {
  /** Undefined if nothing is recorded in the range. */
  job?: Job;
  /** The time of the records: the end of the range, or when the job ended. */
  atMs: number;
  isEnded: boolean;
  attempts: Attempt[];
}

const records = (id: string, names: string) => `{__name__=~"training:job:(${names})", job_id=${quote(id)}}`;

async function matrix(query: string, { startMs, endMs, stepMs }: Steps, limit: number, signal: AbortSignal): Promise<MatrixElement[]> {
  const params = { query, start: startMs / 1000, end: endMs / 1000, step: stepMs / 1000, limit };
  const { data } = await request<QueryData>("query_range", { method: "POST", params, signal });
  return data.resultType === "matrix" ? data.result : [];
}

/** Loads a job at the end of a range, or when it ended before. Alerts are those of now. */
export async function loadJob(id: string, steps: Steps, isNow: boolean, signal: AbortSignal): Promise<JobNow> {
  const at = (timeMs: number) => vector(records(id, JOB_RECORDS), signal, { time: timeMs / 1000, limit: SERIES_MAX });
  const [elements, history, alerts] = await Promise.all([
    at(steps.endMs),
    matrix(records(id, "start|pods|gpus"), steps, SERIES_MAX, signal),
    isNow ? loadAlerts(signal) : [],
  ]);
  const attempts = attemptsOf(history, steps);
  const end = attempts.at(-1)?.endS;
  const isEnded = elements.length === 0;
  const atMs = isEnded && end !== undefined ? end * 1000 : steps.endMs;
  const found = isEnded && end !== undefined ? await at(atMs) : elements;
  const [job] = toJobs(found, countAlerts(isEnded ? [] : alerts, "job_id"), atMs);
  return { job, atMs, isEnded, attempts };
}

/**
 * Returns the attempts of a job, the oldest first. A new one begins after a step without records, or when all pods are newer
 * than the step before: if single pods are replaced, the start of the job may move, but not so far.
 */
export function attemptsOf(history: MatrixElement[], { startMs, endMs, stepMs }: Steps): Attempt[] {
  const stepS = stepMs / 1000;
  const exists = new Set<number>();
  const starts = new Map<number, number>();
  for (const { metric, values = [] } of history) {
    const isStart = metric["__name__"] === "training:job:start";
    for (const [time, text] of values) {
      exists.add(time);
      if (isStart) starts.set(time, Math.min(starts.get(time) ?? Infinity, toNumber(text)));
    }
  }
  const attempts: Attempt[] = [];
  let lastS = -Infinity;
  let lastStartS: number | undefined;
  for (const time of [...exists].sort((a, b) => a - b)) {
    const startS = starts.get(time);
    const hasGap = time - lastS > 1.5 * stepS;
    // A gap of the records in one attempt has the same start on both sides.
    const isSame = startS !== undefined && startS === lastStartS;
    const isNewer = startS !== undefined && startS > lastS - stepS;
    if (attempts.length === 0 || (hasGap && !isSame) || (isNewer && !isSame)) {
      const previous = attempts.at(-1);
      if (previous) previous.endS = lastS;
      attempts.push({ startS: startS ?? time });
    }
    lastS = time;
    lastStartS = startS ?? lastStartS;
  }
  const current = attempts.at(-1);
  if (current && endMs / 1000 - lastS > 1.5 * stepS) current.endS = lastS;
  return attempts.filter(({ endS }) => endS === undefined || endS >= startMs / 1000);
}

/** Something that happened to a job. */
export interface Change {
  timeMs: number;
  kind: "attempt" | "pod" | "alert";
  text: string;
  /** Details in small print. */
  more: string;
  /** A query that shows it. */
  expr: string;
  isBad?: boolean;
}

export interface Changes {
  /** The latest first. */
  changes: Change[];
  /** What is missing, in words, if more pods or alerts changed than the page reads. */
  missing?: string;
}

/** Loads what changed in a range: attempts, pods, and alerts of the job and of its nodes. */
export async function loadChanges(id: string, attempts: Attempt[], nodes: string[], steps: Steps, signal: AbortSignal): Promise<Changes> {
  const { startMs, endMs, stepMs } = steps;
  const [rangeS, stepS] = [(endMs - startMs) / 1000, stepMs / 1000];
  const times = `timestamp(${podSelector(id)})[${rangeS}s:${stepS}s]`;
  const changed = named({
    began: `min_over_time(${times}) > ${startMs / 1000 + stepS + SLACK_S}`,
    ended: `max_over_time(${times}) < ${endMs / 1000 - stepS - SLACK_S}`,
  });
  const [pods, alerts] = await Promise.all([
    vector(changed, signal, { time: endMs / 1000, limit: CHANGES_MAX }),
    matrix(alertQuery(id, nodes), steps, ALERTS_MAX, signal),
  ]);
  const podsOf = (verb: "began" | "ended") => podChanges(id, pods.filter((pod) => queryOf(pod) === verb), verb, stepS);
  const all = [...attempts.flatMap((attempt) => attemptChanges(id, attempt, startMs)), ...podsOf("began"), ...podsOf("ended"), ...alertChanges(alerts, steps)];
  return { changes: all.sort((a, b) => b.timeMs - a.timeMs), missing: missingOf(pods.length, alerts.length) };
}

/** Says which changes are missing after so many pods and series of alerts were read; undefined if none are. */
export function missingOf(nPods: number, nAlerts: number): string | undefined {
  const cut = [nPods >= CHANGES_MAX && `${count(CHANGES_MAX)} begins and ends of pods`, nAlerts >= ALERTS_MAX && `${count(ALERTS_MAX)} alerts`].filter(Boolean);
  return cut.length === 0 ? undefined : `Changes may be missing: the page reads at most ${cut.join(" and ")}. Choose a shorter range.`;
}

const podSelector = (id: string) => `training:pod:info{job_id=${quote(id)}, node!=""}`;

/** Returns the query of the alerts of a job, and of those of its nodes that name no job. */
export function alertQuery(id: string, nodes: string[]): string {
  const ofJob = `ALERTS{alertstate="firing", job_id=${quote(id)}}`;
  if (nodes.length === 0) return ofJob;
  const instances = anyOf(nodes).replace(/^"(.*)"$/s, '"($1)(:[0-9]+)?"');
  return `${ofJob} or ALERTS{alertstate="firing", job_id="", node=~${anyOf(nodes)}} or ALERTS{alertstate="firing", job_id="", node="", instance=~${instances}}`;
}

function attemptChanges(id: string, { startS, endS }: Attempt, startMs: number): Change[] {
  const expr = records(id, "pods");
  const changes: Change[] = [];
  if (startS * 1000 >= startMs) changes.push({ timeMs: startS * 1000, kind: "attempt", text: "Attempt began", more: "", expr });
  if (endS !== undefined) changes.push({ timeMs: endS * 1000, kind: "attempt", text: "Attempt ended", more: `after ${durationText(endS - startS)}`, expr, isBad: true });
  return changes;
}

function durationText(s: number): string {
  return s < 7200 ? plural(Math.max(1, Math.round(s / 60)), "minute") : plural(Math.round(s / 3600), "hour");
}

/** Returns events of pods. Many at one step are one event. */
export function podChanges(id: string, elements: VectorElement[], verb: "began" | "ended", stepS: number): Change[] {
  const byStep = new Map<number, Array<{ timeMs: number; pod: string; node: string }>>();
  for (const { metric, value } of elements) {
    const timeS = toNumber(value?.[1] ?? "NaN");
    const step = Math.floor(timeS / stepS);
    byStep.set(step, [...(byStep.get(step) ?? []), { timeMs: timeS * 1000, pod: metric["pod"] ?? "", node: metric["node"] ?? "" }]);
  }
  const isBad = verb === "ended";
  return [...byStep.values()].flatMap((pods): Change[] => {
    if (pods.length <= PODS_APART) {
      return pods.map(({ timeMs, pod, node }) => ({ timeMs, kind: "pod", text: `Pod ${verb} on ${node}`, more: pod, expr: `training:pod:info{job_id=${quote(id)}, pod=${quote(pod)}}`, isBad }));
    }
    const names = pods.map(({ pod }) => pod).sort();
    const more = `${names.slice(0, NAMES_SHOWN).join(", ")} and ${plural(names.length - NAMES_SHOWN, "other")}`;
    return [{ timeMs: Math.min(...pods.map(({ timeMs }) => timeMs)), kind: "pod", text: `${plural(pods.length, "pod")} ${verb}`, more, expr: podSelector(id), isBad }];
  });
}

/** Labels of an alert that its event does not repeat. */
const HIDDEN: ReadonlySet<string> = new Set(["__name__", "alertname", "alertstate", "job_id", "severity"]);

/** Returns when alerts began and ended to fire. */
export function alertChanges(elements: MatrixElement[], { startMs, endMs, stepMs }: Steps): Change[] {
  return elements.flatMap(({ metric, values = [] }) => {
    const changes: Change[] = [];
    const name = metric["alertname"] ?? "";
    const matchers = [`alertname=${quote(name)}`, ...["job_id", "node", "instance"].flatMap((label) => (metric[label] ? [`${label}=${quote(metric[label])}`] : []))];
    const expr = `ALERTS{${matchers.join(", ")}}`;
    const add = (timeS: number, verb: string, isBad: boolean) => changes.push({ timeMs: timeS * 1000, kind: "alert", text: `${name} ${verb}`, more: labelsText(metric), expr, isBad });
    const gapS = (1.5 * stepMs) / 1000;
    values.forEach(([time], i) => {
      const [before = -Infinity, after = Infinity] = [values[i - 1]?.[0], values[i + 1]?.[0]];
      if (time - before > gapS && time - startMs / 1000 > gapS) add(time, "fires", true);
      if (after - time > gapS && endMs / 1000 - time > gapS) add(time, "ends", false);
    });
    // It fired before the range began, and still does: nothing changed, but it is of interest.
    if (changes.length === 0 && values[0]) add(values[0][0], "fires, and did before", true);
    return changes;
  });
}

function labelsText(labels: Labels): string {
  return Object.entries(labels).filter(([name]) => !HIDDEN.has(name)).map(([name, value]) => `${name}=${value}`).join(", ");
}
