/** Active alerts by the label that names a job or a node. */

import { request } from "../../api/client";
import type { Alert } from "../rules/data";

/** Alerts of one job or node. */
export interface AlertCounts {
  firing: number;
  pending: number;
  isCritical: boolean;
  names: string[];
}

const NONE: AlertCounts = { firing: 0, pending: 0, isCritical: false, names: [] };

export type AlertIndex = (value: string) => AlertCounts;

/** Loads the active alerts of this server. */
export async function loadAlerts(signal: AbortSignal): Promise<Alert[]> {
  return (await request<{ alerts: Alert[] }>("alerts", { signal })).data.alerts;
}

/** Counts alerts by the value of a label. */
export function countAlerts(alerts: Alert[], label: string): AlertIndex {
  const counts = new Map<string, AlertCounts>();
  for (const { labels, state } of alerts) {
    const value = labels[label];
    if (value === undefined) continue;
    const entry = counts.get(value) ?? { ...NONE, names: [] };
    counts.set(value, entry);
    const name = labels["alertname"] ?? "";
    if (state === "firing") {
      entry.firing += 1;
      entry.isCritical ||= labels["severity"] === "critical";
      if (!entry.names.includes(name)) entry.names.push(name);
    } else entry.pending += 1;
  }
  return (value) => counts.get(value) ?? NONE;
}
