/** The GPUs of a job: the order of the worst, values over time, and ranks that are slower than the others. */

import { request } from "../../api/client";
import type { MatrixElement, QueryData, VectorElement } from "../../api/types";
import { stepOf, toNumber } from "../../chart/grid";
import { group, percent } from "../../parts/format";
import { metricSelector, quote } from "../../parts/labels";
import type { Steps } from "./range";
import { vector } from "./records";

/** Rows of a page of the heat map. */
export const ROWS = 64;
/** Nodes and GPUs of a job that the page ranks. */
export const NODES_MAX = 2000;
export const GPUS_MAX = 10_000;
/** Stragglers that the page lists. */
export const STRAGGLERS_MAX = 500;
/** Points from which the mean of a GPU is computed. */
const RANK_POINTS = 24;
/** The group of training:rank:straggler runs this often per minute. */
const EVALUATIONS_PER_MINUTE = 2;

/** A field of dcgm-exporter. */
export interface Signal {
  id: string;
  title: string;
  metric: string;
  /** What is bad, and comes first. */
  worst: "low" | "high";
  /** The bounds of the values, if the field has some. */
  bounds?: [number, number];
  format: (value: number) => string;
}

const unit = (name: string) => (value: number) => `${group(Math.round(value))} ${name}`;

export const SIGNALS: readonly Signal[] = [
  { id: "power", title: "Power", metric: "DCGM_FI_DEV_POWER_USAGE", worst: "low", format: unit("W") },
  { id: "utilization", title: "Utilization", metric: "DCGM_FI_DEV_GPU_UTIL", worst: "low", bounds: [0, 100], format: (value) => percent(value / 100) },
  { id: "tensor_active", title: "Tensor activity", metric: "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", worst: "low", bounds: [0, 1], format: percent },
  { id: "sm_clock", title: "SM clock", metric: "DCGM_FI_DEV_SM_CLOCK", worst: "low", format: unit("MHz") },
  { id: "temperature", title: "Temperature", metric: "DCGM_FI_DEV_GPU_TEMP", worst: "high", format: unit("°C") },
];

/** Returns a signal by its id, else the first: the power of a GPU shows most faults. */
export function signalOf(id: string): Signal {
  return SIGNALS.find((signal) => signal.id === id) ?? SIGNALS[0]!;
}

export interface Gpu {
  node: string;
  gpu: string;
}

export interface RankedGpu extends Gpu {
  mean: number;
  /** Signals in which the GPU was slower than the others of its job. */
  slow: string[];
}

/** A rank that was slow in the range: a GPU, a port, or a node if both are empty. */
export interface Straggler {
  node: string;
  gpu: string;
  device: string;
  signal: string;
  /** Mean share of the median of the job. */
  share: number;
  minutes: number;
  lastMs: number;
}

export interface Ranking {
  steps: Steps;
  /** The worst first: stragglers, then the others by their mean. */
  gpus: RankedGpu[];
  stragglers: Straggler[];
  nodes: string[];
}

const keyOf = ({ node, gpu }: Gpu) => `${node} ${gpu}`;

/** Ranks the GPUs that a job had in a range. */
export async function loadRanking(job: string, signal: Signal, steps: Steps, abort: AbortSignal): Promise<Ranking> {
  const [nodes, stragglers] = await Promise.all([loadNodes(job, steps, abort), loadStragglers(job, steps, abort)]);
  if (nodes.length === 0) return { steps, gpus: [], stragglers, nodes };
  const means = await vector(rankQuery(job, signal, nodes, steps), abort, { time: steps.endMs / 1000, limit: GPUS_MAX });
  const gpus = means.map(({ metric, value }) => ({ node: metric["Hostname"] ?? "", gpu: metric["gpu"] ?? "", mean: toNumber(value?.[1] ?? "NaN") }));
  return { steps, gpus: sortGpus(gpus, stragglers, signal), stragglers, nodes };
}

/** Returns the nodes that had GPUs of a job in a range. Reads the index, and no samples. */
async function loadNodes(job: string, { startMs, endMs }: Steps, signal: AbortSignal): Promise<string[]> {
  const params = { "match[]": metricSelector("training:gpu:info", { job_id: job }), start: startMs / 1000, end: endMs / 1000, limit: NODES_MAX };
  return (await request<string[]>("label/node/values", { params, signal })).data;
}

/** Loads the ranks that were slow in a range, those that were slow for the longest time. */
async function loadStragglers(job: string, { startMs, endMs, stepMs }: Steps, signal: AbortSignal): Promise<Straggler[]> {
  const range = `${(endMs - startMs) / 1000}s`;
  const selector = metricSelector("training:rank:straggler", { job_id: job });
  const longest = `topk(${STRAGGLERS_MAX}, count_over_time(${selector}[${range}]))`;
  const ofLongest = `and on (node, gpu, device, signal) ${longest}`;
  // One request: each value has the name of what it says.
  const queries = {
    evaluations: longest,
    share: `avg_over_time(${selector}[${range}]) ${ofLongest}`,
    last: `max_over_time(timestamp(${selector})[${range}:${stepMs / 1000}s]) ${ofLongest}`,
  };
  return toStragglers(await vector(named(queries), signal, { time: endMs / 1000, limit: 3 * STRAGGLERS_MAX }));
}

/** Label that names a query among several. */
const NAME = "value_of";

/** Returns one query for several, whose results have their names in a label. */
export function named(queries: Record<string, string>): string {
  return Object.entries(queries).map(([name, query]) => `label_replace(${query}, "${NAME}", "${name}", "", "")`).join(" or ");
}

/** Returns the name of the query that an element is from. */
export function queryOf({ metric }: VectorElement): string {
  return metric[NAME] ?? "";
}

function toStragglers(elements: VectorElement[]): Straggler[] {
  const ranks = new Map<string, Straggler>();
  const counted = (element: VectorElement) => queryOf(element) === "evaluations";
  for (const element of [...elements.filter(counted), ...elements.filter((one) => !counted(one))]) {
    const { node = "", gpu = "", device = "", signal = "" } = element.metric;
    const key = JSON.stringify([node, gpu, device, signal]);
    const value = toNumber(element.value?.[1] ?? "NaN");
    const rank = ranks.get(key);
    if (counted(element)) ranks.set(key, { node, gpu, device, signal, share: NaN, minutes: value / EVALUATIONS_PER_MINUTE, lastMs: 0 });
    else if (rank && queryOf(element) === "share") rank.share = value;
    else if (rank) rank.lastMs = value * 1000;
  }
  return [...ranks.values()];
}

/** Sorts GPUs: stragglers first, then the others by their mean. */
export function sortGpus(gpus: Array<Gpu & { mean: number }>, stragglers: Straggler[], { worst }: Signal): RankedGpu[] {
  const slow = new Map<string, string[]>();
  for (const straggler of stragglers) {
    if (straggler.gpu !== "") slow.set(keyOf(straggler), [...(slow.get(keyOf(straggler)) ?? []), straggler.signal]);
  }
  const sign = worst === "low" ? 1 : -1;
  return gpus
    .map((gpu) => ({ ...gpu, slow: slow.get(keyOf(gpu)) ?? [] }))
    .sort((a, b) => Number(b.slow.length > 0) - Number(a.slow.length > 0) || sign * (a.mean - b.mean) || (keyOf(a) < keyOf(b) ? -1 : 1));
}

/** Returns a regular expression, quoted, that matches these texts. */
export function anyOf(texts: string[]): string {
  return quote(texts.map((text) => text.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&")).join("|"));
}

/** GPUs of a job as dcgm-exporter names them, at the times at which they belong to the job. */
const owned = (job: string, matchers = "") => `label_replace(training:gpu:info{job_id=${quote(job)}${matchers}}, "Hostname", "$1", "node", "(.+)")`;

/** Returns the query of the mean of each GPU over a range. */
export function rankQuery(job: string, { metric, worst }: Signal, nodes: string[], { startMs, endMs }: Steps): string {
  const rangeS = (endMs - startMs) / 1000;
  const stepS = Math.max(1, Math.round(rangeS / RANK_POINTS));
  const values = `max by (Hostname, gpu) (${metric}{Hostname=~${anyOf(nodes)}}) and on (Hostname, gpu) ${owned(job)}`;
  return `${worst === "low" ? "bottomk" : "topk"}(${GPUS_MAX}, avg_over_time((${values})[${rangeS}s:${stepS}s]))`;
}

/** Returns the query of the values of some GPUs: one selector for each number of a GPU, so that it reads no others. */
export function rowsQuery(job: string, { metric }: Signal, gpus: Gpu[]): string {
  const byNumber = new Map<string, string[]>();
  for (const { node, gpu } of gpus) byNumber.set(gpu, [...(byNumber.get(gpu) ?? []), node]);
  const selectors = [...byNumber].map(([gpu, nodes]) => `${metric}{gpu=${quote(gpu)}, Hostname=~${anyOf(nodes)}}`);
  return `max by (Hostname, gpu) (${selectors.join(" or ")}) and on (Hostname, gpu) ${owned(job, ofNodes(gpus))}`;
}

const ofNodes = (gpus: Gpu[]) => `, node=~${anyOf([...new Set(gpus.map(({ node }) => node))])}`;

/** Values of the rows of a page. */
export interface HeatRows {
  /** Seconds since the epoch. */
  times: number[];
  rows: Array<{ values: Array<number | null>; isSlow: boolean[] }>;
  min: number;
  max: number;
}

/** Loads the values of GPUs, and when they were stragglers. */
export async function loadRows(job: string, signal: Signal, gpus: RankedGpu[], steps: Steps, abort: AbortSignal): Promise<HeatRows> {
  if (gpus.length === 0) return { times: [], rows: [], min: NaN, max: NaN };
  const { startMs, endMs, stepMs } = steps;
  const matrix = async (query: string): Promise<MatrixElement[]> => {
    const params = { query, start: startMs / 1000, end: endMs / 1000, step: stepMs / 1000 };
    const { data } = await request<QueryData>("query_range", { method: "POST", params, signal: abort });
    return data.resultType === "matrix" ? data.result : [];
  };
  const slow = gpus.filter((gpu) => gpu.slow.length > 0);
  const [values, stragglers] = await Promise.all([
    matrix(rowsQuery(job, signal, gpus)),
    slow.length === 0 ? [] : matrix(`max by (node, gpu) (training:rank:straggler{job_id=${quote(job)}, gpu!=""${ofNodes(slow)}})`),
  ]);
  return toRows(gpus, values, stragglers, steps);
}

/** Puts values on the times of a heat map. */
export function toRows(gpus: Gpu[], values: MatrixElement[], stragglers: MatrixElement[], { startMs, endMs, stepMs }: Steps): HeatRows {
  const nTimes = Math.floor((endMs - startMs) / stepMs) + 1;
  const times = Array.from({ length: nTimes }, (_, i) => (startMs + i * stepMs) / 1000);
  const rows = gpus.map(() => ({ values: Array.from<number | null>({ length: nTimes }).fill(null), isSlow: Array.from<boolean>({ length: nTimes }).fill(false) }));
  const indexes = new Map(gpus.map((gpu, i) => [keyOf(gpu), i]));
  const rowOf = (node = "", gpu = "") => rows[indexes.get(keyOf({ node, gpu })) ?? -1];
  const timeOf = (time: number) => Math.round((time - (times[0] ?? 0)) / stepOf(times));
  let [min, max] = [Infinity, -Infinity];
  for (const { metric, values: samples = [] } of values) {
    const row = rowOf(metric["Hostname"], metric["gpu"]);
    if (!row) continue;
    for (const [time, text] of samples) {
      const value = toNumber(text);
      if (!Number.isFinite(value)) continue;
      row.values[timeOf(time)] = value;
      min = Math.min(min, value);
      max = Math.max(max, value);
    }
  }
  for (const { metric, values: samples = [] } of stragglers) {
    const row = rowOf(metric["node"], metric["gpu"]);
    for (const [time] of row ? samples : []) row!.isSlow[timeOf(time)] = true;
  }
  return { times, rows, min, max };
}

/** Least distance of the bounds of the colors, as a share of the largest value: noise does not look like a fault. */
const SPAN_MIN = 0.2;

/** Returns the values of the best and of the worst color. */
export function colorBounds({ worst, bounds }: Signal, { min, max }: Pick<HeatRows, "min" | "max">): [best: number, worst: number] {
  const low = bounds ? bounds[0] : Math.min(min, max - SPAN_MIN * Math.abs(max));
  const high = bounds ? bounds[1] : max;
  return worst === "low" ? [high, low] : [low, high];
}
