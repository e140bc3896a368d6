/** A link to the page, and panels that are saved in the browser under a name. */

import { useState } from "preact/hooks";
import { getAddress, pageUrl } from "../app/router";
import { createSavedStore, useStore } from "../parts/store";
import { copyText } from "../parts/view";
import { type Panel, exprsOf, parsePanels, printPanels } from "./panel_state";

/** A panel under a name, as parameters of the address. */
interface Saved {
  name: string;
  params: string;
}

const SAVED_MAX = 100;
const NAME_SIZE_MAX = 100;
const PARAMS_SIZE_MAX = 20_000;

const isSaved = (value: unknown): value is Saved[] =>
  Array.isArray(value) && value.length <= SAVED_MAX && value.every((one: Partial<Saved> | null) => typeof one?.name === "string" && typeof one.params === "string");

const saved = createSavedStore<Saved[]>("varve.saved", [], isSaved);

/** Returns the URL of the page. A fixed one has the times of now for ranges that end now. */
function linkOf(isFixed: boolean): string {
  const { params } = getAddress();
  const now = Math.floor(Date.now() / 1000) * 1000;
  const panels = parsePanels(params).map((panel) => ({ ...panel, endMs: panel.endMs ?? now }));
  return isFixed ? new URL(pageUrl("query", printPanels(panels)), location.href).href : location.href;
}

export function Share({ panel, onOpen }: { panel: Panel; onOpen: (panel: Panel) => void }) {
  const [isFixed, setIsFixed] = useState(true);
  const [copied, setCopied] = useState<boolean>();
  const link = linkOf(isFixed);
  return (
    <>
      <h2>Share</h2>
      <label class="field check">
        <input type="checkbox" checked={isFixed} onChange={(event) => (setIsFixed(event.currentTarget.checked), setCopied(undefined))} />
        <span>With the times that are shown now</span>
      </label>
      <div class="joined">
        <input type="text" class="link" readOnly aria-label="Link" value={link} onFocus={(event) => event.currentTarget.select()} />
        <button type="button" class="primary" onClick={() => void copyText(link).then(setCopied)}>Copy link</button>
      </div>
      <p class="muted" role="status">{copied === undefined ? "" : copied ? "The link is copied." : "The browser does not allow the page to copy. Copy the text above."}</p>
      <SavedPanels panel={panel} onOpen={onOpen} />
    </>
  );
}

function SavedPanels({ panel, onOpen }: { panel: Panel; onOpen: (panel: Panel) => void }) {
  const all = useStore(saved);
  const [name, setName] = useState("");
  const params = printPanels([panel]).toString();
  const reason = exprsOf(panel).join("").trim() === "" ? "The panel has no query." : params.length > PARAMS_SIZE_MAX ? "The query is too long to be saved." : all.length >= SAVED_MAX && !all.some((one) => one.name === name.trim()) ? `At most ${SAVED_MAX} panels can be saved.` : "";
  const save = (event: Event) => {
    event.preventDefault();
    const text = name.trim();
    if (text === "" || reason !== "") return;
    saved.update((latest) => [{ name: text, params }, ...latest.filter((one) => one.name !== text)].slice(0, SAVED_MAX));
    setName("");
  };
  return (
    <>
      <h2>Saved in this browser</h2>
      <form class="joined save" onSubmit={save}>
        <input type="text" aria-label="Name" placeholder="Name of this panel" maxLength={NAME_SIZE_MAX} value={name} onInput={(event) => setName(event.currentTarget.value)} />
        <button type="submit" disabled={name.trim() === "" || reason !== ""}>Save</button>
      </form>
      {reason !== "" && <p class="muted">{reason}</p>}
      {all.length === 0 && <p class="muted">Nothing is saved yet.</p>}
      <ul class="plain saved">
        {all.map((one) => {
          const [opened] = parsePanels(new URLSearchParams(one.params));
          return (
            <li key={one.name}>
              <button type="button" class="quiet choice" onClick={() => opened && onOpen(opened)}><b>{one.name}</b> <code>{opened && exprsOf(opened).join("; ")}</code></button>
              <button type="button" class="quiet" aria-label={`Delete ${one.name}`} onClick={() => saved.update((latest) => latest.filter(({ name: other }) => other !== one.name))}>×</button>
            </li>
          );
        })}
      </ul>
    </>
  );
}
