/** Shapes of the API's responses, as in docs/http_api.md. */

export type Labels = Record<string, string>;
export type Sample = [time: number, value: string];
/** Rule of the bounds, lower bound, upper bound, count. */
export type Bucket = [rule: number, lower: string, upper: string, count: string];
export interface Histogram {
  count: string;
  sum: string;
  buckets?: Bucket[];
}
export type HistogramSample = [time: number, histogram: Histogram];

export interface VectorElement {
  metric: Labels;
  value?: Sample;
  histogram?: HistogramSample;
}
export interface MatrixElement {
  metric: Labels;
  values?: Sample[];
  histograms?: HistogramSample[];
}
export interface QueryStats {
  timings: { evalTotalTime: number; execQueueTime: number; execTotalTime: number; queryPreparationTime: number };
  samples: {
    totalQueryableSamples: number;
    samplesRead: number;
    seriesTouched: number;
    peakSamples: number;
  };
  memoryPeakBytes?: number;
}
export type QueryData = { stats?: QueryStats } & (
  | { resultType: "vector"; result: VectorElement[] }
  | { resultType: "matrix"; result: MatrixElement[] }
  | { resultType: "scalar" | "string"; result: Sample }
);

export interface Operator {
  depth: number;
  operator: string;
  runs: number;
  series: number;
  samples: number;
  bytes: number;
  seconds: number;
}
export interface Explained extends QueryStats {
  operators: Operator[];
}
export interface ExemplarSeries {
  seriesLabels: Labels;
  exemplars: Array<{ labels: Labels; value: string; timestamp: number }>;
}

export interface NameCount {
  name: string;
  value: number;
}
export interface TsdbStatus {
  headStats: { numSeries: number; numLabelPairs: number; minTime: number; maxTime: number };
  seriesCountByMetricName: NameCount[];
  labelValueCountByLabelName: NameCount[];
  memoryInBytesByLabelName: NameCount[];
  seriesCountByLabelValuePair: NameCount[];
}
/** Series in memory, their size, and their part of the block files. */
export interface Cost {
  series: number;
  memoryBytes: number;
  diskSamples: number;
  diskBytes: number;
}
export interface CardinalityReport {
  total: Cost;
  metricCount: number;
  labelCount: number;
  valueCount: number;
  metrics: Array<{ name: string; cost: Cost; queries: number; lastUsedMs: number | null }>;
  labels: Array<{ name: string; values: number; cost: Cost }>;
  pairs: Array<{ name: string; value: string; cost: Cost }>;
  values: Array<{ value: string; cost: Cost }>;
}
export interface Unused {
  kind: "metric" | "buckets" | "label";
  job: string;
  metric: string;
  label: string;
  buckets: string[];
  series: number;
  samplesPerSecond: number;
  bytes: number;
  droppable: boolean;
}
export interface Advice {
  sinceMs: number;
  expressions: number;
  totals: {
    metrics: number;
    series: number;
    samplesPerSecond: number;
    unusedMetrics: number;
    unusedMetricSeries: number;
    unusedSeries: number;
    unusedSamplesPerSecond: number;
    unusedBytes: number;
  };
  unused: Unused[];
  kept: Array<{ job: string; metric: string; series: number; samplesPerSecond: number; bytes: number; keptBy: string }>;
  unread: Unused[];
  nameless: string[];
  exploration: string[];
  rulesCount: number;
  rules: string;
}
export interface RelabelTest {
  steps: Array<{ name: string; state: string; drops: boolean; set: Labels; deleted: string[] }>;
  result: Labels | null;
  error: string;
}
export interface Block {
  ulid: string;
  minTime: number;
  maxTime: number;
  stats: { numSamples: number; numSeries: number };
  compaction: { level: number; sources: string[] };
}
/** Who sent a query, as `status/queries` and others list it. */
export interface QueryRequester {
  user: string;
  userAgent: string;
  dashboard: string;
  panel: string;
  grafanaRule: string;
  grafanaUser: string;
}
export interface ActiveQuery extends QueryRequester {
  id: number;
  class: string;
  stage: string;
  path: string;
  query: string;
  start: string;
  end: string;
  step: string;
  ageSeconds: number;
  queuedSeconds: number;
  client: string;
  memoryBytes: number;
  memoryPeakBytes: number;
  series: number;
  samples: number;
}
export interface Requester {
  userAgent: string;
  dashboard: string;
  panel: string;
  rule: string;
  queries: number;
  lastMs: number;
}
export interface UsageEntry {
  metric?: string;
  selector?: string;
  queries: number;
  lastMs: number;
  matchedLabels: string[];
  groupedLabels: string[];
  allLabels: boolean;
  requesters: Requester[];
}
export interface Usage {
  sinceMs: number;
  evicted: number;
  metrics: UsageEntry[];
  selectors: UsageEntry[];
  exploration: UsageEntry[];
}
export interface Churn {
  startMs: number;
  endMs: number;
  /** Series of the hour before. If there are none, labels are not compared. */
  earlierSeries: number;
  series: number;
  newSeries: number;
  newCombinations: number;
  summary: string;
  teams: Array<{ team: string; newSeries: number; label: string; percent: number; metric: string }>;
  labels: Array<{
    label: string;
    newSeries: number;
    percent: number;
    newSeriesAlone: number;
    newValues: number;
    metrics: string[];
  }>;
  metrics: Array<{ metric: string; newSeries: number; label: string; percent: number }>;
}
export interface Budget {
  activeSeries: number | null;
  newSeriesPerSecond: number | null;
  samplesPerSecond: number | null;
}
export interface Team {
  team: string;
  guaranteed: Budget;
  maximum: Budget;
  use: Budget;
  borrowed: Budget;
  samples: number;
  newSeries: number;
  seriesRejected: number;
}
export interface Teams {
  teamLabel: string | null;
  all: { maximum: Budget; use: Budget; samples: number; newSeries: number; seriesRejected: number };
  teams: Team[];
}
export interface Reject {
  reason: string;
  message: string;
  requests: number;
  count: number;
  samples: number;
  lastMs: number;
  example: { text: string; labels: string; timestampMs: number | null; value: string | number | null } | null;
  sender: { address: string; userAgent: string; user: string; path: string };
}
export interface RuleUse {
  atMs: number;
  selector: string;
  who: string;
}
export interface RelabelRule {
  name: string;
  state: "enforce" | "dry_run";
  disableOnUse: boolean;
  disabledByUse: RuleUse | null;
  /** In a dry run, the first query that would have disabled the rule. */
  wouldBeDisabledBy: RuleUse | null;
  series: number;
  samples: number;
  samplesPerSecond: number;
}
export interface HaCluster {
  cluster: string;
  leader: { replica: string; silentMs: number } | null;
  standbys: Array<{ replica: string; silentMs: number }>;
  sinceMs: number;
  changes: number;
  samplesDeduplicated: number;
}
export interface Metadata {
  type: string;
  unit: string;
  help: string;
}
export interface RuntimeInfo {
  startTime: string;
  CWD: string;
  hostname: string;
  serverTime: string;
  reloadConfigSuccess: boolean;
  lastConfigTime: string;
  corruptionCount: number;
  GOMAXPROCS: number;
  storageRetention: string;
}
export interface BuildInfo {
  version: string;
  revision: string;
}
export interface WalReplay {
  min: number;
  max: number;
  current: number;
}
