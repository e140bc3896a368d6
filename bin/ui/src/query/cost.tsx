/** The cost of a query: time, queue, series, samples, memory, bytes, and a mark if the result was shared. */

import type { QueryStats } from "../api/types";
import { bytes, count, seconds } from "../parts/format";

interface Props {
  /** The letter of the expression, if a panel has several. */
  letter?: string;
  stats?: QueryStats;
  /** From the request to the last byte, as the browser saw it. */
  totalSeconds: number;
  size: number;
  isShared: boolean;
}

export function Cost({ letter, stats, totalSeconds, size, isShared }: Props) {
  const items: Array<[name: string, value: string, hint: string]> = [
    ["Response", seconds(totalSeconds), "From the request to the last byte, as the browser saw it"],
  ];
  if (stats) {
    const { timings, samples, memoryPeakBytes } = stats;
    items.push(
      ["Evaluation", seconds(timings.evalTotalTime), "Time in the engine"],
      ["Queue", seconds(timings.execQueueTime), "From the arrival of the request until a thread worked on it: the wait for a permit (--query.max-concurrency) and for the thread"],
      ["Series", count(samples.seriesTouched), "Series that the selectors read"],
      ["Samples", count(samples.samplesRead), "Samples read; a sample in several windows counts once"],
      ["Peak samples", count(samples.peakSamples), "Most samples held at once (--query.max-samples)"],
    );
    if (memoryPeakBytes !== undefined) items.push(["Peak memory", bytes(memoryPeakBytes), "Most memory charged to the query (--query.max-memory)"]);
  }
  items.push(["Size", bytes(size), "Size of the response before compression"]);
  return (
    <dl class="cost" aria-label={letter === undefined ? "Cost of the query" : `Cost of query ${letter}`}>
      {letter !== undefined && <div><dt>Query</dt><dd>{letter}</dd></div>}
      {items.map(([name, value, hint]) => (
        <div key={name} title={hint}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
      {isShared && <div title="An identical query ran at the same time; both have its result"><dt>Shared</dt><dd>yes</dd></div>}
    </dl>
  );
}
