/** Draws lines or points, many of them in slices, so that the page responds meanwhile. */

import type uPlot from "uplot";
import { SLICE_MS } from "../parts/task";

/** Number of lines up to which they are wide. Without a GPU, the browser takes many times as long to fill lines wider than
 * one pixel: docs/performance.md. */
const WIDE_MAX = 10;
/** Width of a wide line, and length of the mark of a sample between gaps, in CSS pixels. */
const WIDTH = 1.5;
const MARK_LENGTH = 6;
/** Width of a point in CSS pixels. */
const POINT_SIZE = 4;

export interface Painter {
  /** Draws all lines of a plot, or their points, the first slice now, until `stop` is called. */
  paint(plot: uPlot, data: uPlot.AlignedData, colors: string[], done: () => void, isPoints?: boolean): void;
  stop(): void;
}

export function createPainter(): Painter {
  let frame = 0;
  const stop = () => cancelAnimationFrame(frame);
  const paint: Painter["paint"] = (plot, data, colors, done, isPoints) => {
    const xs = Array.from(data[0], (time) => plot.valToPos(time, "x", true));
    let next = 1;
    const slice = () => {
      // Filling the pixels, at the end of the frame, takes up to five times as long.
      const end = performance.now() + SLICE_MS;
      const { ctx, bbox } = plot;
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      ctx.lineWidth = lineWidth(data.length - 1);
      ctx.lineJoin = "round";
      for (; next < data.length && performance.now() < end; next++) {
        const values = data[next] ?? [];
        if (isPoints) {
          ctx.fillStyle = colors[next - 1] ?? "";
          dot(plot, xs, values);
          continue;
        }
        ctx.strokeStyle = colors[next - 1] ?? "";
        trace(plot, xs, values);
        ctx.stroke();
      }
      ctx.restore();
      if (next < data.length) frame = requestAnimationFrame(slice);
      else done();
    };
    slice();
  };
  return { paint, stop };
}

/** Returns the width of each of `nLines` lines in pixels of the screen. Many lines are thin, with a whole number of pixels. */
function lineWidth(nLines: number): number {
  return nLines <= WIDE_MAX ? WIDTH * devicePixelRatio : Math.max(1, Math.floor(devicePixelRatio));
}

/** Makes a line the current path, with gaps where it has no value. Of the values in a column of pixels, it goes through
 * the least and the greatest. A sample between gaps becomes a mark. */
function trace({ ctx, bbox, valToPos }: uPlot, xs: number[], values: ArrayLike<number | null | undefined>): void {
  const size = Math.max(1, Math.floor(xs.length / bbox.width));
  const mark = (MARK_LENGTH / 2) * devicePixelRatio;
  ctx.beginPath();
  let isPenDown = false;
  for (let i = 0; i < xs.length; i += size) {
    let low = Infinity;
    let high = -Infinity;
    for (let j = i; j < i + size; j++) {
      const value = values[j];
      if (value == null) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
    if (low <= high) {
      const x = xs[i] ?? 0;
      const y = valToPos(low, "y", true);
      if (isPenDown) ctx.lineTo(x, y);
      else {
        if (!hasValue(values, i + size, size)) {
          ctx.moveTo(x - mark, y);
          ctx.lineTo(x + mark, y);
        }
        ctx.moveTo(x, y);
      }
      if (high > low) ctx.lineTo(x, valToPos(high, "y", true));
    }
    isPenDown = low <= high;
  }
}

/** Draws each value as a point. */
function dot({ ctx, valToPos }: uPlot, xs: number[], values: ArrayLike<number | null | undefined>): void {
  const size = POINT_SIZE * devicePixelRatio;
  for (let i = 0; i < xs.length; i++) {
    const value = values[i];
    if (value != null) ctx.fillRect((xs[i] ?? 0) - size / 2, valToPos(value, "y", true) - size / 2, size, size);
  }
}

function hasValue(values: ArrayLike<number | null | undefined>, from: number, size: number): boolean {
  for (let i = from; i < from + size; i++) if (values[i] != null) return true;
  return false;
}
