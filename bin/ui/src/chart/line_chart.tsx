/** Lines, stacked areas or bars of a range query, with exemplars and the values at the pointer. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import type { ExemplarSeries } from "../api/types";
import { seriesColor, token } from "../app/theme";
import { bytes, short } from "../parts/format";
import { printLabels } from "../parts/labels";
import { dateTime } from "../parts/time";
import { boundsOf, multiplesOf, textsOf } from "./axis";
import { type Grid, stack, stepOf, toNumber } from "./grid";
import { createPainter } from "./painter";
import { Plot } from "./plot";

interface Props {
  grid: Grid;
  /** `log` draws lines on a logarithmic axis, without values of 0 and below. */
  mode: "lines" | "log" | "stacked" | "bars";
  /** Lines that are not drawn. */
  hidden: ReadonlySet<number>;
  /** The line that the legend points at. */
  pointed?: number;
  exemplars: ExemplarSeries[];
  format?: (value: number, nDigits?: number) => string;
  isSmall?: boolean;
  onZoom: (startMs: number, endMs: number) => void;
}

interface Tip {
  left: number;
  top: number;
  isRight: boolean;
  title: string;
  color?: string;
  lines: string[];
}

const HEIGHT = 300;
const HEIGHT_SMALL = 180;
/** Distances between the marks of an axis of bytes. */
const BINARY_INCREMENTS = Array.from({ length: 50 }, (_, i) => 2 ** i);
/** Pixels within which the pointer finds a line or an exemplar. */
const REACH = 40;
const EXEMPLAR_REACH = 8;

interface Mark {
  x: number;
  y: number;
  labels: Record<string, string>;
  series: Record<string, string>;
}

export function LineChart({ grid, mode, hidden, pointed, exemplars, format = short, isSmall, onZoom }: Props) {
  const [tip, setTip] = useState<Tip>();
  const nearest = useRef<number | undefined>(undefined);
  const overlay = useRef<HTMLCanvasElement>(null);
  const shown = useMemo(() => grid.lines.map((_, i) => i).filter((i) => !hidden.has(i)), [grid, hidden]);
  const data = useMemo<uPlot.AlignedData>(() => {
    const lines = shown.map((i) => grid.lines[i]?.values ?? []);
    // A stack draws its top line first, so that lower lines are drawn over it.
    const drawn = mode === "lines" ? lines : mode === "log" ? lines.map(positive) : stack(lines).reverse();
    return [grid.times, ...drawn];
  }, [grid, shown, mode]);
  const isStack = mode === "stacked" || mode === "bars";
  const order = useMemo(() => (isStack ? [...shown].reverse() : shown), [shown, isStack]);
  const painter = useMemo(createPainter, []);
  useEffect(() => painter.stop, []);
  const series = useMemo(() => order.map((i) => seriesOptions(i, mode)), [order, mode]);
  const scales = useMemo<uPlot.Scales>(() => ({ y: { range: yRange(mode), ...(mode === "log" && { distr: 3 }) }, ...(mode === "bars" && { x: { time: false, range: barsRange } }) }), [mode]);
  const yAxis = useMemo<Partial<uPlot.Axis>>(
    () => ({
      values: (_, splits) => textsOf(splits, format),
      ...(mode !== "log" && { splits: (_self, _axis, min, max, increment) => multiplesOf(min, max, increment) }),
      ...(format === bytes && { incrs: BINARY_INCREMENTS }),
    }),
    [format, mode],
  );
  const marks = useMemo(() => exemplars.flatMap(marksOf), [exemplars]);
  const highlight = (plot: uPlot) => drawHighlight(plot, overlay.current, data, order, pointed ?? nearest.current);
  const point = (plot: uPlot, index: number | undefined) => {
    const found = index === undefined ? undefined : findNearest(plot, data, index);
    const mark = index === undefined ? undefined : findMark(plot, marks);
    nearest.current = found === undefined ? undefined : order[found];
    drawHighlight(plot, overlay.current, data, order, nearest.current);
    setTip(mark ? exemplarTip(plot, mark) : found === undefined || index === undefined ? undefined : lineTip(plot, found, index));
  };
  const lineTip = (plot: uPlot, found: number, index: number): Tip | undefined => {
    const i = order[found] ?? 0;
    const line = grid.lines[i];
    const value = line?.values[index];
    if (!line || value == null) return undefined;
    const labels = Object.entries(line.labels).map(([name, text]) => `${name}: ${text}`);
    return { ...placeOf(plot), title: `${dateTime((grid.times[index] ?? 0) * 1000)}   ${value}`, color: seriesColor(i), lines: labels };
  };
  return (
    <div class="chart">
      <Plot
        data={data}
        series={series}
        scales={scales}
        yAxis={yAxis}
        height={isSmall ? HEIGHT_SMALL : HEIGHT}
        label={`Graph of ${grid.lines.length} series; the table below lists them`}
        onZoom={onZoom}
        draw={(plot) => {
          painter.stop();
          if (isStack) drawMarks(plot, marks);
          else painter.paint(plot, data, order.map(seriesColor), () => drawMarks(plot, marks));
          highlight(plot);
        }}
        onPoint={point}
      />
      <canvas class="chart-overlay" ref={overlay} aria-hidden="true" />
      {tip && (
        <div class={tip.isRight ? "tip left" : "tip"} style={{ left: `${tip.left}px`, top: `${tip.top}px` }}>
          <b>{tip.color && <i class="swatch" style={{ background: tip.color }} />}{tip.title}</b>
          {tip.lines.map((line) => <span key={line}>{line}</span>)}
        </div>
      )}
    </div>
  );
}

function seriesOptions(index: number, mode: Props["mode"]): uPlot.Series {
  const points = { show: false };
  // The painter draws lines.
  if (mode === "lines" || mode === "log") return { paths: () => null, points };
  const color = () => seriesColor(index);
  const filled = { stroke: color, fill: color, spanGaps: false, points };
  return mode === "bars" ? { ...filled, width: 0, paths: uPlot.paths.bars?.({ size: [0.85, 40] }) } : { ...filled, width: 1 };
}

/** The bars of the first and the last time are as wide as the others. */
function barsRange({ data }: uPlot, min: number, max: number): [number, number] {
  const half = stepOf(data[0]) / 2;
  return [min - half, max + half];
}

function yRange(mode: Props["mode"]): uPlot.Range.Function {
  return (_self, min, max) => {
    if (mode === "log") return min == null || max == null ? [1, 10] : uPlot.rangeLog(min, max, 10, false);
    if (min == null || max == null) return [0, 1];
    return mode === "lines" ? boundsOf(min, max, 0.08) : boundsOf(Math.min(0, min), Math.max(0, max), 0.05);
  };
}

function positive(values: Array<number | null>): Array<number | null> {
  return values.map((value) => (value !== null && value > 0 ? value : null));
}

/** Returns the drawn line nearest to the pointer at a time, or undefined if none is near. */
function findNearest(plot: uPlot, data: uPlot.AlignedData, index: number): number | undefined {
  const top = plot.cursor.top ?? -1;
  let best: number | undefined;
  let least = REACH;
  for (let i = 1; i < data.length; i++) {
    const value = data[i]?.[index];
    if (value == null) continue;
    const distance = Math.abs(plot.valToPos(value, "y") - top);
    if (distance < least) [best, least] = [i - 1, distance];
  }
  return best;
}

/** Draws one line thicker on a canvas above the chart: drawing all lines again would take too long. */
function drawHighlight(plot: uPlot, canvas: HTMLCanvasElement | null, data: uPlot.AlignedData, order: number[], line?: number): void {
  const context = canvas?.getContext("2d");
  if (!canvas || !context) return;
  const scale = devicePixelRatio;
  const [width, height] = [Math.round(plot.width * scale), Math.round(plot.height * scale)];
  if (canvas.width !== width || canvas.height !== height) {
    [canvas.width, canvas.height] = [width, height];
    [canvas.style.width, canvas.style.height] = [`${plot.width}px`, `${plot.height}px`];
  }
  context.clearRect(0, 0, width, height);
  const values = line === undefined ? undefined : data[order.indexOf(line) + 1];
  if (!values || line === undefined || values === data[0]) return;
  context.strokeStyle = seriesColor(line);
  context.lineWidth = 3 * scale;
  context.lineJoin = "round";
  context.beginPath();
  let isPenDown = false;
  data[0].forEach((time, i) => {
    const value = values[i];
    if (value != null) {
      const [x, y] = [plot.valToPos(time, "x", true), plot.valToPos(value, "y", true)];
      if (isPenDown) context.lineTo(x, y);
      else context.moveTo(x, y);
    }
    isPenDown = value != null;
  });
  context.stroke();
}

function marksOf({ seriesLabels, exemplars }: ExemplarSeries): Mark[] {
  return exemplars
    .map(({ labels, value, timestamp }) => ({ x: timestamp, y: toNumber(value), labels, series: seriesLabels }))
    .filter(({ y }) => Number.isFinite(y));
}

function drawMarks(plot: uPlot, marks: Mark[]): void {
  const { ctx } = plot;
  const size = 4 * devicePixelRatio;
  ctx.save();
  ctx.fillStyle = token("--accent");
  ctx.strokeStyle = token("--surface");
  for (const { x, y } of marks) {
    const [left, top] = [plot.valToPos(x, "x", true), clampY(plot, y)];
    ctx.beginPath();
    ctx.moveTo(left, top - size);
    ctx.lineTo(left + size, top);
    ctx.lineTo(left, top + size);
    ctx.lineTo(left - size, top);
    ctx.closePath();
    ctx.fill();
    ctx.stroke();
  }
  ctx.restore();
}

/** Returns the vertical position of an exemplar, at most at the edge of the chart: a graph of a rate has another unit. */
function clampY(plot: uPlot, value: number): number {
  const { top, height } = plot.bbox;
  return Math.min(top + height, Math.max(top, plot.valToPos(value, "y", true)));
}

function findMark(plot: uPlot, marks: Mark[]): Mark | undefined {
  const [left, top] = [plot.cursor.left ?? -1, plot.cursor.top ?? -1];
  const offset = plot.bbox.top / devicePixelRatio;
  return marks.find(
    ({ x, y }) =>
      Math.abs(plot.valToPos(x, "x") - left) < EXEMPLAR_REACH &&
      Math.abs(clampY(plot, y) / devicePixelRatio - offset - top) < EXEMPLAR_REACH,
  );
}

function exemplarTip(plot: uPlot, { x, y, labels, series }: Mark): Tip {
  const lines = [...Object.entries(labels).map(([name, text]) => `${name}: ${text}`), printLabels(series)];
  return { ...placeOf(plot), title: `Exemplar ${y} at ${dateTime(x * 1000, true)}`, lines };
}

function placeOf(plot: uPlot): { left: number; top: number; isRight: boolean } {
  const scale = devicePixelRatio;
  const left = (plot.cursor.left ?? 0) + plot.bbox.left / scale;
  return { left, top: (plot.cursor.top ?? 0) + plot.bbox.top / scale, isRight: left > plot.width * 0.6 };
}
