/** The requests that were active when the previous process ended. */

import { request } from "../api/client";
import type { QueryRequester } from "../api/types";
import { bytes, count, seconds } from "../parts/format";
import { useLoad } from "../parts/load";
import { type Column, DataTable } from "../parts/table";
import { dateTime } from "../parts/time";
import { QueryLink, Section, Show } from "../parts/view";
import { requesterOf } from "./requesters";

interface Unfinished extends QueryRequester {
  stage: string;
  startedMs: number;
  recordedMs: number;
  memoryBytes: number;
  memoryPeakBytes: number;
  series: number;
  samples: number;
  path: string;
  query: string;
  client: string;
}
export interface PreviousProcess {
  pid: number;
  startedMs: number;
  isCleanShutdown: boolean;
  damagedRecords: number;
  requests: Unfinished[];
}

/** Loads the end of the previous process; null after the first start. */
export async function loadLastWords(signal: AbortSignal): Promise<PreviousProcess | null> {
  return (await request<{ process: PreviousProcess | null }>("status/last_words", { signal })).data.process;
}

export function LastWords() {
  const loaded = useLoad("last words", loadLastWords);
  return (
    <Section title="When the previous process ended">
      <Show loaded={loaded}>
        {(process) => (process ? <Process process={process} /> : <p class="empty">This is the first process on the data directory.</p>)}
      </Show>
    </Section>
  );
}

function Process({ process: { pid, startedMs, isCleanShutdown, requests } }: { process: PreviousProcess }) {
  const columns: Array<Column<Unfinished>> = [
    { id: "query", title: "Query", value: ({ query }) => query, cell: ({ query, path }) => (path.includes("/query") ? <QueryLink expr={query}><code>{query}</code></QueryLink> : <code>{`${path} ${query}`}</code>), isName: true },
    { id: "held", title: "Memory", value: ({ memoryBytes }) => memoryBytes, cell: ({ memoryBytes }) => bytes(memoryBytes), isNumber: true, bar: true },
    { id: "peak", title: "Peak", value: ({ memoryPeakBytes }) => memoryPeakBytes, cell: ({ memoryPeakBytes }) => bytes(memoryPeakBytes), isNumber: true, isMinor: true },
    { id: "samples", title: "Samples", value: ({ samples }) => samples, cell: ({ samples }) => count(samples), isNumber: true, isMinor: true },
    { id: "age", title: "Age", value: (one) => one.recordedMs - one.startedMs, cell: (one) => seconds((one.recordedMs - one.startedMs) / 1000), isNumber: true },
    { id: "stage", title: "Stage", value: ({ stage }) => stage, isMinor: true },
    { id: "who", title: "Sent by", value: (one) => [requesterOf(one), one.client].filter(Boolean).join(" · "), isMinor: true, wraps: true },
  ];
  return (
    <>
      <p class="about">
        Process {pid}, started {dateTime(startedMs)}, {isCleanShutdown ? "shut down." : "was killed or crashed."}
      </p>
      <DataTable id="last" caption="Unfinished requests" columns={columns} rows={requests} rowKey={(one) => `${one.startedMs} ${one.query} ${one.client}`} sort="held" noun="request" empty="No request was unfinished." />
    </>
  );
}
