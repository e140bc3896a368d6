/** Queries that ran in this browser, the most recent first. */

import { createSavedStore } from "../parts/store";

const QUERIES_MAX = 200;
const QUERY_SIZE_MAX = 10_000;

const isStrings = (value: unknown): value is string[] =>
  Array.isArray(value) && value.every((text) => typeof text === "string");

export const history = createSavedStore<string[]>("varve.history", [], isStrings);

/** Adds a query to the front. */
export function remember(query: string): void {
  const text = query.trim();
  if (text === "" || text.length > QUERY_SIZE_MAX || text === history.get()[0]) return;
  history.update((latest) => [text, ...latest.filter((old) => old !== text)].slice(0, QUERIES_MAX));
}
