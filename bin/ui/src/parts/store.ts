/** A value that components observe. */

import { useEffect, useState } from "preact/hooks";

export interface Store<T> {
  get(): T;
  set(value: T): void;
  subscribe(listener: () => void): () => void;
}

/** Creates a store that holds `value`. */
export function createStore<T>(value: T): Store<T> {
  const listeners = new Set<() => void>();
  return {
    get: () => value,
    set: (next) => {
      if (Object.is(next, value)) return;
      value = next;
      for (const listener of listeners) listener();
    },
    subscribe: (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

/** A store whose value the browser keeps for all tabs. */
export interface SavedStore<T> extends Store<T> {
  /** Sets a value that is derived from the latest one, which another tab may have saved. */
  update(change: (value: T) => T): void;
}

/** Creates a store whose value is kept in the browser under `key`, and follows other tabs. Keep no secrets in it. */
export function createSavedStore<T>(key: string, initial: T, isValid: (value: unknown) => value is T): SavedStore<T> {
  const store = createStore(load(key, isValid) ?? initial);
  let isSaved = true;
  const set = (value: T) => {
    store.set(value);
    try {
      localStorage.setItem(key, JSON.stringify(value));
      isSaved = true;
    } catch {
      // The browser may forbid storage or its quota may be exhausted: the value then lasts until the page closes.
      isSaved = false;
    }
  };
  const latest = () => (isSaved ? load(key, isValid) : undefined) ?? store.get();
  // Another tab has saved a value, or removed all of them: then the key is null.
  globalThis.addEventListener?.("storage", (event) => {
    if (event.key === key || event.key === null) store.set(load(key, isValid) ?? initial);
  });
  return { ...store, set, update: (change) => set(change(latest())) };
}

/** Returns the saved value; undefined if there is none. */
function load<T>(key: string, isValid: (value: unknown) => value is T): T | undefined {
  try {
    const saved: unknown = JSON.parse(localStorage.getItem(key) ?? "null");
    return isValid(saved) ? saved : undefined;
  } catch {
    return undefined;
  }
}

/** Returns the value of a store, and renders the component again when it changes. */
export function useStore<T>(store: Store<T>): T {
  const [value, setValue] = useState(() => store.get());
  useEffect(() => {
    const update = () => setValue(() => store.get());
    update();
    return store.subscribe(update);
  }, [store]);
  return value;
}
