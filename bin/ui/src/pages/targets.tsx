/** Targets as senders scrape them, seen from the series `up` and those of scrapes: jobs with down targets first. */

import { useState } from "preact/hooks";
import { request } from "../api/client";
import type { Labels, QueryData, VectorElement } from "../api/types";
import { setParams, useAddress } from "../app/router";
import { toNumber } from "../chart/grid";
import { count, plural, seconds } from "../parts/format";
import { metricSelector, printLabels, quote } from "../parts/labels";
import { useLoad } from "../parts/load";
import { type Column, DataTable, Search } from "../parts/table";
import { Ago, Figures, Page, QueryLink, Show } from "../parts/view";

const POLL_MS = 15_000;
/** Targets without a sample for this long are not shown. Those that end with a staleness marker are not shown at all. */
const LOOKBACK = "1h";
/** Age of the last sample from which it is marked: instant queries do not find it any more. */
const OLD_MS = 300_000;
/** Jobs and targets of a job that the page asks for. */
const JOBS_MAX = 500;
const TARGETS_MAX = 500;
/** Jobs that are open at first: those with down targets, or all if there are no more. */
const OPEN_MAX = 5;

/** Evaluates an instant query that also finds series whose last sample is older than the usual five minutes. */
async function vector(query: string, limit: number, signal: AbortSignal): Promise<VectorElement[]> {
  const params = { query, limit, lookback_delta: LOOKBACK };
  const { data } = await request<QueryData>("query", { method: "POST", params, signal });
  return data.resultType === "vector" ? data.result : [];
}

const numberOf = (element?: VectorElement) => toNumber(element?.value?.[1] ?? "NaN");

/** Returns a selector of the targets of a job whose instance contains a text. */
function selectorOf(metric: string, find: string, job?: string): string {
  const matchers = [metricSelector(metric, job === undefined ? {} : { job })];
  if (find === "") return matchers[0]!;
  const pattern = quote(`(?i).*${find.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&")}.*`);
  return job === undefined ? `${metric}{instance=~${pattern}}` : `${metric}{job=${quote(job)}, instance=~${pattern}}`;
}

interface Job {
  job: string;
  targets: number;
  down: number;
  oldestMs: number;
}

/** Numbers of all targets and jobs, of which the page may list a part. */
interface Totals {
  targets: number;
  down: number;
  jobs: number;
}

interface JobList extends Totals {
  listed: Job[];
}

/** Loads the jobs with the most down targets, and the numbers of all. */
async function loadJobs(find: string, signal: AbortSignal): Promise<JobList> {
  const up = selectorOf("up", find);
  const downs = `topk(${JOBS_MAX}, count by (job) (${up} == 0) or 0 * count by (job) (${up}))`;
  const [targets, down, times] = await Promise.all([
    vector(`count by (job) (${up}) and on (job) ${downs}`, JOBS_MAX, signal),
    vector(downs, JOBS_MAX, signal),
    vector(`min by (job) (timestamp(${up})) and on (job) ${downs}`, JOBS_MAX, signal),
  ]);
  const byJob = (elements: VectorElement[]) => new Map(elements.map((element) => [element.metric["job"] ?? "", numberOf(element)]));
  const [downOf, timeOf] = [byJob(down), byJob(times)];
  const listed = [...byJob(targets)]
    .map(([job, n]) => ({ job, targets: n, down: downOf.get(job) ?? 0, oldestMs: (timeOf.get(job) ?? 0) * 1000 }))
    .sort((a, b) => b.down - a.down || (a.job < b.job ? -1 : 1));
  if (listed.length >= JOBS_MAX) return { listed, ...(await loadTotals(up, signal)) };
  const sum = (of: (job: Job) => number) => listed.reduce((total, job) => total + of(job), 0);
  return { listed, jobs: listed.length, targets: sum((job) => job.targets), down: sum((job) => job.down) };
}

async function loadTotals(up: string, signal: AbortSignal): Promise<Totals> {
  const one = async (query: string) => numberOf((await vector(query, 1, signal))[0]);
  const [targets, down, jobs] = await Promise.all([one(`count(${up})`), one(`count(${up} == 0) or vector(0)`), one(`count(count by (job) (${up}))`)]);
  return { targets, down, jobs };
}

export function Targets() {
  const { params } = useAddress();
  const find = params.get("find") ?? "";
  const loaded = useLoad(`targets ${find}`, (signal) => loadJobs(find, signal), POLL_MS);
  return (
    <Page
      title="Targets"
      about={<>Varve does not scrape. These are the targets whose series <code>up</code> it received in the last hour, as the programs that scrape them report.</>}
      controls={<Search value={find} label="Search instances" onInput={(value) => setParams({ find: value }, true)} />}
    >
      <Show loaded={loaded}>{(list) => <Jobs list={list} find={find} />}</Show>
    </Page>
  );
}

function Jobs({ list: { listed, targets, down, jobs }, find }: { list: JobList; find: string }) {
  if (listed.length === 0) {
    return <p class="empty">{find === "" ? "No target: no sender sent a series up in the last hour. Programs that push, such as OpenTelemetry SDKs, have none: see Senders." : "No instance contains this text."}</p>;
  }
  return (
    <>
      <Figures items={[["Targets", count(targets)], ["Down", <span class={down > 0 ? "bad" : ""}>{count(down)}</span>], ["Jobs", count(jobs)]]} />
      {jobs > listed.length && <p class="message info">The list shows {count(listed.length)} of {count(jobs)} jobs, those with the most down targets. {plural(jobs - listed.length, "job is", "jobs are")} not shown: search an instance to find {jobs - listed.length === 1 ? "it" : "them"}.</p>}
      <div class="card">{listed.map((job, i) => <JobView key={`${job.job} ${find}`} job={job} find={find} isOpenAtFirst={i < OPEN_MAX && (job.down > 0 || find !== "" || listed.length <= OPEN_MAX)} />)}</div>
    </>
  );
}

function JobView({ job: { job, targets, down, oldestMs }, find, isOpenAtFirst }: { job: Job; find: string; isOpenAtFirst: boolean }) {
  const [isOpen, setIsOpen] = useState(isOpenAtFirst);
  const isOld = Date.now() - oldestMs > OLD_MS;
  return (
    <details class="rule" open={isOpen} onToggle={(event) => setIsOpen(event.currentTarget.open)}>
      <summary>
        <span class={down > 0 ? "tag bad" : "tag"}>{down > 0 ? `${count(down)} down` : "up"}</span>
        <b class="wrap">{job || "no job"}</b>
        <span>{plural(targets, "target")}</span>
        <span class="muted" title="Age of the oldest last sample">{isOld && <span class="tag warn">last sample <Ago ms={oldestMs} /></span>}</span>
      </summary>
      {isOpen && <JobTargets job={job} targets={targets} find={find} />}
    </details>
  );
}

interface Target {
  labels: Labels;
  key: string;
  isUp: boolean;
  lastMs: number;
  durationS: number;
  samples: number;
}

/** Loads the targets of a job: those that are down first, so that the limit hides others. */
async function loadTargets(job: string, find: string, signal: AbortSignal): Promise<Target[]> {
  const of = (metric: string) => selectorOf(metric, find, job);
  const chosen = `bottomk(${TARGETS_MAX}, ${of("up")})`;
  const [ups, times, durations, samples] = await Promise.all([
    vector(`sort(${chosen})`, TARGETS_MAX, signal),
    vector(`timestamp(${of("up")}) and ${chosen}`, TARGETS_MAX, signal),
    vector(`${of("scrape_duration_seconds")} and ${chosen}`, TARGETS_MAX, signal),
    vector(`${of("scrape_samples_scraped")} and ${chosen}`, TARGETS_MAX, signal),
  ]);
  const byLabels = (elements: VectorElement[]) => new Map(elements.map((element) => [keyOf(element.metric), numberOf(element)]));
  const [time, duration, scraped] = [byLabels(times), byLabels(durations), byLabels(samples)];
  const targets = ups.map((element): Target => {
    const key = keyOf(element.metric);
    return { labels: element.metric, key, isUp: numberOf(element) !== 0, lastMs: (time.get(key) ?? 0) * 1000, durationS: duration.get(key) ?? NaN, samples: scraped.get(key) ?? NaN };
  });
  return targets.sort((a, b) => Number(a.isUp) - Number(b.isUp) || (a.key < b.key ? -1 : 1));
}

const keyOf = (labels: Labels) => printLabels(labels, new Set(["__name__"]));

function JobTargets({ job, targets, find }: { job: string; targets: number; find: string }) {
  const loaded = useLoad(`targets of ${job} ${find}`, (signal) => loadTargets(job, find, signal), POLL_MS);
  const columns: Array<Column<Target>> = [
    { id: "state", title: "State", value: ({ isUp }) => (isUp ? 1 : 0), cell: ({ isUp }) => <span class={isUp ? "tag" : "tag bad"}>{isUp ? "up" : "down"}</span> },
    { id: "instance", title: "Target", value: ({ labels }) => labels["instance"] ?? "", cell: ({ labels, key }) => <><QueryLink expr={printLabels(labels)}><b>{labels["instance"] ?? key}</b></QueryLink> {Object.keys(labels).some((name) => !SHOWN.has(name)) && <code class="muted">{printLabels(labels, SHOWN)}</code>}</>, isName: true },
    { id: "last", title: "Last sample", value: ({ lastMs }) => lastMs, cell: ({ lastMs }) => <span class={Date.now() - lastMs > OLD_MS ? "tag warn" : ""}><Ago ms={lastMs} /></span>, isNumber: true },
    { id: "duration", title: "Scrape", hint: "scrape_duration_seconds", value: ({ durationS }) => durationS, cell: ({ durationS }) => (Number.isNaN(durationS) ? "–" : seconds(durationS)), isNumber: true, isMinor: true },
    { id: "samples", title: "Samples", hint: "scrape_samples_scraped", value: ({ samples }) => samples, cell: ({ samples }) => (Number.isNaN(samples) ? "–" : count(samples)), isNumber: true, isMinor: true },
  ];
  return (
    <Show loaded={loaded}>
      {(rows) => (
        <DataTable
          id="targets"
          caption={`Targets of ${job}`}
          columns={columns}
          rows={rows}
          rowKey={({ key }) => key}
          noun="target"
          controls={targets > rows.length && <></>}
          extent={`${count(rows.length)} of ${plural(targets, "target")}, down ones first`}
          isShort
          isAligned
          empty="The targets are gone."
        />
      )}
    </Show>
  );
}

/** Labels that a row names otherwise. */
const SHOWN: ReadonlySet<string> = new Set(["__name__", "job", "instance"]);
