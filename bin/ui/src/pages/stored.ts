/** The stored metrics: series, type, last use, churn, and estimated cost per series. */

import { isTenant, request } from "../api/client";
import type { Churn, Metadata, NameCount, TsdbStatus, Usage, UsageEntry } from "../api/types";
import { type Kind, kindOf } from "./metric_kind";
import { loadOwnMetrics } from "./own_metrics";

/** Maximum number of listed metrics. */
export const METRICS_MAX = 10_000;
/** Maximum number of metrics that `status/churn` lists: those with the most new series. */
export const CHURN_MAX = 100;

export interface MetricRow extends Kind {
  name: string;
  series: number;
  usage?: UsageEntry;
  /** Of the last hour; undefined if `status/churn` lists other metrics only. */
  newSeries?: number;
}

export interface Stored {
  metrics: MetricRow[];
  /** What the whole server stores; undefined for users of a tenant, who see names and metadata only. */
  costs?: Costs;
}

export interface Costs {
  /** Series in memory. */
  series: number;
  /** Average memory of a series with its samples in the head; 0 if unknown. */
  bytesPerSeries: number;
  /** Average disk usage of a sample in blocks; 0 if there are no blocks. */
  bytesPerSample: number;
}

/** Loads and joins everything that the user may see. */
export async function loadStored(signal: AbortSignal): Promise<Stored> {
  try {
    return await loadAll(signal);
  } catch (error) {
    if (!isTenant.get()) throw error;
    return loadNames(signal);
  }
}

async function loadNames(signal: AbortSignal): Promise<Stored> {
  const [names, metadata] = await Promise.all([
    request<string[]>("label/__name__/values", { params: { limit: METRICS_MAX }, signal }),
    request<Record<string, Metadata[]>>("metadata", { params: { limit: 2 * METRICS_MAX }, signal }),
  ]);
  return { metrics: names.data.map((name) => toRow(name, metadata.data)) };
}

function toRow(name: string, metadata: Record<string, Metadata[]>): MetricRow {
  return { name, series: 0, ...kindOf(name, metadata) };
}

/** Returns the new series by metric, as far as they are listed. */
export function newSeriesOf({ metrics }: Churn): (name: string) => number | undefined {
  const listed = new Map(metrics.map(({ metric, newSeries }) => [metric, newSeries]));
  const others = metrics.length < CHURN_MAX ? 0 : undefined;
  return (name) => listed.get(name) ?? others;
}

async function loadAll(signal: AbortSignal): Promise<Stored> {
  const [status, metadata, usage, churn, own] = await Promise.all([
    request<TsdbStatus>("status/tsdb", { params: { limit: METRICS_MAX }, signal }),
    request<Record<string, Metadata[]>>("metadata", { params: { limit: 2 * METRICS_MAX }, signal }),
    request<Usage>("status/usage", { signal }),
    request<Churn>("status/churn", { signal }),
    loadOwnMetrics("varve_tsdb_(head_size_bytes|blocks_samples)|prometheus_tsdb_(head_series|storage_blocks_bytes)", signal),
  ]);
  const used = new Map(usage.data.metrics.map((entry) => [entry.metric ?? "", entry]));
  const created = newSeriesOf(churn.data);
  const metrics = status.data.seriesCountByMetricName.map(({ name, value }: NameCount) => {
    return { ...toRow(name, metadata.data), series: value, usage: used.get(name), newSeries: created(name) };
  });
  const [series, samples] = [own.value("prometheus_tsdb_head_series"), own.value("varve_tsdb_blocks_samples")];
  const costs = {
    series: status.data.headStats.numSeries,
    bytesPerSeries: series > 0 ? own.value("varve_tsdb_head_size_bytes") / series : 0,
    bytesPerSample: samples > 0 ? own.value("prometheus_tsdb_storage_blocks_bytes") / samples : 0,
  };
  return { metrics, costs };
}
