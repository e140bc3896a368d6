/** Pages whose code the browser loads when it is idle, or when one of them is opened. */

import type { ComponentType } from "preact";
import { useLoad } from "../parts/load";
import { Show } from "../parts/view";

type Pages = typeof import("../pages/all");

/** The code, once it is loaded. */
let pages: Pages | undefined;

async function load(): Promise<Pages> {
  try {
    pages = await import("../pages/all");
    return pages;
  } catch {
    // After an upgrade, the server has files of other names.
    throw new Error("The code of this page cannot be loaded. If the server was upgraded, load the page again in the browser.");
  }
}

/** Loads the code when the browser has nothing else to do, so that it is there when the server is not. */
export function loadWhenIdle(): void {
  const start = () => void load().catch(() => {});
  // Safari has no idle callbacks.
  if ("requestIdleCallback" in globalThis) requestIdleCallback(start);
  else setTimeout(start, 1000);
}

/** Returns a page that shows its view once the code is there. */
export function later(name: keyof Pages): ComponentType {
  return function Later() {
    const loaded = useLoad("code of pages", load);
    const View = (pages ?? loaded.data)?.[name];
    if (View) return <View />;
    return <main class="page" id="main" tabIndex={-1}><Show loaded={loaded}>{() => null}</Show></main>;
  };
}
