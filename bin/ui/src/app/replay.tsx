/** Progress of WAL replay, before the store is open and while it serves during the rest of the replay. */

import { useEffect, useState } from "preact/hooks";
import { fetchFromServer, resume } from "../api/client";

export interface Progress {
  state: string;
  current: number;
  max: number;
}

const POLL_MS = 500;

/** Returns the progress, or undefined if the server does not respond. The endpoint works before the store is open. */
export async function readProgress(): Promise<Progress | undefined> {
  try {
    const response = await fetchFromServer("api/v1/status/walreplay");
    const { data } = (await response.json()) as { data: { current: number; max: number } };
    return { state: response.headers.get("X-Varve-Replay-State") ?? "", ...data };
  } catch {
    return undefined;
  }
}

async function isOpen(): Promise<boolean> {
  try {
    return (await fetchFromServer("-/ready")).status !== 503;
  } catch {
    return false;
  }
}

/** Shows the progress until the store is open, then resumes the requests that wait. */
export function Replay({ isBlocking }: { isBlocking: boolean }) {
  const [progress, setProgress] = useState<Progress>();
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isGone = false;
    const poll = async () => {
      const next = await readProgress();
      if (isGone) return;
      setProgress(next);
      if (isBlocking && (await isOpen())) resume();
      else if (!isGone) timer = setTimeout(poll, POLL_MS);
    };
    void poll();
    return () => {
      isGone = true;
      clearTimeout(timer);
    };
  }, [isBlocking]);
  const { state = "starting", current = 0, max = 0 } = progress ?? {};
  return (
    <main class="page gate" id="main">
      <h1>{state === "failed" ? "The replay of the log failed" : "The store is opening"}</h1>
      <p class="about">
        {state === "failed"
          ? "The server's log has the reason."
          : "The server replays its write-ahead log. The page continues by itself when the store is open."}
      </p>
      <progress aria-label="Replayed log files" value={max > 0 ? current : undefined} max={Math.max(max, 1)} />
      <p role="status">{max > 0 ? `${current} of ${max} log files` : "Reading the log"}</p>
    </main>
  );
}
