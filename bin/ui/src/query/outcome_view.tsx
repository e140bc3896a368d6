/** The outcome of a run: table, graph or plan, and its cost. */

import { useEffect, useMemo, useState } from "preact/hooks";
import type { MatrixElement } from "../api/types";
import { toHeatMap } from "../chart/buckets";
import { HeatChart } from "../chart/heat_chart";
import { LineChart } from "../chart/line_chart";
import { plural } from "../parts/format";
import { printDuration } from "../parts/time";
import { Cost } from "./cost";
import { ExplainView } from "./explain_view";
import { Legend } from "./legend";
import type { Mode, Panel } from "./panel_state";
import { ResultTable } from "./result_table";
import type { Outcome } from "./run";

interface Props {
  index: number;
  panel: Panel;
  outcome?: Outcome;
  isRunning: boolean;
  onChange: (changes: Partial<Panel>) => void;
}

export function OutcomeView({ index, panel, outcome, isRunning, onChange }: Props) {
  if (!outcome) return isRunning ? <p class="empty" role="status">Running…</p> : null;
  const { answer } = outcome;
  const stats = outcome.kind === "explain" ? outcome.answer.data : outcome.answer.data.stats;
  return (
    <div class={isRunning ? "outcome stale" : "outcome"} aria-busy={isRunning}>
      {outcome.kind === "table" && <ResultTable id={`t${index}`} data={outcome.answer.data} />}
      {outcome.kind === "graph" && <GraphView panel={panel} outcome={outcome} onChange={onChange} />}
      {outcome.kind === "explain" && <ExplainView explained={outcome.answer.data} />}
      <Cost stats={stats} totalSeconds={answer.seconds} size={answer.size} isShared={answer.isShared} />
    </div>
  );
}

/** Maximum number of points that are drawn as bars: each is a shape of its own, and a million of them block the page. */
const BARS_MAX = 100_000;

interface GraphProps {
  panel: Panel;
  outcome: Extract<Outcome, { kind: "graph" }>;
  onChange: (changes: Partial<Panel>) => void;
}

function GraphView({ panel, outcome, onChange }: GraphProps) {
  const { answer, range, grid, exemplars } = outcome;
  const elements = answer.data.resultType === "matrix" ? answer.data.result : [];
  const { startMs, endMs, stepMs } = range;
  const [hidden, setHidden] = useState<ReadonlySet<number>>(new Set());
  const [pointed, setPointed] = useState<number>();
  const names = useMemo(() => elements.map(({ metric }) => JSON.stringify(metric)).join(), [outcome]);
  // The same empty set, or the graph would be drawn twice.
  useEffect(() => setHidden((old) => (old.size === 0 ? old : new Set())), [names]);
  const isHeatMap = panel.mode === "heatmap";
  const heatMap = useMemo(() => (isHeatMap ? toHeatMap(elements, startMs, endMs, stepMs) : undefined), [outcome, isHeatMap]);
  if (elements.length === 0) return <p class="empty">The result is empty: no series matches in this range.</p>;
  const zoom = (fromMs: number, toMs: number) => {
    const rangeMs = Math.max(1000, Math.round((toMs - fromMs) / 1000) * 1000);
    onChange({ rangeMs, endMs: Math.round(toMs / 1000) * 1000 });
  };
  const note = `Step ${printDuration(stepMs)}. Drag to zoom; the browser's back button returns.`;
  const hasGaps = grid.lines.some(({ hasHiddenValues }) => hasHiddenValues);
  const nHistograms = elements.filter(({ histograms }) => histograms).length;
  if (heatMap) return <HeatChart map={heatMap} note={note} onZoom={zoom} />;
  if (grid.lines.length === 0) return <OnlyHistograms elements={elements} onChange={onChange} />;
  const hasTooManyBars = panel.mode === "bars" && grid.lines.length * grid.times.length > BARS_MAX;
  const mode = hasTooManyBars ? "stacked" : (panel.mode as Exclude<Mode, "heatmap">);
  return (
    <>
      <LineChart grid={grid} mode={mode} hidden={hidden} pointed={pointed} exemplars={exemplars} onZoom={zoom} />
      <p class="chart-note">{note}{hasTooManyBars && " There are too many points for bars: they are stacked."}{hasGaps && " NaN and infinite values are gaps."}{nHistograms > 0 && ` Only the heat map shows the native histograms of ${plural(nHistograms, "series", "series")}.`}</p>
      <Legend grid={grid} hidden={hidden} onHide={setHidden} onPoint={setPointed} />
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
