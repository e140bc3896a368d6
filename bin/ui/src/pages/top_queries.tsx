/** Queries that cost the most in the last hour or day, by the shape of their expression. */

import { request } from "../api/client";
import { setParams, useAddress } from "../app/router";
import { bytes, count, seconds } from "../parts/format";
import { useLoad } from "../parts/load";
import { type Column, DataTable } from "../parts/table";
import { Name, QueryLink, Section, Select, Show } from "../parts/view";
import { nameOf } from "./requesters";

interface TopQuery {
  shape: string;
  example: string;
  userAgent: string;
  queries: number;
  failed: number;
  seconds: number;
  secondsMax: number;
  samples: number;
  memoryPeakBytes: number;
}

const POLL_MS = 10_000;

export function TopQueries() {
  const { params } = useAddress();
  const range = params.get("range") ?? "hour";
  const loaded = useLoad(
    `top ${range}`,
    async (signal) => (await request<{ queries: TopQuery[] }>("status/top_queries", { params: { range }, signal })).data.queries,
    POLL_MS,
  );
  return (
    <Section title="Most expensive queries" note="Queries that differ only in strings count together. The link opens the latest of them.">
      <div class="table-tools">
        <Select label="In the last" value={range} options={[["hour", "hour"], ["day", "day"]]} onChange={(next) => setParams({ range: next })} />
      </div>
      <Show loaded={loaded}>{(queries) => <TopTable queries={queries} />}</Show>
    </Section>
  );
}

function TopTable({ queries }: { queries: TopQuery[] }) {
  const columns: Array<Column<TopQuery>> = [
    { id: "shape", title: "Query", value: ({ shape }) => shape, cell: ({ shape, example }) => <QueryLink expr={example}><Name text={shape} /></QueryLink>, isName: true },
    { id: "total", title: "Total time", value: (query) => query.seconds, cell: (query) => seconds(query.seconds), isNumber: true, bar: true },
    { id: "n", title: "Queries", value: (query) => query.queries, cell: (query) => count(query.queries), isNumber: true },
    { id: "max", title: "Longest", value: (query) => query.secondsMax, cell: (query) => seconds(query.secondsMax), isNumber: true },
    { id: "memory", title: "Peak memory", value: (query) => query.memoryPeakBytes, cell: (query) => bytes(query.memoryPeakBytes), isNumber: true, isMinor: true },
    { id: "samples", title: "Samples", value: (query) => query.samples, cell: (query) => count(query.samples), isNumber: true, isMinor: true },
    { id: "failed", title: "Failed", value: ({ failed }) => failed, cell: ({ failed }) => (failed > 0 ? <span class="tag bad">{count(failed)}</span> : "0"), isNumber: true, isMinor: true },
    { id: "who", title: "Last client", value: ({ userAgent }) => nameOf({ userAgent, dashboard: "", panel: "", rule: "", queries: 0, lastMs: 0 }), isMinor: true, wraps: true },
  ];
  return <DataTable id="top" caption="Most expensive queries" columns={columns} rows={queries} rowKey={({ shape }) => shape} text={({ shape }) => shape} sort="total" noun="query" nouns="queries" empty="No query ended in this time." />;
}
