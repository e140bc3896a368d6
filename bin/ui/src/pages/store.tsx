/** The store: blocks over time, memory and disk over time, background tasks, replay, configuration, flags, build. */

import { request } from "../api/client";
import type { Block, BuildInfo, RuntimeInfo } from "../api/types";
import { setParams, useAddress } from "../app/router";
import { bytes, count, percent, plural } from "../parts/format";
import { useLoad } from "../parts/load";
import { type Column, DataTable } from "../parts/table";
import { dateTime, parseDuration, printDuration } from "../parts/time";
import { Copied, Figures, Name, Page, Section, Select, Show } from "../parts/view";
import { BlockMap } from "../chart/block_map";
import { type Line, MetricChart } from "./metric_chart";
import { type OwnMetrics, loadOwnMetrics } from "./own_metrics";

const POLL_MS = 5000;
const RANGES: Array<[string, string]> = [["1h", "1 hour"], ["6h", "6 hours"], ["1d", "1 day"], ["1w", "1 week"], ["4w", "4 weeks"]];

const MEMORY: Line[] = [
  ["Process", "process_resident_memory_bytes"],
  ["Head", "varve_tsdb_head_size_bytes"],
  ["Queries", "varve_query_memory_bytes"],
  ["Page cache", "varve_tsdb_page_cache_bytes"],
];
const DISK: Line[] = [["Blocks", "prometheus_tsdb_storage_blocks_bytes"], ["Log", "prometheus_tsdb_wal_storage_size_bytes"], ["Their indexes", "varve_tsdb_blocks_index_bytes"]];
const RATES: Line[] = [["Samples stored per second", "varve_ingest_samples_stored_total", (selector) => `rate(${selector}[5m])`]];
const SERIES: Line[] = [["Series in memory", "prometheus_tsdb_head_series"]];

export function StorePage() {
  const { params } = useAddress();
  const range = params.get("range") ?? "1h";
  const own = useLoad("own", (signal) => loadOwnMetrics("(varve_(tsdb|memory|build|self|volume)|prometheus_tsdb|process)_.*", signal), POLL_MS);
  const blocks = useLoad("blocks", async (signal) => (await request<{ blocks: Block[] }>("status/tsdb/blocks", { signal })).data.blocks, 6 * POLL_MS);
  const zoom = (startMs: number, endMs: number) => setParams({ range: `${Math.max(60, Math.round((endMs - startMs) / 1000))}s`, end: String(Math.round(endMs / 1000)) });
  const end = params.get("end");
  const chart = { rangeMs: parseDuration(range) ?? 3_600_000, endMs: end === null ? undefined : Number(end) * 1000, onZoom: zoom };
  const isPreset = RANGES.some(([value]) => value === range);
  return (
    <Page title="Store" controls={<Select label="Graphs" value={range} options={isPreset ? RANGES : [[range, "Zoomed"], ...RANGES]} onChange={(next) => setParams({ range: next, end: undefined })} />}>
      <Show loaded={own}>{(metrics) => <State own={metrics} />}</Show>
      <div class="columns halves">
        <Section title="Memory"><MetricChart lines={MEMORY} format={bytes} {...chart} /></Section>
        <Section title="Disk"><MetricChart lines={DISK} format={bytes} {...chart} /></Section>
        <Section title="Ingestion"><MetricChart lines={RATES} {...chart} /></Section>
        <Section title="Series"><MetricChart lines={SERIES} {...chart} /></Section>
      </div>
      <Section title="Blocks"><Show loaded={blocks}>{(list) => <BlockMap blocks={list} />}</Show></Section>
      <Show loaded={own}>{(metrics) => <Tasks own={metrics} />}</Show>
      <Server />
    </Page>
  );
}

function State({ own }: { own: OwnMetrics }) {
  const limit = own.value("varve_memory_limit_bytes");
  const [samples, disk] = [own.value("varve_tsdb_blocks_samples"), own.value("prometheus_tsdb_storage_blocks_bytes")];
  const [log, volume, free] = [own.value("prometheus_tsdb_wal_storage_size_bytes"), own.value("varve_volume_size_bytes"), own.value("varve_volume_free_bytes")];
  const used = own.value("varve_memory_used_bytes");
  return (
    <Figures
      items={[
        ["Series in memory", count(own.value("prometheus_tsdb_head_series"))],
        ["Head", bytes(own.value("varve_tsdb_head_size_bytes")), "Series and samples in memory"],
        ["Memory in use", `${bytes(used)} (${percent(limit > 0 ? used / limit : 0)})`, `Of ${bytes(limit)}, the limit that --memory.refuse-at applies to`],
        ["Disk", bytes(disk + log), `Blocks ${bytes(disk)}, log ${bytes(log)}`],
        ...(volume > 0 ? ([["Free space", `${bytes(free)} (${percent(free / volume)})`, `Of the volume of the data directory, ${bytes(volume)}`]] as Array<[string, string, string]>) : []),
        ["Samples in blocks", count(samples)],
        ["Bytes per sample", samples > 0 ? (disk / samples).toFixed(2) : "no blocks yet", "Blocks with their indexes"],
        ["Log not written", bytes(own.value("varve_tsdb_wal_pending_bytes")), "Records of the write-ahead log that wait to be written"],
      ]}
    />
  );
}

interface Task {
  name: string;
  value: string;
  isBad?: boolean;
}

function Tasks({ own }: { own: OwnMetrics }) {
  const n = (name: string) => own.value(name);
  const isReplaying = n("varve_tsdb_replay_running") > 0;
  const bad = (name: string, metric: string, format = count): Task => ({ name, value: format(n(metric)), isBad: n(metric) > 0 });
  const tasks: Task[] = [
    { name: "Replay", value: isReplaying ? `${bytes(n("varve_tsdb_replay_read_bytes"))} of ${bytes(n("varve_tsdb_replay_log_bytes"))}` : `done, ${count(n("varve_tsdb_replayed_series"))} series and ${count(n("varve_tsdb_replayed_samples"))} samples` },
    bad("Damaged bytes of the log, quarantined", "varve_tsdb_replayed_damaged_bytes", bytes),
    { name: "Compactions", value: count(n("prometheus_tsdb_compactions_total")) },
    bad("Failed compactions", "prometheus_tsdb_compactions_failed_total"),
    bad("Panics of background tasks", "varve_tsdb_background_panics_total"),
    bad("Damaged blocks", "varve_tsdb_blocks_damaged"),
    bad("Blocks held by retention", "varve_tsdb_blocks_held"),
    { name: "Blocks removed by retention", value: count(n("varve_tsdb_blocks_expired_total")) },
    bad("Samples dropped by merge conflicts", "varve_tsdb_merge_conflicts_total"),
    bad("Failed self-scrapes", "varve_self_scrapes_failed_total"),
  ];
  const columns: Array<Column<Task>> = [
    { id: "name", title: "Task", value: ({ name }) => name, wraps: true },
    { id: "value", title: "Since startup", value: ({ value }) => value, cell: ({ value, isBad }) => <span class={isBad ? "tag bad" : ""}>{value}</span>, wraps: true },
  ];
  return (
    <Section title="Background tasks">
      <DataTable id="tasks" caption="Background tasks" columns={columns} rows={tasks} rowKey={({ name }) => name} empty="" />
    </Section>
  );
}

async function loadServer(signal: AbortSignal) {
  const [runtime, build, flags, config] = await Promise.all([
    request<RuntimeInfo>("status/runtimeinfo", { signal }),
    request<BuildInfo>("status/buildinfo", { signal }),
    request<Record<string, string>>("status/flags", { signal }),
    request<{ yaml: string }>("status/config", { signal }),
  ]);
  return { runtime: runtime.data, build: build.data, flags: Object.entries(flags.data), config: config.data.yaml };
}

function Server() {
  const loaded = useLoad("server", loadServer);
  const columns: Array<Column<[string, string]>> = [
    { id: "flag", title: "Flag", value: ([name]) => name, cell: ([name]) => <Name text={`--${name}`} />, wraps: true },
    { id: "value", title: "Value", value: ([, value]) => value, cell: ([, value]) => (value === "" ? "–" : <code>{value}</code>), wraps: true },
  ];
  return (
    <Show loaded={loaded}>
      {({ runtime, build, flags, config }) => (
        <>
          <Section title="Server">
            <dl class="facts card">
              <dt>Version</dt><dd>{build.revision}, API of Prometheus {build.version}</dd>
              <dt>Running for</dt><dd>{printDuration(Math.round((Date.parse(runtime.serverTime) - Date.parse(runtime.startTime)) / 1000) * 1000)}, since {dateTime(Date.parse(runtime.startTime))}</dd>
              <dt>Host</dt><dd>{runtime.hostname}, {plural(runtime.GOMAXPROCS, "core")}, working directory {runtime.CWD}</dd>
              <dt>Retention</dt><dd>{runtime.storageRetention}</dd>
              <dt>Configuration</dt><dd>{runtime.reloadConfigSuccess ? "loaded" : "the last reload failed"}, {dateTime(Date.parse(runtime.lastConfigTime))}</dd>
            </dl>
          </Section>
          <div class="columns">
            <Section title="Configuration"><Copied text={config}><pre class="text" tabIndex={0}>{config}</pre></Copied></Section>
            <Section title="Flags">
              <DataTable id="f" caption="Flags" columns={columns} rows={flags} rowKey={([name]) => name} text={([name, value]) => `${name} ${value}`} noun="flag" isShort empty="" />
            </Section>
          </div>
        </>
      )}
    </Show>
  );
}
