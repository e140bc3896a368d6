/** The overview: is the server healthy, what fires, and the figures of writes, queries, memory and disk. */

import type { ComponentChildren } from "preact";
import { request } from "../../api/client";
import type { BuildInfo, RuntimeInfo } from "../../api/types";
import { pageUrl } from "../../app/router";
import { bytes, count, percent, plural, seconds, short } from "../../parts/format";
import { useLoad } from "../../parts/load";
import { ago } from "../../parts/time";
import { Ago, Page, PageLink, Section, Show } from "../../parts/view";
import { type Group, RULES_POLL_MS, activeAlerts, groupAlerts, loadGroups } from "../rules/data";
import { type Sender, nameOf } from "../senders_data";
import { FORECAST_BASIS_MIN_S, type Forecast, type History, type Problem, type State, loadHistory, loadState } from "./data";
import { Sparkline } from "./sparkline";

const POLL_MS = 5000;
const HISTORY_POLL_MS = 60_000;
/** A reject of this age counts as one of now. */
const RECENT_MS = 600_000;
const HOUR_S = 3600;
const DAY_S = 24 * HOUR_S;
/** Names of alerts and of senders that the overview lists. */
const LISTED_MAX = 8;

export function Overview() {
  const state = useLoad("overview", loadState, POLL_MS);
  const groups = useLoad("overview rules", (signal) => loadGroups("", signal), RULES_POLL_MS);
  const history = useLoad("overview history", loadHistory, HISTORY_POLL_MS);
  return (
    <Page title="Overview" controls={<><PageLink page="query">Query</PageLink> <kbd>/</kbd></>} about={<About />}>
      <Show loaded={state}>{({ problems }) => state.error === undefined && <Health problems={[...problems, ...problemsOf(groups.data, history.data)]} areRulesKnown={groups.data !== undefined} />}</Show>
      <Section title="Firing alerts"><Show loaded={groups}>{(all) => <Firing groups={all} />}</Show></Section>
      <Show loaded={state}>{(now) => <Tiles state={now} history={history.data} />}</Show>
      {state.data?.senders.length === 0 && <NoSenders />}
      <Show loaded={history}>{(past) => (past.instance === undefined ? <NoHistory isOff={past.isOff} /> : null)}</Show>
    </Page>
  );
}

function About() {
  const { data } = useLoad("overview server", async (signal) => {
    const [build, runtime] = await Promise.all([request<BuildInfo>("status/buildinfo", { signal }), request<RuntimeInfo>("status/runtimeinfo", { signal })]);
    return { revision: build.data.revision, ...runtime.data };
  });
  if (!data) return null;
  return <>{data.revision} on {data.hostname}, started <Ago ms={Date.parse(data.startTime)} /></>;
}

/** Returns what rules and their alerts say about the health of the server. */
function problemsOf(groups: Group[] = [], { droppedAlerts = 0 }: Partial<History> = {}): Problem[] {
  const failing = groups.flatMap(({ rules }) => rules).filter(({ health }) => health === "err").length;
  const problems: Problem[] = [];
  if (failing > 0) problems.push({ text: failing === 1 ? "1 rule fails." : `${count(failing)} rules fail.`, page: "rules", params: { state: "err" } });
  if (droppedAlerts > 0) problems.push({ text: "An Alertmanager does not take alerts: some were dropped in the last ten minutes.", page: "alerts" });
  return problems;
}

function Health({ problems, areRulesKnown }: { problems: Problem[]; areRulesKnown: boolean }) {
  if (problems.length === 0) {
    return (
      <p class="message good" role="status">
        <span><b>Healthy</b> Queries are answered, writes are stored, the log is replayed{areRulesKnown && ", no rule fails"}. There are no notifications.</span>
      </p>
    );
  }
  return (
    <div class="message error" role="status">
      <div>
        <b>{plural(problems.length, "problem")}</b>
        <ul class="plain">{problems.map(({ text, page, params }) => <li key={text}>{text} <PageLink page={page} params={params}>Details</PageLink></li>)}</ul>
      </div>
    </div>
  );
}

function Firing({ groups }: { groups: Group[] }) {
  const alerts = activeAlerts(groups);
  const names = groupAlerts(alerts, "alertname").filter(({ firing }) => firing > 0);
  const nPending = alerts.filter(({ alert }) => alert.state === "pending").length;
  const nRules = groups.flatMap(({ rules }) => rules).filter(({ type }) => type === "alerting").length;
  const rest = <PageLink page="alerts">{nPending > 0 ? plural(nPending, "pending alert") : "Alerts"}</PageLink>;
  if (nRules === 0) return <p class="empty">No alerting rules are loaded. List rule files under rule_files in the configuration.</p>;
  if (names.length === 0) return <p class="card">No alert of {plural(nRules, "alerting rule")} fires. {rest}</p>;
  return (
    <ul class="plain card firing">
      {names.slice(0, LISTED_MAX).map(({ value, firing, alerts: own }) => {
        const severities = [...new Set(own.map(({ alert }) => alert.labels["severity"]).filter(Boolean))].join(", ");
        const since = own.filter(({ alert }) => alert.state === "firing").reduce((first, { alert }) => Math.min(first, Date.parse(alert.activeAt ?? "") || first), Infinity);
        return (
          <li key={value}>
            <span class="tag bad">{count(firing)}</span> <PageLink page="alerts" params={{ find: value }}><b class="wrap">{value}</b></PageLink>{" "}
            {severities !== "" && <span class="tag">{severities}</span>} <span class="muted">{Number.isFinite(since) && <>first active <Ago ms={since} /></>}</span>
          </li>
        );
      })}
      <li>{names.length > LISTED_MAX && <><PageLink page="alerts">{names.length - LISTED_MAX} more</PageLink> · </>}{rest}</li>
    </ul>
  );
}

interface TileProps {
  /** Identifies the line of the tile. */
  id: string;
  title: string;
  page: string;
  value: ComponentChildren;
  note?: ComponentChildren;
  isBad?: boolean;
  /** What the line shows, if that is not the figure. */
  shown?: string;
  format?: (value: number) => string;
  history?: History;
}

function Tile({ id, title, page, value, note, isBad, shown = title, format, history }: TileProps) {
  const line = history?.lines.get(id);
  return (
    <a class={isBad ? "tile bad" : "tile"} data-page href={pageUrl(page)}>
      <span class="tile-title">{title}</span>
      <b class="tile-value">{value}</b>
      <span class="muted wrap">{note}</span>
      {line && <Sparkline line={line} title={shown} format={format} />}
    </a>
  );
}

function Tiles({ state: { own, senders, late, rejects, teams }, history }: { state: State; history?: History }) {
  const rate = senders.reduce((sum, { samplesPerSecond }) => sum + samplesPerSecond, 0);
  const [used, limit] = [own.value("varve_memory_used_bytes"), own.value("varve_memory_limit_bytes")];
  const [blocks, log] = [own.value("prometheus_tsdb_storage_blocks_bytes"), own.value("prometheus_tsdb_wal_storage_size_bytes")];
  const [free, volume] = [own.value("varve_volume_free_bytes"), own.value("varve_volume_size_bytes")];
  const { activeSeries } = teams.all.maximum;
  const [last] = rejects;
  const shared = { history };
  return (
    <div class="tiles">
      <Tile id="samples" title="Samples/s" page="senders" value={short(rate)} note={`of ${plural(senders.length, "sender")}`} {...shared} />
      <Tile id="series" title="Series in memory" page="cardinality" value={count(own.value("prometheus_tsdb_head_series"))} note={activeSeries === null ? "" : `at most ${count(activeSeries)} active (ingest.budget)`} {...shared} />
      <Tile id="queries" title="Queries now" page="running" value={count(own.value("prometheus_engine_queries"))} note={`at most ${count(own.value("prometheus_engine_queries_concurrent_max"))} at a time; the line shows queries per second`} shown="Queries per second" {...shared} />
      <Tile id="rejects" title="Rejects since startup" page="teams" value={count(rejects.reduce((sum, one) => sum + (one.count || one.requests), 0))} note={last ? `last: ${last.reason}, ${ago(last.lastMs)}` : "nothing was rejected"} isBad={last !== undefined && Date.now() - last.lastMs < RECENT_MS} shown="Rejects per second" {...shared} />
      <Tile id="memory" title="Memory in use" page="store" value={bytes(used)} note={limit > 0 ? `${percent(used / limit)} of ${bytes(limit)}` : ""} format={bytes} {...shared} />
      <Tile id="disk" title="Disk" page="store" value={bytes(blocks + log)} note={<DiskNote free={free} volume={volume} forecast={history?.forecast} />} isBad={volume > 0 && isFilling(free, volume, history?.forecast)} format={bytes} {...shared} />
      <Tile id="senders" title="Late senders" page="senders" value={count(late.length)} note={late.length === 0 ? (senders.length === 0 ? "nobody wrote since startup" : "none is silent for 2 min or 5 min behind") : namesOf(late)} isBad={late.length > 0} {...shared} />
    </div>
  );
}

/** Returns the names of senders. One that writes to two paths is named once. */
function namesOf(senders: Sender[]): string {
  const names = [...new Set(senders.map((sender) => `${nameOf(sender)} ${sender.userAgent}`.trim()))];
  return `${names.slice(0, LISTED_MAX).join(", ")}${names.length > LISTED_MAX ? ` and ${names.length - LISTED_MAX} more` : ""}`;
}

/** Free space of the volume below which Varve's alert VarveVolumeFull fires. */
const FREE_SHARE_MIN = 0.03;
/** A forecast from less time than this is shown, but is no alarm: Varve's alert VarveVolumeFillsUp waits as long. */
const ALARM_BASIS_MIN_S = HOUR_S;

/** Returns `true` if the volume is almost full, or full within a day. */
function isFilling(free: number, volume: number, forecast?: Forecast): boolean {
  return free / volume < FREE_SHARE_MIN || (forecast !== undefined && forecast.basisS >= ALARM_BASIS_MIN_S && (forecast.fullInS ?? Infinity) < DAY_S);
}

function DiskNote({ free, volume, forecast }: { free: number; volume: number; forecast?: Forecast }) {
  if (volume === 0) return <>the free space of the volume is not known</>;
  return <>{bytes(free)} ({percent(free / volume)}) free; {forecastText(forecast)}</>;
}

/** Returns the forecast in words, with the time that it is derived from. */
export function forecastText(forecast?: Forecast): string {
  if (!forecast || forecast.basisS < FORECAST_BASIS_MIN_S) return "a forecast needs 10 min of the server's own metrics";
  const basis = `at the rate of the last ${seconds(Math.round(forecast.basisS / 60) * 60)}`;
  if (forecast.fullInS === undefined || forecast.fullInS > 3650 * DAY_S) return `does not fill ${basis}`;
  const { fullInS } = forecast;
  // A forecast has no more digits than its basis.
  const time = fullInS < 2 * HOUR_S ? plural(Math.round(fullInS / 60), "minute") : fullInS < 2 * DAY_S ? plural(Math.round(fullInS / HOUR_S), "hour") : plural(Math.round(fullInS / DAY_S), "day");
  return `full in ${time} ${basis}`;
}

/** Says how to write to a server to which nobody has written. */
function NoSenders() {
  const url = (path: string) => new URL(path, location.href).href;
  return (
    <p class="message info">
      <span>
        Nobody has written since startup. Prometheus and other remote-write senders write to <code>{url("api/v1/write")}</code>, OpenTelemetry to <code>{url("api/v1/otlp/v1/metrics")}</code>. <PageLink page="senders">Senders</PageLink> shows who writes.
      </span>
    </p>
  );
}

/** Says why there are no graphs. */
function NoHistory({ isOff }: { isOff?: boolean }) {
  return (
    <p class="message info">
      <span>
        Graphs and the forecast of the disk are missing: {isOff ? "the server does not store its own metrics, because --self-scrape-interval is 0. Figures are those of now." : `the server has not stored its own metrics yet. It does so every --self-scrape-interval.`}
      </span>
    </p>
  );
}
