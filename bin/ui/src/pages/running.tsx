/** Active requests: client, query, age, memory, and a button that cancels the request. */

import { useState } from "preact/hooks";
import { request } from "../api/client";
import type { ActiveQuery } from "../api/types";
import { bytes, count, seconds } from "../parts/format";
import { useLoad } from "../parts/load";
import { type Column, DataTable } from "../parts/table";
import { ErrorBox, Page, QueryLink, Show } from "../parts/view";
import { LastWords } from "./last_words";
import { LimitsHit } from "./limits_hit";
import { requesterOf } from "./requesters";
import { TopQueries } from "./top_queries";

const POLL_MS = 1000;

export function Running() {
  const loaded = useLoad("queries", async (signal) => (await request<ActiveQuery[]>("status/queries", { signal })).data, POLL_MS);
  const [error, setError] = useState<unknown>();
  const cancel = (id: number) => {
    setError(undefined);
    request(`status/queries/${id}`, { method: "DELETE" }).then(loaded.reload, setError);
  };
  return (
    <Page title="Running queries" about={<>Requests for data that wait or run, with what they hold now. The list refreshes every second. Canceling needs <span class="nowrap">--web.enable-admin-api</span>.</>}>
      {error !== undefined && <ErrorBox error={error} />}
      <Show loaded={loaded}>{(queries) => <Queries queries={queries} onCancel={cancel} />}</Show>
      <TopQueries />
      <LastWords />
      <LimitsHit />
    </Page>
  );
}

function Queries({ queries, onCancel }: { queries: ActiveQuery[]; onCancel: (id: number) => void }) {
  const columns: Array<Column<ActiveQuery>> = [
    { id: "query", title: "Query", value: ({ query }) => query, cell: (query) => <QueryText query={query} />, isName: true },
    { id: "age", title: "Age", hint: "Time since the request arrived", value: ({ ageSeconds }) => ageSeconds, cell: ({ ageSeconds }) => seconds(ageSeconds), isNumber: true },
    { id: "queued", title: "Queue", hint: "From arrival until a thread starts the request", value: ({ queuedSeconds }) => queuedSeconds, cell: ({ queuedSeconds }) => seconds(queuedSeconds), isNumber: true, isMinor: true },
    { id: "stage", title: "Stage", value: ({ stage }) => stage, cell: ({ stage, class: kind }) => <span class="tag">{kind} {stage}</span>, isMinor: true },
    { id: "memory", title: "Memory", value: ({ memoryBytes }) => memoryBytes, cell: ({ memoryBytes }) => bytes(memoryBytes), isNumber: true, bar: true },
    { id: "peak", title: "Peak", value: ({ memoryPeakBytes }) => memoryPeakBytes, cell: ({ memoryPeakBytes }) => bytes(memoryPeakBytes), isNumber: true, isMinor: true },
    { id: "series", title: "Series", value: ({ series }) => series, cell: ({ series }) => count(series), isNumber: true, isMinor: true },
    { id: "samples", title: "Samples", value: ({ samples }) => samples, cell: ({ samples }) => count(samples), isNumber: true, isMinor: true },
    { id: "who", title: "Sent by", hint: "User, dashboard and panel of Grafana or program, address", value: who, isMinor: true, wraps: true },
    { id: "cancel", title: "Action", value: ({ id }) => id, cell: ({ id }) => <button type="button" class="danger" aria-label={`Cancel request ${id}`} onClick={() => onCancel(id)}>Cancel</button> },
  ];
  return (
    <DataTable
      id="q"
      caption="Running queries"
      columns={columns}
      rows={queries}
      rowKey={({ id }) => String(id)}
      text={(query) => `${query.query} ${query.path} ${who(query)}`}
      sort="age"
      noun="request"
      empty="No request for data runs now."
    />
  );
}

function who(query: ActiveQuery): string {
  return [requesterOf(query), query.client].filter(Boolean).join(" · ");
}

function QueryText({ query: { query, path, start, end, step } }: { query: ActiveQuery }) {
  const isQuery = path.endsWith("/query") || path.endsWith("/query_range");
  const times = [start && `from ${start}`, end && `to ${end}`, step && step !== "0" && `step ${step}`].filter(Boolean).join(" ");
  return (
    <>
      {isQuery ? <QueryLink expr={query} tab={path.endsWith("range") ? "graph" : "table"}><code>{query}</code></QueryLink> : <code>{query || path}</code>}
      {(times || !isQuery) && <div class="muted">{isQuery ? "" : `${path} `}{times}</div>}
    </>
  );
}
