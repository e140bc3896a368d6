/** A small graph of the server's own metrics. */

import { useMemo } from "preact/hooks";
import { request } from "../api/client";
import type { MatrixElement, QueryData } from "../api/types";
import { seriesColor } from "../app/theme";
import { toGrid } from "../chart/grid";
import { LineChart } from "../chart/line_chart";
import { useLoad } from "../parts/load";
import { QueryLink, Show } from "../parts/view";

const POINTS = 240;
const REFRESH_MS = 60_000;
const NONE: ReadonlySet<number> = new Set();

interface Props {
  /** Names and expressions, each with one series. */
  lines: Array<[name: string, expr: string]>;
  rangeMs: number;
  endMs?: number;
  /** Formats values; numbers with suffixes by default. */
  format?: (value: number) => string;
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
        {({ elements, startMs, toMs, stepMs }) => <Chart lines={lines} elements={elements} startMs={startMs} endMs={toMs} stepMs={stepMs} {...shown} />}
      </Show>
    </div>
  );
}

async function load(lines: Props["lines"], rangeMs: number, nowMs: number, signal: AbortSignal) {
  const stepMs = Math.max(15_000, Math.ceil(rangeMs / POINTS / 1000) * 1000);
  const toMs = Math.floor(nowMs / stepMs) * stepMs;
  const startMs = toMs - rangeMs;
  const params = { start: startMs / 1000, end: toMs / 1000, step: stepMs / 1000 };
  const all = await Promise.all(
    lines.map(async ([name, query]): Promise<MatrixElement[]> => {
      const { data } = await request<QueryData>("query_range", { method: "POST", params: { query, ...params, limit: 1 }, signal });
      return data.resultType === "matrix" && data.result[0] ? [{ ...data.result[0], metric: { __name__: name } }] : [{ metric: { __name__: name }, values: [] }];
    }),
  );
  return { elements: all.flat(), startMs, toMs, stepMs };
}

interface ChartProps extends Pick<Props, "lines" | "format" | "note" | "onZoom"> {
  elements: MatrixElement[];
  startMs: number;
  endMs: number;
  stepMs: number;
}

function Chart({ lines, elements, startMs, endMs, stepMs, format, note, onZoom }: ChartProps) {
  const grid = useMemo(() => toGrid(elements, startMs, endMs, stepMs), [elements]);
  if (elements.every(({ values }) => !values?.length)) {
    return <p class="empty">No samples in this range. The server stores its own metrics at the interval of --self-scrape-interval.</p>;
  }
  return (
    <>
      <LineChart grid={grid} mode="lines" hidden={NONE} exemplars={NO_EXEMPLARS} format={format} isSmall onZoom={onZoom} />
      <p class="chart-note">
        {lines.map(([name, expr], i) => (
          <span key={name} class="legend-entry"><i class="swatch" style={{ background: seriesColor(i) }} /><QueryLink expr={expr}>{name}</QueryLink></span>
        ))}
        {note}
      </p>
    </>
  );
}

const NO_EXEMPLARS: [] = [];
