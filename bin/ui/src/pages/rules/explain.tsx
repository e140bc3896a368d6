/** Why an alert fires or does not, and when it would have fired in the past. */

import { useState } from "preact/hooks";
import { request } from "../../api/client";
import type { Labels } from "../../api/types";
import { count, plural } from "../../parts/format";
import { printLabels } from "../../parts/labels";
import { useLoad } from "../../parts/load";
import { type Column, DataTable, TableFrame } from "../../parts/table";
import { dateTime, printDuration } from "../../parts/time";
import { QueryLink, Select, Show } from "../../parts/view";
import type { Group, Rule } from "./data";

interface Step {
  depth: number;
  expr: string;
  series: number;
  examples: Array<{ labels: Labels; value: string }>;
}
interface Explanation {
  reason: string;
  steps: Step[];
}
interface Firing {
  labels: Labels;
  activeAtMs: number;
  firedAtMs: number;
  /** 0 if the alert fires at the end of the range. */
  resolvedAtMs: number;
}
interface Backtested {
  rules: Array<{ evaluations: number; failures: number; lastError: string; firings: Firing[] }>;
  isTruncated: boolean;
  warnings: string[];
}

const RANGES: Array<[string, string]> = [["86400", "the last day"], ["604800", "the last week"], ["2592000", "the last 30 days"]];

/** Two buttons, and the answer of the one that was pressed. */
export function AlertQuestions({ group, rule }: { group: Group; rule: Rule }) {
  const [question, setQuestion] = useState<"why" | "when">();
  const ask = (next: "why" | "when") => setQuestion(question === next ? undefined : next);
  return (
    <>
      <div class="table-tools">
        <button type="button" aria-expanded={question === "why"} onClick={() => ask("why")}>{rule.state === "inactive" ? "Why does it not fire?" : "Why does it fire?"}</button>
        <button type="button" aria-expanded={question === "when"} onClick={() => ask("when")}>Backtest</button>
      </div>
      {question === "why" && <Why group={group} rule={rule} />}
      {question === "when" && <Backtest group={group} rule={rule} />}
    </>
  );
}

function Why({ group, rule }: { group: Group; rule: Rule }) {
  const loaded = useLoad(`why ${group.file} ${group.name} ${rule.name}`, async (signal) => {
    const params = { alert: rule.name, rule_group: group.name, file: group.file };
    return (await request<{ rules: Array<Explanation & { query: string }> }>("rules/explain", { params, signal })).data.rules;
  });
  return (
    <Show loaded={loaded}>
      {(rules) => {
        const explanation = rules.find(({ query }) => query === rule.query) ?? rules[0];
        return explanation ? <Steps explanation={explanation} /> : null;
      }}
    </Show>
  );
}

function Steps({ explanation: { reason, steps } }: { explanation: Explanation }) {
  return (
    <TableFrame label="Parts of the expression">
      <p class="message info"><span>{reason}.</span></p>
      <table class="data explain">
        <thead><tr><th scope="col">Part of the expression</th><th scope="col" class="number">Series</th><th scope="col" class="minor">For example</th></tr></thead>
        <tbody>
          {steps.map(({ depth, expr, series, examples: [example] }, i) => (
            <tr key={i} class={series === 0 ? "hot" : ""}>
              <td class="wraps"><div style={{ marginLeft: `calc(${depth} * var(--indent))` }}><QueryLink expr={expr}><code>{expr}</code></QueryLink></div></td>
              <td class="number">{count(series)}</td>
              <td class="minor wraps">{example && <><code>{printLabels(example.labels)}</code> {example.value}</>}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </TableFrame>
  );
}

/** Returns a rule file with one rule. JSON is YAML, too. */
export function ruleFile(group: Group, { name, query, duration = 0, keepFiringFor = 0, labels = {} }: Rule): string {
  const time = (seconds: number) => printDuration(seconds * 1000);
  const rule = { alert: name, expr: query, for: time(duration), keep_firing_for: time(keepFiringFor), labels };
  return JSON.stringify({ groups: [{ name: group.name, interval: time(group.interval), rules: [rule] }] });
}

function Backtest({ group, rule }: { group: Group; rule: Rule }) {
  const [range, setRange] = useState("86400");
  const loaded = useLoad(`backtest ${group.file} ${group.name} ${rule.name} ${rule.query} ${range}`, async (signal) => {
    const end = Math.floor(Date.now() / 1000);
    const params = { rules: ruleFile(group, rule), file: group.file, start: end - Number(range), end };
    return (await request<Backtested>("rules/backtest", { method: "POST", params, signal })).data;
  });
  return (
    <>
      <Select label="When it would have fired in" value={range} options={RANGES} onChange={setRange} />
      <Show loaded={loaded}>{(found) => <Firings found={found} />}</Show>
    </>
  );
}

function Firings({ found: { rules, isTruncated, warnings } }: { found: Backtested }) {
  const [result] = rules;
  if (!result) return null;
  const columns: Array<Column<Firing>> = [
    { id: "labels", title: "Alert", value: ({ labels }) => printLabels(labels), cell: ({ labels }) => <code>{printLabels(labels)}</code>, isName: true },
    { id: "active", title: "Active", value: ({ activeAtMs }) => activeAtMs, cell: ({ activeAtMs }) => dateTime(activeAtMs), isNumber: true, isMinor: true },
    { id: "fired", title: "Fired", value: ({ firedAtMs }) => firedAtMs, cell: ({ firedAtMs }) => dateTime(firedAtMs), isNumber: true },
    { id: "resolved", title: "For", value: ({ firedAtMs, resolvedAtMs }) => (resolvedAtMs === 0 ? Infinity : resolvedAtMs - firedAtMs), cell: ({ firedAtMs, resolvedAtMs }) => (resolvedAtMs === 0 ? "still firing" : printDuration(resolvedAtMs - firedAtMs)), isNumber: true },
  ];
  return (
    <>
      {warnings.map((text) => <p key={text} class="message warning"><span>{text}</span></p>)}
      {result.failures > 0 && <p class="message error"><span>{plural(result.failures, "evaluation")} failed: {result.lastError}</span></p>}
      <DataTable
        id="b"
        caption="Firings"
        columns={columns}
        rows={result.firings}
        rowKey={({ labels, firedAtMs }) => `${printLabels(labels)} ${firedAtMs}`}
        sort="fired"
        noun="firing"
        isShort
        controls={result.firings.length > 0 && <span class="muted">{plural(result.evaluations, "evaluation")}{isTruncated && "; the list is truncated"}</span>}
        empty={`It would not have fired in ${plural(result.evaluations, "evaluation")}.`}
      />
    </>
  );
}
