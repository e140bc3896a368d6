/** Results of range queries on the grid of their steps, as the chart draws them. */

import type { Labels, MatrixElement as Element } from "../api/types";
import { compareLabels, printLabels } from "../parts/labels";
import { mapInSlices } from "../parts/task";

/** A series of a result, with the letter of its expression if there are several. */
export interface MatrixElement extends Element {
  letter?: string;
}

export interface Line {
  labels: Labels;
  letter?: string;
  /** Labels in which the lines differ, or the whole label set of a single line. */
  name: string;
  /** One value per time; null where the series has no sample. */
  values: Array<number | null>;
  /** True if there are NaN or infinite values, which become gaps. */
  hasHiddenValues: boolean;
  /** Number of values that are no gaps. */
  nValues: number;
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

/** Puts series on their own times, for samples that are at no steps. */
export function toRawGrid(elements: MatrixElement[], times: number[]): Grid {
  const indexes = new Map(times.map((time, i) => [time, i]));
  const { common } = compareLabels(elements.map(({ metric }) => metric));
  const without = new Set(Object.keys(common));
  const withValues = elements.filter(({ values }) => values);
  return { times, common, lines: withValues.map((element) => lineOf(element, without, times.length, (time) => indexes.get(time) ?? -1)) };
}

/** Returns the parts of a grid without its lines, and how an element becomes a line. */
function gridParts(elements: MatrixElement[], startMs: number, endMs: number, stepMs: number) {
  const nTimes = Math.floor((endMs - startMs) / stepMs) + 1;
  const times = Array.from({ length: nTimes }, (_, i) => (startMs + i * stepMs) / 1000);
  const { common } = compareLabels(elements.map(({ metric }) => metric));
  const without = new Set(Object.keys(common));
  const withValues = elements.filter(({ values }) => values);
  const indexOf = (time: number) => Math.round((time * 1000 - startMs) / stepMs);
  const toLine = (element: MatrixElement) => lineOf(element, without, nTimes, indexOf);
  return { times, common, withValues, toLine };
}

function lineOf(element: MatrixElement, without: ReadonlySet<string>, nTimes: number, indexOf: (time: number) => number): Line {
  // Without a gap it holds only numbers, which the engine stores unboxed.
  const values: Array<number | null> = [];
  let [min, max, sum, n] = [Infinity, -Infinity, 0, 0];
  let last: number | null = null;
  let hasHiddenValues = false;
  for (const [time, text] of element.values ?? []) {
    const value = toNumber(text);
    last = value;
    if (!Number.isFinite(value)) hasHiddenValues = true;
    const index = indexOf(time);
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
  return { labels: element.metric, ...(element.letter && { letter: element.letter }), name, values, hasHiddenValues, nValues: n, last, min: least, max: most, mean };
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
