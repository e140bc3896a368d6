/** Cardinality: of now with bytes in memory and on disk, and of an earlier time by counting with queries. */

import { request } from "../api/client";
import type { CardinalityReport, Cost, NameCount, QueryData } from "../api/types";
import { labelName, quote } from "../parts/labels";

/** Rows of each list. */
const ROWS_MAX = 1000;
/** Maximum number of labels whose values are counted at another time. Each takes one query. */
const LABELS_MAX = 60;
const PARALLEL = 4;

/** The key by which the largest entries are chosen. */
export type SortKey = "series" | "memory" | "disk";

export interface CountRow extends NameCount {
  /** Undefined for another time than now. */
  cost?: Cost;
  lastUsedMs?: number | null;
}

export interface Cardinality {
  total: CountRow;
  metrics: CountRow[];
  nMetrics: number;
  /** Values per label. */
  labels: CountRow[];
  nLabels: number;
  pairs: CountRow[];
  nPairs: number;
  /** Values of the label in focus, with their series. */
  values: CountRow[];
  nValues: number;
}

/** Loads the cardinality of the series that are in memory or on disk now. */
export async function loadCardinality(selector: string, focus: string, sort: SortKey, signal: AbortSignal): Promise<Cardinality> {
  const params = { "match[]": selector, focus, sort, limit: ROWS_MAX };
  const { data } = await request<CardinalityReport>("status/cardinality", { params, signal });
  const row = (name: string, cost: Cost): CountRow => ({ name, value: cost.series, cost });
  return {
    total: row("", data.total),
    metrics: data.metrics.map(({ name, cost, lastUsedMs }) => ({ ...row(name, cost), lastUsedMs })),
    nMetrics: data.metricCount,
    labels: data.labels.map(({ name, values, cost }) => ({ name, value: values, cost })),
    nLabels: data.labelCount,
    pairs: data.pairs.map(({ name, value, cost }) => row(`${name}=${value}`, cost)),
    nPairs: data.labels.reduce((sum, { values }) => sum + values, data.metricCount),
    values: data.values.map(({ value, cost }) => row(value, cost)),
    nValues: data.valueCount,
  };
}

/** Counts the series with a sample in the five minutes before a time. */
export async function countAt(selector: string, focus: string, timeMs: number, signal: AbortSignal): Promise<Cardinality> {
  const at = timeMs / 1000;
  const matched = selector === "" ? '{__name__!=""}' : selector;
  const run = (query: string) => instant(query, at, signal);
  const largest = async (label: string) => {
    const query = `topk(${ROWS_MAX}, count by (${labelName(label)}) (${withLabel(matched, label)}))`;
    return byCount((await run(query)).map(({ metric, value }) => ({ name: metric[label] ?? "", value })));
  };
  const countValues = async (name: string) => (await run(`count(count by (${labelName(name)}) (${withLabel(matched, name)}))`))[0]?.value ?? 0;
  const names = await request<string[]>("labels", { params: { "match[]": matched, start: at - 300, end: at }, signal });
  const labelNames = names.data.filter((name) => name !== "__name__").slice(0, LABELS_MAX);
  const [total, metrics, values] = await Promise.all([run(`count(${matched})`), largest("__name__"), focus === "" ? [] : largest(focus)]);
  const [nMetrics, nValues] = await Promise.all([countValues("__name__"), focus === "" ? 0 : countValues(focus)]);
  const labels = await inParallel(labelNames, async (name) => ({ name, value: await countValues(name) }));
  return {
    total: { name: "", value: total[0]?.value ?? 0 },
    metrics,
    nMetrics,
    labels: byCount(labels),
    nLabels: names.data.length - 1,
    pairs: [],
    nPairs: 0,
    values,
    nValues,
  };
}

/** Adds the matcher `label!=""` to a selector. A selector that begins with a metric name allows no other matcher of it. */
export function withLabel(selector: string, label: string): string {
  const matcher = `${labelName(label)}!=${quote("")}`;
  const trimmed = selector.trim();
  if (label === "__name__" && !trimmed.startsWith("{")) return trimmed;
  if (!trimmed.endsWith("}")) return `${trimmed}{${matcher}}`;
  const body = trimmed.slice(0, -1).trimEnd();
  return body.endsWith("{") || body.endsWith(",") ? `${body}${matcher}}` : `${body},${matcher}}`;
}

interface Counted {
  metric: Record<string, string>;
  value: number;
}

async function instant(query: string, time: number, signal: AbortSignal): Promise<Counted[]> {
  const { data } = await request<QueryData>("query", { method: "POST", params: { query, time }, signal });
  if (data.resultType !== "vector") return [];
  return data.result.map(({ metric, value }) => ({ metric, value: Number(value?.[1] ?? 0) }));
}

function byCount(list: NameCount[]): NameCount[] {
  return list.sort((a, b) => b.value - a.value || (a.name < b.name ? -1 : 1));
}

/** Maps items with a few requests at a time, so that a page does not fill the queue of queries. */
async function inParallel<T, U>(items: T[], map: (item: T) => Promise<U>): Promise<U[]> {
  const results: U[] = [];
  let next = 0;
  const work = async () => {
    for (let i = next++; i < items.length; i = next++) results[i] = await map(items[i] as T);
  };
  await Promise.all(Array.from({ length: PARALLEL }, work));
  return results;
}
