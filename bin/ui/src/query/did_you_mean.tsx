/** Why a result may be empty: a metric, label or label value that does not exist, and similar ones that do. */

import { request } from "../api/client";
import { useLoad } from "../parts/load";
import { load, recent, recentNames } from "./completion";
import { nearest } from "./nearest";
import { type SelectorNode, type Tree, childrenOf, printTree } from "./promql";

/** Maximum number of selectors that are looked at. */
const SELECTORS_MAX = 3;
/** Maximum number of similar names. */
const OPTIONS_MAX = 5;
/** Characters at the start of a name that similar names share, if the list of all names is not complete. */
const PREFIX_SIZE = 4;
/** Number of names in a list from which on it may not be complete. */
const NAMES_MAX = 10_000;

interface Unknown {
  what: "metric" | "label" | "value";
  /** The label of a value. */
  label: string;
  old: string;
  options: string[];
  /** True if the options are only examples. */
  areExamples: boolean;
  /** Returns the query with an option. */
  replace: (option: string) => string;
}

export function DidYouMean({ expr, onReplace }: { expr: string; onReplace: (expr: string) => void }) {
  const loaded = useLoad(expr, async (signal) => {
    const { data } = await request<Tree>("parse_query", { method: "POST", params: { query: expr }, signal });
    return findUnknown(expr, data, signal);
  });
  return (
    <>
      {loaded.data?.map(({ what, label, old, options, areExamples, replace }) => (
        <p key={`${what} ${label} ${old}`} class="message info did-you-mean" role="status">
          <span>
            {what === "metric" && <>There is no metric <code>{old}</code> in the last 12 hours.</>}
            {what === "label" && <>No series of the last 12 hours has the label <code>{old}</code>.</>}
            {what === "value" && <>No series of the last 12 hours has <code>{label}={JSON.stringify(old)}</code>.</>}
            {options.length > 0 && (areExamples ? " It has, for example, " : " Did you mean ")}
            {options.map((option) => <button key={option} type="button" onClick={() => onReplace(replace(option))}><code>{option}</code></button>)}
            {options.length > 0 && !areExamples && "?"}
          </span>
        </p>
      ))}
    </>
  );
}

/** Returns the unknown names of a query, one of each selector. */
async function findUnknown(expr: string, root: Tree, signal: AbortSignal): Promise<Unknown[]> {
  const selectors = selectorsOf(root);
  const found: Unknown[] = [];
  for (const selector of selectors.slice(0, SELECTORS_MAX)) {
    const unknown = await findIn(expr, root, selector);
    signal.throwIfAborted();
    if (unknown && !found.some(({ what, old }) => what === unknown.what && old === unknown.old)) found.push(unknown);
  }
  return found;
}

function selectorsOf(tree: Tree): SelectorNode[] {
  if (tree.type === "vectorSelector" || tree.type === "matrixSelector") return [tree];
  return childrenOf(tree).flatMap(selectorsOf);
}

async function findIn(expr: string, root: Tree, selector: SelectorNode): Promise<Unknown | undefined> {
  const metric = selector.matchers.find(({ name, type }) => name === "__name__" && type === "=")?.value;
  if (metric !== undefined) {
    const names = await namesLike(metric);
    const replace = (option: string) => withName(expr, root, selector, "__name__", metric, option);
    if (!names.includes(metric)) return { what: "metric", label: "", old: metric, options: nearest(metric, names, OPTIONS_MAX), areExamples: false, replace };
  }
  for (const { name, type, value } of selector.matchers) {
    if (name === "__name__" || type !== "=" || value === "") continue;
    const values = await recentNames.labelValues(name, metric);
    if (values.includes(value) || values.length >= NAMES_MAX) continue;
    if (values.length === 0) {
      const labels = await recentNames.labelNames(metric);
      return { what: "label", label: name, old: name, options: nearest(name, labels, OPTIONS_MAX), areExamples: false, replace: (option) => withLabel(root, selector, name, option) };
    }
    const similar = nearest(value, values, OPTIONS_MAX);
    const options = similar.length > 0 ? similar : values.slice(0, OPTIONS_MAX);
    return { what: "value", label: name, old: value, options, areExamples: similar.length === 0, replace: (option) => withName(expr, root, selector, name, value, option) };
  }
  return undefined;
}

/** Returns names of metrics: all, or of a large store those that begin alike. */
async function namesLike(metric: string): Promise<string[]> {
  const names = await recentNames.metricNames();
  if (names.length < NAMES_MAX || names.includes(metric)) return names;
  const prefix = metric.slice(0, PREFIX_SIZE).replace(/[^\w:]/g, ".");
  const alike = await load<string[]>("label/__name__/values", { "match[]": `{__name__=~"${prefix}.*"}`, ...recent() });
  // If this list is not complete either, nothing is known.
  return alike.length < NAMES_MAX ? alike : [metric];
}

/** Returns the query with another value of a matcher. Keeps its text, if the value is in it once. */
function withName(expr: string, root: Tree, selector: SelectorNode, label: string, old: string, option: string): string {
  const escaped = old.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const places = [...expr.matchAll(new RegExp(`(?<![\\w:.])${escaped}(?![\\w:.])`, "g"))];
  const isPlain = (text: string) => /^[\w:.-]+$/.test(text);
  const [place] = places;
  if (place && places.length === 1 && isPlain(old) && isPlain(option) && (label !== "__name__" || /^[\w:]+$/.test(option))) {
    return expr.slice(0, place.index) + option + expr.slice(place.index + old.length);
  }
  const matchers = selector.matchers.map((matcher) => (matcher.name === label && matcher.value === old ? { ...matcher, value: option } : matcher));
  const name = label === "__name__" && selector.name !== "" ? option : selector.name;
  return printTree(replaced(root, selector, { ...selector, name, matchers }));
}

function withLabel(root: Tree, selector: SelectorNode, old: string, option: string): string {
  const matchers = selector.matchers.map((matcher) => (matcher.name === old ? { ...matcher, name: option } : matcher));
  return printTree(replaced(root, selector, { ...selector, matchers }));
}

/** Returns a tree with another selector in the place of one. */
function replaced(tree: Tree, old: SelectorNode, next: SelectorNode): Tree {
  if (tree === old) return next;
  switch (tree.type) {
    case "call":
      return { ...tree, args: tree.args.map((arg) => replaced(arg, old, next)) };
    case "aggregation":
      return { ...tree, expr: replaced(tree.expr, old, next), param: tree.param && replaced(tree.param, old, next) };
    case "binaryExpr":
      return { ...tree, lhs: replaced(tree.lhs, old, next), rhs: replaced(tree.rhs, old, next) };
    case "subquery":
    case "unaryExpr":
    case "parenExpr":
      return { ...tree, expr: replaced(tree.expr, old, next) };
    default:
      return tree;
  }
}
