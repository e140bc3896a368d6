/** The query page: panels, each with an expression, all of them in the address. */

import { useEffect, useMemo, useState } from "preact/hooks";
import { navigate, pageUrl, useAddress } from "../app/router";
import { Select } from "../parts/view";
import { QueryPanel } from "./panel";
import { type Panel, newPanel, parsePanels, printPanels } from "./panel_state";

const PANELS_MAX = 20;
const REFRESH: Array<[string, string]> = [["", "Off"], ["5", "5 s"], ["15", "15 s"], ["60", "1 min"], ["300", "5 min"]];

/** A panel with an identity that outlives its position. */
interface Slot {
  id: number;
  panel: Panel;
}

let lastId = 0;

/** Gives each panel of the address the slot at its position, so that its editor remains. */
function slotsFor(panels: Panel[], old: Slot[]): Slot[] {
  return panels.map((panel, i) => ({ id: old[i]?.id ?? ++lastId, panel }));
}

export function Query() {
  const { params, page } = useAddress();
  const refresh = params.get("refresh") ?? "";
  const address = params.toString();
  const panels = useMemo(() => parsePanels(params), [address]);
  const [slots, setSlots] = useState<Slot[]>(() => slotsFor(panels, []));
  const isShown = page === "query";
  useEffect(() => {
    if (isShown) setSlots((old) => slotsFor(panels, old));
  }, [panels, isShown]);

  const goTo = (next: Slot[], replace = false) => {
    setSlots(next);
    const printed = printPanels(next.map(({ panel }) => panel));
    if (refresh !== "") printed.set("refresh", refresh);
    navigate(pageUrl("query", printed), replace);
  };
  const change = (index: number, panel: Panel) => goTo(slots.map((slot, i) => (i === index ? { ...slot, panel } : slot)));
  const insert = (index: number, panel: Panel) => goTo([...slots.slice(0, index), { id: ++lastId, panel }, ...slots.slice(index)]);
  const setRefresh = (seconds: string) => {
    const next = new URLSearchParams(params);
    if (seconds === "") next.delete("refresh");
    else next.set("refresh", seconds);
    navigate(pageUrl("query", next), true);
  };
  return (
    <main class="page query" id="main" tabIndex={-1}>
      <h1 class="hidden">Query</h1>
      {slots.map(({ id, panel }, i) => (
        <QueryPanel
          key={id}
          index={i}
          count={slots.length}
          panel={panel}
          refreshSeconds={Number(refresh)}
          onChange={(next) => change(i, next)}
          onCopy={() => slots.length < PANELS_MAX && insert(i + 1, { ...panel })}
          onSpread={() => goTo(slots.map((slot) => ({ ...slot, panel: { ...slot.panel, rangeMs: panel.rangeMs, endMs: panel.endMs } })))}
          onRemove={() => goTo(slots.filter((_, other) => other !== i))}
        />
      ))}
      <div class="page-foot">
        <button type="button" disabled={slots.length >= PANELS_MAX} onClick={() => insert(slots.length, newPanel())}>Add panel</button>
        <Select label="Refresh" value={refresh} options={REFRESH} onChange={setRefresh} />
      </div>
    </main>
  );
}
