/** One metric: type, help, a query that suits the type, labels with their values, requesters. */

import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { lazy } from "../app/lazy";
import { request } from "../api/client";
import type { CardinalityReport, Labels, QueryData } from "../api/types";
import { setParams, useAddress } from "../app/router";
import { bytes, count, percent, short } from "../parts/format";
import { countLabels, labelName, metricSelector } from "../parts/labels";
import { useLoad } from "../parts/load";
import { type Column, DataTable } from "../parts/table";
import { Figures, Name, PageLink, QueryLink, Section, Show } from "../parts/view";
import { type Kind, kindOf } from "./metric_kind";
import { Requesters } from "./requesters";
import type { Stored } from "./stored";

const MetricGraphs = lazy((extras) => extras.MetricGraphs);

/** Maximum number of series that are read to count labels and values. */
const SERIES_MAX = 10_000;
const RECENT_S = 3600;

interface LabelRow {
  label: string;
  values: number;
  series: number;
  top: string;
}
interface ValueRow {
  value: string;
  series: number;
}

/** Returns a query that suits the type of a metric, and the display that suits the query. */
export function queryFor(metric: string, type: string, matchers: Labels = {}): string {
  const selector = metricSelector(metric, matchers);
  if (type === "histogram" && metric.endsWith("_bucket")) {
    return `histogram_quantile(0.95, sum by (le) (rate(${selector}[5m])))`;
  }
  if (type === "histogram" && !/_(count|sum)$/.test(metric)) return `histogram_quantile(0.95, sum(rate(${selector}[5m])))`;
  const isCounter = type === "counter" || /_(total|count|sum|bucket)$/.test(metric);
  return isCounter ? `sum(rate(${selector}[5m]))` : selector;
}

export function MetricDetail({ metric, stored }: { metric: string; stored: Stored }) {
  const row = stored.metrics.find(({ name }) => name === metric);
  const kind = row ?? kindOf(metric, {});
  const { type, unit } = kind;
  const query = queryFor(metric, type);
  const loaded = useLoad(`series ${metric}`, async (signal) => {
    const start = Math.floor(Date.now() / 1000) - RECENT_S;
    const params = { "match[]": metricSelector(metric), limit: SERIES_MAX, start };
    return (await request<Labels[]>("series", { params, signal })).data;
  });
  return (
    <>
      <p class="muted">{row?.help || "No help text was sent with this metric."}</p>
      {stored.costs ? <Costs metric={metric} kind={kind} newSeries={row?.newSeries} /> : <Figures items={kindFigures(kind)} />}
      <Rate metric={metric} bytesPerSample={stored.costs?.bytesPerSample ?? 0} />
      <p>Open: <QueryLink expr={query}><code>{query}</code></QueryLink></p>
      <Show loaded={loaded}>
        {(series) => (series.length === 0 ? <NoSeries isStored={row !== undefined} /> : (
          <>
            <LabelTables metric={metric} series={series} />
            <MetricGraphs metric={metric} type={type} unit={unit} series={series} />
          </>
        ))}
      </Show>
      {stored.costs && <Section title="Who uses it"><Requesters usage={row?.usage} /></Section>}
    </>
  );
}

function NoSeries({ isStored }: { isStored: boolean }) {
  return <p class="empty">{isStored ? "The metric has had no series in the last hour." : "There is no series of this metric in memory, and there was none in the last hour. Is its name right? Open the query to look at earlier times."}</p>;
}

function kindFigures({ type, unit, isTypeFromName, isUnitFromName }: Kind): Array<[name: string, value: ComponentChildren, hint?: string]> {
  const fromName = (text: string, isFromName: boolean) => (isFromName ? <>{text} <span class="muted from-name">from the name</span></> : text || "–");
  const hint = "The sender sent no metadata; the name follows a convention";
  return [["Type", fromName(type, isTypeFromName), isTypeFromName ? hint : undefined], ["Unit", fromName(unit, isUnitFromName), isUnitFromName ? hint : undefined]];
}

function Costs({ metric, kind, newSeries }: { metric: string; kind: Kind; newSeries?: number }) {
  const loaded = useLoad(`cost ${metric}`, async (signal) => (await request<CardinalityReport>("status/cardinality", { params: { "match[]": metricSelector(metric), limit: 1 }, signal })).data.total);
  return (
    <Show loaded={loaded}>
      {(cost) => (
        <Figures
          items={[
            ...kindFigures(kind),
            ["Series", count(cost.series)],
            ["New series", newSeries === undefined ? "–" : count(newSeries), "In the last hour; – if the metric is not in the list of those with the most new series"],
            ["Memory", bytes(cost.memoryBytes), "Series, labels and samples in memory"],
            ["Disk", bytes(cost.diskBytes), `${count(cost.diskSamples)} samples in blocks`],
          ]}
        />
      )}
    </Show>
  );
}

/** Samples per second, and their disk usage per day. */
function Rate({ metric, bytesPerSample }: { metric: string; bytesPerSample: number }) {
  const loaded = useLoad(`rate ${metric}`, async (signal) => {
    const query = `sum(count_over_time(${metricSelector(metric)}[5m])) / 300`;
    const { data } = await request<QueryData>("query", { method: "POST", params: { query }, signal });
    return data.resultType === "vector" ? Number(data.result[0]?.value?.[1] ?? 0) : 0;
  });
  return (
    <Show loaded={loaded}>
      {(rate) => (
        <p class="muted">
          {short(rate)} samples per second in the last five minutes
          {bytesPerSample > 0 && `, about ${bytes(rate * bytesPerSample * 86_400)} on disk per day at the average size of a sample`}.
        </p>
      )}
    </Show>
  );
}

function LabelTables({ metric, series }: { metric: string; series: Labels[] }) {
  const { params } = useAddress();
  const counts = useMemo(() => countLabels(series), [series]);
  const focus = params.get("label") ?? "";
  const rows = [...counts].map(([label, values]) => toRow(label, values));
  const columns: Array<Column<LabelRow>> = [
    { id: "label", title: "Label", value: ({ label }) => label, cell: ({ label }) => <PageLink page="explore" params={{ metric, label }}><Name text={label} /></PageLink>, wraps: true },
    { id: "values", title: "Values", value: ({ values }) => values, cell: ({ values }) => count(values), isNumber: true, bar: true },
    { id: "series", title: "Series with it", value: ({ series: n }) => n, cell: ({ series: n }) => count(n), isNumber: true },
    { id: "top", title: "Most frequent", value: ({ top }) => top, isMinor: true, wraps: true },
  ];
  const note = series.length >= SERIES_MAX ? `Counted in the first ${count(SERIES_MAX)} series of the last hour.` : "Counted in the series of the last hour.";
  return (
    <div class="columns">
      <Section title="Labels" note={note}>
        <DataTable id="l" caption="Labels" columns={columns} rows={rows} rowKey={({ label }) => label} sort="values" noun="label" isShort empty="The series of the metric have no labels." />
      </Section>
      {counts.has(focus) && <Values metric={metric} label={focus} values={counts.get(focus) ?? new Map()} />}
    </div>
  );
}

function toRow(label: string, values: Map<string, number>): LabelRow {
  const sorted = [...values].sort((a, b) => b[1] - a[1]);
  const series = sorted.reduce((sum, [, n]) => sum + n, 0);
  const [top = "", n = 0] = sorted[0] ?? [];
  return { label, values: values.size, series, top: `${top} (${percent(n / series)})` };
}

function Values({ metric, label, values }: { metric: string; label: string; values: Map<string, number> }) {
  const rows = [...values].map(([value, series]) => ({ value, series }));
  const columns: Array<Column<ValueRow>> = [
    { id: "value", title: "Value", value: ({ value }) => value, cell: ({ value }) => <QueryLink expr={metricSelector(metric, { [label]: value })} tab="table"><code>{value === "" ? '""' : value}</code></QueryLink>, wraps: true },
    { id: "series", title: "Series", value: ({ series }) => series, cell: ({ series }) => count(series), isNumber: true, bar: true },
  ];
  return (
    <Section title={`Values of ${label}`}>
      <DataTable
        id="v"
        caption={`Values of ${label}`}
        columns={columns}
        rows={rows}
        rowKey={({ value }) => value}
        text={({ value }) => value}
        sort="series"
        noun="value"
        isShort
        empty="No values."
        controls={
          <>
            <QueryLink expr={`sum by (${labelName(label)}) (${metricSelector(metric)})`}>Sum by {label}</QueryLink>
            <button type="button" class="quiet" onClick={() => setParams({ label: undefined })}>Close</button>
          </>
        }
      />
    </Section>
  );
}
