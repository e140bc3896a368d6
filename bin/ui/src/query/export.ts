/** Results as CSV and JSON files. */

import type { MatrixElement, QueryData, VectorElement } from "../api/types";

/** Quotes a field of a CSV file as in RFC 4180. A quote in front keeps a spreadsheet from running the field as a formula. */
function field(text: string): string {
  const safe = /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
}

/** Returns one line per sample: its labels, its time as RFC 3339, its value. A native histogram has count and sum. Of
 * several results, the first column has the expression. */
export function toCsv(...results: Array<{ expr: string; data: QueryData }>): string {
  const hasSeveral = results.length > 1;
  const withExpr = (expr: string, rows: string[][]) => (hasSeveral ? rows.map((row) => [expr, ...row]) : rows);
  const scalar = results[0]?.data;
  if (!hasSeveral && scalar && (scalar.resultType === "scalar" || scalar.resultType === "string")) {
    return lines([["time", "value"], [iso(scalar.result[0]), scalar.result[1]]]);
  }
  const all = results.map(({ expr, data }) => ({ expr, elements: elementsOf(data) }));
  const names = [...new Set(all.flatMap(({ elements }) => elements.flatMap(({ metric }) => Object.keys(metric))))].sort();
  const rows = all.flatMap(({ expr, elements }) => withExpr(expr, elements.flatMap((element) => rowsOf(element, names))));
  return lines([...withExpr("query", [[...names, "time", "value", "count", "sum"]]), ...rows]);
}

function elementsOf(data: QueryData): Array<VectorElement & MatrixElement> {
  if (data.resultType === "scalar" || data.resultType === "string") return [{ metric: {}, value: data.result }];
  return data.result as Array<VectorElement & MatrixElement>;
}

function rowsOf(element: VectorElement & MatrixElement, names: string[]): string[][] {
  const row = (time: number, value: string, count = "", sum = "") => [...names.map((name) => element.metric[name] ?? ""), iso(time), value, count, sum];
  const { values, histograms } = samplesOf(element);
  return [...values.map(([time, value]) => row(time, value)), ...histograms.map(([time, { count, sum }]) => row(time, "", count, sum))];
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
