/** All pages, in the order of the navigation. */

import type { ComponentType } from "preact";
import { Overview } from "../pages/overview/page";
import { Query } from "../query/page";
import { later } from "./later";

export interface PageEntry {
  /** Last element of the path. */
  id: string;
  title: string;
  /** The key that opens the page after `g`. */
  key: string;
  view: ComponentType;
  /** True if the page shows nothing but series and rules, which users of a tenant may read. */
  isForTenants?: boolean;
}

/** The page at `/`. */
const OVERVIEW: PageEntry = { id: "overview", title: "Overview", key: "o", view: Overview };

export const PAGES: readonly PageEntry[] = [
  OVERVIEW,
  { id: "query", title: "Query", key: "q", view: Query, isForTenants: true },
  { id: "explore", title: "Metrics", key: "m", view: later("Metrics"), isForTenants: true },
  { id: "alerts", title: "Alerts", key: "a", view: later("Alerts"), isForTenants: true },
  { id: "rules", title: "Rules", key: "r", view: later("Rules"), isForTenants: true },
  { id: "targets", title: "Targets", key: "g", view: later("Targets"), isForTenants: true },
  { id: "cardinality", title: "Cardinality", key: "c", view: later("Cardinality") },
  { id: "churn", title: "Churn", key: "h", view: later("Churn") },
  { id: "usage", title: "Usage", key: "u", view: later("Usage") },
  { id: "running", title: "Running queries", key: "n", view: later("Running") },
  { id: "teams", title: "Teams and rejects", key: "t", view: later("Teams") },
  { id: "senders", title: "Senders", key: "e", view: later("Senders") },
  { id: "store", title: "Store", key: "s", view: later("StorePage") },
];

/** Returns a page by its id, else the overview. */
export function pageOf(id: string): PageEntry {
  return PAGES.find((page) => page.id === id) ?? OVERVIEW;
}
