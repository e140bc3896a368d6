/** The outcome of a run: tables, a graph or plans, and their cost. */

import type { ComponentChildren } from "preact";
import { lazy } from "../app/lazy";
import { useEffect, useMemo, useState } from "preact/hooks";
import type { Labels, MatrixElement, QueryData, QueryStats } from "../api/types";
import type { Answer } from "../api/client";
import { ResizeHandle } from "../chart/height";
import { LineChart } from "../chart/line_chart";
import { count, plural } from "../parts/format";
import { printDuration } from "../parts/time";
import { Cost } from "./cost";
import { Legend } from "./legend";
import { type Mode, type Panel, exprsOf, letterOf, withExpr } from "./panel_state";
import { ResultTable } from "./result_table";
import type { Outcome, Part } from "./run";

const DidYouMean = lazy((extras) => extras.DidYouMean);
const ExplainView = lazy((extras) => extras.ExplainView);
const HeatChart = lazy((extras) => extras.HeatChart);
const LabelTable = lazy((extras) => extras.LabelTable);

interface Props {
  index: number;
  panel: Panel;
  outcome?: Outcome;
  isRunning: boolean;
  onChange: (changes: Partial<Panel>) => void;
}

export function OutcomeView({ index, panel, outcome, isRunning, onChange }: Props) {
  if (!outcome) return isRunning ? <p class="empty" role="status">Running…</p> : null;
  return (
    <div class={isRunning ? "outcome stale" : "outcome"} aria-busy={isRunning}>
      {outcome.kind !== "explain" && <Names outcome={outcome} panel={panel} onChange={onChange} />}
      {outcome.kind === "table" && <Parts parts={outcome.parts}>{({ row, answer }) => <ResultTable id={row === 0 ? `t${index}` : `t${index}-${row}`} data={answer.data} />}</Parts>}
      {outcome.kind === "graph" && <GraphView panel={panel} outcome={outcome} onChange={onChange} />}
      {outcome.kind === "explain" && <Parts parts={outcome.parts}>{({ answer }) => <ExplainView explained={answer.data} />}</Parts>}
      {outcome.parts.map(({ row, answer }) => answer && <Cost key={row} letter={outcome.parts.length > 1 ? letterOf(row) : undefined} stats={statsOf(answer.data)} totalSeconds={answer.seconds} size={answer.size} isShared={answer.isShared} />)}
    </div>
  );
}

/** The labels of the result. If it is empty, names that do not exist. */
function Names({ outcome, panel, onChange }: { outcome: Exclude<Outcome, { kind: "explain" }>; panel: Panel; onChange: Props["onChange"] }) {
  const [isOpen, setIsOpen] = useState(false);
  const sets = useMemo(() => outcome.parts.flatMap(({ answer }) => (answer ? setsOf(answer.data) : [])), [outcome]);
  const exprs = exprsOf(panel);
  // Not of a node of the tree, which is no query that the user wrote.
  const isEmpty = ({ row, expr, answer }: Part<QueryData>) => answer && expr === exprs[row] && answer.data.resultType !== "scalar" && answer.data.resultType !== "string" && answer.data.result.length === 0;
  const replace = (row: number) => (expr: string) => {
    const { expr: first, more } = withExpr(panel, row, expr);
    onChange({ expr: first, more });
  };
  return (
    <>
      {outcome.parts.filter(isEmpty).map(({ row, expr }) => <DidYouMean key={row} expr={expr} onReplace={replace(row)} />)}
      {sets.length > 1 && (
        <details class="label-stats" onToggle={(event) => setIsOpen(event.currentTarget.open)}>
          <summary>Labels of the result</summary>
          {isOpen && <LabelTable sets={sets} />}
        </details>
      )}
    </>
  );
}

function setsOf(data: QueryData): Labels[] {
  if (data.resultType === "scalar" || data.resultType === "string") return [];
  return (data.result as Array<{ metric: Labels }>).map(({ metric }) => metric);
}

/** The result of each expression, under its letter if there are several. */
function Parts<T>({ parts, children }: { parts: Array<Part<T>>; children: (part: Part<T> & { answer: Answer<T> }) => ComponentChildren }) {
  return (
    <>
      {parts.map(({ answer, ...part }) => answer && (
        <div key={part.row} class="part">
          {parts.length > 1 && <h2><span class="tag">{letterOf(part.row)}</span> <code>{part.expr}</code></h2>}
          {children({ ...part, answer })}
        </div>
      ))}
    </>
  );
}

function statsOf(data: QueryStats | { stats?: QueryStats }): QueryStats | undefined {
  return "timings" in data ? data : data.stats;
}

/** Maximum number of points that are drawn as bars: each is a shape of its own, and a million of them block the page. */
const BARS_MAX = 100_000;

interface GraphProps {
  panel: Panel;
  outcome: Extract<Outcome, { kind: "graph" }>;
  onChange: (changes: Partial<Panel>) => void;
}

function GraphView({ panel, outcome, onChange }: GraphProps) {
  const { elements, range, grid, exemplars, isRaw } = outcome;
  const { startMs, endMs, stepMs } = range;
  const [hidden, setHidden] = useState<ReadonlySet<number>>(new Set());
  const [pointed, setPointed] = useState<number>();
  const [near, setNear] = useState<number>();
  const span = useMemo<[number, number] | undefined>(() => (isRaw ? [startMs / 1000, endMs / 1000] : undefined), [outcome]);
  const names = useMemo(() => elements.map(({ metric }) => JSON.stringify(metric)).join(), [outcome]);
  // The same empty set, or the graph would be drawn twice.
  useEffect(() => setHidden((old) => (old.size === 0 ? old : new Set())), [names]);
  const isHeatMap = panel.mode === "heatmap" && !isRaw;
  if (elements.length === 0) return <p class="empty">The result is empty: no series matches in this range.</p>;
  const zoom = (fromMs: number, toMs: number) => {
    const rangeMs = Math.max(1000, Math.round((toMs - fromMs) / 1000) * 1000);
    onChange({ rangeMs, endMs: Math.round(toMs / 1000) * 1000 });
  };
  const zoomNote = "Drag to zoom; the browser's back button returns. Click to keep the values at the pointer.";
  const note = isRaw ? `${count(grid.lines.reduce((sum, { nValues }) => sum + nValues, 0))} stored samples. ${zoomNote}` : `Step ${printDuration(stepMs)}. ${zoomNote}`;
  const hasGaps = grid.lines.some(({ hasHiddenValues }) => hasHiddenValues);
  const nHistograms = elements.filter(({ histograms }) => histograms).length;
  if (isHeatMap) return <HeatChart elements={elements} range={range} note={note} onZoom={zoom} />;
  if (grid.lines.length === 0) return <OnlyHistograms elements={elements} onChange={onChange} />;
  const hasTooManyBars = panel.mode === "bars" && grid.lines.length * grid.times.length > BARS_MAX;
  const mode = isRaw ? "points" : hasTooManyBars ? "stacked" : (panel.mode as Exclude<Mode, "heatmap">);
  return (
    <>
      <LineChart grid={grid} mode={mode} hidden={hidden} pointed={pointed} onNear={setNear} limits={{ min: panel.yMin, max: panel.yMax }} span={span} exemplars={exemplars} onZoom={zoom} />
      <ResizeHandle />
      <p class="chart-note">{note}{hasTooManyBars && " There are too many points for bars: they are stacked."}{hasGaps && " NaN and infinite values are gaps."}{nHistograms > 0 && ` Only the heat map shows the native histograms of ${plural(nHistograms, "series", "series")}.`}</p>
      <Legend grid={grid} hidden={hidden} onHide={setHidden} onPoint={setPointed} near={near} />
    </>
  );
}

function OnlyHistograms({ elements, onChange }: { elements: MatrixElement[]; onChange: GraphProps["onChange"] }) {
  return (
    <p class="empty">
      The result has {elements.length} series of native histograms, which have no single value.{" "}
      <button type="button" onClick={() => onChange({ mode: "heatmap" })}>Show the heat map</button>
    </p>
  );
}
