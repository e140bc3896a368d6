/** Active alerts, grouped by a label, and the Alertmanagers with their queues. */

import { useState } from "preact/hooks";
import { isTenant, request } from "../../api/client";
import type { Labels } from "../../api/types";
import { setParams, useAddress } from "../../app/router";
import { toNumber } from "../../chart/grid";
import { count, plural, seconds, short } from "../../parts/format";
import { compareLabels, printLabels, quote } from "../../parts/labels";
import { useLoad } from "../../parts/load";
import { useStore } from "../../parts/store";
import { type Column, DataTable, Search, TableFrame } from "../../parts/table";
import { Ago, Name, Page, PageLink, QueryLink, Section, Select, Show } from "../../parts/view";
import { loadOwnMetrics } from "../own_metrics";
import { type ActiveAlert, type AlertGroup, type Group, type Rule, RULES_POLL_MS, activeAlerts, groupAlerts, hasWords, isShown, loadGroups, tagOf } from "./data";
import { Annotations, type StateCount, StateTiles } from "./parts";

const GROUPS_SHOWN = 30;
const ALERTS_SHOWN = 20;
/** Labels by which alerts can be grouped. */
const LABELS_MAX = 20;

export function Alerts() {
  const loaded = useLoad("alerts", (signal) => loadGroups("alert", signal), RULES_POLL_MS);
  const isRestricted = useStore(isTenant);
  return (
    <Page title="Alerts">
      <Show loaded={loaded}>{(groups) => (groups.length === 0 ? <p class="empty">No alerting rules are loaded. List their files under rule_files in the configuration, then reload it.</p> : <AlertList groups={groups} />)}</Show>
      {!isRestricted && <Alertmanagers />}
    </Page>
  );
}

function AlertList({ groups }: { groups: Group[] }) {
  const { params } = useAddress();
  const [state, find, by] = [params.get("state") ?? "", params.get("find") ?? "", params.get("by") ?? "alertname"];
  const rules = groups.flatMap((group) => group.rules);
  const alerts = activeAlerts(groups);
  const inState = (wanted: string) => alerts.filter(({ alert }) => alert.state === wanted).length;
  const rulesIn = (wanted: string) => rules.filter((rule) => isShown(rule, wanted, ""));
  const counts: StateCount[] = [
    ["firing", "Firing alerts", inState("firing")],
    ["pending", "Pending alerts", inState("pending")],
    ["inactive", "Inactive rules", rulesIn("inactive").length],
    ["err", "Failing rules", rulesIn("err").length],
  ];
  const labels = labelsOf(alerts);
  return (
    <>
      <StateTiles counts={counts} state={state} />
      <div class="table-tools">
        <Search value={find} label="Search alerts" onInput={(value) => setParams({ find: value }, true)} />
        {labels.length > 0 && <Select label="Group by" value={by} options={labels.map((label) => [label, label])} onChange={(label) => setParams({ by: label === "alertname" ? undefined : label })} />}
      </div>
      {state === "inactive" || state === "err" ? (
        <RuleList rules={rulesIn(state).filter((rule) => isShown(rule, state, find))} />
      ) : (
        <AlertGroups
          groups={groupAlerts(alerts.filter(({ alert }) => (state === "" || alert.state === state) && hasWords(printLabels(alert.labels) + Object.values(alert.annotations).join(" "), find)), by)}
          by={by}
          isFiltered={state !== "" || find !== ""}
        />
      )}
    </>
  );
}

/** Returns the labels of alerts: `alertname` first, then those of the most alerts. */
function labelsOf(alerts: ActiveAlert[]): string[] {
  const counts = new Map<string, number>();
  for (const { alert } of alerts) for (const name of Object.keys(alert.labels)) counts.set(name, (counts.get(name) ?? 0) + 1);
  counts.delete("alertname");
  const others = [...counts].sort((a, b) => b[1] - a[1]).map(([name]) => name);
  return alerts.length === 0 ? [] : ["alertname", ...others.slice(0, LABELS_MAX)];
}

/** Inactive or failing rules: their names, which open them on the page of rules. */
function RuleList({ rules }: { rules: Rule[] }) {
  const columns: Array<Column<Rule>> = [
    { id: "name", title: "Rule", value: ({ name }) => name, cell: ({ name }) => <PageLink page="rules" params={{ find: name }}>{name}</PageLink>, isName: true },
    { id: "expr", title: "Expression", value: ({ query }) => query, cell: ({ query, lastError }) => <><code>{query}</code>{lastError && <div class="message error">{lastError}</div>}</>, wraps: true },
  ];
  return <DataTable id="r" caption="Rules" columns={columns} rows={rules} rowKey={(rule) => `${rule.name} ${rule.query} ${JSON.stringify(rule.labels)}`} noun="rule" empty="No rule matches." />;
}

function AlertGroups({ groups, by, isFiltered }: { groups: AlertGroup[]; by: string; isFiltered: boolean }) {
  const [shown, setShown] = useState(GROUPS_SHOWN);
  if (groups.length === 0) return <p class="empty">{isFiltered ? "No alert matches." : "No alert is pending or firing."}</p>;
  return (
    <>
      {groups.slice(0, shown).map((group) => <AlertGroupView key={`${by} ${group.value}`} group={group} by={by} />)}
      {groups.length > shown && <button type="button" class="quiet" onClick={() => setShown(shown * 4)}>Show more ({plural(groups.length - shown, "group")} left)</button>}
    </>
  );
}

function AlertGroupView({ group: { value, firing, alerts }, by }: { group: AlertGroup; by: string }) {
  const [shown, setShown] = useState(ALERTS_SHOWN);
  const nPending = alerts.length - firing;
  const { common } = compareLabels(alerts.map(({ alert }) => alert.labels));
  const { common: said } = compareLabels(alerts.map(({ alert }) => alert.annotations));
  // A single alert has its labels in its row.
  const hidden = new Set([by, ...Object.keys(common)]);
  const rules = [...new Map(alerts.map(({ rule }) => [rule.name + rule.query, rule])).values()];
  return (
    <section class="section card">
      <h2>
        {firing > 0 && <span class={tagOf("firing")}>{count(firing)} firing</span>} {nPending > 0 && <span class={tagOf("pending")}>{count(nPending)} pending</span>}{" "}
        {value === "" ? <span class="muted">no {by}</span> : value}
      </h2>
      {Object.keys(common).length > 1 && <p class="wrap"><span class="muted">all: </span><code>{printLabels(common, new Set([by]))}</code></p>}
      <Annotations annotations={said} />
      <TableFrame label={`Alerts of ${value}`}>
        <table class="data aligned">
          <caption class="hidden">Alerts of {value}</caption>
          <thead><tr><th scope="col">State</th><th scope="col">Labels</th><th scope="col" class="number minor">Value</th><th scope="col" class="number">Active since</th></tr></thead>
          <tbody>{alerts.slice(0, shown).map((active) => <AlertRow key={printLabels(active.alert.labels)} active={active} hidden={hidden} said={said} />)}</tbody>
        </table>
      </TableFrame>
      {alerts.length > shown && <button type="button" class="quiet" onClick={() => setShown(shown * 4)}>Show more ({plural(alerts.length - shown, "alert")} left)</button>}
      {rules.length === 1 && <RuleLinks rule={rules[0]!} />}
    </section>
  );
}

function AlertRow({ active: { alert }, hidden, said }: { active: ActiveAlert; hidden: ReadonlySet<string>; said: Labels }) {
  const own = Object.fromEntries(Object.entries(alert.annotations).filter(([name]) => !(name in said)));
  return (
    <tr>
      <td><span class={tagOf(alert.state)}>{alert.state}</span></td>
      <td class="wraps name"><code>{printLabels(alert.labels, hidden)}</code><Annotations annotations={own} /></td>
      <td class="number minor" title={alert.value}>{short(toNumber(alert.value))}</td>
      <td class="number">{alert.activeAt ? <Ago ms={Date.parse(alert.activeAt)} /> : "–"}</td>
    </tr>
  );
}

function RuleLinks({ rule: { name, query } }: { rule: Rule }) {
  return (
    <p class="table-tools">
      <PageLink page="rules" params={{ find: name }}>Rule</PageLink>
      <QueryLink expr={query} range="1d">Graph</QueryLink>
      <QueryLink expr={`ALERTS{alertname=${quote(name)}}`} range="1w">History</QueryLink>
      <code class="muted clip">{query}</code>
    </p>
  );
}

interface Alertmanager {
  url: string;
  queued: number;
  sent: number;
  errors: number;
  dropped: number;
  latencyS?: number;
}

/** Loads the Alertmanagers with their counters since startup. */
async function loadAlertmanagers(signal: AbortSignal) {
  const [{ data }, own] = await Promise.all([
    request<{ activeAlertmanagers: Array<{ url: string }>; droppedAlertmanagers: Array<{ url: string }> }>("alertmanagers", { signal }),
    loadOwnMetrics("prometheus_notifications_.*", signal),
  ]);
  const all = data.activeAlertmanagers.map(({ url }): Alertmanager => {
    const n = (name: string) => own.value(`prometheus_notifications_${name}`, { alertmanager: url });
    const latency = own.histogram("prometheus_notifications_latency_histogram_seconds", { alertmanager: url });
    return { url, queued: n("queue_length"), sent: n("sent_total"), errors: n("errors_total"), dropped: n("dropped_total"), latencyS: latency && latency.count > 0 ? latency.sum / latency.count : undefined };
  });
  return { all, dropped: data.droppedAlertmanagers.length, capacity: own.value("prometheus_notifications_queue_capacity") };
}

function Alertmanagers() {
  const loaded = useLoad("alertmanagers", loadAlertmanagers, RULES_POLL_MS);
  return (
    <Section title="Alertmanagers">
      <Show loaded={loaded}>
        {({ all, dropped, capacity }) => (
          <>
            <AlertmanagerTable all={all} capacity={capacity} />
            {dropped > 0 && <p class="muted">Relabel rules of the configuration drop {plural(dropped, "further Alertmanager")}.</p>}
          </>
        )}
      </Show>
    </Section>
  );
}

function AlertmanagerTable({ all, capacity }: { all: Alertmanager[]; capacity: number }) {
  const bad = (n: number) => <span class={n > 0 ? "tag bad" : ""}>{count(n)}</span>;
  const columns: Array<Column<Alertmanager>> = [
    { id: "url", title: "Alertmanager", value: ({ url }) => url, cell: ({ url }) => <Name text={url} />, isName: true },
    { id: "queue", title: "Queue", hint: `Alerts that wait, of ${count(capacity)}`, value: ({ queued }) => queued, cell: ({ queued }) => `${count(queued)} of ${count(capacity)}`, isNumber: true, bar: true, whole: capacity },
    { id: "sent", title: "Sent", hint: "Alerts sent since startup", value: ({ sent }) => sent, cell: ({ sent }) => count(sent), isNumber: true, isMinor: true },
    { id: "errors", title: "Errors", hint: "Sent alerts affected by errors since startup", value: ({ errors }) => errors, cell: ({ errors }) => bad(errors), isNumber: true },
    { id: "dropped", title: "Dropped", hint: "Alerts dropped because of errors since startup", value: ({ dropped }) => dropped, cell: ({ dropped }) => bad(dropped), isNumber: true },
    { id: "latency", title: "Mean time", hint: "Mean time of a request since startup", value: ({ latencyS }) => latencyS ?? -1, cell: ({ latencyS }) => (latencyS === undefined ? "–" : seconds(latencyS)), isNumber: true, isMinor: true },
  ];
  return <DataTable id="am" caption="Alertmanagers" columns={columns} rows={all} rowKey={({ url }) => url} noun="Alertmanager" empty="No Alertmanager is configured (alerting.alertmanagers): nobody is told of alerts." />;
}
