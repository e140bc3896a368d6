/** Limits that requests hit since startup, from the server's own metrics. */

import { count, seconds } from "../parts/format";
import { useLoad } from "../parts/load";
import { type Column, DataTable } from "../parts/table";
import { Figures, QueryLink, Section, Show } from "../parts/view";
import { type OwnMetrics, loadOwnMetrics } from "./own_metrics";

interface Hit {
  limit: string;
  requests: number;
}

const POLL_MS = 5000;

export function LimitsHit() {
  const loaded = useLoad("limits", (signal) => loadOwnMetrics("(varve|prometheus_engine)_.*", signal), POLL_MS);
  return (
    <Section title="Load since startup">
      <Show loaded={loaded}>{(own) => <Load own={own} />}</Show>
    </Section>
  );
}

function Load({ own }: { own: OwnMetrics }) {
  const hits = own.all("varve_limits_hit_total").map(({ labels, value }) => ({ limit: labels["limit"] ?? "", requests: value }));
  const columns: Array<Column<Hit>> = [
    { id: "limit", title: "Limit", value: ({ limit }) => limit, cell: ({ limit }) => <QueryLink expr={`rate(varve_limits_hit_total{limit="${limit}"}[5m])`}><code>{limit}</code></QueryLink> },
    { id: "requests", title: "Requests rejected or aborted", value: ({ requests }) => requests, cell: ({ requests }) => count(requests), isNumber: true },
  ];
  const waited = own.histogram("varve_request_queue_duration_seconds", { class: "query" });
  return (
    <>
      <Figures
        items={[
          ["Queries now", count(own.value("prometheus_engine_queries")), "Running or waiting"],
          ["Allowed at a time", count(own.value("prometheus_engine_queries_concurrent_max")), "--query.max-concurrency"],
          ["Queries since startup", count(waited?.count ?? 0)],
          ["Mean wait for a permit", waited && waited.count > 0 ? seconds(waited.sum / waited.count) : "–", "Part of the time in the queue"],
          ["Shared results", count(own.value("varve_requests_coalesced_total", { class: "query" })), "Queries that got the result of an identical one"],
        ]}
      />
      <DataTable
        id="limits"
        caption="Limits that were hit"
        columns={columns}
        rows={hits.filter(({ requests }) => requests > 0)}
        rowKey={({ limit }) => limit}
        sort="requests"
        empty="No request hit a limit since startup."
      />
    </>
  );
}
