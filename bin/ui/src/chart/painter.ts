/** Draws many lines in slices, so that the page responds meanwhile: one drawing of 1,000 lines takes 200 ms. */

import type uPlot from "uplot";

/** Number of lines from which they are drawn in slices. */
export const SLICED_FROM = 200;
/** Time of a slice. Filling the pixels, at the end of a frame, takes several times as long. */
const SLICE_MS = 10;

export interface Painter {
  /** Draws all lines of a plot, the first slice now. A later call replaces the rest of this one. */
  paint(plot: uPlot, data: uPlot.AlignedData, colors: string[], done: () => void): void;
  stop(): void;
}

export function createPainter(): Painter {
  let frame = 0;
  const stop = () => cancelAnimationFrame(frame);
  const paint: Painter["paint"] = (plot, data, colors, done) => {
    stop();
    const xs = Array.from(data[0], (time) => plot.valToPos(time, "x", true));
    let next = 1;
    const slice = () => {
      const end = performance.now() + SLICE_MS;
      const { ctx, bbox } = plot;
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      ctx.lineWidth = 1.5 * devicePixelRatio;
      ctx.lineJoin = "round";
      for (; next < data.length && performance.now() < end; next++) {
        ctx.strokeStyle = colors[next - 1] ?? "";
        trace(plot, xs, data[next] ?? []);
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

/** Makes a line the current path, with gaps where it has no value. */
function trace({ ctx, valToPos }: uPlot, xs: number[], values: ArrayLike<number | null | undefined>): void {
  ctx.beginPath();
  let isPenDown = false;
  for (let i = 0; i < xs.length; i++) {
    const value = values[i];
    if (value != null) {
      const y = valToPos(value, "y", true);
      if (isPenDown) ctx.lineTo(xs[i] ?? 0, y);
      else ctx.moveTo(xs[i] ?? 0, y);
    }
    isPenDown = value != null;
  }
}
