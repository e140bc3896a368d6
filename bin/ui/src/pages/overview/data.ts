/** What the overview shows: problems, figures of now, and the server's own metrics of the last hour. */

import { fetchFromServer, request } from "../../api/client";
import type { MatrixElement, QueryData, Reject, Teams } from "../../api/types";
import { readProgress } from "../../app/replay";
import { metricSelector } from "../../parts/labels";
import { toNumber } from "../../chart/grid";
import { type OwnMetrics, loadInstance, loadOwnMetrics } from "../own_metrics";
import { type Sender, isLate } from "../senders_data";

/** A finding of the health check, and the page that shows more. */
export interface Problem {
  text: string;
  page: string;
  params?: Record<string, string>;
}

export interface State {
  problems: Problem[];
  own: OwnMetrics;
  senders: Sender[];
  late: Sender[];
  rejects: Reject[];
  teams: Teams;
}

/** The notification of a replay, of which the page shows the progress instead. */
const REPLAYING = /replaying the write-ahead log/;

/** Loads the figures of now. They do not depend on the self-scrape. */
export async function loadState(signal: AbortSignal): Promise<State> {
  const get = async <T>(path: string) => (await request<T>(path, { signal })).data;
  const [notifications, own, { senders }, { rejects }, teams] = await Promise.all([
    get<Array<{ text: string; active: boolean }>>("notifications"),
    loadOwnMetrics("(varve_(tsdb|memory|volume)|prometheus_(tsdb|engine))_.*", signal),
    get<{ senders: Sender[] }>("status/senders"),
    get<{ rejects: Reject[] }>("status/rejects"),
    get<Teams>("status/teams"),
  ]);
  const active = notifications.filter(({ active, text }) => active && !REPLAYING.test(text));
  const problems = [...active.map(({ text }) => ({ text, page: "store" })), ...(await whatIsNotReady(active.some(({ text }) => text.startsWith("Writes are rejected")), signal))];
  const now = Date.now();
  return { problems, own, senders, late: senders.filter((sender) => isLate(sender, now)), rejects, teams };
}

/** Checks that the store takes writes, which a notification says a few seconds later, and has replayed its log. */
async function whatIsNotReady(isSaid: boolean, signal: AbortSignal): Promise<Problem[]> {
  const [response, replay] = await Promise.all([fetchFromServer("-/ready", { signal }), readProgress()]);
  const [first = "", ...reasons] = (await response.text()).trim().split("\n");
  const problems: Problem[] = [];
  if (!isSaid && /not for writes/.test(first)) problems.push({ text: `${first} ${reasons.join(" ")}`, page: "store" });
  if (replay && replay.state !== "done") problems.push({ text: `The server replays its log: ${replay.current} of ${replay.max} files.`, page: "store" });
  return problems;
}

/** Own metrics of the last hour: a line for each tile, and the forecast of the disk. */
export interface History {
  /** Undefined if the server has stored none of its own metrics for an hour. */
  instance?: string;
  lines: Map<string, Line>;
  forecast?: Forecast;
  /** Alerts that an Alertmanager did not take in the last ten minutes. */
  droppedAlerts?: number;
  /** True if the self-scrape is off. Known only without `instance`. */
  isOff?: boolean;
}
export interface Line {
  expr: string;
  startMs: number;
  endMs: number;
  points: Array<[timeMs: number, value: number]>;
}

const RANGE_S = 3600;
const STEP_S = 15;

/** Expressions of the tiles, of a selector of the own metric with the name. */
const LINES: Array<[tile: string, expr: (own: (metric: string, labels?: Record<string, string>) => string) => string]> = [
  ["samples", (own) => `rate(${own("varve_ingest_samples_stored_total")}[5m])`],
  ["series", (own) => own("prometheus_tsdb_head_series")],
  ["queries", (own) => `rate(${own("prometheus_engine_query_duration_seconds_count", { slice: "inner_eval" })}[5m])`],
  ["rejects", (own) => `sum(rate(${own("varve_ingest_rejected_total")}[5m]))`],
  ["memory", (own) => own("varve_memory_used_bytes")],
  ["disk", (own) => `${own("prometheus_tsdb_storage_blocks_bytes")} + ${own("prometheus_tsdb_wal_storage_size_bytes")}`],
];

/** Loads the graphs and the forecast. */
export async function loadHistory(signal: AbortSignal): Promise<History> {
  const instance = await loadInstance(signal);
  if (instance === undefined) {
    const { data } = await request<Record<string, string>>("status/flags", { signal });
    return { lines: new Map(), isOff: /^0+[a-z]*$/.test(data["self-scrape-interval"] ?? "") };
  }
  const own = (metric: string, labels = {}) => metricSelector(metric, { job: "varve", instance, ...labels });
  const end = Math.floor(Date.now() / 15_000) * 15;
  const start = end - RANGE_S;
  const load = async (tile: string, expr: string): Promise<[string, Line]> => {
    const params = { query: expr, start, end, step: STEP_S, limit: 1 };
    const { data } = await request<QueryData>("query_range", { method: "POST", params, signal });
    const [first] = data.resultType === "matrix" ? (data.result as MatrixElement[]) : [];
    const points = (first?.values ?? []).map(([time, value]): [number, number] => [time * 1000, toNumber(value)]);
    return [tile, { expr, startMs: start * 1000, endMs: end * 1000, points }];
  };
  const dropped = `sum(increase(${own("prometheus_notifications_dropped_total")}[10m]))`;
  const [forecast, droppedAlerts, ...lines] = await Promise.all([loadForecast(own("varve_volume_free_bytes"), signal), ask(dropped, signal), ...LINES.map(([tile, expr]) => load(tile, expr(own)))]);
  return { instance, lines: new Map(lines), forecast, droppedAlerts };
}

/** Returns the value of an instant query of one series, NaN if it has none. */
async function ask(query: string, signal: AbortSignal): Promise<number> {
  const { data } = await request<QueryData>("query", { method: "POST", params: { query, limit: 1 }, signal });
  return data.resultType === "vector" ? toNumber(data.result[0]?.value?.[1] ?? "NaN") : NaN;
}

/** When the volume is full if its free space continues to change as it did in the last hours. */
export interface Forecast {
  /** Seconds until nothing is free; undefined if the free space does not shrink. */
  fullInS?: number;
  /** The time over which the change was measured. */
  basisS: number;
}

const FORECAST_RANGE = "6h";
/** A forecast from less time than this says nothing. */
export const FORECAST_BASIS_MIN_S = 600;

async function loadForecast(free: string, signal: AbortSignal): Promise<Forecast | undefined> {
  const [basisS, fullInS] = await Promise.all([
    ask(`time() - min_over_time(timestamp(${free})[${FORECAST_RANGE}:1m])`, signal),
    ask(`${free} / -deriv(${free}[${FORECAST_RANGE}])`, signal),
  ]);
  return Number.isFinite(basisS) ? { basisS, fullInS: fullInS >= 0 && Number.isFinite(fullInS) ? fullInS : undefined } : undefined;
}
