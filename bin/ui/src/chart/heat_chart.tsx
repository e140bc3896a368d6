/** A heat map of histograms: time, bounds, and the increase of each bucket as color. */

import { useMemo, useState } from "preact/hooks";
import type uPlot from "uplot";
import type { MatrixElement } from "../api/types";
import { token } from "../app/theme";
import { short } from "../parts/format";
import { useStore } from "../parts/store";
import { dateTime } from "../parts/time";
import { type Cell, type HeatMap, toHeatMap } from "./buckets";
import { stepOf } from "./grid";
import { ResizeHandle, graphHeight } from "./height";
import { Plot } from "./plot";

const HEATS = Array.from({ length: 10 }, (_, i) => `--heat-${i}`);

interface Props {
  elements: MatrixElement[];
  range: { startMs: number; endMs: number; stepMs: number };
  note: string;
  onZoom: (startMs: number, endMs: number) => void;
}

export function HeatChart({ elements, range: { startMs, endMs, stepMs }, note, onZoom }: Props) {
  const map = useMemo(() => toHeatMap(elements, startMs, endMs, stepMs), [elements]);
  const [found, setFound] = useState<Cell>();
  const data = useMemo<uPlot.AlignedData>(() => [map.times, map.times.map(() => null)], [map]);
  const series = useMemo<uPlot.Series[]>(() => [{ paths: () => null, points: { show: false } }], []);
  const height = useStore(graphHeight);
  const nBounds = map.bounds.length;
  const scales = useMemo<uPlot.Scales>(() => ({ x: { time: false, range: xRange }, y: { range: [0, Math.max(1, nBounds - 1)] } }), [nBounds]);
  const yAxis = useMemo<Partial<uPlot.Axis>>(
    () => ({
      splits: () => map.bounds.map((_, i) => i).filter((i) => i % Math.max(1, Math.ceil(nBounds / 12)) === 0 || i === nBounds - 1),
      values: (_, splits) => splits.map((i) => short(map.bounds[i] ?? NaN)),
      grid: { show: false },
    }),
    [map],
  );
  if (map.reason) return <p class="empty">{map.reason}</p>;
  const point = (plot: uPlot, index: number | undefined) => {
    const y = index === undefined ? -1 : plot.posToVal(plot.cursor.top ?? 0, "y");
    setFound(index === undefined ? undefined : map.cells.find((cell) => cell.timeIndex === index && cell.lower <= y && y < cell.upper));
  };
  const bound = (index: number) => short(map.bounds[index] ?? NaN);
  const text = found ? `${dateTime((map.times[found.timeIndex] ?? 0) * 1000)}: ${short(found.count)} from ${bound(found.lower)} to ${bound(found.upper)}` : note;
  return (
    <>
      <Plot data={data} series={series} scales={scales} yAxis={yAxis} height={height} label="Heat map" onZoom={onZoom} draw={(plot) => drawCells(plot, map)} onPoint={point} />
      <ResizeHandle />
      <p class="chart-note">
        Color: 0 <span class="heat-scale" aria-hidden="true">{HEATS.map((name) => <i key={name} class="swatch" style={{ background: `var(${name})` }} />)}</span> {short(map.max)} per bucket, on a square-root scale.{" "}
        <span role="status">{text}</span>
      </p>
    </>
  );
}

/** A cell ends at the next time, so the axis must extend beyond the last time. */
function xRange(self: uPlot, min: number, max: number): [number, number] {
  return [min, max + stepOf(self.data[0])];
}

function drawCells(plot: uPlot, map: HeatMap): void {
  const { ctx } = plot;
  const step = stepOf(map.times);
  const colors = HEATS.map(token);
  ctx.save();
  for (const { timeIndex, lower, upper, count } of map.cells) {
    const time = map.times[timeIndex] ?? 0;
    const [left, right] = [plot.valToPos(time, "x", true), plot.valToPos(time + step, "x", true)];
    const [top, bottom] = [plot.valToPos(upper, "y", true), plot.valToPos(lower, "y", true)];
    // The square root keeps rare buckets visible beside frequent ones.
    ctx.fillStyle = colors[Math.min(9, Math.floor(Math.sqrt(count / map.max) * 10))] ?? "";
    ctx.fillRect(left, top, Math.max(1, right - left - 0.5), Math.max(1, bottom - top - 0.5));
  }
  ctx.restore();
}
