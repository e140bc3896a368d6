/** The records of docs/mixin/training that the pages of jobs read, and which of its rule files are missing or fail. */

import { isTenant, request } from "../../api/client";
import type { QueryData, RuntimeInfo, VectorElement } from "../../api/types";
import { seconds } from "../../parts/format";
import type { Group } from "../rules/data";

/** Where the rule files are described. */
export const DOCS = "docs/mixin/training/README.md";
/** Age up to which a record counts as recorded. */
const RECENT_S = 7200;
const RECORDS_MAX = 100;
/** Time within which rules that were just loaded have recorded something, if their input exists. */
const FIRST_RECORDS_S = 300;

/** A rule file, or several of which one is enough. */
export interface RuleFile {
  name: string;
  /** What the page lacks without it. */
  purpose: string;
  /** Rules of the file: one of them is loaded if the file is. */
  rules: string[];
  /** Records of the file. */
  records: string[];
  /** True if a cluster with jobs always has one of the records. */
  isAlways?: boolean;
}

export const RULE_FILES: readonly RuleFile[] = [
  {
    name: "jobs-owner.yaml, jobs-jobset.yaml, jobs-kubeflow.yaml, jobs-kueue.yaml or jobs-slurm.yaml",
    purpose: "names the jobs of pods or GPUs",
    rules: ["training:pod:info"],
    records: ["training:pod:info", "training:gpu:info"],
    isAlways: true,
  },
  { name: "jobs.yaml", purpose: "records what each job has and does", rules: ["training:job:pods"], records: ["training:job:pods", "training:job:gpus"], isAlways: true },
  { name: "nodes.yaml", purpose: "ranks nodes that fail again and again", rules: ["training:node:lemon_score:30d"], records: ["training:node:lemon_score:30d"] },
  { name: "alerts.yaml", purpose: "alerts for jobs that hang and for slow GPUs", rules: ["TrainingJobHung", "TrainingGpuSlow"], records: [] },
];

/** A rule of the pack whose last evaluation failed. */
export interface FailingRule {
  group: string;
  rule: string;
  error: string;
}

/** The state of the rules that this server has loaded. */
export interface RuleState {
  /** True if there is no record, and no rule of the pack is loaded. */
  isAbsent: boolean;
  missing: RuleFile[];
  /** Loaded files that have recorded nothing: the series that they read are missing. */
  silent: RuleFile[];
  failing: FailingRule[];
}

/** A state of the rules, and for how many seconds this configuration has been loaded; tenants do not see that. */
export interface LoadedRuleState extends RuleState {
  loadedS: number | undefined;
}

/** Loads the names of recent records, and the rules of this server. */
export async function loadRuleState(signal: AbortSignal): Promise<LoadedRuleState> {
  const start = Math.floor(Date.now() / 1000) - RECENT_S;
  const [names, rules, loadedS] = await Promise.all([
    request<string[]>("label/__name__/values", { params: { "match[]": '{__name__=~"training:.+"}', start, limit: RECORDS_MAX }, signal }),
    request<{ groups: Group[] }>("rules", { params: { exclude_alerts: "true" }, signal }),
    loadLoadedS(signal),
  ]);
  return { ...ruleStateOf(new Set(names.data), rules.data.groups), loadedS };
}

async function loadLoadedS(signal: AbortSignal): Promise<number | undefined> {
  if (isTenant.get()) return undefined;
  try {
    const { serverTime, lastConfigTime } = (await request<RuntimeInfo>("status/runtimeinfo", { signal })).data;
    return (Date.parse(serverTime) - Date.parse(lastConfigTime)) / 1000;
  } catch (error) {
    // The response may be the first one that says so.
    if (isTenant.get()) return undefined;
    throw error;
  }
}

/** Says for how long loaded files have recorded nothing. They cannot have recorded before they were loaded. */
export function silenceOf(loadedS: number | undefined): string {
  if (loadedS === undefined) return "Rule files are loaded, but have recorded nothing for two hours, or since they were loaded: the series that they read are missing.";
  if (loadedS < FIRST_RECORDS_S) {
    return `Rule files are loaded, but have recorded nothing yet: the configuration was loaded ${seconds(Math.round(loadedS))} ago. Records follow some minutes after the series that they read.`;
  }
  const time = loadedS < RECENT_S ? `in the ${seconds(Math.round(loadedS))} since the configuration was loaded` : "for two hours";
  return `Rule files are loaded, but have recorded nothing ${time}: the series that they read are missing.`;
}

/**
 * Returns what is wrong with the rules. Another program may evaluate them: then only the lack of a record shows that a file is
 * missing.
 */
export function ruleStateOf(recorded: ReadonlySet<string>, groups: Group[]): RuleState {
  const pack = groups.filter(({ rules }) => rules.some(({ name }) => isOfPack(name)));
  const loaded = new Set(pack.flatMap(({ rules }) => rules.map(({ name }) => name)));
  const isRecorded = ({ records }: RuleFile) => records.some((record) => recorded.has(record));
  const isLoaded = ({ rules }: RuleFile) => rules.some((rule) => loaded.has(rule)) || (rules.includes("training:pod:info") && pack.some(({ name }) => name === "training-gpus-slurm"));
  const unrecorded = RULE_FILES.filter((file) => !isRecorded(file));
  return {
    isAbsent: recorded.size === 0 && pack.length === 0,
    missing: unrecorded.filter((file) => !isLoaded(file) && (pack.length > 0 || file.isAlways)),
    silent: unrecorded.filter((file) => isLoaded(file) && file.isAlways),
    failing: pack.flatMap(({ name, rules }) => rules.filter(({ health }) => health === "err").map((rule) => ({ group: name, rule: rule.name, error: rule.lastError ?? "" }))),
  };
}

function isOfPack(rule: string): boolean {
  return rule.startsWith("training:") || /^Training[A-Z]/.test(rule);
}

/** Evaluates an instant query. `lookback` also finds series whose last sample is older than the usual five minutes. */
export async function vector(query: string, signal: AbortSignal, options: { time?: number; limit?: number; lookback?: string } = {}): Promise<VectorElement[]> {
  const { time, limit, lookback } = options;
  const { data } = await request<QueryData>("query", { method: "POST", params: { query, time, limit, lookback_delta: lookback }, signal });
  return data.resultType === "vector" ? data.result : [];
}
