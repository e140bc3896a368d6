/** The lines of a graph as a table, which sorts, searches and hides lines. */

import { useMemo, useState } from "preact/hooks";
import { seriesVariable } from "../app/theme";
import type { Grid, Line } from "../chart/grid";
import { nameOf } from "../chart/line_chart";
import { plural, short } from "../parts/format";
import { printLabels } from "../parts/labels";
import { Search, TableFrame } from "../parts/table";

type Key = "name" | "last" | "min" | "mean" | "max";
const KEYS: ReadonlyArray<[Key, string]> = [["name", "Series"], ["last", "Last"], ["min", "Min"], ["mean", "Mean"], ["max", "Max"]];
const LINES_SHOWN = 50;

interface Props {
  grid: Grid;
  hidden: ReadonlySet<number>;
  onHide: (hidden: ReadonlySet<number>) => void;
  onPoint: (line: number | undefined) => void;
  /** The line nearest to the pointer in the graph. */
  near?: number;
}

export function Legend({ grid, hidden, onHide, onPoint, near }: Props) {
  const [sort, setSort] = useState<{ key: Key; isDescending: boolean }>();
  const [find, setFind] = useState("");
  const [shown, setShown] = useState(LINES_SHOWN);
  const { lines, common } = grid;
  const listed = useMemo(() => arrange(lines, find, sort), [lines, find, sort]);
  const sortBy = (key: Key) => setSort({ key, isDescending: sort?.key === key ? !sort.isDescending : key !== "name" });
  const toggle = (index: number, isMany: boolean) => onHide(toggled(lines.length, hidden, index, isMany));
  return (
    <div class="legend">
      <div class="table-tools">
        {lines.length > 5 && <Search value={find} onInput={setFind} label="Search series" />}
        <span class="muted">
          {plural(lines.length, "series", "series")}
          {Object.keys(common).length > 0 && <> of <code>{printLabels(common)}</code></>}
        </span>
        {hidden.size > 0 && <button type="button" class="quiet" onClick={() => onHide(new Set())}>Show all</button>}
      </div>
      <TableFrame label="Series of the graph">
        <table class="data">
          <thead>
            <tr>
              {KEYS.map(([key, title]) => (
                <th key={key} scope="col" class={key === "name" ? "" : key === "last" ? "number" : "number minor"} aria-sort={sort?.key === key ? (sort.isDescending ? "descending" : "ascending") : "none"}>
                  <button type="button" onClick={() => sortBy(key)}>
                    {title}
                    <span class="sort-mark" aria-hidden="true">{sort?.key === key ? (sort.isDescending ? "↓" : "↑") : ""}</span>
                  </button>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {listed.slice(0, shown).map(({ line, index }) => (
              <tr key={index} class={hidden.has(index) ? "off" : index === near ? "near" : ""} onMouseEnter={() => onPoint(index)} onMouseLeave={() => onPoint(undefined)}>
                <td class="wraps">
                  <button
                    type="button"
                    class="series"
                    aria-pressed={!hidden.has(index)}
                    title="Show only this series; with Ctrl, hide it"
                    onClick={(event) => toggle(index, event.ctrlKey || event.metaKey)}
                  >
                    <i class="swatch" style={{ background: `var(${seriesVariable(index)})` }} />
                    <code>{nameOf(line)}</code>
                  </button>
                </td>
                <td class="number">{line.last === null ? "–" : short(line.last)}</td>
                <td class="number minor">{short(line.min)}</td>
                <td class="number minor">{short(line.mean)}</td>
                <td class="number minor">{short(line.max)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </TableFrame>
      {listed.length > shown && (
        <button type="button" class="quiet" onClick={() => setShown(shown * 4)}>Show more ({plural(listed.length - shown, "series", "series")} left)</button>
      )}
    </div>
  );
}

function arrange(lines: Line[], find: string, sort?: { key: Key; isDescending: boolean }): Array<{ line: Line; index: number }> {
  const words = find.toLowerCase().split(/\s+/).filter(Boolean);
  const all = lines.map((line, index) => ({ line, index }));
  const found = words.length === 0 ? all : all.filter(({ line }) => words.every((word) => line.name.toLowerCase().includes(word)));
  if (!sort) return found;
  const sign = sort.isDescending ? -1 : 1;
  const value = (line: Line) => (sort.key === "name" ? line.name : (line[sort.key] ?? NaN));
  return found.sort((a, b) => {
    const [x, y] = [value(a.line), value(b.line)];
    if (typeof x === "number" && Number.isNaN(x)) return 1;
    if (typeof y === "number" && Number.isNaN(y)) return -1;
    return x < y ? -sign : x > y ? sign : 0;
  });
}

/** Returns the hidden lines after a click. A click shows only that line, a second click all lines. Ctrl-click toggles one. */
export function toggled(nLines: number, hidden: ReadonlySet<number>, index: number, isMany: boolean): ReadonlySet<number> {
  if (isMany) {
    const next = new Set(hidden);
    if (!next.delete(index)) next.add(index);
    return next;
  }
  const isAlone = hidden.size === nLines - 1 && !hidden.has(index);
  return isAlone ? new Set() : new Set(Array.from({ length: nLines }, (_, i) => i).filter((i) => i !== index));
}
