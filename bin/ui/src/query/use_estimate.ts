/** Returns the warning of [`estimate`] for the texts of the editors, shortly after the user stops typing. */

import { useEffect, useState } from "preact/hooks";
import { estimate } from "./estimate";
import type { Panel } from "./panel_state";

const PAUSE_MS = 400;

export function useEstimate(texts: string[], panel: Panel): string | undefined {
  const [warning, setWarning] = useState<string>();
  const { tab, mode, rangeMs, stepMs, density } = panel;
  useEffect(() => {
    const abort = new AbortController();
    const timer = setTimeout(() => {
      const warnings = texts.map((expr) => estimate({ ...panel, expr }, abort.signal));
      Promise.all(warnings).then((all) => setWarning(all.find((one) => one !== undefined)), () => {
        if (!abort.signal.aborted) setWarning(undefined);
      });
    }, PAUSE_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [JSON.stringify(texts), tab, mode, rangeMs, stepMs, density]);
  return warning;
}
