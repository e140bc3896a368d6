/** A table that sorts by a click on a header, searches, and keeps both in the address. */

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { setParams, useAddress } from "../app/router";
import { plural } from "./format";

export interface Column<Row> {
  /** Identifies the column in the address. */
  id: string;
  title: string;
  /** Meaning of the column, shown at its header. */
  hint?: string;
  /** Value to sort by. Numbers sort in descending order first. */
  value: (row: Row) => number | string;
  /** Content of the cell; the value if absent. */
  cell?: (row: Row) => ComponentChildren;
  /** Draws a bar whose length is the value's share of `whole`, or of the largest value. */
  bar?: boolean;
  whole?: number;
  isNumber?: boolean;
  /** True if narrow screens hide the column. */
  isMinor?: boolean;
  /** True if the cell may break into lines. */
  wraps?: boolean;
  /** True if the cell names the row. It then gets more room. */
  isName?: boolean;
}

interface Props<Row> {
  /** Identifies the table in the address. */
  id: string;
  caption: string;
  columns: Array<Column<Row>>;
  rows: Row[];
  rowKey: (row: Row) => string;
  /** Text that the search box looks for; without it there is no box. */
  text?: (row: Row) => string;
  sort?: string;
  empty: ComponentChildren;
  /** Further controls beside the search box. */
  controls?: ComponentChildren;
  noun?: string;
  nouns?: string;
  /** What the rows are, such as `the 100 largest of 461 metrics`; their number if absent. */
  extent?: ComponentChildren;
  /** True if further content follows, which a long table would push away. */
  isShort?: boolean;
  /** True if the columns have those of further tables above and below them. */
  isAligned?: boolean;
}

const ROWS_SHOWN = 100;
/** Rows of a table beside or above others. */
const ROWS_SHOWN_SHORT = 20;

export function DataTable<Row>(props: Props<Row>) {
  const { id, caption, columns, rows, rowKey, text, empty, controls, noun = "row", nouns, extent = plural(rows.length, noun, nouns), isShort, isAligned } = props;
  const rowsShown = isShort ? ROWS_SHOWN_SHORT : ROWS_SHOWN;
  const { params } = useAddress();
  const [shown, setShown] = useState(rowsShown);
  const sort = params.get(`${id}.sort`) ?? props.sort ?? "";
  const find = params.get(`${id}.find`) ?? "";
  useEffect(() => setShown(rowsShown), [sort, find]);
  const found = useMemo(() => {
    const words = find.toLowerCase().split(/\s+/).filter(Boolean);
    if (words.length === 0 || !text) return rows;
    return rows.filter((row) => words.every((word) => text(row).toLowerCase().includes(word)));
  }, [rows, find]);
  const sorted = useMemo(() => sortRows(found, columns, sort), [found, sort, columns.length]);
  if (rows.length === 0) {
    // A control may be the reason that there are no rows.
    return (
      <>
        {controls && <div class="table-tools">{controls}</div>}
        <div class="empty">{empty}</div>
      </>
    );
  }
  return (
    <div class="table-block">
      {(text || controls) && (
        <div class="table-tools">
          {text && <Search value={find} onInput={(value) => setParams({ [`${id}.find`]: value }, true)} label={`Search: ${caption}`} />}
          {controls}
          <span class="muted" role="status">{find !== "" && `${found.length} of `}{extent}</span>
        </div>
      )}
      <TableFrame label={caption} hasMinor={columns.some(({ isMinor }) => isMinor)}>
        <table class={isAligned ? "data aligned" : "data"}>
          <caption class="hidden">{caption}</caption>
          <thead>
            <tr>{columns.map((column) => <Header key={column.id} table={id} column={column} sort={sort} />)}</tr>
          </thead>
          <tbody>
            {sorted.slice(0, shown).map((row) => (
              <tr key={rowKey(row)}>{columns.map((column) => <Cell key={column.id} column={column} row={row} rows={rows} />)}</tr>
            ))}
          </tbody>
        </table>
      </TableFrame>
      {sorted.length > shown && (
        <button type="button" class="quiet" onClick={() => setShown(shown * 4)}>
          Show more ({plural(sorted.length - shown, noun, nouns)} left)
        </button>
      )}
    </div>
  );
}

/** The frame of a table that may be wider than the page. Narrow screens hide minor columns until the button shows them. */
export function TableFrame({ label, hasMinor = true, children }: { label: string; hasMinor?: boolean; children: ComponentChildren }) {
  const [isFull, setIsFull] = useState(false);
  return (
    <>
      {hasMinor && <button type="button" class="quiet narrow" onClick={() => setIsFull(!isFull)}>{isFull ? "Fewer" : "All"} columns</button>}
      <div class={isFull ? "table-scroll full" : "table-scroll"} tabIndex={0} role="region" aria-label={label}>{children}</div>
    </>
  );
}

/** Sorts rows by a column: `id` in its natural direction, `-id` in the other one. */
export function sortRows<Row>(rows: Row[], columns: Array<Column<Row>>, sort: string): Row[] {
  const isReversed = sort.startsWith("-");
  const column = columns.find(({ id }) => id === (isReversed ? sort.slice(1) : sort));
  if (!column) return rows;
  const sign = (column.isNumber ? -1 : 1) * (isReversed ? -1 : 1);
  const keyed = rows.map((row) => ({ row, value: column.value(row) }));
  keyed.sort((a, b) => sign * compare(a.value, b.value));
  return keyed.map(({ row }) => row);
}

function compare(a: number | string, b: number | string): number {
  if (typeof a === "number" && typeof b === "number") return Number.isNaN(a) ? -1 : Number.isNaN(b) ? 1 : a - b;
  return String(a) < String(b) ? -1 : String(a) > String(b) ? 1 : 0;
}

function Header<Row>({ table, column, sort }: { table: string; column: Column<Row>; sort: string }) {
  const isSorted = sort === column.id || sort === `-${column.id}`;
  const isDescending = isSorted && (sort.startsWith("-") !== (column.isNumber ?? false));
  const next = sort === column.id ? `-${column.id}` : column.id;
  const direction = isSorted ? (isDescending ? "descending" : "ascending") : "none";
  return (
    <th scope="col" class={cellClass(column)} aria-sort={direction}>
      <button type="button" title={column.hint} onClick={() => setParams({ [`${table}.sort`]: next }, true)}>
        {column.title}
        <span class="sort-mark" aria-hidden="true">{isSorted ? (isDescending ? "↓" : "↑") : ""}</span>
      </button>
    </th>
  );
}

function Cell<Row>({ column, row, rows }: { column: Column<Row>; row: Row; rows: Row[] }) {
  const content = column.cell ? column.cell(row) : column.value(row);
  if (!column.bar) return <td class={cellClass(column)}>{content}</td>;
  const whole = column.whole ?? rows.reduce((most, other) => Math.max(most, Number(column.value(other))), 0);
  return (
    <td class={cellClass(column)}>
      <Bar share={whole > 0 ? Number(column.value(row)) / whole : 0}>{content}</Bar>
    </td>
  );
}

function cellClass<Row>({ isNumber, isMinor, wraps, isName }: Column<Row>): string {
  return [isNumber && "number", isMinor && "minor", (wraps || isName) && "wraps", isName && "name"].filter(Boolean).join(" ");
}

/** Content with a bar below that shows a share of 1. */
export function Bar({ share, children }: { share: number; children: ComponentChildren }) {
  const width = `${Math.min(100, Math.max(share > 0 ? 1 : 0, share * 100))}%`;
  return (
    <span class="bar">
      <span>{children}</span>
      <span class="bar-fill" aria-hidden="true" style={{ width }} />
    </span>
  );
}

/** A search box that reports its value as the user types. */
export function Search({ value, onInput, label }: { value: string; onInput: (value: string) => void; label: string }) {
  return (
    <input
      type="search"
      class="search"
      placeholder="Search"
      aria-label={label}
      spellcheck={false}
      autocomplete="off"
      value={value}
      onInput={(event) => onInput(event.currentTarget.value)}
    />
  );
}
