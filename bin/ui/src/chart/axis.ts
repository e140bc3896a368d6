/** The axis of values: its bounds, its marks and their texts. uPlot's own functions fail for values that differ by less than
 * a millionth: the bounds become equal, and the loop over the marks does not end. */

/** Maximum number of marks. */
const MARKS_MAX = 100;
const DIGITS_MAX = 15;

/** Returns bounds with a margin, which is a share of their distance and does not cross 0. */
export function boundsOf(min: number, max: number, share: number): [number, number] {
  const margin = max > min ? max * share - min * share : Math.abs(max || 1) * 0.1;
  const [low, high] = [min - margin, max + margin];
  return [min >= 0 && low < 0 ? 0 : low, max <= 0 && high > 0 && min < 0 ? 0 : high];
}

/** Returns the multiples of `increment` from `min` to `max`. */
export function multiplesOf(min: number, max: number, increment: number): number[] {
  const first = Math.ceil(min / increment);
  const n = Math.min(MARKS_MAX, Math.floor(max / increment) - first + 1);
  return Array.from({ length: n }, (_, i) => (first + i) * increment);
}

/** Returns the texts of marks, with as many digits as they need to differ. `null` is a mark without a text, as on a
 * logarithmic axis. */
export function textsOf(marks: Array<number | null>, format: (value: number, nDigits?: number) => string): string[] {
  const values = marks.filter((mark) => mark !== null);
  let nDigits = 4;
  while (nDigits < DIGITS_MAX && new Set(values.map((value) => format(value, nDigits))).size < values.length) nDigits++;
  return marks.map((mark) => (mark === null ? "" : format(mark, nDigits)));
}
