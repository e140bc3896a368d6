/** The list of earlier queries. */

import { useRef, useState } from "preact/hooks";
import { useStore } from "../parts/store";
import { Search } from "../parts/table";
import { history } from "./history";

export function HistoryMenu({ onChoose }: { onChoose: (query: string) => void }) {
  const queries = useStore(history);
  const dialog = useRef<HTMLDialogElement>(null);
  const [find, setFind] = useState("");
  const found = queries.filter((query) => query.toLowerCase().includes(find.toLowerCase()));
  return (
    <>
      <button type="button" class="quiet" onClick={() => dialog.current?.showModal()}>History</button>
      <dialog ref={dialog} class="history" aria-label="Earlier queries">
        <div class="table-tools">
          <h2>Earlier queries</h2>
          <Search value={find} onInput={setFind} label="Search earlier queries" />
        </div>
        {found.length === 0 && <p class="empty">{queries.length === 0 ? "No query ran in this browser yet." : "No earlier query contains this text."}</p>}
        <ul>
          {found.map((query) => (
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
