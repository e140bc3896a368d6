/** All pages, in the order of the navigation. */

import type { ComponentType } from "preact";
import { Cardinality } from "../pages/cardinality";
import { Churn } from "../pages/churn";
import { Metrics } from "../pages/metrics";
import { Rules } from "../pages/rules/page";
import { Running } from "../pages/running";
import { Senders } from "../pages/senders";
import { StorePage } from "../pages/store";
import { Teams } from "../pages/teams";
import { Usage } from "../pages/usage";
import { Query } from "../query/page";

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

const QUERY: PageEntry = { id: "query", title: "Query", key: "q", view: Query, isForTenants: true };

export const PAGES: readonly PageEntry[] = [
  QUERY,
  { id: "explore", title: "Metrics", key: "m", view: Metrics, isForTenants: true },
  { id: "cardinality", title: "Cardinality", key: "c", view: Cardinality },
  { id: "churn", title: "Churn", key: "h", view: Churn },
  { id: "usage", title: "Usage", key: "u", view: Usage },
  { id: "rules", title: "Rules", key: "r", view: Rules, isForTenants: true },
  { id: "running", title: "Running queries", key: "n", view: Running },
  { id: "teams", title: "Teams and rejects", key: "t", view: Teams },
  { id: "senders", title: "Senders", key: "e", view: Senders },
  { id: "store", title: "Store", key: "s", view: StorePage },
];

/** Returns a page by its id, else the query page. */
export function pageOf(id: string): PageEntry {
  return PAGES.find((page) => page.id === id) ?? QUERY;
}
