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

/** Creates a store whose value is kept in the browser under `key`. Keep no secrets in it. */
export function createSavedStore<T>(key: string, initial: T, isValid: (value: unknown) => value is T): Store<T> {
  const store = createStore(load(key, initial, isValid));
  store.subscribe(() => {
    try {
      localStorage.setItem(key, JSON.stringify(store.get()));
    } catch {
      // The browser may forbid storage or its quota may be exhausted: the value then lasts until the page closes.
    }
  });
  return store;
}

function load<T>(key: string, initial: T, isValid: (value: unknown) => value is T): T {
  try {
    const saved: unknown = JSON.parse(localStorage.getItem(key) ?? "null");
    return isValid(saved) ? saved : initial;
  } catch {
    return initial;
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
