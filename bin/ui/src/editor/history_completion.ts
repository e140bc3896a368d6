/** Offers queries of the history while the editor holds the beginning of one. */

import type { CompletionContext, CompletionResult } from "@codemirror/autocomplete";

const OFFERED_MAX = 20;

/** Returns a source of completions for the whole text. */
export function historyCompletion(history: () => string[]): (context: CompletionContext) => CompletionResult | null {
  return ({ state, pos, explicit }) => {
    const text = state.doc.toString();
    if (pos !== state.doc.length || (text === "" && !explicit)) return null;
    const found = history().filter((query) => query.length > text.length && query.startsWith(text));
    if (found.length === 0) return null;
    const options = found.slice(0, OFFERED_MAX).map((query) => ({ label: query, detail: "history", boost: -99 }));
    return { from: 0, options };
  };
}
