/** Rules and alerts: groups, state, evaluations, active alerts, and the history of an alert. */

import { useState } from "preact/hooks";
import { isTenant, request } from "../../api/client";
import type { Labels } from "../../api/types";
import { setParams, useAddress } from "../../app/router";
import { printLabels, quote } from "../../parts/labels";
import { toNumber } from "../../chart/grid";
import { plural, seconds, short } from "../../parts/format";
import { useLoad } from "../../parts/load";
import { Search } from "../../parts/table";
import { printDuration } from "../../parts/time";
import { Ago, Copied, Figures, Page, QueryLink, Select, Show } from "../../parts/view";
import { AlertQuestions } from "./explain";

interface Alert {
  labels: Labels;
  annotations: Labels;
  state: string;
  activeAt?: string;
  value: string;
}
export interface Rule {
  type: "alerting" | "recording";
  name: string;
  query: string;
  labels?: Labels;
  annotations?: Labels;
  duration?: number;
  keepFiringFor?: number;
  state?: string;
  health: string;
  lastError?: string;
  evaluationTime: number;
  lastEvaluation: string;
  alerts?: Alert[];
}
export interface Group {
  name: string;
  file: string;
  interval: number;
  evaluationTime: number;
  lastEvaluation: string;
  rules: Rule[];
}

const POLL_MS = 10_000;
const STATES: Array<[string, string]> = [["", "All rules"], ["firing", "Firing"], ["pending", "Pending"], ["inactive", "Inactive"], ["err", "With errors"], ["recording", "Recording"]];

export function Rules() {
  const loaded = useLoad("rules", async (signal) => (await request<{ groups: Group[] }>("rules", { signal })).data.groups, POLL_MS);
  return (
    <Page title="Rules and alerts">
      <Show loaded={loaded}>{(groups) => (groups.length === 0 ? <p class="empty">No rules are loaded. Rule groups that this server evaluates appear here: list their files under rule_files in the configuration, then reload it.</p> : <Groups groups={groups} />)}</Show>
    </Page>
  );
}

/** Returns `true` if a rule is in a state of the filter and contains all words of the search. */
export function isShown(rule: Rule, state: string, find: string): boolean {
  const inState =
    state === "" || (state === "err" ? rule.health === "err" : state === "recording" ? rule.type === "recording" : rule.state === state);
  const text = `${rule.name} ${rule.query} ${JSON.stringify(rule.labels ?? {})}`.toLowerCase();
  return inState && find.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

function Groups({ groups }: { groups: Group[] }) {
  const { params } = useAddress();
  const [state, find] = [params.get("state") ?? "", params.get("find") ?? ""];
  const all = groups.flatMap(({ rules }) => rules);
  const inState = (wanted: string) => all.filter((rule) => isShown(rule, wanted, "")).length;
  const shown = groups
    .map((group) => ({ ...group, rules: group.rules.filter((rule) => isShown(rule, state, find)) }))
    .filter(({ rules }) => rules.length > 0);
  return (
    <>
      <Figures items={[["Groups", groups.length], ["Rules", all.length], ["Firing rules", inState("firing")], ["Pending rules", inState("pending")], ["Rules with errors", inState("err")]]} />
      <div class="table-tools">
        <Search value={find} label="Search rules" onInput={(value) => setParams({ find: value }, true)} />
        <Select label="State" value={state} options={STATES} onChange={(value) => setParams({ state: value })} />
      </div>
      {shown.length === 0 && <p class="empty">No rule matches.</p>}
      {shown.map((group) => <GroupView key={group.file + group.name} group={group} />)}
    </>
  );
}

function GroupView({ group }: { group: Group }) {
  const total = group.rules.reduce((sum, { evaluationTime }) => sum + evaluationTime, 0);
  return (
    <section class="section card">
      <h2>{group.name}</h2>
      <p class="about">
        {group.file} · every {printDuration(group.interval * 1000)} · evaluated <Ago ms={Date.parse(group.lastEvaluation)} /> in {seconds(group.evaluationTime)}
      </p>
      <div class="section">
        {group.rules.map((rule, i) => <RuleView key={i} group={group} rule={rule} share={total > 0 ? rule.evaluationTime / total : 0} />)}
      </div>
    </section>
  );
}

const TAGS: Record<string, string> = { firing: "bad", pending: "warn", inactive: "good", err: "bad" };

function RuleView({ group, rule, share }: { group: Group; rule: Rule; share: number }) {
  const [isOpen, setIsOpen] = useState(rule.state === "firing");
  const state = rule.health === "err" ? "err" : (rule.state ?? rule.type);
  return (
    <details class="rule" open={isOpen} onToggle={(event) => setIsOpen(event.currentTarget.open)}>
      <summary>
        <span class={`tag ${TAGS[state] ?? ""}`}>{state === "err" ? "error" : state}</span>
        <b class="wrap">{rule.name}</b>
        {rule.alerts && rule.alerts.length > 0 && <span>{plural(rule.alerts.length, "alert")}</span>}
        {!isOpen && <code class="muted clip">{rule.query}</code>}
        <span class="muted" title="Time of the last evaluation, and its share of the group">{seconds(rule.evaluationTime)}{share > 0.25 && ` (${Math.round(share * 100)} % of the group)`}</span>
      </summary>
      {isOpen && <RuleBody group={group} rule={rule} />}
    </details>
  );
}

function RuleBody({ group, rule }: { group: Group; rule: Rule }) {
  return (
    <div class="rule-body">
      <Copied text={rule.query}><pre class="text" tabIndex={0}>{rule.query}</pre></Copied>
      <p class="table-tools">
        <QueryLink expr={rule.query} range="1d">Graph of the expression</QueryLink>
        <QueryLink expr={rule.query} tab="explain">Explain</QueryLink>
        {rule.type === "alerting" && <QueryLink expr={`ALERTS{alertname=${quote(rule.name)}}`} range="1w" title="When the alert was pending or firing">History</QueryLink>}
        {rule.type === "recording" && <QueryLink expr={rule.name}>Recorded series</QueryLink>}
        <span class="muted">evaluated <Ago ms={Date.parse(rule.lastEvaluation)} /></span>
        {rule.duration !== undefined && rule.duration > 0 && <span class="muted">for {printDuration(rule.duration * 1000)}</span>}
        {rule.keepFiringFor !== undefined && rule.keepFiringFor > 0 && <span class="muted">keeps firing for {printDuration(rule.keepFiringFor * 1000)}</span>}
      </p>
      {rule.type === "alerting" && !isTenant.get() && <AlertQuestions group={group} rule={rule} />}
      {rule.lastError && <p class="message error">{rule.lastError}</p>}
      {rule.labels && Object.keys(rule.labels).length > 0 && <p><span class="muted">labels: </span><code>{printLabels(rule.labels)}</code></p>}
      {Object.entries(rule.annotations ?? {}).map(([name, text]) => <p key={name}><span class="muted">{name}: </span>{text}</p>)}
      {rule.alerts?.map((alert) => <AlertView key={printLabels(alert.labels)} alert={alert} />)}
    </div>
  );
}

function AlertView({ alert }: { alert: Alert }) {
  return (
    <div class="message alert">
      <div>
        <span class={`tag ${TAGS[alert.state] ?? ""}`}>{alert.state}</span> <code>{printLabels(alert.labels)}</code>
        {Object.entries(alert.annotations).map(([name, text]) => <div key={name}><span class="muted">{name}: </span>{text}</div>)}
      </div>
      <span class="muted nowrap" title={alert.value}>{short(toNumber(alert.value))}{alert.activeAt && `, active for ${printDuration(Math.round((Date.now() - Date.parse(alert.activeAt)) / 1000) * 1000)}`}</span>
    </div>
  );
}
