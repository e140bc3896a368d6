/** Loads data for a component. Cancels outdated requests, and keeps the old data while new data load. */

import { useEffect, useRef, useState } from "preact/hooks";
import { isAbort } from "../api/client";

export interface Loaded<T> {
  data?: T;
  error?: unknown;
  isLoading: boolean;
  reload: () => void;
}

/** Runs `load` when `key` changes, and every `intervalMs` if it is set and the page is visible. */
export function useLoad<T>(key: string, load: (signal: AbortSignal) => Promise<T>, intervalMs = 0): Loaded<T> {
  const [state, setState] = useState<{ key: string; data?: T; error?: unknown; isLoading: boolean }>({ key, isLoading: true });
  const [round, setRound] = useState(0);
  const latest = useRef(load);
  latest.current = load;
  useEffect(() => {
    const abort = new AbortController();
    setState((old) => ({ key, data: old.key === key ? old.data : undefined, isLoading: true }));
    latest.current(abort.signal).then(
      (data) => setState({ key, data, isLoading: false }),
      (error: unknown) => {
        if (!isAbort(error)) setState((old) => ({ key, data: old.data, error, isLoading: false }));
      },
    );
    return () => abort.abort();
  }, [key, round]);
  useEffect(() => {
    if (intervalMs <= 0) return;
    const timer = setInterval(() => {
      if (!document.hidden) setRound((n) => n + 1);
    }, intervalMs);
    return () => clearInterval(timer);
  }, [intervalMs]);
  const { data, error, isLoading } = state;
  return { data, error, isLoading, reload: () => setRound((n) => n + 1) };
}
