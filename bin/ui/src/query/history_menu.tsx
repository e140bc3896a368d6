/** Earlier queries: in a dialog, and at the start of a panel. */

import { useRef, useState } from "preact/hooks";
import { useStore } from "../parts/store";
import { Search } from "../parts/table";
import { PageLink } from "../parts/view";
import { history } from "./history";

export function HistoryMenu({ onChoose }: { onChoose: (query: string) => void }) {
  const queries = useStore(history);
  const dialog = useRef<HTMLDialogElement>(null);
  const [find, setFind] = useState("");
  const [isOpen, setIsOpen] = useState(false);
  const open = () => {
    setIsOpen(true);
    dialog.current?.showModal();
  };
  const found = queries.filter((query) => query.toLowerCase().includes(find.toLowerCase()));
  return (
    <>
      <button type="button" class="quiet" onClick={open}>History</button>
      <dialog ref={dialog} class="history" aria-label="Earlier queries" onClose={() => setIsOpen(false)}>
        <div class="table-tools">
          <h2>Earlier queries</h2>
          <Search value={find} onInput={setFind} label="Search earlier queries" />
        </div>
        {found.length === 0 && <p class="empty">{queries.length === 0 ? "No query ran in this browser yet." : "No earlier query contains this text."}</p>}
        <ul>
          {isOpen && found.map((query) => (
            <li key={query}>
              <button
                type="button"
                onClick={() => {
                  dialog.current?.close();
                  onChoose(query);
                }}
              >
                <code>{query}</code>
              </button>
            </li>
          ))}
        </ul>
        <form method="dialog">
          <button type="submit">Close</button>
          {queries.length > 0 && <button type="button" class="quiet" onClick={() => history.set([])}>Clear</button>}
        </form>
      </dialog>
    </>
  );
}

/** Queries for a first look at any server. */
const EXAMPLES: ReadonlyArray<[query: string, meaning: string]> = [
  ["topk(10, count by (__name__) ({__name__!=\"\"}))", "the metrics with the most series"],
  ["count by (job) ({__name__!=\"\"})", "series of each job"],
  ["up == 0", "targets that are down"],
];
const RECENT_MAX = 8;

/** What a panel without a query offers: earlier queries, or examples. */
export function Start({ onChoose }: { onChoose: (query: string) => void }) {
  const queries = useStore(history);
  const offered = queries.length > 0 ? queries.slice(0, RECENT_MAX).map((query) => [query, ""] as const) : EXAMPLES;
  return (
    <div class="start">
      <p class="muted">Enter an expression and press Enter. <kbd>Ctrl+Space</kbd> suggests metrics, labels and functions; <kbd>?</kbd> lists all keys. <PageLink page="explore">Browse the metrics</PageLink></p>
      <h2>{queries.length > 0 ? "Earlier queries" : "Examples"}</h2>
      <ul class="plain">
        {offered.map(([query, meaning]) => (
          <li key={query}><button type="button" class="quiet choice" onClick={() => onChoose(query)}><code>{query}</code> <span class="muted">{meaning}</span></button></li>
        ))}
      </ul>
    </div>
  );
}
