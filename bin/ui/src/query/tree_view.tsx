/** The tree of a query: each node with its series, time and labels, and the series that found no partner. */

import { useEffect, useMemo, useState } from "preact/hooks";
import { messageOf, request } from "../api/client";
import type { Labels } from "../api/types";
import { count, plural, seconds } from "../parts/format";
import { printLabels } from "../parts/labels";
import { useLoad } from "../parts/load";
import type { BinaryNode, Tree } from "./promql";
import { EXAMPLES_MAX, NODES_MAX, NODE_SERIES_MAX, type NodeResult, type Side, type TreeNode, isLiteral, matchSides, nodesOf, runNodes } from "./tree";

interface Props {
  expr: string;
  /** Time of the results; undefined is now. */
  timeMs?: number;
  /** Changes when the user runs the query again. */
  round: number;
  /** The text of the node whose result the panel shows. */
  chosen?: string;
  /** Undefined for the whole query. */
  onChoose: (text: string | undefined) => void;
}

export function TreeView({ expr, timeMs, round, chosen, onChoose }: Props) {
  const parsed = useLoad(expr, async (signal) => (await request<Tree>("parse_query", { method: "POST", params: { query: expr }, signal })).data);
  const nodes = useMemo(() => (parsed.data ? nodesOf(parsed.data) : []), [parsed.data]);
  const [results, setResults] = useState<ReadonlyMap<number, NodeResult>>(new Map());
  useEffect(() => {
    const abort = new AbortController();
    setResults(new Map());
    const report = (position: number, result: NodeResult) => setResults((old) => new Map(old).set(position, result));
    void runNodes(nodes, timeMs ?? Date.now(), abort.signal, report);
    return () => abort.abort();
  }, [nodes, timeMs, round]);
  // The panel shows the error of a query that does not parse.
  if (parsed.data === undefined) return parsed.isLoading ? <p class="empty" role="status">Loading…</p> : null;
  const isBusy = nodes.some((node, i) => !isLiteral(node.tree) && !results.has(i));
  return (
    <div class="tree card" role="group" aria-label="Tree of the query" aria-busy={isBusy}>
      {nodes.map((node, i) => (
        <div key={i} class="tree-node" style={{ marginLeft: `calc(${node.depth} * var(--indent))` }}>
          <span class="hidden">Level {node.depth + 1}: </span>
          <button type="button" class="quiet choice" disabled={node.tree.type === "stringLiteral"} aria-pressed={chosen === undefined ? i === 0 : chosen === node.text} title={`Run ${node.text}`} onClick={() => onChoose(i === 0 ? undefined : node.text)}>
            <code>{node.head}</code>
          </button>
          <NodeFigures node={node} result={results.get(i)} />
          {node.operands && <MatchNote node={node.tree as BinaryNode} left={results.get(node.operands[0])} right={results.get(node.operands[1])} />}
        </div>
      ))}
      {nodes.length >= NODES_MAX && <p class="muted">The tree shows the first {NODES_MAX} nodes.</p>}
    </div>
  );
}

function NodeFigures({ node, result }: { node: TreeNode; result?: NodeResult }) {
  if (isLiteral(node.tree)) return null;
  if (!result) return <span class="muted">…</span>;
  if (result.error !== undefined) return <span class="tree-error">{messageOf(result.error)}</span>;
  const { scalar, series, isTruncated, labels } = result;
  return (
    <span class="muted">
      {scalar !== undefined ? `scalar ${scalar}` : `${isTruncated ? "at least " : ""}${plural(series, "series", "series")}`}, {seconds(result.seconds)}
      {labels.map(({ name, nValues, top }) => (
        <span key={name} class="tag" title={top.map(([value, n]) => `${value}: ${plural(n, "series", "series")}`).join("\n")}>{name} {count(nValues)}</span>
      ))}
    </span>
  );
}

/** Which series of a binary operator found no partner. */
function MatchNote({ node, left, right }: { node: BinaryNode; left?: NodeResult; right?: NodeResult }) {
  const matches = useMemo(() => (left && right ? matchSides(node, left.sets, right.sets) : undefined), [node, left, right]);
  if (!matches || !left || !right || left.error !== undefined || right.error !== undefined) return null;
  const { many } = matches;
  const isPartial = left.isTruncated || right.isTruncated;
  return (
    <div class="match">
      {isPartial && <p class="muted">Compares the first {count(NODE_SERIES_MAX)} series of each side.</p>}
      <SideNote name="left" other="right" side={matches.left} />
      <SideNote name="right" other="left" side={matches.right} />
      {many.length > 0 && (
        <p class="message error">
          {many.map(({ side, labels, series }) => <span key={side + labels}>{plural(series, "series", "series")} on the {side} have the same labels <code>{labels}</code>; the operator needs one. </span>)}
        </p>
      )}
    </div>
  );
}

function SideNote({ name, other, side: { series, alone, examples } }: { name: string; other: string; side: Side }) {
  if (series === 0) return <p class="muted">There are no series on the {name}.</p>;
  if (alone === 0) return <p class="muted">All {plural(series, "series", "series")} on the {name} have a partner on the {other}.</p>;
  return (
    <details>
      <summary>{count(alone)} of {plural(series, "series", "series")} on the {name} {alone === 1 ? "has" : "have"} no partner on the {other}</summary>
      <ul class="plain">
        {examples.map((labels: Labels) => <li key={printLabels(labels)}><code>{printLabels(labels)}</code></li>)}
        {alone > EXAMPLES_MAX && <li class="muted">{count(alone - EXAMPLES_MAX)} more</li>}
      </ul>
    </details>
  );
}
