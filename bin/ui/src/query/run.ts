/** Runs the query of a panel: instant, range or explain. */

import { type Answer, type Params, request } from "../api/client";
import { type Grid, toGridInSlices } from "../chart/grid";
import type { ExemplarSeries, Explained, QueryData } from "../api/types";
import { count } from "../parts/format";
import { nextTask } from "../parts/task";
import { type Panel, type Range, rangeOf } from "./panel_state";

export type Outcome =
  | { kind: "table"; answer: Answer<QueryData>; timeMs: number }
  | { kind: "graph"; answer: Answer<QueryData>; range: Range; grid: Grid; exemplars: ExemplarSeries[] }
  | { kind: "explain"; answer: Answer<Explained> };

/** Maximum number of series in a graph of few points. The server truncates the result and returns a warning. */
const GRAPH_SERIES_MAX = 2000;
/** Maximum number of points of a graph. With more, parsing the response would block the page for seconds. */
const GRAPH_POINTS_MAX = 1_000_000;
/** Maximum number of elements in a table. */
export const TABLE_ELEMENTS_MAX = 10_000;

/** The server's warning that it returned as much as the page asked for, and that there is more. */
const TRUNCATED = "results truncated due to limit";

/** Returns an answer whose warning of a truncated result names the page's limit. */
export function withLimit<T extends { warnings: string[] }>(answer: T, seriesMax: number): T {
  return { ...answer, warnings: answer.warnings.map((text) => (text === TRUNCATED ? `The page shows only ${count(seriesMax)} series of the result.` : text)) };
}

/** Returns the maximum number of series in a graph of a range. */
export function graphSeriesMax({ startMs, endMs, stepMs }: Range): number {
  const points = Math.floor((endMs - startMs) / stepMs) + 1;
  return Math.max(1, Math.min(GRAPH_SERIES_MAX, Math.floor(GRAPH_POINTS_MAX / points)));
}

/** Sends the query and returns its outcome. Aborting `signal` cancels it on the server. */
export async function runPanel(panel: Panel, signal: AbortSignal): Promise<Outcome> {
  const query = panel.expr;
  const post = <T>(path: string, params: Params) => request<T>(path, { method: "POST", params: { query, ...params }, signal, isUse: true });
  if (panel.tab === "table") {
    const timeMs = panel.endMs ?? Date.now();
    const answer = await post<QueryData>("query", { time: timeMs / 1000, stats: "all", limit: TABLE_ELEMENTS_MAX });
    return { kind: "table", answer: withLimit(answer, TABLE_ELEMENTS_MAX), timeMs };
  }
  const range = rangeOf(panel, Date.now());
  const times = { start: range.startMs / 1000, end: range.endMs / 1000, step: range.stepMs / 1000 };
  if (panel.tab === "explain") return { kind: "explain", answer: await post<Explained>("query_explain", times) };
  const limit = graphSeriesMax(range);
  const [answer, exemplars] = await Promise.all([
    post<QueryData>("query_range", { ...times, stats: "true", limit }),
    panel.hasExemplars ? post<ExemplarSeries[]>("query_exemplars", { start: times.start, end: times.end }) : undefined,
  ]);
  // Parsing a large response, putting it on a grid and showing it are separate tasks, so that the page responds between them.
  await nextTask(signal);
  const elements = answer.data.resultType === "matrix" ? answer.data.result : [];
  const grid = await toGridInSlices(elements, range.startMs, range.endMs, range.stepMs, signal);
  await nextTask(signal);
  return { kind: "graph", answer: withLimit(answer, limit), range, grid, exemplars: exemplars?.data ?? [] };
}

/** Returns the formatted text of an expression. */
export async function formatQuery(query: string): Promise<string> {
  return (await request<string>("format_query", { method: "POST", params: { query } })).data;
}
