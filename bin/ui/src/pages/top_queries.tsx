/** Queries that cost the most in the last hour or day, by the shape of their expression or by who sent them. */

import { request } from "../api/client";
import type { QueryRequester } from "../api/types";
import { setParams, useAddress } from "../app/router";
import { bytes, count, seconds } from "../parts/format";
import { useLoad } from "../parts/load";
import { type Column, DataTable } from "../parts/table";
import { Name, QueryLink, Section, Select, Show } from "../parts/view";
import { requesterOf } from "./requesters";

interface TopQuery extends QueryRequester {
  shape: string;
  example: string;
  queries: number;
  failed: number;
  seconds: number;
  secondsMax: number;
  samples: number;
  memoryPeakBytes: number;
}

const POLL_MS = 10_000;
/** SHAPE_SIZE_MAX of bin/server/src/queries/top_queries.rs: the server keeps so many bytes of a query. */
const QUERY_SIZE_MAX = 512;
/** Bytes of a character that does not fit, and by which a cut text is shorter. */
const CHARACTER_SIZE_MAX = 4;

/** Returns `true` if the server may have cut a query off. */
export function isCutOff(query: string): boolean {
  return new TextEncoder().encode(query).length > QUERY_SIZE_MAX - CHARACTER_SIZE_MAX;
}
/** What queries are grouped by, as the endpoint and the page call it. */
const GROUPINGS: Array<[string, string]> = [
  ["shape", "query"],
  ["dashboard", "dashboard"],
  ["panel", "panel"],
  ["user", "user"],
  ["user_agent", "program"],
];

export function TopQueries() {
  const { params } = useAddress();
  const range = params.get("range") ?? "hour";
  const by = params.get("by") ?? "shape";
  const loaded = useLoad(
    `top ${range} ${by}`,
    async (signal) => (await request<{ queries: TopQuery[] }>("status/top_queries", { params: { range, by }, signal })).data.queries,
    POLL_MS,
  );
  return (
    <Section title="Most expensive queries" note="Queries that differ only in strings are one query. The link opens the latest of a row.">
      <div class="table-tools">
        <Select label="In the last" value={range} options={[["hour", "hour"], ["day", "day"]]} onChange={(next) => setParams({ range: next })} />
        <Select label="By" value={by} options={GROUPINGS} onChange={(next) => setParams({ by: next })} />
      </div>
      <Show loaded={loaded}>{(queries) => <TopTable queries={queries} by={by} />}</Show>
    </Section>
  );
}

function TopTable({ queries, by }: { queries: TopQuery[]; by: string }) {
  const isByShape = by === "shape";
  const groupOf = (query: TopQuery) => (isByShape ? query.shape : partOf(query, by));
  const columns: Array<Column<TopQuery>> = [
    { id: "shape", title: GROUPINGS.find(([id]) => id === by)?.[1].replace(/^./, (first) => first.toUpperCase()) ?? "Query", value: groupOf, cell: (query) => <GroupName query={query} text={isByShape && isCutOff(query.shape) ? `${query.shape}…` : groupOf(query)} />, isName: true },
    { id: "total", title: "Total time", value: (query) => query.seconds, cell: (query) => seconds(query.seconds), isNumber: true, bar: true },
    { id: "n", title: "Queries", value: (query) => query.queries, cell: (query) => count(query.queries), isNumber: true },
    { id: "max", title: "Longest", value: (query) => query.secondsMax, cell: (query) => seconds(query.secondsMax), isNumber: true },
    { id: "memory", title: "Peak memory", value: (query) => query.memoryPeakBytes, cell: (query) => bytes(query.memoryPeakBytes), isNumber: true, isMinor: true },
    { id: "samples", title: "Samples", value: (query) => query.samples, cell: (query) => count(query.samples), isNumber: true, isMinor: true },
    { id: "failed", title: "Failed", value: ({ failed }) => failed, cell: ({ failed }) => (failed > 0 ? <span class="tag bad">{count(failed)}</span> : "0"), isNumber: true, isMinor: true },
    ...(isByShape ? [{ id: "who", title: "Last sent by", value: requesterOf, isMinor: true, wraps: true } satisfies Column<TopQuery>] : []),
  ];
  return <DataTable id="top" caption="Most expensive queries" columns={columns} rows={queries} rowKey={groupOf} text={groupOf} sort="total" noun="query" nouns="queries" empty="No query ended in this time." />;
}

/** The name of a group, which opens its latest query if the server has the whole text of it. */
function GroupName({ query: { example }, text }: { query: TopQuery; text: string }) {
  if (isCutOff(example)) return <span title={`The server keeps the first ${QUERY_SIZE_MAX} bytes of a query`}><Name text={text} /></span>;
  return <QueryLink expr={example}><Name text={text} /></QueryLink>;
}

/** Returns what the queries of a group share. */
function partOf({ user, userAgent, dashboard, panel, grafanaUser }: TopQuery, by: string): string {
  switch (by) {
    case "dashboard":
      return dashboard || "no dashboard";
    case "panel":
      return dashboard === "" ? "no dashboard" : `${dashboard}, panel ${panel || "unknown"}`;
    case "user":
      return [user, grafanaUser && `Grafana user ${grafanaUser}`].filter(Boolean).join(" · ") || "no user";
    default:
      return userAgent || "unknown";
  }
}
