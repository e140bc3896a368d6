/** The editor with PromQL's highlighting, completion and errors. Loaded when the page is idle: it is larger than the rest.
 *
 * It lives in a shadow root, where CodeMirror adopts its style sheets: the page's policy allows no inline styles. */

import { acceptCompletion, autocompletion, closeBrackets, closeBracketsKeymap, closeCompletion, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, insertNewlineAndIndent } from "@codemirror/commands";
import { HighlightStyle, bracketMatching, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { type Diagnostic, setDiagnostics } from "@codemirror/lint";
import { EditorState, Prec } from "@codemirror/state";
import { EditorView, keymap, placeholder } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { PromQLExtension } from "@prometheus-io/codemirror-promql";
import type { Annotation } from "../query/annotation";
import type { CompletionClient } from "../query/completion";
import { historyCompletion } from "./history_completion";

export interface EditorOptions {
  text: string;
  label: string;
  selection: [from: number, to: number];
  client: CompletionClient;
  /** Queries that ran before, for completion. */
  history: () => string[];
  onChange: (text: string) => void;
  onRun: () => void;
}

export interface EditorHandle {
  setText(text: string): void;
  setAnnotations(annotations: Annotation[]): void;
  focus(): void;
  destroy(): void;
}

/** Creates an editor in `host`. */
export function createEditor(host: HTMLElement, options: EditorOptions): EditorHandle {
  const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(":host > *, textarea { box-sizing: border-box } slot { display: none }");
  root.adoptedStyleSheets = [sheet];
  const promql = new PromQLExtension().activateCompletion(true).activateLinter(false).setComplete({ remote: options.client });
  const parent = document.createElement("div");
  root.append(parent);
  const view = new EditorView({ parent, root, state: createState(options, promql) });
  return {
    setText: (text) => {
      if (view.state.doc.toString() === text) return;
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } });
    },
    setAnnotations: (annotations) => view.dispatch(setDiagnostics(view.state, annotations.flatMap((one) => diagnostic(one, view.state)))),
    focus: () => view.focus(),
    destroy: () => {
      view.destroy();
      promql.destroy();
      parent.remove();
    },
  };
}

function createState(options: EditorOptions, promql: PromQLExtension): EditorState {
  const run = (view: EditorView) => {
    closeCompletion(view);
    options.onRun();
    return true;
  };
  return EditorState.create({
    doc: options.text,
    selection: { anchor: Math.min(options.selection[0], options.text.length), head: Math.min(options.selection[1], options.text.length) },
    extensions: [
      history(),
      EditorView.lineWrapping,
      bracketMatching(),
      closeBrackets(),
      indentOnInput(),
      autocompletion({ maxRenderedOptions: 200 }),
      placeholder("PromQL, for example sum by (job) (rate(http_requests_total[5m]))"),
      EditorView.contentAttributes.of({ "aria-label": options.label, spellcheck: "false", autocapitalize: "off" }),
      // On blur, CodeMirror closes only an open completion. One that still loads would open later and cover the result.
      EditorView.domEventHandlers({ blur: (_, view) => void closeCompletion(view) }),
      promql.asExtension(),
      EditorState.languageData.of(() => [{ autocomplete: historyCompletion(options.history) }]),
      syntaxHighlighting(colors),
      style,
      Prec.highest(
        keymap.of([
          // An open completion takes the first Escape.
          { key: "Escape", run: (view) => (view.contentDOM.blur(), false) },
          { key: "Tab", run: acceptCompletion },
        ]),
      ),
      // Below the keys of an open completion, above those that insert a line.
      Prec.high(keymap.of([{ key: "Shift-Enter", run: insertNewlineAndIndent }, { key: "Mod-Enter", run }])),
      keymap.of([...closeBracketsKeymap, ...completionKeymap, { key: "Enter", run }, ...defaultKeymap, ...historyKeymap]),
      EditorView.updateListener.of((update) => {
        if (update.docChanged) options.onChange(update.state.doc.toString());
      }),
    ],
  });
}

function diagnostic({ level, text, position }: Annotation, state: EditorState): Diagnostic[] {
  if (position === undefined) return [];
  const from = Math.min(position, state.doc.length);
  const word = state.wordAt(from);
  const to = Math.max(from, word?.to ?? Math.min(from + 1, state.doc.length));
  return [{ from: from === to ? Math.max(0, from - 1) : from, to, severity: level, message: text }];
}

const colors = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.modifier], color: "var(--code-keyword)" },
  { tag: [tags.function(tags.variableName)], color: "var(--code-function)" },
  { tag: [tags.string], color: "var(--code-string)" },
  { tag: [tags.number, tags.integer, tags.float], color: "var(--code-number)" },
  { tag: [tags.labelName], color: "var(--code-label)" },
  { tag: [tags.comment], color: "var(--text-muted)", fontStyle: "italic" },
  { tag: [tags.invalid], color: "var(--error)" },
]);

const style = EditorView.theme({
  "&": { fontSize: "13px", color: "var(--text)" },
  "&.cm-focused": { outline: "none" },
  ".cm-content": { fontFamily: "var(--mono)", padding: "7px 0", caretColor: "var(--text)" },
  ".cm-line": { padding: "0 8px" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-placeholder": { color: "var(--text-muted)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground, .cm-content ::selection": { background: "var(--selection)" },
  ".cm-matchingBracket, &.cm-focused .cm-matchingBracket": { background: "var(--selection)", outline: "none" },
  ".cm-tooltip": { background: "var(--surface)", color: "var(--text)", border: "1px solid var(--border-strong)", borderRadius: "4px", boxShadow: "var(--shadow)" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)", fontSize: "12px", maxHeight: "18em" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: "2px 8px" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { background: "var(--accent)", color: "var(--on-accent)" },
  ".cm-completionDetail": { color: "var(--text-muted)", fontStyle: "normal", marginLeft: "1em" },
  "li[aria-selected] .cm-completionDetail": { color: "inherit" },
  ".cm-completionMatchedText": { textDecoration: "none", fontWeight: "600" },
  ".cm-completionIcon": { display: "none" },
  ".cm-completionInfo": { maxWidth: "28em" },
  ".cm-diagnostic": { fontFamily: "var(--font)", fontSize: "12px" },
  ".cm-diagnostic-error": { borderLeftColor: "var(--error)" },
  ".cm-diagnostic-warning": { borderLeftColor: "var(--warning)" },
  ".cm-diagnostic-info": { borderLeftColor: "var(--accent)" },
});
