/** The labels of a result: their distinct values, and the most frequent ones. */

import { useMemo } from "preact/hooks";
import type { Labels } from "../api/types";
import { count, plural } from "../parts/format";
import { TableFrame } from "../parts/table";
import { labelStats } from "./tree";

/** Maximum number of labels that are listed. */
const LABELS_MAX = 50;

export function LabelTable({ sets }: { sets: Labels[] }) {
  const stats = useMemo(() => labelStats(sets), [sets]);
  if (stats.length === 0) return <p class="empty">The series of the result have no labels.</p>;
  return (
    <TableFrame label="Labels of the result" hasMinor={false}>
      <table class="data">
        <thead>
          <tr><th scope="col">Label</th><th scope="col" class="number">Values</th><th scope="col">Most frequent</th></tr>
        </thead>
        <tbody>
          {stats.slice(0, LABELS_MAX).map(({ name, nValues, top }) => (
            <tr key={name}>
              <td><code>{name}</code></td>
              <td class="number">{count(nValues)}</td>
              <td class="wraps">
                {top.map(([value, n]) => <span key={value} class="frequent"><code>{value === "" ? '""' : value}</code> <span class="muted">{plural(n, "series", "series")}</span></span>)}
                {nValues > top.length && <span class="muted">and {count(nValues - top.length)} more</span>}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {stats.length > LABELS_MAX && <p class="empty">{count(stats.length - LABELS_MAX)} more labels</p>}
    </TableFrame>
  );
}
