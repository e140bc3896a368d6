/** Components that the first graph does not need. One request loads all of them, when the first is shown. */

import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";

type Extras = typeof import("../extras");

let loading: Promise<Extras> | undefined;

/** Loads what the first graph does not need. A failed request is repeated by the next call. */
export function loadExtras(): Promise<Extras> {
  loading ??= import("../extras").catch((error: unknown) => {
    loading = undefined;
    throw error;
  });
  return loading;
}

/** Returns a component that shows the one that `pick` returns, once it is loaded. */
export function lazy<P extends object>(pick: (extras: Extras) => ComponentType<P>): ComponentType<P> {
  return (props: P) => {
    const [state, setState] = useState<{ View?: ComponentType<P>; isFailed?: boolean }>({});
    useEffect(() => {
      let isGone = false;
      const show = (next: typeof state) => !isGone && setState(next);
      loadExtras().then((extras) => show({ View: pick(extras) }), () => show({ isFailed: true }));
      return () => {
        isGone = true;
      };
    }, []);
    const { View, isFailed } = state;
    if (View) return <View {...props} />;
    return <p class="empty" role="status">{isFailed ? "This part of the page cannot be loaded. Reload the page." : "Loading…"}</p>;
  };
}
