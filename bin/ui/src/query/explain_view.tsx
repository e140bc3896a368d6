/** The plan of a query: operators with their time, series, samples and memory. */

import type { Explained, Operator } from "../api/types";
import { bytes, count, percent, seconds } from "../parts/format";
import { Bar, TableFrame } from "../parts/table";

interface Node extends Operator {
  /** Time without the operands. */
  ownSeconds: number;
}

export function ExplainView({ explained }: { explained: Explained }) {
  const nodes = withOwnTime(explained.operators);
  const total = nodes[0]?.seconds ?? 0;
  const hottest = nodes.reduce((max, { ownSeconds }) => Math.max(max, ownSeconds), 0);
  return (
    <TableFrame label="Plan">
      <table class="data explain">
        <thead>
          <tr>
            <th scope="col">Operator</th>
            <th scope="col" class="number" title="Time of the operator without its operands">Own time</th>
            <th scope="col" class="number minor" title="Time with operands">Time</th>
            <th scope="col" class="number minor" title="Evaluations; 0 if the result of an equal operator was used, or if the operator is part of its parent">Runs</th>
            <th scope="col" class="number minor">Series</th>
            <th scope="col" class="number minor">Samples</th>
            <th scope="col" class="number minor" title="Size of the result, if it was held as a whole; 0 if series were streamed">Held</th>
          </tr>
        </thead>
        <tbody>
          {nodes.map((node, i) => (
            <tr key={i} class={node.ownSeconds === hottest && hottest > 0 ? "hot" : ""}>
              <td class="wraps">
                <div style={{ marginLeft: `calc(${node.depth} * var(--indent))` }}><span class="hidden">Level {node.depth + 1}: </span><code>{node.operator}</code></div>
              </td>
              <td class="number"><Bar share={total > 0 ? node.ownSeconds / total : 0}>{node.runs === 0 ? "–" : `${seconds(node.ownSeconds)} (${percent(total > 0 ? node.ownSeconds / total : 0)})`}</Bar></td>
              <td class="number minor">{node.runs === 0 ? "–" : seconds(node.seconds)}</td>
              <td class="number minor">{node.runs}</td>
              <td class="number minor">{node.runs === 0 ? "–" : count(node.series)}</td>
              <td class="number minor">{node.runs === 0 ? "–" : count(node.samples)}</td>
              <td class="number minor">{node.bytes === 0 ? "–" : bytes(node.bytes)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </TableFrame>
  );
}

/** Returns the time without that of the operands. Operands may run at the same time, so the result is at least 0. */
export function withOwnTime(operators: Operator[]): Node[] {
  return operators.map((operator, i) => {
    let operands = 0;
    for (const below of operators.slice(i + 1)) {
      if (below.depth <= operator.depth) break;
      if (below.depth === operator.depth + 1) operands += below.seconds;
    }
    return { ...operator, ownSeconds: Math.max(0, operator.seconds - operands) };
  });
}
