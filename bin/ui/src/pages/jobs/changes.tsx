/** What happened to a job in a range, and its slow ranks. */

import { count, percent, plural } from "../../parts/format";
import { printLabels } from "../../parts/labels";
import { type Column, DataTable } from "../../parts/table";
import { dateTime, printDuration } from "../../parts/time";
import { Ago, Name, QueryLink } from "../../parts/view";
import { STRAGGLERS_MAX, type Straggler } from "./gpus";
import type { Change } from "./job_data";
import type { Steps } from "./range";

const rangeText = ({ startMs, endMs }: Steps) => printDuration(endMs - startMs);

export function Changes({ changes, steps, nAttempts }: { changes: Change[]; steps: Steps; nAttempts: number }) {
  const columns: Array<Column<Change>> = [
    { id: "time", title: "Time", value: ({ timeMs }) => timeMs, cell: ({ timeMs }) => dateTime(timeMs), isNumber: true },
    { id: "what", title: "What", value: ({ text }) => text, cell: ({ text, expr }) => <QueryLink expr={expr} range={rangeText(steps)} endMs={steps.endMs}>{text}</QueryLink>, isName: true },
    { id: "of", title: "Details", value: ({ more }) => more, isMinor: true, wraps: true },
    { id: "kind", title: "Kind", value: ({ kind }) => kind, cell: ({ kind, isBad }) => <span class={isBad ? "tag warn" : "tag"}>{kind}</span>, isMinor: true },
  ];
  const rows = changes.map((change, i) => ({ ...change, key: String(i) }));
  return <DataTable id="c" caption="Changes" columns={columns} rows={rows} rowKey={(row) => (row as Change & { key: string }).key} sort="time" noun="change" text={({ text, more }) => `${text} ${more}`} isShort empty={`No pod began or ended, and no alert fired${nAttempts === 1 ? "; there is one attempt" : ""} in the range.`} />;
}

export function Stragglers({ stragglers, steps, job }: { stragglers: Straggler[]; steps: Steps; job: string }) {
  const columns: Array<Column<Straggler>> = [
    { id: "rank", title: "Rank", value: nameOf, cell: (rank) => <QueryLink expr={printLabels({ __name__: "training:rank:signal", job_id: job, ...labelsOf(rank) })} range={rangeText(steps)} endMs={steps.endMs}><Name text={nameOf(rank)} /></QueryLink>, isName: true },
    { id: "signal", title: "Signal", value: ({ signal }) => signal, cell: ({ signal }) => <Name text={signal} />, wraps: true },
    { id: "share", title: "Of the median", hint: "Mean share of the median of the job while the rank was slow", value: ({ share }) => -share, cell: ({ share }) => percent(share), isNumber: true },
    { id: "minutes", title: "Slow for", value: ({ minutes }) => minutes, cell: ({ minutes }) => printDuration(Math.round(minutes * 2) * 30_000), isNumber: true },
    { id: "last", title: "Last", value: ({ lastMs }) => lastMs, cell: ({ lastMs }) => <Ago ms={lastMs} />, isNumber: true, isMinor: true },
  ];
  return (
    <DataTable
      id="s"
      caption="Stragglers"
      columns={columns}
      rows={stragglers}
      rowKey={(rank) => `${nameOf(rank)} ${rank.signal}`}
      sort="minutes"
      extent={stragglers.length < STRAGGLERS_MAX ? plural(stragglers.length, "straggler") : `the ${count(STRAGGLERS_MAX)} that were slow for the longest time`}
      isShort
      empty="No rank was slower than the others of the job in the range."
    />
  );
}

function labelsOf({ node, gpu, device, signal }: Straggler) {
  return { node, ...(gpu !== "" && { gpu }), ...(device !== "" && { device }), signal };
}

function nameOf({ node, gpu, device }: Straggler): string {
  return `${node}${gpu === "" ? "" : `, GPU ${gpu}`}${device === "" ? "" : `, ${device}`}`;
}
