/** Time, range, resolution and display of a panel. */

import { useEffect, useState } from "preact/hooks";
import { Select } from "../parts/view";
import { parseDateTime, parseDuration, printDuration, toInput } from "../parts/time";
import type { Density, Mode, Panel } from "./panel_state";

interface Props {
  panel: Panel;
  onChange: (changes: Partial<Panel>) => void;
}

const RANGES = ["5m", "15m", "30m", "1h", "2h", "6h", "12h", "1d", "2d", "1w", "2w", "4w"];
const MODES: Array<[Mode, string]> = [["lines", "Lines"], ["log", "Logarithmic"], ["stacked", "Stacked"], ["bars", "Bars"], ["heatmap", "Heat map"]];
const DENSITIES: Array<[Density, string]> = [["low", "100 points"], ["medium", "250 points"], ["high", "1000 points"]];

export function Controls({ panel, onChange }: Props) {
  return (
    <div class="controls">
      {panel.tab !== "table" && <RangeField panel={panel} onChange={onChange} />}
      <EndField panel={panel} onChange={onChange} />
      {panel.tab !== "table" && <Resolution panel={panel} onChange={onChange} />}
      {panel.tab === "graph" && (
        <>
          <Select label="Display" isLabelHidden value={panel.mode} options={MODES} onChange={(mode) => onChange({ mode: mode as Mode })} />
          {panel.mode !== "heatmap" && (
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

function RangeField({ panel, onChange }: Props) {
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
        parse={(text) => parseDuration(text)}
        onValue={(rangeMs) => onChange({ rangeMs })}
        size={6}
      />
      <datalist id="ranges">{RANGES.map((text) => <option key={text} value={text} />)}</datalist>
      <button type="button" aria-label="Longer range" onClick={() => step(1)}>+</button>
    </div>
  );
}

function EndField({ panel, onChange }: Props) {
  const noun = panel.tab === "table" ? "time" : "end";
  const shift = (direction: 1 | -1) => onChange({ endMs: (panel.endMs ?? Date.now()) + (direction * panel.rangeMs) / 2 });
  const pick = (text: string) => {
    const ms = parseDateTime(text);
    if (ms !== undefined) onChange({ endMs: ms });
  };
  return (
    <div class="joined" role="group" aria-label={`Evaluation ${noun}`}>
      <button type="button" aria-label={`Earlier ${noun}`} onClick={() => shift(-1)}>‹</button>
      {panel.endMs === undefined ? (
        <button type="button" class="now" title={`Choose the ${noun}`} onClick={() => onChange({ endMs: Math.floor(Date.now() / 1000) * 1000 })}>Now</button>
      ) : (
        <>
          <input
            type="datetime-local"
            step={1}
            aria-label={`Evaluation ${noun}`}
            value={toInput(panel.endMs)}
            onChange={(event) => pick(event.currentTarget.value)}
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
        <TextField label="Step" value={printDuration(panel.stepMs ?? 0)} parse={(text) => parseDuration(text)} onValue={(stepMs) => onChange({ stepMs })} size={5} />
      )}
    </div>
  );
}

interface TextFieldProps {
  label: string;
  value: string;
  list?: string;
  size: number;
  parse: (text: string) => number | undefined;
  onValue: (value: number) => void;
}

/** A field for a number above 0. Its text takes effect on Enter, or when the field loses the focus. */
function TextField({ label, value, list, size, parse, onValue }: TextFieldProps) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  const parsed = parse(text);
  const isValid = parsed !== undefined && parsed > 0;
  const commit = () => {
    if (isValid && text !== value) onValue(parsed);
    else setText(value);
  };
  return (
    <input
      type="text"
      aria-label={label}
      title={`${label}, for example 1h30m`}
      list={list}
      size={size}
      spellcheck={false}
      aria-invalid={!isValid}
      value={text}
      onInput={(event) => setText(event.currentTarget.value)}
      onBlur={commit}
      onKeyDown={(event) => event.key === "Enter" && commit()}
    />
  );
}
