/** The result of an instant query as a table: one column for each label in which the series differ. */

import { useMemo } from "preact/hooks";
import type { Histogram, Labels, QueryData } from "../api/types";
import { toNumber } from "../chart/grid";
import { plural, short } from "../parts/format";
import { compareLabels, printLabels } from "../parts/labels";
import { type Column, DataTable } from "../parts/table";
import { dateTime } from "../parts/time";

interface Row {
  key: string;
  labels: Labels;
  time: number;
  text: string;
  histogram?: Histogram;
}

/** Maximum number of labels with separate columns. If there are more, one column shows the whole label set. */
const COLUMNS_MAX = 8;

export function ResultTable({ id, data }: { id: string; data: QueryData }) {
  const rows = useMemo(() => toRows(data), [data]);
  const { common, varying } = useMemo(() => compareLabels(rows.map(({ labels }) => labels)), [rows]);
  if (data.resultType === "scalar" || data.resultType === "string") {
    return <p class="scalar"><code>{data.result[1]}</code> <span class="muted">{data.resultType}</span></p>;
  }
  const columns = [...labelColumns(varying), ...valueColumns(rows)];
  const hasCommon = Object.keys(common).length > 0;
  const isMatrix = data.resultType === "matrix";
  const series = plural(data.result.length, "series", "series");
  return (
    <DataTable
      id={id}
      caption="Result"
      columns={columns}
      rows={rows}
      rowKey={({ key }) => key}
      text={({ key }) => key}
      noun={isMatrix ? "sample" : "series"}
      nouns={isMatrix ? "samples" : "series"}
      extent={<>{isMatrix && `${plural(rows.length, "sample")} of `}{series}{hasCommon && <> of <code>{printLabels(common)}</code></>}</>}
      empty="The result is empty: no series matches at this time."
    />
  );
}

function toRows(data: QueryData): Row[] {
  if (data.resultType === "vector") {
    return data.result.map(({ metric, value, histogram }) => ({
      key: printLabels(metric),
      labels: metric,
      time: (value ?? histogram)?.[0] ?? 0,
      text: value?.[1] ?? "",
      histogram: histogram?.[1],
    }));
  }
  if (data.resultType !== "matrix") return [];
  // An instant query of a range selector: one row per sample.
  return data.result.flatMap(({ metric, values = [], histograms = [] }) => [
    ...values.map(([time, text]) => ({ key: `${printLabels(metric)} @ ${time}`, labels: metric, time, text })),
    ...histograms.map(([time, histogram]) => ({ key: `${printLabels(metric)} @ ${time}`, labels: metric, time, text: "", histogram })),
  ]);
}

function labelColumns(varying: string[]): Array<Column<Row>> {
  if (varying.length === 0 || varying.length > COLUMNS_MAX) {
    return [{ id: "series", title: "Series", value: ({ labels }) => printLabels(labels), cell: ({ labels }) => <code>{printLabels(labels)}</code>, wraps: true }];
  }
  return varying.map((name) => ({
    id: `label.${name}`,
    title: name === "__name__" ? "Metric" : name,
    value: ({ labels }: Row) => labels[name] ?? "",
    wraps: true,
  }));
}

function valueColumns(rows: Row[]): Array<Column<Row>> {
  const times = new Set(rows.map(({ time }) => time));
  const time: Column<Row> = { id: "time", title: "Time", value: ({ time: at }) => at, cell: ({ time: at }) => dateTime(at * 1000, true), isNumber: true };
  const value: Column<Row> = {
    id: "value",
    title: "Value",
    value: ({ text, histogram }) => (histogram ? Number(histogram.count) : toNumber(text)),
    cell: ({ text, histogram }) => (histogram ? <HistogramCell histogram={histogram} /> : <><code>{text}</code><Short text={text} /></>),
    isNumber: true,
  };
  return times.size > 1 ? [time, value] : [value];
}

/** A value of many digits in short: 262558695424 is 262.6G. */
function Short({ text }: { text: string }) {
  const value = toNumber(text);
  return Math.abs(value) >= 1e5 && Math.abs(value) < 1e21 ? <span class="muted minor short">{short(value)}</span> : null;
}

/** A native histogram: count, sum, and its buckets as bars. */
function HistogramCell({ histogram: { count, sum, buckets = [] } }: { histogram: Histogram }) {
  const most = buckets.reduce((max, [, , , n]) => Math.max(max, Number(n)), 0);
  return (
    <details class="histogram">
      <summary>count {short(Number(count))}, sum {short(toNumber(sum))}, {plural(buckets.length, "bucket")}</summary>
      <table class="buckets">
        <tbody>
          {buckets.map(([rule, lower, upper, n]) => (
            <tr key={`${lower} ${upper}`}>
              <th scope="row">{rule === 1 || rule === 3 ? "[" : "("}{short(toNumber(lower))}, {short(toNumber(upper))}{rule === 0 || rule === 3 ? "]" : ")"}</th>
              <td><span class="bucket-bar" style={{ width: `${most > 0 ? (Number(n) / most) * 100 : 0}%` }} /></td>
              <td class="number">{short(Number(n))}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </details>
  );
}
