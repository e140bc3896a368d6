/** Notices of the server above every page: rejected configuration, shutdown, retention that holds blocks. */

import { useEffect, useState } from "preact/hooks";
import { request, waiting } from "../api/client";
import { plural } from "../parts/format";
import { useLoad } from "../parts/load";
import { dateTime } from "../parts/time";
import { PageLink } from "../parts/view";
import { loadLastWords } from "../pages/last_words";
import { useStore } from "../parts/store";
import { readProgress } from "./replay";

interface Notification {
  text: string;
  date: string;
  active: boolean;
}

const POLL_MS = 30_000;
const REPLAY_POLL_MS = 1000;
/** A restart of the server is noticed within this time. */
const RESTART_POLL_MS = 5000;
const DAY_MS = 86_400_000;
/** The notification of a replay, of which the page shows the progress instead. */
const REPLAYING = /replaying the write-ahead log/;

/** `hasList` is false on a page that lists the notifications itself. */
export function Notices({ hasList }: { hasList: boolean }) {
  const { data = [] } = useLoad("notices", async (signal) => (await request<Notification[]>("notifications", { signal })).data, POLL_MS);
  const [hidden, setHidden] = useState<string[]>([]);
  const shown = data.filter(({ active, text, date }) => hasList && active && !REPLAYING.test(text) && !hidden.includes(text + date));
  const killed = useKilled();
  const replay = useReplay();
  if (shown.length === 0 && !killed && !replay) return null;
  return (
    <div class="notices">
      {replay}
      {killed}
      {shown.map(({ text, date }) => (
        <div class="message warning" role="status" key={text + date}>
          <span>{text} <span class="muted">since {dateTime(Date.parse(date))}</span></span>
          <button type="button" class="quiet" onClick={() => setHidden([...hidden, text + date])}>Hide</button>
        </div>
      ))}
    </div>
  );
}

/** Shows the progress of a replay that continues after the store is open. Requests for the data of the log wait for its end. */
function useReplay() {
  const reason = useStore(waiting);
  const [isRunning, setIsRunning] = useState(false);
  const { data } = useLoad(`replay ${reason}`, readProgress, reason !== "no" ? 0 : isRunning ? REPLAY_POLL_MS : RESTART_POLL_MS);
  useEffect(() => setIsRunning(data?.state === "running"), [data]);
  if (reason !== "no" || data?.state !== "running") return null;
  return (
    <div class="message info" role="status">
      <span>The server replays its log: {data.current} of {plural(data.max, "file")}. Queries of recent data wait for it.</span>
    </div>
  );
}

/** Shows for a day, or until the user hides it, that the previous process ended while requests were active. */
function useKilled() {
  const [isHidden, setIsHidden] = useState(false);
  const { data: process } = useLoad("killed", loadLastWords);
  if (isHidden || !process || process.isCleanShutdown || process.requests.length === 0) return null;
  const [heaviest] = process.requests;
  if (!heaviest || Date.now() - heaviest.recordedMs > DAY_MS) return null;
  return (
    <div class="message warning" role="status">
      <span>
        The previous process ended without a shutdown at {dateTime(heaviest.recordedMs)} while {plural(process.requests.length, "request")} ran.{" "}
        <PageLink page="running">What they held</PageLink>
      </span>
      <button type="button" class="quiet" onClick={() => setIsHidden(true)}>Hide</button>
    </div>
  );
}
