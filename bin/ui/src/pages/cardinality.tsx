/** Cardinality of all series or of a selector: counts, bytes in memory and on disk, compared with another time. */

import { useEffect, useState } from "preact/hooks";
import { request } from "../api/client";
import type { NameCount, Usage } from "../api/types";
import { setParams, useAddress } from "../app/router";
import { bytes, count, percent, plural } from "../parts/format";
import { labelName, metricSelector, quote } from "../parts/labels";
import { useLoad } from "../parts/load";
import { type Column, DataTable } from "../parts/table";
import { dateTime, parseDateTime, toInput } from "../parts/time";
import { Ago, Figures, Name, Page, PageLink, QueryLink, Section, Select, Show } from "../parts/view";
import { type CountRow, type Cardinality as Data, type SortKey, countAt, loadCardinality } from "./cardinality_data";
import { LAST_USED_HINT, NotUsed, nameOf } from "./requesters";

interface Row extends CountRow {
  /** Change since the time of comparison; undefined without one. */
  change?: number;
}

const SORT_KEYS: Array<[SortKey, string]> = [["series", "series"], ["memory", "memory"], ["disk", "disk"]];

export function Cardinality() {
  const { params } = useAddress();
  const selector = params.get("match") ?? "";
  const focus = params.get("focus") ?? "";
  const since = params.get("since") ?? "";
  const sort = SORT_KEYS.find(([key]) => key === params.get("by"))?.[0] ?? "series";
  const sinceMs = since === "" ? undefined : Number(since) * 1000;
  const loaded = useLoad(`cardinality ${selector} ${focus} ${since} ${sort}`, async (signal) => {
    if (sinceMs === undefined) return { now: await loadCardinality(selector, focus, sort, signal) };
    // Both sides are counted in the same way, so that they can be compared.
    const [now, before] = await Promise.all([countAt(selector, focus, Date.now(), signal), countAt(selector, focus, sinceMs, signal)]);
    return { now, before };
  });
  return (
    <Page
      title="Cardinality"
      controls={<Controls selector={selector} sinceMs={sinceMs} sort={sort} />}
      about={sinceMs === undefined ? "Series in memory, and what they and older series take on disk." : "Series with a sample in the last five minutes, counted by queries."}
    >
      <Show loaded={loaded}>{({ now, before }) => <Lists now={now} before={before} selector={selector} focus={focus} sort={sort} />}</Show>
    </Page>
  );
}

function Controls({ selector, sinceMs, sort }: { selector: string; sinceMs?: number; sort: SortKey }) {
  const [text, setText] = useState(selector);
  useEffect(() => setText(selector), [selector]);
  return (
    <>
      <form
        class="field"
        onSubmit={(event) => {
          event.preventDefault();
          setParams({ match: text.trim() });
        }}
      >
        <input type="search" class="search" placeholder='Selector: {job="node"}' aria-label="Selector" spellcheck={false} value={text} onInput={(event) => setText(event.currentTarget.value)} />
        <button type="submit">Focus</button>
        {selector !== "" && <button type="button" class="quiet" onClick={() => setParams({ match: undefined })}>All series</button>}
      </form>
      {sinceMs === undefined && <Select label="Largest by" value={sort} options={SORT_KEYS} onChange={(by) => setParams({ by: by === "series" ? undefined : by })} />}
      <label class="field">
        <span>Compare with</span>
        <input
          type="datetime-local"
          step={1}
          value={sinceMs === undefined ? "" : toInput(sinceMs)}
          onChange={(event) => {
            const ms = parseDateTime(event.currentTarget.value);
            setParams({ since: ms === undefined ? undefined : String(Math.round(ms / 1000)) });
          }}
        />
      </label>
      {sinceMs === undefined ? (
        <button type="button" onClick={() => setParams({ since: String(Math.floor(Date.now() / 1000) - 86_400) })}>Yesterday</button>
      ) : (
        <button type="button" onClick={() => setParams({ since: undefined })}>Do not compare</button>
      )}
    </>
  );
}

interface ListsProps {
  now: Data;
  before?: Data;
  selector: string;
  focus: string;
  sort: SortKey;
}

function Lists({ now, before, selector, focus, sort }: ListsProps) {
  const { params } = useAddress();
  const { total } = now;
  const change = before ? ` (${signed(total.value - before.total.value)})` : "";
  const link = (changes: Record<string, string>) => {
    const next = new URLSearchParams(params);
    for (const [name, value] of Object.entries(changes)) next.set(name, value);
    return Object.fromEntries(next);
  };
  const match = (label: string, value: string) => `{${labelName(label)}=${quote(value)}}`;
  const shared = { sort, whole: total };
  return (
    <>
      <Figures
        items={[
          ["Series", `${count(total.value)}${change}`, "In memory"],
          ["Metrics", count(now.nMetrics)],
          ["Labels", count(now.nLabels)],
          ...(total.cost ? ([["Memory", bytes(total.cost.memoryBytes), "Series, labels and samples in memory"], ["Disk", bytes(total.cost.diskBytes), `${count(total.cost.diskSamples)} samples in blocks`]] as Array<[string, string, string]>) : []),
          ["Largest label", largestLabel(now)],
        ]}
      />
      {focus !== "" && (
        <Section title={`Values of ${focus}`}>
          <CountTable controls={<button type="button" class="quiet" onClick={() => setParams({ focus: undefined })}>Close</button>} id="v" noun="value" rows={compare(now.values, before?.values)} n={now.nValues} {...shared} link={(name) => <QueryLink tab="table" expr={`count by (__name__) (${match(focus, name)})`}><Name text={name} /></QueryLink>} />
          <WhoNeeds label={focus} />
        </Section>
      )}
      <div class="columns halves">
        <Section title="Metrics">
          <CountTable id="m" noun="metric" rows={compare(now.metrics, before?.metrics)} n={now.nMetrics} hasUse {...shared} link={(name) => <PageLink page="explore" params={{ metric: name }}><Name text={name} /></PageLink>} />
        </Section>
        <Section title="Labels">
          <CountTable id="l" noun="label" rows={compare(now.labels, before?.labels)} n={now.nLabels} which={before && "first"} counted="Values" sort={sort === "series" ? "count" : sort} link={(name) => <PageLink page="cardinality" params={link({ focus: name })}><Name text={name} /></PageLink>} />
        </Section>
        {now.pairs.length > 0 && (
          <Section title="Pairs of label and value">
            <CountTable id="p" noun="pair" rows={now.pairs} n={now.nPairs} {...shared} link={(name) => <PageLink page="cardinality" params={link({ match: withPair(selector, name) })}><Name text={name} /></PageLink>} />
          </Section>
        )}
      </div>
    </>
  );
}

function largestLabel({ labels }: Data): string {
  const [first] = [...labels].sort((a, b) => b.value - a.value);
  return first ? `${first.name}: ${plural(first.value, "value")}` : "–";
}

/** Returns the selector of `label=value`, as the server prints pairs. */
export function pairSelector(pair: string): string {
  const at = pair.indexOf("=");
  const [name, value] = [pair.slice(0, at), pair.slice(at + 1)];
  return name === "__name__" ? metricSelector(value) : `{${labelName(name)}=${quote(value)}}`;
}

/** Adds a pair to a selector. A metric name replaces a selector without one. */
export function withPair(selector: string, pair: string): string {
  const added = pairSelector(pair);
  const inner = /^\{(.*)\}$/s.exec(added)?.[1];
  if (selector === "" || inner === undefined) return added;
  return selector.endsWith("}") ? `${selector.slice(0, -1).replace(/,?\s*$/, "")}, ${inner}}`.replace("{, ", "{") : `${selector}{${inner}}`;
}

/** Adds the change since another time. A row that was not among the largest at that time has no change. */
export function compare(now: CountRow[], before?: NameCount[]): Row[] {
  const old = before && new Map(before.map(({ name, value }) => [name, value]));
  return now.map((row) => ({ ...row, change: old && row.value - (old.get(row.name) ?? 0) }));
}

function signed(n: number): string {
  return `${n > 0 ? "+" : n < 0 ? "−" : "±"}${count(Math.abs(n))}`;
}

/** Returns what a list of some of `n` entries contains. */
export function extentOf(nListed: number, n: number, noun: string, which = "largest"): string {
  return n > nListed ? `the ${count(nListed)} ${which} of ${plural(n, noun)}` : plural(nListed, noun);
}

interface CountTableProps {
  id: string;
  noun: string;
  rows: Row[];
  /** Number of all rows, of which `rows` may be the largest, or others. */
  n: number;
  which?: string;
  /** The title of the counts. */
  counted?: string;
  sort: string;
  /** The row of which all others are a part. */
  whole?: CountRow;
  hasUse?: boolean;
  /** Further controls beside the search box. */
  controls?: preact.ComponentChildren;
  link: (name: string) => preact.ComponentChildren;
}

function CountTable({ id, noun, rows, n, which, counted = "Series", sort, whole, hasUse, controls, link }: CountTableProps) {
  const all = whole?.value ?? 0;
  const size = (key: "memoryBytes" | "diskBytes", title: string, columnId: string): Column<Row> => ({
    id: columnId,
    title,
    value: ({ cost }) => cost?.[key] ?? 0,
    cell: ({ cost }) => bytes(cost?.[key] ?? 0),
    hint: `Of all series with the ${noun}`,
    isNumber: true,
    bar: true,
  });
  const columns: Array<Column<Row>> = [
    { id: "name", title: noun[0]?.toUpperCase() + noun.slice(1), value: ({ name }) => name, cell: ({ name }) => link(name), isName: true },
    {
      id: counted === "Series" ? "series" : "count",
      title: counted,
      value: ({ value }) => value,
      cell: ({ value }) => <>{count(value)}{all > 0 && <span class="minor"> ({percent(value / all)})</span>}</>,
      isNumber: true,
      bar: true,
    },
  ];
  if (rows.some(({ change }) => change !== undefined)) {
    columns.push({ id: "change", title: "Change", value: ({ change = 0 }) => change, cell: ({ change = 0 }) => signed(change), isNumber: true });
  }
  if (rows.some(({ cost }) => cost)) {
    columns.push(size("memoryBytes", "Memory", "memory"), { ...size("diskBytes", "Disk", "disk"), isMinor: true });
    if (hasUse) columns.push({ id: "used", title: "Last used", value: ({ lastUsedMs }) => -(lastUsedMs ?? 0), hint: LAST_USED_HINT, cell: ({ lastUsedMs }) => (lastUsedMs ? <Ago ms={lastUsedMs} /> : <NotUsed />), isMinor: true });
  }
  return <DataTable id={id} caption={`${noun}s`} columns={columns} rows={rows} extent={extentOf(rows.length, n, noun, which)} rowKey={({ name }) => name} text={({ name }) => name} sort={sort} noun={noun} controls={controls} isShort empty="No series match." />;
}

/** The queries that need a label because they match, group or join by it. */
function WhoNeeds({ label }: { label: string }) {
  const loaded = useLoad("usage", async (signal) => (await request<Usage>("status/usage", { signal })).data);
  return (
    <Show loaded={loaded}>
      {({ metrics, selectors, sinceMs }) => {
        const users = [...metrics, ...selectors].filter(({ matchedLabels, groupedLabels }) => [...matchedLabels, ...groupedLabels].includes(label));
        const all = metrics.filter(({ allLabels }) => allLabels).length;
        const names = [...new Set(users.flatMap(({ requesters }) => requesters.map(nameOf)))];
        return (
          <p class="muted">
            {users.length === 0
              ? `No query matched or grouped by ${label}`
              : `Queries of ${users.slice(0, 5).map((user) => user.metric ?? user.selector).join(", ")}${users.length > 5 ? ` and ${users.length - 5} more` : ""} need ${label}: ${names.slice(0, 5).join(", ")}`}
            {` since ${dateTime(sinceMs)}.`}
            {all > 0 && ` Queries of ${plural(all, "metric")} return all labels.`}
          </p>
        );
      }}
    </Show>
  );
}
