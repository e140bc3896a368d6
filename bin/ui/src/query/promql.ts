/** The syntax tree of `parse_query`, and its nodes as PromQL. */

import { labelName, quote } from "../parts/labels";
import { printDuration } from "../parts/time";

interface DurationExpr {
  type: "durationExpr" | "numberLiteral";
  val?: string;
  duration?: boolean;
  op?: string;
  lhs?: DurationExpr | null;
  rhs?: DurationExpr | null;
  wrapped?: boolean;
}

interface Modifiers {
  offset: number;
  offsetExpr: DurationExpr | null;
  startOrEnd: "start" | "end" | null;
  timestamp: number | null;
}

export interface Matcher {
  name: string;
  type: "=" | "!=" | "=~" | "!~";
  value: string;
}

export interface SelectorNode extends Modifiers {
  type: "vectorSelector" | "matrixSelector";
  name: string;
  matchers: Matcher[];
  anchored: boolean;
  smoothed: boolean;
  range?: number;
  rangeExpr?: DurationExpr | null;
}

export interface SubqueryNode extends Modifiers {
  type: "subquery";
  expr: Tree;
  range: number;
  rangeExpr: DurationExpr | null;
  step: number;
  stepExpr: DurationExpr | null;
}

export interface Matching {
  card: "one-to-one" | "many-to-one" | "one-to-many" | "many-to-many";
  fillValues: { lhs: number | string | null; rhs: number | string | null };
  include: string[];
  labels: string[];
  on: boolean;
}

export interface BinaryNode {
  type: "binaryExpr";
  bool: boolean;
  lhs: Tree;
  rhs: Tree;
  op: string;
  matching: Matching | null;
}

export type Tree =
  | SelectorNode
  | SubqueryNode
  | BinaryNode
  | { type: "call"; func: { name: string; returnType: string }; args: Tree[] }
  | { type: "aggregation"; op: string; expr: Tree; param: Tree | null; grouping: string[]; without: boolean }
  | { type: "unaryExpr"; op: string; expr: Tree }
  | { type: "parenExpr"; expr: Tree }
  | { type: "numberLiteral"; val: string }
  | { type: "stringLiteral"; val: string };

/** Returns the operands of a node. */
export function childrenOf(tree: Tree): Tree[] {
  switch (tree.type) {
    case "call":
      return tree.args;
    case "aggregation":
      return tree.param ? [tree.param, tree.expr] : [tree.expr];
    case "binaryExpr":
      return [tree.lhs, tree.rhs];
    case "subquery":
    case "unaryExpr":
    case "parenExpr":
      return [tree.expr];
    default:
      return [];
  }
}

/** Returns `true` if a node is a range vector: a query of it has samples, not series with a value. */
export function isRange({ type }: Tree): boolean {
  return type === "matrixSelector" || type === "subquery";
}

/** Returns the text of a node. */
export function printTree(tree: Tree): string {
  switch (tree.type) {
    case "vectorSelector":
      return `${printSelector(tree)}${printModifiers(tree)}`;
    case "matrixSelector":
      return `${printSelector(tree)}[${printRange(tree.range ?? 0, tree.rangeExpr)}]${printModifiers(tree)}`;
    case "subquery": {
      const step = tree.step > 0 || tree.stepExpr ? printRange(tree.step, tree.stepExpr) : "";
      return `${printTree(tree.expr)}[${printRange(tree.range, tree.rangeExpr)}:${step}]${printModifiers(tree)}`;
    }
    case "call":
      return `${tree.func.name}(${tree.args.map(printTree).join(", ")})`;
    case "aggregation": {
      const grouping = tree.without || tree.grouping.length > 0 ? ` ${tree.without ? "without" : "by"} ${names(tree.grouping)} ` : "";
      return `${tree.op}${grouping}(${childrenOf(tree).map(printTree).join(", ")})`;
    }
    case "binaryExpr":
      return `${printTree(tree.lhs)} ${printOperator(tree)} ${printTree(tree.rhs)}`;
    case "unaryExpr":
      return `${tree.op}${printTree(tree.expr)}`;
    case "parenExpr":
      return `(${printTree(tree.expr)})`;
    case "numberLiteral":
      return tree.val;
    case "stringLiteral":
      return quote(tree.val);
  }
}

/** Returns an operator with its modifiers: `/ on (job) group_left ()`. */
export function printOperator({ op, bool, matching }: BinaryNode): string {
  const parts = [op];
  if (bool) parts.push("bool");
  if (matching) {
    if (matching.on || matching.labels.length > 0) parts.push(`${matching.on ? "on" : "ignoring"} ${names(matching.labels)}`);
    if (matching.card === "many-to-one") parts.push(`group_left ${names(matching.include)}`);
    if (matching.card === "one-to-many") parts.push(`group_right ${names(matching.include)}`);
    const { lhs, rhs } = matching.fillValues;
    if (lhs !== null && lhs === rhs) parts.push(`fill (${lhs})`);
    else {
      if (lhs !== null) parts.push(`fill_left (${lhs})`);
      if (rhs !== null) parts.push(`fill_right (${rhs})`);
    }
  }
  return parts.join(" ");
}

function names(labels: string[]): string {
  return `(${labels.map(labelName).join(", ")})`;
}

const LEGACY_METRIC = /^[a-zA-Z_:][a-zA-Z0-9_:]*$/;

function printSelector({ name, matchers, anchored, smoothed, type }: SelectorNode): string {
  const isPlain = LEGACY_METRIC.test(name);
  // The matcher of the name in front of the braces is in the list, too.
  const others = matchers.filter(({ name: label, type: op, value }) => !(name !== "" && label === "__name__" && op === "=" && value === name));
  const parts = others.map(({ name: label, type: op, value }) => `${labelName(label)}${op}${quote(value)}`);
  if (name !== "" && !isPlain) parts.unshift(quote(name));
  const selector = `${isPlain ? name : ""}${parts.length > 0 || !isPlain ? `{${parts.join(", ")}}` : ""}`;
  const extension = anchored ? " anchored" : smoothed ? " smoothed" : "";
  return type === "vectorSelector" ? selector + extension : selector;
}

function printModifiers(node: Modifiers & { type: string; anchored?: boolean; smoothed?: boolean }): string {
  const { type, offset, offsetExpr, startOrEnd, timestamp, anchored, smoothed } = node;
  const parts: string[] = [];
  if (type === "matrixSelector" && (anchored || smoothed)) parts.push(anchored ? "anchored" : "smoothed");
  if (timestamp !== null) parts.push(`@ ${(timestamp / 1000).toFixed(3)}`);
  if (startOrEnd) parts.push(`@ ${startOrEnd}()`);
  if (offsetExpr) parts.push(`offset ${printDurationExpr(offsetExpr)}`);
  else if (offset !== 0) parts.push(`offset ${offset < 0 ? "-" : ""}${printDuration(Math.abs(offset))}`);
  return parts.map((part) => ` ${part}`).join("");
}

function printRange(ms: number, expr?: DurationExpr | null): string {
  return expr ? printDurationExpr(expr) : printDuration(ms);
}

function printDurationExpr({ type, val = "", duration, op = "", lhs, rhs, wrapped }: DurationExpr): string {
  if (type === "numberLiteral") return duration ? printDuration(Number(val) * 1000) : val;
  const [left, right] = [lhs ? printDurationExpr(lhs) : "", rhs ? printDurationExpr(rhs) : ""];
  const isFunction = op === "step" || op === "range" || op === "min_of" || op === "max_of";
  const text = isFunction ? `${op}(${[left, right].filter(Boolean).join(", ")})` : left === "" ? `${op}${right}` : `${left} ${op} ${right}`;
  return wrapped ? `(${text})` : text;
}
