/** A uPlot chart in a component: size, theme, zoom by dragging, and the line nearest to the pointer. */

import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { token } from "../app/theme";
import { isUtc, axisLabels } from "../parts/time";
import { useStore } from "../parts/store";

export interface PlotProps {
  data: uPlot.AlignedData;
  series: uPlot.Series[];
  bands?: uPlot.Band[];
  scales?: uPlot.Scales;
  yAxis?: Partial<uPlot.Axis>;
  height: number;
  label: string;
  onZoom: (startMs: number, endMs: number) => void;
  /** Draws on top of the series. */
  draw?: (plot: uPlot) => void;
  /** The pointer moved; the index of the nearest time, or undefined outside of the chart. */
  onPoint?: (plot: uPlot, index: number | undefined) => void;
  /** The user clicked on the chart, and did not drag. */
  onClick?: () => void;
}

/** Pixels that the pointer may move between the two ends of a click. */
const CLICK_MOVE_MAX = 3;

/** The charts of a page show the same time at the pointer. */
const SYNC_KEY = "varve";

export function Plot(props: PlotProps) {
  const { data, series, bands, scales, yAxis, height, label } = props;
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const latest = useRef(props);
  latest.current = props;
  const utc = useStore(isUtc);
  useLayoutEffect(() => {
    const element = host.current;
    if (!element) return;
    const build = () => {
      plot.current?.destroy();
      plot.current = new uPlot(options(element.clientWidth), latest.current.data, element);
      listen(plot.current.over);
    };
    const listen = (over: HTMLElement) => {
      let down = 0;
      over.addEventListener("mousedown", ({ clientX }) => (down = clientX));
      over.addEventListener("click", ({ clientX }) => Math.abs(clientX - down) <= CLICK_MOVE_MAX && latest.current.onClick?.());
    };
    const options = (width: number): uPlot.Options => ({
      width,
      height: latest.current.height,
      series: [{}, ...series],
      bands: bands ?? [],
      scales: { x: { time: false }, ...scales },
      axes: [xAxis(), { ...axisStyle(), size: ySize, ...yAxis }],
      padding: [10, null, null, null],
      legend: { show: false },
      cursor: { points: { show: false }, drag: { x: true, y: false, setScale: false }, sync: { key: SYNC_KEY, setSeries: false } },
      hooks: {
        draw: [(self) => latest.current.draw?.(self)],
        setSelect: [zoom],
        setCursor: [(self) => latest.current.onPoint?.(self, self.cursor.left != null && self.cursor.left >= 0 ? (self.cursor.idx ?? undefined) : undefined)],
      },
    });
    const zoom = (self: uPlot) => {
      if (self.select.width < 4) return;
      const at = (px: number) => self.posToVal(px, "x") * 1000;
      latest.current.onZoom(at(self.select.left), at(self.select.left + self.select.width));
      self.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    };
    build();
    const observer = new ResizeObserver(() => {
      const width = element.clientWidth;
      if (plot.current && width > 0 && width !== plot.current.width) plot.current.setSize({ width, height: latest.current.height });
    });
    observer.observe(element);
    addEventListener("varve-theme", build);
    return () => {
      observer.disconnect();
      removeEventListener("varve-theme", build);
      plot.current?.destroy();
      plot.current = undefined;
    };
  }, [data, series, bands, scales, yAxis, utc]);
  useEffect(() => {
    const { current } = plot;
    if (current && current.height !== height) current.setSize({ width: current.width, height });
  }, [height]);
  return <div class="plot" ref={host} role="img" aria-label={label} style={{ height: `${height}px` }} />;
}

function axisStyle(): Partial<uPlot.Axis> {
  return {
    stroke: token("--text-muted"),
    grid: { stroke: token("--grid"), width: 1 },
    ticks: { show: false },
    font: `11px ${token("--font")}`,
  };
}

function xAxis(): uPlot.Axis {
  return {
    ...axisStyle(),
    space: 90,
    size: 38,
    gap: 8,
    splits: (_self, _axis, min, max, increment) => timeSplits(min, max, increment),
    incrs: [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000],
    values: (_self, splits, _axis, _space, increment) => axisLabels(splits.map((s) => s * 1000), increment * 1000),
  };
}

/** Returns the marks of a time axis at multiples of `increment` in the zone that is shown. */
function timeSplits(min: number, max: number, increment: number): number[] {
  const offset = isUtc.get() ? 0 : new Date(min * 1000).getTimezoneOffset() * 60;
  const marks: number[] = [];
  for (let at = Math.ceil((min - offset) / increment) * increment + offset; at <= max; at += increment) marks.push(at);
  return marks;
}

/** Returns the width of the y axis that its longest label needs. */
function ySize(self: uPlot, values: string[] | null, axisIndex: number): number {
  const axis = self.axes[axisIndex];
  const longest = (values ?? []).reduce((most, text) => (text.length > most.length ? text : most), "");
  if (longest === "" || !axis) return 40;
  self.ctx.font = (axis.font as unknown as [string])[0];
  return Math.ceil(self.ctx.measureText(longest).width / devicePixelRatio) + 16;
}
