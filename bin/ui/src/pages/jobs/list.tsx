/** The list of jobs: one row for each job, those that need attention first. */

import type { ComponentChildren } from "preact";
import { setParams, useAddress } from "../../app/router";
import { count, percent } from "../../parts/format";
import { useLoad } from "../../parts/load";
import { type Column, DataTable } from "../../parts/table";
import { Name, PageLink, Select, Show } from "../../parts/view";
import { dateTime, printDuration } from "../../parts/time";
import type { AlertCounts } from "./alerts";
import { JOBS_MAX, type Job, type JobList as Jobs, PHASES, PHASE_HINTS, type Phase, gpusOf, loadJobs } from "./list_data";

const POLL_MS = 15_000;
/** The filter for jobs with firing alerts. Others are states. */
const FIRING = "firing";
/** States that are marked if a job is in one of them. */
const BAD: ReadonlySet<string> = new Set([FIRING, "hung"]);
const PHASE_TAGS: Partial<Record<Phase, string>> = { hung: "bad", "partly scheduled": "warn", "not ready": "warn", waiting: "warn" };

export function JobList() {
  const loaded = useLoad("jobs", loadJobs, POLL_MS);
  return <Show loaded={loaded}>{(list) => <Listed list={list} />}</Show>;
}

function Listed({ list: { jobs, total } }: { list: Jobs }) {
  const { params } = useAddress();
  const [state, team] = [params.get("state") ?? "", params.get("team") ?? ""];
  const withGpus = jobs.filter((job) => gpusOf(job) > 0);
  // Workloads without GPUs are Jobs and StatefulSets, too. They are shown if nothing else is.
  const hasAll = withGpus.length === 0 || params.get("all") === "1";
  const listed = hasAll ? jobs : withGpus;
  const teams = [...new Set(listed.map((job) => job.team))].sort();
  const ofTeam = team === "" ? listed : listed.filter((job) => job.team === team);
  const shown = ofTeam.filter((job) => isIn(job, state));
  const extent = total === undefined ? undefined : `the ${count(JOBS_MAX)} jobs with the most GPUs of ${count(total)}`;
  return (
    <>
      <div class="figures" role="group" aria-label="State">
        {[FIRING, ...PHASES].map((key) => <StateTile key={key} state={key} n={ofTeam.filter((job) => isIn(job, key)).length} isPressed={state === key} />)}
      </div>
      <DataTable
        id="j"
        caption="Jobs"
        columns={COLUMNS}
        rows={shown}
        rowKey={({ id }) => id}
        text={({ id, team: of, phase, alerts }) => `${id} ${of} ${phase} ${alerts.names.join(" ")}`}
        noun="job"
        extent={extent}
        empty={state !== "" || team !== "" ? "No job matches." : "No training job runs."}
        controls={<Filters teams={teams} team={team} hasAll={hasAll} nWithoutGpus={withGpus.length === 0 ? 0 : jobs.length - withGpus.length} />}
      />
      {shown.length === 0 && (state !== "" || team !== "") && <p><PageLink page="jobs">All jobs</PageLink></p>}
    </>
  );
}

function isIn({ phase, alerts }: Job, state: string): boolean {
  return state === "" || (state === FIRING ? alerts.firing > 0 : phase === state);
}

function StateTile({ state, n, isPressed }: { state: string; n: number; isPressed: boolean }) {
  const title = state === FIRING ? "With firing alerts" : state.charAt(0).toUpperCase() + state.slice(1);
  const hint = state === FIRING ? "Jobs that alerts with their job_id name" : PHASE_HINTS[state as Phase];
  return (
    <button type="button" title={hint} aria-pressed={isPressed} class={n > 0 && BAD.has(state) ? "bad" : ""} onClick={() => setParams({ state: isPressed ? undefined : state })}>
      {title} <b>{count(n)}</b>
    </button>
  );
}

function Filters({ teams, team, hasAll, nWithoutGpus }: { teams: string[]; team: string; hasAll: boolean; nWithoutGpus: number }) {
  return (
    <>
      {(teams.length > 1 || team !== "") && <Select label="Team" value={team} options={[["", "All"], ...teams.filter(Boolean).map((name): [string, string] => [name, name])]} onChange={(value) => setParams({ team: value })} />}
      {nWithoutGpus > 0 && (
        <label class="field">
          <input type="checkbox" checked={hasAll} onChange={(event) => setParams({ all: event.currentTarget.checked ? "1" : undefined })} />
          <span>Also {count(nWithoutGpus)} without GPUs</span>
        </label>
      )}
    </>
  );
}

const COLUMNS: Array<Column<Job>> = [
  { id: "job", title: "Job", value: ({ id }) => id, cell: ({ id }) => <PageLink page="jobs" params={{ job: id }}><Name text={id} /></PageLink>, isName: true },
  { id: "state", title: "State", value: ({ phase }) => PHASES.indexOf(phase), cell: ({ phase }) => <PhaseTag phase={phase} /> },
  { id: "alerts", title: "Alerts", hint: "Firing alerts with the job_id; pending ones in parentheses", value: ({ alerts }) => alerts.firing * 1000 + alerts.pending, cell: ({ id, alerts }) => <AlertLink find={id} alerts={alerts} />, isNumber: true },
  { id: "team", title: "Team", value: ({ team }) => team, isMinor: true, wraps: true },
  { id: "gpus", title: "GPUs", hint: "GPUs that the job has, of those that it wants", value: gpusOf, cell: ({ gpus }) => ofWanted(gpus.allocated, gpus.wanted), isNumber: true },
  { id: "nodes", title: "Nodes", hint: "Nodes with GPUs of the job", value: ({ nodes }) => nodes, cell: ({ nodes }) => count(nodes), isNumber: true, isMinor: true },
  { id: "pods", title: "Ready pods", value: ({ pods }) => pods.ready, cell: ({ pods }) => ofWanted(pods.ready, pods.wanted), isNumber: true, isMinor: true },
  { id: "age", title: "Age", hint: "Since the oldest of its pods was created", value: ({ startMs }) => -(startMs ?? Infinity), cell: ({ startMs }) => <Age startMs={startMs} />, isNumber: true, isMinor: true },
  { id: "utilization", title: "Utilization", hint: "Share of the GPUs of the job that compute", value: ({ utilization }) => utilization ?? -1, cell: ({ utilization }) => share(utilization), isNumber: true, bar: true, whole: 1, isMinor: true },
  { id: "tensor", title: "Tensor activity", hint: "Share of the time in which the tensor cores compute, mean of the GPUs", value: ({ tensorActive }) => tensorActive ?? -1, cell: ({ tensorActive }) => share(tensorActive), isNumber: true, bar: true, whole: 1, isMinor: true },
];

export function PhaseTag({ phase }: { phase: Phase }) {
  return <span class={`tag ${PHASE_TAGS[phase] ?? ""}`} title={PHASE_HINTS[phase]}>{phase}</span>;
}

/** The number of alerts, which opens them. */
export function AlertLink({ find, alerts: { firing, pending, names } }: { find: string; alerts: AlertCounts }): ComponentChildren {
  if (firing === 0 && pending === 0) return <span class="muted">0</span>;
  return (
    <PageLink page="alerts" params={{ find }} title={names.join(", ")}>
      {firing > 0 && <span class="tag bad">{count(firing)}</span>}
      {pending > 0 && (firing > 0 ? ` (${count(pending)} pending)` : `${count(pending)} pending`)}
    </PageLink>
  );
}

/** Prints a number of those that are wanted. Jobs without pods want no number. */
export function ofWanted(n: number, wanted: number): string {
  return n === wanted || wanted === 0 ? count(n) : `${count(n)} of ${count(wanted)}`;
}

export function share(value: number | undefined): string {
  return value === undefined ? "–" : percent(value);
}

const [MINUTE_MS, HOUR_MS, DAY_MS] = [60_000, 3_600_000, 86_400_000];

export function Age({ startMs }: { startMs?: number }): ComponentChildren {
  if (startMs === undefined) return "–";
  return <time dateTime={new Date(startMs).toISOString()} title={dateTime(startMs)}>{printAge(Date.now() - startMs)}</time>;
}

/** Prints an age in days and hours, hours and minutes, or minutes: `3d4h`. */
export function printAge(ms: number): string {
  if (ms < MINUTE_MS) return "<1m";
  const unitMs = ms >= DAY_MS ? HOUR_MS : MINUTE_MS;
  return printDuration(Math.floor(ms / unitMs) * unitMs);
}
