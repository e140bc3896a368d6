/** Time, range, resolution and display of a panel. */

import { useEffect, useState } from "preact/hooks";
import { Select } from "../parts/view";
import { lazy } from "../app/lazy";
import { parseShort, short } from "../parts/format";
import { isoTime, parseDuration, parseTime, printDuration } from "../parts/time";
import type { Density, Mode, Panel } from "./panel_state";

const TimeRange = lazy((extras) => extras.TimeRange);

interface Props {
  panel: Panel;
  onChange: (changes: Partial<Panel>) => void;
}

/** Quick ranges. */
export const RANGES = ["5m", "15m", "30m", "1h", "2h", "3h", "6h", "12h", "1d", "2d", "1w", "2w", "4w"];
const MODES: Array<[Mode, string]> = [["lines", "Lines"], ["log", "Logarithmic"], ["stacked", "Stacked"], ["bars", "Bars"], ["heatmap", "Heat map"], ["points", "Raw samples"]];
const DENSITIES: Array<[Density, string]> = [["low", "100 points"], ["medium", "250 points"], ["high", "1000 points"]];

export function Controls({ panel, onChange }: Props) {
  return (
    <div class="controls">
      {panel.tab !== "table" && <RangeField panel={panel} onChange={onChange} />}
      <EndField panel={panel} onChange={onChange} />
      {panel.tab !== "table" && !(panel.tab === "graph" && panel.mode === "points") && <Resolution panel={panel} onChange={onChange} />}
      {panel.tab === "graph" && (
        <>
          <Select label="Display" isLabelHidden value={panel.mode} options={MODES} onChange={(mode) => onChange({ mode: mode as Mode })} />
          {panel.mode !== "heatmap" && <LimitFields panel={panel} onChange={onChange} />}
          {panel.mode !== "heatmap" && panel.mode !== "points" && (
            <label class="field check">
              <input type="checkbox" checked={panel.hasExemplars} onChange={(event) => onChange({ hasExemplars: event.currentTarget.checked })} />
              <span>Exemplars</span>
            </label>
          )}
        </>
      )}
    </div>
  );
}

/** The limits of the axis of values. */
function LimitFields({ panel: { yMin, yMax }, onChange }: Props) {
  const print = (limit: number | undefined) => (limit === undefined ? "" : short(limit, 6));
  const read = (isValid: (limit: number) => boolean) => (text: string) => {
    if (text.trim() === "") return NaN;
    const limit = parseShort(text);
    return limit !== undefined && isValid(limit) ? limit : undefined;
  };
  const limitOf = (value: number) => (Number.isNaN(value) ? undefined : value);
  return (
    <div class="joined" role="group" aria-label="Limits of the values">
      <TextField label="Y min" hint="Least value of the axis, for example 0 or 1.5k; empty follows the values" placeholder="Y min" value={print(yMin)} parse={read((limit) => yMax === undefined || limit < yMax)} onValue={(value) => onChange({ yMin: limitOf(value) })} size={5} />
      <TextField label="Y max" hint="Greatest value of the axis, for example 100 or 2M; empty follows the values" placeholder="Y max" value={print(yMax)} parse={read((limit) => yMin === undefined || limit > yMin)} onValue={(value) => onChange({ yMax: limitOf(value) })} size={5} />
    </div>
  );
}

function RangeField({ panel, onChange }: Props) {
  const [isOpen, setIsOpen] = useState(false);
  const step = (direction: 1 | -1) => {
    const sizes = RANGES.map((text) => parseDuration(text) ?? 0);
    const next = direction > 0 ? sizes.find((size) => size > panel.rangeMs) : sizes.findLast((size) => size < panel.rangeMs);
    if (next !== undefined) onChange({ rangeMs: next });
  };
  return (
    <div class="joined" role="group" aria-label="Range">
      <button type="button" aria-label="Shorter range" onClick={() => step(-1)}>−</button>
      <TextField
        label="Range"
        value={printDuration(panel.rangeMs)}
        list="ranges"
        parse={positiveDuration}
        onValue={(rangeMs) => onChange({ rangeMs })}
        size={6}
      />
      <datalist id="ranges">{RANGES.map((text) => <option key={text} value={text} />)}</datalist>
      <button type="button" aria-label="Longer range" onClick={() => step(1)}>+</button>
      <button type="button" class="opener" aria-label="Choose a time range" title="Quick ranges, and from and to" aria-expanded={isOpen} onClick={() => setIsOpen(!isOpen)}>▾</button>
      {isOpen && <TimeRange rangeMs={panel.rangeMs} endMs={panel.endMs} onChange={onChange} onClose={() => setIsOpen(false)} />}
    </div>
  );
}

function EndField({ panel, onChange }: Props) {
  const noun = panel.tab === "table" ? "time" : "end";
  const shift = (direction: 1 | -1) => onChange({ endMs: (panel.endMs ?? Date.now()) + (direction * panel.rangeMs) / 2 });
  return (
    <div class="joined" role="group" aria-label={`Evaluation ${noun}`}>
      <button type="button" aria-label={`Earlier ${noun}`} onClick={() => shift(-1)}>‹</button>
      {panel.endMs === undefined ? (
        <button type="button" class="now" title={`Choose the ${noun}`} onClick={() => onChange({ endMs: Math.floor(Date.now() / 1000) * 1000 })}>Now</button>
      ) : (
        <>
          <TextField
            label={`Evaluation ${noun}`}
            hint="A time such as 2026-11-23T14:05:09Z, or -1h"
            value={isoTime(panel.endMs)}
            parse={(text) => parseTime(text, Date.now())}
            onValue={(endMs) => onChange({ endMs })}
            size={22}
          />
          <button type="button" aria-label="Back to now" title="Back to now" onClick={() => onChange({ endMs: undefined })}>×</button>
        </>
      )}
      <button type="button" aria-label={`Later ${noun}`} disabled={panel.endMs === undefined} onClick={() => shift(1)}>›</button>
    </div>
  );
}

function Resolution({ panel, onChange }: Props) {
  const isFixed = panel.stepMs !== undefined;
  const options: Array<[string, string]> = [...DENSITIES, ["fixed", "Fixed step"]];
  const choose = (choice: string) =>
    onChange(choice === "fixed" ? { stepMs: 15_000 } : { stepMs: undefined, density: choice as Density });
  return (
    <div class="joined" role="group" aria-label="Resolution">
      <Select label="Resolution" isLabelHidden value={isFixed ? "fixed" : panel.density} options={options} onChange={choose} />
      {isFixed && (
        <TextField label="Step" value={printDuration(panel.stepMs ?? 0)} parse={positiveDuration} onValue={(stepMs) => onChange({ stepMs })} size={5} />
      )}
    </div>
  );
}

function positiveDuration(text: string): number | undefined {
  const ms = parseDuration(text);
  return ms !== undefined && ms > 0 ? ms : undefined;
}

interface TextFieldProps {
  label: string;
  value: string;
  hint?: string;
  placeholder?: string;
  list?: string;
  size: number;
  parse: (text: string) => number | undefined;
  onValue: (value: number) => void;
}

/** A field for a number above 0. Its text takes effect on Enter, or when the field loses the focus. */
function TextField({ label, hint = `${label}, for example 1h30m`, placeholder, value, list, size, parse, onValue }: TextFieldProps) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  const parsed = parse(text);
  const commit = () => {
    if (parsed !== undefined && text !== value) onValue(parsed);
    else setText(value);
  };
  return (
    <input
      type="text"
      aria-label={label}
      title={hint}
      placeholder={placeholder}
      list={list}
      size={size}
      spellcheck={false}
      aria-invalid={parsed === undefined}
      value={text}
      onInput={(event) => setText(event.currentTarget.value)}
      onBlur={commit}
      onKeyDown={(event) => event.key === "Enter" && commit()}
    />
  );
}
