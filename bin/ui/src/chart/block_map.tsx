/** Blocks as bars on a time axis: one row per level, width by time, color by samples. */

import type { Block } from "../api/types";
import { count, plural } from "../parts/format";
import { type Column, DataTable } from "../parts/table";
import { dateTime, printDuration } from "../parts/time";

const ROW = 22;

export function BlockMap({ blocks }: { blocks: Block[] }) {
  if (blocks.length === 0) return <p class="empty">There are no blocks yet: all samples are in memory and in the log.</p>;
  const start = Math.min(...blocks.map(({ minTime }) => minTime));
  const end = Math.max(...blocks.map(({ maxTime }) => maxTime));
  const levels = [...new Set(blocks.map(({ compaction }) => compaction.level))].sort((a, b) => b - a);
  const densest = Math.max(...blocks.map(density));
  return (
    <>
      <div class="block-map card" role="img" aria-label={`${plural(blocks.length, "block")} from ${dateTime(start)} to ${dateTime(end)}; the table below lists them`}>
        {levels.map((level) => (
          <div class="block-row" key={level}>
            <span class="muted">Level {level}</span>
            <div class="block-track" style={{ height: `${ROW}px` }}>
              {blocks.filter(({ compaction }) => compaction.level === level).map((block) => (
                <i
                  key={block.ulid}
                  title={`${dateTime(block.minTime)} – ${dateTime(block.maxTime)}\n${count(block.stats.numSeries)} series, ${count(block.stats.numSamples)} samples`}
                  style={{
                    left: `${((block.minTime - start) / (end - start)) * 100}%`,
                    width: `${((block.maxTime - block.minTime) / (end - start)) * 100}%`,
                    background: `var(--heat-${Math.min(9, 2 + Math.floor((density(block) / densest) * 7))})`,
                  }}
                />
              ))}
            </div>
          </div>
        ))}
        <div class="block-row"><span /><div class="block-axis muted"><span>{dateTime(start)}</span><span>{dateTime(end)}</span></div></div>
      </div>
      <BlockTable blocks={blocks} />
    </>
  );
}

/** Samples per millisecond. */
function density({ minTime, maxTime, stats }: Block): number {
  return stats.numSamples / Math.max(1, maxTime - minTime);
}

function BlockTable({ blocks }: { blocks: Block[] }) {
  const columns: Array<Column<Block>> = [
    { id: "start", title: "Start", value: ({ minTime }) => minTime, cell: ({ minTime }) => dateTime(minTime), isNumber: true },
    { id: "length", title: "Length", value: (block) => block.maxTime - block.minTime, cell: (block) => printDuration(Math.round((block.maxTime - block.minTime) / 60_000) * 60_000), isNumber: true },
    { id: "level", title: "Level", hint: "1 for a part that a flush wrote; one more with every merge", value: ({ compaction }) => compaction.level, isNumber: true, isMinor: true },
    { id: "series", title: "Series", value: ({ stats }) => stats.numSeries, cell: ({ stats }) => count(stats.numSeries), isNumber: true, bar: true, isMinor: true },
    { id: "samples", title: "Samples", value: ({ stats }) => stats.numSamples, cell: ({ stats }) => count(stats.numSamples), isNumber: true, bar: true },
    { id: "sources", title: "Merged from", value: ({ compaction }) => compaction.sources.length, cell: ({ compaction }) => plural(compaction.sources.length, "block"), isNumber: true, isMinor: true },
    { id: "ulid", title: "Number", value: ({ ulid }) => ulid, cell: ({ ulid }) => <code>{ulid.replace(/^0+/, "") || "0"}</code>, isMinor: true },
  ];
  return <DataTable id="b" caption="Blocks" columns={columns} rows={blocks} rowKey={({ ulid }) => ulid} sort="start" noun="block" empty="" />;
}
