/** Pages and parts of pages whose code the browser loads when it is idle, or when one of them is shown: one bundle for the pages
 * of jobs, one for all others. */

import type { ComponentType, VNode } from "preact";
import { useEffect, useState } from "preact/hooks";
import { reconnects } from "../api/client";
import { useStore } from "../parts/store";

type Extras = typeof import("../extras");
type JobPages = typeof import("../pages/jobs/jobs");

/** After an upgrade, the server has files of other names. */
const FAILED = "This part of the page cannot be loaded. If the server was upgraded, load the page again in the browser.";

/** Code that is loaded once. */
interface Bundle<T> {
  /** Undefined until it is loaded. */
  get(): T | undefined;
  /** Loads the code. A failed request is repeated by the next call. */
  load(): Promise<T>;
}

function bundle<T>(start: () => Promise<T>): Bundle<T> {
  let loading: Promise<T> | undefined;
  let loaded: T | undefined;
  const load = () => {
    loading ??= start().then(
      (code) => (loaded = code),
      (error: unknown) => {
        loading = undefined;
        throw error;
      },
    );
    return loading;
  };
  return { get: () => loaded, load };
}

const extras: Bundle<Extras> = bundle(() => import("../extras"));
const jobs: Bundle<JobPages> = bundle(() => import("../pages/jobs/jobs"));

/** Loads all code when the browser has nothing else to do: then it is there when the server is not. */
export function loadWhenIdle(): void {
  const start = () => void extras.load().then(() => import("../editor/editor")).then(() => jobs.load()).catch(() => {});
  // Safari has no idle callbacks.
  if ("requestIdleCallback" in globalThis) requestIdleCallback(start);
  else setTimeout(start, 1000);
}

/** Returns a component that shows the one that `pick` returns, once it is loaded; until then a notice. */
export function lazy<P extends object>(pick: (code: Extras) => ComponentType<P>): ComponentType<P> {
  return lazyOf(extras, pick, (notice) => notice);
}

function lazyOf<T, P extends object>({ get, load }: Bundle<T>, pick: (code: T) => ComponentType<P>, frame: (notice: VNode) => VNode): ComponentType<P> {
  return function Lazy(props: P) {
    const [state, setState] = useState<"waiting" | "loaded" | "failed">("waiting");
    // When the server is back, the code is requested again.
    const nReconnects = useStore(reconnects);
    useEffect(() => {
      let isGone = false;
      const show = (next: typeof state) => !isGone && setState(next);
      load().then(() => show("loaded"), () => show("failed"));
      return () => {
        isGone = true;
      };
    }, [nReconnects]);
    const loaded = get();
    if (loaded !== undefined) {
      const View = pick(loaded);
      return <View {...props} />;
    }
    return frame(<p class="empty" role="status">{state === "failed" ? FAILED : "Loading…"}</p>);
  };
}

const pageFrame = (notice: VNode) => <main class="page" id="main" tabIndex={-1}>{notice}</main>;

/** Returns a page like `lazy`. */
export function lazyPage(pick: (code: Extras) => ComponentType): ComponentType {
  return lazyOf(extras, pick, pageFrame);
}

/** The pages of jobs. */
export const LazyJobs: ComponentType = lazyOf(jobs, ({ Jobs }) => Jobs, pageFrame);

/** Loads what the overview and the first graph do not need. */
export const loadExtras = extras.load;
