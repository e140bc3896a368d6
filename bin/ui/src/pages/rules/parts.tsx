/** What the pages of rules and of alerts share: tiles that filter by state, annotations, alerts. */

import type { Labels } from "../../api/types";
import { setParams } from "../../app/router";
import { group } from "../../parts/format";
import { LinkedText } from "../../parts/view";
import { urgency } from "./data";

/** The state, the name, and the number of the rules or alerts in this state. */
export type StateCount = [state: string, title: string, n: number];

/** Figures that filter by state. Those that need attention are marked if they are not 0. */
export function StateTiles({ counts, state }: { counts: StateCount[]; state: string }) {
  return (
    <div class="figures" role="group" aria-label="State">
      {counts.map(([key, title, n]) => (
        <button key={key} type="button" aria-pressed={state === key} class={n > 0 && urgency(key) < 2 ? "bad" : ""} onClick={() => setParams({ state: state === key ? undefined : key })}>
          {title} <b>{group(n)}</b>
        </button>
      ))}
    </div>
  );
}

/** Annotations. A runbook, or another URL, is a link. */
export function Annotations({ annotations }: { annotations: Labels }) {
  return (
    <>
      {Object.entries(annotations).map(([name, text]) => (
        <div key={name} class="wrap"><span class="muted">{name}: </span><LinkedText text={text} /></div>
      ))}
    </>
  );
}
