/** The time range of a job's page. The address keeps it. */

import { useState } from "preact/hooks";
import { setParams } from "../../app/router";
import { dateTime, parseDuration, printDuration } from "../../parts/time";
import { TimeRange } from "../../query/time_range";

const RANGE_DEFAULT_MS = 3_600_000;
/** A drag over less than this is a click. */
const RANGE_MIN_MS = 60_000;

export interface Span {
  rangeMs: number;
  /** Undefined is now. */
  endMs?: number;
}

/** Steps of a range, and the least: dcgm-exporter and the rules write a sample every 30 s. */
const STEPS = 120;
const STEP_MIN_MS = 30_000;

/** Times of a range query. */
export interface Steps {
  startMs: number;
  endMs: number;
  stepMs: number;
}

export function spanOf(params: URLSearchParams): Span {
  const rangeMs = parseDuration(params.get("range") ?? "") ?? 0;
  const endS = Number(params.get("end") ?? "");
  return { rangeMs: rangeMs >= RANGE_MIN_MS ? rangeMs : RANGE_DEFAULT_MS, ...(endS > 0 && { endMs: endS * 1000 }) };
}

/** Returns the times at which a page asks for values, at most 121. A range that ends now ends at a multiple of the least step. */
export function stepsOf({ rangeMs, endMs }: Span, nowMs: number): Steps {
  const stepMs = Math.max(STEP_MIN_MS, Math.ceil(rangeMs / STEPS / 1000) * 1000);
  const toMs = endMs ?? Math.floor(nowMs / STEP_MIN_MS) * STEP_MIN_MS;
  return { startMs: toMs - Math.floor(rangeMs / stepMs) * stepMs, endMs: toMs, stepMs };
}

export function setSpan({ rangeMs, endMs }: Span): void {
  const range = printDuration(Math.max(RANGE_MIN_MS, Math.round(rangeMs / 1000) * 1000));
  setParams({ range, end: endMs === undefined ? undefined : String(Math.round(endMs / 1000)), page: undefined });
}

export function RangeControl({ span }: { span: Span }) {
  const [isOpen, setIsOpen] = useState(false);
  const { rangeMs, endMs } = span;
  const range = printDuration(rangeMs);
  const shift = (direction: 1 | -1) => {
    const shiftedMs = (endMs ?? Date.now()) + (direction * rangeMs) / 2;
    setSpan(shiftedMs < Date.now() ? { rangeMs, endMs: shiftedMs } : { rangeMs });
  };
  return (
    <div class="joined" role="group" aria-label="Time range">
      <button type="button" aria-label="Earlier" onClick={() => shift(-1)}>‹</button>
      <button type="button" class="opener" aria-expanded={isOpen} onClick={() => setIsOpen(!isOpen)}>{endMs === undefined ? `Last ${range}` : `${range} until ${dateTime(endMs)}`} ▾</button>
      {endMs !== undefined && <button type="button" aria-label="Back to now" title="Back to now" onClick={() => setSpan({ rangeMs })}>×</button>}
      <button type="button" aria-label="Later" disabled={endMs === undefined} onClick={() => shift(1)}>›</button>
      {isOpen && <TimeRange rangeMs={rangeMs} endMs={endMs} onChange={setSpan} onClose={() => setIsOpen(false)} />}
    </div>
  );
}
