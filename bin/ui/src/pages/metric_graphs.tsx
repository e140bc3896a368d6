/** Small graphs of a metric: one for each value of a label, such as job or instance. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { request } from "../api/client";
import type { Labels, QueryData } from "../api/types";
import { seriesVariable } from "../app/theme";
import { setParams, useAddress } from "../app/router";
import { toGrid } from "../chart/grid";
import { LineChart } from "../chart/line_chart";
import { bytes, count, plural, short } from "../parts/format";
import { countLabels, metricSelector } from "../parts/labels";
import { useLoad } from "../parts/load";
import { parseDuration } from "../parts/time";
import { QueryLink, Section, Select, Show } from "../parts/view";
import { pointsOf } from "./metric_chart";
import { queryFor } from "./metric_detail";

/** Number of graphs at first, and of those that each click adds. */
const GRAPHS_SHOWN = 12;
/** Maximum number of graphs that load at the same time. */
const LOADS_MAX = 4;
/** Maximum number of lines in a graph. */
const LINES_MAX = 10;
/** Labels that are offered first. */
const USUAL_LABELS = ["job", "instance"];
const RANGES: Array<[string, string]> = [["1h", "1 hour"], ["6h", "6 hours"], ["1d", "1 day"], ["1w", "1 week"]];
const NONE: ReadonlySet<number> = new Set();
const NO_EXEMPLARS: [] = [];

interface Props {
  metric: string;
  type: string;
  unit: string;
  series: Labels[];
}

export function MetricGraphs({ metric, type, unit, series }: Props) {
  const { params } = useAddress();
  const [shown, setShown] = useState(GRAPHS_SHOWN);
  const counts = useMemo(() => countLabels(series), [series]);
  const labels = [...counts.keys()].sort((a, b) => rankOf(a) - rankOf(b) || (a < b ? -1 : 1));
  const chosen = params.get("by") ?? "";
  const label = labels.includes(chosen) ? chosen : (labels.find((name) => USUAL_LABELS.includes(name) && (counts.get(name)?.size ?? 0) > 1) ?? labels[0]);
  const range = RANGES.some(([text]) => text === params.get("range")) ? (params.get("range") ?? "1h") : "1h";
  useEffect(() => setShown(GRAPHS_SHOWN), [label]);
  if (label === undefined) return null;
  const values = [...(counts.get(label) ?? [])].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
  return (
    <Section title="Graphs" note={noteOf(metric, type)}>
      <div class="table-tools">
        <Select label="One graph for each" value={label} options={labels.map((name) => [name, `${name} (${count(counts.get(name)?.size ?? 0)})`])} onChange={(by) => setParams({ by }, true)} />
        <Select label="Range" value={range} options={RANGES} onChange={(next) => setParams({ range: next }, true)} />
      </div>
      <div class="small-graphs">
        {values.slice(0, shown).map(([value, n]) => <SmallGraph key={`${label} ${value} ${range}`} title={value} nSeries={n} expr={exprOf(metric, type, { [label]: value }, n)} range={range} unit={unit} />)}
      </div>
      {values.length > shown && <button type="button" class="quiet" onClick={() => setShown(shown + GRAPHS_SHOWN)}>Show more ({plural(values.length - shown, "graph")} left)</button>}
    </Section>
  );
}

function rankOf(label: string): number {
  const usual = USUAL_LABELS.indexOf(label);
  return usual < 0 ? USUAL_LABELS.length : usual;
}

function isPlain(metric: string, type: string): boolean {
  return queryFor(metric, type) === metricSelector(metric);
}

function noteOf(metric: string, type: string): string {
  if (isPlain(metric, type)) return "Minimum, average and maximum of the series of each value.";
  return queryFor(metric, type).startsWith("histogram_quantile") ? "The 95th percentile of the last five minutes." : "The rate of all series per second, over five minutes.";
}

/** Returns the expression of a graph: what suits the type, or the least, average and greatest value of a gauge. */
export function exprOf(metric: string, type: string, matchers: Labels, nSeries: number): string {
  if (!isPlain(metric, type)) return queryFor(metric, type, matchers);
  const selector = metricSelector(metric, matchers);
  if (nSeries === 1) return selector;
  return ["min", "avg", "max"].map((op) => `label_replace(${op}(${selector}), "value", "${op}", "", "")`).join(" or ");
}

/** Loads its data when it comes into view. */
function SmallGraph({ title, nSeries, expr, range, unit }: { title: string; nSeries: number; expr: string; range: string; unit: string }) {
  const host = useRef<HTMLDivElement>(null);
  const [isSeen, setIsSeen] = useState(false);
  useEffect(() => {
    const observer = new IntersectionObserver((entries) => {
      if (entries.some(({ isIntersecting }) => isIntersecting)) setIsSeen(true);
    });
    if (host.current) observer.observe(host.current);
    return () => observer.disconnect();
  }, []);
  return (
    <div class="card small-graph" ref={host}>
      <h3><QueryLink expr={expr} range={range}><code>{title === "" ? '""' : title}</code></QueryLink> <span class="muted">{plural(nSeries, "series", "series")}</span></h3>
      {isSeen && <Graph expr={expr} range={range} unit={unit} />}
    </div>
  );
}

function Graph({ expr, range, unit }: { expr: string; range: string; unit: string }) {
  const loaded = useLoad(`${range} ${expr}`, (signal) => inTurn(signal, () => load(expr, parseDuration(range) ?? 3_600_000, signal)));
  return (
    <Show loaded={loaded}>
      {(grid) => grid.lines.length === 0 ? <p class="empty">No values in this range.</p> : (
        <>
          <LineChart grid={grid} mode="lines" hidden={NONE} exemplars={NO_EXEMPLARS} format={unit === "bytes" ? bytes : short} label={`Graph of ${plural(grid.lines.length, "series", "series")}`} isSmall onZoom={() => {}} />
          {grid.lines.length > 1 && (
            <p class="chart-note">{grid.lines.map(({ labels, name }, i) => <span key={name} class="legend-entry"><i class="swatch" style={{ background: `var(${seriesVariable(i)})` }} />{labels["value"] ?? name}</span>)}</p>
          )}
        </>
      )}
    </Show>
  );
}

async function load(query: string, rangeMs: number, signal: AbortSignal) {
  const { startMs, toMs, stepMs } = pointsOf(rangeMs, Date.now());
  const params = { query, start: startMs / 1000, end: toMs / 1000, step: stepMs / 1000, limit: LINES_MAX };
  const { data } = await request<QueryData>("query_range", { method: "POST", params, signal });
  return toGrid(data.resultType === "matrix" ? data.result : [], startMs, toMs, stepMs);
}

let nLoading = 0;
const waiting: Array<() => void> = [];

/** Runs `work` when fewer than `LOADS_MAX` others run. */
async function inTurn<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
  if (nLoading >= LOADS_MAX) await new Promise<void>((resolve) => waiting.push(resolve));
  else nLoading += 1;
  try {
    signal.throwIfAborted();
    return await work();
  } finally {
    const next = waiting.shift();
    if (next) next();
    else nLoading -= 1;
  }
}
