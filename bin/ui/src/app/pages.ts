/** All pages, in the order of the navigation. */

import type { ComponentType } from "preact";
import { Overview } from "../pages/overview/page";
import { Query } from "../query/page";
import { LazyJobs, lazyPage } from "./lazy";

export interface PageEntry {
  /** Last element of the path. */
  id: string;
  title: string;
  /** The key that opens the page after `g`. */
  key: string;
  view: ComponentType;
  /** True if the page shows nothing but series and rules, which users of a tenant may read. */
  isForTenants?: boolean;
  /** True if the navigation shows the page only where it has something to show. */
  isQuiet?: boolean;
}

/** The page at `/`. */
const OVERVIEW: PageEntry = { id: "overview", title: "Overview", key: "o", view: Overview };

export const PAGES: readonly PageEntry[] = [
  OVERVIEW,
  { id: "query", title: "Query", key: "q", view: Query, isForTenants: true },
  { id: "explore", title: "Metrics", key: "m", view: lazyPage((extras) => extras.Metrics), isForTenants: true },
  { id: "alerts", title: "Alerts", key: "a", view: lazyPage((extras) => extras.Alerts), isForTenants: true },
  { id: "rules", title: "Rules", key: "r", view: lazyPage((extras) => extras.Rules), isForTenants: true },
  { id: "targets", title: "Targets", key: "g", view: lazyPage((extras) => extras.Targets), isForTenants: true },
  { id: "jobs", title: "Jobs", key: "j", view: LazyJobs, isForTenants: true, isQuiet: true },
  { id: "cardinality", title: "Cardinality", key: "c", view: lazyPage((extras) => extras.Cardinality) },
  { id: "churn", title: "Churn", key: "h", view: lazyPage((extras) => extras.Churn) },
  { id: "usage", title: "Usage", key: "u", view: lazyPage((extras) => extras.Usage) },
  { id: "running", title: "Running queries", key: "n", view: lazyPage((extras) => extras.Running) },
  { id: "teams", title: "Teams and rejects", key: "t", view: lazyPage((extras) => extras.Teams) },
  { id: "senders", title: "Senders", key: "e", view: lazyPage((extras) => extras.Senders) },
  { id: "store", title: "Store", key: "s", view: lazyPage((extras) => extras.StorePage) },
];

/** Returns a page by its id, else the overview. */
export function pageOf(id: string): PageEntry {
  return PAGES.find((page) => page.id === id) ?? OVERVIEW;
}
