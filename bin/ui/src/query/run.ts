/** Runs the expressions of a panel: instant, range, samples or explain. */

import { type Answer, type Params, isAbort, request } from "../api/client";
import { loadExtras } from "../app/lazy";
import { type Grid, type MatrixElement, toGridInSlices, toRawGrid } from "../chart/grid";
import type { ExemplarSeries, Explained, QueryData } from "../api/types";
import { count } from "../parts/format";
import { nextTask } from "../parts/task";
import { type Panel, type Range, exprsOf, letterOf, rangeOf } from "./panel_state";

/** What became of one expression of a panel. */
export interface Part<T> {
  /** Position of the expression in the panel. */
  row: number;
  expr: string;
  answer?: Answer<T>;
  error?: unknown;
}

export type Outcome =
  | { kind: "table"; parts: Array<Part<QueryData>>; timeMs: number }
  | { kind: "graph"; parts: Array<Part<QueryData>>; elements: MatrixElement[]; range: Range; grid: Grid; exemplars: ExemplarSeries[]; isRaw: boolean }
  | { kind: "explain"; parts: Array<Part<Explained>> };

/** Maximum number of series in a graph of few points. The server truncates the result and returns a warning. */
const GRAPH_SERIES_MAX = 2000;
/** Maximum number of points of a graph. With more, parsing the response would block the page for seconds. */
const GRAPH_POINTS_MAX = 1_000_000;
/** Maximum number of elements in a table. */
export const TABLE_ELEMENTS_MAX = 10_000;
/** Maximum number of cells of a graph of samples, whose series have different times. */
const RAW_CELLS_MAX = 4_000_000;

/** The server's warning that it returned as much as the page asked for, and that there is more. */
const TRUNCATED = "results truncated due to limit";
/** The server's reason for no graph of a range selector. */
const RANGE_VECTOR = 'invalid expression type "range vector" for range query';

/** Returns an answer whose warning of a truncated result names the page's limit. */
export function withLimit<T extends { warnings: string[] }>(answer: T, seriesMax: number): T {
  return { ...answer, warnings: answer.warnings.map((text) => (text === TRUNCATED ? limitWarning(seriesMax) : text)) };
}

function limitWarning(seriesMax: number): string {
  return `The page shows only ${count(seriesMax)} series of the result.`;
}

/** Returns the maximum number of series in a graph of a range. */
export function graphSeriesMax({ startMs, endMs, stepMs }: Range): number {
  const points = Math.floor((endMs - startMs) / stepMs) + 1;
  return Math.max(1, Math.min(GRAPH_SERIES_MAX, Math.floor(GRAPH_POINTS_MAX / points)));
}

/** Sends the queries and returns their outcome. Aborting `signal` cancels them on the server. Throws if the only
 * expression fails; of several, each has its own error. */
export async function runPanel(panel: Panel, signal: AbortSignal): Promise<Outcome> {
  const post = <T>(path: string, params: Params) => request<T>(path, { method: "POST", params, signal, isUse: true });
  if (panel.tab === "table") {
    const timeMs = panel.endMs ?? Date.now();
    const parts = await runAll(panel, signal, async (query) => {
      return withLimit(await post<QueryData>("query", { query, time: timeMs / 1000, stats: "all", limit: TABLE_ELEMENTS_MAX }), TABLE_ELEMENTS_MAX);
    });
    return { kind: "table", parts, timeMs };
  }
  const range = rangeOf(panel, Date.now());
  const times = { start: range.startMs / 1000, end: range.endMs / 1000, step: range.stepMs / 1000 };
  if (panel.tab === "explain") return { kind: "explain", parts: await runAll(panel, signal, (query) => post<Explained>("query_explain", { query, ...times })) };
  if (panel.mode === "points") return runRaw(panel, range, signal);
  const limit = Math.max(1, Math.floor(graphSeriesMax(range) / exprsOf(panel).length));
  const exemplarsOf = async (query: string) => (await post<ExemplarSeries[]>("query_exemplars", { query, start: times.start, end: times.end })).data;
  try {
    const [parts, exemplars] = await Promise.all([
      runAll(panel, signal, async (query) => withLimit(await post<QueryData>("query_range", { query, ...times, stats: "true", limit }), limit)),
      panel.hasExemplars ? Promise.all(exprsOf(panel).filter(isExpr).map(exemplarsOf)) : [],
    ]);
    // Parsing a large response, putting it on a grid and showing it are separate tasks, so that the page responds between them.
    await nextTask(signal);
    const elements = elementsOf(parts);
    const grid = await toGridInSlices(elements, range.startMs, range.endMs, range.stepMs, signal);
    await nextTask(signal);
    return { kind: "graph", parts, elements, range, grid, exemplars: exemplars.flat(), isRaw: false };
  } catch (error) {
    const isSelector = error instanceof Error && error.message.includes(RANGE_VECTOR);
    if (!isSelector) throw error;
    return runRaw(panel, range, signal);
  }
}

const isExpr = (expr: string) => expr.trim() !== "";

async function runAll<T>(panel: Panel, signal: AbortSignal, run: (expr: string) => Promise<Answer<T>>): Promise<Array<Part<T>>> {
  const exprs = exprsOf(panel).map((expr, row) => ({ row, expr })).filter(({ expr }) => isExpr(expr));
  return Promise.all(
    exprs.map(async ({ row, expr }) => {
      try {
        return { row, expr, answer: await run(expr) };
      } catch (error) {
        if (exprs.length === 1 || isAbort(error) || signal.aborted) throw error;
        return { row, expr, error };
      }
    }),
  );
}

/** Returns the series of all results, with the letters of their expressions if there are several. */
function elementsOf(parts: Array<Part<QueryData>>): MatrixElement[] {
  return parts.flatMap(({ row, answer }) => {
    const elements = answer?.data.resultType === "matrix" ? answer.data.result : [];
    return parts.length === 1 ? elements : elements.map((element) => ({ ...element, letter: letterOf(row) }));
  });
}

/** Runs selectors for their samples. */
async function runRaw(panel: Panel, { endMs, startMs, stepMs }: Range, signal: AbortSignal): Promise<Outcome> {
  const { rawQuery, timesOf } = await loadExtras();
  // The last sample may be younger than the last step.
  const toMs = panel.endMs ?? Math.max(endMs, Date.now());
  const parts = await runAll(panel, signal, async (expr) => {
    const { query, limit } = await rawQuery(expr, panel.rangeMs, toMs, signal);
    const params = { query, time: toMs / 1000, stats: "true", limit };
    return withLimit(await request<QueryData>("query", { method: "POST", params, signal, isUse: true }), limit);
  });
  await nextTask(signal);
  const all = elementsOf(parts);
  const times = timesOf(all);
  const elements = all.slice(0, Math.max(1, Math.floor(RAW_CELLS_MAX / Math.max(1, times.length))));
  const [first] = parts;
  if (elements.length < all.length && first?.answer) first.answer = { ...first.answer, warnings: [...first.answer.warnings, limitWarning(elements.length)] };
  const range = { startMs: startMs + toMs - endMs, endMs: toMs, stepMs };
  return { kind: "graph", parts, elements, range, grid: toRawGrid(elements, times), exemplars: [], isRaw: true };
}

/** Returns the formatted text of an expression. */
export async function formatQuery(query: string): Promise<string> {
  if (!isExpr(query)) return query;
  return (await request<string>("format_query", { method: "POST", params: { query } })).data;
}
