/** Lines, stacked areas, bars or points, with exemplars and the values at the pointer. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import type { ExemplarSeries } from "../api/types";
import { seriesColor, token } from "../app/theme";
import { bytes, short } from "../parts/format";
import { printLabels } from "../parts/labels";
import { useStore } from "../parts/store";
import { dateTime } from "../parts/time";
import { boundsOf, multiplesOf, textsOf } from "./axis";
import { type Grid, type Line, stack, stepOf, toNumber } from "./grid";
import { graphHeight } from "./height";
import { createPainter } from "./painter";
import { Plot } from "./plot";
import { TIP_DIGITS_MAX, TIP_SERIES_MAX, type Tip, TipBox } from "./tip";

/** Bounds of the axis of values; without one, the values determine it. */
export interface Limits {
  min?: number;
  max?: number;
}

interface Props {
  grid: Grid;
  /** `log` draws lines on a logarithmic axis, without values of 0 and below; `points` draws samples without lines. */
  mode: "lines" | "log" | "stacked" | "bars" | "points";
  /** Lines that are not drawn. */
  hidden: ReadonlySet<number>;
  /** The line that the legend points at. */
  pointed?: number;
  /** The line nearest to the pointer changed. */
  onNear?: (line: number | undefined) => void;
  limits?: Limits;
  /** The time axis in seconds; the times of the grid by default. */
  span?: [start: number, end: number];
  exemplars: ExemplarSeries[];
  format?: (value: number, nDigits?: number) => string;
  isSmall?: boolean;
  /** The name of the graph for those who do not see it. */
  label?: string;
  onZoom: (startMs: number, endMs: number) => void;
}

const HEIGHT_SMALL = 180;
/** Distances between the marks of an axis of bytes. */
const BINARY_INCREMENTS = Array.from({ length: 50 }, (_, i) => 2 ** i);
/** Pixels within which the pointer finds a line, a point of a time beside it, or an exemplar. */
const REACH = 40;
const POINT_REACH = 10;
const EXEMPLAR_REACH = 8;
const NO_LIMITS: Limits = {};

interface Mark {
  x: number;
  y: number;
  labels: Record<string, string>;
  series: Record<string, string>;
}

export function LineChart({ grid, mode, hidden, pointed, onNear, limits = NO_LIMITS, span, exemplars, format = short, isSmall, label = `Graph of ${grid.lines.length} series; the table below lists them`, onZoom }: Props) {
  const [tip, setTip] = useState<Tip>();
  const [pinned, setPinned] = useState<Tip>();
  const nearest = useRef<number | undefined>(undefined);
  const overlay = useRef<HTMLCanvasElement>(null);
  const drawn = useRef<uPlot | undefined>(undefined);
  const savedHeight = useStore(graphHeight);
  const shown = useMemo(() => grid.lines.map((_, i) => i).filter((i) => !hidden.has(i)), [grid, hidden]);
  const isStack = mode === "stacked" || mode === "bars";
  const isPoints = mode === "points";
  const data = useMemo<uPlot.AlignedData>(() => {
    const lines = shown.map((i) => grid.lines[i]?.values ?? []);
    // A stack draws its top line first, so that lower lines are drawn over it.
    const values = isStack ? stack(lines).reverse() : mode === "log" ? lines.map(positive) : lines;
    return [grid.times, ...values];
  }, [grid, shown, mode]);
  const order = useMemo(() => (isStack ? [...shown].reverse() : shown), [shown, isStack]);
  const painter = useMemo(createPainter, []);
  useEffect(() => painter.stop, []);
  const series = useMemo(() => order.map((i) => seriesOptions(i, mode)), [order, mode]);
  const { min, max } = limits;
  const [start, end] = span ?? [];
  const scales = useMemo<uPlot.Scales>(
    () => ({
      y: { range: yRange(mode, { min, max }), ...(mode === "log" && { distr: 3 }) },
      ...(mode === "bars" && { x: { time: false, range: barsRange } }),
      ...(start !== undefined && end !== undefined && { x: { time: false, range: [start, end] as [number, number] } }),
    }),
    [mode, min, max, start, end],
  );
  const yAxis = useMemo<Partial<uPlot.Axis>>(
    () => ({
      values: (_, splits) => textsOf(splits, format),
      ...(mode !== "log" && { splits: (_self, _axis, low, high, increment) => multiplesOf(low, high, increment) }),
      ...(format === bytes && { incrs: BINARY_INCREMENTS }),
    }),
    [format, mode],
  );
  const marks = useMemo(() => exemplars.flatMap(marksOf), [exemplars]);
  const highlight = (plot: uPlot) => drawHighlight(plot, overlay.current, data, order, isPoints, pointed ?? nearest.current);
  useEffect(() => drawn.current && highlight(drawn.current), [pointed]);
  // A pinned tip shows values that are no longer drawn.
  useEffect(() => setPinned(undefined), [grid, mode, start]);
  useEffect(() => {
    if (!pinned) return;
    const close = ({ key }: KeyboardEvent) => key === "Escape" && setPinned(undefined);
    addEventListener("keydown", close);
    return () => removeEventListener("keydown", close);
  }, [pinned]);
  const point = (plot: uPlot, index: number | undefined) => {
    const found = index === undefined ? [] : findNear(plot, data, index, isPoints);
    const mark = index === undefined ? undefined : findMark(plot, marks);
    const line = found[0] && order[found[0].drawn];
    if (line !== nearest.current) {
      nearest.current = line;
      onNear?.(line);
      highlight(plot);
    }
    setTip(mark ? exemplarTip(plot, mark) : seriesTip(plot, found));
  };
  const seriesTip = (plot: uPlot, found: Near[]): Tip | undefined => {
    const rows = found.slice(0, TIP_SERIES_MAX).map((near) => {
      const line = order[near.drawn] ?? 0;
      const value = grid.lines[line]?.values[near.index] ?? NaN;
      return { line, name: nameOf(grid.lines[line]), value, text: format(value, TIP_DIGITS_MAX) };
    });
    const [first] = found;
    const nearestLine = rows[0] && grid.lines[rows[0].line];
    if (!first || !nearestLine) return undefined;
    const lines = Object.entries(nearestLine.labels).map(([name, text]) => `${name}: ${text}`);
    return { ...placeOf(plot), title: dateTime((grid.times[first.index] ?? 0) * 1000, true), rows, more: found.length - rows.length, lines };
  };
  const shownTip = pinned ?? tip;
  return (
    <div class="chart">
      <Plot
        data={data}
        series={series}
        scales={scales}
        yAxis={yAxis}
        height={isSmall ? HEIGHT_SMALL : savedHeight}
        label={label}
        onZoom={onZoom}
        draw={(plot) => {
          drawn.current = plot;
          painter.stop();
          if (isStack) drawMarks(plot, marks);
          else painter.paint(plot, data, order.map(seriesColor), () => drawMarks(plot, marks), isPoints);
          highlight(plot);
        }}
        onPoint={point}
        onClick={() => setPinned(pinned ? undefined : tip)}
      />
      <canvas class="chart-overlay" ref={overlay} aria-hidden="true" />
      {shownTip && <TipBox tip={shownTip} isPinned={pinned !== undefined} onClose={() => setPinned(undefined)} />}
    </div>
  );
}

/** Returns the name of a line in the legend and in a tip. */
export function nameOf(line: Line | undefined): string {
  if (!line) return "";
  const name = line.name === "{}" ? printLabels(line.labels) : line.name;
  return line.letter ? `${line.letter} ${name}` : name;
}

function seriesOptions(index: number, mode: Props["mode"]): uPlot.Series {
  const points = { show: false };
  // The painter draws lines and points.
  if (!isStacked(mode)) return { paths: () => null, points };
  const color = () => seriesColor(index);
  const filled = { stroke: color, fill: color, spanGaps: false, points };
  return mode === "bars" ? { ...filled, width: 0, paths: uPlot.paths.bars?.({ size: [0.85, 40] }) } : { ...filled, width: 1 };
}

/** The bars of the first and the last time are as wide as the others. */
function barsRange({ data }: uPlot, min: number, max: number): [number, number] {
  const half = stepOf(data[0]) / 2;
  return [min - half, max + half];
}

function yRange(mode: Props["mode"], limits: Limits): uPlot.Range.Function {
  const ofValues = (min: number, max: number): [number, number] => {
    if (mode === "log") return min == null || max == null ? [1, 10] : (uPlot.rangeLog(min, max, 10, false) as [number, number]);
    if (min == null || max == null) return [0, 1];
    return isStacked(mode) ? boundsOf(Math.min(0, min), Math.max(0, max), 0.05) : boundsOf(min, max, 0.08);
  };
  return (_self, min, max) => withLimits(ofValues(min, max), limits, mode === "log");
}

function isStacked(mode: Props["mode"]): boolean {
  return mode === "stacked" || mode === "bars";
}

/** Returns bounds with those that the user set. A logarithmic axis has no place for 0 and below. */
export function withLimits([low, high]: [number, number], limits: Limits, isLog: boolean): [number, number] {
  const isUsable = (limit: number | undefined) => limit !== undefined && (!isLog || limit > 0);
  const from = isUsable(limits.min) ? (limits.min ?? low) : low;
  const to = isUsable(limits.max) ? (limits.max ?? high) : high;
  if (from < to) return [from, to];
  // All values are on the other side of the limit.
  const distance = Math.abs(from || 1);
  return from === limits.min ? [from, from + distance] : [isLog ? to / 10 : to - Math.abs(to || 1), to];
}

function positive(values: Array<number | null>): Array<number | null> {
  return values.map((value) => (value !== null && value > 0 ? value : null));
}

interface Near {
  /** Index of the drawn series. */
  drawn: number;
  /** Index of the time. */
  index: number;
  distance: number;
}

/** Returns the drawn series near the pointer at a time, the nearest first. */
function findNear(plot: uPlot, data: uPlot.AlignedData, index: number, isPoints: boolean): Near[] {
  const top = plot.cursor.top ?? -1;
  const found: Near[] = [];
  for (let i = 1; i < data.length; i++) {
    const values = data[i] ?? [];
    const at = isPoints ? nearestIndex(plot, data[0], values, index) : index;
    const value = at === undefined ? undefined : values[at];
    if (value == null || at === undefined) continue;
    const distance = Math.abs(plot.valToPos(value, "y") - top);
    if (distance < REACH) found.push({ drawn: i - 1, index: at, distance });
  }
  return found.sort((a, b) => a.distance - b.distance);
}

/** Returns the index of the sample nearest to a time, at most `POINT_REACH` pixels away: series have samples at different
 * times. */
function nearestIndex(plot: uPlot, times: ArrayLike<number>, values: ArrayLike<number | null | undefined>, index: number): number | undefined {
  const x = plot.valToPos(times[index] ?? 0, "x");
  const isNear = (i: number) => i >= 0 && i < times.length && Math.abs(plot.valToPos(times[i] ?? 0, "x") - x) <= POINT_REACH;
  for (let distance = 0; isNear(index - distance) || isNear(index + distance); distance++) {
    for (const i of [index - distance, index + distance]) if (isNear(i) && values[i] != null) return i;
  }
  return undefined;
}

/** Draws one line, or its points, thicker on a canvas above the chart: drawing all lines again would take too long. */
function drawHighlight(plot: uPlot, canvas: HTMLCanvasElement | null, data: uPlot.AlignedData, order: number[], isPoints: boolean, line?: number): void {
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
  const { bbox } = plot;
  context.save();
  context.beginPath();
  context.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  context.clip();
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
      if (isPoints) context.rect(x - 2 * scale, y - 2 * scale, 4 * scale, 4 * scale);
    }
    isPenDown = value != null && !isPoints;
  });
  context.stroke();
  context.restore();
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
  return { ...placeOf(plot), title: `Exemplar ${y} at ${dateTime(x * 1000, true)}`, rows: [], more: 0, lines };
}

function placeOf(plot: uPlot): { left: number; top: number; isRight: boolean } {
  const scale = devicePixelRatio;
  const left = (plot.cursor.left ?? 0) + plot.bbox.left / scale;
  return { left, top: (plot.cursor.top ?? 0) + plot.bbox.top / scale, isRight: left > plot.width * 0.6 };
}
