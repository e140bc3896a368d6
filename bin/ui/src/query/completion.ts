/** Completion in the editor: names, labels and values of the store. Each request is bounded. */

import { isTenant, request } from "../api/client";
import type { Labels, Metadata } from "../api/types";
import { printLabels } from "../parts/labels";

/** Maximum number of names or values in a completion. */
const OFFERED_MAX = 10_000;
/** Only series of this time before now are considered. */
const RECENT_MS = 12 * 3_600_000;
const FRESH_FOR_MS = 60_000;

interface Matcher {
  name: string;
  type: unknown;
  value: string;
  matchesEmpty(): boolean;
}

const cached = new Map<string, { at: number; value: Promise<unknown> }>();

/** Requests a list, at most once a minute. */
export function load<T>(path: string, params: Record<string, string | number | undefined> = {}): Promise<T> {
  const key = path + JSON.stringify(params);
  const old = cached.get(key);
  if (old && Date.now() - old.at < FRESH_FOR_MS) return old.value as Promise<T>;
  const value = request<T>(path, { params }).then(({ data }) => data);
  cached.set(key, { at: Date.now(), value });
  if (cached.size > 100) cached.delete(cached.keys().next().value ?? "");
  value.catch(() => cached.delete(key));
  return value;
}

/** Returns the range and the limit of the lists. */
export function recent(): { start: number; limit: number } {
  // Rounded, so that requests of the same minute are equal.
  return { start: Math.floor((Date.now() - RECENT_MS) / FRESH_FOR_MS) * (FRESH_FOR_MS / 1000), limit: OFFERED_MAX };
}

/** Returns a selector of the equality matchers. Without the other matchers, the completion only offers more. */
function selector(metric?: string, matchers: Matcher[] = [], without?: string): string | undefined {
  const labels: Labels = metric ? { __name__: metric } : {};
  for (const { name, type, value } of matchers) {
    if (String(type) === "EqlSingle" && value !== "" && name !== without) labels[name] = value;
  }
  return Object.keys(labels).length > 0 ? printLabels(labels) : undefined;
}

const orNothing = <T>(promise: Promise<T>, nothing: T): Promise<T> => promise.catch(() => nothing);

/** Names and values of the last hours. */
export const recentNames = {
  labelNames: (metric?: string) => load<string[]>("labels", { "match[]": selector(metric), ...recent() }),
  labelValues: (label: string, metric?: string, matchers?: Matcher[]) =>
    load<string[]>(`label/${encodeURIComponent(label)}/values`, { "match[]": selector(metric, matchers, label), ...recent() }),
  metricNames: () => load<string[]>("label/__name__/values", recent()),
};

/** The client that codemirror-promql calls. After a failed request it offers nothing. */
export const completionClient = {
  labelNames: (metric?: string): Promise<string[]> => orNothing(recentNames.labelNames(metric), []),
  labelValues: (label: string, metric?: string, matchers?: Matcher[]): Promise<string[]> =>
    orNothing(recentNames.labelValues(label, metric, matchers), []),
  metricNames: (): Promise<string[]> => orNothing(recentNames.metricNames(), []),
  metricMetadata: (): Promise<Record<string, Metadata[]>> => orNothing(load("metadata", { limit: OFFERED_MAX }), {}),
  // Series would be unbounded; names and values suffice for a completion.
  series: async (): Promise<Map<string, string>[]> => [],
  flags: async (): Promise<Record<string, string>> => (isTenant.get() ? {} : orNothing(load("status/flags"), {})),
};

export type CompletionClient = typeof completionClient;
