/** Senders with their rates and last errors, and HA pairs. */

import { request } from "../api/client";
import type { HaCluster } from "../api/types";
import { count, percent, seconds, short } from "../parts/format";
import { useLoad } from "../parts/load";
import { type Column, DataTable } from "../parts/table";
import { dateTime } from "../parts/time";
import { Ago, Figures, Page, Section, Show } from "../parts/view";
import { LAG_MS, SILENT_MS, type Sender, nameOf } from "./senders_data";

const POLL_MS = 5000;

export function Senders() {
  const senders = useLoad("senders", async (signal) => (await request<{ senders: Sender[] }>("status/senders", { signal })).data.senders, POLL_MS);
  const ha = useLoad("ha", async (signal) => (await request<{ clusters: HaCluster[] }>("status/ha", { signal })).data.clusters, POLL_MS);
  return (
    <Page title="Senders" about="Who wrote since startup. Rates are those of the current and the previous minute.">
      <Show loaded={senders}>{(list) => <SenderTable senders={list} />}</Show>
      <Section title="HA pairs"><Show loaded={ha}>{(clusters) => <Pairs clusters={clusters} />}</Show></Section>
    </Page>
  );
}

function SenderTable({ senders }: { senders: Sender[] }) {
  const now = Date.now();
  const rate = senders.reduce((sum, { samplesPerSecond }) => sum + samplesPerSecond, 0);
  const lags = senders.flatMap(({ lagMs }) => lagMs ?? []);
  const lag = lags.length > 0 ? lags.reduce((most, ms) => Math.max(most, ms)) : undefined;
  const columns: Array<Column<Sender>> = [
    { id: "sender", title: "Sender", value: nameOf, cell: (sender) => <><b>{nameOf(sender)}</b><div class="muted">{sender.userAgent}</div></>, isName: true },
    { id: "path", title: "Path", value: ({ path }) => path, cell: ({ path }) => <code>{path}</code>, isMinor: true },
    { id: "rate", title: "Samples/s", value: ({ samplesPerSecond }) => samplesPerSecond, cell: ({ samplesPerSecond }) => short(samplesPerSecond), isNumber: true, bar: true },
    { id: "series", title: "Series", hint: "Series of the last ten minutes, from 64 on estimated, with a standard error of 13 %", value: ({ series }) => series, cell: ({ series }) => short(series, 3), isNumber: true, isMinor: true },
    { id: "samples", title: "Samples", value: ({ samples }) => samples, cell: ({ samples }) => count(samples), isNumber: true, isMinor: true },
    { id: "requests", title: "Requests", value: ({ requests }) => requests, cell: ({ requests }) => count(requests), isNumber: true, isMinor: true },
    { id: "last", title: "Last request", value: ({ lastMs }) => lastMs, cell: ({ lastMs }) => <span class={now - lastMs > SILENT_MS ? "tag warn" : ""}><Ago ms={lastMs} /></span>, isNumber: true },
    { id: "lag", title: "Lag", hint: "Age of the newest sample of the latest request when it was stored", value: ({ lagMs }) => lagMs ?? -1, cell: ({ lagMs, newestSampleMs }) => (lagMs === null ? "–" : <span class={lagMs > LAG_MS ? "tag warn" : ""} title={newestSampleMs === null ? "" : `Newest sample at ${dateTime(newestSampleMs)}`}>{seconds(lagMs / 1000)}</span>), isNumber: true, isMinor: true },
    { id: "same", title: "Same series", hint: "Another sender sends most of these series, too: the samples are stored twice. Configure both as an HA pair (ingest.ha)", value: ({ sameSeries }) => sameSeries.length, cell: ({ sameSeries }) => (sameSeries.length === 0 ? "–" : <>{sameSeries.map(({ sender, share }) => <div class="tag warn">{percent(share)} also from {sender}</div>)}</>), isMinor: true, wraps: true },
    { id: "failed", title: "Failed", hint: "Requests of which not everything was stored", value: ({ failed }) => failed, cell: ({ failed }) => (failed > 0 ? <span class="tag bad">{count(failed)}</span> : "0"), isNumber: true },
    { id: "error", title: "Last error", value: ({ lastError }) => lastError, cell: ({ lastError, lastErrorMs }) => (lastError === "" ? "–" : <>{lastError} <span class="muted"><Ago ms={lastErrorMs} /></span></>), isMinor: true, wraps: true },
  ];
  return (
    <>
      <Figures items={[["Senders", count(senders.length)], ["Samples/s", short(rate)], ["Silent", count(senders.filter(({ lastMs }) => now - lastMs > SILENT_MS).length), "No request for two minutes"], ["Largest lag", lag === undefined ? "–" : seconds(lag / 1000), "Age of the newest sample of a sender's latest request"], ["With errors", count(senders.filter(({ failed }) => failed > 0).length)]]} />
      <DataTable id="s" caption="Senders" columns={columns} rows={senders} rowKey={(sender) => `${nameOf(sender)} ${sender.userAgent} ${sender.path}`} text={(sender) => `${nameOf(sender)} ${sender.userAgent} ${sender.path} ${sender.lastError}`} sort="rate" noun="sender" empty="Nobody wrote since startup. Remote write goes to /api/v1/write, OpenTelemetry to /api/v1/otlp/v1/metrics." />
    </>
  );
}

function Pairs({ clusters }: { clusters: HaCluster[] }) {
  const columns: Array<Column<HaCluster>> = [
    { id: "cluster", title: "Cluster", value: ({ cluster }) => cluster },
    { id: "leader", title: "Leader", value: ({ leader }) => leader?.replica ?? "", cell: ({ leader }) => (leader ? `${leader.replica}, silent for ${seconds(leader.silentMs / 1000)}` : "–") },
    { id: "standbys", title: "Standbys", value: ({ standbys }) => standbys.length, cell: ({ standbys }) => standbys.map(({ replica, silentMs }) => `${replica} (${seconds(silentMs / 1000)})`).join(", ") || "none", wraps: true },
    { id: "since", title: "Leads since", value: ({ sinceMs }) => sinceMs, cell: ({ sinceMs }) => <Ago ms={sinceMs} />, isNumber: true, isMinor: true },
    { id: "changes", title: "Changes", value: ({ changes }) => changes, isNumber: true, isMinor: true },
    { id: "deduplicated", title: "Deduplicated samples", value: ({ samplesDeduplicated }) => samplesDeduplicated, cell: ({ samplesDeduplicated }) => count(samplesDeduplicated), isNumber: true, isMinor: true },
  ];
  return <DataTable id="h" caption="HA pairs" columns={columns} rows={clusters} rowKey={({ cluster }) => cluster} noun="pair" empty="No HA pairs are configured (ingest.ha), or none sent samples yet." />;
}
