/** Results of range queries on the grid of their steps, as the chart draws them. */

import type { Labels, MatrixElement } from "../api/types";
import { compareLabels, printLabels } from "../parts/labels";
import { mapInSlices } from "../parts/task";

export interface Line {
  labels: Labels;
  /** Labels in which the lines differ, or the whole label set of a single line. */
  name: string;
  /** One value per time; null where the series has no sample. */
  values: Array<number | null>;
  /** True if there are NaN or infinite values, which become gaps. */
  hasHiddenValues: boolean;
  last: number | null;
  min: number;
  max: number;
  mean: number;
}

export interface Grid {
  /** Seconds since the epoch. */
  times: number[];
  lines: Line[];
  /** Labels that all lines share. */
  common: Labels;
}

/** Returns the step between times. */
export function stepOf([first = 0, second = first + 1]: ArrayLike<number> & Iterable<number>): number {
  return second - first;
}

/** Puts all series on the grid from `startMs` to `endMs`, both included. */
export function toGrid(elements: MatrixElement[], startMs: number, endMs: number, stepMs: number): Grid {
  const { withValues, toLine, ...grid } = gridParts(elements, startMs, endMs, stepMs);
  return { ...grid, lines: withValues.map(toLine) };
}

/** Does the same as [`toGrid`] in slices. Throws if `signal` is aborted meanwhile. */
export async function toGridInSlices(
  elements: MatrixElement[],
  startMs: number,
  endMs: number,
  stepMs: number,
  signal: AbortSignal,
): Promise<Grid> {
  const { withValues, toLine, ...grid } = gridParts(elements, startMs, endMs, stepMs);
  return { ...grid, lines: await mapInSlices(withValues, toLine, signal) };
}

/** Returns the parts of a grid without its lines, and how an element becomes a line. */
function gridParts(elements: MatrixElement[], startMs: number, endMs: number, stepMs: number) {
  const nTimes = Math.floor((endMs - startMs) / stepMs) + 1;
  const times = Array.from({ length: nTimes }, (_, i) => (startMs + i * stepMs) / 1000);
  const { common } = compareLabels(elements.map(({ metric }) => metric));
  const without = new Set(Object.keys(common));
  const withValues = elements.filter(({ values }) => values);
  const toLine = (element: MatrixElement) => lineOf(element, without, nTimes, startMs, stepMs);
  return { times, common, withValues, toLine };
}

function lineOf(element: MatrixElement, without: ReadonlySet<string>, nTimes: number, startMs: number, stepMs: number): Line {
  // Without a gap it holds only numbers, which the engine stores unboxed.
  const values: Array<number | null> = [];
  let [min, max, sum, n] = [Infinity, -Infinity, 0, 0];
  let last: number | null = null;
  let hasHiddenValues = false;
  for (const [time, text] of element.values ?? []) {
    const value = toNumber(text);
    last = value;
    if (!Number.isFinite(value)) hasHiddenValues = true;
    const index = Math.round((time * 1000 - startMs) / stepMs);
    if (!Number.isFinite(value) || index < 0 || index >= nTimes) continue;
    while (values.length < index) values.push(null);
    values[index] = value;
    if (value < min) min = value;
    if (value > max) max = value;
    sum += value;
    n += 1;
  }
  while (values.length < nTimes) values.push(null);
  const name = printLabels(element.metric, without);
  const [least, most, mean] = n > 0 ? [min, max, sum / n] : [NaN, NaN, NaN];
  return { labels: element.metric, name, values, hasHiddenValues, last, min: least, max: most, mean };
}

/** Parses a value of the API: a number, `NaN`, `+Inf` or `-Inf`. */
export function toNumber(text: string): number {
  const value = Number(text);
  // Fast path: a number.
  if (value === value) return value;
  return text === "+Inf" ? Infinity : text === "-Inf" ? -Infinity : NaN;
}

/** Returns the cumulative sums of lines, the first line at the bottom. A gap counts as 0 unless all lines have it. */
export function stack(lines: ReadonlyArray<Array<number | null>>): Array<Array<number | null>> {
  const nTimes = lines[0]?.length ?? 0;
  const sums = Array.from<number>({ length: nTimes }).fill(0);
  const isGap = Array.from({ length: nTimes }, (_, i) => lines.every((values) => values[i] == null));
  return lines.map((values) =>
    values.map((value, i) => {
      if (isGap[i]) return null;
      sums[i] = (sums[i] ?? 0) + (value ?? 0);
      return sums[i] ?? null;
    }),
  );
}
