/** The page's address: page and parameters. It contains all state that a link must carry. */

import { createStore, useStore } from "../parts/store";

export interface Address {
  /** Last element of the path: `query`, `cardinality`, … */
  page: string;
  params: URLSearchParams;
}

/** The latest URL of the query page. */
let queryUrl = "query";

function current(): Address {
  const last = location.pathname.split("/").pop() ?? "";
  // Prometheus' links name the query page `graph`.
  const page = last === "" ? "overview" : last === "graph" ? "query" : last;
  if (page === "query") queryUrl = page + location.search;
  return { page, params: new URLSearchParams(location.search) };
}

const address = createStore(current());

/** Follows the browser's back and forward buttons. */
export function startRouter(): void {
  addEventListener("popstate", () => address.set(current()));
}

/** Returns the address, and renders the component again when it changes. */
export function useAddress(): Address {
  return useStore(address);
}

/** Returns the address. */
export function getAddress(): Address {
  return address.get();
}

/** Returns a URL of a page, relative to the current one: all pages are in the same directory. */
export function pageUrl(page: string, params: URLSearchParams | Record<string, string> = {}): string {
  const search = new URLSearchParams(params).toString();
  return search === "" ? page : `${page}?${search}`;
}

/** Returns the URL that the navigation opens for a page. It leads back to the latest query from another page. */
export function homeOf(page: string): string {
  return page === "query" && address.get().page !== "query" ? queryUrl : page;
}

/** Goes to a URL of a page. `replace` keeps the back button from returning to the current one. */
export function navigate(url: string, replace = false): void {
  if (new URL(url, location.href).href !== location.href) {
    if (replace) history.replaceState(null, "", url);
    else history.pushState(null, "", url);
  }
  address.set(current());
}

/** Changes parameters of the current page. Undefined and empty values remove a parameter. */
export function setParams(changes: Record<string, string | undefined>, replace = false): void {
  const { page, params } = address.get();
  const next = new URLSearchParams(params);
  for (const [name, value] of Object.entries(changes)) {
    if (value === undefined || value === "") next.delete(name);
    else next.set(name, value);
  }
  navigate(pageUrl(page, next), replace);
}

/** Follows a link of the page without loading it again, unless the browser should open it elsewhere. */
export function followLink(event: MouseEvent): void {
  const link = (event.target as Element | null)?.closest?.("a");
  if (!link || event.defaultPrevented || event.button !== 0) return;
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  if (link.target !== "" || link.hasAttribute("download") || !link.hasAttribute("data-page")) return;
  event.preventDefault();
  navigate(link.href);
  scrollTo(0, 0);
}
