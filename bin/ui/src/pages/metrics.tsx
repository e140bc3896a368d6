/** The metrics explorer: a search of all metrics, and the details of one. */

import { useAddress } from "../app/router";
import { bytes, count, short } from "../parts/format";
import { useLoad } from "../parts/load";
import { type Column, DataTable } from "../parts/table";
import { Figures, Name, Page, PageLink, Show } from "../parts/view";
import { MetricDetail } from "./metric_detail";
import { LAST_USED_HINT, LastUse } from "./requesters";
import { CHURN_MAX, METRICS_MAX, type MetricRow, type Stored, loadStored } from "./stored";

export function Metrics() {
  const { params } = useAddress();
  const metric = params.get("metric") ?? "";
  const loaded = useLoad("stored", loadStored);
  return (
    <Page
      title={metric === "" ? "Metrics" : metric}
      controls={metric !== "" && <PageLink page="explore">All metrics</PageLink>}
      about={metric === "" && loaded.data?.costs && "Metrics with series in memory. Memory is estimated from the average of all series; new series are those of the last hour."}
    >
      <Show loaded={loaded}>
        {(stored) => (metric === "" ? <MetricList stored={stored} /> : <MetricDetail metric={metric} stored={stored} />)}
      </Show>
    </Page>
  );
}

/** Columns that need no view of the whole server. */
const NAME_COLUMNS = ["name", "type", "unit", "help"];
const FROM_NAME = "From the name: the sender sent no metadata";

function MetricList({ stored }: { stored: Stored }) {
  const { metrics, costs } = stored;
  // The list may lack metrics with few series.
  const isPartial = metrics.length >= METRICS_MAX;
  const unused = metrics.filter(({ usage }) => !usage);
  const unusedSeries = unused.reduce((sum, { series }) => sum + series, 0);
  const { series: seriesInMemory, bytesPerSeries, bytesPerSample } = costs ?? { series: 0, bytesPerSeries: 0, bytesPerSample: 0 };
  const all: Array<Column<MetricRow>> = [
    { id: "name", title: "Metric", value: ({ name }) => name, cell: ({ name }) => <PageLink page="explore" params={{ metric: name }}><Name text={name} /></PageLink>, isName: true },
    { id: "type", title: "Type", value: ({ type }) => type, cell: ({ type, isTypeFromName }) => <span class={isTypeFromName ? "tag guessed" : "tag"} title={isTypeFromName ? FROM_NAME : undefined}>{type}</span> },
    { id: "unit", title: "Unit", value: ({ unit }) => unit, cell: ({ unit, isUnitFromName }) => <span class={isUnitFromName ? "guessed" : ""} title={isUnitFromName ? FROM_NAME : undefined}>{unit}</span>, isMinor: true },
    { id: "series", title: "Series", value: ({ series }) => series, cell: ({ series }) => count(series), isNumber: true, bar: true },
    { id: "memory", title: "≈ Memory", hint: "Series times the average memory of a series", value: ({ series }) => series, cell: ({ series }) => bytes(series * bytesPerSeries), isNumber: true, isMinor: true },
    { id: "new", title: "New series", hint: `Series created in the last hour; – if the metric is not among the ${CHURN_MAX} with the most`, value: ({ newSeries = 0 }) => newSeries, cell: ({ newSeries }) => (newSeries === undefined ? "–" : count(newSeries)), isNumber: true, isMinor: true },
    { id: "used", title: "Last used", hint: LAST_USED_HINT, value: ({ usage }) => -(usage?.lastMs ?? 0), cell: ({ usage }) => <LastUse usage={usage} />, isMinor: true, wraps: true },
    { id: "help", title: "Help", value: ({ help }) => help, isMinor: true, wraps: true },
  ];
  const columns = costs ? all : all.filter(({ id }) => NAME_COLUMNS.includes(id));
  return (
    <>
      {costs && <Figures
        items={[
          ["Metrics", isPartial ? `at least ${count(metrics.length)}` : count(metrics.length)],
          ["Series in memory", count(seriesInMemory)],
          ["Memory per series", bytes(bytesPerSeries), "Series, labels and samples in the head"],
          ["Disk per sample", bytesPerSample > 0 ? `${short(bytesPerSample)} B` : "no blocks yet", "Average of all blocks"],
          ["Series of unused metrics", isPartial ? `at least ${count(unusedSeries)}` : count(unusedSeries), "No query used their metric since the usage record began"],
        ]}
      />}
      <DataTable
        id="m"
        caption="Metrics"
        columns={columns}
        rows={metrics}
        rowKey={({ name }) => name}
        text={({ name, help, type, unit }) => `${name} ${type} ${unit} ${help}`}
        sort={costs ? "series" : undefined}
        noun="metric"
        empty={costs ? "The store has no series in memory." : "There are no series that you may see."}
        extent={!isPartial ? undefined : costs ? `the ${count(METRICS_MAX)} metrics with the most series` : `the first ${count(METRICS_MAX)} metrics`}
      />
    </>
  );
}
