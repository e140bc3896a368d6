/** Usage: metrics that queries used, unused metrics with their costs, and rules that drop them. */

import { useMemo } from "preact/hooks";
import { request } from "../api/client";
import type { RelabelRule } from "../api/types";
import { bytes, count, percent, short } from "../parts/format";
import { useLoad } from "../parts/load";
import { type Column, DataTable } from "../parts/table";
import { dateTime } from "../parts/time";
import { Ago, Figures, Page, PageLink, Section, Select, Show, download } from "../parts/view";
import { setParams, useAddress } from "../app/router";
import { dropRules } from "./drop_rules";
import { LastUse } from "./requesters";
import { type MetricRow, type Stored, loadStored } from "./stored";

const DAY_MS = 86_400_000;
const AGES: Array<[string, string]> = [["", "ever recorded"], ["1", "the last day"], ["7", "the last 7 days"], ["30", "the last 30 days"], ["90", "the last 90 days"]];
const POLL_MS = 10_000;

export function Usage() {
  const loaded = useLoad("stored", loadStored);
  return (
    <Page title="Usage and drop advice" about="Metrics that no query asked for, and what they cost. The record knows queries that this server answered: add rules and dashboards that rarely run with varve advise drops before you drop anything.">
      <Show loaded={loaded}>{(stored) => <Advice stored={stored} />}</Show>
      <Rules />
    </Page>
  );
}

/** Returns the metrics that no query used since a time. Without a time, returns the metrics that are not in the usage record. */
export function unusedSince(metrics: MetricRow[], sinceMs: number | undefined): MetricRow[] {
  return metrics.filter(({ usage }) => !usage || (sinceMs !== undefined && usage.lastMs < sinceMs));
}

function Advice({ stored }: { stored: Stored }) {
  const { params } = useAddress();
  const days = params.get("days") ?? "";
  const sinceMs = days === "" ? undefined : Date.now() - Number(days) * DAY_MS;
  const { metrics, usage, bytesPerSeries, status } = stored;
  const unused = useMemo(() => unusedSince(metrics, sinceMs), [metrics, days]);
  const nSeries = unused.reduce((sum, { series }) => sum + series, 0);
  const recordDays = (Date.now() - usage.sinceMs) / DAY_MS;
  const columns: Array<Column<MetricRow>> = [
    { id: "name", title: "Metric", value: ({ name }) => name, cell: ({ name }) => <PageLink page="explore" params={{ metric: name }}><code>{name}</code></PageLink>, isName: true },
    { id: "type", title: "Type", value: ({ type }) => type, cell: ({ type }) => <span class="tag">{type}</span>, isMinor: true },
    { id: "series", title: "Series", value: ({ series }) => series, cell: ({ series }) => count(series), isNumber: true, bar: true },
    { id: "memory", title: "≈ Memory", hint: "Series times the average memory of a series", value: ({ series }) => series, cell: ({ series }) => bytes(series * bytesPerSeries), isNumber: true },
    { id: "used", title: "Last used", value: ({ usage: own }) => -(own?.lastMs ?? 0), cell: ({ usage: own }) => <LastUse usage={own} />, isMinor: true, wraps: true },
  ];
  const save = () => download("drop-rules.yaml", "application/yaml", dropRules(unused.map(({ name }) => name)));
  return (
    <>
      <Figures
        items={[
          ["Unused metrics", `${count(unused.length)} of ${count(metrics.length)}`],
          ["Their series", `${count(nSeries)} (${percent(nSeries / Math.max(1, status.headStats.numSeries))})`],
          ["≈ Their memory", bytes(nSeries * bytesPerSeries)],
          ["Record began", dateTime(usage.sinceMs).slice(0, 16)],
        ]}
      />
      {recordDays < 7 && <p class="message warning">The usage record is younger than a week (it began <Ago ms={usage.sinceMs} />): rare queries may be missing from it.</p>}
      <Section title="Unused metrics">
        <DataTable
          id="u"
          caption="Unused metrics"
          columns={columns}
          rows={unused}
          rowKey={({ name }) => name}
          text={({ name }) => name}
          sort="series"
          noun="metric"
          empty="Every metric was used."
          controls={
            <>
              <Select label="Not used in" value={days} options={AGES} onChange={(next) => setParams({ days: next })} />
              <button type="button" onClick={save}>Download drop rules</button>
            </>
          }
        />
        <p class="about">The rules are in dry run: they count what they would drop. They disable themselves when a query uses what they drop. Add them to ingest.metric_relabel_configs.</p>
      </Section>
    </>
  );
}

function Rules() {
  const loaded = useLoad("relabel", async (signal) => (await request<{ rules: RelabelRule[] }>("status/relabel", { signal })).data.rules, POLL_MS);
  const columns: Array<Column<RelabelRule>> = [
    { id: "name", title: "Rule", value: ({ name }) => name, cell: ({ name }) => <code>{name}</code>, isName: true },
    { id: "state", title: "State", value: ({ state }) => state, cell: (rule) => <State rule={rule} />, wraps: true },
    { id: "series", title: "Series", hint: "Label sets that the rule dropped or changed, or would have", value: ({ series }) => series, cell: ({ series }) => count(series), isNumber: true },
    { id: "samples", title: "Samples", value: ({ samples }) => samples, cell: ({ samples }) => count(samples), isNumber: true, isMinor: true },
    { id: "rate", title: "Samples/s", value: ({ samplesPerSecond }) => samplesPerSecond, cell: ({ samplesPerSecond }) => short(samplesPerSecond), isNumber: true },
  ];
  return (
    <Section title="Relabel rules" note="Counters since the rules were loaded.">
      <Show loaded={loaded}>
        {(rules) => <DataTable id="r" caption="Relabel rules" columns={columns} rows={rules} rowKey={({ name }) => name} noun="rule" empty="No relabel rules are configured (ingest.metric_relabel_configs)." />}
      </Show>
    </Section>
  );
}

function State({ rule: { state, disableOnUse, disabledByUse } }: { rule: RelabelRule }) {
  return (
    <>
      <span class={state === "enforce" ? "tag good" : "tag"}>{state}</span>
      {disableOnUse && <span class="tag">disables on use</span>}
      {disabledByUse && <div class="muted">Disabled by {disabledByUse.who || "a query"}: <code>{disabledByUse.selector}</code> <Ago ms={disabledByUse.atMs} /></div>}
    </>
  );
}
