/** The nodes of a query, their results, and how the series of two operands find their partners. */

import { isAbort, request } from "../api/client";
import type { Labels, QueryData } from "../api/types";
import { countLabels, labelName } from "../parts/labels";
import { type BinaryNode, type Tree, childrenOf, isRange, printOperator, printTree } from "./promql";

/** Maximum number of nodes that run. */
export const NODES_MAX = 100;
/** Maximum number of nodes that run at the same time. */
const RUNS_MAX = 4;
/** Maximum number of series of a node that are read. */
export const NODE_SERIES_MAX = 10_000;
/** Labels of a node, and values of a label. */
const LABELS_MAX = 6;
const VALUES_MAX = 5;
/** Maximum number of examples of series without a partner. */
export const EXAMPLES_MAX = 5;

export interface TreeNode {
  tree: Tree;
  depth: number;
  text: string;
  /** The node without its operands. */
  head: string;
  /** Position of the first operand of a binary operator, and of the second. */
  operands?: [left: number, right: number];
}

/** A label of a result: its distinct values, and the most frequent ones with their series. */
export interface LabelStats {
  name: string;
  nValues: number;
  top: Array<[value: string, series: number]>;
}

export interface NodeResult {
  seconds: number;
  series: number;
  isTruncated: boolean;
  /** The value of a scalar. */
  scalar?: string;
  labels: LabelStats[];
  /** The label sets, if the node is an operand of a binary operator. */
  sets: Labels[];
  error?: unknown;
}

/** Returns the nodes of a syntax tree, a node before its operands, at most `NODES_MAX`. Parentheses are no nodes. */
export function nodesOf(root: Tree): TreeNode[] {
  const nodes: TreeNode[] = [];
  const add = (tree: Tree, depth: number): number => {
    if (tree.type === "parenExpr") return add(tree.expr, depth);
    if (nodes.length >= NODES_MAX) return -1;
    const node: TreeNode = { tree, depth, text: printTree(tree), head: headOf(tree) };
    const position = nodes.push(node) - 1;
    const children = childrenOf(tree).map((child) => add(child, depth + 1));
    const [left = -1, right = -1] = children;
    if (tree.type === "binaryExpr" && tree.matching && left >= 0 && right >= 0) node.operands = [left, right];
    return position;
  };
  add(root, 0);
  return nodes;
}

function headOf(tree: Tree): string {
  if (tree.type === "binaryExpr") return printOperator(tree);
  if (tree.type === "unaryExpr") return `${tree.op} …`;
  if (tree.type === "call") return `${tree.func.name}(${tree.args.length > 0 ? "…" : ""})`;
  if (tree.type === "subquery") return printTree({ ...tree, expr: { type: "numberLiteral", val: "(…)" } });
  if (tree.type === "aggregation") return printTree({ ...tree, param: null, expr: { type: "numberLiteral", val: "…" } });
  return printTree(tree);
}

/** Returns `true` if a node is a constant, which needs no request. */
export function isLiteral({ type }: Tree): boolean {
  return type === "numberLiteral" || type === "stringLiteral";
}

/** Runs all nodes, a few at a time. Reports each result with its position. */
export async function runNodes(nodes: TreeNode[], timeMs: number, signal: AbortSignal, report: (position: number, result: NodeResult) => void): Promise<void> {
  const operands = new Set(nodes.flatMap((node) => node.operands ?? []));
  const waiting = nodes.map((node, position) => ({ node, position })).filter(({ node }) => !isLiteral(node.tree));
  const work = async () => {
    for (let next = waiting.shift(); next && !signal.aborted; next = waiting.shift()) {
      const { node, position } = next;
      const result = await runNode(node, timeMs, signal, operands.has(position));
      if (!signal.aborted) report(position, result);
    }
  };
  await Promise.all(Array.from({ length: RUNS_MAX }, work));
}

async function runNode({ tree, text }: TreeNode, timeMs: number, signal: AbortSignal, keepsSets: boolean): Promise<NodeResult> {
  const nothing = { seconds: 0, series: 0, isTruncated: false, labels: [], sets: [] };
  // The series of a range vector are those that have a last sample in it.
  const query = isRange(tree) ? `last_over_time(${text})` : text;
  try {
    const { data, warnings, seconds } = await request<QueryData>("query", { method: "POST", params: { query, time: timeMs / 1000, limit: NODE_SERIES_MAX }, signal });
    if (data.resultType === "scalar" || data.resultType === "string") return { ...nothing, seconds, scalar: data.result[1] };
    const sets = (data.result as Array<{ metric: Labels }>).map(({ metric }) => metric);
    const isTruncated = warnings.some((warning) => warning.includes("truncated"));
    return { seconds, series: sets.length, isTruncated, labels: labelStats(sets).slice(0, LABELS_MAX), sets: keepsSets ? sets : [] };
  } catch (error) {
    if (isAbort(error)) return nothing;
    return { ...nothing, error };
  }
}

/** Returns the labels of series, those with the most values first. */
export function labelStats(sets: Labels[]): LabelStats[] {
  const all = [...countLabels(sets)].map(([name, values]) => {
    const top = [...values].sort((a, b) => b[1] - a[1]).slice(0, VALUES_MAX);
    return { name, nValues: values.size, top };
  });
  const names = countNames(sets);
  if (names.length > 1) all.push({ name: "__name__", nValues: names.length, top: names.slice(0, VALUES_MAX) });
  return all.sort((a, b) => b.nValues - a.nValues || (a.name < b.name ? -1 : 1));
}

/** Returns the metric names of series with their number of series, the most frequent first. */
function countNames(sets: Labels[]): Array<[name: string, series: number]> {
  const counts = countKeys(sets.flatMap(({ __name__: name }) => (name === undefined ? [] : [name])));
  return [...counts].sort((a, b) => b[1] - a[1]);
}

export interface Side {
  series: number;
  /** Series without a partner, and the first of them. */
  alone: number;
  examples: Labels[];
}

export interface Matches {
  left: Side;
  right: Side;
  /** Label sets that several series of a side have which must have one. */
  many: Array<{ side: "left" | "right"; labels: string; series: number }>;
}

/** Matches the series of two operands as the binary operator does. */
export function matchSides({ matching }: BinaryNode, left: Labels[], right: Labels[]): Matches {
  const { labels = [], on = false, card = "one-to-one" } = matching ?? {};
  const without = new Set([...labels, "__name__"]);
  const keyOf = (set: Labels): string => {
    const pairs = on ? labels.map((name) => [name, set[name] ?? ""] as const) : Object.entries(set).filter(([name]) => !without.has(name));
    return pairs.filter(([, value]) => value !== "").map(([name, value]) => `${labelName(name)}=${JSON.stringify(value)}`).sort().join(", ");
  };
  const [leftCounts, rightCounts] = [countKeys(left.map(keyOf)), countKeys(right.map(keyOf))];
  const sideOf = (sets: Labels[], others: Map<string, number>): Side => {
    const alone = sets.filter((set) => !others.has(keyOf(set)));
    return { series: sets.length, alone: alone.length, examples: alone.slice(0, EXAMPLES_MAX) };
  };
  const many: Matches["many"] = [];
  const note = (side: "left" | "right", counts: Map<string, number>, others: Map<string, number>) => {
    for (const [key, series] of counts) if (series > 1 && others.has(key) && many.length < EXAMPLES_MAX) many.push({ side, labels: `{${key}}`, series });
  };
  if (card === "one-to-one" || card === "one-to-many") note("left", leftCounts, rightCounts);
  if (card === "one-to-one" || card === "many-to-one") note("right", rightCounts, leftCounts);
  return { left: sideOf(left, rightCounts), right: sideOf(right, leftCounts), many };
}

function countKeys(keys: string[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const key of keys) counts.set(key, (counts.get(key) ?? 0) + 1);
  return counts;
}
