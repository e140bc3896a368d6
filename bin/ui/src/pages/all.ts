/** All pages but the overview and the query page, which are files of their own in the bundle: see app/later.tsx. */

export { Cardinality } from "./cardinality";
export { Churn } from "./churn";
export { Metrics } from "./metrics";
export { Running } from "./running";
export { Alerts } from "./rules/alerts";
export { Rules } from "./rules/page";
export { Senders } from "./senders";
export { StorePage } from "./store";
export { Targets } from "./targets";
export { Teams } from "./teams";
export { Usage } from "./usage";
