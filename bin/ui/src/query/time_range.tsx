/** The choice of a time range: quick ranges that end now, and two times. */

import { useEffect, useRef, useState } from "preact/hooks";
import { isoTime, parseDateTime, parseDuration, parseTime, printDuration, toInput } from "../parts/time";
import { RANGES } from "./controls";

interface Props {
  rangeMs: number;
  endMs?: number;
  onChange: (changes: { rangeMs: number; endMs: number | undefined }) => void;
  onClose: () => void;
}

export function TimeRange({ rangeMs, endMs, onChange, onClose }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const end = endMs ?? Math.floor(Date.now() / 1000) * 1000;
  const [from, setFrom] = useState(isoTime(end - rangeMs));
  const [to, setTo] = useState(endMs === undefined ? "now" : isoTime(end));
  const [error, setError] = useState("");
  useEffect(() => {
    const opener = document.activeElement as HTMLElement | null;
    box.current?.querySelector("button")?.focus();
    const onPointerDown = (event: PointerEvent) => {
      const isInside = (event.target as Element).closest?.(".time-range, .opener");
      if (!isInside) onClose();
    };
    addEventListener("pointerdown", onPointerDown);
    return () => {
      removeEventListener("pointerdown", onPointerDown);
      if (box.current?.contains(document.activeElement)) opener?.focus();
    };
  }, []);
  const choose = (text: string) => {
    onChange({ rangeMs: parseDuration(text) ?? rangeMs, endMs: undefined });
    onClose();
  };
  const apply = (event: Event) => {
    event.preventDefault();
    const now = Date.now();
    const [fromMs, toMs] = [parseTime(from, now), parseTime(to, now)];
    if (fromMs === undefined || toMs === undefined) return setError(`${fromMs === undefined ? "From" : "To"} is no time. Write 2026-11-23T14:05:09Z, now or -1h.`);
    if (fromMs >= toMs) return setError("From must be before To.");
    onChange({ rangeMs: toMs - fromMs, endMs: to.trim() === "now" ? undefined : toMs });
    onClose();
  };
  return (
    <div class="time-range" ref={box} role="dialog" aria-label="Time range" onKeyDown={(event) => event.key === "Escape" && onClose()}>
      <div class="quick-ranges" role="group" aria-label="Quick ranges">
        {RANGES.map((text) => <button key={text} type="button" aria-pressed={endMs === undefined && printDuration(rangeMs) === text} onClick={() => choose(text)}>Last {text}</button>)}
      </div>
      <form onSubmit={apply}>
        <TimeField label="From" value={from} onValue={setFrom} />
        <TimeField label="To" value={to} onValue={setTo} />
        {error !== "" && <p class="message error" role="alert">{error}</p>}
        <button type="submit" class="primary">Apply</button>
      </form>
    </div>
  );
}

/** A text field for a time, with the browser's calendar. */
function TimeField({ label, value, onValue }: { label: string; value: string; onValue: (value: string) => void }) {
  const calendar = useRef<HTMLInputElement>(null);
  const ms = parseTime(value, Date.now());
  const pick = (text: string) => {
    const picked = parseDateTime(text);
    if (picked !== undefined) onValue(isoTime(picked));
  };
  return (
    <div class="joined time-field">
      <label class="field"><span>{label}</span><input type="text" spellcheck={false} autocomplete="off" size={24} aria-invalid={ms === undefined} value={value} onInput={(event) => onValue(event.currentTarget.value)} /></label>
      <button type="button" aria-label={`Pick ${label} in a calendar`} title="Calendar" onClick={() => calendar.current?.showPicker()}>Pick</button>
      <input ref={calendar} class="calendar" type="datetime-local" step={1} tabIndex={-1} aria-hidden="true" value={toInput(ms ?? Date.now())} onChange={(event) => pick(event.currentTarget.value)} />
    </div>
  );
}
