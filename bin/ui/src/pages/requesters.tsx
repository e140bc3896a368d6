/** The dashboards, rules and programs that used a metric. */

import type { QueryRequester, Requester, UsageEntry } from "../api/types";
import { plural } from "../parts/format";
import { Ago } from "../parts/view";

/** Returns the name of a requester: its rule or dashboard if the request names one, else its program. */
export function nameOf({ userAgent, dashboard, panel, rule }: Pick<Requester, "userAgent" | "dashboard" | "panel" | "rule">): string {
  if (rule !== "") return `rule ${rule}`;
  if (dashboard !== "") return `dashboard ${dashboard}${panel === "" ? "" : `, panel ${panel}`}`;
  const browser = /(Firefox|Edg|OPR|Chrome|Safari)\//.exec(userAgent)?.[1];
  if (browser && userAgent.startsWith("Mozilla/")) return `this page, in ${browser === "Edg" ? "Edge" : browser === "OPR" ? "Opera" : browser}`;
  return userAgent || "unknown";
}

/** Returns the user, the user of Grafana, and the rule, dashboard or program of a query. */
export function requesterOf(requester: QueryRequester): string {
  const { user, grafanaUser, grafanaRule } = requester;
  return [user, grafanaUser && `Grafana user ${grafanaUser}`, nameOf({ ...requester, rule: grafanaRule })].filter(Boolean).join(" · ");
}

/** Hint of columns of last uses. */
export const LAST_USED_HINT = "The latest query in the usage record";

export function NotUsed() {
  return <span class="muted">not used</span>;
}

/** The last use in short, with all requesters as a hint. */
export function LastUse({ usage }: { usage?: UsageEntry }) {
  if (!usage) return <NotUsed />;
  const [first, ...others] = usage.requesters;
  const names = usage.requesters.map(nameOf).join("\n");
  return (
    <span title={names}>
      <Ago ms={usage.lastMs} />
      {first && <span class="muted"> {nameOf(first)}{others.length > 0 && ` and ${others.length} more`}</span>}
    </span>
  );
}

/** All requesters of a metric, the most recent first. */
export function Requesters({ usage }: { usage?: UsageEntry }) {
  if (!usage) return <p class="muted">Nothing used this metric since the usage record began.</p>;
  const labels = [...new Set([...usage.matchedLabels, ...usage.groupedLabels])].sort();
  return (
    <>
      <ul class="plain">
        {usage.requesters.map((requester) => (
          <li key={JSON.stringify(requester)}>
            {nameOf(requester)} <span class="muted">{plural(requester.queries, "query", "queries")}, last </span><Ago ms={requester.lastMs} />
          </li>
        ))}
      </ul>
      <p class="muted">
        {usage.allLabels ? "Results contain all labels." : labels.length > 0 ? `Queries need the labels ${labels.join(", ")}.` : "Queries need no labels."}
      </p>
    </>
  );
}
