/** Estimates what a query would cost before it runs, to warn about a limit that it will hit. */

import { isTenant, request } from "../api/client";
import type { NameCount, TsdbStatus } from "../api/types";
import { count } from "../parts/format";
import { graphSeriesMax } from "./run";
import { type Panel, rangeOf } from "./panel_state";

/** A node of the syntax tree of `parse_query`. */
interface Node {
  type: string;
  name?: string;
  matchers?: Array<{ name: string; type: string; value: string }>;
  [child: string]: unknown;
}

export interface Known {
  series: Map<string, number>;
  total: number;
  flags: Record<string, string>;
}

const METRICS_MAX = 10_000;
const KNOWN_FOR_MS = 60_000;
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
  return { series: new Map(counts), total: status.data.headStats.numSeries, flags: flags.data };
}

/** Returns the metric of each selector in a syntax tree, and whether the selector has other matchers. */
export function selectorsOf(tree: unknown, found: Array<{ metric?: string; hasMatchers: boolean }> = []): typeof found {
  if (Array.isArray(tree)) {
    for (const item of tree) selectorsOf(item, found);
  } else if (tree !== null && typeof tree === "object") {
    const node = tree as Node;
    if (node.type === "vectorSelector" || node.type === "matrixSelector") {
      const matchers = node.matchers ?? [];
      const metric = matchers.find(({ name, type }) => name === "__name__" && type === "=")?.value;
      found.push({ metric, hasMatchers: matchers.some(({ name }) => name !== "__name__") });
    }
    for (const child of Object.values(node)) selectorsOf(child, found);
  }
  return found;
}

/** Returns a warning if a query may exceed a limit. Counts all series of a metric, although matchers may select fewer. */
export function warningFor(tree: unknown, panel: Panel, { series, total, flags }: Known): string | undefined {
  const selectors = selectorsOf(tree);
  const nSeries = selectors.reduce((sum, { metric }) => sum + (metric === undefined ? total : (series.get(metric) ?? 0)), 0);
  const isBound = selectors.some(({ hasMatchers }) => hasMatchers);
  const upTo = isBound ? "up to " : "";
  if (panel.tab === "graph") {
    const range = rangeOf(panel, Date.now());
    const { startMs, endMs, stepMs } = range;
    const points = Math.floor((endMs - startMs) / stepMs) + 1;
    const pointsMax = limit(flags["query.max-points"]);
    if (points > pointsMax) {
      return `The graph has ${count(points)} points per series; the limit is ${count(pointsMax)} (--query.max-points). Choose a longer step or a shorter range.`;
    }
    const root = tree as Node;
    const shown = graphSeriesMax(range);
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
  return warningFor(parsed.data, panel, stored);
}
