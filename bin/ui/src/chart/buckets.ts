/** Heat maps: classic and native histograms as cells of time, bounds and increase. */

import type { MatrixElement } from "../api/types";
import { toNumber } from "./grid";

export interface Cell {
  timeIndex: number;
  /** Indexes into `bounds`. */
  lower: number;
  upper: number;
  count: number;
}

export interface HeatMap {
  /** Seconds since the epoch. */
  times: number[];
  /** Bounds of the buckets, ascending. */
  bounds: number[];
  cells: Cell[];
  max: number;
  /** The reason why there is no heat map, if there are no cells. */
  reason?: string;
}

/** Maximum number of bounds in a heat map. Finer buckets are merged. */
export const BOUNDS_MAX = 160;

interface Span {
  timeIndex: number;
  lower: number;
  upper: number;
  count: number;
}

/** Builds the heat map of a range query. Histograms of several series are added. */
export function toHeatMap(elements: MatrixElement[], startMs: number, endMs: number, stepMs: number): HeatMap {
  const nTimes = Math.floor((endMs - startMs) / stepMs) + 1;
  const times = Array.from({ length: nTimes }, (_, i) => (startMs + i * stepMs) / 1000);
  const indexOf = (time: number) => Math.round((time * 1000 - startMs) / stepMs);
  const isNative = elements.some(({ histograms }) => histograms);
  const spans = isNative ? nativeSpans(elements, indexOf) : classicSpans(elements, indexOf);
  if (spans.length === 0) {
    const reason = "A heat map needs native histograms, or buckets with the label le: rate(x_bucket[5m]), or sum by (le) of it.";
    return { times, bounds: [], cells: [], max: 0, reason };
  }
  return toCells(times, spans);
}

function nativeSpans(elements: MatrixElement[], indexOf: (time: number) => number): Span[] {
  const spans: Span[] = [];
  for (const { histograms = [] } of elements) {
    for (const [time, { buckets = [] }] of histograms) {
      for (const [, lower, upper, count] of buckets) {
        spans.push({ timeIndex: indexOf(time), lower: toNumber(lower), upper: toNumber(upper), count: Number(count) });
      }
    }
  }
  return spans;
}

/** Classic buckets are cumulative: each cell is the difference to the bucket below. */
function classicSpans(elements: MatrixElement[], indexOf: (time: number) => number): Span[] {
  const byBound = new Map<number, Map<number, number>>();
  for (const { metric, values = [] } of elements) {
    const bound = metric["le"] === undefined ? NaN : toNumber(metric["le"]);
    if (Number.isNaN(bound)) continue;
    const counts = byBound.get(bound) ?? new Map<number, number>();
    byBound.set(bound, counts);
    for (const [time, text] of values) {
      const index = indexOf(time);
      counts.set(index, (counts.get(index) ?? 0) + toNumber(text));
    }
  }
  const bounds = [...byBound.keys()].sort((a, b) => a - b);
  const spans: Span[] = [];
  bounds.forEach((upper, i) => {
    const lower = bounds[i - 1] ?? Math.min(0, upper);
    for (const [timeIndex, count] of byBound.get(upper) ?? []) {
      const below = i > 0 ? (byBound.get(bounds[i - 1] ?? NaN)?.get(timeIndex) ?? 0) : 0;
      spans.push({ timeIndex, lower, upper, count: Math.max(0, count - below) });
    }
  });
  return spans;
}

function toCells(times: number[], spans: Span[]): HeatMap {
  const all = [...new Set(spans.flatMap(({ lower, upper }) => [lower, upper]))].sort((a, b) => a - b);
  const every = Math.ceil(all.length / BOUNDS_MAX);
  const bounds = all.filter((_, i) => i % every === 0 || i === all.length - 1);
  const indexes = new Map(all.map((bound, i) => [bound, Math.min(Math.floor(i / every), bounds.length - 1)]));
  const cells = new Map<string, Cell>();
  for (const { timeIndex, lower, upper, count } of spans) {
    if (!(count > 0) || timeIndex < 0 || timeIndex >= times.length) continue;
    const low = Math.min(indexes.get(lower) ?? 0, bounds.length - 2);
    const high = Math.max(low + 1, indexes.get(upper) ?? 0);
    const key = `${timeIndex} ${low} ${high}`;
    const cell = cells.get(key);
    if (cell) cell.count += count;
    else cells.set(key, { timeIndex, lower: low, upper: high, count });
  }
  const list = [...cells.values()];
  return { times, bounds, cells: list, max: list.reduce((max, { count }) => Math.max(max, count), 0) };
}
