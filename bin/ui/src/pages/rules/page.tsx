/** Rules: groups, state, evaluations, active alerts, and the history of an alert. Firing rules come first. */

import { useState } from "preact/hooks";
import { isTenant } from "../../api/client";
import { setParams, useAddress } from "../../app/router";
import { printLabels, quote } from "../../parts/labels";
import { toNumber } from "../../chart/grid";
import { percent, plural, seconds, short } from "../../parts/format";
import { useLoad } from "../../parts/load";
import { Search } from "../../parts/table";
import { printDuration } from "../../parts/time";
import { Ago, Copied, Page, PageLink, QueryLink, Show } from "../../parts/view";
import { type Alert, type Group, type Rule, RULES_POLL_MS, isShown, loadGroups, stateOf, tagOf, urgency } from "./data";
import { AlertQuestions } from "./explain";
import { Annotations, type StateCount, StateTiles } from "./parts";

/** The filters, in the order of the tiles. */
const FILTERS: Array<[string, string]> = [["firing", "Firing"], ["pending", "Pending"], ["inactive", "Inactive"], ["err", "Failing"], ["recording", "Recording"]];

export function Rules() {
  const loaded = useLoad("rules", (signal) => loadGroups("", signal), RULES_POLL_MS);
  return (
    <Page title="Rules">
      <Show loaded={loaded}>{(groups) => (groups.length === 0 ? <p class="empty">No rules are loaded. Rule groups that this server evaluates appear here: list their files under rule_files in the configuration, then reload it.</p> : <Groups groups={groups} />)}</Show>
    </Page>
  );
}

/** Returns a key that is lower for a more urgent rule. */
const urgencyOf = (rule: Rule) => urgency(stateOf(rule));

/** Returns the groups with their matching rules, the most urgent ones first, else in the order of the files. */
export function matching(groups: Group[], state: string, find: string): Array<{ group: Group; rules: Rule[] }> {
  return groups
    .map((group) => ({ group, rules: group.rules.filter((rule) => isShown(rule, state, find)).sort((a, b) => urgencyOf(a) - urgencyOf(b)) }))
    .filter(({ rules }) => rules.length > 0)
    .sort((a, b) => urgencyOf(a.rules[0]!) - urgencyOf(b.rules[0]!));
}

function Groups({ groups }: { groups: Group[] }) {
  const { params } = useAddress();
  const [state, find] = [params.get("state") ?? "", params.get("find") ?? ""];
  const all = groups.flatMap(({ rules }) => rules);
  const counts = FILTERS.map(([key, title]): StateCount => [key, title, all.filter((rule) => isShown(rule, key, "")).length]);
  const shown = matching(groups, state, find);
  const nShown = shown.reduce((sum, { rules }) => sum + rules.length, 0);
  return (
    <>
      <StateTiles counts={counts} state={state} />
      <div class="table-tools">
        <Search value={find} label="Search rules" onInput={(value) => setParams({ find: value }, true)} />
        <span class="muted" role="status">
          {nShown < all.length && `${nShown} of `}{plural(all.length, "rule")} in {plural(groups.length, "group")}
        </span>
      </div>
      {shown.length === 0 && <p class="empty">No rule matches.</p>}
      {shown.map(({ group, rules }) => <GroupView key={group.file + group.name} group={group} rules={rules} />)}
    </>
  );
}

function GroupView({ group, rules }: { group: Group; rules: Rule[] }) {
  // A share is one of the whole group, also if the filter hides most of it.
  const total = group.rules.reduce((sum, { evaluationTime }) => sum + evaluationTime, 0);
  return (
    <section class="section card">
      <h2>{group.name}</h2>
      <p class="about">
        {group.file} · every {printDuration(group.interval * 1000)} · evaluated <Ago ms={Date.parse(group.lastEvaluation)} /> in {seconds(group.evaluationTime)}
      </p>
      <div class="section">
        {rules.map((rule) => <RuleView key={group.rules.indexOf(rule)} group={group} rule={rule} share={total > 0 ? rule.evaluationTime / total : 0} />)}
      </div>
    </section>
  );
}

function RuleView({ group, rule, share }: { group: Group; rule: Rule; share: number }) {
  const [isOpen, setIsOpen] = useState(rule.state === "firing");
  const state = stateOf(rule);
  return (
    <details class="rule" open={isOpen} onToggle={(event) => setIsOpen(event.currentTarget.open)}>
      <summary>
        <span class={tagOf(state)}>{state === "err" ? "error" : state}</span>
        {state !== "err" && rule.health === "err" && <span class={tagOf("err")}>error</span>}
        <b class="wrap">{rule.name}</b>
        {rule.alerts && rule.alerts.length > 0 && <span>{plural(rule.alerts.length, "alert")}</span>}
        {!isOpen && <code class="muted clip">{rule.query}</code>}
        <span class="muted" title="Time of the last evaluation, and its share of the group">{seconds(rule.evaluationTime)}{share > 0.25 && ` (${percent(share)} of the group)`}</span>
      </summary>
      {isOpen && <RuleBody group={group} rule={rule} />}
    </details>
  );
}

/** Alerts of a rule that this page shows. The page of alerts has the others. */
const ALERTS_SHOWN = 20;

function RuleBody({ group, rule }: { group: Group; rule: Rule }) {
  const alerts = [...(rule.alerts ?? [])].sort((a, b) => urgency(a.state) - urgency(b.state));
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
      <Annotations annotations={rule.annotations ?? {}} />
      {alerts.slice(0, ALERTS_SHOWN).map((alert) => <AlertView key={printLabels(alert.labels)} alert={alert} />)}
      {alerts.length > ALERTS_SHOWN && <p><PageLink page="alerts" params={{ find: rule.name }}>All {plural(alerts.length, "alert")}</PageLink></p>}
    </div>
  );
}

function AlertView({ alert }: { alert: Alert }) {
  return (
    <div class="message alert">
      <div>
        <span class={tagOf(alert.state)}>{alert.state}</span> <code>{printLabels(alert.labels)}</code>
        <Annotations annotations={alert.annotations} />
      </div>
      <span class="muted nowrap" title={alert.value}>{short(toNumber(alert.value))}{alert.activeAt && `, active for ${printDuration(Math.round((Date.now() - Date.parse(alert.activeAt)) / 1000) * 1000)}`}</span>
    </div>
  );
}
