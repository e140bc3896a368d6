/** A line without axes: how a figure changed. Where values are missing, the line is interrupted. */

import { short } from "../../parts/format";
import type { Line } from "./data";

const WIDTH = 240;
const HEIGHT = 40;
/** Two points further apart than this are not connected. A server may store its metrics every minute. */
const GAP_MS = 180_000;

/** Returns the path of the points. The axis of values begins at 0, unless values are negative. */
export function pathOf({ points, startMs, endMs }: Pick<Line, "points" | "startMs" | "endMs">): string {
  const finite = points.filter(([, value]) => Number.isFinite(value));
  const [low, high] = finite.reduce(([a, b], [, value]) => [Math.min(a, value), Math.max(b, value)], [0, 0]);
  let lastMs = -Infinity;
  return finite
    .map(([timeMs, value]) => {
      const x = ((timeMs - startMs) / (endMs - startMs)) * WIDTH;
      const y = high === low ? HEIGHT - 1 : 1 + ((high - value) / (high - low)) * (HEIGHT - 2);
      const command = timeMs - lastMs > GAP_MS ? "M" : "L";
      lastMs = timeMs;
      return `${command}${x.toFixed(1)} ${y.toFixed(1)}`;
    })
    .join("");
}

export function Sparkline({ line, title, format = short }: { line: Line; title: string; format?: (value: number) => string }) {
  const values = line.points.map(([, value]) => value).filter(Number.isFinite);
  if (values.length < 2) return null;
  const most = values.reduce((a, b) => Math.max(a, b));
  const label = `${title} in the last hour: at most ${format(most)}, ${format(values.at(-1)!)} at the end`;
  return (
    <svg class="spark" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={label}>
      <path d={pathOf(line)} vector-effect="non-scaling-stroke" />
    </svg>
  );
}
