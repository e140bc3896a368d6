/** Whether the store has records of training jobs. Without them, the navigation does not show their page. */

import { useEffect } from "preact/hooks";
import { reconnects, request, waiting } from "../api/client";
import { createSavedStore, useStore } from "../parts/store";

/** What was true last time, so that the navigation does not change while it is read. */
export const hasJobs = createSavedStore<boolean>("varve.has-jobs", false, (value) => typeof value === "boolean");

/** Returns whether there are jobs, and asks the server once, and after each outage. Reads the index, and no samples. */
export function useHasJobs(): boolean {
  const reason = useStore(waiting);
  const nReconnects = useStore(reconnects);
  useEffect(() => {
    if (reason !== "no") return;
    const abort = new AbortController();
    const params = { "match[]": '{__name__=~"training:job:pods|training:job:gpus"}', limit: 1 };
    request<string[]>("label/job_id/values", { params, signal: abort.signal }).then(
      ({ data }) => hasJobs.set(data.length > 0),
      // The page tells of errors elsewhere. What was true stays.
      () => {},
    );
    return () => abort.abort();
  }, [reason, nReconnects]);
  return useStore(hasJobs);
}
