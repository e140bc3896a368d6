/** The values near the pointer: a few series, with the labels of the nearest one. A click pins them. */

import { seriesVariable } from "../app/theme";

export interface TipRow {
  /** Index of the series. */
  line: number;
  name: string;
  value: number;
  text: string;
}

export interface Tip {
  left: number;
  top: number;
  isRight: boolean;
  title: string;
  /** The nearest series first. */
  rows: TipRow[];
  /** Number of further series near the pointer. */
  more: number;
  /** Labels of the nearest series, or of an exemplar. */
  lines: string[];
}

/** Maximum number of series in a tip. */
export const TIP_SERIES_MAX = 10;
/** Significant digits of a value in a tip. */
export const TIP_DIGITS_MAX = 6;

export function TipBox({ tip, isPinned, onClose }: { tip: Tip; isPinned: boolean; onClose: () => void }) {
  const { left, top, isRight, title, rows, more, lines } = tip;
  const nearest = rows[0]?.line;
  const sorted = rows.toSorted((a, b) => b.value - a.value);
  return (
    <div class={["tip", isRight && "left", isPinned && "pinned"].filter(Boolean).join(" ")} role={isPinned ? "dialog" : undefined} aria-label={isPinned ? "Values at a time" : undefined} style={{ left: `${left}px`, top: `${top}px` }}>
      <div class="tip-head">
        <b>{title}</b>
        {isPinned && <button type="button" class="quiet" aria-label="Close the values" onClick={onClose}>×</button>}
      </div>
      {sorted.map(({ line, name, text }) => (
        <div key={line} class={line === nearest ? "tip-row nearest" : "tip-row"}>
          <i class="swatch" style={{ background: `var(${seriesVariable(line)})` }} />
          <span>{name}</span>
          <span>{text}</span>
        </div>
      ))}
      {more > 0 && <span class="muted">{more} more near the pointer</span>}
      {lines.map((line) => <span key={line}>{line}</span>)}
    </div>
  );
}
