/** Numbers, sizes and shares as text. */

const SUFFIXES: ReadonlyArray<[number, string]> = [
  [1e18, "E"],
  [1e15, "P"],
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
];

/** Numbers from here on have no suffix, but an exponent. */
const EXPONENTIAL_FROM = 1e21;

/** Formats a count: 1,234, then 12.3k. */
export function count(value: number): string {
  if (Math.abs(value) < 10_000) return group(Math.round(value * 100) / 100);
  return short(value);
}

/** Formats a number in full, with thousands separated: 1,234,567. */
export function group(value: number): string {
  const [whole = "", fraction] = String(value).split(".");
  if (!/^-?\d+$/.test(whole)) return String(value);
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return fraction === undefined ? grouped : `${grouped}.${fraction}`;
}

/** Formats a number with at most `nDigits` significant digits and a suffix or an exponent, for axes and legends. */
export function short(value: number, nDigits = 4): string {
  if (!Number.isFinite(value)) return value > 0 ? "+Inf" : value < 0 ? "-Inf" : "NaN";
  const size = Math.abs(value);
  if (size >= EXPONENTIAL_FROM || (size !== 0 && size < 0.001)) return value.toExponential(nDigits - 2);
  for (const [unit, suffix] of SUFFIXES) {
    if (size >= unit * 0.99995) return digits(value / unit, nDigits) + suffix;
  }
  return digits(value, nDigits);
}

/** Formats a number with three digits and a unit: 640 W, 126 kW. */
export function withUnit(value: number, unit: string): string {
  return short(value, 3).replace(/[kMGTPE]?$/, (prefix) => ` ${prefix}${unit}`);
}

/** Parses a number as [`short`] writes it: `-1.5k`. Returns undefined for other texts. */
export function parseShort(text: string): number | undefined {
  const parts = /^([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)([kMGTPE]?)$/.exec(text.trim());
  if (!parts) return undefined;
  const unit = SUFFIXES.find(([, suffix]) => suffix === parts[2])?.[0] ?? 1;
  return Number(parts[1]) * unit;
}

function digits(value: number, nDigits: number): string {
  return String(Number(value.toPrecision(nDigits)));
}

/** Formats bytes in binary units: 1.5 MiB. */
export function bytes(value: number, nDigits = 3): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let unit = 0;
  let size = value;
  // 1000 KiB and more are written in the next unit.
  while (Math.abs(size) >= 999.5 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? Math.round(size) : Number(size.toPrecision(nDigits))} ${units[unit]}`;
}

/** Formats a share of 1 as a percentage. */
export function percent(share: number): string {
  const value = share * 100;
  if (value > 0 && value < 0.1) return "<0.1 %";
  return `${value !== 0 && Math.abs(value) < 9.95 ? value.toFixed(1) : Math.round(value)} %`;
}

/** Formats a measured time: 840 µs, 12.3 ms, 1.25 s, 3.5 min. */
export function seconds(value: number): string {
  if (value === 0) return "0 s";
  if (value < 0.001) return `${Math.round(value * 1e6)} µs`;
  if (value < 1) return `${Number((value * 1000).toPrecision(3))} ms`;
  if (value < 120) return `${Number(value.toPrecision(3))} s`;
  return value < 7200 ? `${Number((value / 60).toPrecision(3))} min` : `${Number((value / 3600).toPrecision(3))} h`;
}

/** Formats `n` with a noun: 1 series, 2 panels. The plural is `noun` with an s unless it is given. */
export function plural(n: number, noun: string, nouns = `${noun}s`): string {
  return `${count(n)} ${n === 1 ? noun : nouns}`;
}
