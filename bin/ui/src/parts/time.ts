/** Durations as PromQL writes them, and times in the zone that the user chose. */

import { createSavedStore } from "./store";

/** True if times are shown in UTC. */
export const isUtc = createSavedStore<boolean>("varve.utc", false, (value) => typeof value === "boolean");

const UNITS: ReadonlyArray<[string, number]> = [
  ["y", 365 * 86_400_000],
  ["w", 7 * 86_400_000],
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["m", 60_000],
  ["s", 1000],
  ["ms", 1],
];

/** Parses a duration such as `1h30m` or a number of seconds, in milliseconds. Returns undefined for other texts. */
export function parseDuration(text: string): number | undefined {
  const trimmed = text.trim();
  if (/^\d+(\.\d+)?$/.test(trimmed)) return Math.round(Number(trimmed) * 1000);
  const parts = /^(?:(\d+)y)?(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?$/.exec(trimmed);
  if (trimmed === "" || !parts) return undefined;
  return UNITS.reduce((sum, [, size], i) => sum + Number(parts[i + 1] ?? 0) * size, 0);
}

/** Prints milliseconds as a duration: `1h30m`. */
export function printDuration(ms: number): string {
  let rest = Math.max(0, Math.round(ms));
  let text = "";
  for (const [unit, size] of UNITS) {
    // Prometheus writes years and weeks only if nothing else remains.
    const isLarge = unit === "y" || unit === "w";
    const n = isLarge && rest % size !== 0 ? 0 : Math.floor(rest / size);
    if (n > 0) text += `${n}${unit}`;
    rest -= n * size;
  }
  return text === "" ? "0s" : text;
}

const two = (n: number) => String(n).padStart(2, "0");

interface Clock {
  year: number;
  month: number;
  day: number;
  hour: number;
  minute: number;
  second: number;
  ms: number;
}

/** Returns the calendar fields of a time in the zone. */
export function fields(ms: number, utc = isUtc.get()): Clock {
  const date = new Date(utc ? ms : ms - new Date(ms).getTimezoneOffset() * 60_000);
  return {
    year: date.getUTCFullYear(),
    month: date.getUTCMonth() + 1,
    day: date.getUTCDate(),
    hour: date.getUTCHours(),
    minute: date.getUTCMinutes(),
    second: date.getUTCSeconds(),
    ms: date.getUTCMilliseconds(),
  };
}

/** Formats a time: `2026-11-23 14:05:09`, with milliseconds if there are any and `withMs` is set. */
export function dateTime(ms: number, withMs = false): string {
  if (!Number.isFinite(ms)) return "–";
  const { year, month, day, hour, minute, second, ms: rest } = fields(ms);
  const fraction = withMs && rest > 0 ? `.${String(rest).padStart(3, "0")}` : "";
  return `${year}-${two(month)}-${two(day)} ${two(hour)}:${two(minute)}:${two(second)}${fraction}`;
}

/** Formats the labels of a time axis: the time, and below it the date where the day changes. */
export function axisLabels(timesMs: number[], spacingMs: number): string[] {
  let lastDay = -1;
  return timesMs.map((ms) => {
    const { year, month, day, hour, minute, second } = fields(ms);
    const date = `${year}-${two(month)}-${two(day)}`;
    if (spacingMs >= 86_400_000) return date;
    const time = `${two(hour)}:${two(minute)}${spacingMs < 60_000 ? `:${two(second)}` : ""}`;
    const isNewDay = day !== lastDay;
    lastDay = day;
    return isNewDay ? `${time}\n${date}` : time;
  });
}

/** Formats the age of a time: `5m ago`, or `never` for 0. */
export function ago(ms: number, now = Date.now()): string {
  if (ms <= 0) return "never";
  const seconds = Math.max(0, Math.round((now - ms) / 1000));
  if (seconds < 60) return `${seconds}s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)}h ago`;
  return `${Math.floor(seconds / 86_400)}d ago`;
}

/** Formats a time for `<input type="datetime-local">` in the zone. */
export function toInput(ms: number): string {
  const { year, month, day, hour, minute, second } = fields(ms);
  return `${year}-${two(month)}-${two(day)}T${two(hour)}:${two(minute)}:${two(second)}`;
}

/** Parses `2026-11-23T14:05[:09]` or `2026-11-23 14:05:09` in the zone. Returns undefined for other texts. */
export function parseDateTime(text: string, utc = isUtc.get()): number | undefined {
  const parts = /^(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,3}))?)?$/.exec(text.trim());
  if (!parts) return undefined;
  const [year = 0, month = 1, day = 1, hour = 0, minute = 0, second = 0] = parts.slice(1, 7).map((n) => Number(n ?? 0));
  const ms = Number((parts[7] ?? "").padEnd(3, "0"));
  const time = utc
    ? Date.UTC(year, month - 1, day, hour, minute, second, ms)
    : new Date(year, month - 1, day, hour, minute, second, ms).getTime();
  return Number.isNaN(time) ? undefined : time;
}

/** Formats a time as in ISO 8601 in the zone: `2026-11-23T14:05:09Z`, or with the offset of the zone. */
export function isoTime(ms: number): string {
  const offset = isUtc.get() ? 0 : -new Date(ms).getTimezoneOffset();
  const zone = offset === 0 ? "Z" : `${offset < 0 ? "-" : "+"}${two(Math.floor(Math.abs(offset) / 60))}:${two(Math.abs(offset) % 60)}`;
  const rest = ((ms % 1000) + 1000) % 1000;
  return toInput(ms) + (rest === 0 ? "" : `.${String(rest).padStart(3, "0")}`) + zone;
}

/** Parses a time that a user types: ISO 8601 with or without a zone, a date, seconds since the epoch, `now`, `-1h` or
 * `now-1h`. Returns undefined for other texts. */
export function parseTime(text: string, nowMs: number): number | undefined {
  const trimmed = text.trim();
  const relative = /^(?:now)?\s*-\s*([0-9][0-9a-z]*)$/.exec(trimmed);
  if (trimmed === "now") return nowMs;
  if (relative) {
    const ms = parseDuration(relative[1] ?? "");
    return ms === undefined ? undefined : nowMs - ms;
  }
  if (/^\d{9,11}(\.\d+)?$/.test(trimmed)) return Number(trimmed) * 1000;
  if (/^\d{4}-\d\d-\d\d$/.test(trimmed)) return parseDateTime(`${trimmed} 00:00`);
  if (!/^\d{4}-\d\d-\d\d[T ].*(?:Z|[-+]\d\d:?\d\d)$/.test(trimmed)) return parseDateTime(trimmed);
  const ms = Date.parse(trimmed.replace(" ", "T"));
  return Number.isNaN(ms) ? undefined : ms;
}
