/** Churn: the labels and metrics that created the new series of an hour, and new series over time. */

import { request } from "../api/client";
import type { Churn as ChurnData } from "../api/types";
import { setParams, useAddress } from "../app/router";
import { count, percent } from "../parts/format";
import { labelName, metricSelector } from "../parts/labels";
import { useLoad } from "../parts/load";
import { type Column, DataTable } from "../parts/table";
import { dateTime, parseDateTime, toInput } from "../parts/time";
import { Figures, Name, Page, PageLink, QueryLink, Section, Show } from "../parts/view";
import { type Line, MetricChart } from "./metric_chart";
import { CHURN_MAX } from "./stored";

type LabelRow = ChurnData["labels"][number];
type TeamRow = ChurnData["teams"][number];
type MetricRow = ChurnData["metrics"][number];

const NEW_SERIES: Line[] = [["New series", "varve_ingest_new_series_total", (selector) => `rate(${selector}[5m])`]];

export function Churn() {
  const { params } = useAddress();
  const time = params.get("time") ?? "";
  const timeMs = time === "" ? undefined : Number(time) * 1000;
  const loaded = useLoad(`churn ${time}`, async (signal) => (await request<ChurnData>("status/churn", { params: { time }, signal })).data);
  const setTime = (ms: number | undefined) => setParams({ time: ms === undefined ? undefined : String(Math.round(ms / 1000)) });
  return (
    <Page
      title="Churn"
      about="Series that appeared in an hour and had no sample in the hour before. A label created a series if no series had its value before."
      controls={
        <>
          <label class="field">
            <span>Hour before</span>
            <input type="datetime-local" step={1} value={toInput(timeMs ?? Date.now())} onChange={(event) => setTime(parseDateTime(event.currentTarget.value))} />
          </label>
          {timeMs !== undefined && <button type="button" onClick={() => setTime(undefined)}>Now</button>}
        </>
      }
    >
      <Show loaded={loaded}>{(churn) => <Findings churn={churn} />}</Show>
      <Section title="New series per second">
        <MetricChart note="Drag over the graph to look at another hour." lines={NEW_SERIES} rangeMs={86_400_000} endMs={undefined} onZoom={(_, endMs) => setTime(endMs)} />
      </Section>
    </Page>
  );
}

function Findings({ churn }: { churn: ChurnData }) {
  const { labels, metrics, newSeries, newCombinations, series } = churn;
  return (
    <>
      <Figures
        items={[
          ["Hour", `${dateTime(churn.startMs).slice(0, 16)} – ${dateTime(churn.endMs).slice(11, 16)}`],
          ["Series", count(series)],
          ["New series", count(newSeries)],
          ["Share", percent(series > 0 ? newSeries / series : 0)],
          ["New combinations", count(newCombinations), "New series all of whose label values existed before"],
        ]}
      />
      {churn.summary !== "" && <p class="message info">{churn.summary}</p>}
      {churn.teams.length > 0 && <Section title="Teams"><TeamTable teams={churn.teams} /></Section>}
      <div class="columns">
        <Section title="Labels" note="The label that explains the most new series comes first."><LabelTable labels={labels} isFirstHour={churn.earlierSeries === 0} /></Section>
        <Section title="Metrics" note={metrics.length >= CHURN_MAX ? `The ${CHURN_MAX} metrics with the most new series.` : "All metrics with new series."}><MetricTable metrics={metrics} /></Section>
      </div>
    </>
  );
}

function TeamTable({ teams }: { teams: TeamRow[] }) {
  const columns: Array<Column<TeamRow>> = [
    { id: "team", title: "Team", value: ({ team }) => team, cell: ({ team }) => (team === "" ? <span class="muted">no team</span> : <Name text={team} />), isName: true },
    { id: "new", title: "New series", value: ({ newSeries }) => newSeries, cell: ({ newSeries }) => count(newSeries), isNumber: true, bar: true },
    { id: "label", title: "Cause", value: ({ label }) => label, cell: ({ label, percent: share }) => (label === "" ? "new combinations" : <><code>{label}</code> ({percent(share / 100)})</>) },
    { id: "metric", title: "Most in", value: ({ metric }) => metric, cell: ({ metric }) => <Name text={metric} />, isMinor: true, wraps: true },
  ];
  return <DataTable id="t" caption="New series of teams" columns={columns} rows={teams} rowKey={({ team }) => team} sort="new" noun="team" isShort empty="" />;
}

function LabelTable({ labels, isFirstHour }: { labels: LabelRow[]; isFirstHour: boolean }) {
  const columns: Array<Column<LabelRow>> = [
    { id: "label", title: "Label", value: ({ label }) => label, cell: ({ label }) => <PageLink page="cardinality" params={{ focus: label }}><Name text={label} /></PageLink>, isName: true },
    { id: "new", title: "New series", value: ({ newSeries }) => newSeries, cell: ({ newSeries, percent: share }) => `${count(newSeries)} (${percent(share / 100)})`, isNumber: true, bar: true },
    { id: "alone", title: "Alone", hint: "New series that no other label caused", value: ({ newSeriesAlone }) => newSeriesAlone, cell: ({ newSeriesAlone }) => count(newSeriesAlone), isNumber: true },
    { id: "values", title: "New values", value: ({ newValues }) => newValues, cell: ({ newValues }) => count(newValues), isNumber: true },
    { id: "metrics", title: "Most in", value: ({ metrics }) => metrics[0] ?? "", cell: ({ metrics }) => <span title={metrics.join("\n")}><Name text={metrics[0] ?? ""} /></span>, isMinor: true, wraps: true },
  ];
  return <DataTable id="l" caption="Labels that created series" columns={columns} rows={labels} rowKey={({ label }) => label} text={({ label, metrics }) => `${label} ${metrics[0] ?? ""}`} noun="label" isShort empty={isFirstHour ? "There are no series in the hour before, so all series are new and no label stands out." : "No label created series in this hour."} />;
}

function MetricTable({ metrics }: { metrics: MetricRow[] }) {
  const columns: Array<Column<MetricRow>> = [
    { id: "metric", title: "Metric", value: ({ metric }) => metric, cell: ({ metric }) => <PageLink page="explore" params={{ metric }}><Name text={metric} /></PageLink>, isName: true },
    { id: "new", title: "New series", value: ({ newSeries }) => newSeries, cell: ({ newSeries }) => count(newSeries), isNumber: true, bar: true },
    {
      id: "label",
      title: "Mostly by",
      value: ({ label }) => label,
      cell: ({ metric, label, percent: share }) =>
        label === "" ? "–" : <QueryLink expr={`count by (${labelName(label)}) (${metricSelector(metric)})`}><Name text={label} /> <span class="nowrap">({percent(share / 100)})</span></QueryLink>,
      wraps: true,
    },
  ];
  return <DataTable id="m" caption="Metrics with new series" columns={columns} rows={metrics} rowKey={({ metric }) => metric} text={({ metric }) => metric} sort="new" noun="metric" isShort empty="No metric has new series in this hour." />;
}
