/** A small graph of the server's own metrics, not of those that other servers store here. */

import { useMemo } from "preact/hooks";
import { request } from "../api/client";
import type { MatrixElement, QueryData } from "../api/types";
import { seriesVariable } from "../app/theme";
import { toGrid } from "../chart/grid";
import { LineChart } from "../chart/line_chart";
import { metricSelector } from "../parts/labels";
import { useLoad } from "../parts/load";
import { QueryLink, Show } from "../parts/view";
import { loadInstance } from "./own_metrics";

const POINTS = 240;
/** A graph ends at a multiple of this. */
const END_STEP_MS = 15_000;
const REFRESH_MS = 60_000;
const NONE: ReadonlySet<number> = new Set();

/** A name, a metric, and an expression of the metric's selector if the graph does not show the metric itself. */
export type Line = [name: string, metric: string, wrap?: (selector: string) => string];

interface Props {
  /** Each has one series. */
  lines: Line[];
  rangeMs: number;
  endMs?: number;
  /** Formats values; numbers with suffixes by default. */
  format?: (value: number, nDigits?: number) => string;
  /** Shown below the graph. */
  note?: string;
  onZoom: (startMs: number, endMs: number) => void;
}

export function MetricChart({ lines, rangeMs, endMs, ...shown }: Props) {
  const key = JSON.stringify([lines, rangeMs, endMs]);
  const loaded = useLoad(key, (signal) => load(lines, rangeMs, endMs ?? Date.now(), signal), REFRESH_MS);
  return (
    <div class="card">
      <Show loaded={loaded}>
        {({ toMs, ...data }) => <Chart {...data} endMs={toMs} {...shown} />}
      </Show>
    </div>
  );
}

async function load(lines: Props["lines"], rangeMs: number, nowMs: number, signal: AbortSignal) {
  const { startMs, toMs, stepMs } = pointsOf(rangeMs, nowMs);
  const params = { start: startMs / 1000, end: toMs / 1000, step: stepMs / 1000 };
  const instance = await loadInstance(signal);
  const exprs = instance === undefined ? [] : lines.map((line) => exprOf(line, instance));
  const elements = await Promise.all(
    exprs.map(async ([name, query]): Promise<MatrixElement> => {
      const { data } = await request<QueryData>("query_range", { method: "POST", params: { query, ...params, limit: 1 }, signal });
      return { values: [], ...(data.resultType === "matrix" && data.result[0]), metric: { __name__: name } };
    }),
  );
  return { exprs, elements, startMs, toMs, stepMs };
}

/** Returns the times of a graph. Its end does not depend on its step. Otherwise, the graph of a day would lack up to six
 * minutes, and that of a new server would be empty. */
export function pointsOf(rangeMs: number, nowMs: number): { startMs: number; toMs: number; stepMs: number } {
  const toMs = Math.floor(nowMs / END_STEP_MS) * END_STEP_MS;
  return { startMs: toMs - rangeMs, toMs, stepMs: Math.max(END_STEP_MS, Math.ceil(rangeMs / POINTS / 1000) * 1000) };
}

/** Returns the name and the expression of a line. */
export function exprOf([name, metric, wrap = (selector) => selector]: Line, instance: string): [name: string, expr: string] {
  return [name, wrap(metricSelector(metric, { job: "varve", instance }))];
}

interface ChartProps extends Pick<Props, "format" | "note" | "onZoom"> {
  exprs: Array<[name: string, expr: string]>;
  elements: MatrixElement[];
  startMs: number;
  endMs: number;
  stepMs: number;
}

function Chart({ exprs, elements, startMs, endMs, stepMs, format, note, onZoom }: ChartProps) {
  const grid = useMemo(() => toGrid(elements, startMs, endMs, stepMs), [elements]);
  if (elements.every(({ values }) => !values?.length)) {
    return <p class="empty">No values in this range. The server stores its own metrics every --self-scrape-interval, and a rate needs two samples.</p>;
  }
  return (
    <>
      <LineChart grid={grid} mode="lines" hidden={NONE} exemplars={NO_EXEMPLARS} format={format} isSmall onZoom={onZoom} />
      <p class="chart-note">
        {exprs.map(([name, expr], i) => (
          <span key={name} class="legend-entry"><i class="swatch" style={{ background: `var(${seriesVariable(i)})` }} /><QueryLink expr={expr}>{name}</QueryLink></span>
        ))}
        {note}
      </p>
    </>
  );
}

const NO_EXEMPLARS: [] = [];
