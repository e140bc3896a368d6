/** Label sets as PromQL text, and the labels that a list of label sets has in common. */

import type { Labels } from "../api/types";

const LEGACY_METRIC = /^[a-zA-Z_:][a-zA-Z0-9_:]*$/;
const LEGACY_LABEL = /^[a-zA-Z_][a-zA-Z0-9_]*$/;

/** Quotes a string as PromQL does. */
export function quote(text: string): string {
  return JSON.stringify(text).replace(/[\u007f-\u009f\u2028\u2029]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** Returns a label name as a selector or a grouping contains it, with quotes if necessary. */
export function labelName(name: string): string {
  return LEGACY_LABEL.test(name) ? name : quote(name);
}

/** Prints a label set as a selector that matches it: `up{job="node"}`. Skips the labels in `without`. */
export function printLabels(labels: Labels, without: ReadonlySet<string> = new Set()): string {
  const metric = without.has("__name__") ? undefined : labels["__name__"];
  const pairs = Object.entries(labels)
    .filter(([name]) => name !== "__name__" && !without.has(name))
    .map(([name, value]) => `${labelName(name)}=${quote(value)}`);
  if (metric === undefined) return `{${pairs.join(", ")}}`;
  if (!LEGACY_METRIC.test(metric)) return `{${[quote(metric), ...pairs].join(", ")}}`;
  return pairs.length === 0 ? metric : `${metric}{${pairs.join(", ")}}`;
}

/** Returns a selector of one metric with further matchers. */
export function metricSelector(metric: string, matchers: Labels = {}): string {
  return printLabels({ __name__: metric, ...matchers });
}

/** The labels that label sets share, and the labels in which they differ. */
export interface Shared {
  /** Labels with the same value in every set. */
  common: Labels;
  /** Names of the other labels, sorted, the metric name first. */
  varying: string[];
}

/** Compares label sets. A single set has only varying labels: it needs a name. */
export function compareLabels(sets: Labels[]): Shared {
  const [first] = sets;
  if (!first || sets.length === 1) return { common: {}, varying: Object.keys(first ?? {}).sort(byName) };
  const names = new Set<string>();
  for (const labels of sets) for (const name of Object.keys(labels)) names.add(name);
  const common: Labels = {};
  const varying: string[] = [];
  for (const name of names) {
    const value = first[name];
    if (value !== undefined && sets.every((labels) => labels[name] === value)) common[name] = value;
    else varying.push(name);
  }
  return { common, varying: varying.sort(byName) };
}

function byName(a: string, b: string): number {
  if (a === "__name__" || b === "__name__") return a === b ? 0 : a === "__name__" ? -1 : 1;
  return a < b ? -1 : a > b ? 1 : 0;
}

/** Counts the values of each label of some series. */
export function countLabels(series: Labels[]): Map<string, Map<string, number>> {
  const counts = new Map<string, Map<string, number>>();
  for (const labels of series) {
    for (const [name, value] of Object.entries(labels)) {
      if (name === "__name__") continue;
      const values = counts.get(name) ?? new Map<string, number>();
      counts.set(name, values);
      values.set(value, (values.get(value) ?? 0) + 1);
    }
  }
  return counts;
}
