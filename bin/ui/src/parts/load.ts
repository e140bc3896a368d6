/** Loads data for a component. Cancels outdated requests, and keeps the old data while new data load. */

import { useEffect, useRef, useState } from "preact/hooks";
import { isAbort, reconnects } from "../api/client";
import { useStore } from "./store";

export interface Loaded<T> {
  data?: T;
  error?: unknown;
  isLoading: boolean;
  reload: () => void;
}

interface State<T> {
  key: string;
  data?: T;
  error?: unknown;
  isLoading: boolean;
}

/** Runs `load` when `key` changes, when the server comes back after an outage, and every `intervalMs` if it is set and the page is visible. */
export function useLoad<T>(key: string, load: (signal: AbortSignal) => Promise<T>, intervalMs = 0): Loaded<T> {
  const [state, setState] = useState<State<T>>({ key, isLoading: true });
  const [round, setRound] = useState(0);
  const nReconnects = useStore(reconnects);
  const latest = useRef(load);
  const isBusy = useRef(false);
  latest.current = load;
  useEffect(() => {
    const abort = new AbortController();
    // An error stays until the next response, so that a list that refreshes does not flicker.
    setState((old) => (old.key === key ? { ...old, isLoading: true } : { key, isLoading: true }));
    isBusy.current = true;
    const end = (next: (old: State<T>) => State<T>) => {
      if (abort.signal.aborted) return;
      isBusy.current = false;
      setState(next);
    };
    latest.current(abort.signal).then(
      (data) => end(() => ({ key, data, isLoading: false })),
      (error: unknown) => end((old) => (isAbort(error) ? { ...old, isLoading: false } : { key, data: old.data, error, isLoading: false })),
    );
    return () => abort.abort();
  }, [key, round, nReconnects]);
  useEffect(() => {
    if (intervalMs <= 0) return;
    const timer = setInterval(() => {
      // A slow server gets no further request before it has responded.
      if (!document.hidden && !isBusy.current) setRound((n) => n + 1);
    }, intervalMs);
    return () => clearInterval(timer);
  }, [intervalMs]);
  // Before the effect of a new key has run, the state is that of the old one.
  const { data, error, isLoading } = state.key === key ? state : { data: undefined, error: undefined, isLoading: true };
  return { data, error, isLoading, reload: () => setRound((n) => n + 1) };
}
