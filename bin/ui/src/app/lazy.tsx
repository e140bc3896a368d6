/** Pages and parts of pages whose code the browser loads when it is idle, or when one of them is shown. */

import type { ComponentType, VNode } from "preact";
import { useEffect, useState } from "preact/hooks";
import { reconnects } from "../api/client";
import { useStore } from "../parts/store";

type Extras = typeof import("../extras");

/** After an upgrade, the server has files of other names. */
const FAILED = "This part of the page cannot be loaded. If the server was upgraded, load the page again in the browser.";

let loading: Promise<Extras> | undefined;
let loaded: Extras | undefined;

/** Loads the code. A failed request is repeated by the next call. */
export function loadExtras(): Promise<Extras> {
  loading ??= import("../extras").then(
    (extras) => (loaded = extras),
    (error: unknown) => {
      loading = undefined;
      throw error;
    },
  );
  return loading;
}

/** Loads the code, and the editor, when the browser has nothing else to do: then they are there when the server is not. */
export function loadWhenIdle(): void {
  const start = () => void loadExtras().then(() => import("../editor/editor")).catch(() => {});
  // Safari has no idle callbacks.
  if ("requestIdleCallback" in globalThis) requestIdleCallback(start);
  else setTimeout(start, 1000);
}

/** Returns a component that shows the one that `pick` returns, once it is loaded; until then a notice in `frame`. */
export function lazy<P extends object>(pick: (extras: Extras) => ComponentType<P>, frame = (notice: VNode) => notice): ComponentType<P> {
  return function Lazy(props: P) {
    const [state, setState] = useState<"waiting" | "loaded" | "failed">("waiting");
    // When the server is back, the code is requested again.
    const nReconnects = useStore(reconnects);
    useEffect(() => {
      let isGone = false;
      const show = (next: typeof state) => !isGone && setState(next);
      loadExtras().then(() => show("loaded"), () => show("failed"));
      return () => {
        isGone = true;
      };
    }, [nReconnects]);
    if (loaded) {
      const View = pick(loaded);
      return <View {...props} />;
    }
    return frame(<p class="empty" role="status">{state === "failed" ? FAILED : "Loading…"}</p>);
  };
}

/** Returns a page like `lazy`. */
export function lazyPage(pick: (extras: Extras) => ComponentType): ComponentType {
  return lazy(pick, (notice) => <main class="page" id="main" tabIndex={-1}>{notice}</main>);
}
