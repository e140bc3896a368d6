/** Usage: what no rule and no query uses, what it costs, rules that drop it, and the relabel rules in force. */

import { request } from "../api/client";
import type { Advice as Data, Unused } from "../api/types";
import { setParams, useAddress } from "../app/router";
import { bytes, count, percent, plural, short } from "../parts/format";
import { useLoad } from "../parts/load";
import { type Column, DataTable } from "../parts/table";
import { dateTime } from "../parts/time";
import { Ago, download, Figures, Name, Page, PageLink, Section, Select, Show } from "../parts/view";
import { RelabelRules } from "./relabel_rules";

const DAY_S = 86_400;
const AGES: Array<[string, string]> = [["", "the whole record"], ["1", "the last day"], ["7", "the last 7 days"], ["30", "the last 30 days"], ["90", "the last 90 days"]];

/** RATE_RANGE_MS of query/advise/src/inventory/stored.rs, and BYTES_PER_SAMPLE of bin/wire/src/api/advice.rs. */
const ESTIMATE =
  "≈ is an estimate. Samples/s is the rate at which the series up of a job arrived in the last 10 minutes, times the series; for a job without up, it is one sample per series and global.scrape_interval (1m by default). On disk a sample has the average size of all blocks, or 1 byte while there are no blocks.";

export function Usage() {
  const { params } = useAddress();
  const [days, labels, exploration, noKeep] = ["days", "labels", "exploration", "no_keep"].map((name) => params.get(name) ?? "") as [string, string, string, string];
  const loaded = useLoad(`advice ${days} ${labels} ${exploration} ${noKeep}`, async (signal) => {
    const since = days === "" ? undefined : Math.floor(Date.now() / 1000) - Number(days) * DAY_S;
    return (await request<Data>("status/advice", { params: { since, labels, count_exploration: exploration, no_keep: noKeep }, signal })).data;
  });
  return (
    <Page title="Usage and drop advice" about={<>What no rule of this server and no recorded query uses, and what it costs. Dashboards that nobody opened are not in the record: check them with <code>varve advise drops</code> before you drop anything.</>}>
      <Show loaded={loaded}>{(advice) => <Advice advice={advice} days={days} labels={labels} exploration={exploration} noKeep={noKeep} />}</Show>
      <RelabelRules />
    </Page>
  );
}

function Advice({ advice, days, labels, exploration, noKeep }: { advice: Data; days: string; labels: string; exploration: string; noKeep: string }) {
  const { totals, unused, sinceMs } = advice;
  const isYoung = Date.now() - sinceMs < 7 * DAY_S * 1000;
  const columns: Array<Column<Unused>> = [
    { id: "metric", title: "Metric", value: ({ metric }) => metric, cell: ({ metric }) => <PageLink page="explore" params={{ metric }}><Name text={metric} /></PageLink>, isName: true },
    ...(unused.some(({ kind }) => kind !== "metric") ? [KIND] : []),
    { id: "job", title: "Job", value: ({ job }) => job, isMinor: true, wraps: true },
    { id: "series", title: "Series", value: ({ series }) => series, cell: ({ series }) => count(series), isNumber: true, bar: true },
    { id: "rate", title: "≈ Samples/s", value: ({ samplesPerSecond }) => samplesPerSecond, cell: ({ samplesPerSecond }) => short(samplesPerSecond), isNumber: true, isMinor: true },
    { id: "disk", title: "≈ Disk", hint: "Over the retention", value: ({ bytes: size }) => size, cell: ({ bytes: size }) => bytes(size), isNumber: true },
  ];
  return (
    <>
      <Figures
        items={[
          ["Unused metrics", `${count(totals.unusedMetrics)} of ${count(totals.metrics)}`],
          ["Unused series", `${count(totals.unusedSeries)} of ${count(totals.series)} (${percent(totals.unusedSeries / Math.max(1, totals.series))})`, "Of unused metrics and of unused buckets"],
          ["≈ Samples/s", `${short(totals.unusedSamplesPerSecond)} of ${short(totals.samplesPerSecond)}`],
          ["≈ Disk over retention", bytes(totals.unusedBytes)],
          ["Record began", dateTime(sinceMs).slice(0, 16)],
        ]}
      />
      {isYoung && <p class="message warning"><span>The usage record is younger than a week (it began <Ago ms={sinceMs} />): rare queries may be missing from it.</span></p>}
      {advice.nameless.length > 0 && (
        <p class="message info"><span>{advice.nameless.length === 1 ? "1 query without a metric name keeps" : `${count(advice.nameless.length)} queries without a metric name keep`} everything that may match: <code>{advice.nameless.slice(0, 3).join("; ")}</code></span></p>
      )}
      {advice.exploration.length > 0 && (
        <p class="message info"><span>Exploration, which is no use: {plural(advice.exploration.length, "query", "queries")} without a metric name, <code>{advice.exploration.slice(0, 3).join("; ")}</code></span></p>
      )}
      {advice.kept.length > 0 && (
        <p class="message info"><span>{plural(advice.kept.length, "unused metric is", "unused metrics are")} kept for diagnosis and not dropped by the rules ({[...new Set(advice.kept.map(({ keptBy }) => keptBy))].join(", ")}): <code>{advice.kept.slice(0, 5).map(({ metric }) => metric).join(", ")}</code>{advice.kept.length > 5 && ` and ${advice.kept.length - 5} more`}</span></p>
      )}
      <Section title="Unused" note={ESTIMATE}>
        <DataTable
          id="u"
          caption="Unused"
          columns={columns}
          rows={unused}
          rowKey={({ job, metric, kind, label }) => JSON.stringify([job, metric, kind, label])}
          text={({ metric, job, label }) => `${metric} ${job} ${label}`}
          sort="series"
          noun="entry"
          nouns="entries"
          isShort
          empty={totals.metrics === 0 ? "There are no series, apart from the server's own." : "Everything is used."}
          controls={
            <>
              <Select label="Not used in" value={days} options={AGES} onChange={(next) => setParams({ days: next })} />
              <label class="field check">
                <input type="checkbox" checked={labels !== ""} onChange={(event) => setParams({ labels: event.currentTarget.checked ? "true" : undefined })} />
                <span>Labels, too</span>
              </label>
              <label class="field check" title="Queries without a metric name count as uses of all series that they may match">
                <input type="checkbox" checked={exploration !== ""} onChange={(event) => setParams({ exploration: event.currentTarget.checked ? "true" : undefined })} />
                <span>Count exploration</span>
              </label>
              <label class="field check" title="Keep metrics of GPU health and API server health although nothing uses them">
                <input type="checkbox" checked={noKeep === ""} onChange={(event) => setParams({ no_keep: event.currentTarget.checked ? undefined : "true" })} />
                <span>Keep health metrics</span>
              </label>
              <button type="button" disabled={advice.rulesCount === 0} onClick={() => download("drop-rules.yaml", "application/yaml", advice.rules)}>
                Download {plural(advice.rulesCount, "rule")}
              </button>
            </>
          }
        />
        {advice.unread.length > 0 && (
          <p class="message info">
            <span>Only recording rules whose results nothing reads use {advice.unread.slice(0, 5).map(({ metric }) => metric).join(", ")}{advice.unread.length > 5 && ` and ${advice.unread.length - 5} more`}. Review these rules.</span>
          </p>
        )}
        <p class="about">The downloaded rules are in dry run: they count what they would drop. They disable themselves when a query uses what they drop. Put the file into a directory that ingest.relabel_files lists.</p>
      </Section>
    </>
  );
}

/** Shown if anything but whole metrics is unused. */
const KIND: Column<Unused> = { id: "kind", title: "Unused", value: ({ kind, label }) => `${kind} ${label}`, cell: (row) => <Kind row={row} />, wraps: true };

function Kind({ row: { kind, label, buckets, droppable } }: { row: Unused }) {
  if (kind === "metric") return <>metric</>;
  if (kind === "buckets") return <span title={buckets.join(", ")}>{plural(buckets.length, "bucket")}</span>;
  return <>label <code>{label}</code>{!droppable && <span class="muted" title="Series would become equal: change the exporter, or aggregate">, not by a rule</span>}</>;
}
