/** Panels of the query page, as the address holds them. Names and values are Prometheus', so its links work here. */

import { parseShort } from "../parts/format";
import { parseDateTime, parseDuration, printDuration } from "../parts/time";

export type Tab = "table" | "graph" | "explain";
/** `points` shows the samples as they were stored. */
export type Mode = "lines" | "log" | "stacked" | "bars" | "heatmap" | "points";
export type Density = "low" | "medium" | "high";

export interface Panel {
  expr: string;
  /** Further expressions of the same panel. */
  more: string[];
  tab: Tab;
  mode: Mode;
  /** Limits of the axis of values. */
  yMin?: number;
  yMax?: number;
  rangeMs: number;
  /** End of the range, or time of the table; undefined is now. */
  endMs?: number;
  /** Number of points of a graph, unless the step is fixed. */
  density: Density;
  /** Fixed resolution step. */
  stepMs?: number;
  hasExemplars: boolean;
  /** True if the tree of the query is shown. */
  hasTree: boolean;
}

export const RANGE_DEFAULT_MS = 3_600_000;
/** Maximum number of expressions in a panel. */
export const EXPRS_MAX = 10;
/** Maximum number of points of a graph at each density. */
export const POINTS: Record<Density, number> = { low: 100, medium: 250, high: 1000 };

export function newPanel(expr = ""): Panel {
  return { expr, more: [], tab: "table", mode: "lines", rangeMs: RANGE_DEFAULT_MS, density: "medium", hasExemplars: false, hasTree: false };
}

/** Returns all expressions of a panel. */
export function exprsOf({ expr, more }: Panel): string[] {
  return [expr, ...more];
}

/** Returns the panel with another expression in a row. */
export function withExpr(panel: Panel, row: number, expr: string): Panel {
  const exprs = exprsOf(panel).map((old, i) => (i === row ? expr : old));
  return { ...panel, expr: exprs[0] ?? "", more: exprs.slice(1) };
}

/** Returns the letter that tells the expressions of a panel apart. */
export function letterOf(row: number): string {
  return String.fromCharCode(65 + row);
}

const TABS: Record<string, Tab> = { "0": "graph", "1": "table", graph: "graph", table: "table", explain: "explain" };
const MODES: readonly Mode[] = ["lines", "log", "stacked", "bars", "heatmap", "points"];
const [SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS] = [1000, 60_000, 3_600_000, 86_400_000];
/** Steps that are easy to read and divide a larger unit. */
const STEPS_MS = [
  ...[1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 45].map((n) => n * SECOND_MS),
  ...[1, 1.5, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 45].map((n) => n * MINUTE_MS),
  ...[1, 1.5, 2, 3, 4, 6, 8, 12].map((n) => n * HOUR_MS),
];

/** Reads all panels of an address; there is at least one. */
export function parsePanels(params: URLSearchParams): Panel[] {
  const indexes = new Set<number>();
  for (const name of params.keys()) {
    const index = /^g(\d{1,3})\./.exec(name)?.[1];
    if (index !== undefined) indexes.add(Number(index));
  }
  const panels = [...indexes].sort((a, b) => a - b).map((index) => parsePanel((name) => params.get(`g${index}.${name}`)));
  return panels.length > 0 ? panels : [newPanel()];
}

function parsePanel(get: (name: string) => string | null): Panel {
  const panel = newPanel(get("expr") ?? "");
  panel.tab = TABS[get("tab") ?? ""] ?? panel.tab;
  for (let i = 2; i <= EXPRS_MAX; i++) panel.more.push(get(`expr${i}`) ?? "");
  panel.more = panel.more.filter((expr) => expr.trim() !== "");
  const mode = get("display_mode") as Mode | null;
  panel.mode = mode && MODES.includes(mode) ? mode : get("stacked") === "1" ? "stacked" : "lines";
  panel.rangeMs = positive(parseDuration(get("range_input") ?? "")) ?? RANGE_DEFAULT_MS;
  panel.endMs = readTime(get(panel.tab === "table" ? "moment_input" : "end_input") ?? get("end_input") ?? get("moment_input"));
  const density = get("res_density") as Density | null;
  if (density && density in POINTS) panel.density = density;
  const step = get("res_step") ?? get("step_input");
  const isAuto = get("res_type") === "auto";
  panel.stepMs = isAuto ? undefined : positive(parseDuration(step ?? ""));
  panel.hasExemplars = get("show_exemplars") === "1";
  panel.hasTree = get("show_tree") === "1";
  const [yMin, yMax] = [parseShort(get("y_min") ?? ""), parseShort(get("y_max") ?? "")];
  if (yMin !== undefined && yMax !== undefined && yMin >= yMax) return panel;
  if (yMin !== undefined) panel.yMin = yMin;
  if (yMax !== undefined) panel.yMax = yMax;
  return panel;
}

function positive(ms: number | undefined): number | undefined {
  return ms !== undefined && ms > 0 ? ms : undefined;
}

/** Reads a time in Prometheus' form, which is UTC, or RFC 3339. */
function readTime(text: string | null): number | undefined {
  if (!text) return undefined;
  const ms = parseDateTime(text, true) ?? Date.parse(text);
  return Number.isNaN(ms) ? undefined : ms;
}

function printTime(ms: number): string {
  return new Date(ms).toISOString().replace("T", " ").replace(/(\.000)?Z$/, "");
}

/** Prints panels as parameters of the address. Omits defaults, except for the tab. */
export function printPanels(panels: Panel[]): URLSearchParams {
  const params = new URLSearchParams();
  panels.forEach((panel, i) => {
    const set = (name: string, value: string | false | undefined) => {
      if (value) params.set(`g${i}.${name}`, value);
    };
    params.set(`g${i}.expr`, panel.expr);
    panel.more.forEach((expr, row) => set(`expr${row + 2}`, expr));
    set("tab", panel.tab);
    set("display_mode", panel.mode !== "lines" && panel.mode);
    set("range_input", panel.rangeMs !== RANGE_DEFAULT_MS && printDuration(panel.rangeMs));
    set(panel.tab === "table" ? "moment_input" : "end_input", panel.endMs !== undefined && printTime(panel.endMs));
    set("res_density", panel.density !== "medium" && panel.density);
    set("res_type", panel.stepMs !== undefined && "fixed");
    set("res_step", panel.stepMs !== undefined && printDuration(panel.stepMs));
    set("show_exemplars", panel.hasExemplars && "1");
    set("show_tree", panel.hasTree && "1");
    set("y_min", panel.yMin !== undefined && String(panel.yMin));
    set("y_max", panel.yMax !== undefined && String(panel.yMax));
  });
  return params;
}

export interface Range {
  startMs: number;
  endMs: number;
  stepMs: number;
}

/** Returns the least round step that is not below `least`: whole days above the largest one. */
function roundStep(leastMs: number): number {
  return STEPS_MS.find((stepMs) => stepMs >= leastMs) ?? Math.ceil(leastMs / DAY_MS) * DAY_MS;
}

/** Returns the time range of a graph and its step. A range that ends now ends at a multiple of the step, so that points
 * stay where they are when it is refreshed, and identical requests share a result. */
export function rangeOf(panel: Panel, nowMs: number): Range {
  const stepMs = panel.stepMs ?? roundStep(panel.rangeMs / POINTS[panel.density]);
  const endMs = panel.endMs ?? Math.floor(nowMs / stepMs) * stepMs;
  return { startMs: endMs - panel.rangeMs, endMs, stepMs };
}
