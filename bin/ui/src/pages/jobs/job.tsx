/** One job: what it has and does, its GPUs over time, its stragglers, and what changed. */

import { useRef } from "preact/hooks";
import { setParams, useAddress } from "../../app/router";
import { bytes, count, plural, withUnit } from "../../parts/format";
import { quote } from "../../parts/labels";
import { type Loaded, useLoad } from "../../parts/load";
import { dateTime } from "../../parts/time";
import { Figures, Page, PageLink, QueryLink, Section, Select, Show } from "../../parts/view";
import { Changes, Stragglers } from "./changes";
import { GpuHeat } from "./gpu_heat";
import { GPUS_MAX, NODES_MAX, type HeatRows, ROWS, type Ranking, SIGNALS, type Signal, loadRanking, loadRows, signalOf } from "./gpus";
import { type JobNow, loadChanges, loadJob } from "./job_data";
import { type Job, gpusOf } from "./list_data";
import { Age, AlertLink, PhaseTag, ofWanted, share } from "./list";
import { RangeControl, type Span, type Steps, setSpan, spanOf, stepsOf } from "./range";
import type { LoadedRuleState } from "./records";
import { NoRules, RuleNotice } from "./rule_notice";

const POLL_MS = 30_000;
const HEAT_POLL_MS = 60_000;

export function JobPage({ id, rules }: { id: string; rules: Loaded<LoadedRuleState> }) {
  const { params } = useAddress();
  const span = spanOf(params);
  const key = `${id} ${span.rangeMs} ${span.endMs ?? "now"}`;
  const isNow = span.endMs === undefined;
  const now = useLoad(`job ${key}`, (signal) => loadJob(id, stepsOf(span, Date.now()), isNow, signal), isNow ? POLL_MS : 0);
  const isAbsent = rules.data?.isAbsent === true;
  return (
    <Page title={id} controls={<><RangeControl span={span} /><PageLink page="jobs">All jobs</PageLink></>}>
      <RuleNotice loaded={rules} />
      {isAbsent ? <NoRules /> : <Show loaded={now}>{(data) => <Head id={id} data={data} />}</Show>}
      {!isAbsent && <Gpus id={id} span={span} cacheKey={key} now={now.data} />}
    </Page>
  );
}

function Head({ id, data: { job, atMs, isEnded, attempts } }: { id: string; data: JobNow }) {
  if (!job) return <p class="empty">Nothing is recorded of this job in the range. It may have ended before, or not have begun.</p>;
  const link = (record: string, text: string, more = "") => <QueryLink expr={`training:job:${record}{job_id=${quote(id)}${more}}`}>{text}</QueryLink>;
  return (
    <>
      <p class="table-tools">
        {isEnded ? <span class="tag warn" title={dateTime(atMs)}>ended {dateTime(atMs)}</span> : <PhaseTag phase={job.phase} />}
        {job.team !== "" && <span>team <b>{job.team}</b></span>}
        {!isEnded && job.alerts.firing + job.alerts.pending > 0 && <span>alerts <AlertLink find={id} alerts={job.alerts} /></span>}
        {attempts.length > 1 && <span class="muted">{plural(attempts.length, "attempt")} in the range</span>}
        {isEnded && <span class="muted">The figures are those of its end.</span>}
      </p>
      <Figures
        items={[
          ["Start", job.startMs === undefined ? "–" : <Start job={job} />, "When the oldest of its pods was created"],
          ["GPUs", link("gpus", ofWanted(job.gpus.allocated, job.gpus.wanted)), "GPUs that the job has, of those that it wants"],
          ["Busy GPUs", link("gpus", `${count(job.gpus.busy)} of ${count(gpusOf(job))}`, ', state="busy"'), "GPUs that compute and have belonged to the job for ten minutes"],
          ["Nodes", link("nodes", count(job.nodes)), "Nodes with GPUs of the job"],
          ["Ready pods", link("pods", ofWanted(job.pods.ready, job.pods.wanted)), "Pods that are ready, of all pods"],
          ["Restarts", link("restarts", number(job.restarts, count)), "Restarts of containers of its pods"],
          ["Utilization", link("utilization", share(job.utilization)), "Share of the GPUs that compute"],
          ["Tensor activity", link("tensor_active", share(job.tensorActive)), "Share of the time in which the tensor cores compute"],
          ["Power", link("power_watts", number(job.powerWatts, (watts) => withUnit(watts, "W")))],
          ["InfiniBand", link("infiniband_bytes:rate2m", number(job.infinibandBytes, (rate) => `${bytes(rate)}/s`)), "Bytes per second that the ports of the nodes of the job send"],
        ]}
      />
    </>
  );
}

function Start({ job: { startMs } }: { job: Job }) {
  return <><Age startMs={startMs} /> ago</>;
}

function number(value: number | undefined, format: (value: number) => string): string {
  return value === undefined ? "–" : format(value);
}

interface Heat {
  ranking: Ranking;
  page: number;
  rows: HeatRows;
}

/** A ranking, with what it is of. */
interface Kept {
  key: string;
  ranking: Ranking;
}

function Gpus({ id, span, cacheKey, now }: { id: string; span: Span; cacheKey: string; now?: JobNow }) {
  const { params } = useAddress();
  const signal = signalOf(params.get("signal") ?? "");
  const page = Math.max(1, Math.floor(Number(params.get("page") ?? "1")) || 1);
  const kept = useRef<Kept | undefined>(undefined);
  const key = `${cacheKey} ${signal.id}`;
  const load = async (abort: AbortSignal): Promise<Heat> => {
    // Further pages continue the first one: GPUs would be missing if the order changed in between.
    const ranking = page > 1 && kept.current?.key === key ? kept.current.ranking : await loadRanking(id, signal, stepsOf(span, Date.now()), abort);
    kept.current = { key, ranking };
    const shown = Math.min(page, Math.max(1, Math.ceil(ranking.gpus.length / ROWS)));
    return { ranking, page: shown, rows: await loadRows(id, signal, rowsOf(ranking, shown), ranking.steps, abort) };
  };
  const loaded = useLoad(`gpus ${key} ${page}`, load, span.endMs === undefined ? HEAT_POLL_MS : 0);
  const ranking = loaded.data?.ranking ?? (kept.current?.key === key ? kept.current.ranking : undefined);
  return (
    <>
      <Section title="GPUs" note="Each row is a GPU of the job. Stragglers come first, then those with the worst mean. Drag to zoom.">
        <div class="table-tools">
          <Select label="Signal" value={signal.id} options={SIGNALS.map(({ id: value, title }) => [value, title])} onChange={(value) => setParams({ signal: value, page: undefined }, true)} />
          {loaded.data && loaded.data.ranking.gpus.length > 0 && <Pages heat={loaded.data} />}
        </div>
        <Show loaded={loaded}>{(heat) => <HeatView heat={heat} signal={signal} />}</Show>
      </Section>
      {ranking && <Section title="Stragglers"><Stragglers stragglers={ranking.stragglers} steps={ranking.steps} job={id} /></Section>}
      {ranking && now && <ChangesOf id={id} cacheKey={cacheKey} isNow={span.endMs === undefined} now={now} nodes={ranking.nodes} steps={ranking.steps} />}
    </>
  );
}

function rowsOf({ gpus }: Ranking, page: number) {
  return gpus.slice((page - 1) * ROWS, page * ROWS);
}

function HeatView({ heat: { ranking, page, rows }, signal }: { heat: Heat; signal: Signal }) {
  const { gpus, nodes, steps } = ranking;
  if (gpus.length === 0) {
    return (
      <p class="empty">
        There are no samples of <code>{signal.metric}</code> for GPUs of the job in the range. Either it has no GPU (<code>training:gpu:info</code> has no series of it), or dcgm-exporter does not send this field with the label <code>Hostname</code>.
      </p>
    );
  }
  const isCut = nodes.length >= NODES_MAX || gpus.length >= GPUS_MAX;
  return (
    <div class="card">
      {isCut && <p class="muted">The worst of at most {count(GPUS_MAX)} GPUs of {count(NODES_MAX)} nodes.</p>}
      <GpuHeat signal={signal} gpus={rowsOf(ranking, page)} heat={rows} steps={steps} onZoom={(startMs, endMs) => setSpan({ rangeMs: endMs - startMs, endMs })} />
    </div>
  );
}

function Pages({ heat: { ranking, page } }: { heat: Heat }) {
  const total = ranking.gpus.length;
  const first = (page - 1) * ROWS + 1;
  const go = (to: number) => setParams({ page: to === 1 ? undefined : String(to) }, true);
  return (
    <>
      {total > ROWS && (
        <div class="joined" role="group" aria-label="Pages of GPUs">
          <button type="button" disabled={page === 1} onClick={() => go(page - 1)}>Previous</button>
          <button type="button" disabled={page * ROWS >= total} onClick={() => go(page + 1)}>Next</button>
        </div>
      )}
      <span class="muted" role="status">{total > ROWS ? `GPUs ${count(first)} to ${count(Math.min(total, first + ROWS - 1))} of ${count(total)}` : plural(total, "GPU")}</span>
    </>
  );
}

function ChangesOf({ id, cacheKey, isNow, now, nodes, steps }: { id: string; cacheKey: string; isNow: boolean; now: JobNow; nodes: string[]; steps: Steps }) {
  const loaded = useLoad(`changes ${cacheKey}`, (signal) => loadChanges(id, now.attempts, nodes, steps, signal), isNow ? HEAT_POLL_MS : 0);
  return <Section title="What changed"><Show loaded={loaded}>{({ changes, missing }) => <>{missing && <p class="message info">{missing}</p>}<Changes changes={changes} steps={steps} nAttempts={now.attempts.length} /></>}</Show></Section>;
}
