/** Nodes that fail again and again (lemons), with what speaks against each. */

import type { VectorElement } from "../../api/types";
import { toNumber } from "../../chart/grid";
import { count, short } from "../../parts/format";
import { metricSelector } from "../../parts/labels";
import { useLoad } from "../../parts/load";
import { type Column, DataTable } from "../../parts/table";
import { Name, PageLink, QueryLink, Show } from "../../parts/view";
import { printDuration } from "../../parts/time";
import { type AlertCounts, type AlertIndex, countAlerts, loadAlerts } from "./alerts";
import { AlertLink } from "./list";
import { vector } from "./records";

const POLL_MS = 60_000;
const NODES_MAX = 500;
/** The score and its parts, and the jobs of a node. */
const SERIES_PER_NODE = 10;
/** The group of these records runs every hour. */
const LOOKBACK = "2h";
const SCORE = "training:node:lemon_score:30d";
/** The score from which the alert TrainingLemonNode fires. */
const LEMON_SCORE = 10;
const HISTORY_RANGE = "30d";

export interface LemonNode {
  node: string;
  score: number;
  incidents: number;
  failedPods: number;
  stragglerMinutes: number;
  /** Jobs that have the node to themselves now. */
  jobs: string[];
  alerts: AlertCounts;
}

async function loadNodes(signal: AbortSignal): Promise<LemonNode[]> {
  const worst = `topk(${NODES_MAX}, ${SCORE})`;
  const records = `{__name__=~"training:node:((lemon_score|incidents|failed_pods|straggler_minutes):30d)"} and on (node) ${worst}`;
  const limit = NODES_MAX * SERIES_PER_NODE;
  const [elements, jobs, alerts] = await Promise.all([
    vector(records, signal, { limit, lookback: LOOKBACK }),
    // Without the long lookback: a node has the job that it has now.
    vector(`training:node:info and on (node) topk(${NODES_MAX}, last_over_time(${SCORE}[${LOOKBACK}]))`, signal, { limit }),
    loadAlerts(signal),
  ]);
  return toNodes([...elements, ...jobs], countAlerts(alerts, "node"));
}

/** Returns the nodes that records describe, the worst first. */
export function toNodes(elements: VectorElement[], alertsOf: AlertIndex): LemonNode[] {
  const nodes = new Map<string, LemonNode>();
  for (const { metric, value } of elements) {
    const name = metric["node"] ?? "";
    const node = nodes.get(name) ?? { node: name, score: 0, incidents: 0, failedPods: 0, stragglerMinutes: 0, jobs: [], alerts: alertsOf(name) };
    nodes.set(name, node);
    const record = (metric["__name__"] ?? "").replace("training:node:", "").replace(":30d", "");
    const number = toNumber(value?.[1] ?? "NaN");
    if (record === "lemon_score") node.score = number;
    else if (record === "incidents") node.incidents = number;
    else if (record === "failed_pods") node.failedPods = number;
    else if (record === "straggler_minutes") node.stragglerMinutes = number;
    else if (record === "info") node.jobs.push(metric["job_id"] ?? "");
  }
  return [...nodes.values()].sort((a, b) => b.score - a.score || (a.node < b.node ? -1 : 1));
}

const minutes = (value: number) => printDuration(Math.round(value) * 60_000).replace(/^0s$/, "0m");

const COLUMNS: Array<Column<LemonNode>> = [
  { id: "node", title: "Node", value: ({ node }) => node, cell: ({ node }) => <QueryLink expr={`{__name__=~"training:node:.+:30d", node=${JSON.stringify(node)}}`} range={HISTORY_RANGE}><Name text={node} /></QueryLink>, isName: true },
  { id: "score", title: "Score", hint: `Points over 30 days. TrainingLemonNode fires from ${LEMON_SCORE}`, value: ({ score }) => score, cell: ({ score }) => <span class={score >= LEMON_SCORE ? "tag bad" : ""}>{short(score)}</span>, isNumber: true },
  { id: "incidents", title: "Incidents", hint: "How many alerts of the node began to fire", value: ({ incidents }) => incidents, cell: ({ node, incidents }) => <QueryLink expr={metricSelector("ALERTS", { alertstate: "firing", node })} range={HISTORY_RANGE} title="Alerts of the node over 30 days">{count(incidents)}</QueryLink>, isNumber: true },
  { id: "pods", title: "Failed pods", hint: "Pods of jobs that failed or were evicted on the node", value: ({ failedPods }) => failedPods, cell: ({ node, failedPods }) => <QueryLink expr={metricSelector("training:pod:failed", { node })} range={HISTORY_RANGE}>{count(failedPods)}</QueryLink>, isNumber: true, isMinor: true },
  { id: "slow", title: "Slow for", hint: "Time in which a rank of the node was a straggler", value: ({ stragglerMinutes }) => stragglerMinutes, cell: ({ node, stragglerMinutes }) => <QueryLink expr={metricSelector("training:rank:straggler", { node })} range={HISTORY_RANGE}>{minutes(stragglerMinutes)}</QueryLink>, isNumber: true, isMinor: true },
  { id: "alerts", title: "Alerts now", value: ({ alerts }) => alerts.firing * 1000 + alerts.pending, cell: ({ node, alerts }) => <AlertLink find={node} alerts={alerts} />, isNumber: true },
  { id: "jobs", title: "Job now", hint: "The job that has the node to itself", value: ({ jobs }) => jobs.join(), cell: ({ jobs }) => jobs.map((id) => <div key={id}><PageLink page="jobs" params={{ job: id }}><Name text={id} /></PageLink></div>), isMinor: true, wraps: true },
];

export function Nodes() {
  const loaded = useLoad("lemon nodes", loadNodes, POLL_MS);
  return (
    <Show loaded={loaded}>
      {(nodes) => (
        <DataTable
          id="n"
          caption="Nodes"
          columns={COLUMNS}
          rows={nodes}
          rowKey={({ node }) => node}
          text={({ node, jobs }) => `${node} ${jobs.join(" ")}`}
          noun="node"
          sort="score"
          extent={nodes.length < NODES_MAX ? undefined : `the ${count(NODES_MAX)} nodes with the highest scores`}
          empty="No node has points. nodes.yaml evaluates them once an hour."
        />
      )}
    </Show>
  );
}
