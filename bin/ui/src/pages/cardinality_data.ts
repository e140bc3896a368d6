/** Cardinality of the store: of the whole head from its index, and of a selector or an earlier time by counting. */

import { request } from "../api/client";
import type { NameCount, QueryData, TsdbStatus } from "../api/types";
import { labelName, quote } from "../parts/labels";

/** Rows of each list. */
export const ROWS_MAX = 100;
/** Maximum number of labels whose values are counted for a selector. Each takes one query. */
const LABELS_MAX = 60;
const PARALLEL = 4;

export interface Cardinality {
  series: number;
  metrics: NameCount[];
  /** Values per label. */
  labels: NameCount[];
  /** Memory per label, of the whole head. */
  memory: Map<string, number>;
  pairs: NameCount[];
}

/** Loads the cardinality of the head, or of a selector at a time. */
export async function loadCardinality(selector: string, timeMs: number | undefined, signal: AbortSignal): Promise<Cardinality> {
  const { data } = await request<TsdbStatus>("status/tsdb", { params: { limit: ROWS_MAX }, signal });
  const memory = new Map(data.memoryInBytesByLabelName.map(({ name, value }) => [name, value]));
  if (selector === "" && timeMs === undefined) {
    return {
      series: data.headStats.numSeries,
      metrics: data.seriesCountByMetricName,
      labels: data.labelValueCountByLabelName.filter(({ name }) => name !== "__name__"),
      memory,
      pairs: data.seriesCountByLabelValuePair,
    };
  }
  return { ...(await countSelected(selector === "" ? '{__name__!=""}' : selector, timeMs, signal)), memory };
}

async function countSelected(selector: string, timeMs: number | undefined, signal: AbortSignal) {
  const at = (timeMs ?? Date.now()) / 1000;
  const run = (query: string) => instant(query, at, signal);
  const names = await request<string[]>("labels", { params: { "match[]": selector, start: at - 300, end: at }, signal });
  const labelNames = names.data.filter((name) => name !== "__name__").slice(0, LABELS_MAX);
  const [total, metrics] = await Promise.all([run(`count(${selector})`), run(`topk(${ROWS_MAX}, count by (__name__) (${selector}))`)]);
  const labels = await inParallel(labelNames, async (name) => {
    const [found] = await run(`count(count by (${labelName(name)}) (${withLabel(selector, name)}))`);
    return { name, value: found?.value ?? 0 };
  });
  return { series: total[0]?.value ?? 0, metrics: named(metrics, "__name__"), labels: byCount(labels), pairs: [] };
}

/** Loads the values of a label with the number of their series. */
export async function loadValues(selector: string, label: string, timeMs: number | undefined, signal: AbortSignal): Promise<NameCount[]> {
  const matched = withLabel(selector === "" ? '{__name__!=""}' : selector, label);
  const query = `topk(${ROWS_MAX}, count by (${labelName(label)}) (${matched}))`;
  return named(await instant(query, (timeMs ?? Date.now()) / 1000, signal), label);
}

/** Adds the matcher `label!=""` to a selector. */
export function withLabel(selector: string, label: string): string {
  const matcher = `${labelName(label)}!=${quote("")}`;
  const trimmed = selector.trim();
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

function named(counted: Counted[], label: string): NameCount[] {
  return byCount(counted.map(({ metric, value }) => ({ name: metric[label] ?? "", value })));
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
