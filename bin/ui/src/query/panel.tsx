/** One panel: the editor, its controls, and the outcome of the latest run. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ApiError, isAbort, messageOf, reconnects } from "../api/client";
import { lazy } from "../app/lazy";
import { useStore } from "../parts/store";
import { download } from "../parts/view";
import { type Annotation, annotate } from "./annotation";
import { Controls } from "./controls";
import { Editor } from "./editor";
import { toCsv } from "./export";
import { remember } from "./history";
import { HistoryMenu, Start } from "./history_menu";
import { OutcomeView } from "./outcome_view";
import { EXPRS_MAX, type Panel, type Tab, exprsOf, letterOf, withExpr } from "./panel_state";
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

/** A part of an expression whose result the panel shows. */
interface Chosen {
  row: number;
  expr: string;
  /** The whole expression. */
  of: string;
}

const Share = lazy((extras) => extras.Share);
const TreeView = lazy((extras) => extras.TreeView);

/** The same list at each run, so that the editor is not updated. */
const NONE: Annotation[] = [];
const TABS: ReadonlyArray<[Tab, string]> = [["table", "Table"], ["graph", "Graph"], ["explain", "Explain"]];

export function QueryPanel({ index, count, panel, refreshSeconds, onChange, onCopy, onSpread, onRemove }: Props) {
  const exprs = exprsOf(panel);
  const exprsKey = JSON.stringify(exprs);
  const [texts, setTexts] = useState(exprs);
  const [round, setRound] = useState(0);
  const [chosen, setChosen] = useState<Chosen>();
  const isChosen = chosen !== undefined && chosen.of === exprs[chosen.row];
  const shown = isChosen ? withExpr(panel, chosen.row, chosen.expr) : panel;
  const { outcome, error, startedAt, cancel } = useRun(shown, round, refreshSeconds);
  const [formatError, setFormatError] = useState<unknown>();
  // An expression that is not written yet stays.
  useEffect(() => setTexts((old) => (old.length > exprs.length && old.slice(exprs.length).every((text) => text === "") ? [...exprs, ...old.slice(exprs.length)] : exprs)), [exprsKey]);
  useEffect(() => {
    // Links and buttons of other pages lead here, too.
    for (const expr of exprs.toReversed()) remember(expr);
  }, [exprsKey, round]);
  const change = (changes: Partial<Panel>) => onChange({ ...panel, expr: texts[0] ?? "", more: texts.slice(1).filter((text) => text.trim() !== ""), ...changes });
  const run = () => {
    setFormatError(undefined);
    setChosen(undefined);
    if (JSON.stringify(texts) === exprsKey) setRound(round + 1);
    else change({});
  };
  const runText = (expr: string) => {
    setTexts([expr]);
    change({ expr, more: [] });
  };
  const setText = (row: number, text: string) => setTexts((old) => old.map((other, i) => (i === row ? text : other)));
  const remove = (row: number) => {
    const left = texts.filter((_, i) => i !== row);
    setTexts(left);
    change({ expr: left[0] ?? "", more: left.slice(1) });
  };
  const format = () => Promise.all(texts.map(formatQuery)).then((formatted) => (setFormatError(undefined), setTexts(formatted)), setFormatError);
  const shownError = formatError ?? error;
  const annotations = useMemo(() => texts.map((text, row) => (text === exprs[row] ? annotationsOf(isChosen && chosen.row === row ? chosen.expr : text, row, outcome, shownError) : NONE)), [texts, exprsKey, chosen, outcome, shownError]);
  const warning = useEstimate(texts, panel);
  const setTab = (event: KeyboardEvent) => {
    const tab = event.altKey && !event.ctrlKey ? TABS[Number(event.code.replace("Digit", "")) - 1] : undefined;
    if (!tab) return;
    event.preventDefault();
    change({ tab: tab[0] });
  };
  const isRunning = startedAt !== undefined;
  const isEmpty = exprs.every((expr) => expr.trim() === "");
  return (
    <section class="panel" aria-label={`Query ${index + 1}`} onKeyDown={setTab}>
      <div class="panel-query">
        <div class="exprs">
          {texts.map((text, row) => (
            <div class="expr" key={row}>
              {texts.length > 1 && <span class="tag">{letterOf(row)}</span>}
              <Editor value={text} annotations={isChosen ? NONE : (annotations[row] ?? NONE)} label={`Expression ${index + 1}${row > 0 ? ` ${letterOf(row)}` : ""}`} isFirst={index === 0 && row === 0} isNew={row > 0 && text === ""} onChange={(next) => setText(row, next)} onRun={run} />
              {texts.length > 1 && <button type="button" class="quiet" aria-label={`Remove expression ${letterOf(row)}`} onClick={() => remove(row)}>×</button>}
            </div>
          ))}
        </div>
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
        {/* The same buttons at any time, or one would move under the pointer that clicks on another. */}
        <div class="panel-actions">
          <button type="button" class="quiet toggle" aria-pressed={panel.hasTree} title="Show the parts of the query with their results" onClick={() => change({ hasTree: !panel.hasTree })}>Tree</button>
          <button type="button" class="quiet" disabled={texts.length >= EXPRS_MAX} title="Show another expression in the same graph" onClick={() => setTexts([...texts, ""])}>Add query</button>
          <HistoryMenu onChoose={runText} />
          <button type="button" class="quiet" disabled={texts.every((text) => text.trim() === "")} onClick={() => void format()}>Format</button>
          <ShareMenu panel={panel} onOpen={(opened) => change(opened)} />
          <Download outcome={outcome} />
          <button type="button" class="quiet" onClick={onCopy}>Copy panel</button>
          <button type="button" class="quiet" disabled={count < 2} title="Give all panels the range and the end of this one" onClick={onSpread}>Range to all</button>
          <button type="button" class="quiet" disabled={count < 2} aria-label={`Remove query ${index + 1}`} onClick={onRemove}>Remove</button>
        </div>
      </div>
      {warning && <p class="message warning" role="status">{warning}</p>}
      {annotations.map((list, row) => <Annotations key={row} annotations={list} letter={texts.length > 1 ? letterOf(row) : undefined} />)}
      {panel.hasTree && exprs.map((expr, row) => expr.trim() !== "" && (
        <TreeView key={row} expr={expr} timeMs={panel.endMs} round={round} chosen={isChosen && chosen.row === row ? chosen.expr : undefined} onChoose={(part) => setChosen(part === undefined ? undefined : { row, expr: part, of: expr })} />
      ))}
      {isChosen && <p class="message info" role="status"><span>The result of a part of the query: <code>{chosen.expr}</code></span><button type="button" class="quiet" onClick={() => setChosen(undefined)}>Show the whole query</button></p>}
      {isEmpty ? <Start onChoose={runText} /> : <OutcomeView index={index} panel={panel} outcome={outcome} isRunning={isRunning} onChange={change} />}
    </section>
  );
}

/** A request that fails sooner was refused: the server cannot have worked on it. */
const REFUSED_MS = 2000;

/** Runs the panel's query when the panel or `round` changes, and at the refresh interval. */
function useRun(panel: Panel, round: number, refreshSeconds: number) {
  const [outcome, setOutcome] = useState<Outcome>();
  const [error, setError] = useState<unknown>();
  const [startedAt, setStartedAt] = useState<number>();
  const abort = useRef<AbortController | undefined>(undefined);
  const isRunning = useRef(false);
  /** The key of a query that may be sent again after an outage: it failed before the server can have worked on it. */
  const unsent = useRef<string | undefined>(undefined);
  /** The key of the outcome. */
  const outcomeKey = useRef<string | undefined>(undefined);
  // The mode only changes how a result is drawn, unless it shows samples.
  const { mode, yMin: _yMin, yMax: _yMax, hasTree: _hasTree, ...asked } = panel;
  const key = JSON.stringify([asked, mode === "points"]);
  const start = () => {
    const own = new AbortController();
    abort.current?.abort();
    abort.current = own;
    const isEmpty = exprsOf(panel).every((expr) => expr.trim() === "");
    isRunning.current = !isEmpty;
    const sentAt = performance.now();
    setStartedAt(isEmpty ? undefined : sentAt);
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
          unsent.current = performance.now() - sentAt < REFUSED_MS ? key : undefined;
          setError(isAbort(reason) ? new ApiError("canceled", 0, "The query was canceled.") : reason);
        }),
    );
  };
  useEffect(start, [key, round]);
  const nReconnects = useStore(reconnects);
  useEffect(() => {
    // A query that ended the server is not sent again.
    if (error instanceof ApiError && error.kind === "network" && unsent.current === key) start();
  }, [nReconnects]);
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

function annotationsOf(query: string, row: number, outcome: Outcome | undefined, error: unknown): Annotation[] {
  if (error !== undefined) return row === 0 ? [annotate("error", messageOf(error), query)] : NONE;
  const part = outcome?.parts.find((other) => other.row === row && other.expr === query);
  if (part?.error !== undefined) return [annotate("error", messageOf(part.error), query)];
  const { warnings = [], infos = [] } = part?.answer ?? {};
  if (warnings.length === 0 && infos.length === 0) return NONE;
  return [...warnings.map((text) => annotate("warning", text, query)), ...infos.map((text) => annotate("info", text, query))];
}

function Annotations({ annotations, letter }: { annotations: Annotation[]; letter?: string }) {
  return (
    <>
      {annotations.map(({ level, text }) => (
        <p key={text} class={`message ${level}`} role={level === "error" ? "alert" : "status"}>{letter !== undefined && `${letter}: `}{text}</p>
      ))}
    </>
  );
}

/** A dialog with the link of the page and saved panels. */
function ShareMenu({ panel, onOpen }: { panel: Panel; onOpen: (panel: Panel) => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [isOpen, setIsOpen] = useState(false);
  const open = () => {
    setIsOpen(true);
    dialog.current?.showModal();
  };
  return (
    <>
      <button type="button" class="quiet" onClick={open}>Share</button>
      <dialog ref={dialog} class="share" aria-label="Share and save" onClose={() => setIsOpen(false)}>
        {isOpen && <Share panel={panel} onOpen={(opened) => (dialog.current?.close(), onOpen(opened))} />}
        <form method="dialog"><button type="submit">Close</button></form>
      </dialog>
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
  const parts = outcome && outcome.kind !== "explain" ? outcome.parts : [];
  const results = parts.flatMap(({ expr, answer }) => (answer ? [{ expr, data: answer.data }] : []));
  const json = () => JSON.stringify(results.length === 1 ? results[0]?.data : results);
  return (
    <>
      <button type="button" class="quiet" disabled={results.length === 0} onClick={() => download("varve.csv", "text/csv", toCsv(...results))}>CSV</button>
      <button type="button" class="quiet" disabled={results.length === 0} onClick={() => download("varve.json", "application/json", json())}>JSON</button>
    </>
  );
}
