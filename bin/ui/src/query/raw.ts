/** Stored samples as points: the query of a selector's samples, and their graph. */

import { messageOf, request } from "../api/client";
import type { MatrixElement, QueryData } from "../api/types";
import { count } from "../parts/format";
import { printDuration } from "../parts/time";
import { type Tree, isRange, printTree } from "./promql";

/** Maximum number of samples that a graph draws as points. */
const SAMPLES_MAX = 100_000;
/** Maximum number of series in a graph of points. */
const SERIES_MAX = 1000;
/** Maximum number of metrics in it whose series have the same labels. */
const METRICS_MAX = 10;
/** The server's reason for no result without the names of metrics. */
const SAME_LABELS = "vector cannot contain metrics with the same labelset";

/** A query of samples, and the number of series that it may return. */
export interface RawQuery {
  query: string;
  limit: number;
}

/** Returns the query of all samples of a selector in a range before a time. Counts the samples first. Throws if the
 * expression is no selector, or if one of its series has too many samples. */
export async function rawQuery(expr: string, rangeMs: number, endMs: number, signal: AbortSignal): Promise<RawQuery> {
  const parsed = await request<Tree>("parse_query", { method: "POST", params: { query: expr }, signal });
  const tree = withRange(parsed.data, rangeMs);
  if (!tree) throw new Error('Raw samples need a selector, such as up{job="node"}. The value of another expression has no samples.');
  const query = printTree(tree);
  const samples = await samplesOf(tree, endMs, signal);
  if (samples > SAMPLES_MAX) {
    throw new Error(`A series has ${count(samples)} samples in ${printDuration(rangeMs)}; the page draws at most ${count(SAMPLES_MAX)}. Choose a shorter range.`);
  }
  return { query, limit: Math.min(SERIES_MAX, Math.floor(SAMPLES_MAX / Math.max(1, samples))) };
}

/** Returns the number of samples of the series that has the most. */
async function samplesOf(tree: Tree, endMs: number, signal: AbortSignal): Promise<number> {
  const ask = async (query: string) => {
    const params = { query, time: endMs / 1000, limit: METRICS_MAX + 1 };
    const { data } = await request<QueryData>("query", { method: "POST", params, signal });
    return data.resultType === "vector" ? data.result : [];
  };
  const most = async (selector: Tree) => Number((await ask(`max(count_over_time(${printTree(selector)}))`))[0]?.value?.[1] ?? 0);
  try {
    return await most(tree);
  } catch (error) {
    if (tree.type !== "matrixSelector" || !messageOf(error).includes(SAME_LABELS)) throw error;
    // Without their names, series of several metrics have the same labels: each metric is counted alone.
    const names = await ask(`group by (__name__) (last_over_time(${printTree(tree)}))`);
    if (names.length > METRICS_MAX) throw new Error(`The selector matches more than ${METRICS_MAX} metrics. Raw samples need fewer.`, { cause: error });
    const ofMetric = (name = "") => most({ ...tree, matchers: [...tree.matchers, { name: "__name__", type: "=", value: name }] });
    return Math.max(0, ...(await Promise.all(names.map(({ metric }) => ofMetric(metric["__name__"])))));
  }
}

/** Returns a selector of the range, or undefined if the expression is none. */
export function withRange(tree: Tree, rangeMs: number): Tree | undefined {
  if (tree.type === "parenExpr") return withRange(tree.expr, rangeMs);
  const range = { range: Math.max(1, Math.round(rangeMs)), rangeExpr: null };
  if (tree.type === "vectorSelector") return { ...tree, ...range, type: "matrixSelector" };
  return isRange(tree) ? ({ ...tree, ...range } as Tree) : undefined;
}

/** Returns the times of all samples in seconds, ascending. */
export function timesOf(elements: MatrixElement[]): number[] {
  const times = new Set<number>();
  for (const { values = [] } of elements) for (const [time] of values) times.add(time);
  return [...times].sort((a, b) => a - b);
}
