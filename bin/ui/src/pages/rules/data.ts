/** Rules and alerts as the API returns them, and the states by which the pages sort and filter them. */

import { request } from "../../api/client";
import type { Labels } from "../../api/types";

export interface Alert {
  labels: Labels;
  annotations: Labels;
  state: string;
  activeAt?: string;
  value: string;
}
export interface Rule {
  type: "alerting" | "recording";
  name: string;
  query: string;
  labels?: Labels;
  annotations?: Labels;
  duration?: number;
  keepFiringFor?: number;
  state?: string;
  health: string;
  lastError?: string;
  evaluationTime: number;
  lastEvaluation: string;
  alerts?: Alert[];
}
export interface Group {
  name: string;
  file: string;
  interval: number;
  evaluationTime: number;
  lastEvaluation: string;
  rules: Rule[];
}
/** An active alert with its rule. */
export interface ActiveAlert {
  alert: Alert;
  rule: Rule;
  group: Group;
}

export const RULES_POLL_MS = 10_000;

/** States by urgency, each with the style of its tag. An inactive rule needs no attention. */
export const STATES = ["firing", "err", "pending"] as const;
const TAGS: Record<string, string> = { firing: "bad", err: "bad", pending: "warn" };

/** Returns the groups, with all rules or those of a type. */
export async function loadGroups(type: "" | "alert", signal: AbortSignal): Promise<Group[]> {
  return (await request<{ groups: Group[] }>("rules", { params: { type }, signal })).data.groups;
}

/** Returns the most urgent state of a rule: `err` if its last evaluation failed, unless its alerts still fire. */
export function stateOf({ health, state, type }: Rule): string {
  return health === "err" && state !== "firing" ? "err" : (state ?? type);
}

/** Returns the class of the tag of a state. */
export function tagOf(state: string): string {
  return `tag ${TAGS[state] ?? ""}`;
}

/** Returns how urgent a state is: 0 for the most urgent one. */
export function urgency(state: string): number {
  const index = STATES.findIndex((one) => one === state);
  return index < 0 ? STATES.length : index;
}

/** Returns `true` if a rule is in a state of the filter and contains all words of the search. */
export function isShown(rule: Rule, state: string, find: string): boolean {
  return (state === "" || isIn(rule, state)) && hasWords(`${rule.name} ${rule.query} ${JSON.stringify(rule.labels ?? {})}`, find);
}

/** Returns `true` if a rule is in a state. A failing rule may fire, too, but is not inactive: nobody knows. */
function isIn(rule: Rule, state: string): boolean {
  if (state === "err") return rule.health === "err";
  if (state === "recording") return rule.type === "recording";
  return rule.state === state && (state !== "inactive" || rule.health !== "err");
}

/** Returns `true` if a text contains all words of a search. */
export function hasWords(text: string, find: string): boolean {
  const lower = text.toLowerCase();
  return find.toLowerCase().split(/\s+/).every((word) => lower.includes(word));
}

/** Returns all active alerts, firing ones first. */
export function activeAlerts(groups: Group[]): ActiveAlert[] {
  const all = groups.flatMap((group) => group.rules.flatMap((rule) => (rule.alerts ?? []).map((alert) => ({ alert, rule, group }))));
  return all.sort((a, b) => urgency(a.alert.state) - urgency(b.alert.state));
}

/** Alerts with the same value of a label. */
export interface AlertGroup {
  value: string;
  firing: number;
  alerts: ActiveAlert[];
}

/** Groups alerts by a label. Groups with the most firing alerts come first. */
export function groupAlerts(alerts: ActiveAlert[], label: string): AlertGroup[] {
  const groups = new Map<string, AlertGroup>();
  for (const active of alerts) {
    const value = active.alert.labels[label] ?? "";
    const group = groups.get(value) ?? { value, firing: 0, alerts: [] };
    groups.set(value, group);
    group.alerts.push(active);
    if (active.alert.state === "firing") group.firing += 1;
  }
  return [...groups.values()].sort((a, b) => b.firing - a.firing || b.alerts.length - a.alerts.length || (a.value < b.value ? -1 : 1));
}
