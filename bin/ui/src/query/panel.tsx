/** One panel: the editor, its controls, and the outcome of the latest run. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ApiError, isAbort, messageOf, returns } from "../api/client";
import { useStore } from "../parts/store";
import { download } from "../parts/view";
import { type Annotation, annotate } from "./annotation";
import { Controls } from "./controls";
import { Editor } from "./editor";
import { toCsv } from "./export";
import { remember } from "./history";
import { HistoryMenu, Start } from "./history_menu";
import { OutcomeView } from "./outcome_view";
import type { Panel, Tab } from "./panel_state";
import { type Outcome, formatQuery, runPanel } from "./run";
import { useEstimate } from "./use_estimate";

interface Props {
  index: number;
  count: number;
  panel: Panel;
  refreshSeconds: number;
  onChange: (panel: Panel) => void;
  onCopy: () => void;
  /** Gives all panels the range of this one. */
  onSpread: () => void;
  onRemove: () => void;
}

/** The same list at each run, so that the editor is not updated. */
const NONE: Annotation[] = [];
const TABS: ReadonlyArray<[Tab, string]> = [["table", "Table"], ["graph", "Graph"], ["explain", "Explain"]];

export function QueryPanel({ index, count, panel, refreshSeconds, onChange, onCopy, onSpread, onRemove }: Props) {
  const [text, setText] = useState(panel.expr);
  const [round, setRound] = useState(0);
  const { outcome, error, startedAt, cancel } = useRun(panel, round, refreshSeconds);
  const [formatError, setFormatError] = useState<unknown>();
  useEffect(() => setText(panel.expr), [panel.expr]);
  const change = (changes: Partial<Panel>) => onChange({ ...panel, expr: text, ...changes });
  const run = () => {
    remember(text);
    setFormatError(undefined);
    if (text === panel.expr) setRound(round + 1);
    else change({});
  };
  const runText = (expr: string) => {
    setText(expr);
    remember(expr);
    change({ expr });
  };
  const shownError = formatError ?? error;
  const annotations = useMemo(() => (text === panel.expr ? annotationsOf(panel.expr, outcome, shownError) : NONE), [text, panel.expr, outcome, shownError]);
  const warning = useEstimate(text, panel);
  const setTab = (event: KeyboardEvent) => {
    const tab = event.altKey && !event.ctrlKey ? TABS[Number(event.code.replace("Digit", "")) - 1] : undefined;
    if (!tab) return;
    event.preventDefault();
    change({ tab: tab[0] });
  };
  const isRunning = startedAt !== undefined;
  return (
    <section class="panel" aria-label={`Query ${index + 1}`} onKeyDown={setTab}>
      <div class="panel-query">
        <Editor value={text} annotations={annotations} label={`Expression ${index + 1}`} isFirst={index === 0} onChange={setText} onRun={run} />
        {isRunning ? (
          <button type="button" class="primary cancel" onClick={cancel}>Cancel <Elapsed since={startedAt} /></button>
        ) : (
          <button type="button" class="primary" onClick={run}>Run</button>
        )}
      </div>
      <div class="panel-bar">
        <div class="tabs" role="group" aria-label="View">
          {TABS.map(([tab, title]) => (
            <button key={tab} type="button" aria-pressed={panel.tab === tab} onClick={() => change({ tab })}>{title}</button>
          ))}
        </div>
        <Controls panel={panel} onChange={change} />
        <div class="panel-actions">
          <HistoryMenu onChoose={runText} />
          <button type="button" class="quiet" disabled={text.trim() === ""} onClick={() => formatQuery(text).then((formatted) => (setFormatError(undefined), setText(formatted)), setFormatError)}>Format</button>
          <Download outcome={outcome} />
          <button type="button" class="quiet" onClick={onCopy}>Copy panel</button>
          {count > 1 && <button type="button" class="quiet" title="Give all panels the range and the end of this one" onClick={onSpread}>Range to all</button>}
          {count > 1 && <button type="button" class="quiet" aria-label={`Remove query ${index + 1}`} onClick={onRemove}>Remove</button>}
        </div>
      </div>
      {warning && <p class="message warning" role="status">{warning}</p>}
      <Annotations annotations={annotations} />
      {panel.expr !== "" && (
        <OutcomeView index={index} panel={panel} outcome={outcome} isRunning={isRunning} onChange={change} />
      )}
      {panel.expr === "" && <Start onChoose={runText} />}
    </section>
  );
}

/** Runs the panel's query when the panel or `round` changes, and at the refresh interval. */
function useRun(panel: Panel, round: number, refreshSeconds: number) {
  const [outcome, setOutcome] = useState<Outcome>();
  const [error, setError] = useState<unknown>();
  const [startedAt, setStartedAt] = useState<number>();
  const abort = useRef<AbortController | undefined>(undefined);
  const isRunning = useRef(false);
  /** The key of the outcome. */
  const outcomeKey = useRef<string | undefined>(undefined);
  // The mode only changes how a result is drawn.
  const { mode: _mode, ...asked } = panel;
  const key = JSON.stringify(asked);
  const start = () => {
    const own = new AbortController();
    abort.current?.abort();
    abort.current = own;
    const isEmpty = panel.expr.trim() === "";
    isRunning.current = !isEmpty;
    setStartedAt(isEmpty ? undefined : performance.now());
    if (isEmpty) {
      setOutcome(undefined);
      setError(undefined);
      return;
    }
    // All changes of state in one task, so that the panel is rendered once.
    const end = (change: () => void) => {
      if (abort.current !== own) return;
      change();
      isRunning.current = false;
      setStartedAt(undefined);
    };
    runPanel(panel, own.signal).then(
      (done) =>
        end(() => {
          setOutcome(done);
          outcomeKey.current = key;
          setError(undefined);
        }),
      (reason: unknown) =>
        end(() => {
          // A failed refresh keeps what is shown.
          if (outcomeKey.current !== key) setOutcome(undefined);
          setError(isAbort(reason) ? new ApiError("canceled", 0, "The query was canceled.") : reason);
        }),
    );
  };
  useEffect(start, [key, round]);
  const nReturns = useStore(returns);
  useEffect(() => {
    // What failed while the server could not be reached.
    if (error instanceof ApiError && error.kind === "network") start();
  }, [nReturns]);
  useEffect(() => () => abort.current?.abort(), []);
  useEffect(() => {
    if (!(refreshSeconds > 0)) return;
    const timer = setInterval(() => {
      // A query that takes longer than the interval must be able to end.
      if (!document.hidden && panel.endMs === undefined && !isRunning.current) start();
    }, refreshSeconds * 1000);
    return () => clearInterval(timer);
  }, [refreshSeconds, key]);
  return { outcome, error, startedAt, cancel: () => abort.current?.abort() };
}

function annotationsOf(query: string, outcome: Outcome | undefined, error: unknown): Annotation[] {
  if (error !== undefined) return [annotate("error", messageOf(error), query)];
  const { warnings = [], infos = [] } = outcome?.answer ?? {};
  if (warnings.length === 0 && infos.length === 0) return NONE;
  return [...warnings.map((text) => annotate("warning", text, query)), ...infos.map((text) => annotate("info", text, query))];
}

function Annotations({ annotations }: { annotations: Annotation[] }) {
  return (
    <>
      {annotations.map(({ level, text }) => (
        <p key={text} class={`message ${level}`} role={level === "error" ? "alert" : "status"}>{text}</p>
      ))}
    </>
  );
}

function Elapsed({ since }: { since: number }) {
  const [seconds, setSeconds] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => setSeconds(Math.floor((performance.now() - since) / 1000)), 250);
    return () => clearInterval(timer);
  }, [since]);
  return seconds > 0 ? <span>{seconds} s</span> : null;
}

function Download({ outcome }: { outcome?: Outcome }) {
  const isData = outcome?.kind === "table" || outcome?.kind === "graph";
  if (!isData) return null;
  const { data } = outcome.answer;
  return (
    <>
      <button type="button" class="quiet" onClick={() => download("varve.csv", "text/csv", toCsv(data))}>CSV</button>
      <button type="button" class="quiet" onClick={() => download("varve.json", "application/json", JSON.stringify(data))}>JSON</button>
    </>
  );
}
