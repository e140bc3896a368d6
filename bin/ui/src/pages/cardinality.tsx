/** Cardinality of all series or of a selector, compared with another time. */

import { useEffect, useState } from "preact/hooks";
import { request } from "../api/client";
import type { NameCount, Usage } from "../api/types";
import { setParams, useAddress } from "../app/router";
import { bytes, count, percent } from "../parts/format";
import { labelName, metricSelector, quote } from "../parts/labels";
import { useLoad } from "../parts/load";
import { type Column, DataTable } from "../parts/table";
import { parseDateTime, toInput } from "../parts/time";
import { Figures, Page, PageLink, QueryLink, Section, Show } from "../parts/view";
import { type Cardinality as Data, ROWS_MAX, loadCardinality, loadValues } from "./cardinality_data";
import { nameOf } from "./requesters";

interface Row {
  name: string;
  value: number;
  /** Change since the time of comparison; undefined without one. */
  change?: number;
  memory?: number;
}

export function Cardinality() {
  const { params } = useAddress();
  const selector = params.get("match") ?? "";
  const focus = params.get("focus") ?? "";
  const since = params.get("since") ?? "";
  const sinceMs = since === "" ? undefined : Number(since) * 1000;
  const loaded = useLoad(`now ${selector} ${since}`, async (signal) => {
    // Both sides are counted in the same way, so that they can be compared.
    const nowMs = sinceMs === undefined ? undefined : Date.now();
    const [now, before] = await Promise.all([loadCardinality(selector, nowMs, signal), sinceMs === undefined ? undefined : loadCardinality(selector, sinceMs, signal)]);
    return { now, before };
  });
  return (
    <Page
      title="Cardinality"
      controls={<Controls selector={selector} sinceMs={sinceMs} />}
      about={selector === "" && sinceMs === undefined ? "Series in memory, from the index." : "Series with a sample in the last five minutes, counted by queries."}
    >
      <Show loaded={loaded}>{({ now, before }) => <Lists now={now} before={before} selector={selector} focus={focus} sinceMs={sinceMs} />}</Show>
    </Page>
  );
}

function Controls({ selector, sinceMs }: { selector: string; sinceMs?: number }) {
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
      </form>
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
  sinceMs?: number;
}

function Lists({ now, before, selector, focus, sinceMs }: ListsProps) {
  const change = (value: number, old?: number) => (old === undefined ? "" : ` (${signed(value - old)})`);
  const metrics = compare(now.metrics, before?.metrics);
  const labels = compare(now.labels, before?.labels).map((row) => ({ ...row, memory: now.memory.get(row.name) }));
  const total = now.series;
  return (
    <>
      <Figures
        items={[
          ["Series", `${count(now.series)}${change(now.series, before?.series)}`],
          ["Metrics", `${now.metrics.length}${now.metrics.length >= ROWS_MAX ? "+" : ""}`],
          ["Labels", `${now.labels.length}${now.labels.length >= ROWS_MAX ? "+" : ""}`],
          ["Largest label", now.labels[0] ? `${now.labels[0].name}: ${count(now.labels[0].value)} values` : "–"],
        ]}
      />
      <div class="columns">
        {focus !== "" && <FocusLabel selector={selector} label={focus} sinceMs={sinceMs} />}
        <Section title="Metrics by series">
          <CountTable id="m" noun="metric" rows={metrics} whole={total} title="Series" link={(name) => <PageLink page="explore" params={{ metric: name }}><code>{name}</code></PageLink>} />
        </Section>
        <Section title="Labels by values">
          <CountTable id="l" noun="label" rows={labels} title="Values" hasMemory link={(name) => <PageLink page="cardinality" params={keep({ match: selector, since: sinceMs, focus: name })}><code>{name}</code></PageLink>} />
        </Section>
        {now.pairs.length > 0 && (
          <Section title="Pairs by series">
            <CountTable id="p" noun="pair" rows={now.pairs} whole={total} title="Series" link={(name) => <PageLink page="cardinality" params={keep({ match: pairSelector(name), since: sinceMs })}><code>{name}</code></PageLink>} />
          </Section>
        )}
      </div>
    </>
  );
}

function keep(params: Record<string, string | number | undefined>): Record<string, string> {
  const kept = Object.entries(params).filter(([, value]) => value !== undefined && value !== "");
  return Object.fromEntries(kept.map(([name, value]) => [name, name === "since" ? String(Number(value) / 1000) : String(value)]));
}

/** Returns the selector of `label=value`, as the server prints pairs. */
export function pairSelector(pair: string): string {
  const at = pair.indexOf("=");
  const [name, value] = [pair.slice(0, at), pair.slice(at + 1)];
  return name === "__name__" ? metricSelector(value) : `{${labelName(name)}=${quote(value)}}`;
}

/** Adds the change since another time. A row that was not among the largest at that time has no change. */
export function compare(now: NameCount[], before?: NameCount[]): Row[] {
  const old = before && new Map(before.map(({ name, value }) => [name, value]));
  return now.map(({ name, value }) => ({ name, value, change: old && value - (old.get(name) ?? 0) }));
}

function signed(n: number): string {
  return `${n > 0 ? "+" : n < 0 ? "−" : "±"}${count(Math.abs(n))}`;
}

interface CountTableProps {
  id: string;
  noun: string;
  rows: Row[];
  title: string;
  whole?: number;
  hasMemory?: boolean;
  link: (name: string) => preact.ComponentChildren;
}

function CountTable({ id, noun, rows, title, whole, hasMemory, link }: CountTableProps) {
  const columns: Array<Column<Row>> = [
    { id: "name", title: noun[0]?.toUpperCase() + noun.slice(1), value: ({ name }) => name, cell: ({ name }) => link(name), isName: true },
    {
      id: "count",
      title,
      value: ({ value }) => value,
      cell: ({ value }) => (whole ? `${count(value)} (${percent(value / whole)})` : count(value)),
      isNumber: true,
      bar: true,
      whole,
    },
  ];
  if (rows.some(({ change }) => change !== undefined)) {
    columns.push({ id: "change", title: "Change", value: ({ change = 0 }) => change, cell: ({ change = 0 }) => signed(change), isNumber: true });
  }
  if (hasMemory) {
    columns.push({ id: "memory", title: "Memory", hint: "Memory of the label's strings and index, of all series", value: ({ memory = 0 }) => memory, cell: ({ memory }) => (memory === undefined ? "–" : bytes(memory)), isNumber: true, bar: true });
  }
  return <DataTable id={id} caption={title} columns={columns} rows={rows} rowKey={({ name }) => name} text={({ name }) => name} sort="count" noun={noun} empty="No series match." />;
}

function FocusLabel({ selector, label, sinceMs }: { selector: string; label: string; sinceMs?: number }) {
  const loaded = useLoad(`values ${selector} ${label} ${sinceMs}`, async (signal) => {
    const [now, before] = await Promise.all([loadValues(selector, label, undefined, signal), sinceMs === undefined ? undefined : loadValues(selector, label, sinceMs, signal)]);
    return compare(now, before);
  });
  const close = <button type="button" class="quiet" onClick={() => setParams({ focus: undefined })}>Close</button>;
  const match = (value: string) => `{${labelName(label)}=${quote(value)}}`;
  return (
    <Section title={`Values of ${label}`} note={<>The {ROWS_MAX} values with the most series. {close}</>}>
      <Show loaded={loaded}>
        {(rows) => <CountTable id="v" noun="value" rows={rows} title="Series" link={(name) => <QueryLink tab="table" expr={`count by (__name__) (${match(name)})`}><code>{name}</code></QueryLink>} />}
      </Show>
      <WhoNeeds label={label} />
    </Section>
  );
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
            {` since ${toInput(sinceMs).replace("T", " ")}.`}
            {all > 0 && ` Queries of ${count(all)} metrics return all labels.`}
          </p>
        );
      }}
    </Show>
  );
}
