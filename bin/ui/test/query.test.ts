import { deepStrictEqual, match, ok, strictEqual } from "node:assert";
import { test } from "node:test";
import type uPlot from "uplot";
import type { MatrixElement, Operator, QueryData } from "../src/api/types";
import { boundsOf, multiplesOf, textsOf } from "../src/chart/axis";
import { toHeatMap } from "../src/chart/buckets";
import { stack, toGrid, toGridInSlices, toNumber, toRawGrid } from "../src/chart/grid";
import { withLimits } from "../src/chart/line_chart";
import { createPainter } from "../src/chart/painter";
import { short } from "../src/parts/format";
import { annotate, offsetAt } from "../src/query/annotation";
import { selectorsOf, warningFor } from "../src/query/estimate";
import { withOwnTime } from "../src/query/explain_view";
import { toCsv } from "../src/query/export";
import { toggled } from "../src/query/legend";
import { distanceOf, nearest } from "../src/query/nearest";
import { type Panel, newPanel, parsePanels, printPanels, rangeOf } from "../src/query/panel_state";
import { type Tree, printTree } from "../src/query/promql";
import { labelStats, matchSides, nodesOf } from "../src/query/tree";
import { timesOf, withRange } from "../src/query/raw";
import { withLimit } from "../src/query/run";
import { check } from "./check";

const panels = (search: string) => parsePanels(new URLSearchParams(search));

test("links of Prometheus 2 open the same panels", () => {
  const [first, second] = panels("g0.expr=up&g0.tab=0&g0.stacked=1&g0.range_input=2h&g0.step_input=30&g0.end_input=2026-11-23%2010:00&g1.expr=x&g1.tab=1");
  deepStrictEqual(first, { ...newPanel("up"), tab: "graph", mode: "stacked", rangeMs: 7_200_000, stepMs: 30_000, endMs: Date.UTC(2026, 10, 23, 10) });
  deepStrictEqual(second, { ...newPanel("x"), endMs: undefined, stepMs: undefined });
});

check("a warning of a truncated result names the limit of the page", withLimit<{ warnings: string[] }>, [
  [[{ warnings: ["a", "results truncated due to limit"] }, 2000], { warnings: ["a", "The page shows only 2,000 series of the result."] }],
]);

test("panels survive the address", () => {
  const all = [
    { ...newPanel('up{job="a&b"}'), tab: "graph" as const, mode: "heatmap" as const, endMs: Date.UTC(2026, 0, 2, 3, 4, 5), density: "high" as const, hasExemplars: true, stepMs: undefined },
    { ...newPanel("1"), tab: "explain" as const, stepMs: 90_000, endMs: undefined, rangeMs: 600_000 },
  ];
  deepStrictEqual(panels(printPanels(all).toString()), all);
  strictEqual(panels("").length, 1);
});

test("a range that ends now ends at a multiple of its step", () => {
  const panel = { ...newPanel("up"), tab: "graph" as const, rangeMs: 3_600_000 };
  deepStrictEqual(rangeOf(panel, 100_000_007), { startMs: 96_390_000, endMs: 99_990_000, stepMs: 15_000 });
});

test("a step is round, and the graph has at most the points of its density", () => {
  const minutes = (rangeMs: number) => rangeOf({ ...newPanel("up"), tab: "graph" as const, rangeMs }, 0).stepMs / 60_000;
  deepStrictEqual([3, 6, 24, 7 * 24, 28 * 24, 3650 * 24].map((hours) => minutes(hours * 3_600_000)), [0.75, 1.5, 6, 45, 180, 15 * 1440]);
  strictEqual(minutes(60_000), 1 / 60);
});

check("positions in messages", (text: string, query: string) => annotate("error", text, query).position, [
  [['invalid parameter "query": 1:5: parse error: x', "sum("], 4],
  [["PromQL info: metric might not be a counter (2:3)", "sum(\n  up)"], 7],
  [["no position", "up"], undefined],
  [["(9:1)", "up"], undefined],
]);
check("columns count bytes", offsetAt, [[['{a="ä"}b', 1, 9], 7], [["😀x", 1, 5], 2]]);

const element = (metric: Record<string, string>, values: Array<[number, string]>): MatrixElement => ({ metric, values });

test("series lie on the grid of steps with gaps and special values", async () => {
  const elements = [element({ __name__: "m", i: "a" }, [[10, "1"], [30, "NaN"], [40, "+Inf"]]), element({ __name__: "m", i: "b" }, [[20, "3"], [90, "5"]])];
  const grid = toGrid(elements, 10_000, 40_000, 10_000);
  deepStrictEqual(await toGridInSlices(elements, 10_000, 40_000, 10_000, new AbortController().signal), grid);
  deepStrictEqual(grid.times, [10, 20, 30, 40]);
  deepStrictEqual(grid.lines.map(({ values }) => values), [[1, null, null, null], [null, 3, null, null]]);
  deepStrictEqual(grid.common, { __name__: "m" });
  deepStrictEqual(grid.lines.map(({ name, last, mean, hasHiddenValues }) => [name, last, mean, hasHiddenValues]), [['{i="a"}', Infinity, 1, true], ['{i="b"}', 5, 3, false]]);
});

check("numbers of the API", toNumber, [[["+Inf"], Infinity], [["-Inf"], -Infinity], [["1e3"], 1000], [["NaN"], NaN]]);
check("stacks count a gap as 0 unless all lines have it", stack, [[[[[1, null, null], [2, 3, null]]], [[1, 0, null], [3, 3, null]]]]);

test("lines have gaps, marks of samples between gaps, and the extremes of a column of pixels", () => {
  const drawn: string[] = [];
  const note = (name: string) => (...at: number[]) => drawn.push([name, ...at].join(" "));
  const [moveTo, lineTo, nothing] = [note("move"), note("line"), () => {}];
  const ctx = { moveTo, lineTo, save: nothing, restore: nothing, beginPath: nothing, rect: nothing, clip: nothing, stroke: nothing };
  const draw = (width: number, values: Array<number | null>) => {
    drawn.length = 0;
    const plot = { ctx, bbox: { left: 0, top: 0, width, height: 100 }, valToPos: (value: number) => value } as unknown as uPlot;
    createPainter().paint(plot, [values.map((_, i) => i * 10), values], ["red"], nothing);
    return [...drawn];
  };
  globalThis.devicePixelRatio = 1;
  deepStrictEqual(draw(100, [5, 6, null, 7, null, null, 8]), ["move 0 5", "line 10 6", "move 27 7", "line 33 7", "move 30 7", "move 57 8", "line 63 8", "move 60 8"]);
  deepStrictEqual(draw(2, [5, 1, 9, 4, 4, null]), ["move 0 1", "line 0 9", "line 30 4"]);
  deepStrictEqual(draw(2, [5, 6, 7, null, 4, 4]), ["move 0 5", "line 0 7", "line 30 4"]);
  deepStrictEqual(draw(2, [5, 6, 7, null, null, null]), ["move -3 5", "line 3 5", "move 0 5", "line 0 7"]);
});

check("an axis of values that differ little has bounds, marks and different texts", (min: number, max: number, increment: number) => textsOf(multiplesOf(...boundsOf(min, max, 0.08), increment), short), [
  [[1.2, 4, 1], ["1", "2", "3", "4"]],
  [[0, 0, 0.05], ["0", "0.05", "0.1"]],
  [[1, 1 + 59e-9, 2e-8], ["1", "1.00000002", "1.00000004", "1.00000006"]],
  [[1, 1 + 2e-16, 1e-16], ["1", "1", "1"]],
  [[1_795_764_000, 1_795_764_099, 50], ["1.795764G", "1.79576405G", "1.7957641G"]],
  [[-9, 5e6, 2e6], ["0", "2M", "4M"]],
]);
check("the margin of an axis does not cross 0", boundsOf, [[[0, 100, 0.05], [0, 105]], [[1, 101, 0.05], [0, 106]], [[-100, 0, 0.05], [-105, 0]], [[-100, 100, 0.05], [-110, 110]], [[5, 5, 0.05], [4.5, 5.5]], [[0, 0, 0.05], [0, 0.1]]]);
check("a logarithmic axis has marks without a text", (marks: Array<number | null>) => textsOf(marks, short), [[[[1, null, null, 10]], ["1", "", "", "10"]]]);

test("classic buckets become differences", () => {
  const map = toHeatMap([element({ le: "1" }, [[0, "2"]]), element({ le: "+Inf" }, [[0, "5"]]), element({ le: "x" }, [[0, "9"]])], 0, 0, 1000);
  deepStrictEqual(map.bounds, [0, 1, Infinity]);
  deepStrictEqual(map.cells, [{ timeIndex: 0, lower: 0, upper: 1, count: 2 }, { timeIndex: 0, lower: 1, upper: 2, count: 3 }]);
});

test("native buckets of several series are added, and bounds are limited", () => {
  const native = (n: number): MatrixElement => ({ metric: {}, histograms: [[0, { count: "1", sum: "1", buckets: Array.from({ length: n }, (_, i) => [0, String(i), String(i + 1), "1"]) }]] });
  const two = toHeatMap([native(2), native(2)], 0, 0, 1000);
  deepStrictEqual(two.cells.map(({ count }) => count), [2, 2]);
  const many = toHeatMap([native(1000)], 0, 0, 1000);
  ok(many.bounds.length <= 161, String(many.bounds.length));
  strictEqual(many.cells.reduce((sum, { count }) => sum + count, 0), 1000);
  match(toHeatMap([element({}, [[0, "1"]])], 0, 0, 1000).reason ?? "", /label le/);
});

test("a file for spreadsheets runs no formula and keeps quotes", () => {
  const data: QueryData = { resultType: "vector", result: [{ metric: { __name__: "m", a: '=cmd("x")' }, value: [0, "-1"] }, { metric: { b: "1,2" }, histogram: [0, { count: "3", sum: "4" }] }] };
  strictEqual(
    toCsv({ expr: "m", data }),
    '__name__,a,b,time,value,count,sum\r\nm,"\'=cmd(""x"")",,1970-01-01T00:00:00.000Z,-1,,\r\n,,"1,2",1970-01-01T00:00:00.000Z,,3,4\r\n',
  );
  strictEqual(toCsv({ expr: "2", data: { resultType: "scalar", result: [1, "2"] } }), "time,value\r\n1970-01-01T00:00:01.000Z,2\r\n");
  const several = toCsv({ expr: "m", data: { resultType: "vector", result: [{ metric: { a: "1" }, value: [0, "3"] }] } }, { expr: "2", data: { resultType: "scalar", result: [1, "2"] } });
  strictEqual(several, "query,a,time,value,count,sum\r\nm,1,1970-01-01T00:00:00.000Z,3,,\r\n2,,1970-01-01T00:00:01.000Z,2,,\r\n");
});

test("an operator's own time leaves out its operands", () => {
  const operator = (depth: number, seconds: number): Operator => ({ depth, seconds, operator: "", runs: 1, series: 0, samples: 0, bytes: 0 });
  deepStrictEqual(withOwnTime([operator(0, 10), operator(1, 4), operator(2, 3), operator(1, 2), operator(0, 9)]).map(({ ownSeconds }) => ownSeconds), [4, 1, 3, 2, 9]);
});

check("a click in the legend", (n: number, hidden: number[], index: number, isMany: boolean) => [...toggled(n, new Set(hidden), index, isMany)], [
  [[3, [], 1, false], [0, 2]],
  [[3, [0, 2], 1, false], []],
  [[3, [0, 2], 0, false], [1, 2]],
  [[3, [], 1, true], [1]],
  [[3, [1], 1, true], []],
]);

const selector = (matchers: Array<[string, string]>) => ({ type: "vectorSelector", matchers: matchers.map(([name, value]) => ({ name, type: "=", value })) });

test("a query that will hit a limit is announced", () => {
  const known = { series: new Map([["big", 5_000_000], ["small", 3]]), isComplete: true, total: 6_000_000, flags: { "query.max-points": "11000", "query.max-samples": "50000000" } };
  const graph = { ...newPanel("x"), tab: "graph" as const };
  const big = selector([["__name__", "big"]]);
  const warning = (tree: unknown, panel: Panel) => warningFor(tree, selectorsOf(tree, known), panel, known.flags);
  match(warning(big, graph) ?? "", /selects 5M series; the graph shows 2,000/);
  match(warning(selector([["__name__", "big"], ["a", "b"]]), graph) ?? "", /up to 5M series/);
  match(warning({ type: "call", args: [big] }, { ...graph, stepMs: 100 }) ?? "", /--query.max-points/);
  strictEqual(warning(selector([["__name__", "small"]]), graph), undefined);
  strictEqual(warning({ type: "call", args: [big] }, graph), undefined);
  const named = { type: "vectorSelector", matchers: [{ name: "__name__", type: "=~", value: "b.*" }] };
  deepStrictEqual(selectorsOf({ type: "binaryExpr", lhs: big, rhs: named }, known), [
    { text: '{__name__="big"}', seriesMax: 5_000_000, isExact: true },
    { text: '{__name__=~"b.*"}', seriesMax: 6_000_000, isExact: false },
  ]);
  deepStrictEqual(selectorsOf(selector([["__name__", "new"]]), { ...known, isComplete: false })[0]?.seriesMax, 6_000_000);
});

check("limits of the axis of values", withLimits, [
  [[[1, 5], {}, false], [1, 5]],
  [[[1, 5], { min: 0 }, false], [0, 5]],
  [[[1, 5], { min: 2, max: 3 }, false], [2, 3]],
  [[[1, 5], { min: 10 }, false], [10, 20]],
  [[[1, 5], { max: -2 }, false], [-4, -2]],
  [[[1, 5], { min: -1, max: 0 }, true], [1, 5]],
  [[[10, 50], { max: 1 }, true], [0.1, 1]],
]);

test("samples lie at their own times", () => {
  const elements = [element({ i: "a" }, [[10, "1"], [25.5, "2"]]), element({ i: "b" }, [[12, "3"]])];
  const grid = toRawGrid(elements, timesOf(elements));
  deepStrictEqual([grid.times, grid.lines.map(({ values, nValues }) => [values, nValues])], [[10, 12, 25.5], [[[1, null, 2], 2], [[null, 3, null], 1]]]);
});

test("a panel keeps its expressions and limits in the address", () => {
  const panel = { ...newPanel("a"), more: ["b", "c"], tab: "graph" as const, mode: "points" as const, stepMs: undefined, endMs: undefined, yMin: -1500, yMax: 2e6 };
  deepStrictEqual(panels(printPanels([panel]).toString()), [panel]);
  deepStrictEqual(panels("g0.expr=a&g0.expr3=c&g0.y_min=5&g0.y_max=1k")[0], { ...newPanel("a"), more: ["c"], stepMs: undefined, endMs: undefined, yMin: 5, yMax: 1000 });
  deepStrictEqual(panels("g0.expr=a&g0.y_min=5&g0.y_max=5")[0]?.yMin, undefined);
  deepStrictEqual(panels(`g0.expr=a${Array.from({ length: 20 }, (_, i) => `&g0.expr${i + 2}=x`).join("")}`)[0]?.more.length, 9);
});

const selectorNode = { type: "vectorSelector" as const, name: "m", matchers: [{ name: "__name__", type: "=" as const, value: "m" }], offset: 0, offsetExpr: null, startOrEnd: null, timestamp: null, anchored: false, smoothed: false };
const call = (name: string, ...args: Tree[]): Tree => ({ type: "call", func: { name, returnType: "vector" }, args });
const matching = { card: "one-to-one" as const, fillValues: { lhs: null, rhs: null }, include: [], labels: [], on: false };
check("nodes of the syntax tree as PromQL", printTree, [
  [[selectorNode], "m"],
  [[{ ...selectorNode, name: "", matchers: [{ name: "a.b", type: "=~", value: 'x"' }] }], '{"a.b"=~"x\\""}'],
  [[{ ...selectorNode, name: "a.b", offset: -60_000, timestamp: 1500 }], '{"a.b", __name__="m"} @ 1.500 offset -1m'],
  [[{ ...selectorNode, type: "matrixSelector", range: 300_000, rangeExpr: null, anchored: true }], "m[5m] anchored"],
  [[{ type: "subquery", expr: selectorNode, range: 3_600_000, rangeExpr: null, step: 0, stepExpr: null, offset: 0, offsetExpr: null, startOrEnd: "end", timestamp: null }], "m[1h:] @ end()"],
  [[{ type: "aggregation", op: "topk", expr: call("rate", selectorNode), param: { type: "numberLiteral", val: "3" }, grouping: ["job"], without: false }], "topk by (job) (3, rate(m))"],
  [[{ type: "binaryExpr", op: "/", bool: false, lhs: selectorNode, rhs: { type: "unaryExpr", op: "-", expr: { type: "parenExpr", expr: selectorNode } }, matching: { ...matching, card: "many-to-one", on: true, labels: ["job"], fillValues: { lhs: null, rhs: 0 } } }], "m / on (job) group_left () fill_right (0) -(m)"],
]);
check("a selector of samples", (tree: Tree) => withRange(tree, 60_000)?.type, [[[selectorNode], "matrixSelector"], [[call("rate", selectorNode)], undefined]]);

check("distances of names", distanceOf, [[["abc", "abc", 5], 0], [["abcd", "abdc", 5], 1], [["kitten", "sitting", 5], 3], [["", "ab", 5], 2], [["aaaaaaaa", "bbbbbbbb", 3], 4]]);
const names = ["node_load1", "node_load15", "node_load5", "kube_pod_info", "kube_pod_info_total", "up", "Ups"];
check("similar names, the most similar first", nearest, [
  [["node_lod1", names, 2], ["node_load1", "node_load5"]],
  [["pod_info", names, 5], ["kube_pod_info", "kube_pod_info_total"]],
  [["ups", names, 5], ["Ups", "up"]],
  [["zzzzzz", names, 5], []],
]);

test("the labels of a result have their most frequent values", () => {
  const sets = [{ __name__: "a", i: "1", job: "x" }, { __name__: "b", i: "2", job: "x" }, { __name__: "b", i: "2" }];
  deepStrictEqual(labelStats(sets), [
    { name: "__name__", nValues: 2, top: [["b", 2], ["a", 1]] },
    { name: "i", nValues: 2, top: [["2", 2], ["1", 1]] },
    { name: "job", nValues: 1, top: [["x", 2]] },
  ]);
});

test("a tree has no node for parentheses, and knows the operands of a binary operator", () => {
  const binary: Tree = { type: "binaryExpr", op: "/", bool: false, lhs: { type: "parenExpr", expr: call("rate", selectorNode) }, rhs: selectorNode, matching };
  const nodes = nodesOf({ type: "aggregation", op: "sum", expr: binary, param: null, grouping: [], without: false });
  deepStrictEqual(nodes.map(({ head, depth, operands }) => [head, depth, operands]), [["sum(…)", 0, undefined], ["/", 1, [2, 4]], ["rate(…)", 2, undefined], ["m", 3, undefined], ["m", 2, undefined]]);
});

test("series find partners by the labels of the operator", () => {
  const node = (more: object) => ({ type: "binaryExpr" as const, op: "*", bool: false, lhs: selectorNode, rhs: selectorNode, matching: { ...matching, ...more } });
  const left = [{ __name__: "l", i: "a", p: "1" }, { __name__: "l", i: "b", p: "1" }];
  const right = [{ __name__: "r", i: "b" }, { __name__: "r", i: "b", p: "1" }, { i: "c" }];
  const all = matchSides(node({}), left, right);
  deepStrictEqual([all.left.alone, all.right.alone, all.many], [1, 2, []]);
  deepStrictEqual(all.left.examples, [left[0]]);
  const on = matchSides(node({ on: true, labels: ["i"] }), left, right);
  deepStrictEqual([on.left.alone, on.right.alone, on.many], [1, 1, [{ side: "right", labels: '{i="b"}', series: 2 }]]);
  deepStrictEqual(matchSides(node({ on: true, labels: ["i"], card: "one-to-many" }), left, right).many, []);
  deepStrictEqual(matchSides(node({ on: true, labels: [] }), left, right).left.alone, 0);
});
