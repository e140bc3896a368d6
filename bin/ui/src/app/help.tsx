/** Keyboard shortcuts of all pages, and the dialog that lists them. */

import { useEffect, useRef } from "preact/hooks";
import { PAGES } from "./pages";
import { homeOf, navigate } from "./router";

const KEYS: ReadonlyArray<[keys: string, meaning: string]> = [
  ["/", "Go to the query, or to the search box of the page"],
  ["Enter, Ctrl+Enter", "Run the query; Shift+Enter starts a new line"],
  ["Ctrl+Space", "Suggest completions; Tab or Enter takes one"],
  ["Escape", "Close completions, leave the editor, close a dialog"],
  ["Alt+1, 2, 3", "Table, graph, explain"],
  ["?", "This list"],
];

function isTyping(event: KeyboardEvent): boolean {
  const target = event.composedPath()[0];
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

/** Attempts to focus the query after its page was opened, and the time between two. */
const FOCUS_ATTEMPTS = 20;
const FOCUS_RETRY_MS = 50;

/** Focuses the search box of the page, or the query, which a page without a search box opens. */
function focusSearch(nAttempts = 0): void {
  const target = document.querySelector<HTMLElement>("[data-editor], main input[type=search]");
  if (!target && nAttempts === 0) {
    navigate(homeOf("query"));
    nAttempts = FOCUS_ATTEMPTS;
  }
  // Its component may not listen yet.
  if (nAttempts > 1) setTimeout(() => document.activeElement === document.body && focusSearch(nAttempts - 1), FOCUS_RETRY_MS);
  if (target?.dataset["editor"] !== undefined) target.dispatchEvent(new Event("varve-focus"));
  else target?.focus();
}

export function Help() {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    let isAfterG = false;
    const onKey = (event: KeyboardEvent) => {
      if (isTyping(event) || event.ctrlKey || event.metaKey || event.altKey) return;
      const page = isAfterG ? PAGES.find(({ key }) => key === event.key) : undefined;
      isAfterG = !page && event.key === "g";
      if (page) navigate(homeOf(page.id));
      else if (event.key === "?") dialog.current?.showModal();
      else if (event.key === "/") focusSearch();
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  return (
    <dialog ref={dialog} aria-labelledby="help-title">
      <h2 id="help-title">Keyboard</h2>
      <table class="keys">
        <tbody>
          {KEYS.map(([keys, meaning]) => <tr key={keys}><th scope="row"><kbd>{keys}</kbd></th><td>{meaning}</td></tr>)}
          {PAGES.map(({ key, title }) => <tr key={key}><th scope="row"><kbd>g {key}</kbd></th><td>{title}</td></tr>)}
        </tbody>
      </table>
      <form method="dialog"><button type="submit">Close</button></form>
    </dialog>
  );
}
