/** The heat map of the GPUs of a job: one row for each GPU, the worst first, and their values over time as color. */

import { useMemo, useState } from "preact/hooks";
import type uPlot from "uplot";
import { token } from "../../app/theme";
import { Plot } from "../../chart/plot";
import { stepOf } from "../../chart/grid";
import { metricSelector } from "../../parts/labels";
import { dateTime, printDuration } from "../../parts/time";
import { QueryLink } from "../../parts/view";
import { type HeatRows, type RankedGpu, type Signal, colorBounds } from "./gpus";
import type { Steps } from "./range";

/** Height of a row, the same as in style/jobs.css. */
const ROW_PX = 18;
/** What the plot has above and below its rows: its padding and its time axis. */
const FRAME_PX = 48;
/** The axis of the rows is empty, as their names stand beside the plot, but a date below its end needs room. Narrow screens have
 * no room. */
const [AXIS_PX, AXIS_NARROW_PX] = [32, 8];
const NARROW_PX = 700;
const HEATS = Array.from({ length: 10 }, (_, i) => `--heat-${i}`);
/** Height of the mark of a slow GPU, as a share of its row. */
const MARK = 0.3;

interface Props {
  signal: Signal;
  gpus: RankedGpu[];
  heat: HeatRows;
  steps: Steps;
  onZoom: (startMs: number, endMs: number) => void;
}

/** A cell that the pointer is over, with its place in the plot. */
interface Found {
  row: number;
  time: number;
  left: number;
  top: number;
  isRight: boolean;
}

export function GpuHeat({ signal, gpus, heat, steps, onZoom }: Props) {
  const [found, setFound] = useState<Found>();
  const n = gpus.length;
  const data = useMemo<uPlot.AlignedData>(() => [heat.times, heat.times.map(() => null)], [heat]);
  const series = useMemo<uPlot.Series[]>(() => [{ paths: () => null, points: { show: false } }], []);
  const scales = useMemo<uPlot.Scales>(() => ({ x: { time: false, range: xRange }, y: { range: [0, n] } }), [n]);
  const yAxis = useMemo<Partial<uPlot.Axis>>(() => ({ size: innerWidth <= NARROW_PX ? AXIS_NARROW_PX : AXIS_PX, values: (_, splits) => splits.map(() => ""), grid: { show: false } }), []);
  const colors = colorBounds(signal, heat);
  const point = (plot: uPlot, index: number | undefined) => {
    const [left = -1, top = -1] = [plot.cursor.left, plot.cursor.top];
    const row = Math.floor(n - plot.posToVal(top, "y"));
    setFound(index === undefined || row < 0 || row >= n ? undefined : { row, time: index, left: left + plot.over.offsetLeft, top, isRight: left > plot.over.clientWidth / 2 });
  };
  const range = printDuration(steps.endMs - steps.startMs);
  return (
    <>
      <div class="heat-map">
        <ol class="heat-rows">
          {gpus.map((gpu, i) => (
            <li key={`${gpu.node} ${gpu.gpu}`} class={[found?.row === i && "near", gpu.slow.length > 0 && "slow"].filter(Boolean).join(" ")}>
              <QueryLink expr={metricSelector(signal.metric, { Hostname: gpu.node, gpu: gpu.gpu })} range={range} endMs={steps.endMs} title={`${gpu.node}, GPU ${gpu.gpu}${gpu.slow.length > 0 ? `: slow in ${gpu.slow.join(", ")}` : ""}`}>
                <span class="heat-node">{gpu.node}</span><span>/{gpu.gpu}</span>
              </QueryLink>
              {gpu.slow.length > 0 && <span class="tag bad">slow</span>}
              <span class="heat-mean">{signal.format(gpu.mean)}</span>
            </li>
          ))}
        </ol>
        <div class="chart">
          <Plot data={data} series={series} scales={scales} yAxis={yAxis} height={n * ROW_PX + FRAME_PX} label={`${signal.title} of ${n} GPUs over time`} onZoom={onZoom} draw={(plot) => drawRows(plot, heat, colors)} onPoint={point} />
          {found && <HeatTip found={found} gpu={gpus[found.row]!} heat={heat} signal={signal} />}
        </div>
      </div>
      <p class="chart-note">
        {signal.format(colors[0])} <span class="heat-scale" aria-hidden="true">{HEATS.map((name) => <i key={name} class="swatch" style={{ background: `var(${name})` }} />)}</span> {signal.format(colors[1])}.{" "}
        No color: no sample, or not a GPU of the job at that time.{gpus.some(({ slow }) => slow.length > 0) && <> <i class="swatch slow-mark" /> slower than the other GPUs of the job in a signal of <code>training:rank:straggler</code>.</>} The number is the mean over the range.
      </p>
    </>
  );
}

function HeatTip({ found: { row, time, left, top, isRight }, gpu, heat, signal }: { found: Found; gpu: RankedGpu; heat: HeatRows; signal: Signal }) {
  const value = heat.rows[row]?.values[time];
  return (
    <div class={isRight ? "tip left" : "tip"} role="status" style={{ left: `${left}px`, top: `${top}px` }}>
      <b>{dateTime((heat.times[time] ?? 0) * 1000)}</b>
      <span>{gpu.node}, GPU {gpu.gpu}: {value == null ? "no sample" : signal.format(value)}</span>
      {heat.rows[row]?.isSlow[time] && <span>slow in {gpu.slow.join(", ")}</span>}
    </div>
  );
}

/** A cell ends at the next time, so the axis must extend beyond the last time. */
function xRange(self: uPlot, min: number, max: number): [number, number] {
  return [min, max + stepOf(self.data[0])];
}

function drawRows(plot: uPlot, { times, rows }: HeatRows, [best, worst]: [number, number]): void {
  const { ctx } = plot;
  const colors = HEATS.map(token);
  const mark = token("--error");
  const lefts = [...times, (times.at(-1) ?? 0) + stepOf(times)].map((time) => plot.valToPos(time, "x", true));
  const tops = Array.from({ length: rows.length + 1 }, (_, i) => plot.valToPos(rows.length - i, "y", true));
  ctx.save();
  rows.forEach(({ values, isSlow }, i) => {
    const top = tops[i] ?? 0;
    const height = (tops[i + 1] ?? 0) - top;
    const fill = (style: string | undefined, share: number, from: number, to: number) => {
      const left = lefts[from] ?? 0;
      ctx.fillStyle = style ?? "";
      ctx.fillRect(left, top + height * (1 - share), (lefts[to] ?? 0) - left, height * share - 1);
    };
    runs(values.map((value) => (value === null ? undefined : colorOf(value, best, worst))), (color, from, to) => fill(colors[color], 1, from, to));
    runs(isSlow.map((slow) => (slow ? 1 : undefined)), (_, from, to) => fill(mark, MARK, from, to));
  });
  ctx.restore();
}

/** Calls `visit` with each run of equal items, and its first index and the index behind it. Fewer rectangles are drawn faster. */
function runs(items: Array<number | undefined>, visit: (item: number, from: number, to: number) => void): void {
  let from = 0;
  for (let i = 1; i <= items.length; i++) {
    const item = items[from];
    if (i < items.length && items[i] === item) continue;
    if (item !== undefined) visit(item, from, i);
    from = i;
  }
}

/** Returns the index of the color of a value: 9 for the worst. */
export function colorOf(value: number, best: number, worst: number): number {
  const share = best === worst ? 0 : (value - best) / (worst - best);
  return Math.min(9, Math.max(0, Math.floor(share * 10)));
}
