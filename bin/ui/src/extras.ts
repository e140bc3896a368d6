/**
 * What the overview and the first graph do not need: all other pages, and parts of the query page. The browser loads it as
 * one file, when it is idle or when a part is shown: app/lazy.tsx.
 */

export { HeatChart } from "./chart/heat_chart";
export { Cardinality } from "./pages/cardinality";
export { Churn } from "./pages/churn";
export { MetricGraphs } from "./pages/metric_graphs";
export { Metrics } from "./pages/metrics";
export { Alerts } from "./pages/rules/alerts";
export { Rules } from "./pages/rules/page";
export { Running } from "./pages/running";
export { Senders } from "./pages/senders";
export { StorePage } from "./pages/store";
export { Targets } from "./pages/targets";
export { Teams } from "./pages/teams";
export { Usage } from "./pages/usage";
export { DidYouMean } from "./query/did_you_mean";
export { ExplainView } from "./query/explain_view";
export { LabelTable } from "./query/label_table";
export { rawQuery, timesOf } from "./query/raw";
export { Share } from "./query/share";
export { TimeRange } from "./query/time_range";
export { TreeView } from "./query/tree_view";
