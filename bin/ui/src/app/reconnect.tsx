/** Says that the server cannot be reached, tries until it is back, and then has the page load its data again. */

import { useEffect } from "preact/hooks";
import { endOutage, isReachable, isUnreachable } from "../api/client";
import { useStore } from "../parts/store";

const DELAY_MIN_MS = 1000;
const DELAY_MAX_MS = 8000;
/** An outage that begins so soon after the last one continues it: one request fails again and again, others do not. */
const CALM_MS = 30_000;

/** The delay before the next attempt, and the end of the last outage. */
let delayMs = DELAY_MIN_MS;
let endedMs = 0;

export function Reconnect() {
  const isGone = useStore(isUnreachable);
  useEffect(() => {
    if (!isGone) return;
    if (Date.now() - endedMs > CALM_MS) delayMs = DELAY_MIN_MS;
    let isUnmounted = false;
    let timer: ReturnType<typeof setTimeout>;
    const attempt = async () => {
      const isBack = await isReachable();
      if (isUnmounted) return;
      delayMs = Math.min(delayMs * 1.5, DELAY_MAX_MS);
      if (isBack) {
        endedMs = Date.now();
        endOutage();
      } else timer = setTimeout(attempt, delayMs);
    };
    timer = setTimeout(attempt, delayMs);
    return () => {
      isUnmounted = true;
      clearTimeout(timer);
    };
  }, [isGone]);
  if (!isGone) return null;
  return (
    <div class="notices">
      <p class="message error" role="status">
        <span><b>Disconnected.</b> The page reconnects by itself and then loads its data again.</span>
      </p>
    </div>
  );
}
