/** Estimates what a query would cost before it runs, to warn about a limit that it will hit. */

import { isTenant, request } from "../api/client";
import type { CardinalityReport, NameCount, TsdbStatus } from "../api/types";
import { count } from "../parts/format";
import { labelName, quote } from "../parts/labels";
import { graphSeriesMax } from "./run";
import { type Panel, exprsOf, rangeOf } from "./panel_state";

/** A node of the syntax tree of `parse_query`. */
interface Node {
  type: string;
  name?: string;
  matchers?: Array<{ name: string; type: string; value: string }>;
  [child: string]: unknown;
}

/** A selector of a query, as text, and the largest number of series that it can select. */
export interface Selector {
  text: string;
  seriesMax: number;
  /** True if it selects all of them. */
  isExact: boolean;
}

export interface Known {
  series: Map<string, number>;
  /** True if `series` has all metrics. */
  isComplete: boolean;
  total: number;
  flags: Record<string, string>;
}

const METRICS_MAX = 10_000;
const KNOWN_FOR_MS = 60_000;
/** Maximum number of selectors whose series are counted, and the time of a count. The others select at most all series. */
const COUNTED_MAX = 5;
const COUNT_TIMEOUT = "2s";
let known: { at: number; value: Promise<Known> } | undefined;

/** Returns the number of series per metric, and the flags. Loads them at most once a minute. */
export function loadKnown(): Promise<Known> {
  if (!known || Date.now() - known.at > KNOWN_FOR_MS) {
    const value = load().catch((error: unknown) => {
      known = undefined;
      throw error;
    });
    known = { at: Date.now(), value };
  }
  return known.value;
}

async function load(): Promise<Known> {
  const [status, flags] = await Promise.all([
    request<TsdbStatus>("status/tsdb", { params: { limit: METRICS_MAX } }),
    request<Record<string, string>>("status/flags"),
  ]);
  const counts = status.data.seriesCountByMetricName.map(({ name, value }: NameCount) => [name, value] as const);
  return { series: new Map(counts), isComplete: counts.length < METRICS_MAX, total: status.data.headStats.numSeries, flags: flags.data };
}

/** Returns the selectors in a syntax tree. */
export function selectorsOf(tree: unknown, known: Known, found: Selector[] = []): Selector[] {
  if (Array.isArray(tree)) {
    for (const item of tree) selectorsOf(item, known, found);
  } else if (tree !== null && typeof tree === "object") {
    const node = tree as Node;
    if (node.type === "vectorSelector" || node.type === "matrixSelector") found.push(selectorOf(node.matchers ?? [], known));
    for (const child of Object.values(node)) selectorsOf(child, known, found);
  }
  return found;
}

function selectorOf(matchers: NonNullable<Node["matchers"]>, { series, isComplete, total }: Known): Selector {
  const text = `{${matchers.map(({ name, type, value }) => `${labelName(name)}${type}${quote(value)}`).join(",")}}`;
  const metric = matchers.find(({ name, type }) => name === "__name__" && type === "=")?.value;
  const n = metric === undefined ? undefined : (series.get(metric) ?? (isComplete ? 0 : undefined));
  return { text, seriesMax: n ?? total, isExact: n !== undefined && matchers.length === 1 };
}

/** Returns a warning if a query that reads these selectors may exceed a limit. */
export function warningFor(tree: unknown, selectors: Selector[], panel: Panel, flags: Record<string, string>): string | undefined {
  const nSeries = selectors.reduce((sum, { seriesMax }) => sum + seriesMax, 0);
  const upTo = selectors.every(({ isExact }) => isExact) ? "" : "up to ";
  if (panel.tab === "graph") {
    const range = rangeOf(panel, Date.now());
    const { startMs, endMs, stepMs } = range;
    const points = Math.floor((endMs - startMs) / stepMs) + 1;
    const pointsMax = limit(flags["query.max-points"]);
    if (points > pointsMax && panel.mode !== "points") {
      return `The graph has ${count(points)} points per series; the limit is ${count(pointsMax)} (--query.max-points). Choose a longer step or a shorter range.`;
    }
    const root = tree as Node;
    const shown = Math.floor(graphSeriesMax(range) / Math.max(1, exprsOf(panel).filter((expr) => expr.trim() !== "").length));
    if (root.type === "vectorSelector" && nSeries > shown) {
      return `The query selects ${upTo}${count(nSeries)} series; the graph shows ${count(shown)} of them. Aggregate, or add matchers.`;
    }
    const samplesMax = limit(flags["query.max-samples"]);
    if (nSeries * points > samplesMax && root.type === "vectorSelector") {
      return `The query holds ${upTo}${count(nSeries * points)} samples; the limit is ${count(samplesMax)} (--query.max-samples).`;
    }
  }
  const samplesMax = limit(flags["query.max-samples"]);
  return nSeries > samplesMax
    ? `The query reads ${upTo}${count(nSeries)} series; the limit is ${count(samplesMax)} samples (--query.max-samples).`
    : undefined;
}

/** Returns a limit from the flags. A value of 0 or an unknown flag means no limit. */
function limit(text: string | undefined): number {
  const value = Number(text ?? 0);
  return value > 0 ? value : Infinity;
}

/** Returns a warning for the query of a panel, or undefined. A query that does not parse has none: its run shows the error. */
export async function estimate(panel: Panel, signal: AbortSignal): Promise<string | undefined> {
  if (panel.expr.trim() === "" || isTenant.get()) return undefined;
  const [parsed, stored] = await Promise.all([
    request<unknown>("parse_query", { method: "POST", params: { query: panel.expr }, signal }),
    loadKnown(),
  ]);
  const selectors = selectorsOf(parsed.data, stored);
  // What may exceed no limit at most is not counted.
  if (warningFor(parsed.data, selectors, panel, stored.flags) === undefined) return undefined;
  return warningFor(parsed.data, await counted(selectors, signal), panel, stored.flags);
}

/** Counts the series of selectors. One that takes too long to count keeps its maximum. */
async function counted(selectors: Selector[], signal: AbortSignal): Promise<Selector[]> {
  const texts = new Set(selectors.filter(({ isExact }) => !isExact).map(({ text }) => text));
  const counts = new Map<string, number>();
  await Promise.all(
    [...texts].slice(0, COUNTED_MAX).map(async (text) => {
      const params = { "match[]": text, limit: 1, timeout: COUNT_TIMEOUT };
      const report = await request<CardinalityReport>("status/cardinality", { params, signal }).catch(() => undefined);
      if (report) counts.set(text, report.data.total.series);
    }),
  );
  signal.throwIfAborted();
  return selectors.map((selector) => {
    const n = counts.get(selector.text);
    return n === undefined ? selector : { ...selector, seriesMax: n, isExact: true };
  });
}
