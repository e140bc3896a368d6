import { deepStrictEqual } from "node:assert";
import { test } from "node:test";
import type { Churn } from "../src/api/types";
import { historyCompletion } from "../src/editor/history_completion";
import { compare, extentOf, pairSelector, withPair } from "../src/pages/cardinality";
import { withLabel } from "../src/pages/cardinality_data";
import { exprOf, pointsOf } from "../src/pages/metric_chart";
import { queryFor } from "../src/pages/metric_detail";
import { countLabels } from "../src/parts/labels";
import { index } from "../src/pages/own_metrics";
import { nameOf } from "../src/pages/requesters";
import { ruleFile } from "../src/pages/rules/explain";
import { forecastText } from "../src/pages/overview/page";
import { pathOf } from "../src/pages/overview/sparkline";
import { type ActiveAlert, groupAlerts, isShown, stateOf } from "../src/pages/rules/data";
import { matching } from "../src/pages/rules/page";
import { exprOf as graphOf } from "../src/pages/metric_graphs";
import { kindOf, metadataOf } from "../src/pages/metric_kind";
import { newSeriesOf } from "../src/pages/stored";
import { type Column, sortRows } from "../src/parts/table";
import { isCutOff } from "../src/pages/top_queries";
import { check } from "./check";

check("a query that suits the type", queryFor, [
  [["a_total", "counter"], "sum(rate(a_total[5m]))"],
  [["a_bucket", "histogram"], "histogram_quantile(0.95, sum by (le) (rate(a_bucket[5m])))"],
  [["a_count", "histogram"], "sum(rate(a_count[5m]))"],
  [["a", "histogram"], "histogram_quantile(0.95, sum(rate(a[5m])))"],
  [["a", "gauge"], "a"],
  [["a b", "unknown"], '{"a b"}'],
]);
check("a matcher is added to a selector", withLabel, [
  [["up", "job"], 'up{job!=""}'],
  [["{}", "job"], '{job!=""}'],
  [['up{a="b"}', "__name__"], 'up{a="b"}'],
  [['up{a="b"}', "x.y"], 'up{a="b","x.y"!=""}'],
  [['up{a="b", }', "c"], 'up{a="b",c!=""}'],
]);
check("a pair becomes a selector", pairSelector, [[["__name__=up"], "up"], [['a=b="c'], '{a="b=\\"c"}']]);
check("a pair narrows a selector", withPair, [
  [["", "a=b"], '{a="b"}'],
  [["{}", "a=b"], '{a="b"}'],
  [['{job="x"}', "a=b"], '{job="x", a="b"}'],
  [["up", "a=b"], 'up{a="b"}'],
  [['{job="x"}', "__name__=up"], "up"],
]);
check("counts are compared", compare, [
  [[[{ name: "a", value: 3 }]], [{ name: "a", value: 3, change: undefined }]],
  [[[{ name: "a", value: 3 }, { name: "b", value: 1 }], [{ name: "a", value: 5 }]], [{ name: "a", value: 3, change: -2 }, { name: "b", value: 1, change: 1 }]],
]);

check("a list of the largest entries says so", extentOf, [
  [[3, 3, "metric"], "3 metrics"],
  [[1000, 14_210, "metric"], "the 1,000 largest of 14.21k metrics"],
  [[60, 91, "label", "first"], "the 60 first of 91 labels"],
]);

test("metrics beyond a full list have an unknown number of new series", () => {
  const churn = (n: number) => ({ metrics: Array.from({ length: n }, (_, i) => ({ metric: `m${i}`, newSeries: 7, label: "", percent: 0 })) }) as Churn;
  deepStrictEqual([newSeriesOf(churn(2))("m1"), newSeriesOf(churn(2))("x"), newSeriesOf(churn(100))("x")], [7, 0, undefined]);
});

test("labels are counted", () => {
  const counts = countLabels([{ __name__: "a", x: "1" }, { __name__: "a", x: "1", y: "" }]);
  deepStrictEqual([...counts].map(([name, values]) => [name, [...values]]), [["x", [["1", 2]]], ["y", [["", 1]]]]);
});

test("own metrics are summed by labels", () => {
  const own = index([
    { name: "c", metric: [{ label: [{ name: "a", value: "x" }], counter: { value: 1 } }, { label: [{ name: "a", value: "y" }], counter: { value: 2 } }] },
    { name: "h", metric: [{ histogram: { sampleCount: "3", sampleSum: 1.5 } }] },
  ]);
  deepStrictEqual([own.value("c"), own.value("c", { a: "y" }), own.value("none")], [3, 2, 0]);
  deepStrictEqual(own.histogram("h"), { count: 3, sum: 1.5 });
});

check("a graph of own metrics selects those of this server", exprOf, [
  [[["Series", "s"], "a:1"], ["Series", 's{job="varve", instance="a:1"}']],
  [[["Rate", "c", (selector: string) => `rate(${selector}[5m])`], "a:1"], ["Rate", 'rate(c{job="varve", instance="a:1"}[5m])']],
]);

check("a graph of own metrics ends now", pointsOf, [
  [[3_600_000, 7_200_000], { startMs: 3_600_000, toMs: 7_200_000, stepMs: 15_000 }],
  [[86_400_000, 100_035_001], { startMs: 13_635_000, toMs: 100_035_000, stepMs: 360_000 }],
]);

const requester = { userAgent: "", dashboard: "", panel: "", rule: "", queries: 1, lastMs: 5 };
check("requesters have names", nameOf, [
  [[{ ...requester, rule: "r" }], "rule r"],
  [[{ ...requester, dashboard: "d", panel: "2" }], "dashboard d, panel 2"],
  [[{ ...requester, userAgent: "Mozilla/5.0 (X11) Gecko Firefox/130.0" }], "this page, in Firefox"],
  [[{ ...requester, userAgent: "curl/8" }], "curl/8"],
  [[requester], "unknown"],
]);

test("metadata of a family serves its metrics", () => {
  const all = { h: [{ type: "histogram", unit: "", help: "" }], h_sum: [{ type: "gauge", unit: "", help: "" }] };
  deepStrictEqual([metadataOf("h_bucket", all)?.type, metadataOf("h_sum", all)?.type, metadataOf("x", all)], ["histogram", "gauge", undefined]);
});

test("a backtest sends the rule as a rule file", () => {
  const rule = { type: "alerting" as const, name: "High", query: 'up{a="\\n"} == 0', duration: 90, labels: { severity: "page" }, health: "ok", evaluationTime: 0, lastEvaluation: "" };
  const group = { name: "g", file: "f", interval: 15, evaluationTime: 0, lastEvaluation: "", rules: [rule] };
  const sent = { alert: "High", expr: 'up{a="\\n"} == 0', for: "1m30s", keep_firing_for: "0s", labels: { severity: "page" } };
  deepStrictEqual(JSON.parse(ruleFile(group, rule)), { groups: [{ name: "g", interval: "15s", rules: [sent] }] });
});

test("rules are filtered by state and words", () => {
  const rule = { type: "alerting" as const, name: "High", query: "up == 0", state: "firing", health: "ok", evaluationTime: 0, lastEvaluation: "" };
  deepStrictEqual(["", "firing", "pending", "err", "recording"].map((state) => isShown(rule, state, "")), [true, true, false, false, false]);
  const failing = { ...rule, state: "inactive", health: "err" };
  deepStrictEqual(["inactive", "err"].map((state) => isShown(failing, state, "")), [false, true], "it is not known whether its alerts would fire");
  deepStrictEqual([stateOf(failing), stateOf({ ...rule, health: "err" })], ["err", "firing"]);
  deepStrictEqual(["high UP", "low"].map((find) => isShown(rule, "", find)), [true, false]);
});

test("firing rules and groups with firing rules come first", () => {
  const rule = (name: string, state: string, health = "ok") => ({ type: "alerting" as const, name, query: "up", state, health, evaluationTime: 0, lastEvaluation: "" });
  const group = (name: string, rules: Array<ReturnType<typeof rule>>) => ({ name, file: "f", interval: 15, evaluationTime: 0, lastEvaluation: "", rules });
  const groups = [group("quiet", [rule("a", "inactive")]), group("loud", [rule("b", "inactive"), rule("c", "pending"), rule("d", "unknown", "err"), rule("e", "firing")])];
  const order = (state: string) => matching(groups, state, "").map(({ group: { name }, rules }) => [name, ...rules.map((one) => one.name)]);
  deepStrictEqual([order(""), order("inactive")], [[["loud", "e", "d", "c", "b"], ["quiet", "a"]], [["quiet", "a"], ["loud", "b"]]]);
});

test("alerts are grouped by a label, the group with the most firing alerts first", () => {
  const active = (state: string, severity?: string) => ({ alert: { state, labels: severity ? { severity } : {} } }) as unknown as ActiveAlert;
  const groups = groupAlerts([active("pending", "low"), active("pending", "low"), active("firing", "high"), active("pending")], "severity");
  deepStrictEqual(groups.map(({ value, firing, alerts }) => [value, firing, alerts.length]), [["high", 1, 1], ["low", 0, 2], ["", 0, 1]]);
});

check("a query that the server cut off is not opened", isCutOff, [[["up"], false], [["x".repeat(508)], false], [["x".repeat(512)], true], [["é".repeat(255)], true]]);

check("the forecast of the disk says from how much time it is derived", forecastText, [
  [[undefined], "a forecast needs 10 min of the server's own metrics"],
  [[{ basisS: 599, fullInS: 5 }], "a forecast needs 10 min of the server's own metrics"],
  [[{ basisS: 3600, fullInS: 7200 }], "full in 2 hours at the rate of the last 60 min"],
  [[{ basisS: 3600, fullInS: 11_232 }], "full in 3 hours at the rate of the last 60 min"],
  [[{ basisS: 3600, fullInS: 60 }], "full in 1 minute at the rate of the last 60 min"],
  [[{ basisS: 21_600, fullInS: 864_000 }], "full in 10 days at the rate of the last 6 h"],
  [[{ basisS: 21_600 }], "does not fill at the rate of the last 6 h"],
]);

test("a small graph begins at 0 and is interrupted where values are missing", () => {
  const minute = 60_000;
  const line = { startMs: 0, endMs: 10 * minute, points: [[0, 10], [minute, 0], [8 * minute, 5], [9 * minute, NaN], [10 * minute, 5]] as Array<[number, number]> };
  deepStrictEqual(pathOf(line), "M0.0 1.0L24.0 39.0M192.0 20.0L240.0 20.0");
});

test("tables sort numbers in descending order first, NaN last", () => {
  const columns: Array<Column<number>> = [{ id: "n", title: "", value: (n) => n, isNumber: true }, { id: "s", title: "", value: String }];
  deepStrictEqual(sortRows([2, NaN, 10], columns, "n"), [10, 2, NaN]);
  deepStrictEqual(sortRows([2, 10], columns, "-n"), [2, 10]);
  deepStrictEqual(sortRows([2, 10], columns, "s"), [10, 2]);
  deepStrictEqual(sortRows([2, 10], columns, "unknown"), [2, 10]);
});

test("the history completes the beginning of a query", () => {
  const at = (text: string, explicit = false) =>
    historyCompletion(() => ["sum(up)", "up"])({ state: { doc: { length: text.length, toString: () => text } }, pos: text.length, explicit } as never)?.options.map(({ label }) => label);
  deepStrictEqual([at("su"), at("x"), at(""), at("", true)], [["sum(up)"], undefined, undefined, ["sum(up)", "up"]]);
});

check("type and unit of a metric without metadata", (name: string) => {
  const { type, unit } = kindOf(name, {});
  return `${type}, ${unit}`;
}, [
  [["http_requests_total"], "counter, "],
  [["node_network_receive_bytes_total"], "counter, bytes"],
  [["request_duration_seconds_bucket"], "histogram, seconds"],
  [["request_duration_seconds_count"], "counter, "],
  [["request_duration_seconds_sum"], "counter, seconds"],
  [["process_start_timestamp_seconds"], "gauge, seconds"],
  [["kube_pod_info"], "info, "],
  [["node_memory_MemFree_bytes"], "unknown, bytes"],
  [["up"], "unknown, "],
]);
check("metadata precede the name", (name: string, type: string, unit: string) => kindOf(name, { [name]: [{ type, unit, help: "" }] }), [
  [["a_bytes_total", "gauge", "pages"], { type: "gauge", unit: "pages", help: "", isTypeFromName: false, isUnitFromName: false }],
  [["a_bytes_total", "unknown", ""], { type: "counter", unit: "bytes", help: "", isTypeFromName: true, isUnitFromName: true }],
]);
check("the expression of a small graph", graphOf, [
  [["m_total", "counter", { job: "a" }, 5], 'sum(rate(m_total{job="a"}[5m]))'],
  [["m_bucket", "histogram", { job: "a" }, 5], 'histogram_quantile(0.95, sum by (le) (rate(m_bucket{job="a"}[5m])))'],
  [["m", "gauge", { job: "a" }, 1], 'm{job="a"}'],
  [["m", "gauge", {}, 2], 'label_replace(min(m), "value", "min", "", "") or label_replace(avg(m), "value", "avg", "", "") or label_replace(max(m), "value", "max", "", "")'],
]);
