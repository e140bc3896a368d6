/** Results as CSV and JSON files. */

import type { Labels, MatrixElement, QueryData, VectorElement } from "../api/types";

/** Quotes a field of a CSV file as in RFC 4180. A quote in front keeps a spreadsheet from running the field as a formula. */
function field(text: string): string {
  const safe = /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
}

/** Returns one line per sample: its labels, its time as RFC 3339, its value. A native histogram has count and sum. */
export function toCsv(data: QueryData): string {
  if (data.resultType === "scalar" || data.resultType === "string") {
    return lines([["time", "value"], [iso(data.result[0]), data.result[1]]]);
  }
  const elements = data.result as Array<VectorElement & MatrixElement>;
  const names = [...new Set(elements.flatMap(({ metric }) => Object.keys(metric)))].sort();
  const rows: string[][] = [[...names, "time", "value", "count", "sum"]];
  const add = (labels: Labels, time: number, value: string, count = "", sum = "") =>
    rows.push([...names.map((name) => labels[name] ?? ""), iso(time), value, count, sum]);
  for (const element of elements) {
    const { values, histograms } = samplesOf(element);
    for (const [time, value] of values) add(element.metric, time, value);
    for (const [time, { count, sum }] of histograms) add(element.metric, time, "", count, sum);
  }
  return lines(rows);
}

function samplesOf(element: VectorElement & MatrixElement) {
  const { value, values = [], histogram, histograms = [] } = element;
  return { values: value ? [value] : values, histograms: histogram ? [histogram] : histograms };
}

function iso(time: number): string {
  return new Date(time * 1000).toISOString();
}

function lines(rows: string[][]): string {
  return rows.map((row) => row.map(field).join(",") + "\r\n").join("");
}
