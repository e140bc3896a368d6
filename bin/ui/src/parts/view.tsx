/** Small parts that all pages share: a page's frame, figures, errors, links to queries. */

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { messageOf } from "../api/client";
import { pageUrl } from "../app/router";
import type { Loaded } from "./load";
import { ago, dateTime } from "./time";

/** A page: title, controls beside the title, content. */
export function Page({ title, about, controls, children }: { title: string; about?: ComponentChildren; controls?: ComponentChildren; children: ComponentChildren }) {
  return (
    <main class="page" id="main" tabIndex={-1}>
      <header class="page-head">
        <h1>{title}</h1>
        {controls && <div class="page-controls">{controls}</div>}
        {about && <p class="about">{about}</p>}
      </header>
      {children}
    </main>
  );
}

/** A part of a page with a heading. */
export function Section({ title, note, children }: { title: string; note?: ComponentChildren; children: ComponentChildren }) {
  return (
    <section class="section">
      <h2>{title}</h2>
      {note && <p class="about">{note}</p>}
      {children}
    </section>
  );
}

/**
 * Shows loaded data, an error, or a note while data load. Old data remain visible beside an error, but not an empty list:
 * it would say that there is nothing, which is unknown by now.
 */
export function Show<T>({ loaded, children }: { loaded: Loaded<T>; children: (data: T) => ComponentChildren }) {
  const { data, error, isLoading } = loaded;
  const isUnknown = error !== undefined && Array.isArray(data) && data.length === 0;
  return (
    <>
      {error !== undefined && <ErrorBox error={error} onRetry={loaded.reload} />}
      {data !== undefined ? !isUnknown && children(data) : error === undefined && isLoading && <p class="empty" role="status">Loading…</p>}
    </>
  );
}

/** An error, as the server worded it. */
export function ErrorBox({ error, onRetry }: { error: unknown; onRetry?: () => void }) {
  return (
    <div class="message error" role="alert">
      <span>{messageOf(error)}</span>
      {onRetry && <button type="button" class="quiet" onClick={onRetry}>Try again</button>}
    </div>
  );
}

/** A list of figures with their names. */
export function Figures({ items }: { items: Array<[name: string, value: ComponentChildren, hint?: string]> }) {
  return (
    <dl class="figures">
      {items.map(([name, value, hint]) => (
        <div key={name} title={hint}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** A name in a table. It may break after its separators, so that no line breaks inside of a word. */
export function Name({ text }: { text: string }) {
  return <code>{text.split(/(?<=\w[_:./-])(?=.)/).map((part, i) => (i === 0 ? part : [<wbr key={i} />, part]))}</code>;
}

/** A link that opens an expression on the query page, with a range that ends now or at `endMs`. */
export function QueryLink({ expr, tab = "graph", range, endMs, children, title }: { expr: string; tab?: string; range?: string; endMs?: number; children: ComponentChildren; title?: string }) {
  const params: Record<string, string> = { "g0.expr": expr, "g0.tab": tab };
  if (range) params["g0.range_input"] = range;
  if (endMs !== undefined) params["g0.end_input"] = new Date(endMs).toISOString();
  return <a data-page href={pageUrl("query", params)} title={title ?? expr}>{children}</a>;
}

/** A link to another page, or to another view of this one: `isCurrent` if it is shown. */
export function PageLink({ page, params, children, title, isCurrent }: { page: string; params?: Record<string, string>; children: ComponentChildren; title?: string; isCurrent?: boolean }) {
  return <a data-page href={pageUrl(page, params)} title={title} aria-current={isCurrent ? "page" : undefined}>{children}</a>;
}

/** Returns the URL that a text is, if it is one of http or https: a click on another one could run a script. */
export function webUrl(text: string): string | undefined {
  if (!/^https?:\/\//i.test(text) || !URL.canParse(text)) return undefined;
  return new URL(text).href;
}

/** A text, or a link if the whole text is a URL. */
export function LinkedText({ text }: { text: string }) {
  const url = webUrl(text.trim());
  return url === undefined ? <>{text}</> : <a href={url} target="_blank" rel="noopener noreferrer">{text}</a>;
}

/** The age of a time, with the time itself as a hint. */
export function Ago({ ms }: { ms: number }) {
  return ms > 0 ? <time dateTime={new Date(ms).toISOString()} title={dateTime(ms)}>{ago(ms)}</time> : <span class="muted">never</span>;
}

/** A select box with a label. */
export function Select({ label, value, options, onChange, isLabelHidden }: { label: string; value: string; options: Array<[value: string, text: string]>; onChange: (value: string) => void; isLabelHidden?: boolean }) {
  return (
    <label class="field">
      <span class={isLabelHidden ? "hidden" : ""}>{label}</span>
      <select value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {options.map(([option, text]) => <option key={option} value={option}>{text}</option>)}
      </select>
    </label>
  );
}

const COPIED_MS = 1500;

/** Content with a button that copies a text. */
export function Copied({ text, children }: { text: string; children: ComponentChildren }) {
  const [isDone, setIsDone] = useState<boolean>();
  const copy = () =>
    copyText(text).then((done) => {
      setIsDone(done);
      // Why nothing was copied stays until the next attempt.
      if (done) setTimeout(() => setIsDone(undefined), COPIED_MS);
    });
  return (
    <div class="copied">
      {children}
      <button type="button" class="quiet" onClick={() => void copy()}>{isDone ? "Copied" : "Copy"}</button>
      <span class="muted" role="status">{isDone === false && "The browser does not allow the page to copy. Select the text and copy it."}</span>
    </div>
  );
}

/** Copies a text. Returns `false` if the browser forbids it. A page over plain HTTP has no clipboard, but a selection. */
export async function copyText(text: string): Promise<boolean> {
  try {
    if (!navigator.clipboard) return copySelected(text);
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

function copySelected(text: string): boolean {
  const focused = document.activeElement;
  const area = document.createElement("textarea");
  area.value = text;
  // An open dialog makes everything outside of it inert: it cannot be selected.
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  try {
    area.select();
    return document.execCommand("copy");
  } finally {
    area.remove();
    if (focused instanceof HTMLElement) focused.focus();
  }
}

/** Offers text as a file. */
export function download(name: string, type: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
