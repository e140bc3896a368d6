/** Returns the warning of [`estimate`] for the text of the editor, shortly after the user stops typing. */

import { useEffect, useState } from "preact/hooks";
import { estimate } from "./estimate";
import type { Panel } from "./panel_state";

const PAUSE_MS = 400;

export function useEstimate(text: string, panel: Panel): string | undefined {
  const [warning, setWarning] = useState<string>();
  const { tab, rangeMs, stepMs, density } = panel;
  useEffect(() => {
    const abort = new AbortController();
    const timer = setTimeout(() => {
      estimate({ ...panel, expr: text }, abort.signal).then(setWarning, () => {
        if (!abort.signal.aborted) setWarning(undefined);
      });
    }, PAUSE_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [text, tab, rangeMs, stepMs, density]);
  return warning;
}
