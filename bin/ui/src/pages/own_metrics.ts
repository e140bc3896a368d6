/** Varve's own metrics, from `status/self_metrics`. */

import { request } from "../api/client";
import type { Labels, QueryData } from "../api/types";

interface Family {
  name: string;
  metric: Array<{
    label?: Array<{ name: string; value: string }>;
    counter?: { value: number };
    gauge?: { value: number };
    histogram?: { sampleCount?: number | string; sampleSum?: number; sample_count?: number | string; sample_sum?: number };
  }>;
}

export interface OwnMetrics {
  /** All counters or gauges of a name. */
  all(name: string): Array<{ labels: Labels; value: number }>;
  /** The sum over all that have these labels; 0 if there are none. */
  value(name: string, labels?: Labels): number;
  histogram(name: string, labels?: Labels): { count: number; sum: number } | undefined;
}

/** Loads the metrics whose name matches a regular expression. */
export async function loadOwnMetrics(pattern: string, signal: AbortSignal): Promise<OwnMetrics> {
  const { data } = await request<Family[]>("status/self_metrics", { params: { metric_name_pattern: pattern }, signal });
  return index(data);
}

/**
 * Returns the label `instance` of the server's stored own metrics: that of the process that started when the server did.
 * Other servers may store metrics of the same names. Returns undefined if the server has stored none for an hour.
 */
export async function loadInstance(signal: AbortSignal): Promise<string | undefined> {
  const start = "process_start_time_seconds";
  const own = await loadOwnMetrics(start, signal);
  const query = `last_over_time(${start}{job="varve"}[1h]) == ${own.value(start)}`;
  const { data } = await request<QueryData>("query", { method: "POST", params: { query, limit: 1 }, signal });
  return data.resultType === "vector" ? data.result[0]?.metric["instance"] : undefined;
}

/** Returns the metrics by name. */
export function index(families: Family[]): OwnMetrics {
  const byName = new Map(families.map((family) => [family.name, family.metric]));
  const find = (name: string, wanted: Labels) =>
    (byName.get(name) ?? [])
      .map((metric) => ({ metric, labels: Object.fromEntries((metric.label ?? []).map((label) => [label.name, label.value])) }))
      .filter(({ labels }) => Object.entries(wanted).every(([key, value]) => labels[key] === value));
  const all = (name: string, labels: Labels = {}) =>
    find(name, labels).map(({ metric, labels: own }) => ({ labels: own, value: (metric.counter ?? metric.gauge)?.value ?? 0 }));
  return {
    all: (name) => all(name),
    value: (name, labels) => all(name, labels).reduce((sum, { value }) => sum + value, 0),
    histogram: (name, labels = {}) => {
      const found = find(name, labels)[0]?.metric.histogram;
      return found && { count: Number(found.sampleCount ?? found.sample_count ?? 0), sum: found.sampleSum ?? found.sample_sum ?? 0 };
    },
  };
}
